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
from hjit.trace.tracing.arrays.masked import MaskedRead, same_values
from hjit.trace.tracing.arrays.tracer import call
from hjit.trace.tracing.dispatch import functions, hook, provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host, static_value

_MISSING = np._NoValue
_EXTREMES = {np.min: "minimum", np.amin: "minimum", np.max: "maximum", np.amax: "maximum"}
_REDUCTIONS = frozenset({np.sum, np.mean, np.any, np.all, np.var, np.std, np.prod, *_EXTREMES})
_ELEMENTWISE = frozenset({np.clip, np.where, np.round, np.around, np.nan_to_num, np.isclose, np.copy, np.real, np.fix})
_ELEMENTWISE |= {np.angle, np.iscomplex, np.isreal, np.isposinf, np.isneginf, np.isin}
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
        known = (_REDUCTIONS, _ELEMENTWISE, _OF_KNOWN_SHAPE, (np.count_nonzero, np.ptp, np.bincount))
        return any(function in some for some in known)
    except TypeError:  # not hashable
        return False


@provides
def masked_call(function: Any, args: Any, kwargs: Any) -> Any:
    """A function that has a `MaskedRead` among its arguments.

    Raises:
        TraceError: its result's shape depends on values, or it needs those.
    """
    first: MaskedRead = next(x for x in (*args, *kwargs.values()) if type(x) is MaskedRead)
    name = f"numpy.{getattr(function, '__name__', function)}"
    if not knows_masked(function):
        raise first.error(name)
    if function in _ELEMENTWISE:
        values = [first.whole(x) for x in args], {k: first.whole(x) for k, x in kwargs.items()}
        return MaskedRead(call(function, *values[0], **values[1]), first.mask)
    if function in _ORDER_STATISTICS and args[:1] == (first,):
        arguments = inspect.signature(functions()[function]).bind(*args, **kwargs).arguments
        counted = hook("counted_of_read")(function, first.full, first.mask, arguments)
        if counted is not None:
            return counted
    if function in _OF_KNOWN_SHAPE:
        return _by_numpy(function, args, kwargs)
    if function is np.bincount:
        return _counted(*args, **kwargs)
    if args[:1] != (first,):
        raise first.error(name)
    if function is np.ptp:
        high, low = (masked_call(f, args, kwargs) for f in (np.max, np.min))
        return np.subtract(high, low)
    if function is np.count_nonzero:
        function, first = np.sum, MaskedRead(first.full.astype(bool), first.mask)
        args = (first, *args[1:])
    return _reduced(function, first, args, kwargs)


@provides
def masked_item(a: MaskedRead, key: Any) -> Any:
    """The element at a known place, counted from either end, or those of a list of places; what a mask keeps of them.
    None: anything else."""
    if type(key) is MaskedRead and key.dtype == bool and key.ndim == 1:
        mask: Any = a.mask & key.full if same_values(a.mask, key.mask) else None
        return None if mask is None else MaskedRead(a.full, mask, a.read)
    first, *rest = key if type(key) is tuple else (key,)
    if type(first) in (list, tuple) and first and all(map(_is_place, first)):
        found: Any = call(np.stack, [_element(a, int(static_value(k))) for k in first])
        return found[(slice(None), *rest)] if rest else found
    if not _is_place(first):
        return None
    found = _element(a, int(static_value(first)))
    return found[tuple(rest)] if rest else found


def _is_place(x: Any) -> bool:
    value = x.value if is_host(x) else x
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _element(a: MaskedRead, k: int) -> Any:
    """The element that `k` others come before or, of a negative one, ``-1 - k`` after."""
    mask: Any = a.mask.reshape(-1)
    before = k if k >= 0 else -1 - k
    if not mask.size:
        raise IndexError(f"index {k} is out of bounds for axis 0 with size 0")
    current().check(call(np.count_nonzero, mask) <= before)
    ahead = mask if k >= 0 else mask[::-1]
    place = call(np.argmax, ahead if not before else call(np.cumsum, ahead) > before)
    found = a.full.reshape((-1, *a.full.shape[a.mask.ndim :]))
    return found[place if k >= 0 else mask.size - 1 - place]


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
