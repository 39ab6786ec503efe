"""How the C functions of scipy.ndimage read images beyond their edges, by mode, and convert numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Load, Op, cast, select
from hjit.trace.ir.graph import Definition, identity
from hjit.trace.ir.poly import Dim, Poly, boundary, poly
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, as_value, call, from_known, from_stage
from hjit.trace.tracing.arrays.writing import update
from hjit.trace.tracing.recording.decisions import settle
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value
from hjit.trace.tracing.scalars.size import size_poly

T = TypeVar("T")
EPSILON = float(np.finfo(np.float64).eps)
DOUBLE = np.dtype(np.float64)
BOOL = np.dtype(bool)
# SciPy's codes of the boundary modes
MODES = {0: "clamp", 1: "wrap", 2: "symmetric", 3: "reflect", 4: "constant", 5: "wrap", 6: "constant"}


# -- reading beyond the edges


@dataclass(slots=True)
class Extended:
    """An image that can be read beyond its edges.

    Attributes:
        image: the image.
        mode: a mode of `poly.boundary`, or "constant".
        padded: the image with its constant border, in mode "constant".
        before: width of that border at the start of each axis.
    """

    image: Tracer
    mode: str
    padded: str = ""
    dtype: np.dtype[Any] = DOUBLE
    before: tuple[Poly, ...] = ()

    @classmethod
    def of(
        cls, image: Tracer, mode: str, cval: Any, before: Sequence[int], after: Sequence[int], dtype: Any = None
    ) -> Extended:
        """`image` readable `before` elements ahead of each axis and `after` elements past it, the border in `dtype`."""
        if mode != "constant" or (not any(before) and not any(after)):
            return cls(image, "clamp" if mode == "constant" else mode, dtype=image.dtype)
        rec = current()
        if dtype is None:
            dtype = image.dtype if holds(image.dtype, cval) else np.dtype(np.result_type(image.dtype, DOUBLE))
        sizes, ahead, past = rec.polys(image.shape), tuple(map(size_poly, before)), tuple(map(size_poly, after))
        shape = tuple(n + b + a for n, b, a in zip(sizes, ahead, past, strict=True))
        inside = tuple(p + b for p, b in zip(identity(image.ndim), ahead, strict=True))
        interior = Definition(sizes, (), inside, cast(image.load(), dtype))
        stage = rec.stage(Const(cval, dtype), shape, dtype, (interior,), name="padded")
        return cls(image, mode, stage.name, dtype, ahead)

    def at(self, offsets: Sequence[int | Poly]) -> Expr:
        """The element `offsets` away from the one at the iteration dimensions."""
        index = [poly(Dim(k)) + o for k, o in enumerate(offsets)]
        if self.padded:
            return Load(self.padded, tuple(i + b for i, b in zip(index, self.before, strict=True)), self.dtype)
        sizes = current().polys(self.image.shape)
        here = [
            p if isinstance(o, int) and o == 0 else boundary(self.mode, p, n)
            for p, o, n in zip(index, offsets, sizes, strict=True)
        ]
        return self.image.at(here)

    def along(self, axis: int, offset: int | Poly) -> Expr:
        """The element `offset` away along one axis."""
        return self.at(on_axis(axis, self.image.ndim, offset))


def holds(dtype: np.dtype[Any], value: Any) -> bool:
    """Is `value` exactly a number of `dtype`?"""
    with np.errstate(all="ignore"):
        return bool(
            np.array_equal(
                np.asarray(value).astype(dtype).astype(DOUBLE), np.asarray(value, DOUBLE), equal_nan=dtype.kind == "f"
            )
        )


def on_axis(axis: int, ndim: int, value: T) -> list[T | int]:
    """`value` at `axis`, 0 at all others."""
    return [value if k == axis else 0 for k in range(ndim)]


def store(output: Tracer, value: Expr, safe: bool = True) -> None:
    """``output[...] = value`` with C's conversion of numbers; `safe`: see `converted`.

    What C writes to a bool array is a byte, and a filter that reads it reads that byte.
    """
    if not output.writeable:
        raise ValueError("output array is read-only")
    _check_supported(output.dtype)
    if output.dtype != BOOL or value.dtype == BOOL:
        update(output, converted(value, output.dtype, safe))
        return
    octets = from_stage(converted(value, np.dtype(np.uint8)), output.shape, np.uint8)
    update(output, cast(octets.load(), BOOL))
    if output.is_whole:
        output.buffer.octets = output.buffer.version, octets


def source(image: Any) -> Tracer:
    """An image as C reads it: of a bool array that a filter has written, its bytes."""
    t = as_tracer(image)
    _check_supported(t.dtype)
    octets = t.buffer.octets
    return octets[1] if octets is not None and octets[0] == t.buffer.version and t.is_whole else t


def _check_supported(dtype: np.dtype[Any]) -> None:
    """SciPy's C functions have no case for float16, neither to read it nor to write it."""
    if dtype == np.float16:
        raise RuntimeError(f"array type {dtype!r} not supported")


def converted(e: Expr, dtype: np.dtype[Any], safe: bool = True) -> Expr:
    """C's conversion of a number on this machine, which for uint32 is not NumPy's: modulo 2**32.

    Filters of several axes are `safe`: they convert ``-x`` and negate it where `x` is negative, which matters beyond
    the range of uint64.
    """
    if e.dtype.kind == "f" and dtype == np.uint32:
        return cast(cast(e, np.int64), dtype)
    if e.dtype.kind == "f" and dtype == np.uint64 and safe:
        negated = Op("subtract", (Const(0, dtype), cast(Op("negative", (e,), e.dtype), dtype)), dtype)
        return select(less(Const(-1, e.dtype), e), cast(e, dtype), negated)
    return cast(e, dtype)


def add(a: Expr, b: Expr) -> Expr:
    """The sum, in the dtype of `a`."""
    return Op("add", (a, b), a.dtype)


def times(a: Expr, b: Expr) -> Expr:
    """The product, in the dtype of `a`."""
    return Op("multiply", (a, b), a.dtype)


def less(a: Expr, b: Expr) -> Expr:
    """``a < b``."""
    return Op("less", (a, b), BOOL)


def reduced(
    image: Tracer,
    start: Expr,
    extents: tuple[int, ...],
    term: Callable[[], Expr],
    order: str = "sequential",
    name: str = "add",
) -> Expr:
    """The sum (or another `name`) of `term` over reduction dimensions, as a load of a stage of its own."""
    rec = current()
    stage, here = rec.reserve("sum"), identity(image.ndim)
    value = Op(name, (Load(stage, here, start.dtype), term()), start.dtype)
    sizes = rec.polys(image.shape)
    rec.stage(
        start, sizes, start.dtype, (Definition(sizes, tuple(map(poly, extents)), here, value, order),), reserved=stage
    )
    return Load(stage, here, start.dtype)


def reach(shape: Sequence[int], origins: Sequence[Any]) -> tuple[list[int], list[int]]:
    """How far a window of `shape` reaches ahead and past an element."""
    ahead = [int(n) // 2 + operator.index(static_value(o)) for n, o in zip(shape, origins, strict=True)]
    return ahead, [int(n) - 1 - a for n, a in zip(shape, ahead, strict=True)]


def footprint_of(x: Any) -> np.ndarray[Any, Any]:
    """The truth values of a footprint. Those of an argument or captured array are guarded, 32 at a time; of one that
    the function makes of the caller's numbers, these are."""
    t = as_tracer(x)
    if t.known is not None:
        return t.known.astype(bool)
    truth = t.astype(bool).copy()
    settled = settle(current(), truth.buffer.source())
    if settled is not None:
        return settled
    flat, bits = truth.astype(np.int64).reshape(-1), from_known(1 << np.arange(32))
    words = [
        int(as_value(call(np.sum, flat[k : k + 32] * bits[: min(32, int(t.size) - k)])))
        for k in range(0, int(t.size), 32)
    ]
    return np.array([w >> k & 1 for w in words for k in range(32)][: int(t.size)], bool).reshape(t.shape)
