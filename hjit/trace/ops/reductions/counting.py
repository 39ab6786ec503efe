"""Order statistics of all elements of an image, by counting.

Of small integers each value is counted: a running sum of the counts says how many elements are at most a value, and the
element of a rank is the number of values for which these are too few. Of other numbers the digits of their bits are
(`selection`). Ranks are computed, so that other quantiles and other sizes need no new kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ops.arguments import count
from hjit.trace.ops.exactness import has_numpys_bits
from hjit.trace.ops.indexing.histograms import tally, values_of
from hjit.trace.ops.layout import copy_order
from hjit.trace.ops.limits import MAX_RANKS, MIN_COUNTED, MIN_DIGITS_COUNTED
from hjit.trace.ops.reductions.selection import elements_of, keys_of, selected
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, from_stage, is_tracer, python_float, size_number
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host

_BYTE = 256  # values of a dtype that are few beside the pixels of any image


def is_counted(a: Tracer, ranks: int = 1) -> bool:
    """Are so many statistics of all elements computed by counting?"""
    values = values_of(a.dtype)
    if values:
        return values <= _BYTE or count(a.shape) >= MIN_COUNTED
    return ranks <= MAX_RANKS and count(a.shape) >= MIN_DIGITS_COUNTED and has_numpys_bits(a)


def _from(a: Tracer, ranks: Any, kept: Any) -> tuple[Tracer, Tracer]:
    """The elements that stand at `ranks` when those that are `kept` are sorted, and the next ones; NaN behind numbers.

    What is next to the last element has no meaning.
    """
    order = copy_order(a)
    a, kept = call(np.transpose, a, order), None if kept is None else call(np.transpose, kept, order)
    if values_of(a.dtype):
        low, high = _at_ranks(a, call(np.stack, [ranks, ranks + 1]), kept)
        return low, high
    keys = keys_of(a)
    if kept is not None:
        keys = call(np.where, kept, keys, np.iinfo(keys.dtype).max)
    low, high = selected(keys, ranks)
    return elements_of(low, a.dtype), elements_of(high, a.dtype)


def _at_ranks(a: Tracer, ranks: Tracer, kept: Any) -> Tracer:
    """The elements of small integers that stand at `ranks` when those that are `kept` are sorted."""
    lowest = 0 if a.dtype.kind != "i" else int(np.iinfo(a.dtype).min)
    values = values_of(a.dtype)
    index: Any = a.astype(np.intp)
    index = index - lowest
    if kept is not None:
        index = call(np.where, kept, index, values)
    counts = tally(index, values + (kept is not None))[:values]
    fewer = np.less_equal(call(np.cumsum, counts), ranks[..., None])
    found = call(np.sum, fewer, axis=-1, dtype=np.intp)
    result: Tracer = (found + lowest).astype(a.dtype)
    return result


def counted_median(a: Tracer, kept: Any = None) -> Tracer:
    """The median of all elements, or of those that are `kept`."""
    n = _length(a, np.intp, kept)
    low, high = (x[0] for x in _from(a, call(np.stack, [(n - 1) // 2]), kept))
    dtype = np.dtype(np.float64) if a.dtype.kind != "f" else a.dtype
    work = np.dtype(np.float32) if dtype == np.float16 else dtype
    mean = ((low.astype(work) + high.astype(work)) / work.type(2)).astype(dtype)
    found = call(np.where, n % 2 == 0, mean, low.astype(dtype))
    return _scalar(_or_nan(found, a, kept))


def are_numbers(a: Tracer) -> Any:
    """Which elements are not NaN? None: all are."""
    return ~call(np.isnan, a) if a.dtype.kind == "f" else None


def _length(a: Tracer, dtype: Any, kept: Any) -> Any:
    """The number of elements that are kept; where there is none, NumPy is asked, which warns."""
    if kept is None:
        return size_number(a.size, dtype)
    number = call(np.sum, kept, dtype=np.intp)
    current().check(number == 0)
    return number.astype(dtype)


def _or_nan(found: Any, a: Tracer, kept: Any) -> Any:
    """A statistic of the elements that are kept, or NaN where one of them is."""
    if a.dtype.kind != "f":
        return found
    nan = call(np.isnan, a)
    return call(np.where, call(np.any, nan if kept is None else nan & kept), found.dtype.type(np.nan), found)


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


def counted_quantile(a: Tracer, q: Any, method: str, hundred: bool, kept: Any = None) -> Tracer:
    """A quantile of all elements, or of those that are `kept`, or several; `hundred`: in percent."""
    weak = is_python_number(q)
    wanted = _wanted(as_tracer(q), hundred)
    n = _length(a, wanted.dtype, kept)
    last = n - wanted.dtype.type(1)
    place = METHODS[method](n, last, wanted)
    if place.dtype.kind != "f":
        found = _at(a, place, kept)[0]
    else:
        previous = np.floor(place)
        is_between = (place >= 0) & (place < last)
        previous = call(np.where, place < 0, 0.0, previous)
        low, following = _at(a, call(np.where, place >= last, last, previous), kept)
        gamma = fraction(place, call(np.where, place >= last, -1.0, previous), method)
        high = call(np.where, is_between, following, low)
        found = _between(low, high, python_float(gamma) if weak else gamma)
    found = _or_nan(found, a, kept)
    return found if wanted.ndim else _scalar(found)


def _at(a: Tracer, places: Any, kept: Any) -> tuple[Tracer, Tracer]:
    """The elements at places of any shape, and the next ones; see `_from`."""
    low, high = _from(a, places.astype(np.intp).reshape(-1), kept)
    return low.reshape(places.shape), high.reshape(places.shape)


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
