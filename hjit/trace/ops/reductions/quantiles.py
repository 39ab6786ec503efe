"""Order statistics: median, percentile, quantile, and those that ignore NaN.

Those of a few elements are part of the Graph, by sorting networks (`networks`); those of all of many elements, by
counting (`counting`); all others are NumPy's own, extern calls between kernels. Statistics that are NaN where any
element is, use a network that ignores NaN, and one test at the end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Op, cast
from hjit.trace.ir.graph import Definition
from hjit.trace.ir.poly import Dim, poly
from hjit.trace.ops.arguments import axes_of, concrete_shape, count, finish, keeps
from hjit.trace.ops.by_numpy import by_numpy
from hjit.trace.ops.elementwise.promotion import resolve_dtypes
from hjit.trace.ops.limits import MAX_IMAGES, MAX_OF_NUMBERS
from hjit.trace.ops.reductions.counting import (
    CHOOSING,
    METHODS,
    are_numbers,
    counted_median,
    counted_quantile,
    fraction,
    is_counted,
    is_python_number,
)
from hjit.trace.ops.reductions.networks import (
    are_few_to_select,
    elements,
    flag,
    median_network,
    network,
    ordered,
)
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, from_stage, is_tracer
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host, static_value

_MISSING = np._NoValue


def _apply(ufunc: np.ufunc, *args: Any) -> Expr:
    """A ufunc on expressions and Python numbers, in the dtypes that NumPy would choose."""
    kinds = tuple(x.dtype if isinstance(x, Expr) else type(x) for x in args)
    loop = resolve_dtypes(ufunc, kinds, None, "same_kind")
    operands = tuple(cast(x, t) if isinstance(x, Expr) else Const(x, t) for x, t in zip(args, loop, strict=False))
    return Op(ufunc.__name__, operands, loop[-1])


def _any_nan(items: Sequence[Expr]) -> Expr:
    level = [flag("isnan", e) for e in items]
    while len(level) > 1:
        level = [
            flag("logical_or", *level[k : k + 2]) if k + 1 < len(level) else level[k] for k in range(0, len(level), 2)
        ]
    return level[0]


def _or_nan(value: Expr, items: Sequence[Expr]) -> Expr:
    """`value`, or NaN where one of the elements is."""
    if items[0].dtype.kind != "f":
        return value
    return Op("select", (_any_nan(items), Const(np.nan, value.dtype), value), value.dtype)


def _reduced(a: Tracer, axis: Any, keepdims: Any, out: Any, values: Sequence[Expr], lead: tuple[int, ...] = ()) -> Any:
    """The result of a statistic: one value, or for `lead` dimensions one value for each of their places."""
    axes = axes_of(axis, a.ndim)
    keep = keeps(keepdims)
    shape = tuple(n for k, n in enumerate(a.shape) if k not in axes)
    if not lead:
        result = from_stage(values[0], shape, values[0].dtype, is_scalar=not shape and not keep)
    else:
        sizes = current().polys(shape)
        dims = tuple(poly(Dim(k)) for k in range(len(shape)))
        updates = tuple(
            Definition(sizes, (), (*map(poly, place), *dims), e)
            for place, e in zip(np.ndindex(*lead), values, strict=True)
        )
        result = from_stage(None, (*lead, *shape), values[0].dtype, updates)
    if keep:
        result = result[(*(slice(None),) * len(lead), *(None if k in axes else slice(None) for k in range(a.ndim)))]
    return finish(result, out)


@implements(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = _MISSING) -> Any:
    """The mean of the one or two middle elements, in the dtype of `numpy.mean`; NaN where one is NaN."""
    a = as_tracer(a)
    axes = axes_of(axis, a.ndim)
    if a.known is not None or not a.size or not a.ndim or _computes_in_out(a, out):
        return by_numpy(np.median, a, axis=axis, out=out, keepdims=keeps(keepdims))
    if not are_few_to_select(a, axes):
        counted = None if out is not None else _counted(a, axes, keepdims, 1, counted_median)
        if counted is not None:
            return counted
        return by_numpy(np.median, a, axis=axis, out=out, keepdims=keeps(keepdims), rule="monotone")
    items = elements(a, axes)
    n = len(items)
    steps = median_network(n) if n % 2 else network(n)
    middle = ordered(items, steps, nan_last=False)[(n - 1) // 2 : n // 2 + 1]
    return _reduced(a, axis, keepdims, out, [_or_nan(_mean(middle), items)])


def _computes_in_out(a: Tracer, out: Any) -> bool:
    """Is `out` of another dtype than the result? NumPy then does a part of the work in that."""
    return out is not None and out.dtype != (a.dtype if a.dtype.kind == "f" else np.float64)


def _counted(
    a: Tracer, axes: Sequence[int], keepdims: Any, ranks: int, statistic: Callable[[Tracer], Tracer]
) -> Tracer | None:
    """A statistic over some axes by counting, for each place of the others; None where that takes longer than NumPy.

    Args:
        ranks: how many elements the statistic has.
        statistic: that of all elements.
    """
    others = [k for k in range(a.ndim) if k not in axes]
    lengths = concrete_shape(tuple(a.shape[k] for k in others))
    if math.prod(lengths) > MAX_IMAGES:
        return None
    moved = call(np.moveaxis, a, others, list(range(len(others))))
    images = [moved[place] for place in np.ndindex(*lengths)]
    if not is_counted(images[0], ranks):
        return None
    values = [statistic(x) for x in images]
    lead = values[0].shape
    if not others and not keeps(keepdims):
        return values[0]
    kept = [1 if k in axes else a.shape[k] for k in range(a.ndim)] if keeps(keepdims) else lengths
    result: Tracer = call(np.stack, values, -1).reshape((*lead, *kept))
    return result


def _mean(middle: Sequence[Expr]) -> Expr:
    dtype = middle[0].dtype if middle[0].dtype.kind == "f" else np.dtype(np.float64)
    if len(middle) == 1:
        return cast(middle[0], dtype)
    work = np.dtype(np.float32) if dtype == np.float16 else dtype
    total = Op("add", (cast(middle[0], work), cast(middle[1], work)), work)
    return cast(Op("true_divide", (total, Const(2, work)), work), dtype)


@implements(np.nanmedian)
def nanmedian(
    a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = _MISSING
) -> Any:
    """The median of the elements that are not NaN; NaN where all are."""
    a = as_tracer(a)
    if a.dtype.kind != "f" or a.size == 0 or a.ndim == 0:
        return median(a, axis, out, overwrite_input, keepdims)
    axes = axes_of(axis, a.ndim)
    if a.known is None and out is None and not are_few_to_select(a, axes):
        counted = _counted(a, axes, keepdims, 1, lambda x: counted_median(x, are_numbers(x)))
        if counted is not None:
            return counted
    if a.known is not None or not are_few_to_select(a, axes) or _computes_in_out(a, out):
        return by_numpy(np.nanmedian, a, axis=axis, out=out, keepdims=keeps(keepdims), rule="monotone")
    items = elements(a, axes)
    items = ordered(items, network(len(items)))
    mean = _mean if len(axes) == a.ndim else _mean_of_masked
    return _reduced(a, axis, keepdims, out, [_of_numbers(items, lambda k: mean(items[(k - 1) // 2 : k // 2 + 1]))])


def _mean_of_masked(middle: Sequence[Expr]) -> Expr:
    """As `numpy.ma.median` has it, by which NumPy computes along axes: half of the sum of two, which may overflow."""
    dtype = middle[0].dtype
    work = np.dtype(np.float32) if dtype == np.float16 else dtype
    total = Op("add", (cast(middle[0], work), cast(middle[-1], work)), work)
    rounded = cast(Op("add", (total, Const(0, work)), work), dtype)  # never -0.0
    return cast(Op("true_divide", (cast(rounded, work), Const(2, work)), work), dtype)


def _of_numbers(items: Sequence[Expr], of_first: Callable[[int], Expr]) -> Expr:
    """A statistic of those sorted elements that are not NaN; NaN where all are.

    Args:
        of_first: that of so many first elements, one at least.
    """
    value = of_first(1)
    for k in range(2, len(items) + 1):
        value = Op("select", (flag("isnan", items[k - 1]), value, of_first(k)), value.dtype)
    return value


# -- quantiles


_WITHOUT_NAN: dict[Any, Any] = {np.nanpercentile: np.percentile, np.nanquantile: np.quantile}


def _traced(function: Callable[..., Any]) -> None:
    """One of NumPy's four functions of quantiles, which have the same signature."""

    @implements(function)
    def method(
        a: Any,
        q: Any,
        axis: Any = None,
        out: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: Any = _MISSING,
        *,
        weights: Any = None,
    ) -> Any:
        return _quantile(function, as_tracer(a), q, axis, out, method, keepdims, weights)


for _with_nan, _without_nan in _WITHOUT_NAN.items():
    _traced(_without_nan)
    _traced(_with_nan)


def _quantile(
    function: Callable[..., Any], a: Tracer, q: Any, axis: Any, out: Any, method: str, keepdims: Any, weights: Any
) -> Any:
    if function in _WITHOUT_NAN and a.dtype.kind != "f" and a.size and a.ndim and weights is None:
        function = _WITHOUT_NAN[function]
    ignores_nan, hundred = function in _WITHOUT_NAN, function in (np.percentile, np.nanpercentile)
    axes, found = axes_of(axis, a.ndim), None
    is_numpys = out is not None if ignores_nan else _computes_in_out(a, out)
    if not is_numpys and _is_plain(a, q, method, weights, hundred):
        if are_few_to_select(a, axes):
            found = _few(a, q, axes, out, method, keepdims, hundred, ignores_nan)
        elif out is None:
            found = _counted_quantile(a, q, axes, method, keepdims, hundred, ignores_nan)
    return _by_numpy(function, a, q, axis, out, method, keepdims, weights) if found is None else found


def _is_plain(a: Tracer, q: Any, method: str, weights: Any, hundred: bool) -> bool:
    """Are the quantiles elements, or between two of them?"""
    if weights is not None or a.known is not None or not a.size or not a.ndim or method not in METHODS:
        return False
    # bools are not subtracted; whole places between elements give whole numbers
    return method in CHOOSING or not (a.dtype.kind == "b" or (method != "linear" and not hundred and _is_whole(q)))


def _counted_quantile(
    a: Tracer, q: Any, axes: Sequence[int], method: str, keepdims: Any, hundred: bool, ignores_nan: bool
) -> Tracer | None:
    """See `_counted`."""
    ranks = _ranks(a, q)
    if ranks is None:
        return None

    def statistic(x: Tracer) -> Tracer:
        return counted_quantile(x, q, method, hundred, are_numbers(x) if ignores_nan else None)

    return _counted(a, axes, keepdims, ranks, statistic)


def _ranks(a: Tracer, q: Any) -> int | None:
    """How many quantiles are wanted; None where the dtype of the result depends on whether an element is NaN."""
    is_one = type(q) not in (list, tuple) and not (q.ndim if is_tracer(q) else 0 if is_host(q) else np.ndim(q))
    if is_one and a.dtype.kind == "f" and not is_python_number(q) and np.result_type(a.dtype, _dtype(q)) != a.dtype:
        return None  # that of the quantile, or that of the elements
    return _number(q)


def _number(q: Any) -> int:
    """How many quantiles are wanted?"""
    if type(q) in (list, tuple):
        return sum(map(_number, q))
    return count(q.shape) if is_tracer(q) else 1 if is_host(q) else np.size(q)


def _by_numpy(
    function: Callable[..., Any],
    a: Tracer,
    q: Any,
    axis: Any,
    out: Any,
    method: str,
    keepdims: Any,
    weights: Any,
) -> Any:
    options = {"axis": axis, "method": method, "keepdims": keeps(keepdims)}
    if weights is None:
        return by_numpy(function, a, q, out=out, rule="monotone", **options)
    return by_numpy(_weighted(function), a, q, weights, out=out, **options)


def _weighted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with weights, which may be traced, as an argument."""

    @functools.wraps(function)
    def method(a: Any, q: Any, weights: Any, **options: Any) -> Any:
        return function(a, q, weights=weights, **options)

    return method


@provides
def counted_of_read(function: Any, full: Any, mask: Any, arguments: dict[str, Any]) -> Tracer | None:
    """A median or a quantile of ``full[mask]``, all elements of which are counted; None where that is not done.

    Args:
        arguments: of the call by name, without defaults.
    """
    plain = {x: y for x, y in arguments.items() if x not in ("a", "q", "method", "overwrite_input") and y is not None}
    if not is_tracer(full) or tuple(full.shape) != tuple(mask.shape) or plain not in ({}, {"axis": 0}):
        return None
    kept = mask
    if function in (np.nanmedian, *_WITHOUT_NAN) and full.dtype.kind == "f":
        kept = mask & are_numbers(full)
    if function in (np.median, np.nanmedian):
        return counted_median(full, kept) if is_counted(full) else None
    q, method, hundred = (
        arguments["q"],
        arguments.get("method", "linear"),
        function in (np.percentile, np.nanpercentile),
    )
    ranks = _ranks(full, q) if _is_plain(full, q, method, None, hundred) else None
    return counted_quantile(full, q, method, hundred, kept) if ranks is not None and is_counted(full, ranks) else None


def _wanted(q: Any, hundred: bool) -> np.ndarray[Any, Any] | None:
    """The quantiles; None where NumPy refuses them."""
    wanted = np.true_divide(q, 100, out=...) if hundred else np.asanyarray(q)
    return wanted if wanted.ndim <= 2 and wanted.size and wanted.min() >= 0 and wanted.max() <= 1 else None


def _few(
    a: Tracer, q: Any, axes: tuple[int, ...], out: Any, method: str, keepdims: Any, hundred: bool, ignores_nan: bool
) -> Any:
    """By a network; None if the quantiles are not known, if NumPy refuses them, or if that takes too many steps."""
    wanted = None if _is_computed(q) else _wanted(_fixed(q), hundred)
    if wanted is None:
        return None
    if ignores_nan and wanted.size * count(tuple(a.shape[k] for k in axes)) > MAX_OF_NUMBERS:
        return None
    is_weak = is_python_number(q)
    items = elements(a, axes)
    inside = ordered(items, network(len(items)), nan_last=ignores_nan)
    if not ignores_nan:
        values = [_or_nan(_between(inside, x, method, is_weak), items) for x in wanted.ravel()]
        return _reduced(a, axes, keepdims, out, values, wanted.shape)

    def of_first(x: Any, k: int) -> Expr:
        return _between(inside[:k], x, method, is_weak)

    values = [_of_numbers(inside, functools.partial(of_first, x)) for x in wanted.ravel()]
    if values[0].dtype != a.dtype:  # NumPy's result has the dtype of the first slice's, which is the elements' for NaN
        first = a[tuple(slice(None) if k in axes else 0 for k in range(a.ndim))]
        current().check(call(np.all, call(np.isnan, first)))
    return _reduced(a, axes, keepdims, out, values, wanted.shape)


def _between(inside: Sequence[Expr], q: Any, method: str, weak: bool) -> Expr:
    """A quantile of sorted elements."""
    place = np.asarray(METHODS[method](len(inside), len(inside) - 1, q))
    if np.issubdtype(place.dtype, np.integer):
        return inside[int(place)]
    low, high = _neighbours(place, len(inside))
    previous = -1 if low == len(inside) - 1 else low  # as NumPy counts: it matters where -0.0 is weighted
    t = np.asarray(fraction(place, previous, method))[()]
    return _lerp(inside[low], inside[high], float(t) if weak else t, weak)


def _is_computed(q: Any) -> bool:
    """Do the wanted quantiles depend on the values of arrays?"""
    return any(map(_is_computed, q)) if type(q) in (list, tuple) else is_tracer(q) and q.known is None


def _is_whole(q: Any) -> bool:
    """Are the wanted quantiles integers?"""
    if type(q) in (list, tuple):
        return all(map(_is_whole, q))
    return _dtype(q).kind in "biu"


def _dtype(q: Any) -> np.dtype[Any]:
    """That of a quantile, or of an array of them."""
    found: np.dtype[Any] = q.dtype if is_tracer(q) else np.asarray(q.value if is_host(q) else q).dtype
    return found


def _fixed(q: Any) -> Any:
    """The wanted quantiles: known while tracing, since they choose elements."""
    if type(q) in (list, tuple):
        return np.asarray([_fixed(x) for x in q])
    return q.known if is_tracer(q) else static_value(q)


def _neighbours(place: Any, n: int) -> tuple[int, int]:
    if place >= n - 1:
        return n - 1, n - 1
    low = int(np.floor(place))
    return (0, 0) if place < 0 else (low, low + 1)


def _lerp(a: Expr, b: Expr, t: Any, weak: bool) -> Expr:
    """NumPy's interpolation, from the nearer end."""

    def number(x: Any) -> Any:
        return float(x) if weak else Const(x, x.dtype)

    step = _apply(np.subtract, b, a)
    value = _apply(np.add, a, _apply(np.multiply, step, number(t)))
    if t >= 0.5:
        left = _apply(np.multiply, step, number(1 - t))
        value = Op("subtract", (cast(b, value.dtype), cast(left, value.dtype)), value.dtype)
    return value
