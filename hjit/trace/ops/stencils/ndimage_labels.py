"""Statistics of the regions of a label image, as `scipy.ndimage.sum_labels` and its kin compute them.

Those of regions whose labels follow each other (``np.arange(1, n + 1)``): each pixel is counted, added up or compared
where its label is. SciPy itself does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ops.indexing.histograms import tally
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, is_tracer


def fits(arguments: dict[str, Any]) -> bool:
    """Are there labels, one for each pixel, and is the index a run of them?"""
    image, labels, index = arguments["input"], arguments["labels"], arguments["index"]
    if labels is None or index is None or not all(is_tracer(x) or isinstance(x, np.ndarray) for x in (image, labels)):
        return False
    image, labels = as_tracer(image), as_tracer(labels)
    if tuple(image.shape) != tuple(labels.shape) or not image.size or image.dtype.kind not in "iuf":
        return False
    if labels.dtype.kind not in "iu" or labels.dtype == np.uint64:
        return False
    if not is_tracer(index) and (np.ndim(index) != 1 or not np.size(index)):
        return False
    index = as_tracer(index)
    is_run = index.ndim == 1 and index.size > 0 and index.dtype.kind in "iu" and index.dtype != np.uint64
    return is_run and bool(call(np.all, call(np.diff, index.astype(np.int64)) == 1))


def _places(labels: Any, index: Any) -> tuple[Tracer, Any]:
    """Of each pixel the number of its label in the index, or that of those that are not in it: how many are."""
    labels, index = as_tracer(labels).astype(np.int64), as_tracer(index)
    n = index.shape[0]
    place: Any = labels - index[0].astype(np.int64)
    return call(np.where, (place >= 0) & (place < n), place, n), n


def _sums(image: Any, labels: Any, index: Any) -> tuple[Any, Any, Any]:
    """The places, the number of pixels and their sums; these in SciPy's order, in double precision."""
    places, n = _places(labels, index)
    return places, tally(places, n + 1), tally(places, n + 1, as_tracer(image))


def _sum(input: Any, labels: Any, index: Any) -> Any:
    return _sums(input, labels, index)[2][:-1]


def _mean(input: Any, labels: Any, index: Any) -> Any:
    _, counts, sums = _sums(input, labels, index)
    return sums[:-1] / counts[:-1].astype(np.float64)


def _variance(input: Any, labels: Any, index: Any) -> Any:
    places, counts, sums = _sums(input, labels, index)
    numbers = counts.astype(np.float64)
    distances: Any = as_tracer(input) - (sums / numbers)[places]
    return tally(places, counts.shape[0], distances * distances)[:-1] / numbers[:-1]


def _standard_deviation(input: Any, labels: Any, index: Any) -> Any:
    return np.sqrt(_variance(input, labels, index))


def _extreme(ufunc: np.ufunc, least: bool) -> Callable[..., Any]:
    """SciPy sorts: a NaN is the maximum, and the minimum where there is nothing else; of no pixels both are zero."""

    def method(input: Any, labels: Any, index: Any) -> Any:
        image: Any = as_tracer(input)
        places, n = _places(labels, index)
        dtype = image.dtype
        is_float = dtype.kind == "f"
        start = (np.inf if least else -np.inf) if is_float else (np.iinfo(dtype).max if least else np.iinfo(dtype).min)
        given = call(np.where, call(np.isnan, image), dtype.type(start), image) if is_float and least else image
        found: Any = call(np.full, n + 1, start, dtype)
        ufunc.at(found, places, given)
        if is_float and least:
            numbers: Any = tally(places, n + 1, None, ~call(np.isnan, image))
            found = call(np.where, numbers == 0, dtype.type(np.nan), found)
        counts: Any = tally(places, n + 1)
        return call(np.where, counts == 0, dtype.type(0), found)[:-1]

    return method


STATISTICS: dict[str, Callable[..., Any]] = {
    "sum": _sum,
    "sum_labels": _sum,
    "mean": _mean,
    "variance": _variance,
    "standard_deviation": _standard_deviation,
    "minimum": _extreme(np.minimum, True),
    "maximum": _extreme(np.maximum, False),
}
