"""Gathers and scatters: take, put, choose, the `at` methods of ufuncs, and what searches or selects by index.

A scatter is an update whose target index is read from an array. The updates of associative operations may run in any
order; sums of floats keep NumPy's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.graph import Const, Definition, Expr, Index, Load, Op, cast, compose, identity, renumber, select
from hjit.trace.ir.poly import ONE, Dim, Poly, Value, poly
from hjit.trace.ops import histograms
from hjit.trace.ops.creation import makes, shape_of
from hjit.trace.ops.elementwise import _ALIASES as ALIASES
from hjit.trace.ops.elementwise import UFUNCS, broadcast, common_dtype, element
from hjit.trace.ops.elementwise import _loop as loop_of
from hjit.trace.ops.indexing import _Advanced, _basic, _parse, gather_index, getitem, scatter
from hjit.trace.ops.reductions import axes_of
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.host import as_item, is_host, unpin
from hjit.trace.tracing.recorder import current
from hjit.trace.tracing.tracer import Shape, Tracer, as_tracer, call, from_known, from_stage, is_tracer, stored
from hjit.trace.tracing.writing import trim, version_name, write

ASSOCIATIVE = frozenset(
    "add multiply maximum minimum bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor".split()
)
MAX_CHOICES = 32
UNROLLED = 8  # elements of a sorted table that are compared one by one


def lookup(table: Tracer, index: Tracer) -> Tracer:
    """``table[index]`` for a 1-d table and an index that is in range."""
    where = poly(Value(cast(index.load(), np.int64), None))
    return from_stage(table.at((where,)), index.shape, table.dtype)


def _out(result: Any, out: Any) -> Any:
    if out is None:
        return result
    write(out, result)
    return out


def _depends(operation: str, advice: str = "") -> Any:
    return current().error(
        operation, "the length of its result depends on the image's values", advice or "use np.where, or a mask"
    )


# -- reading


def _indices(indices: Any) -> Tracer:
    t = as_tracer(indices)
    if t.dtype.kind not in "iub":
        if is_tracer(indices):
            raise TypeError(
                f"Cannot cast array data from {t.dtype!r} to {np.dtype(np.intp)!r} according to the rule 'same_kind'"
            )
        return t.astype(np.intp)
    return t.astype(np.intp, copy=False) if t.dtype.kind not in "iu" else t


def _within(t: Tracer, n: int, mode: str) -> Any:
    """Indices brought into range as `mode` says; "raise" leaves that to the bounds check."""
    if mode == "wrap":
        return np.remainder(t.astype(np.intp, copy=False), n)
    if mode == "clip":
        return call(np.clip, t.astype(np.intp, copy=False), 0, n - 1)
    if mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got '{mode}')")
    return t


@implements(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    a, index = as_tracer(a), _indices(indices)
    if axis is None:
        a, axis = a.reshape(-1), 0
    axis = axes_of(axis, a.ndim)[0] if a.ndim else 0
    if not a.ndim:
        a = a.reshape(1)
    if a.shape[axis] == 0 and index.size:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    result = a[(*(slice(None),) * axis, _within(index, a.shape[axis], mode))]
    return _out(result if result.is_scalar else result.copy(), out)


def _along(arr: Tracer, indices: Tracer, axis: int) -> Shape:
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
    shape = _along(arr, indices, axis)
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
    if (
        mode == "raise"
        and not (a.dtype == bool and len(options) > 1)
        and bool(call(np.any, np.less(a, 0) | np.greater_equal(a, len(options))))
    ):
        raise ValueError("invalid entry in choice array")
    index = _within(a, len(options), mode)
    shape = broadcast(index.shape, *(c.shape for c in options if is_tracer(c)))
    value = element(options[-1], shape, dtype)
    for k in reversed(range(len(options) - 1)):
        hit = Op("equal", (cast(index.load(shape), np.int64), Const(k, np.int64)), np.dtype(bool))
        value = select(hit, element(options[k], shape, dtype), value)
    return _out(from_stage(value, shape, dtype), out)


@implements(np.compress)
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    condition, a = as_tracer(condition), as_tracer(a)
    if condition.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    if axis is None:
        a, axis = a.reshape(-1), 0
    if condition.known is None:
        if a.ndim == 1 and a.shape == condition.shape:
            return a[condition.astype(bool, copy=False)]
        raise _depends("numpy.compress")
    return take(a, from_known(np.flatnonzero(condition.known)), axis, out)


@implements(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    return compress(as_tracer(condition).reshape(-1), as_tracer(arr).reshape(-1))


@implements(np.nonzero)
def nonzero(a: Any) -> tuple[Tracer, ...]:
    a = as_tracer(a)
    if a.known is None:
        raise _depends("numpy.nonzero")
    return tuple(map(from_known, np.nonzero(a.known)))


@implements(np.argwhere)
def argwhere(a: Any) -> Tracer:
    a = as_tracer(a)
    if a.known is None:
        raise _depends("numpy.argwhere")
    return from_known(np.argwhere(a.known))


@implements(np.flatnonzero)
def flatnonzero(a: Any) -> Any:
    return nonzero(as_tracer(a).reshape(-1))[0]


def _known_only(function: Callable[..., Any]) -> None:
    def method(ar: Any, *args: Any, **kwargs: Any) -> Any:
        ar = as_tracer(ar)
        if ar.known is None:
            raise _depends(f"numpy.{function.__name__}", "pass the values in, or compute them outside the function")
        result = function(ar.known, *(unpin(x) for x in args), **{k: unpin(x) for k, x in kwargs.items()})
        return tuple(map(from_known, result)) if isinstance(result, tuple) else from_known(result)

    implements(function)(method)


for _function in (np.unique, np.unique_values, np.unique_counts, np.unique_inverse, np.unique_all):
    _known_only(_function)


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
    index, sizes = _indices(indices), shape_of(shape)
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
    parts, sizes = [_indices(m) for m in multi_index], shape_of(dims)
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
        total = total * n + _within(p.astype(np.intp, copy=False), n, m)
    return total


@implements(np.ix_)
@makes
def ix_(*args: Any) -> tuple[Tracer, ...]:
    found = []
    for k, x in enumerate(args):
        t = as_tracer(x)
        if t.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        t = t.astype(np.intp) if t.size == 0 else flatnonzero(t) if t.dtype == bool else t
        found.append(t.reshape((1,) * k + (t.shape[0],) + (1,) * (len(args) - k - 1)))
    return tuple(found)


# -- searching


def _before(a: Expr, b: Expr, strict: bool) -> Expr:
    """Does `a` sort before `b` (or with it, unless `strict`)? NaN sorts last."""
    truth = np.dtype(bool)
    if not strict:
        return Op("logical_not", (_before(b, a, True),), truth)
    less = Op("less", (a, b), truth)
    if a.dtype.kind != "f":
        return less
    last = Op("logical_and", (Op("isnan", (b,), truth), Op("logical_not", (Op("isnan", (a,), truth),), truth)), truth)
    return Op("logical_or", (less, last), truth)


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """A small table is compared with element by element; a larger one searched by halves, one stage a step."""
    a, values = as_tracer(a), as_tracer(v)
    if sorter is not None:
        a = take(a, sorter)
    if a.ndim != 1:
        raise ValueError(
            "object too deep for desired array" if a.ndim else "object of too small depth for desired array"
        )
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got '{side}')")
    scalar = not values.shape and (values.is_scalar or not is_tracer(v))
    if a.known is not None and values.known is not None:
        return from_known(np.searchsorted(a.known, values.known, side), is_scalar=scalar)  # type: ignore[call-overload]
    dtype, n, intp = np.result_type(a.dtype, values.dtype), int(a.shape[0]), np.dtype(np.intp)
    x = cast(values.load(), dtype)
    if n <= UNROLLED:
        total: Expr = Const(0, intp)
        for k in range(n):
            total = Op("add", (total, cast(_before(cast(a.at((poly(k),)), dtype), x, side == "left"), intp)), intp)
        return from_stage(total, values.shape, intp, is_scalar=scalar)
    position: Expr = Const(0, intp)
    last = Index(current().poly(a.shape[0]) - 1)
    step = 1 << (n.bit_length() - 1)
    while step:
        ahead = Op("add", (position, Const(step - 1, intp)), intp)
        inside = Op("less_equal", (ahead, last), np.dtype(bool))
        element = a.at((poly(Value(Op("minimum", (ahead, last), intp), None)),))
        go = Op("logical_and", (inside, _before(cast(element, dtype), x, side == "left")), np.dtype(bool))
        found = from_stage(
            select(go, Op("add", (position, Const(step, intp)), intp), position), values.shape, intp, is_scalar=scalar
        )
        position = found.load()
        step >>= 1
    return found


@implements(np._core.multiarray._monotonicity)  # type: ignore[attr-defined]
def _monotonicity(x: Any) -> int:
    """Of np.digitize: 1 rising, -1 falling, 0 neither; decided now and guarded."""
    x = as_tracer(x)
    if x.known is not None:
        return int(np._core.multiarray._monotonicity(x.known))  # type: ignore[attr-defined]
    if bool(call(np.all, x[1:] >= x[:-1])):
        return 1
    return -1 if bool(call(np.all, x[1:] <= x[:-1])) else 0


# -- writing


def flat_index(view: Tracer, flat: Poly) -> list[Poly]:
    """Element `flat` of the flattened view, as one index per axis."""
    rec = current()
    found: list[Poly] = []
    below = ONE
    for k in reversed(range(view.ndim)):
        n = rec.poly(view.shape[k])
        whole = flat // below
        found.append(whole % n if k else whole)
        below = below * n
    return found[::-1]


def _write_at(view: Tracer, index: Sequence[Poly], pure: Sequence[int], inner: Sequence[int], value: Expr) -> None:
    """``view[index] = value`` over pure dimensions and then, in order, reduction dimensions."""
    if not view.writeable:
        raise ValueError("assignment destination is read-only")
    rec, buffer = current(), view.buffer
    old = buffer.source()
    name = rec.unique(version_name(old))
    update = Definition(
        rec.polys(pure), rec.polys(inner), compose(view.index, index), cast(value, buffer.dtype), "sequential"
    )
    rec.stage(
        Load(old, identity(len(buffer.shape)), buffer.dtype), buffer.shape, buffer.dtype, (update,), reserved=name
    )
    buffer.take(name)


@implements(np.put_along_axis)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    view, indices, values = arr, as_tracer(indices), stored(values, arr.dtype)
    if axis is None:
        put(view, indices, values)
        return
    axis = axes_of(axis, view.ndim)[0]
    shape = _along(view, indices, axis)
    order = [*(k for k in range(len(shape)) if k != axis), axis]
    dims = [poly(Dim(order.index(k))) for k in range(len(shape))]
    index = [gather_index(indices, dims, shape, n) if k == axis else dims[k] for k, n in enumerate(view.shape)]
    value = trim(values, shape).load(shape).substitute(renumber(dims))
    _write_at(view, index, [shape[k] for k in order[:-1]], [shape[axis]], value)


@implements(np.put)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Values are repeated, or left over, as the indices need."""
    if not is_tracer(a):
        raise TypeError(f"argument 1 must be numpy.ndarray, not {type(a).__name__}")
    index, values = _indices(ind).reshape(-1), stored(v, a.dtype).reshape(-1)
    if not index.size or not values.size:
        return
    index = _within(index, a.size, mode)
    at = gather_index(index, identity(1), index.shape, a.size)
    value = values.at((poly(Dim(0)) % current().poly(values.shape[0]),))
    _write_at(a, flat_index(a, at), (), index.shape, value)


@implements(np.place)
def place(arr: Any, mask: Any, vals: Any) -> None:
    vals = stored(vals, arr.dtype, as_item).reshape(-1)
    if vals.shape[0] != 1:
        raise _depends("numpy.place")
    write(arr, vals[0], as_tracer(mask).reshape(arr.shape).astype(bool, copy=False).load(arr.shape))


MODULAR = frozenset("add subtract multiply bitwise_and bitwise_or bitwise_xor".split())


def _stays_itself(name: str, dtype: np.dtype[Any], value: Any) -> bool:
    """Is the result the same in the array's own dtype? That is so for whole numbers that wrap around, but not for float64 in between."""
    whole = type(value) is int and dtype.kind in "iu" and dtype != np.uint64
    return whole and name in MODULAR and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max


def ufunc_at(ufunc: np.ufunc, a: Any, indices: Any, values: Any = None) -> None:
    """``ufunc.at``: each index updates its element, repeated ones repeatedly."""
    name = ALIASES.get(ufunc.__name__, ufunc.__name__)
    if name not in UFUNCS:
        raise current().error(f"numpy.{ufunc.__name__}.at", "this ufunc is not compiled")
    if (values is None) != (ufunc.nin == 1):
        raise ValueError(
            "second operand needed for ufunc" if values is None else "second operand provided when ufunc is unary"
        )
    if not is_tracer(a):
        raise current().error(
            f"numpy.{ufunc.__name__}.at", "the array is not an argument of the function, nor made in it"
        )
    parsed = _parse(a, indices)
    if parsed.mask is not None or not parsed.arrays:  # no element is hit twice
        old = getitem(a, indices)
        a[indices] = ufunc(old) if values is None else ufunc(old, values)
        return
    view = _basic(a, parsed.basic)
    plan = _Advanced.of(view, parsed)
    if values is not None and not _stays_itself(name, a.dtype, values):
        values = as_tracer(values)  # `at` knows no weak scalars: 7 is an int64, 0.5 a float64
    operands = (a,) if values is None else (a, values)
    loop = loop_of(ufunc, operands, None, "same_kind")
    element: Expr = Const(0, loop[0])
    if values is not None:
        given = values if is_tracer(values) else as_tracer(values, loop[1])
        element = cast(trim(given, plan.shape).load(plan.shape), loop[1])
    plain = all(t == a.dtype for t in loop)
    free = name in ASSOCIATIVE and plain and (a.dtype.kind in "iub" or name in ("maximum", "minimum"))

    def combine(old: Expr, new: Expr) -> Expr:
        args = (cast(old, loop[0]),) if values is None else (cast(old, loop[0]), new)
        return cast(Op(name, args, loop[-1]), a.dtype)

    scatter(view, plan, element, name if free else "sequential", combine)


__all__ = ["histograms", "lookup", "ufunc_at"]
