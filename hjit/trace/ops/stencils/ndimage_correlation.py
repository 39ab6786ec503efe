"""The C functions of scipy.ndimage that sum: correlate1d, correlate, uniform_filter1d.

The arithmetic is SciPy's: double precision, in the order of its loops. Integer images with whole weights are summed as
integers, which is exact and so the same.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Op, cast, select
from hjit.trace.ir.poly import Dim, Poly, poly
from hjit.trace.ops.limits import MAX_FILTER_TAPS, MAX_LINE_TAPS, MAX_TRACE_TAPS, SHORT_LINE_TAPS
from hjit.trace.ops.stencils.ndimage_access import (
    DOUBLE,
    EPSILON,
    MODES,
    Extended,
    add,
    holds,
    less,
    on_axis,
    reach,
    reduced,
    source,
    store,
    times,
)
from hjit.trace.ops.stencils.ndimage_windows import LineWindow, unrolled_window
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value


def _accumulator(image: Tracer, weights: np.ndarray[Any, Any] | None, output: Tracer, cval: Any) -> np.dtype[Any]:
    """int32 where sums of products are exact in it and end as integers, else double."""
    whole = image.dtype.kind in "biu" and image.dtype.itemsize <= 2 and output.dtype.kind in "biu"
    if whole and weights is not None and np.array_equal(weights, np.rint(weights)) and holds(np.dtype(np.int16), cval):
        if float(np.abs(weights).sum()) * 2.0**16 < 2.0**31:
            return np.dtype(np.int32)
    return DOUBLE


def correlate1d(image: Any, weights: Any, axis: int, output: Tracer, mode: int, cval: Any, origin: int) -> None:
    """One axis. Kernels that are symmetric or antisymmetric to the last bit but one are folded first, as in SciPy."""
    image, w = source(image), as_tracer(weights)
    n, cval, origin, boundary = (
        int(w.shape[0]),
        float(static_value(cval)),
        operator.index(static_value(origin)),
        MODES[static_value(mode)],
    )
    left = n // 2
    right = n - left - 1
    symmetry = _symmetry(w, n)
    before, after = (on_axis(axis, image.ndim, p) for p in (left + origin, right - origin))
    near = Extended.of(image, boundary, cval, before, after)
    work = _accumulator(image, w.known, output, cval)

    def tap(j: int | Poly) -> Expr:
        return cast(near.along(axis, j - origin), work)

    def weight(j: int) -> Expr:
        if w.known is not None:
            return Const(w.known[left + j], work)
        return w.at((poly(left + j),))

    def folded(j: int | Poly) -> Expr:
        if not symmetry:
            return tap(j)
        return Op("add" if symmetry > 0 else "subtract", (tap(j), tap(-j)), work)

    first, last = (0, 0) if symmetry else (right, right)
    total = times(tap(first), weight(first))
    if _is_unrolled(n):
        for j in range(-left, last):
            total = add(total, times(folded(j), weight(j)))
        store(output, total, safe=False)
        return
    r = poly(Dim(image.ndim))
    total = reduced(image, total, (last + left,), lambda: times(folded(r - left), cast(w.at((r,)), work)))
    store(output, total, safe=False)


def _is_unrolled(n: int) -> bool:
    """Is a filter of so many taps one expression? Not after many others: code for each tap takes LLVM its time."""
    rec = current()
    if n > MAX_LINE_TAPS or (n > SHORT_LINE_TAPS and rec.findings.taps + n > MAX_TRACE_TAPS):
        return False
    rec.findings.taps += n
    return True


def _symmetry(w: Tracer, n: int) -> int:
    """1 for a symmetric kernel of odd length, -1 for an antisymmetric one, else 0."""
    if not n & 1:
        return 0
    if w.known is not None:
        ahead, behind = w.known[n // 2 + 1 :], w.known[: n // 2][::-1]
        return (
            1 if np.all(np.abs(ahead - behind) <= EPSILON) else -1 if np.all(np.abs(ahead + behind) <= EPSILON) else 0
        )
    if n == 1:
        return 1
    front, back = w[n // 2 + 1 :], w[: n // 2][::-1]
    return 1 if bool((abs(front - back) <= EPSILON).all()) else -1 if bool((abs(front + back) <= EPSILON).all()) else 0


def correlate(image: Any, weights: Any, output: Tracer, mode: int, cval: Any, origins: Sequence[int]) -> None:
    """All axes: products are added in the order of the kernel's elements; weights of zero take no part."""
    image, w = source(image), as_tracer(weights)
    cval = float(static_value(cval))
    ahead, past = reach(w.shape, origins)
    near = Extended.of(image, MODES[static_value(mode)], cval, ahead, past)
    work = _accumulator(image, w.known, output, cval)
    zero = Const(0, work)

    def product(tap: Sequence[Any]) -> Expr:
        x = cast(near.at([t - a for t, a in zip(tap, ahead, strict=True)]), work)
        if w.known is not None and all(isinstance(t, int) for t in tap):
            return times(x, Const(w.known[tuple(tap)], work))
        weight = cast(w.at(tuple(map(poly, tap))), work)
        used = less(Const(EPSILON, DOUBLE), Op("absolute", (cast(weight, DOUBLE),), DOUBLE))
        return select(used, times(x, weight), zero)

    shape = tuple(map(int, w.shape))
    taps = [t for t in itertools.product(*map(range, shape)) if w.known is None or abs(w.known[t]) > EPSILON]
    if len(taps) > MAX_FILTER_TAPS:
        store(
            output,
            reduced(image, zero, shape, lambda: product([poly(Dim(image.ndim + k)) for k in range(image.ndim)])),
        )
        return
    total: Expr = zero
    for t in taps:
        total = product(t) if total is zero and work != DOUBLE else add(total, product(t))
    store(output, total)


def uniform_filter1d(image: Any, size: int, axis: int, output: Tracer, mode: int, cval: Any, origin: int) -> None:
    """The mean of a window; SciPy keeps a running sum, which for floats rounds otherwise in the last digits."""
    image, size, cval = source(image), operator.index(static_value(size)), float(static_value(cval))
    window = LineWindow.of(image, size, axis, mode, cval, origin)
    exact = image.dtype.kind in "biu" and image.dtype.itemsize <= 4 and holds(np.dtype(np.int16), cval)
    work = DOUBLE if not exact else np.dtype(np.int32 if image.dtype.itemsize <= 2 and size < 2**15 else np.int64)

    def rounded(total: Expr) -> Expr:
        return total if exact else Op("reordered", (total,), DOUBLE)

    total = unrolled_window(window, "add", work, rounded)
    if total is None:
        total = rounded(reduced(image, Const(0, work), (size,), lambda: window.tap(work), "add"))
    store(output, Op("true_divide", (cast(total, DOUBLE), Const(size, DOUBLE)), DOUBLE), safe=False)
