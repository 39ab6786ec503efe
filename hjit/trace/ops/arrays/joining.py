"""Arrays put together from others, and taken apart: stack, concatenate, tile, repeat, split, block, insert, delete.

What is put together is *piecewise*: one update for each region, and never a `select` per element. A region that is one
element thick along an axis has a constant index there, so that a load at that index reads the region's value.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, cast, renumber, substitute
from hjit.trace.ir.graph import Definition, identity
from hjit.trace.ir.poly import ZERO, Dim, Poly, poly
from hjit.trace.ops.arguments import all_known, along, axis_of, contents, finish, placeholders, refuse, whole_number
from hjit.trace.ops.by_numpy import by_numpy
from hjit.trace.ops.indexing.getitem import getitem, slice_range
from hjit.trace.ops.layout import Order, joined_order, order_of_padded, relaid, transposed_back
from hjit.trace.ops.limits import MAX_JOINED, MAX_REGIONS
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.buffers import TracedBuffer
from hjit.trace.tracing.arrays.traced import Shape, TracedArray
from hjit.trace.tracing.arrays.tracer import (
    MAX_KNOWN,
    Tracer,
    as_tracer,
    call,
    from_known,
    from_stage,
    is_tracer,
    stored,
)
from hjit.trace.tracing.arrays.writing import trim
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.recording.recorder import current, supported_dtype
from hjit.trace.tracing.scalars.host import static_value
from hjit.trace.tracing.scalars.size import Size


@dataclass(frozen=True, slots=True)
class Region:
    """A region of a new array: offset, shape, and value, which is an array that broadcasts to it or an expression."""

    offset: Shape
    shape: Shape
    value: Tracer | Expr


def assemble(shape: Shape, dtype: Any, regions: Sequence[Region], initial: Expr | None = None) -> Tracer:
    """A new array made of regions. Without `initial` they cover it; what lies in two of them is the later one's."""
    rec, dtype = current(), np.dtype(dtype)
    if not supported_dtype(dtype):
        raise rec.error(f"array of dtype {dtype}", "hjit handles bool, integers and floats up to 64 bits")
    regions = [b for b in regions if all(n != 0 for n in b.shape)]
    if not regions or any(n == 0 for n in shape):
        return from_stage(Const(0, dtype) if initial is None else initial, shape, dtype)
    if len(regions) == 1 and tuple(regions[0].shape) == tuple(shape):
        return from_stage(cast(_over(regions[0], identity(len(shape))), dtype), shape, dtype)
    updates = []
    thin = [type(n) is int for n in shape]
    for b in regions:
        dims: list[Poly] = []
        inner: list[Poly] = []
        target: list[Poly] = []
        for k, (n, start) in enumerate(zip(b.shape, b.offset, strict=True)):
            drop = n == 1 and shape[k] != 1
            thin[k] &= drop
            inner.append(ZERO if drop else poly(Dim(len(dims))))
            target.append(inner[k] + (poly(start) if drop and type(start) is int else rec.poly(start)))
            dims += [] if drop else [rec.poly(n)]
        updates.append(Definition(tuple(dims), (), tuple(target), cast(_over(b, inner), dtype)))
    # along an axis of thin regions their number is part of the program
    sizes = [poly(int(n)) if thin[k] else rec.poly(n) for k, n in enumerate(shape)]
    stage = rec.stage(initial, sizes, dtype, tuple(updates))
    return Tracer(TracedBuffer(shape, dtype, stage.name), shape, identity(len(shape)))


def _over(b: Region, dims: Sequence[Poly]) -> Expr:
    """What a region holds at `dims`, one for each of its axes."""
    if not isinstance(b.value, Expr):
        return at(b.value, b.shape, dims)
    return substitute(b.value, renumber(dims))


def at(t: Tracer, shape: Shape, dims: Sequence[Poly]) -> Expr:
    """The element at `dims` of `t` broadcast to `shape`."""
    if t.known is not None and t.known.size == 1:
        return Const(t.known.reshape(())[()], t.dtype)
    lead = len(shape) - t.ndim
    return t.at([ZERO if n == 1 and shape[k] != 1 else dims[k] for k, n in enumerate(t.shape, lead)])


def part(a: Any, axis: int, start: Any, stop: Any) -> Any:
    """``a[start:stop]`` along one axis."""
    return getitem(a, (*(slice(None),) * axis, slice(start, stop)))


# -- putting together


def _items(arrays: Any) -> list[Tracer]:
    return [as_tracer(a) for a in arrays]


def _dtype(arrays: Sequence[Tracer], dtype: Any, out: Any, casting: Any) -> np.dtype[Any]:
    if dtype is not None and out is not None:
        raise TypeError("concatenate() only takes `out` or `dtype` as an argument, but both were provided.")
    wanted = (
        np.dtype(dtype)
        if dtype is not None
        else out.dtype
        if out is not None
        else np.result_type(*(a.dtype for a in arrays))
    )
    for a in arrays:
        if not np.can_cast(a.dtype, wanted, casting):
            raise TypeError(f"Cannot cast array data from {a.dtype!r} to {wanted!r} according to the rule '{casting}'")
    return wanted


def _finish(result: Tracer, out: Any) -> Any:
    if out is not None and tuple(out.shape) != tuple(result.shape):
        raise ValueError("Output array is the wrong shape")
    return finish(result, out)


def join(arrays: Sequence[Tracer], axis: int, dtype: Any) -> Tracer:
    """Arrays of one rank and, but for `axis`, one shape, one after the other."""
    dtype = np.dtype(dtype)
    if all_known(arrays):
        with np.errstate(all="ignore"):
            known = np.concatenate([a.known for a in arrays], axis, dtype=dtype, casting="unsafe")
            return from_known(known, of=list(arrays))
    if len(arrays) > MAX_JOINED and not current().loops:
        joined: Tracer = by_numpy(np.concatenate, list(arrays), axis=axis, dtype=dtype, casting="unsafe")
        return joined
    regions = []
    total: int = 0
    for a in arrays:
        regions.append(Region((*(0,) * axis, total, *(0,) * (a.ndim - axis - 1)), a.shape, a))
        total = total + a.shape[axis]
    return assemble((*arrays[0].shape[:axis], total, *arrays[0].shape[axis + 1 :]), dtype, regions)


def join_in_order(arrays: Sequence[Tracer], axis: int, dtype: Any, order: Order | None = None) -> Tracer:
    """As `join`, with axes in an order in memory, which is else that of those of the arrays."""
    order = joined_order(arrays) if order is None else order
    if order == tuple(range(len(order))):
        return join(arrays, axis, dtype)
    return transposed_back(join([call(np.transpose, a, order) for a in arrays], order.index(axis), dtype), order)


@implements(np.concatenate)
def concatenate(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    if is_tracer(arrays) and arrays.ndim > 1 and out is None and dtype is None and axis is not None:
        return _merged(arrays, axis)
    many = _items(arrays)
    if axis is None:
        many, axis = [a.reshape(-1) for a in many], 0
    axis = static_value(axis)
    if not fit_together(many, axis):
        refuse(np.concatenate, many, axis)
    return _finish(join_in_order(many, axis % many[0].ndim, _dtype(many, dtype, out, casting)), out)


def fit_together(arrays: Sequence[TracedArray], axis: int) -> bool:
    """May arrays be put one after the other along an axis?"""
    ndim = arrays[0].ndim if arrays else 0
    if not -ndim <= axis < ndim or any(a.ndim != ndim for a in arrays):
        return False
    return all(a.shape[k] == n for a in arrays for k, n in enumerate(arrays[0].shape) if k != axis % ndim)


def _merged(a: Tracer, axis: Any) -> Any:
    """``np.concatenate`` of the rows of one array: its first axis is merged with another."""
    axis = axis_of(axis, a.ndim - 1)
    order = [*range(1, axis + 1), 0, *range(axis + 1, a.ndim)]
    shape = (*a.shape[1 : axis + 1], a.shape[0] * a.shape[axis + 1], *a.shape[axis + 2 :])
    return a.transpose(order).reshape(shape).copy()


@implements(np.stack)
def stack(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    many = _items(arrays)
    if not many or any(a.shape != many[0].shape for a in many):
        refuse(np.stack, many, axis)
    axis = axis_of(axis, many[0].ndim + 1)
    key = (*(slice(None),) * axis, None)
    return _finish(join_in_order([getitem(a, key) for a in many], axis, _dtype(many, dtype, out, casting)), out)


@implements(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    many = [a.reshape(1) if a.ndim == 0 else a for a in _items(tup)]
    return concatenate(many, 0 if many and many[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@implements(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return concatenate([_at_least(a, 2) for a in _items(tup)], 0, dtype=dtype, casting=casting)


@implements(np.dstack)
def dstack(tup: Any) -> Any:
    many = [_at_least(a, 2) for a in _items(tup)]
    return concatenate([getitem(a, (..., None)) if a.ndim == 2 else a for a in many], 2)


@implements(np.column_stack)
def column_stack(tup: Any) -> Any:
    return concatenate([a if a.ndim > 1 else _at_least(a, 2).T for a in _items(tup)], 1)


def _at_least(a: Tracer, ndim: int) -> Any:
    return getitem(a, (*(None,) * (ndim - a.ndim), ...)) if a.ndim < ndim else a


@implements(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    arr, values = as_tracer(arr), as_tracer(values)
    if axis is None:
        arr, values, axis = arr.reshape(-1), values.reshape(-1), 0
    return concatenate((arr, values), axis)


@implements(np.block)
def block(arrays: Any) -> Any:
    leaves: list[Tracer] = []
    depth = _depth(arrays, leaves, arrays)
    ndim = max(depth, *(a.ndim for a in leaves))
    shape, regions = _blocks(arrays, depth, ndim, arrays)
    if all_known(leaves):
        return from_known(np.block(placeholders(arrays)))
    orders = {order_of_padded(a) if a.ndim == ndim else () for a in leaves}
    made = assemble(shape, np.result_type(*(a.dtype for a in leaves)), regions)
    return relaid(made, orders.pop()) if len(orders) == 1 and () not in orders else made


def _depth(x: Any, leaves: list[Tracer], whole: Any) -> int:
    """How deep the lists are nested; every leaf lies equally deep."""
    if type(x) is tuple:
        refuse(np.block, whole)
    if type(x) is not list:
        leaves.append(as_tracer(x))
        return 0
    found = {_depth(y, leaves, whole) for y in x}
    if len(found) != 1:
        refuse(np.block, whole)
    return 1 + found.pop()


def _blocks(x: Any, depth: int, ndim: int, whole: Any) -> tuple[Shape, list[Region]]:
    """The shape and the regions of nested lists: a list of depth d runs along the d-th axis from the end."""
    if depth == 0:
        a = _at_least(as_tracer(x), ndim)
        return a.shape, [Region((0,) * ndim, a.shape, a)]
    axis = ndim - depth
    regions: list[Region] = []
    total: int = 0
    shape: Shape | None = None
    for y in x:
        inner, found = _blocks(y, depth - 1, ndim, whole)
        if shape is not None and any(n != m for k, (n, m) in enumerate(zip(shape, inner, strict=True)) if k != axis):
            refuse(np.block, whole)
        shape = inner
        regions += [
            Region((*b.offset[:axis], b.offset[axis] + total, *b.offset[axis + 1 :]), b.shape, b.value) for b in found
        ]
        total = total + inner[axis]
    assert shape is not None
    return (*shape[:axis], total, *shape[axis + 1 :]), regions


# -- repetition


class _Concatenator:
    """``np.r_`` and ``np.c_``, whose own source is traced."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __getitem__(self, key: Any) -> Any:
        return forward.numpy_call(type(self.of).__getitem__, (self.of, key), {})


r_, c_ = _Concatenator(np.r_), _Concatenator(np.c_)


@implements(np.tile)
def tile(A: Any, reps: Any) -> Any:
    """Few repetitions are regions; many are one definition whose index wraps around."""
    a = as_tracer(A)
    many = (
        [whole_number(r) for r in reps]
        if isinstance(reps, (list, tuple, np.ndarray)) and not _is_number(reps)
        else [whole_number(reps)]
    )
    if any(r < 0 for r in many):
        refuse(np.tile, a, many)
    a = _at_least(a, len(many))
    many = [1] * (a.ndim - len(many)) + many
    shape = tuple(n * r for n, r in zip(a.shape, many, strict=True))
    if a.known is not None and np.prod(shape) <= MAX_KNOWN:
        return from_known(np.tile(a.known, tuple(map(int, many))), of=a)
    steps = [int(r) if n != 1 else 1 for n, r in zip(a.shape, many, strict=True)]
    if 1 < np.prod(steps) <= 8 and all(n == 1 or type(r) is int for n, r in zip(a.shape, many, strict=True)):
        extents = tuple(m if n == 1 else n for n, m in zip(a.shape, shape, strict=True))
        regions = [
            Region(tuple(p * n for p, n in zip(place, a.shape, strict=True)), extents, a)
            for place in itertools.product(*map(range, steps))
        ]
        return assemble(shape, a.dtype, regions)
    rec = current()
    index = [
        ZERO if n == 1 else poly(Dim(k)) if r == 1 else poly(Dim(k)) % rec.poly(n)
        for k, (n, r) in enumerate(zip(a.shape, many, strict=True))
    ]
    return from_stage(Const(0, a.dtype) if any(n == 0 for n in shape) else a.at(index), shape, a.dtype)


def _is_number(x: Any) -> bool:
    return is_tracer(x) and x.ndim == 0


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    a, axis = along(as_tracer(a), axis)
    n = a.shape[axis]
    times: Any = static_value(repeats)
    if not isinstance(times, int):
        counts = contents(times, "numpy.repeat", "repeats")
        counts = counts.astype(np.intp) if type(times) in (list, tuple) else counts
        if (
            (counts.dtype.kind not in "iub" and counts.size != 1)
            or counts.size not in (1, int(n))
            or counts.ndim > 1
            or (counts < 0).any()
        ):
            refuse(np.repeat, a, counts, axis)
        if counts.size != 1:
            return getitem(a, (*(slice(None),) * axis, from_known(np.repeat(np.arange(int(n)), counts))))
        times = int(counts.item())
    times = whole_number(times)
    if times < 0:
        refuse(np.repeat, a, times, axis)
    shape = (*a.shape[:axis], n * times, *a.shape[axis + 1 :])
    if a.known is not None and np.prod(shape) <= MAX_KNOWN:
        return from_known(np.repeat(a.known, int(times), axis), of=a)
    index = list(identity(a.ndim))
    index[axis] = ZERO if n == 1 else index[axis] // current().poly(times) if times else ZERO
    return from_stage(Const(0, a.dtype) if any(m == 0 for m in shape) else a.at(index), shape, a.dtype)


@implements(np.resize)
def resize(a: Any, new_shape: Any) -> Any:
    a = as_tracer(a)
    shape = tuple(whole_number(n) for n in (new_shape if isinstance(new_shape, (tuple, list)) else (new_shape,)))
    if any(n < 0 for n in shape):
        refuse(np.resize, a, shape)
    total: int = 1
    for n in shape:
        total = total * n
    if a.known is not None and total <= MAX_KNOWN:
        return from_known(np.resize(a.known, shape), of=a)
    if a.size == 0 or total == 0:
        return from_stage(Const(0, a.dtype), shape, a.dtype)
    rec = current()
    flat = a.reshape(-1)
    place = ZERO
    for k, n in enumerate(shape):
        place = place * rec.poly(n) + poly(Dim(k))
    return from_stage(flat.at([place if total <= a.size else place % rec.poly(a.size)]), shape, a.dtype)


# -- taking apart


@implements(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    a = as_tracer(ary)
    axis = operator.index(static_value(axis))
    n = a.shape[axis]
    axis %= a.ndim
    points = _points(indices_or_sections)
    if points is not None:
        stops: list[Any] = [0, *points, n]
    else:
        sections = whole_number(indices_or_sections)
        if sections <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, extra = n // sections, n % sections
        stops = [each * k + min(k, extra) for k in range(sections)] + [n]
    return [part(a, axis, start, stop) for start, stop in itertools.pairwise(stops)]


def _points(x: Any) -> list[Any] | None:
    """The places where to split, or None where `x` is a number of sections."""
    if is_tracer(x):
        return x.tolist() if x.ndim else None
    return [static_value(k) for k in x] if isinstance(x, (list, tuple, np.ndarray, range)) else None


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    a = as_tracer(ary)
    if _points(indices_or_sections) is None and a.shape[axis] % whole_number(indices_or_sections):
        raise ValueError("array split does not result in an equal division")
    return array_split(a, indices_or_sections, axis)


def _split_along(name: str, ndim: int, axis: int) -> Callable[..., Any]:
    def method(ary: Any, indices_or_sections: Any) -> Any:
        a = as_tracer(ary)
        if a.ndim < ndim:
            raise ValueError(f"{name} only works on arrays of {ndim} or more dimensions")
        return split(a, indices_or_sections, min(axis, a.ndim - 1))

    return method


implements(np.hsplit)(_split_along("hsplit", 1, 1))
implements(np.vsplit)(_split_along("vsplit", 2, 0))
implements(np.dsplit)(_split_along("dsplit", 3, 2))


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tracer, ...]:
    """``np.unstack``, which NumPy has since 2.1."""
    x = as_tracer(x)
    if x.ndim == 0:
        raise ValueError("Input array must be at least 1-d.")
    axis = axis_of(axis, x.ndim)
    return tuple(getitem(x, (*(slice(None),) * axis, k, ...)) for k in range(x.shape[axis]))


if hasattr(np, "unstack"):
    implements(np.unstack)(unstack)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    a, axis = along(as_tracer(arr), axis)
    n = a.shape[axis]
    obj = static_value(obj)
    if isinstance(obj, slice):
        start, step, count = slice_range(obj, n)
        if step < 0:
            start, step = start + (count - 1) * step, -step
        if step == 1 or count <= 1:
            if not count:
                return relaid(a.copy(), order_of_padded(a))
            left = [part(a, axis, 0, start), part(a, axis, start + count, n)]
            return relaid(join(left, axis, a.dtype), order_of_padded(a))
        obj = np.arange(*obj.indices(int(n)))
    if type(obj) not in (int, Size):
        gone = contents(obj, "numpy.delete", "the indices")
        if gone.size == 0:
            return a.copy()
        if (
            gone.dtype.kind not in "iub"
            or (gone.dtype == bool and gone.shape != (n,))
            or (gone.dtype != bool and ((gone < -n) | (gone >= n)).any())
        ):
            refuse(np.delete, a, gone, axis)
        places = {
            int(k) % int(n): int(k) if k >= 0 else n + int(k)
            for k in (np.flatnonzero(gone) if gone.dtype == bool else gone.ravel())
        }
        if len(places) > MAX_REGIONS:
            return getitem(a, (*(slice(None),) * axis, from_known(np.delete(np.arange(int(n)), list(places)))))
    else:
        if not -n <= obj < n:
            raise IndexError(f"index {int(obj)} is out of bounds for axis {axis} with size {int(n)}")
        places = {int(obj) % int(n): obj if obj >= 0 else obj + n}
    stops = [places[k] for k in sorted(places)]
    starts = [0, *(k + 1 for k in stops)]
    left = [part(a, axis, i, j) for i, j in zip(starts, [*stops, n], strict=True)]
    return relaid(join(left, axis, a.dtype), order_of_padded(a))


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    a, axis = along(as_tracer(arr), axis)
    n = a.shape[axis]
    values = stored(values, a.dtype).astype(a.dtype, copy=False)
    obj = static_value(obj)
    if isinstance(obj, slice):
        obj = np.arange(*obj.indices(int(n)))
    single = type(obj) in (int, Size)
    places = np.asarray(int(obj)) if single else contents(obj, "numpy.insert", "the indices")
    if places.dtype == bool:
        places = np.flatnonzero(places)
    if places.ndim > 1 or (places.size and places.dtype.kind not in "iu") or any(not -n <= k <= n for k in places.flat):
        refuse(np.insert, a, obj, values, axis)
    if places.size == 1:
        place = obj if single else places.item()
        values = _at_least(values, a.ndim)
        values = np.moveaxis(values, 0, axis) if places.ndim == 0 else values
        shape = (*a.shape[:axis], values.shape[axis], *a.shape[axis + 1 :])
        groups: list[tuple[Any, Any]] = [
            (place if place >= 0 else place + n, np.broadcast_to(trim(values, shape), shape))
        ]
    else:
        shape = (*a.shape[:axis], places.size, *a.shape[axis + 1 :])
        rows = np.broadcast_to(trim(values, shape), shape)
        where = [int(k) if k >= 0 else n + int(k) for k in places]
        order = sorted(range(places.size), key=lambda k: int(where[k]))
        groups = [(where[k], part(rows, axis, k, k + 1)) for k in order]
    pieces: list[Tracer] = []
    done: int = 0
    for place, row in groups:
        pieces += [part(a, axis, done, place), row]
        done = place
    return relaid(join([*pieces, part(a, axis, done, n)], axis, a.dtype), order_of_padded(a))
