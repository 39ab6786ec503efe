"""diff, ediff1d, gradient, trapezoid; convolve and correlate of one axis."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Index, Load, Op, cast, select
from hjit.trace.ir.graph import Definition
from hjit.trace.ir.poly import ZERO, Dim, Poly, boundary, poly
from hjit.trace.ops.arguments import all_known, axes_of, axis_of, refuse
from hjit.trace.ops.arrays.joining import Region, assemble, join, part
from hjit.trace.ops.layout import Order, as_it_lies
from hjit.trace.ops.limits import MAX_CONVOLVE_TAPS
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, from_known, from_stage
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host, static_value

_MISSING = np._NoValue
_BOOL = np.dtype(bool)
_FEW_TAPS = 11  # up to so many NumPy's convolution adds products in their order


@implements(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = _MISSING, append: Any = _MISSING) -> Any:
    n = operator.index(static_value(n))
    if n == 0:
        return a
    if n < 0:
        raise ValueError("order must be non-negative but got " + repr(n))
    a = as_tracer(a)
    if a.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    axis = axis_of(axis, a.ndim)
    edge = (*a.shape[:axis], 1, *a.shape[axis + 1 :])
    ends = [None if x is _MISSING else as_tracer(x) for x in (prepend, append)]
    before, after = (np.broadcast_to(x, edge) if x is not None and x.ndim == 0 else x for x in ends)
    if before is not None or after is not None:
        a = call(np.concatenate, [x for x in (before, a, after) if x is not None], axis)
    minus = np.not_equal if a.dtype == bool else np.subtract
    for _ in range(n):
        a = minus(part(a, axis, 1, None), part(a, axis, None, -1))
    return a


@implements(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    a = as_tracer(ary).reshape(-1)
    pieces = [np.subtract(a[1:], a[:-1])]
    for name, x in (("to_begin", to_begin), ("to_end", to_end)):
        if x is None:
            continue
        x = as_tracer(x)
        if not np.can_cast(x.dtype, a.dtype, "same_kind"):
            raise TypeError(f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule.")
        x = x.reshape(-1)
        pieces = [x, *pieces] if name == "to_begin" else [*pieces, x]
    return join(pieces, 0, a.dtype) if len(pieces) > 1 else pieces[0]


@implements(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = as_tracer(y)
    axis = axes_of(axis, y.ndim)[0]
    d = dx
    if x is not None:
        x = as_tracer(x)
        d = diff(x, axis=axis if x.ndim != 1 else -1)
        if x.ndim == 1:
            d = d.reshape((1,) * axis + d.shape + (1,) * (y.ndim - axis - 1))
    return (d * (part(y, axis, 1, None) + part(y, axis, None, -1)) / 2.0).sum(axis)


# -- gradient


@implements(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    f = as_tracer(f)
    axes = tuple(range(f.ndim)) if axis is None else np.lib.array_utils.normalize_axis_tuple(static_value(axis), f.ndim)
    if not varargs:
        spacings = [1.0] * len(axes)
    elif len(varargs) == 1 and _ndim(varargs[0]) == 0:
        spacings = list(varargs) * len(axes)
    elif len(varargs) == len(axes):
        spacings = [_spacing(d, f.shape[k]) for d, k in zip(varargs, axes, strict=True)]
    else:
        raise TypeError("invalid number of arguments")
    edge_order = operator.index(static_value(edge_order))
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    dtype = f.dtype if f.dtype.kind == "f" else np.dtype(np.float64)
    if f.dtype.kind in "iu":
        f = f.astype(np.float64)
    found = []
    for k, dx in zip(axes, spacings, strict=True):
        if f.shape[k] < edge_order + 1:
            raise ValueError(
                "Shape of array too small to calculate a numerical gradient, "
                "at least (edge_order + 1) elements are required."
            )
        along = functools.partial(_gradient_of, axis=k, dx=dx, edge_order=edge_order, dtype=dtype)
        found.append(as_it_lies(f, along))
    return found[0] if len(axes) == 1 else tuple(found)


def _gradient_of(f: Tracer, order: Order, axis: int, dx: Any, edge_order: int, dtype: np.dtype[Any]) -> Tracer:
    """As `_gradient_along`, of an array with its axes in an order."""
    return _gradient_along(f, order.index(axis), dx, edge_order, dtype)


def _ndim(x: Any) -> int:
    return 0 if is_host(x) else as_tracer(x).ndim


def _spacing(d: Any, n: int) -> Any:
    """The spacing along one axis: a scalar, or the differences of the coordinates."""
    if _ndim(d) == 0:
        return d
    d = as_tracer(d)
    if d.ndim != 1:
        raise ValueError("distances must be either scalars or 1d")
    if d.shape[0] != n:
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    steps = diff(d.astype(np.float64) if d.dtype.kind in "iu" else d)
    return steps[0] if bool(np.all(steps == steps[0])) else steps


def _gradient_along(f: Tracer, axis: int, dx: Any, edge_order: int, dtype: np.dtype[Any]) -> Tracer:
    """Central differences inside, one-sided ones at both ends: three regions."""
    n = f.shape[axis]

    def at(start: Any, stop: Any) -> Any:
        return part(f, axis, start, stop)

    uniform = _ndim(dx) == 0
    if uniform:
        inside = (at(2, None) - at(None, -2)) / (2.0 * dx) if n > 2 else None
    else:
        h, k = (x.reshape((1,) * axis + x.shape + (1,) * (f.ndim - axis - 1)) for x in (dx[:-1], dx[1:]))
        inside = (
            -k / (h * (h + k)) * at(None, -2) + (k - h) / (h * k) * at(1, -1) + h / (k * (h + k)) * at(2, None)
            if n > 2
            else None
        )
    if edge_order == 1:
        first = (at(1, 2) - at(0, 1)) / (dx if uniform else dx[0])
        last = (at(-1, None) - at(-2, -1)) / (dx if uniform else dx[-1])
    else:
        (a, b, c), (p, q, r) = _edge_weights(dx, uniform)
        first = a * at(0, 1) + b * at(1, 2) + c * at(2, 3)
        last = p * at(-3, -2) + q * at(-2, -1) + r * at(-1, None)
    regions = []
    for start, piece in ((1, inside), (0, first), (n - 1, last)):
        if piece is not None:
            regions.append(Region((*(0,) * axis, start, *(0,) * (f.ndim - axis - 1)), piece.shape, piece))
    return assemble(f.shape, dtype, regions)


def _edge_weights(dx: Any, uniform: bool) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    if uniform:
        return (-1.5 / dx, 2.0 / dx, -0.5 / dx), (0.5 / dx, -2.0 / dx, 1.5 / dx)
    h, k = dx[0], dx[1]
    first = -(2.0 * h + k) / (h * (h + k)), (h + k) / (h * k), -h / (k * (h + k))
    h, k = dx[-2], dx[-1]
    return first, (k / (h * (h + k)), -(k + h) / (h * k), (2.0 * k + h) / (k * (h + k)))


# -- convolution in one dimension


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    a, v = _operands(np.convolve, a, v, mode)
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    return _slide(a, v[::-1], mode, np.convolve)


@implements(np.correlate)
def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    a, v = _operands(np.correlate, a, v, mode)
    if v.shape[0] > a.shape[0]:
        return _slide(v, a, mode, np.correlate)[::-1]
    return _slide(a, v, mode, np.correlate)


def _operands(function: Callable[..., Any], a: Any, v: Any, mode: Any) -> tuple[Any, Any]:
    """Two arrays of one dimension.

    Raises:
        ValueError: what NumPy says of others.
    """
    a, v = (_at_least_1d(x) for x in (a, v))
    if a.ndim > 1 or v.ndim > 1 or a.size == 0 or v.size == 0:
        refuse(function, a, v, mode)
    return a, v


def _at_least_1d(x: Any) -> Any:
    t = as_tracer(x)
    return t.reshape(1) if t.ndim == 0 else t


@dataclass(frozen=True, slots=True)
class _SlidingSum:
    """The terms of ``sum_j a[p + j] * v[j]``, in one dtype: of bools with `or` and `and`; `result`: NumPy's."""

    a: Tracer
    v: Tracer
    dtype: np.dtype[Any]
    result: np.dtype[Any]

    @property
    def plus(self) -> str:
        return "logical_or" if self.dtype.kind == "b" else "add"

    def term(self, p: Poly, j: Poly, check: str) -> Expr:
        """``a[p] * v[j]``; nothing where `p` lies beyond the end of `a` that `check` names."""
        n, v = current().poly(self.a.shape[0]), self.v
        x = self.a.at([boundary("clamp", p, n) if check else p])
        tap = v.at([j]) if v.known is None or not j.is_const else _tap(v, j.const)
        times = "logical_and" if self.dtype.kind == "b" else "multiply"
        product = Op(times, (cast(x, self.dtype), cast(tap, self.dtype)), self.dtype)
        if not check:
            return product
        limit = Const(0, np.int64) if check == "greater_equal" else Index(n)
        return select(Op(check, (Index(p), limit), _BOOL), product, Const(0, self.dtype))

    def unrolled(self, first: Poly, check: str) -> Expr:
        """All terms, where the tap at 0 lies at `first`."""
        taps = int(self.v.shape[0])
        terms = (self.term(first + j, poly(j), check) for j in range(taps))
        total = functools.reduce(lambda total, x: Op(self.plus, (total, x), self.dtype), terms)
        # NumPy gives its BLAS what crosses an end, and what has more taps than its loops of few
        in_order = self.result.kind != "f" or self.result == np.float16 or (not check and taps <= _FEW_TAPS)
        return total if in_order else Op("unordered", (total,), self.dtype)


def _slide(a: Tracer, v: Tracer, mode: Any, function: Callable[..., Any]) -> Any:
    """``sum_j a[i + j - left] * v[j]`` over the taps that lie inside `a`, which is the longer one."""
    mode = static_value(mode)
    if mode not in ("full", "same", "valid"):
        refuse(function, a, v, mode)
    if all_known((a, v)):
        numpy_correlate: Any = np.correlate
        return from_known(numpy_correlate(a.known, v.known, mode))
    rec = current()
    n, m = a.shape[0], v.shape[0]
    left = {"valid": 0, "same": m // 2, "full": m - 1}[mode]
    right = {"valid": 0, "same": m - 1 - left, "full": m - 1}[mode]
    inside = n - m + 1
    result = np.result_type(a.dtype, v.dtype)
    dtype = np.dtype(np.float32) if result == np.float16 else result
    sliding = _SlidingSum(a, v, dtype, result)
    # where each part begins in the result, how long it is, where its first tap lies, and which end it may cross
    parts = [
        (left, inside, ZERO, ""),
        (0, left, -rec.poly(left), "greater_equal"),
        (left + inside, right, rec.poly(inside), "less"),
    ]
    shape, here = (left + inside + right,), poly(Dim(0))
    if v.known is not None and m <= MAX_CONVOLVE_TAPS:
        regions = [
            Region((start,), (extent,), sliding.unrolled(here + first, check)) for start, extent, first, check in parts
        ]
        return assemble(shape, result, regions)
    name, j = rec.reserve(sliding.plus), poly(Dim(1))
    updates = []
    for start, extent, first, check in parts:
        if extent == 0:
            continue
        target = (here + rec.poly(start),)
        value = Op(sliding.plus, (Load(name, target, dtype), sliding.term(here + first + j, j, check)), dtype)
        updates.append(Definition((rec.poly(extent),), (rec.poly(m),), target, value, sliding.plus))
    total = from_stage(Const(0, dtype), shape, dtype, tuple(updates), reserved=name)
    return total.astype(result, copy=False)


def _tap(v: Tracer, j: int) -> Expr:
    assert v.known is not None
    return Const(v.known[j], v.dtype)
