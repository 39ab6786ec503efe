"""Memory layout of traced arrays by NumPy's rules: strides, and the order of the axes of a new array.

A stage is always in C order. An array in another order is a transposed view of one, so that loops along the stage's
last axis run along memory, and a result has NumPy's strides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr, renumber, substitute
from hjit.trace.ir.graph import identity
from hjit.trace.ir.poly import Atom, Dim, FloorDiv, Mod, Poly, Sym, Var, deep_atoms
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import Tracer, call, from_stage, is_tracer
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.moving import MovingLength
from hjit.trace.tracing.scalars.size import Size

Order = tuple[int, ...]  # axes, from the slowest to the fastest
Strides = tuple[int, ...]  # in bytes, as NumPy's


def c_strides(shape: Sequence[int], itemsize: int) -> Strides:
    """Strides of an array in C order."""
    found: list[int] = []
    step = itemsize
    for n in reversed(shape):
        found.append(step)
        step *= n if type(n) is Size else max(n, 1)
    return tuple(reversed(found))


@provides
def strides(a: Tracer) -> Strides | None:
    """The strides that NumPy's array has; None where it is no view of memory."""
    if a.known is not None:
        return a.known.strides
    key, keep = _layout_of(a)
    return current().memos.once(("strides", *key), keep, lambda: _strides(a))


def _layout_of(a: Tracer) -> tuple[tuple[Any, ...], tuple[Shape, Shape]]:
    """What the strides of a view follow from, and what of that is known by identity."""
    buffer = a.buffer
    key = id(a._shape), a.index, id(buffer.shape), buffer.strides, buffer.dtype.itemsize
    return key, (a._shape, buffer.shape)


def _strides(a: Tracer) -> Strides | None:
    """As `strides`."""
    base = a.buffer.strides or c_strides(a.buffer.shape, a.dtype.itemsize)
    if a.is_whole:
        return base
    if not all(isinstance(x, (Dim, Sym, Var, FloorDiv, Mod)) for p in a.index for x in deep_atoms(p)):
        return None
    found = [0] * a.ndim
    for p, step in zip(a.index, base, strict=True):
        if not all(len(m) == 1 and isinstance(m[0], (Dim, Sym, Var)) for m in p.terms):
            start = value_at(p)
            found = [s + (value_at(p, k) - start) * step for k, s in enumerate(found)]
            continue
        for (x,), c in p.terms.items():
            if isinstance(x, Dim):
                found[x.k] += c * step
    return tuple(found)


def value_at(p: Poly, k: int = -1) -> int:
    """An index where dimension `k` is 1 and all else that moves is 0; -1: all is 0."""
    sizes = current().sizes

    def value(x: Atom) -> int:
        return sizes[x.name] if isinstance(x, Sym) else int(isinstance(x, Dim) and x.k == k)

    return p.evaluate(value)


@provides
def shares_elements(a: Tracer) -> bool:
    """May the view show an element of the buffer more than once? Windows that overlap, or a broadcast axis."""
    key, keep = _layout_of(a)
    return current().memos.once(("shares", *key), keep, lambda: _shares_elements(a))


def _shares_elements(a: Tracer) -> bool:
    """As `shares_elements`."""
    terms = [[m for m in p.terms if any(isinstance(x, Dim) for x in m)] for p in a.index]
    seen = {x.k for p in terms for m in p for x in m if isinstance(x, Dim)}
    moving = {k for k, n in enumerate(a.shape) if n != 1}
    deep = any(not isinstance(x, (Dim, Sym, Var)) for p in a.index for x in p.atoms())  # a reshape, or a gather
    if deep or (moving <= seen and all(len(p) <= 1 for p in terms)):
        return False
    steps = strides(a)
    if steps is None:
        return False
    reach = a.dtype.itemsize
    for s, n in sorted((abs(s), int(n)) for s, n in zip(steps, a.shape, strict=True) if n != 1):
        if s < reach:
            return True
        reach += s * (n - 1)
    return False


def stand_in(a: Tracer) -> np.ndarray[Any, Any] | None:
    """An array with the shape and the strides of a traced one, whose elements must not be touched."""
    found = strides(a)
    return (
        None
        if found is None
        else np.lib.stride_tricks.as_strided(np.empty(1, a.dtype), tuple(map(int, a.shape)), found)
    )


def is_c_ordered(a: Tracer) -> bool:
    """Is the array in C order without gaps? No where it is no view of memory."""
    if a.is_whole and a.buffer.strides is None:
        return True
    like = stand_in(a)
    return like is not None and bool(like.flags.c_contiguous)


def in_order(a: Tracer, word: str | None) -> bool:
    """Is the array in the order that NumPy's word names, so that no copy is made?"""
    if word == "F":
        like = stand_in(a)
        return like is not None and bool(like.flags.f_contiguous)
    return word != "C" or is_c_ordered(a)


def order_of(word: str | Order, arrays: Sequence[Tracer], shape: Shape) -> Order:
    """The order of the axes of a new array of `shape`, by NumPy's word for it; "K" as operands of a ufunc have it."""
    if isinstance(word, tuple):
        return word
    straight = _straight(len(shape))
    if word == "F":
        return straight[::-1]
    if word == "A":
        if any(a.is_ordered and sum(n != 1 for n in a.shape) > 1 for a in arrays):  # which is not in Fortran order
            return straight
        likes = [stand_in(a) for a in arrays]
        return straight[::-1] if likes and all(x is not None and x.flags.f_contiguous for x in likes) else straight
    return operands_order(arrays, shape) if word == "K" else straight


@lru_cache
def _straight(ndim: int) -> Order:
    """C order."""
    return tuple(range(ndim))


def operands_order(arrays: Sequence[Tracer], shape: Shape) -> Order:
    """The order in which NumPy's iterator goes over operands: strides decide, C order where they disagree."""
    if all(a.is_ordered for a in arrays):
        return _straight(len(shape))
    if any(a.buffer.contents is not None for a in arrays):
        return _operands_order(arrays, shape)
    layouts = [_layout_of(a) for a in arrays]
    key = "order", id(shape), *(key for key, _ in layouts)
    return current().memos.once(key, (shape, layouts), lambda: _operands_order(arrays, shape))


def _operands_order(arrays: Sequence[Tracer], shape: Shape) -> Order:
    """As `operands_order`."""
    straight = tuple(range(len(shape)))
    arrays = [a for a in arrays if a.ndim > 1 and not _moves(a.shape)]
    steps = [_aligned(a, len(shape)) for a in arrays if not a.is_ordered]
    steps = [s for s in steps if [*filter(None, s)] != sorted(filter(None, s), reverse=True)]
    if not steps:
        return straight
    return sorted_axes([_aligned(a, len(shape)) for a in arrays], len(shape))


def sorted_axes(steps: Sequence[Sequence[int]], ndim: int) -> Order:
    """The order in which NumPy's iterator goes over axes.

    Args:
        steps: absolute strides of each operand along them; 0 where it does not have the axis, or repeats it.
    """
    return tuple(_by_strides(_straight(ndim)[::-1], steps, outwards=True)[::-1])


def _by_strides(axes: Sequence[int], steps: Sequence[Sequence[int]], outwards: bool) -> list[int]:
    """Axes by an insertion sort, which strides that disagree stop: which axis comes first matters then.

    Args:
        outwards: do the axes begin with the innermost one?
    """
    found = list(axes)
    for k in range(1, len(found)):
        axis, place = found[k], k
        for at in range(k - 1, -1, -1):
            inner, outer = (found[at], axis) if outwards else (axis, found[at])
            known = [s[inner] > s[outer] for s in steps if s[inner] and s[outer]]
            if known and not all(known):
                break
            if known:
                place = at
        found.insert(place, found.pop(k))
    return found


def _moves(shape: Shape) -> bool:
    """Does a length move with a loop? Nobody sees how such an array lies in memory."""
    return MovingLength in map(type, shape)


def _aligned(a: Tracer, ndim: int) -> list[int]:
    """Absolute strides along the axes of a result; 0 where the array is repeated."""
    found = strides(a) or c_strides(a.shape, a.dtype.itemsize)
    return [0] * (ndim - a.ndim) + [0 if n == 1 else abs(s) for n, s in zip(a.shape, found, strict=True)]


@provides
def copy_order(a: Tracer, word: str = "K") -> Order:
    """The order of the axes of a copy of `a`, or of a new array like it, by NumPy's word for it."""
    if word != "K":
        return order_of(word, (a,), a.shape)
    straight = tuple(range(a.ndim))
    if a.ndim < 2 or _moves(a.shape) or (a.is_whole and a.buffer.strides is None):
        return straight
    like = stand_in(a)
    if like is None or like.flags.c_contiguous:
        return straight
    if like.flags.f_contiguous:
        return straight[::-1]
    return tuple(sorted(straight, key=lambda k: -abs(like.strides[k])))


def laid_out(make: Callable[[Shape], Tracer], shape: Shape, order: Order) -> Tracer:
    """What `make` makes for the axes in another order, seen as an array of `shape`."""
    if order == _straight(len(shape)):
        return make(shape)
    made = make(current().shape(shape[k] for k in order))
    known = None if made.known is None else made.known.transpose(np.argsort(order))
    dims = identity(len(order))
    return Tracer(made.buffer, shape, tuple(dims[k] for k in order), known)


def as_it_lies(a: Tracer, make: Callable[[Tracer, Order], Tracer], order: Order | None = None) -> Tracer:
    """What `make` makes of an array, with axes in the order of the array's own in memory.

    Args:
        make: is given the array with its axes in an order, and this.
        order: another one.
    """
    order = copy_order(a) if order is None else order
    if order == _straight(a.ndim):
        return make(a, order)
    return transposed_back(make(call(np.transpose, a, order), order), order)


def transposed_back(a: Tracer, order: Order) -> Tracer:
    """An array that was made with its axes in an order, with them as they were before."""
    found: Tracer = call(np.transpose, a, np.argsort(order).tolist())
    return found


def relaid(a: Tracer, order: Order) -> Tracer:
    """A new array, with axes in another order in memory."""
    return a if order == _straight(a.ndim) else ordered_stage(a.load(), a.shape, a.dtype, order)


def order_of_padded(a: Tracer) -> Order:
    """The order of the axes of `a` with elements added or left out: Fortran's, or C order."""
    if a.is_ordered:
        return _straight(a.ndim)
    like = stand_in(a)
    is_fortran = like is not None and like.flags.fnc
    return _straight(a.ndim)[::-1] if is_fortran else _straight(a.ndim)


def joined_order(arrays: Sequence[Tracer]) -> Order:
    """The order of the axes of arrays of one rank, one after the other: strides decide, C order where they disagree."""
    ndim = arrays[0].ndim
    if all(a.is_ordered for a in arrays):
        return _straight(ndim)
    steps = [[0 if n == 1 else s + 1 for n, s in zip(a.shape, _aligned(a, ndim), strict=True)] for a in arrays]
    return tuple(_by_strides(_straight(ndim), steps, outwards=False))  # repeated axes count, unlike in the iterator


def ordered_stage(value: Expr, shape: Shape, dtype: Any, order: Order, is_scalar: bool = False) -> Tracer:
    """A new array of `value` over the dimensions of `shape`, laid out in an order of axes."""
    if order == _straight(len(shape)):
        return from_stage(value, shape, dtype, is_scalar=is_scalar)
    return laid_out(lambda moved: from_stage(substitute(value, renumber(places(order))), moved, dtype), shape, order)


@lru_cache(maxsize=1024)
def places(order: Order) -> tuple[Poly, ...]:
    """For each axis the dimension that it is in an order."""
    dims = identity(len(order))
    return tuple(dims[order.index(axis)] for axis in range(len(order)))


def tracers(*values: Any) -> list[Tracer]:
    """The traced arrays among some operands."""
    return [x for x in values if is_tracer(x)]
