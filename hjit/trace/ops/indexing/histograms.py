"""Counting: bincount, histogram and their kin. A count is an update whose target is the bin of each element."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Load, Op, cast
from hjit.trace.ir.graph import Definition
from hjit.trace.ir.poly import Indirect, poly
from hjit.trace.ops.by_numpy import NumpyCall
from hjit.trace.ops.indexing.gathers import lookup
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.tracer import (
    Tracer,
    as_tracer,
    as_value,
    call,
    from_known,
    from_stage,
    has_tracer,
    is_tracer,
)
from hjit.trace.tracing.dispatch import implements, source_of
from hjit.trace.tracing.externs.calls import extern_call
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value

MAX_DIMENSIONS = 8  # of samples whose coordinates are columns of one array


def values_of(dtype: np.dtype[Any]) -> int:
    """The number of values that an integer dtype has; 0 where they are too many to be counted."""
    return 2 if dtype.kind == "b" else 1 << 8 * dtype.itemsize if dtype.kind in "iu" and dtype.itemsize <= 2 else 0


def tally(
    index: Tracer, length: int, weights: Tracer | None = None, keep: Tracer | None = None, *, reorders: bool = False
) -> Tracer:
    """How often each number below `length` occurs in `index`, or the sum of its weights; all must be in range.

    Args:
        reorders: does NumPy add the weights in another order than theirs?
    """
    rec = current()
    dtype = np.dtype(np.intp) if weights is None else np.dtype(np.float64)
    element: Expr = Const(1, dtype) if weights is None else cast(weights.load(), dtype)
    if keep is not None:
        element = Op("select", (keep.load(), element, Const(0, dtype)), dtype)
    target = (poly(Indirect(cast(index.load(), np.int64), None)),)
    name = rec.reserve("counts")
    update = Definition(
        (),
        rec.polys(index.shape),
        target,
        Op("add", (Load(name, target, dtype), element), dtype),
        "add" if weights is None else "sequential",
        reorders=reorders,
    )
    return from_stage(Const(0, dtype), (length,), dtype, (update,), reserved=name)


@implements(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Tracer:
    """Where `minlength` is not enough, the length is the largest value plus one, which is decided now and guarded."""
    return counts_of(as_tracer(x), None if weights is None else as_tracer(weights), minlength)


def counts_of(x: Tracer, w: Tracer | None, minlength: Any, keep: Tracer | None = None) -> Tracer:
    """`numpy.bincount`, of the elements that `keep` says."""
    minlength = int(static_value(minlength))
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    if x.ndim != 1:
        raise ValueError(
            "object too deep for desired array" if x.ndim else "object of too small depth for desired array"
        )
    if not np.can_cast(x.dtype, np.intp, "safe"):
        raise TypeError(
            f"Cannot cast array data from {x.dtype!r} to {np.dtype(np.intp)!r} according to the rule 'safe'"
        )
    if w is not None and tuple(w.shape) != tuple(x.shape):
        raise ValueError("The weights and list don't have the same length.")
    if keep is None and x.known is not None and (w is None or w.known is not None):
        return from_known(np.bincount(x.known, None if w is None else w.known, minlength))
    if not x.size:
        return from_known(np.zeros(minlength, np.intp if w is None else np.float64))
    if keep is not None:
        x = call(np.where, keep, x, x.dtype.type(0))
    if x.dtype.kind == "i" and bool(call(np.any, np.less(x, 0))):
        raise ValueError("'list' argument must have no negative elements")
    enough = minlength > (1 if x.dtype == bool else np.iinfo(x.dtype).max)
    if not enough and (not minlength or not bool(call(np.all, np.less(x, minlength)))):
        is_any = keep is None or bool(call(np.any, keep))
        minlength = max(minlength, int(as_value(call(np.max, x))) + 1 if is_any else 0)
    return tally(x, minlength, w, keep)


def _data(a: Any, weights: Any) -> tuple[Tracer, Tracer | None]:
    a = as_tracer(a)
    if a.dtype == bool:
        warnings.warn(f"Converting input from {a.dtype} to {np.uint8} for compatibility.", RuntimeWarning, stacklevel=3)
        a = a.astype(np.uint8)
    w = None if weights is None else as_tracer(weights)
    if w is not None and tuple(w.shape) != tuple(a.shape):
        raise ValueError("weights should have the same shape as a.")
    return a.reshape(-1), None if w is None else w.reshape(-1)


def _edges(a: Tracer, bins: Any, range_: Any) -> tuple[Tracer, tuple[Any, Any, int] | None]:
    """NumPy's edges, and of those at equal distances the outer ones and the number of bins.

    Where the image's values give the range, they are computed at each call.
    """
    bins = bins.known if is_tracer(bins) else static_value(bins)
    if isinstance(bins, str):
        raise current().error(
            "numpy.histogram",
            f"bins={bins!r} chooses the number of bins by the image's values",
            "give a number of bins",
        )
    found = _computed_edges(a, bins, range_)
    if found is not None:
        return found
    numbers, uniform = _known_edges(a, bins, range_)
    return from_known(numbers), uniform


def _computed_edges(a: Tracer, bins: Any, range_: Any) -> tuple[Tracer, tuple[Tracer, Tracer, int]] | None:
    """The edges between two values of the image; None where they are known now, or NumPy does not take them as they
    are: an empty range, one that is not finite, one that has fewer numbers than bins. One decision tells."""
    if np.ndim(bins) or not isinstance(bins, (int, np.integer)) or bins < 1 or not a.size:
        return None
    first, last = (call(np.min, a), call(np.max, a)) if range_ is None else range_
    if not all(is_tracer(x) and x.known is None and x.ndim == 0 and x.dtype.kind in "iuf" for x in (first, last)):
        return None
    dtype = np.result_type(first.dtype, last.dtype, a.dtype)
    dtype = np.result_type(dtype, float) if dtype.kind in "iu" else dtype
    edges: Any = call(np.linspace, first, last, int(bins) + 1, dtype=dtype)
    is_usable = call(np.isfinite, first) & call(np.isfinite, last) & (first < last)
    if bool(is_usable & call(np.all, edges[:-1] < edges[1:])):
        return edges, (first, last, int(bins))
    return None


def _known_edges(a: Tracer, bins: Any, range_: Any) -> tuple[np.ndarray[Any, Any], tuple[Any, Any, int] | None]:
    """NumPy's own, which depend on the dtype and, where no range is given, on the extremes, which are decided now."""
    if range_ is not None:
        range_ = tuple(as_value(r) if is_tracer(r) else static_value(r) for r in range_)
    counted = not np.ndim(bins) and range_ is None and a.size
    extremes = [as_value(call(np.min, a)), as_value(call(np.max, a))] if counted else [0] * min(int(a.size), 1)
    return np.lib._histograms_impl._get_bin_edges(np.array(extremes, a.dtype), bins, range_, None)  # type: ignore[attr-defined,no-any-return]


def _uniform(a: Tracer, edges: Tracer, uniform: tuple[Any, Any, int]) -> tuple[Tracer, Tracer]:
    """The bin of each element, and which are in range: NumPy's computation, corrections by the edges included."""
    first, last, n = uniform
    keep: Any = np.logical_and(np.greater_equal(a, first), np.less_equal(a, last))
    values: Any = a.astype(edges.dtype, copy=False)
    width = _width(first, last)
    scaled = np.subtract(values, first, dtype=np.result_type(edges.dtype, first)) / width * n
    index = call(np.where, keep, scaled.astype(np.intp), 0)
    index = index - (index == n)
    index = index - (keep & (values < lookup(edges, index)))
    return index + (keep & (values >= lookup(edges, index + 1)) & (index != n - 1)), keep


def _width(first: Any, last: Any) -> Any:
    """Of a range; of whole numbers it is unsigned, so that it does not overflow."""
    if not is_tracer(first):
        return np.lib._histograms_impl._unsigned_subtract(last, first)  # type: ignore[attr-defined]
    dtype = np.result_type(first.dtype, last.dtype)
    wide = np.dtype(f"u{dtype.itemsize}") if dtype.kind == "i" else dtype
    return last.astype(dtype, copy=False).astype(wide) - first.astype(dtype, copy=False).astype(wide)


def _between(a: Tracer, edges: Tracer) -> tuple[Tracer, Tracer]:
    """The bin of each element, and which are in range, for edges at any distances."""
    n = edges.shape[0] - 1
    index = call(np.searchsorted, edges[:-1], a, side="right") - 1
    keep = np.logical_and(index >= 0, np.less_equal(a, edges[n]))
    return call(np.clip, index, 0, n - 1), keep


def _weights_between(a: Any, edges: Any, weights: Any) -> Any:
    """NumPy's weights in bins of any widths: differences of a cumulative sum, whose errors a sum of each bin lacks."""
    return np.histogram(a, edges, weights=weights)[0]


@implements(np.histogram)
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Tracer, Tracer]:
    a, w = _data(a, weights)
    known = not has_tracer(bins) or not is_tracer(bins) or bins.known is not None
    if known:
        edges, uniform = _edges(a, bins, range)
    else:
        edges, uniform = as_tracer(bins), None
        if edges.ndim != 1:
            raise ValueError("`bins` must be 1d, when an array")
        if bool(call(np.any, edges[:-1] > edges[1:])):
            raise ValueError("`bins` must increase monotonically, when an array")
    if w is not None and w.dtype.kind in "fc" and uniform is None and not current().loops:
        weigh = NumpyCall(_weights_between, (False, False, False), {}, None)
        counts = extern_call("numpy.histogram", weigh, [a, edges, w], {})
    else:
        index, keep = _uniform(a, edges, uniform) if uniform is not None else _between(a, edges)
        # NumPy adds up blocks of weights
        counts = tally(index, edges.shape[0] - 1, w, keep, reorders=w is not None)
    if w is not None:
        counts = counts.astype(w.dtype, copy=False)
    if density:
        widths = call(np.diff, edges).astype(np.float64)
        return counts / widths / counts.sum(), edges
    return counts, edges


@implements(np.histogram_bin_edges)
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Tracer:
    a, _ = _data(a, weights)
    return _edges(a, bins, range)[0]


# -- of several dimensions


@implements(np.histogramdd)
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> tuple[Tracer, list[Tracer]]:
    """The bin of a value is computed from it where all are equally wide, and searched otherwise.

    NumPy's own source, which searches all of them, is traced where it may refuse something.
    """
    columns = _columns(sample)
    edges = None if columns is None else _edges_of(columns, bins, range)
    w = None if weights is None else as_tracer(weights)
    if columns is None or edges is None or (w is not None and tuple(w.shape) != tuple(columns[0].shape)):
        found: tuple[Tracer, list[Tracer]] = forward.clone(source_of(np.histogramdd))(
            sample, bins, range, density, weights
        )
        return found
    index, keep = _bins(columns[0], *edges[0])
    for x, (e, is_uniform) in zip(columns[1:], edges[1:], strict=True):
        here, inside = _bins(x, e, is_uniform)
        index, keep = index * (e.shape[0] - 1) + here, keep & inside
    every = [e for e, _ in edges]
    shape = tuple(e.shape[0] - 1 for e in every)
    counts: Any = tally(index, math.prod(shape), w, keep).reshape(shape).astype(np.float64)
    if density:
        total = counts.sum()
        for k, e in enumerate(every):
            counts = counts / call(np.diff, e).reshape([-1 if j == k else 1 for j, _ in enumerate(every)])
        counts = counts / total
    return counts, every


def _columns(sample: Any) -> list[Tracer] | None:
    """The coordinates of the samples, each in the dtype that all have together."""
    if type(sample) in (list, tuple):
        if not all(isinstance(x, np.ndarray) or is_tracer(x) for x in sample):
            return None
        found = list(map(as_tracer, sample))
    elif is_tracer(sample) and sample.ndim == 2 and sample.shape[1] <= MAX_DIMENSIONS:
        found = [sample[:, k] for k, _ in enumerate(sample.T)]
    else:
        return None
    if not found or any(x.ndim != 1 or x.dtype.kind not in "biuf" or x.size != found[0].size for x in found):
        return None
    dtype = np.result_type(*(x.dtype for x in found))
    return [x.astype(dtype, copy=False) for x in found] if found[0].size and dtype.kind != "b" else None


def _edges_of(columns: Sequence[Tracer], bins: Any, ranges: Any) -> list[tuple[Tracer, bool]] | None:
    """The edges along each dimension, and whether they are equally far apart; None where NumPy may refuse them.

    Those between the extremes of the samples are computed at each call; that they are in order is decided on.
    """
    bins = static_value(bins) if not has_tracer(bins) else bins
    each = list(bins) if type(bins) in (list, tuple) or isinstance(bins, np.ndarray) else [bins] * len(columns)
    ranges = [None] * len(columns) if ranges is None else list(ranges)
    if len(each) != len(columns) or len(ranges) != len(columns):
        return None
    found: list[tuple[Tracer, bool]] = []
    usable: Any = True
    for x, n, r in zip(columns, each, ranges, strict=True):
        n = static_value(n) if not has_tracer(n) else n
        if isinstance(n, (int, np.integer)) and not isinstance(n, (bool, np.bool_)):
            first, last = (call(np.min, x), call(np.max, x)) if r is None else r
            if n < 1 or any(np.ndim(v) for v in (first, last)):
                return None
            edges = as_tracer(call(np.linspace, first, last, int(n) + 1))
            usable = usable & call(np.isfinite, edges[0]) & call(np.all, edges[:-1] < edges[1:])
            found.append((edges, True))
        elif isinstance(n, np.ndarray) or is_tracer(n) or type(n) in (list, tuple):
            edges = as_tracer(n)
            if edges.ndim != 1 or edges.size < 2 or edges.dtype.kind not in "iuf":
                return None
            usable = usable & call(np.all, edges[:-1] <= edges[1:])
            found.append((edges, False))
        else:
            return None
    return found if bool(usable) else None


def _bins(a: Tracer, edges: Tracer, is_uniform: bool) -> tuple[Any, Any]:
    """The bin of each element, and which are in range."""
    if not is_uniform:
        return _between(a, edges)
    n = edges.shape[0] - 1
    return _uniform(a.astype(np.result_type(a.dtype, edges.dtype), copy=False), edges, (edges[0], edges[n], n))
