"""Reductions and scans: sum, mean, min, argmax, any, cumsum, ..., and the ufunc methods behind them.

A reduction is a stage with an initial value and one associative update over the reduced axes. `argmin` and `argmax`
are two reductions: the extreme value, then the first index that has it. A scan is one sequential update.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Index, Load, Op, cast, renumber, select
from hjit.trace.ir.expressions import substitute as substitute_expr
from hjit.trace.ir.graph import Definition, identity
from hjit.trace.ir.identities import IDENTITIES, start_value
from hjit.trace.ir.poly import Dim, Poly, poly
from hjit.trace.ops.arguments import axes_of, broadcast, check_shape, finish, in_dtype_of, is_of_none, keeps, outer
from hjit.trace.ops.arrays.views import expand_dims, transpose
from hjit.trace.ops.by_numpy import by_numpy
from hjit.trace.ops.elementwise.ufuncs import ALIASES, UFUNCS
from hjit.trace.ops.layout import Order, as_it_lies, operands_order
from hjit.trace.ops.reductions.pairwise import sum_over
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import (
    MAX_KNOWN,
    Tracer,
    as_tracer,
    call,
    from_known,
    from_stage,
    is_tracer,
    size_number,
    stored,
)
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import as_item, is_host, static_value
from hjit.trace.tracing.scalars.moving import MovingLength

_MISSING = np._NoValue


def reduce_(
    name: str,
    a: Tracer,
    axes: tuple[int, ...],
    keepdims: bool = False,
    dtype: Any = None,
    where: Any = True,
    initial: Any = _MISSING,
) -> Tracer:
    """The stage that reduces `a` over `axes` with the ufunc `name`, in `dtype`."""
    dtype = np.dtype(dtype or a.dtype)
    if initial is _MISSING and IDENTITIES[name] is None and any(a.shape[k] == 0 for k in axes):
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
    if name == "add" and where is True and initial is _MISSING and (found := _sum_in_order(a, axes, dtype)) is not None:
        return expand_dims(found, axes) if keepdims else found
    masked = [a] if where is True else [a, as_tracer(where)]
    space = _space(a.shape, axes, operands_order(masked, a.shape))
    element: Expr = cast(a.at(space.index), dtype)
    if where is not True:
        mask = as_tracer(where)
        condition = substitute_expr(mask.load(broadcast(mask.shape, a.shape)), renumber(space.index))
        element = select(cast(condition, bool), element, _start(name, dtype))
    start = _start(name, dtype) if initial is _MISSING else cast(stored(initial, dtype, as_item).load(()), dtype)
    stage_name = current().reserve(name)
    value = Op(name, (Load(stage_name, space.target, dtype), element), dtype)
    update = Definition(space.dims, space.rdims, space.target, value, name)
    result = from_stage(start, space.shape, dtype, (update,), reserved=stage_name)
    kept = space.kept
    if kept != sorted(kept):
        result = transpose(result, [kept.index(k) for k in sorted(kept)])
    if keepdims:
        return expand_dims(result, axes)
    result.is_scalar = not space.shape
    return result


def _sum_in_order(a: Tracer, axes: tuple[int, ...], dtype: np.dtype[Any]) -> Tracer | None:
    """The sum over axes of a window, in a loop over pixels, in NumPy's order; None of other sums."""
    if not current().loops or dtype != a.dtype or dtype not in (np.float32, np.float64):
        return None
    found = sum_over(a, axes)
    if found is None:
        return None
    shape = tuple(n for k, n in enumerate(a.shape) if k not in axes)
    return from_stage(found, shape, dtype, is_scalar=not shape)


@dataclass(frozen=True, slots=True)
class _Space:
    """What a reduction of an array goes over.

    Attributes:
        kept: the axes that are left, as the result is laid out.
        shape: of the result.
        dims, rdims: the extents of these axes, and of those that are reduced.
        index, target: of the element that is read, and of the one that is written.
    """

    kept: list[int]
    shape: Shape
    dims: tuple[Poly, ...]
    rdims: tuple[Poly, ...]
    index: tuple[Poly, ...]
    target: tuple[Poly, ...]


def _space(shape: Shape, axes: tuple[int, ...], order: Order) -> _Space:
    """The space of a reduction over some axes of an array whose axes are laid out in an order."""
    rec = current()

    def make() -> _Space:
        kept = [k for k in order if k not in axes]
        all_axes = [*kept, *axes]
        sizes, dims = rec.polys(shape), identity(len(shape))
        return _Space(
            kept,
            rec.shape(shape[k] for k in kept),
            tuple(sizes[k] for k in kept),
            tuple(sizes[k] for k in axes),
            tuple(dims[all_axes.index(k)] for k in range(len(shape))),
            identity(len(kept)),
        )

    return rec.memos.once(("space", id(shape), axes, order), shape, make)


@lru_cache(maxsize=1024)
def _start(name: str, dtype: np.dtype[Any]) -> Const:
    """What a reduction begins with."""
    return Const(start_value(name, dtype), dtype)


def _reduction(name: str, a: Any, axis: Any, dtype: Any, out: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    a = as_tracer(a)
    out = out[0] if isinstance(out, tuple) else out
    keepdims = keeps(keepdims)
    where = True if where is _MISSING else where
    ufunc = getattr(np, name)
    if (
        a.known is not None
        and a.size <= MAX_KNOWN
        and not (is_tracer(where) or is_tracer(initial) or is_host(initial))
        and out is None
    ):
        options = {} if initial is _MISSING else {"initial": initial}
        known = ufunc.reduce(a.known, axis=axis, dtype=dtype, keepdims=keepdims, where=where, **options)
        return from_known(known, is_scalar=not isinstance(known, np.ndarray), of=a)
    axes = () if is_of_none(axis, a) else axes_of(axis, a.ndim)
    dtype = _reduced_dtype(ufunc, name, a.dtype, dtype, out)
    if name.startswith("logical"):
        truth = a.astype(bool)
        return finish(reduce_(name, truth, axes, keepdims, bool, where, initial), out)
    return finish(reduce_(name, a, axes, keepdims, dtype, where, initial), out)


def _accumulator(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """NumPy adds and multiplies small integers as the platform's widest."""
    if name in ("add", "multiply") and dtype.kind in "biu" and dtype.itemsize < 8:
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return dtype


@provides
def ufunc_method(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``np.add.reduce`` and the other methods of ufuncs."""
    if method == "reduce" and ufunc.__name__ in IDENTITIES:
        return _ufunc_reduce(ufunc.__name__, *inputs, **kwargs)
    if method == "reduce" and ufunc.nin == 2 and inputs and is_tracer(inputs[0]):
        out = kwargs.pop("out", None)
        return by_numpy(ufunc.reduce, *inputs, **kwargs, out=out[0] if isinstance(out, tuple) else out)
    if method == "accumulate":
        return _ufunc_accumulate(ufunc.__name__, *inputs, **kwargs)
    if method == "reduceat":
        return _ufunc_reduceat(ufunc, *inputs, **kwargs)
    if method == "outer" and ufunc.__name__ in UFUNCS:
        return outer(ufunc, *map(as_tracer, inputs), **kwargs)
    if method == "at":
        return forward.ufunc_at(ufunc, *inputs)
    raise current().error(f"numpy.{ufunc.__name__}.{method}", "this method of a ufunc is not compiled")


def _ufunc_reduce(
    name: str,
    a: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = _MISSING,
    where: Any = True,
) -> Any:
    return _reduction(name, a, axis, dtype, out, keepdims, _MISSING if initial is None else initial, where)


@implements(np.sum)
def sum_(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = _MISSING,
    initial: Any = _MISSING,
    where: Any = _MISSING,
) -> Any:
    return _reduction("add", a, axis, dtype, out, keepdims, initial, where)


@implements(np.prod)
def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = _MISSING,
    initial: Any = _MISSING,
    where: Any = _MISSING,
) -> Any:
    return _reduction("multiply", a, axis, dtype, out, keepdims, initial, where)


@implements(np.max, np.amax)
def max_(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = _MISSING, initial: Any = _MISSING, where: Any = _MISSING
) -> Any:
    return _reduction("maximum", a, axis, None, out, keepdims, initial, where)


@implements(np.min, np.amin)
def min_(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = _MISSING, initial: Any = _MISSING, where: Any = _MISSING
) -> Any:
    return _reduction("minimum", a, axis, None, out, keepdims, initial, where)


@implements(np.any)
def any_(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _MISSING, *, where: Any = _MISSING) -> Any:
    return _reduction("logical_or", a, axis, None, out, keepdims, _MISSING, where)


@implements(np.all)
def all_(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _MISSING, *, where: Any = _MISSING) -> Any:
    return _reduction("logical_and", a, axis, None, out, keepdims, _MISSING, where)


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return sum_(as_tracer(a).astype(bool), axis, np.intp, keepdims=keepdims)


@implements(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = _MISSING) -> Any:
    high = max_(a, axis, keepdims=keepdims)
    check_shape(out, high)
    high = in_dtype_of(out, high)  # NumPy has the maxima in `out`
    return np.subtract(high, min_(a, axis, keepdims=keepdims), out=out)


@implements(np.mean)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _MISSING, *, where: Any = _MISSING
) -> Any:
    a = as_tracer(a)
    count = counted(a, axis, where, keepdims)
    not_empty(count)
    if out is None:
        return _mean(a, axis, dtype, keepdims, where)
    work = np.float32 if dtype is None and a.dtype == np.float16 else _summed(a, dtype)
    return _divide(sum_(a, axis, work, out, keepdims, where=where), count)


def _mean(a: Tracer, axis: Any, dtype: Any, keepdims: Any, where: Any) -> Any:
    """The mean, without a warning."""
    result_dtype = _summed(a, dtype) or a.dtype
    work = np.dtype(np.float32) if result_dtype == np.float16 and dtype is None else result_dtype
    total = sum_(a, axis, work, None, keepdims, where=where)
    return divided(total, counted(a, axis, where, keepdims), result_dtype)


def _summed(a: Tracer, dtype: Any) -> np.dtype[Any] | None:
    """As what means and variances sum elements, where that is not as sums do it."""
    return np.dtype(dtype) if dtype is not None else np.dtype(np.float64) if a.dtype.kind in "biu" else None


def not_empty(count: Any) -> None:
    """NumPy's warning where a mean divides by no elements; `count` may be a size, an array, or a length that moves with
    a loop, of which this is not known."""
    if isinstance(count, int) and count == 0:
        forward.warn("Mean of empty slice")


def divided(total: Any, count: Any, dtype: np.dtype[Any]) -> Any:
    """A sum, of complex numbers perhaps, by how many elements there are."""
    n = count if is_tracer(count) else size_number(count, total.real.dtype)
    return _like_scalar(np.true_divide(total, n).astype(dtype, copy=False), total)


def _divide(out: Any, count: Any) -> Any:
    """As `divided`, of a sum in the array that is given for the result."""
    n = count if is_tracer(count) else size_number(count, np.dtype(np.float64))
    return np.true_divide(out, n, out=out, casting="unsafe")


def counted(a: Any, axis: Any, where: Any, keepdims: Any) -> Any:
    """How many elements a mean divides by: a size, or an array where there is a mask."""
    if where is _MISSING or where is True:
        axes, shape = axes_of(axis, a.ndim), a.shape
        return current().memos.once(("count", id(shape), axes), shape, lambda: math.prod(shape[k] for k in axes))
    mask = np.broadcast_to(as_tracer(where), a.shape)
    return call(np.count_nonzero, mask, axis, keepdims=keeps(keepdims))


def _like_scalar(result: Any, like: Any) -> Any:
    result.is_scalar = like.is_scalar
    return result


@implements(np.var)
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = _MISSING,
    *,
    where: Any = _MISSING,
    mean: Any = _MISSING,
    correction: Any = _MISSING,
) -> Any:
    a = as_tracer(a)
    ddof = ddof if correction is _MISSING else correction
    dtype = _summed(a, dtype)
    centre = _mean(a, axis, dtype or a.dtype, True, where) if mean is _MISSING else mean
    d = np.subtract(a, centre)
    return mean_of_squares(a, d * d, dtype, axis, ddof, keepdims, where, out)


def mean_of_squares(
    a: Any,
    squares: Tracer,
    dtype: np.dtype[Any] | None,
    axis: Any,
    ddof: Any,
    keepdims: Any,
    where: Any = _MISSING,
    out: Any = None,
) -> Any:
    """The mean of the squared deviations of `a`, of which `ddof` do not count."""
    total = sum_(squares, axis, dtype, out, keepdims, where=where)  # unlike means, halves are summed as halves
    count = counted(a, axis, where, keepdims)
    if is_tracer(count):
        left = np.maximum(count - ddof, 0)
    else:
        ddof = static_value(ddof)
        left = count.without(ddof) if type(count) is MovingLength else max(count - ddof, 0)
    if not is_tracer(left) and left == 0:
        forward.warn("Degrees of freedom <= 0 for slice")
    return divided(total, left, total.dtype) if out is None else _divide(total, left)


def root_of(var: Callable[..., Any]) -> Callable[..., Any]:
    """``numpy.std``, by a function for the variance."""

    def std(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = _MISSING,
        **options: Any,
    ) -> Any:
        v = var(a, axis, dtype, out, ddof, keepdims, **options)
        if out is not None or (v.dtype.kind != "f" and not v.is_scalar):
            return np.sqrt(v, out=v)
        return _like_scalar(np.sqrt(v).astype(v.dtype, copy=False), v)

    return std


implements(np.std)(root_of(var))


def _arg(a: Any, axis: Any, out: Any, keepdims: Any, extreme: str) -> Any:
    a = as_tracer(a)
    whole = axis is None or is_of_none(axis, a)
    axes = tuple(range(a.ndim)) if whole else (axes_of(axis, a.ndim)[0],)
    count = math.prod((a.shape[k] for k in axes), start=1)
    if count == 0:
        raise ValueError(f"attempt to get {'argmax' if extreme == 'maximum' else 'argmin'} of an empty sequence")
    if out is not None and not np.can_cast(out.dtype, np.intp, "safe"):
        raise TypeError(
            f"Cannot cast array data from {out.dtype!r} to {np.dtype(np.intp)!r} according to the rule 'safe'"
        )
    best = reduce_(extreme, a, axes, keepdims=True)
    hit = np.equal(a, best)
    if a.dtype.kind == "f":
        hit = np.logical_or(hit, np.logical_and(np.isnan(a), np.isnan(best)))
    position, never = poly(0), current().poly(count)
    for k in axes:
        position = position * current().poly(a.shape[k]) + Dim(k)
    candidate = from_stage(select(hit.load(), Index(position), Index(never)), a.shape, np.int64)
    result = reduce_("minimum", candidate, axes, keepdims=False, dtype=np.int64, initial=np.iinfo(np.int64).max)
    if keepdims is not _MISSING and keepdims:
        result = (
            result.reshape((1,) * a.ndim)
            if whole
            else result[tuple(None if j in axes else slice(None) for j in range(a.ndim))]
        )
    return finish(result if out is None else result.astype(out.dtype, copy=False), out)


@implements(np.argmax)
def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _MISSING) -> Any:
    return _arg(a, axis, out, keepdims, "maximum")


@implements(np.argmin)
def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = _MISSING) -> Any:
    return _arg(a, axis, out, keepdims, "minimum")


# -- scans


def scan(name: str, a: Tracer, axis: int, dtype: Any) -> Tracer:
    """``ufunc.accumulate`` along one axis."""
    dtype = np.dtype(dtype)
    rec = current()
    n = a.shape[axis]
    first = cast(a.load(), dtype)
    if n <= 1:
        return from_stage(first, a.shape, dtype)
    others = [k for k in range(a.ndim) if k != axis]
    place: dict[int, Poly] = {k: poly(Dim(i)) for i, k in enumerate([*others, axis])}
    here = tuple(place[k] + 1 if k == axis else place[k] for k in range(a.ndim))
    before = tuple(place[k] for k in range(a.ndim))
    stage_name = rec.reserve(name)
    value = Op(name, (Load(stage_name, before, dtype), Load(stage_name, here, dtype)), dtype)
    sizes = rec.polys(a.shape)
    is_sum = name == "add" and dtype.kind == "f"  # products of parts may overflow where running ones do not
    update = Definition(tuple(sizes[k] for k in others), (rec.poly(n - 1),), here, value, "sequential", is_sum)
    return from_stage(first, a.shape, dtype, (update,), reserved=stage_name)


def _ufunc_accumulate(name: str, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    a = as_tracer(a)
    out = out[0] if isinstance(out, tuple) else out
    ufunc, name = getattr(np, name), ALIASES.get(name, name)
    if name not in UFUNCS:
        raise current().error(f"numpy.{name}.accumulate", "this ufunc is not compiled")
    if axis is None:
        a, axis = a.reshape(-1), 0
    (along,), kind = axes_of(axis, a.ndim), _reduced_dtype(ufunc, name, a.dtype, dtype, out)
    order = operands_order((a,), a.shape)  # not that of a copy, which repeated axes and those of one element move
    return finish(as_it_lies(a, lambda x, order: scan(name, x, order.index(along), kind), order), out)


def _ufunc_reduceat(ufunc: np.ufunc, a: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    out = out[0] if isinstance(out, tuple) else out
    places = as_tracer(indices, np.intp if type(indices) in (list, tuple) else None)  # which are converted by any means
    return by_numpy(ufunc.reduceat, as_tracer(a), places, axis=axis, dtype=dtype, out=out)


def _reduced_dtype(ufunc: np.ufunc, name: str, given: np.dtype[Any], asked: Any, out: Any) -> np.dtype[Any]:
    """The dtype in which ``ufunc.reduce`` and ``accumulate`` compute; elements are cast to it.

    Raises:
        TypeError: NumPy has no such loop.
    """
    if asked is None and out is None:
        asked = _accumulator(name, given)
        asked = None if asked == given else asked
    return _resolved(ufunc, given, None if asked is None else np.dtype(asked), None if out is None else out.dtype)


@lru_cache(maxsize=1024)
def _resolved(
    ufunc: np.ufunc, given: np.dtype[Any], asked: np.dtype[Any] | None, out: np.dtype[Any] | None
) -> np.dtype[Any]:
    """See `_reduced_dtype`."""
    signature = {} if asked is None else {"signature": (asked, None, None)}
    return ufunc.resolve_dtypes((out, given, None), casting="unsafe", reduction=True, **signature)[0]


@implements(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _ufunc_accumulate("add", a, None if is_of_none(axis, a) else axis, dtype, out)


@implements(np.cumprod)
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _ufunc_accumulate("multiply", a, None if is_of_none(axis, a) else axis, dtype, out)
