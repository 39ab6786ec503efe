"""Array creation. What is made inside the function is traced, so that it can be written to.

Functions marked `makes_arrays` are taken over even without a traced argument.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Index, Load, cast, select
from hjit.trace.ir.expressions import Op as GraphOp
from hjit.trace.ir.graph import identity
from hjit.trace.ir.poly import Dim, poly
from hjit.trace.ops.arguments import broadcast, concrete_shape, count, makes, open_mesh, shape_of
from hjit.trace.ops.layout import Order, copy_order, in_order, laid_out, order_of, ordered_stage
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import (
    MAX_KNOWN,
    Tracer,
    as_new_array,
    as_tracer,
    as_value,
    call,
    checked_dtype,
    from_known,
    from_stage,
    has_tracer,
    is_tracer,
    stored,
)
from hjit.trace.tracing.arrays.writing import trim
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.recording.recorder import current, supported_dtype
from hjit.trace.tracing.scalars.host import as_fill, dtype_of, is_host, known_number, number, static_value
from hjit.trace.tracing.scalars.induction import InductionVariable, extreme
from hjit.trace.tracing.scalars.size import Size, as_number


def _is_known(shape: Shape) -> bool:
    """Are the contents of an array of this shape kept, where they are numbers?"""
    return count(shape) <= MAX_KNOWN and not any(type(n) is Size for n in shape)


def _filled(shape: Any, value: Any, dtype: Any, order: str | Order = "C", of: Any = ()) -> Tracer:
    shape, dtype = shape_of(shape), np.dtype(dtype)
    if order != "C":
        return laid_out(lambda moved: _filled(moved, value, dtype, of=of), shape, order_of(order, (), shape))
    if not supported_dtype(dtype):
        raise current().error(f"array of dtype {dtype}", "hjit handles bool, integers and floats up to 64 bits")
    if _is_known(shape):
        return from_known(np.full(shape, value, dtype), of=of)
    return from_stage(Const(value, dtype), shape, dtype)


@implements(np.zeros)
@makes
def zeros(shape: Any, dtype: Any = float, order: str = "C", **kwargs: Any) -> Tracer:
    return _filled(shape, 0, dtype or float, order)


@implements(np.ones)
@makes
def ones(shape: Any, dtype: Any = None, order: str = "C", **kwargs: Any) -> Tracer:
    return _filled(shape, 1, dtype or float, order)


def uninitialised(shape: Any, dtype: Any, order: str | Order = "C") -> Tracer:
    """A new uninitialised array: zeros, or numbers that stand for what NumPy may have there.

    They cost nothing where every element is written before it is read.
    """
    rec, dtype = current(), np.dtype(dtype)
    rec.findings.reads_uninitialised = True
    shape = shape_of(shape)
    if not rec.options.fill or not supported_dtype(dtype):
        return _filled(shape, 0, dtype, order)
    if order != "C":
        return laid_out(lambda moved: uninitialised(moved, dtype), shape, order_of(order, (), shape))
    numbers = np.asarray(rec.uninitialised(dtype, concrete_shape(shape)))
    if _is_known(shape):
        return from_known(numbers)
    return from_stage(Load(rec.constant(numbers).input.name, identity(len(shape)), dtype), shape, dtype)


@implements(np.empty)
@makes
def empty(shape: Any, dtype: Any = float, order: str = "C", **kwargs: Any) -> Tracer:
    return uninitialised(shape, dtype or float, order)


@implements(np.full)
@makes
def full(shape: Any, fill_value: Any, dtype: Any = None, order: str | Order = "C", **kwargs: Any) -> Tracer:
    shape = shape_of(shape)
    given = fill_value
    fill_value = known_number(given) if _is_known(shape) else as_number(given)
    if not has_tracer(fill_value):
        fill = np.asarray(fill_value)
        if fill.ndim == 0:
            dtype = np.dtype(dtype or fill.dtype)
            return _filled(shape, number(fill_value, dtype, as_fill), dtype, order, of=given)
    if is_host(fill_value):
        value = stored(fill_value, checked_dtype(np.dtype(dtype or dtype_of(fill_value))), as_fill)
    else:
        value = as_tracer(fill_value).astype(dtype or as_tracer(fill_value).dtype, copy=False)
    return ordered_stage(trim(value, shape).load(shape), shape, value.dtype, order_of(order, (), shape))


def _like(make: Callable[..., Tracer]) -> Callable[..., Tracer]:
    def method(
        a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **kwargs: Any
    ) -> Tracer:
        a = as_tracer(a)
        wanted = np.dtype(dtype or a.dtype)
        if shape is None:
            return make(a.shape, wanted, copy_order(a, order))
        return make(shape, wanted)

    return method


implements(np.zeros_like)(makes(_like(lambda shape, *more: _filled(shape, 0, *more))))
implements(np.ones_like)(makes(_like(lambda shape, *more: _filled(shape, 1, *more))))
implements(np.empty_like)(makes(_like(uninitialised)))


@implements(np.full_like)
@makes
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **kwargs: Any
) -> Tracer:
    a = as_tracer(a)
    return (
        full(a.shape, fill_value, dtype or a.dtype, copy_order(a, order))
        if shape is None
        else full(shape, fill_value, dtype or a.dtype)
    )


@implements(np.asarray, np.asanyarray, np.asarray_chkfinite)
@makes
def asarray(a: Any, dtype: Any = None, order: Any = None, **kwargs: Any) -> Any:
    if not has_tracer(a):
        made = np.asarray(a, dtype)
        return from_known(made, of=a) if supported_dtype(made.dtype) else made
    x = as_tracer(a, dtype)
    if x.is_scalar:
        return as_new_array(x)
    return x if in_order(x, order) else copy_(x, order)


@implements(np.ascontiguousarray)
@makes
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    return np.atleast_1d(asarray(a, dtype, "C"))


@implements(np.asfortranarray)
@makes
def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    return np.atleast_1d(asarray(a, dtype, "F"))


@implements(np.require)
@makes
def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Any:
    # C(_CONTIGUOUS), F(ORTRAN), A(LIGNED), W(RITEABLE), O(WNDATA), E(NSUREARRAY)
    wanted = {str(r)[0].upper() for r in requirements or ()}
    return asarray(a, dtype, "F" if "F" in wanted else "C" if "C" in wanted else None)


@implements(np.array)
@makes
def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: Any = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    like: Any = None,
) -> Any:
    if not has_tracer(object):
        made = np.array(object, dtype, ndmin=ndmin)
        return from_known(made, of=object) if supported_dtype(made.dtype) else made
    x = asarray(object, dtype)
    while x.ndim < ndmin:
        x = x[None]
    return copy_(x, order) if copy in (True, np._CopyMode.ALWAYS) or not in_order(x, order) else x


@implements(np.copy)
def copy_(a: Any, order: str = "K", subok: bool = False) -> Tracer:
    x = as_tracer(a)
    if x.known is not None:
        return from_known(x.known.copy(), of=x)
    return ordered_stage(x.load(), x.shape, x.dtype, copy_order(x, order))


@implements(np.arange)
@makes
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    """Element k is ``start + k * delta`` with ``delta`` the difference of the first two, as NumPy computes it."""
    first, last = (0, start) if stop is None else (start, stop)
    by = 1 if step is None else step
    if by == 1 and InductionVariable in (type(first), type(last)) and {type(first), type(last)} <= _WHOLE:
        low, high = extreme(first, most=False), extreme(last, most=True)
        return arange(low, high, dtype=dtype)[first - low : last - low]
    given = first, last, by
    first, last, by = (v if isinstance(v, Size) else static_value(v) for v in (first, last, by))
    whole = all(type(v) in (int, Size) for v in (first, last, by))
    if not whole or not any(type(v) is Size for v in (first, last)):
        made = np.arange(*(v.item() if isinstance(v, Tracer) else v for v in (first, last, by)), dtype=dtype)
        if made.size <= MAX_KNOWN:
            return from_known(made, of=given)
        if not whole:
            delta = made.dtype.type(made[1] - made[0])
            k = cast(Index(poly(Dim(0))), made.dtype)
            along = GraphOp("multiply", (k, Const(delta, made.dtype)), made.dtype)
            return from_stage(GraphOp("add", (Const(made[0], made.dtype), along), made.dtype), made.shape, made.dtype)
    if by == 0:
        raise ZeroDivisionError("division by zero")
    span = last - first if by > 0 else first - last
    count = max(span if abs(by) == 1 else (span + abs(by) - 1) // abs(by), 0) if span > 0 else 0
    rec = current()
    value = cast(Index(poly(Dim(0)) * rec.poly(by) + rec.poly(first)), np.dtype(dtype or np.int64))
    return from_stage(value, (count,), value.dtype)


_WHOLE = frozenset((int, Size, InductionVariable))


@implements(np.linspace)
@makes
def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    **kwargs: Any,
) -> Any:
    """NumPy's formula: ``arange(num) * step + start``, the last element set to `stop`."""
    num = num if type(num) is Size else operator.index(static_value(num))
    if any(type(v) in (list, tuple) or (isinstance(v, (Tracer, np.ndarray)) and v.ndim) for v in (start, stop)):
        return _spaces(start, stop, num, endpoint, retstep, dtype, axis)
    given = start, stop
    if type(num) is not Size and not has_tracer((start, stop), sizes=False):
        start, stop = known_number(start), known_number(stop)
    if retstep or num < 1 or (type(num) is not Size and num <= MAX_KNOWN and not has_tracer((start, stop))):
        start, stop = (as_value(v) if is_tracer(v) else static_value(v) for v in (start, stop))
        made = np.linspace(start, stop, int(num), endpoint, dtype=dtype, retstep=True)
        values = from_known(made[0], of=given)
        return (values, made[1]) if retstep else values
    for v in filter(is_host, (start, stop)):
        checked_dtype(dtype_of(v))  # a large int would be an object
    strong = [
        v.dtype for v in (start, stop) if isinstance(v, (np.generic, np.ndarray)) or (is_tracer(v) and not v.weak)
    ]
    work = np.result_type(*strong, 1.0) if strong else np.dtype(np.float64)  # Python's numbers are weak
    start, stop = (v if is_host(v) else as_tracer(v) for v in map(as_number, (start, stop)))
    div = num - 1 if endpoint else num
    begin, end = start * 1.0, stop * 1.0
    delta: Any = as_tracer(end - begin)
    count = from_stage(cast(Index(current().poly(div)), work), (), work)
    step = delta.astype(work, copy=False) / count
    first = as_tracer(begin).astype(work, copy=False)
    y = arange(num).astype(work) * step + first if num > 1 else first.reshape(1)
    if endpoint and num > 1:
        last = from_stage(GraphOp("equal", (Index(poly(Dim(0))), Index(current().poly(num - 1))), bool), (num,), bool)
        y = from_stage(select(last.load(), cast(as_tracer(end).load((num,)), work), y.load()), (num,), work)
    return _as_spaced(y, np.dtype(dtype or work))


def _spaces(start: Any, stop: Any, num: Any, endpoint: bool, retstep: bool, dtype: Any, axis: int) -> Any:
    """`linspace` between the elements of arrays, by NumPy's formula for these."""
    if num < 0:
        raise ValueError(f"Number of samples, {int(num)}, must be non-negative.")
    start, stop = (as_tracer(v) if type(v) in (list, tuple) else as_number(v) for v in (start, stop))
    work: np.dtype[Any] = call(np.result_type, start, stop, 1.0)
    delta: Tracer = call(np.subtract, stop, start, dtype=work)
    k = arange(num).astype(work).reshape((num, *(1,) * delta.ndim))
    div = num - 1 if endpoint else num
    if div > 0:
        step: Any = delta / as_number(div)
        is_lost = call(np.any, step == 0)  # by denormal numbers, say: then all elements are computed with more care
        y = call(np.where, is_lost, k / as_number(div) * delta, k * step)
    else:
        step, y = float("nan"), k * delta
    y = y + start
    if endpoint and num > 1:
        y[-1, ...] = stop
    y = _as_spaced(call(np.moveaxis, y, 0, static_value(axis)), np.dtype(dtype or work))
    return (y, step) if retstep else y


def _as_spaced(y: Tracer, dtype: np.dtype[Any]) -> Tracer:
    """As `linspace` converts what it has computed."""
    return call(np.floor, y).astype(dtype) if dtype.kind in "iu" else y.astype(dtype, copy=False)


@implements(np.eye)
@makes
def eye(N: Any, M: Any = None, k: int = 0, dtype: Any = float, order: str = "C", **kwargs: Any) -> Tracer:
    shape = shape_of((N, N if M is None else M))
    if _is_known(shape):
        return from_known(np.eye(shape[0], shape[1], k, dtype))
    diagonal = GraphOp(
        "equal", (Index(poly(Dim(1)) - poly(Dim(0))), Const(operator.index(static_value(k)), np.int64)), bool
    )
    return from_stage(cast(diagonal, dtype), shape, dtype)


@implements(np.identity)
@makes
def identity_(n: Any, dtype: Any = None, **kwargs: Any) -> Tracer:
    return eye(n, dtype=dtype or float)


@implements(np.indices)
@makes
def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    shape = shape_of(dimensions)
    grids = [_grid(k, shape, np.dtype(dtype)) for k in range(len(shape))]
    if sparse:
        return tuple(g.reshape((1,) * k + (shape[k],) + (1,) * (len(shape) - k - 1)) for k, g in enumerate(grids))
    full = [
        call(np.broadcast_to, g.reshape((1,) * k + (shape[k],) + (1,) * (len(shape) - k - 1)), shape)
        for k, g in enumerate(grids)
    ]
    return call(np.stack, full)


def _grid(k: int, shape: Shape, dtype: np.dtype[Any]) -> Tracer:
    n = shape[k]
    if type(n) is not Size and n <= MAX_KNOWN:
        return from_known(np.arange(n, dtype=dtype))
    return from_stage(cast(Index(poly(Dim(0))), dtype), (n,), dtype)


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Tracer, ...]:
    shaped = open_mesh([as_tracer(x).reshape(-1) for x in xi])
    if indexing == "xy" and len(shaped) > 1:
        shaped = [call(np.swapaxes, a, 0, 1) for a in shaped]
    if sparse:
        return tuple(a.copy() if copy else a for a in shaped)
    full = call(np.broadcast_arrays, *shaped)
    return tuple(a.copy() if copy else a for a in full)


class _Grid:
    """``np.mgrid`` and ``np.ogrid``: ``k * step + start`` at index k, or what `np.arange` has, for one slice."""

    def __init__(self, sparse: bool) -> None:
        self.sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        is_alone = not isinstance(key, (tuple, list))
        slices = [_Steps.of(s) for s in ([key] if is_alone else key)]
        dtype: np.dtype[Any] = call(np.result_type, 0, *(v for s in slices for v in (s.start, s.stop, s.step)))
        if is_alone:
            (s,) = slices
            return arange(s.start, s.stop, s.step) if s.count is None else s.values(dtype)
        axes = [s.values(dtype) for s in slices]
        shaped = open_mesh(axes)
        if self.sparse:
            return tuple(shaped)
        shape = broadcast(*(a.shape for a in shaped))
        return call(np.stack, [call(np.broadcast_to, a, shape) for a in shaped])


@dataclass(frozen=True, slots=True)
class _Steps:
    """One slice of a grid; `count` elements, if its step was complex."""

    start: Any
    stop: Any
    step: Any
    count: int | None

    @classmethod
    def of(cls, s: slice) -> _Steps:
        start, step = 0 if s.start is None else s.start, 1 if s.step is None else static_value(s.step)
        if isinstance(step, complex):
            return cls(start, s.stop, abs(step), int(abs(step)))
        return cls(start, s.stop, step, None)

    def values(self, dtype: np.dtype[Any]) -> Tracer:
        start, step, n = as_number(self.start), self.step, self.count
        if n is None:
            found: Tracer = arange(self.start, self.stop, step)
            if found.dtype.kind == "i":
                return found.astype(dtype, copy=False)
            n = found.shape[0]
        else:
            step = (as_number(self.stop) - start) / float(n - 1) if n != 1 else 1
        found = arange(n).astype(dtype) * step + start
        return found.astype(dtype, copy=False)


mgrid, ogrid = _Grid(False), _Grid(True)


def _triangle(lower: bool) -> Callable[..., Any]:
    def method(m: Any, k: int = 0) -> Tracer:
        m = as_tracer(m)
        if m.ndim == 1:
            m = call(np.broadcast_to, m, (m.shape[0], m.shape[0]))
        row, column = (Index(poly(Dim(m.ndim - 2))), Index(poly(Dim(m.ndim - 1)) - operator.index(static_value(k))))
        keep = GraphOp("less_equal", (column, row), bool) if lower else GraphOp("greater_equal", (column, row), bool)
        return from_stage(select(keep, m.load(), Const(0, m.dtype)), m.shape, m.dtype)

    return method


@implements(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Any:
    return call(np.diag, as_tracer(v).reshape(-1), k)


implements(np.tril)(_triangle(True))
implements(np.triu)(_triangle(False))
