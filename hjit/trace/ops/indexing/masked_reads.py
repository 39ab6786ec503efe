"""Functions of arrays read under a boolean mask: ``a[mask].mean()``, whose length depends on the image's values.

A reduction of such an array is one of the whole array that leaves out what the mask does, and so are medians and
quantiles of many elements; what is computed element by element is computed for all of it. Other functions whose results
have a known shape are extern calls, which read under the mask themselves.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ops.by_numpy import by_numpy
from hjit.trace.ops.indexing.histograms import counts_of
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.masked import MaskedRead, first_masked_read, same_values
from hjit.trace.tracing.arrays.tracer import as_tracer, call
from hjit.trace.tracing.dispatch import functions
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value

_MISSING = np._NoValue
_EXTREMES = {np.min: "minimum", np.amin: "minimum", np.max: "maximum", np.amax: "maximum"}
_REDUCTIONS = frozenset({np.sum, np.mean, np.any, np.all, np.var, np.std, np.prod, *_EXTREMES})
_ELEMENTWISE = frozenset({np.clip, np.where, np.round, np.around, np.nan_to_num, np.isclose, np.copy, np.real, np.fix})
_ELEMENTWISE |= {np.angle, np.iscomplex, np.isreal, np.isposinf, np.isneginf}
_ORDER_STATISTICS = frozenset({np.median, np.nanmedian, np.percentile, np.quantile, np.nanpercentile, np.nanquantile})
_OF_KNOWN_SHAPE = _ORDER_STATISTICS | frozenset(
    getattr(np, name)
    for name in (
        "average histogram argmax argmin nanargmax "
        "nanargmin dot vdot inner corrcoef cov polyfit nanmean nansum nanmin nanmax nanstd nanvar trapezoid"
    ).split()
)


@provides
def knows_masked(function: Any) -> bool:
    """Is this function computed for arrays read under a mask?"""
    try:
        return any(function in some for some in (_REDUCTIONS, _ELEMENTWISE, _OF_KNOWN_SHAPE, _OTHERS))
    except TypeError:  # not hashable
        return False


@provides
def masked_call(function: Any, args: Any, kwargs: Any) -> Any:
    """A function that has a `MaskedRead` among its arguments.

    Raises:
        TraceError: its result's shape depends on values, or it needs those.
    """
    first = first_masked_read(args, kwargs)
    assert first is not None
    name = f"numpy.{getattr(function, '__name__', function)}"
    if not knows_masked(function):
        raise first.error(name)
    if function in _OTHERS:
        found = _OTHERS[function](*args, **kwargs)
        if found is None:
            raise first.error(name)
        return found
    if function in _ELEMENTWISE and not (function is np.where and len(args) == 1):
        values = [first.whole(x) for x in args], {k: first.whole(x) for k, x in kwargs.items()}
        return MaskedRead(call(function, *values[0], **values[1]), first.mask)
    if function in _ORDER_STATISTICS and args[:1] == (first,):
        arguments = inspect.signature(functions()[function]).bind(*args, **kwargs).arguments
        counted = forward.counted_of_read(function, first.full, first.mask, arguments)
        if counted is not None:
            return counted
    if function in _OF_KNOWN_SHAPE:
        return _by_numpy(function, args, kwargs)
    if function not in _REDUCTIONS or args[:1] != (first,):
        raise first.error(name)
    return _reduced(function, first, args, kwargs)


def _reduced(function: Any, a: MaskedRead, args: Any, kwargs: Any) -> Any:
    """A reduction, with `where`."""
    bound = inspect.signature(functions()[function]).bind(*args, **kwargs).arguments
    options = {k: x for k, x in bound.items() if k != "a" and x is not _MISSING and x is not None}
    axis, keepdims = options.pop("axis", None), bool(options.pop("keepdims", False))
    if {"out", "where", "initial"} & set(options):
        raise a.error(f"numpy.{function.__name__} with {', '.join(options)}")
    lead, axes = a.mask.ndim, _axes(axis, a)
    if 0 not in axes:
        whole = call(function, a.full, axis=tuple(k + lead - 1 for k in axes), keepdims=keepdims, **options)
        return MaskedRead(whole, a.mask)
    kept = tuple(n for k, n in enumerate(a.full.shape[lead:], 1) if k not in axes)
    places = (*range(lead), *(k + lead - 1 for k in axes if k))
    mask = call(np.broadcast_to, a.mask.reshape((*a.mask.shape, *(1,) * (a.ndim - 1))), a.full.shape)
    if function in _EXTREMES:
        name = _EXTREMES[function]
        if not call(np.any, a.mask):  # a decision: what NumPy refuses is refused at every call
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
        result = call(function, call(np.where, mask, a.full, _worst(a.dtype, name == "maximum")), axis=places)
    else:
        result = call(function, a.full, axis=places, where=mask, **options)
    if keepdims:
        sizes = iter(kept)
        return result.reshape(tuple(1 if k in axes else next(sizes) for k in range(a.ndim)))
    return result


def _axes(axis: Any, a: MaskedRead) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(a.ndim))
    return tuple(sorted(np.lib.array_utils.normalize_axis_tuple(axis, a.ndim)))


def _worst(dtype: np.dtype[Any], for_max: bool) -> Any:
    if dtype.kind == "f":
        return dtype.type(-np.inf if for_max else np.inf)
    if dtype.kind == "b":
        return np.bool_(not for_max)
    info = np.iinfo(dtype)
    return dtype.type(info.min if for_max else info.max)


def _counted(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    """`numpy.bincount`."""
    read: MaskedRead = x if type(x) is MaskedRead else weights
    if not all(type(y) is MaskedRead for y in (x, weights) if y is not None):
        raise read.error("numpy.bincount")
    if any(y.ndim > 1 for y in (x, weights) if y is not None):
        raise ValueError("object too deep for desired array")
    w = None if weights is None else read.whole(weights).reshape(-1)
    return counts_of(read.whole(x).reshape(-1), w, minlength, read.mask.reshape(-1))


def _ptp(a: Any, *args: Any, **kwargs: Any) -> Any:
    if type(a) is not MaskedRead:
        return None
    high, low = (masked_call(f, (a, *args), kwargs) for f in (np.max, np.min))
    return np.subtract(high, low)


def _count_nonzero(a: Any, *args: Any, **kwargs: Any) -> Any:
    if type(a) is not MaskedRead:
        return None
    truth = MaskedRead(a.full.astype(bool), a.mask)
    return _reduced(np.sum, truth, (truth, *args), kwargs)


def _flattened(a: Any, **kwargs: Any) -> Any:
    return a if type(a) is MaskedRead and a.ndim == 1 and not kwargs else None


def _of_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that goes element by element through its first argument, and takes the others whole."""

    def method(x: Any, *args: Any, **kwargs: Any) -> Any:
        if type(x) is not MaskedRead:
            return _by_numpy(function, (x, *args), kwargs)
        return MaskedRead(call(function, x.full, *args, **kwargs), x.mask)

    return method


def _cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """`numpy.cumsum` of an array with one axis, of which the mask has one, too: what is left out adds nothing."""
    if type(a) is not MaskedRead or a.full.ndim != 1 or static_value(axis) not in (None, 0, -1) or out is not None:
        return None
    nothing = -0.0 if a.dtype.kind == "f" else 0  # which changes no zero
    summed = call(np.where, a.mask, a.full, a.dtype.type(nothing))
    return MaskedRead(call(np.cumsum, summed, dtype=dtype), a.mask, a.read)


def _searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
    """`numpy.searchsorted`: of arrays in what is read, or the other way round."""
    if type(v) is not MaskedRead:
        return None if sorter is not None else _by_numpy(np.searchsorted, (a, v), {"side": side})
    if type(a) is MaskedRead:
        return None
    return MaskedRead(call(np.searchsorted, a, v.full, side, sorter), v.mask, v.read)


def _take(a: Any, indices: Any, axis: Any = None, **kwargs: Any) -> Any:
    """`numpy.take` by indices that are read under a mask."""
    if type(a) is MaskedRead or type(indices) is not MaskedRead or kwargs or static_value(axis) not in (None, 0):
        return None
    a = as_tracer(a)
    return forward.item_by_reads(a if axis is not None else a.reshape(-1), indices)


def _stacked(arrays: Any, axis: Any = 0, **kwargs: Any) -> Any:
    """`numpy.stack` of arrays with one axis that becomes the first, read under one mask."""
    reads = list(arrays)
    if static_value(axis) not in (1, -1) or kwargs or not all(type(x) is MaskedRead and x.ndim == 1 for x in reads):
        return None
    if not all(same_values(x.mask, reads[0].mask) for x in reads):
        return None
    return MaskedRead(call(np.stack, [x.full for x in reads], axis=-1), reads[0].mask)


def _transposed(a: Any, axes: Any = None) -> Any:
    """`numpy.transpose`: of an array with one axis, or of a tuple of arrays, which become columns."""
    if type(a) is MaskedRead:
        return a if a.ndim == 1 else None
    found = None if axes is not None else _stacked(a, axis=1)
    if found is not None:
        found.is_fortran = True
    return found


def _unique(
    ar: Any,
    return_index: Any = False,
    return_inverse: Any = False,
    return_counts: Any = False,
    axis: Any = None,
    **kwargs: Any,
) -> Any:
    wanted = [bool(static_value(x)) for x in (return_index, return_inverse, return_counts)]
    return None if axis is not None or type(ar) is not MaskedRead else forward.unique_of_read(ar, *wanted)


def _asarray(a: Any, dtype: Any = None, order: Any = None, **kwargs: Any) -> Any:
    if type(a) is not MaskedRead or kwargs:
        return None
    return a if dtype is None or np.dtype(dtype) == a.dtype else a.astype(dtype)


def _by_numpy(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """NumPy's own function on the elements that are read."""
    names, every = tuple(kwargs), [*args, *kwargs.values()]
    is_read = [type(x) is MaskedRead for x in every]
    if any(type(y) is MaskedRead for x in every if type(x) in (list, tuple) for y in x):
        raise current().error(f"numpy.{function.__name__}", "a list of arrays read under a mask", "use np.where")

    @functools.wraps(function)
    def real(reads: Any, *values: Any) -> Any:
        left, right = iter(reads), iter(values)
        given = [_elements(*next(left)) if read else next(right) for read in is_read]
        return function(*given[: len(args)], **dict(zip(names, given[len(args) :], strict=True)))

    reads = [(x.full, x.mask) for x in every if type(x) is MaskedRead]
    return by_numpy(real, reads, *(x for x in every if type(x) is not MaskedRead))


def _elements(full: Any, mask: Any) -> Any:
    return full[mask]


_OTHERS: dict[Any, Callable[..., Any]] = {
    np.asarray: _asarray,
    np.asanyarray: _asarray,
    np.array: lambda object, dtype=None, **kwargs: None if kwargs else _asarray(object.copy(), dtype),
    **{f: _of_first(f) for f in (np.interp, np.isin, np.digitize)},
    np.ravel: _flattened,
    np.atleast_1d: lambda *arrays: _flattened(*arrays) if len(arrays) == 1 else None,
    np.count_nonzero: _count_nonzero,
    np.ptp: _ptp,
    np.bincount: _counted,
    np.cumsum: _cumsum,
    np.searchsorted: _searchsorted,
    np.take: _take,
    np.stack: _stacked,
    np.column_stack: lambda tup: _stacked(tup, axis=1),
    np.transpose: _transposed,
    np.unique: _unique,
}
