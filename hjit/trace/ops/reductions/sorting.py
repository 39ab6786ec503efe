"""Order statistics over a few elements: sort, argsort, partition, median, percentile, quantile.

The elements along the axis are expressions; a network of compare-exchange steps (Batcher's odd-even merge sort) puts
them in order without a branch, and what a result does not need of it is never part of the Graph. Statistics that are
NaN where any element is, use a network that ignores NaN, and one test at the end.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hjit.trace.ir.graph import Const, Definition, Expr, Op, cast
from hjit.trace.ir.poly import Dim, Poly, poly
from hjit.trace.ops.arguments import axes_of, contents, finish, placeholders, refuse
from hjit.trace.ops.elementwise.promotion import resolve_dtypes
from hjit.trace.ops.limits import MAX_SORTED
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.host import unpin
from hjit.trace.tracing.recorder import current
from hjit.trace.tracing.tracer import Tracer, as_tracer, from_known, from_stage, is_tracer

_BOOL = np.dtype(bool)
_MISSING = np._NoValue


# -- networks


@lru_cache(maxsize=64)
def network(n: int) -> tuple[tuple[int, int], ...]:
    """The compare-exchange steps that sort `n` elements."""
    steps = []
    p = 1
    while p < n:
        k = p
        while k >= 1:
            for j in range(k % p, n - k, 2 * k):
                steps += [
                    (i + j, i + j + k) for i in range(min(k, n - j - k)) if (i + j) // (2 * p) == (i + j + k) // (2 * p)
                ]
            k //= 2
        p *= 2
    return tuple(steps)


# The median of 9 and of 25 need fewer steps than a full sort (N. Devillard, Fast median search, 1998).
_MEDIAN_9 = "12 45 78 01 34 67 12 45 78 03 58 47 36 14 25 47 42 64 42"
_MEDIAN_25 = """ab de ce cd gh fh fg jk ik ij mn ln lm pq oq op st rt rs vw uw uv xy cf dg ag ad eh bh be lo io il mp
    jp jm nq kq kn ux rx ru vy sy sv tw ir js as aj kt bt bk lu cu cl mv dv dm nw ew en ox fx fo py gy gp hq ht nv px
    hn hp bj dl fr lr jr ek gm ho eg eh mo ko gh km gk gr mr hr hk ms hm ks mu ku km"""


@lru_cache(maxsize=64)
def median_network(n: int) -> tuple[tuple[int, int], ...]:
    """Steps after which the median of `n` elements stands in the middle; the others need not be in order."""
    if n == 9:
        return tuple((int(pair[0]), int(pair[1])) for pair in _MEDIAN_9.split())
    if n == 25:
        return tuple((ord(pair[0]) - ord("a"), ord(pair[1]) - ord("a")) for pair in _MEDIAN_25.split())
    return network(n)


def ranked(wires: list[Expr], rank: int) -> Expr:
    """The element that stands at `rank` when `wires` are sorted; exchanges that it does not need are never made."""
    wires = list(wires)
    steps = median_network(len(wires)) if 2 * rank + 1 == len(wires) else network(len(wires))
    needed, used = {rank}, []
    for i, j in reversed(steps):
        if i in needed or j in needed:
            used.append((i, j, i in needed, j in needed))
            needed |= {i, j}
    for i, j, low, high in reversed(used):
        a, b = wires[i], wires[j]
        if low:
            wires[i] = Op("minimum", (a, b), a.dtype)
        if high:
            wires[j] = Op("maximum", (a, b), a.dtype)
    return wires[rank]


def _op(name: str, *args: Expr) -> Expr:
    return Op(name, args, _BOOL)


def _exchange(a: Expr, b: Expr, nan_last: bool) -> tuple[Expr, Expr]:
    """The smaller and the larger of two."""
    dtype = a.dtype
    if dtype.kind != "f":
        return Op("minimum", (a, b), dtype), Op("maximum", (a, b), dtype)
    swap = _op("less", b, a)
    if nan_last:
        swap = _op("logical_or", swap, _op("isnan", a))
    return Op("select", (swap, b, a), dtype), Op("select", (swap, a, b), dtype)


def ordered(items: Sequence[Expr], steps: Sequence[tuple[int, int]], nan_last: bool = True) -> list[Expr]:
    """The expressions after the steps of a network."""
    found = list(items)
    for i, j in steps:
        found[i], found[j] = _exchange(found[i], found[j], nan_last)
    return found


def _before(a: Expr, b: Expr) -> Expr:
    """Does value `a` come before value `b`?"""
    less = _op("less", a, b)
    if a.dtype.kind != "f":
        return less
    return _op("logical_or", less, _op("logical_and", _op("isnan", b), _op("logical_not", _op("isnan", a))))


def _arg_ordered(items: Sequence[Expr]) -> list[Expr]:
    """The numbers of the elements in their order, equal ones as they came."""
    values = list(items)
    places: list[Expr] = [Const(k, np.int64) for k in range(len(values))]
    for i, j in network(len(values)):
        a, b, p, q = values[i], values[j], places[i], places[j]
        tie = _op("logical_and", _op("logical_not", _before(a, b)), _op("less", q, p))
        swap = _op("logical_or", _before(b, a), tie)
        values[i], values[j] = Op("select", (swap, b, a), a.dtype), Op("select", (swap, a, b), a.dtype)
        places[i], places[j] = Op("select", (swap, q, p), p.dtype), Op("select", (swap, p, q), p.dtype)
    return places


def elements(a: Tracer, axes: Sequence[int], operation: str) -> list[Expr]:
    """The elements along `axes`, over the dimensions of the other axes.

    Raises:
        TraceError: there are too many for a network.
    """
    count = 1
    for k in axes:
        count *= int(a.shape[k])
    if count > MAX_SORTED:
        advice = (
            f"order at most {MAX_SORTED} elements (stack the neighbours on an axis of their own), "
            'or pass on_unsupported="numpy"'
        )
        raise current().error(
            operation,
            f"{count} elements are put in order, more than the {MAX_SORTED} that a sorting network handles",
            advice,
        )
    kept = {k: i for i, k in enumerate(k for k in range(a.ndim) if k not in axes)}
    found: list[Expr] = []
    for place in np.ndindex(*(int(a.shape[k]) for k in axes)):
        at = dict(zip(axes, place, strict=True))
        found.append(a.at([poly(at[k]) if k in at else poly(Dim(kept[k])) for k in range(a.ndim)]))
    return found


# -- sort


def _sorted(a: Tracer, axis: int, order: Callable[[list[Expr]], list[Expr]], dtype: Any, operation: str) -> Tracer:
    """One update for each position along `axis`."""
    if a.size == 0:
        return from_known(np.zeros(tuple(map(int, a.shape)), dtype))
    found = order(elements(a, (axis,), operation))
    rec = current()
    sizes = rec.polys(a.shape)
    dims = tuple(n for k, n in enumerate(sizes) if k != axis)
    updates = []
    for position, e in enumerate(found):
        target: list[Poly] = [poly(Dim(k)) for k in range(len(dims))]
        target.insert(axis, poly(position))
        updates.append(Definition(dims, (), tuple(target), e))
    return from_stage(None, a.shape, dtype, tuple(updates))


def _flat(a: Tracer, axis: Any) -> tuple[Tracer, int]:
    if axis is None:
        return a.reshape(-1), 0
    return a, np.lib.array_utils.normalize_axis_index(operator.index(unpin(axis)), a.ndim)


@implements(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    a = as_tracer(a)
    if a.known is not None:
        return from_known(np.sort(a.known, unpin(axis), kind))
    a, axis = _flat(a, axis)
    return _sorted(a, axis, lambda items: ordered(items, network(len(items))), a.dtype, "numpy.sort")


@implements(np.argsort)
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    """Equal elements keep their order, as NumPy's ``kind="stable"`` has it."""
    a = as_tracer(a)
    if a.known is not None:
        return from_known(np.argsort(a.known, unpin(axis), "stable"))
    a, axis = _flat(a, axis)
    return _sorted(a, axis, _arg_ordered, np.intp, "numpy.argsort")


@implements(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    """NumPy's order within both parts is unspecified; here everything is sorted."""
    a, axis = _flat(as_tracer(a), axis)
    _check_kth(kth, a.shape[axis])
    return sort(a, axis)


@implements(np.argpartition)
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    a, axis = _flat(as_tracer(a), axis)
    _check_kth(kth, a.shape[axis])
    return argsort(a, axis)


def _check_kth(kth: Any, n: int) -> None:
    for k in np.asarray(unpin(kth)).ravel():
        if not -n <= k < n:
            raise ValueError(f"kth(={int(k) if k >= 0 else int(k + n)}) out of bounds ({int(n)})")


# -- statistics


def _apply(ufunc: np.ufunc, *args: Any) -> Expr:
    """A ufunc on expressions and Python numbers, in the dtypes that NumPy would choose."""
    kinds = tuple(x.dtype if isinstance(x, Expr) else type(x) for x in args)
    loop = resolve_dtypes(ufunc, kinds, None, "same_kind")
    operands = tuple(cast(x, t) if isinstance(x, Expr) else Const(x, t) for x, t in zip(args, loop, strict=False))
    return Op(ufunc.__name__, operands, loop[-1])


def _any_nan(items: Sequence[Expr]) -> Expr:
    level = [_op("isnan", e) for e in items]
    while len(level) > 1:
        level = [
            _op("logical_or", *level[k : k + 2]) if k + 1 < len(level) else level[k] for k in range(0, len(level), 2)
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
    keep = keepdims is not _MISSING and bool(keepdims)
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


def _by_numpy(function: Callable[..., Any], a: Tracer, *args: Any, **kwargs: Any) -> Tracer:
    """The result where NumPy can compute it now: known contents, or no elements."""
    result = function(placeholders(a), *args, **kwargs)
    return from_known(result, is_scalar=not isinstance(result, np.ndarray))


@implements(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = _MISSING) -> Any:
    """The mean of the one or two middle elements, in the dtype of `numpy.mean`; NaN where one is NaN."""
    a = as_tracer(a)
    axes = axes_of(axis, a.ndim)
    if (a.known is not None or a.size == 0 or a.ndim == 0) and out is None and (a.ndim or a.known is not None):
        return _by_numpy(np.median, a, axes, keepdims=keepdims is not _MISSING and bool(keepdims))
    items = elements(a, axes, "numpy.median")
    n = len(items)
    steps = median_network(n) if n % 2 else network(n)
    middle = ordered(items, steps, nan_last=False)[(n - 1) // 2 : n // 2 + 1]
    return _reduced(a, axis, keepdims, out, [_or_nan(_mean(middle), items)])


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
    items = ordered(
        elements(a, axes_of(axis, a.ndim), "numpy.nanmedian"),
        network(int(np.prod([a.shape[k] for k in axes_of(axis, a.ndim)]))),
    )
    nans = [_op("isnan", e) for e in items]
    # with k numbers the middle ones are (k - 1) // 2 and k // 2: walk k upwards, element k - 1 being the last number
    value = _mean([items[0], items[0]] if len(items) > 1 else items)
    for k in range(2, len(items) + 1):
        here = _mean(items[(k - 1) // 2 : k // 2 + 1])
        value = Op("select", (nans[k - 1], value, here), value.dtype)
    return _reduced(a, axis, keepdims, out, [value])


# -- quantiles

_PLOTTING = {
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "median_unbiased": (1 / 3.0, 1 / 3.0),
    "normal_unbiased": (3 / 8.0, 3 / 8.0),
    "interpolated_inverted_cdf": (0, 1),
}
_NEAREST: dict[str, Callable[..., Any]] = {"lower": np.floor, "higher": np.ceil, "nearest": np.around}


@implements(np.percentile)
def percentile(
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
    return _quantile(np.percentile, 100, a, q, axis, out, method, keepdims, weights)


@implements(np.quantile)
def quantile(
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
    return _quantile(np.quantile, 1, a, q, axis, out, method, keepdims, weights)


def _quantile(
    function: Callable[..., Any],
    scale: int,
    a: Any,
    q: Any,
    axis: Any,
    out: Any,
    method: str,
    keepdims: Any,
    weights: Any,
) -> Any:
    a, q = as_tracer(a), _fixed(q, function.__name__)
    name = f"numpy.{function.__name__}"
    if weights is not None:
        raise current().error(name, "weights are not compiled")
    if a.known is not None and out is None:
        return _by_numpy(function, a, q, axis, method=method, keepdims=keepdims is not _MISSING and bool(keepdims))
    weak = type(q) in (int, float)
    wanted = np.true_divide(q, 100, out=...) if scale == 100 else np.asanyarray(q)
    if wanted.size and not (wanted.min() >= 0 and wanted.max() <= 1):
        raise ValueError(
            "Percentiles must be in the range [0, 100]" if scale == 100 else "Quantiles must be in the range [0, 1]"
        )
    if wanted.ndim > 2 or wanted.size == 0 or a.size == 0:
        if wanted.ndim > 2 or a.size == 0:
            refuse(function, a, q, axis, method=method)
        raise current().error(name, "q is empty")
    items = elements(a, axes_of(axis, a.ndim), name)
    places = _virtual(len(items), wanted, method, function)
    inside = ordered(items, network(len(items)), nan_last=False)
    if np.issubdtype(places.dtype, np.integer):
        values = [inside[int(p)] for p in places.ravel()]
    else:
        gammas = _gamma(places, method)
        values = []
        for p, t in zip(places.ravel(), gammas.ravel(), strict=True):
            low, high = _neighbours(p, len(items))
            values.append(_lerp(inside[low], inside[high], float(t) if weak else t, weak))
    return _reduced(a, axis, keepdims, out, [_or_nan(v, items) for v in values], wanted.shape)


def _fixed(q: Any, name: str) -> Any:
    """The wanted quantiles: known while tracing, since they choose elements."""
    if isinstance(q, (list, tuple)):
        return np.asarray([_fixed(x, name) for x in q])
    return contents(q, f"numpy.{name}", "the quantiles") if is_tracer(q) else unpin(q)


def _virtual(n: int, q: np.ndarray[Any, Any], method: str, function: Callable[..., Any]) -> np.ndarray[Any, Any]:
    """Where the quantiles lie among `n` sorted elements: whole numbers choose one, others lie between two."""
    last = (n - 1) * q
    if method == "linear":
        return np.asarray(last)
    if method == "midpoint":
        return np.asarray(0.5 * (np.floor(last) + np.ceil(last)))
    if method in _NEAREST:
        return np.asarray(_NEAREST[method](last)).astype(np.intp)
    if method in _PLOTTING:
        alpha, beta = _PLOTTING[method]
        return np.asarray(n * q + (alpha + q * (1 - alpha - beta)) - 1)
    if method in ("inverted_cdf", "averaged_inverted_cdf", "closest_observation"):
        raise current().error(
            f"numpy.{function.__name__}",
            f"method '{method}' is not compiled",
            "use linear, lower, higher, midpoint or nearest",
        )
    refuse(function, np.zeros(1), 0.5, method=method)


def _neighbours(place: Any, n: int) -> tuple[int, int]:
    if place >= n - 1:
        return n - 1, n - 1
    low = int(np.floor(place))
    return (0, 0) if place < 0 else (low, low + 1)


def _gamma(places: np.ndarray[Any, Any], method: str) -> np.ndarray[Any, Any]:
    n = np.floor(places)
    gamma = np.asanyarray(places - n)
    return np.where(places % 1 == 0, 0.0, 0.5).astype(places.dtype) if method == "midpoint" else gamma


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
