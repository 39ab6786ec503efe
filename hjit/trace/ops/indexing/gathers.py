"""What reads by index: take, take_along_axis, choose, compress, extract, isin.

And index arithmetic: unravel_index, ravel_multi_index, ix_.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Op, cast, select
from hjit.trace.ir.graph import identity
from hjit.trace.ir.poly import Indirect, poly
from hjit.trace.ops.arguments import axes_of, broadcast, finish, makes, open_mesh, shape_of
from hjit.trace.ops.elementwise.promotion import common_dtype, element
from hjit.trace.ops.indexing.getitem import gather_index
from hjit.trace.ops.limits import MAX_CHOICES
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, from_known, from_stage, is_tracer
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host


def lookup(table: Tracer, index: Tracer) -> Tracer:
    """``table[index]`` for a 1-d table and an index that is in range."""
    where = poly(Indirect(cast(index.load(), np.int64), None))
    return from_stage(table.at((where,)), index.shape, table.dtype)


def depends_on_values(operation: str, advice: str = "") -> Any:
    """The error of an operation whose result's length is not known while tracing."""
    return current().error(
        operation, "the length of its result depends on the image's values", advice or "use np.where, or a mask"
    )


# -- reading


def indices_of(indices: Any) -> Tracer:
    """An argument of indices as an array of integers, as np.take converts it."""
    t = as_tracer(indices)
    if t.dtype.kind not in "iub":
        if is_tracer(indices):
            raise TypeError(
                f"Cannot cast array data from {t.dtype!r} to {np.dtype(np.intp)!r} according to the rule 'same_kind'"
            )
        return t.astype(np.intp)
    return t.astype(np.intp, copy=False) if t.dtype.kind not in "iu" else t


def within(t: Tracer, n: int, mode: str) -> Any:
    """CheckedIndices brought into range as `mode` says; "raise" leaves that to the bounds check."""
    if mode == "wrap":
        return np.remainder(t.astype(np.intp, copy=False), n)
    if mode == "clip":
        return call(np.clip, t.astype(np.intp, copy=False), 0, n - 1)
    if mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got '{mode}')")
    return t


@implements(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    a, index = as_tracer(a), indices_of(indices)
    if axis is None:
        a, axis = a.reshape(-1), 0
    axis = axes_of(axis, a.ndim)[0] if a.ndim else 0
    if not a.ndim:
        a = a.reshape(1)
    if a.shape[axis] == 0 and index.size:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    result = a[(*(slice(None),) * axis, within(index, a.shape[axis], mode))]
    return finish(result if result.is_scalar else result.copy(), out)


def along_axis_shape(arr: Tracer, indices: Tracer, axis: int) -> Shape:
    """The shape in which both run along the other axes."""
    if arr.ndim != indices.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    if indices.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    try:
        shape = broadcast(*(tuple(1 if k == axis else n for k, n in enumerate(t.shape)) for t in (arr, indices)))
    except ValueError:
        raise IndexError("shape mismatch: indexing arrays could not be broadcast together") from None
    return tuple(indices.shape[axis] if k == axis else n for k, n in enumerate(shape))


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Tracer:
    arr, indices = as_tracer(arr), as_tracer(indices)
    if axis is None:
        if indices.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        arr, axis = arr.reshape(-1), 0
    axis = axes_of(axis, arr.ndim)[0]
    shape = along_axis_shape(arr, indices, axis)
    dims = identity(len(shape))
    index = [
        gather_index(indices, dims, shape, n) if k == axis else (poly(0) if n == 1 else dims[k])
        for k, n in enumerate(arr.shape)
    ]
    return from_stage(arr.at(index), shape, arr.dtype)


@implements(np.choose)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """A chain of selects."""
    if is_tracer(choices):
        choices = [choices[k] for k in range(choices.shape[0])]
    a, options = as_tracer(a), [c if is_host(c) or type(c) in (int, float, bool) else as_tracer(c) for c in choices]
    dtype = common_dtype(options)
    if not np.can_cast(a.dtype, np.intp):
        raise TypeError(
            f"Cannot cast array data from {a.dtype!r} to {np.dtype(np.intp)!r} according to the rule 'safe'"
        )
    if len(options) > MAX_CHOICES:
        raise current().error(
            "numpy.choose", f"more than {MAX_CHOICES} choices", "stack them and use np.take_along_axis"
        )
    if mode == "raise":
        least, greatest = (0, 1) if a.dtype == bool else current().range_of(a.load()) or (-1, 0)
        if least < 0 or greatest >= len(options):
            current().check(call(np.any, np.less(a, 0) | np.greater_equal(a, len(options))))
    index = within(a, len(options), mode)
    shape = broadcast(index.shape, *(c.shape for c in options if is_tracer(c)))
    value = element(options[-1], shape, dtype)
    for k in reversed(range(len(options) - 1)):
        hit = Op("equal", (cast(index.load(shape), np.int64), Const(k, np.int64)), np.dtype(bool))
        value = select(hit, element(options[k], shape, dtype), value)
    return finish(from_stage(value, shape, dtype, is_scalar=not shape), out)


@implements(np.compress)
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    condition, a = as_tracer(condition), as_tracer(a)
    if condition.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    if axis is None:
        a, axis = a.reshape(-1), 0
    if condition.known is None:
        if axis == 0 and a.shape[:1] == condition.shape and out is None:
            return a[condition.astype(bool, copy=False)]
        raise depends_on_values("numpy.compress")
    return take(a, from_known(np.flatnonzero(condition.known)), axis, out)


@implements(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    condition, arr = as_tracer(condition), as_tracer(arr)
    if condition.known is None and condition.shape == arr.shape:
        return arr[condition.astype(bool, copy=False)]
    return compress(condition.reshape(-1), arr.reshape(-1))


@implements(np.isin)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    element, tests = as_tracer(element), as_tracer(test_elements).reshape(-1)
    if not tests.size:
        return call(np.full, element.shape, bool(invert), bool)
    if int(tests.size) <= MAX_CHOICES:
        hit = functools.reduce(np.logical_or, (element == tests[k] for k in range(int(tests.size))))
    else:
        hit = call(np.any, element[..., None] == tests, axis=-1)
    return np.logical_not(hit) if invert else hit


# -- index arithmetic


@implements(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """The quotients and remainders."""
    index, sizes = indices_of(indices), shape_of(shape)
    if index.known is not None:
        found = np.unravel_index(index.known, tuple(map(int, sizes)), order)  # type: ignore[call-overload]
        return tuple(from_known(k, is_scalar=index.is_scalar) for k in found)
    size = 1
    for n in sizes:
        size = size * n
    current().check(call(np.any, np.less(index, 0) | np.greater_equal(index, size)))
    rest: Any = index.astype(np.intp, copy=False)
    parts: list[Any] = []
    for n in reversed(sizes) if order == "C" else sizes:
        parts.append(rest % n)
        rest = rest // n
    return tuple(reversed(parts)) if order == "C" else tuple(parts)


@implements(np.ravel_multi_index)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    parts, sizes = [indices_of(m) for m in multi_index], shape_of(dims)
    if len(parts) != len(sizes):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(sizes)}")
    modes = [mode] * len(sizes) if isinstance(mode, str) else list(mode)
    if all(p.known is not None for p in parts):
        flat = np.ravel_multi_index(tuple(p.known for p in parts), tuple(map(int, sizes)), mode, order)  # type: ignore[call-overload]
        return from_known(flat, is_scalar=not isinstance(flat, np.ndarray))
    for p, n, m in zip(parts, sizes, modes, strict=True):
        if m == "raise" and bool(call(np.any, np.less(p, 0) | np.greater_equal(p, n))):
            raise ValueError("invalid entry in coordinates array")
    total: Any = 0
    steps = list(zip(parts, sizes, modes, strict=True))
    for p, n, m in steps if order == "C" else reversed(steps):
        total = total * n + within(p.astype(np.intp, copy=False), n, m)
    return total


@implements(np.ix_)
@makes
def ix_(*args: Any) -> tuple[Tracer, ...]:
    found = []
    for t in map(as_tracer, args):
        if t.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if t.size == 0:
            t = t.astype(np.intp)
        elif t.dtype == bool:
            if t.known is None:
                raise depends_on_values("numpy.ix_")
            t = from_known(np.flatnonzero(t.known))
        found.append(t)
    return tuple(open_mesh(found))
