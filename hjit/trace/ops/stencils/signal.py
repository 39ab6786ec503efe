"""scipy.signal: convolutions and medians. SciPy's own Python source is traced; here is what its C functions compute."""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Load, Op, cast
from hjit.trace.ir.graph import Definition, identity
from hjit.trace.ir.poly import Dim, poly
from hjit.trace.ops.limits import MAX_DIRECT, MAX_FILTER_TAPS, MAX_RANKED
from hjit.trace.ops.reductions.networks import ranked
from hjit.trace.ops.stencils.ndimage import known_first, run_as_they_are
from hjit.trace.ops.stencils.ndimage_access import Extended
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, from_stage
from hjit.trace.tracing.dispatch import implements
from hjit.trace.tracing.externs.calls import extern_call
from hjit.trace.tracing.externs.foreign import foreign
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.size import size_poly

VALID, SAME, FULL = 0, 1, 2
BOUNDARIES = {0: "constant", 4: "symmetric", 8: "wrap"}


def windowed_sum(
    near: Extended, kernel: Tracer, shape: Shape, first: Sequence[int], step: int, dtype: np.dtype[Any], group: int
) -> Tracer:
    """``out[m] = sum over j of image[m + first + step * j] * kernel[j]``, added in the order of j.

    Args:
        group: so many products along the last axis are added to each other before they are added to the sum.
    """
    ndim = kernel.ndim

    def product(j: Sequence[Any]) -> Expr:
        x = cast(near.at([size_poly(f) + poly(t) * step for f, t in zip(first, j, strict=True)]), dtype)
        if kernel.known is not None and all(isinstance(t, int) for t in j):
            return Op("multiply", (x, Const(kernel.known[tuple(j)], dtype)), dtype)
        return Op("multiply", (x, cast(kernel.at(tuple(map(poly, j))), dtype)), dtype)

    def row(total: Expr, lead: Sequence[Any]) -> Expr:
        taps = [(*lead, k) for k in range(int(kernel.shape[-1]))]
        whole = len(taps) - len(taps) % group
        groups = [taps[k : k + group] for k in range(0, whole, group)] + [[t] for t in taps[whole:]]
        for together in groups:
            total = add(total, functools.reduce(add, map(product, together)))
        return total

    def add(a: Expr, b: Expr) -> Expr:
        return Op("add", (a, b), dtype)

    total: Expr = Const(0, dtype)
    if int(kernel.size) <= MAX_FILTER_TAPS:
        for lead in itertools.product(*(range(int(n)) for n in kernel.shape[:-1])):
            total = row(total, lead)
        return from_stage(total, shape, dtype)
    rec = current()
    name = rec.reserve("convolved")
    here = Load(name, identity(ndim), dtype)
    taps = [poly(Dim(ndim + k)) for k in range(ndim)]
    extents = [poly(int(n)) if kernel.known is not None else size_poly(n) for n in kernel.shape]
    if int(kernel.shape[-1]) <= MAX_FILTER_TAPS:
        update = Definition(rec.polys(shape), tuple(extents[:-1]), identity(ndim), row(here, taps[:-1]), "sequential")
    else:
        update = Definition(
            rec.polys(shape),
            tuple(extents),
            identity(ndim),
            add(here, product(taps)),
            "sequential" if dtype.kind == "f" else "add",
            reorders=dtype.kind == "f" and group > 1,
        )
    return from_stage(total, shape, dtype, (update,), reserved=name)


def _shape(mode: int, image: Tracer, kernel: Tracer) -> Shape:
    if mode == SAME:
        return image.shape
    grow = [k - 1 for k in kernel.shape]
    return tuple(n + g if mode == FULL else n - g for n, g in zip(image.shape, grow, strict=True))


def convolve2d(image: Any, kernel: Any, flip: int, mode: int, boundary: int, fill: Any) -> Tracer:
    """scipy.signal.convolve2d, and correlate2d if not `flip`."""
    image, kernel = as_tracer(image), as_tracer(kernel)
    dtype = np.result_type(image.dtype, kernel.dtype)
    fill = as_tracer(fill)
    if fill.known is None:
        raise current().error("scipy.signal.convolve2d", "the fill value depends on the image's values")
    border = [0 if mode == VALID else k - 1 for k in kernel.shape]
    near = Extended.of(image, BOUNDARIES[boundary], fill.known.astype(dtype), border, border, dtype)
    if flip:
        first = [(0, (k - 1) // 2, k - 1)[(FULL, SAME, VALID).index(mode)] for k in kernel.shape]
    else:
        first = [(1 - k, -((k - 1) // 2), 0)[(FULL, SAME, VALID).index(mode)] for k in kernel.shape]
    return windowed_sum(near, kernel, _shape(mode, image, kernel), first, -1 if flip else 1, dtype, 4)


def correlate_nd(image: Any, kernel: Any, out: Any, mode: int) -> Tracer:
    """Its first argument has SciPy's zeros behind each axis already."""
    image, kernel = as_tracer(image), as_tracer(kernel)
    dtype = np.result_type(image.dtype, kernel.dtype)
    border = [0 if mode == VALID else k - 1 for k in kernel.shape]
    near = Extended.of(image, "constant", 0, border, [0] * image.ndim, dtype)
    first = [(1 - k, (k - 1) // 2 - k + 1, 0)[(FULL, SAME, VALID).index(mode)] for k in kernel.shape]
    shape = as_tracer(out).shape
    return windowed_sum(near, kernel, shape, first, 1, dtype, 1)


def medfilt2d(image: Any, kernel_size: Any) -> Any:
    """scipy.signal.medfilt2d, a window of odd lengths; beyond the image are zeros. Large windows are SciPy's."""
    image, lengths = as_tracer(image), as_tracer(kernel_size).known
    if image.ndim != 2 or lengths is None or int(lengths.prod()) > MAX_RANKED:
        return foreign(importlib.import_module("scipy.signal._sigtools")._medfilt2d).extern((image, kernel_size), {})
    half = [int(n) // 2 for n in lengths]
    near = Extended.of(image, "constant", 0, half, half)
    wires = [near.at(offsets) for offsets in itertools.product(*(range(-n, n + 1) for n in half))]
    return from_stage(ranked(wires, len(wires) // 2), image.shape, image.dtype)


def _convolve(real: Any) -> Any:
    """Sums are compiled; SciPy's Fourier transform, whose roundings and NaNs are others, is called as it is."""

    def method(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
        image, kernel = as_tracer(in1), as_tracer(in2)
        if method == "auto" and not _is_transformed(image, kernel, mode):
            method = "direct"
        if method in ("auto", "fft"):
            return extern_call("scipy.signal.convolve", real, (in1, in2, mode, method), {})
        return forward.clone(real)(in1, in2, mode, method)

    return method


def _is_transformed(image: Tracer, kernel: Tracer, mode: str) -> bool:
    """May SciPy choose the Fourier transform? Results that are whole numbers are the same by both methods."""
    if image.ndim != kernel.ndim or image.ndim == 0:
        return False
    if np.result_type(image.dtype, kernel.dtype).kind != "f":
        return min(int(image.size), int(kernel.size)) > MAX_DIRECT
    signal = importlib.import_module("scipy.signal")
    a, b = (np.broadcast_to(0.0, tuple(map(int, x.shape))) for x in (image, kernel))
    return bool(signal.choose_conv_method(a, b, mode=mode) == "fft")


EXTERNS = """fftconvolve oaconvolve lfilter filtfilt sosfilt sosfiltfilt hilbert hilbert2 resample resample_poly
    upfirdn decimate detrend find_peaks stft istft spectrogram welch periodogram""".split()


def register() -> None:
    """Take over SciPy's C functions, and run as they are the functions that no kernel computes."""
    tools = importlib.import_module("scipy.signal._sigtools")
    implements(tools._convolve2d)(known_first(tools._convolve2d, convolve2d))
    implements(tools._correlateND)(known_first(tools._correlateND, correlate_nd))
    implements(tools._medfilt2d)(known_first(tools._medfilt2d, medfilt2d))
    public = importlib.import_module("scipy.signal")
    implements(public.convolve)(_convolve(public.convolve))
    run_as_they_are("scipy.signal", EXTERNS)


try:
    register()
except ImportError:  # without SciPy there is nothing to take over
    pass
