"""Order statistics of many small integers, by counting how often each value occurs.

One pass over the image counts, a running sum of the counts says how many elements are at most a value, and the element
of a rank is the number of values for which these are too few. Ranks are computed, so that other quantiles and other
sizes need no new kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hjit.trace.ops.arguments import count
from hjit.trace.ops.indexing.histograms import tally, values_of
from hjit.trace.ops.layout import copy_order
from hjit.trace.ops.limits import MIN_COUNTED
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, from_stage, is_tracer, python_float, size_number
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host

_BYTE = 256  # values of a dtype that are few beside the pixels of any image


def is_counted(a: Tracer, axes: Sequence[int]) -> bool:
    """Is a statistic over `axes` computed by counting?"""
    values = values_of(a.dtype)
    return len(axes) == a.ndim and values > 0 and (values <= _BYTE or count(a.shape) >= MIN_COUNTED)


def _at_ranks(a: Tracer, ranks: Tracer) -> Tracer:
    """The elements that stand at `ranks` when all of `a` are sorted."""
    lowest = 0 if a.dtype.kind != "i" else int(np.iinfo(a.dtype).min)
    index = call(np.transpose, a, copy_order(a)).astype(np.intp)
    counts = tally(index - lowest if lowest else index, values_of(a.dtype))
    fewer = np.less_equal(call(np.cumsum, counts), ranks[..., None])
    found = call(np.sum, fewer, axis=-1, dtype=np.intp)
    result: Tracer = (found + lowest).astype(a.dtype)
    return result


def counted_median(a: Tracer) -> Tracer:
    """The median of all elements."""
    n = a.size
    ranks = call(np.stack, [size_number(k, np.intp) for k in ((n - 1) // 2, n // 2)])
    middle = _at_ranks(a, ranks).astype(np.float64)
    return _scalar((middle[0] + middle[1]) / 2)


def _scalar(value: Any) -> Tracer:
    """A value without axes as one of NumPy's scalars."""
    result: Tracer = from_stage(value.load(()), (), value.dtype, is_scalar=True)
    return result


# -- quantiles: where one lies among n sorted elements, as NumPy computes it from n, n - 1 and the quantile. Whole
# numbers choose an element, others lie between two.


def _plotting(alpha: float, beta: float) -> Callable[[Any, Any, Any], Any]:
    return lambda n, last, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


def _inverted_cdf(n: Any, last: Any, q: Any) -> Any:
    return _next_or_previous((n * q) - 1, lambda gamma, index: gamma == 0)


def _closest_observation(n: Any, last: Any, q: Any) -> Any:
    return _next_or_previous((n * q) - 1 - 0.5, lambda gamma, index: (gamma == 0) & (np.floor(index) % 2 == 1))


def _next_or_previous(index: Any, is_previous: Callable[[Any, Any], Any]) -> Any:
    previous = np.floor(index)
    found = np.where(is_previous(index - previous, index), previous, previous + 1).astype(np.intp)
    return np.maximum(found, 0)


METHODS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "linear": lambda n, last, q: last * q,
    "lower": lambda n, last, q: np.floor(last * q).astype(np.intp),
    "higher": lambda n, last, q: np.ceil(last * q).astype(np.intp),
    "nearest": lambda n, last, q: np.around(last * q).astype(np.intp),
    "midpoint": lambda n, last, q: 0.5 * (np.floor(last * q) + np.ceil(last * q)),
    "inverted_cdf": _inverted_cdf,
    "averaged_inverted_cdf": lambda n, last, q: (n * q) - 1,
    "closest_observation": _closest_observation,
    "interpolated_inverted_cdf": _plotting(0, 1),
    "hazen": _plotting(0.5, 0.5),
    "weibull": _plotting(0, 0),
    "median_unbiased": _plotting(1 / 3.0, 1 / 3.0),
    "normal_unbiased": _plotting(3 / 8.0, 3 / 8.0),
}

CHOOSING = frozenset("lower higher nearest inverted_cdf closest_observation".split())  # methods that do not interpolate


def fraction(place: Any, previous: Any, method: str) -> Any:
    """How far a place lies behind the element before it, as NumPy interpolates by `method`."""
    gamma = place - previous
    if method == "midpoint":
        return np.where(place % 1 == 0, 0.0, 0.5).astype(place.dtype)
    if method == "averaged_inverted_cdf":
        return np.where(gamma == 0, 0.5, 1.0).astype(place.dtype)
    return gamma


def counted_quantile(a: Tracer, q: Any, method: str, hundred: bool) -> Tracer:
    """A quantile of all elements, or several; `hundred`: in percent."""
    weak = is_python_number(q)
    wanted = _wanted(as_tracer(q), hundred)
    n = a.size
    place = METHODS[method](size_number(n, wanted.dtype), size_number(n - 1, wanted.dtype), wanted)
    if place.dtype.kind != "f":
        found = _at_ranks(a, place)
        return found if wanted.ndim else _scalar(found)
    previous, last = np.floor(place), size_number(n - 1, place.dtype)
    ends = [call(np.where, place >= last, last, call(np.where, place < 0, 0.0, x)) for x in (previous, previous + 1)]
    low, high = _at_ranks(a, call(np.stack, ends).astype(np.intp))
    gamma = fraction(place, previous, method)
    found = _between(low, high, python_float(gamma) if weak else gamma)
    return found if wanted.ndim else _scalar(found)


def is_python_number(q: Any) -> bool:
    """Is it an int or a float of Python, which takes the dtype of arrays, rather than one of NumPy's numbers?"""
    return q.weak if is_tracer(q) else type(q.value if is_host(q) else q) in (int, float)


def _wanted(q: Tracer, hundred: bool) -> Tracer:
    """The quantiles; others than NumPy takes are refused by it, now or at a later call."""
    wanted: Any = np.true_divide(q, 100) if hundred else q
    current().check(call(np.any, ~((wanted >= 0) & (wanted <= 1))))
    return wanted  # type: ignore[no-any-return]


def _between(low: Any, high: Any, t: Any) -> Tracer:
    """NumPy's interpolation, from the nearer end."""
    step = np.subtract(high, low)
    value: Any = np.add(low, np.multiply(step, t))
    left = np.subtract(high, np.multiply(step, 1 - t), dtype=value.dtype, casting="unsafe")
    result: Tracer = call(np.where, t >= 0.5, left, value)
    return result
