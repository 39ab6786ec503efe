"""`benchmarks.apps.depthwise_separable_conv` in Halide; the schedule is that of Halide's own app for the CPU."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program

# more candidates exhaust 24 GB of memory
AUTOSCHEDULER = {"beam_size": "8"}


def define(arguments: tuple, manual: bool) -> Program:
    images, _, _, bias = arguments
    count, height, width, channels = images.shape
    shape = (count, height, width, bias.size)
    source, offset = hl.ImageParam(hl.Float(32), 4, "source"), hl.ImageParam(hl.Float(32), 1, "offset")
    taps, matrix = hl.ImageParam(hl.Float(32), 3, "taps"), hl.ImageParam(hl.Float(32), 2, "matrix")
    c, x, y, n = (hl.Var(name) for name in "cxyn")
    padded, depthwise, pointwise, relu = (hl.Func(name) for name in ("padded", "depthwise", "pointwise", "relu"))
    # an ordinary select: the helper for boundaries would split the loops in cases
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    padded[c, x, y, n] = hl.select(
        inside, source[c, hl.clamp(x, 0, width - 1), hl.clamp(y, 0, height - 1), n], hl.f32(0.0)
    )
    r = hl.RDom([(0, 3), (0, 3)], "r")
    depthwise[c, x, y, n] = hl.f32(0.0)
    depthwise[c, x, y, n] += taps[c, r.x, r.y] * padded[c, x + r.x - 1, y + r.y - 1, n]
    k = hl.RDom([(0, channels)], "k")
    pointwise[c, x, y, n] = offset[c]
    pointwise[c, x, y, n] += matrix[c, k.x] * depthwise[k.x, x, y, n]
    relu[c, x, y, n] = hl.max(pointwise[c, x, y, n], hl.f32(0.0))
    if manual:
        for param, array in zip((source, taps, matrix, offset), arguments, strict=True):
            for axis, (extent, stride) in enumerate(zip(reversed(array.shape), reversed(array.strides), strict=True)):
                param.dim(axis).set_bounds(0, extent).set_stride(stride // array.itemsize)
        for var, extent in zip((n, y, x, c), shape, strict=True):
            relu.bound(var, 0, extent)
        schedule(padded, depthwise, pointwise, relu, r, k, shape, channels)
    return Program(relu, [source, taps, matrix, offset], list(arguments), shape, np.float32)


def schedule(
    padded: hl.Func,
    depthwise: hl.Func,
    pointwise: hl.Func,
    relu: hl.Func,
    r: hl.RDom,
    k: hl.RDom,
    shape: tuple[int, ...],
    channels: int,
) -> None:
    """Twenty-four accumulators: a vector of channels for 6x4 pixels; slices of the filter inside the channels' sum."""
    vector = hl.get_host_target().natural_vector_size(hl.Float(32))
    vectors, wide, high = (1, 6, 4) if vector == 16 else (2, 3, 2)
    across, wide, high = min(vectors * vector, shape[3]), min(wide, shape[2]), min(high, shape[1])
    # no slice may reach past the last channel
    deep = vectors * vector if channels % (vectors * vector) == 0 else channels
    c, x, y, n = relu.args()
    ci, xi, yi = hl.Var("ci"), hl.Var("xi"), hl.Var("yi")
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    relu.tile([c, x, y], [ci, xi, yi], [across, wide, high]).vectorize(ci).unroll(xi).unroll(yi).fuse(y, n, n).parallel(
        n
    )
    pointwise.compute_at(relu, c).vectorize(c).unroll(x).unroll(y)
    pointwise.update().reorder(c, x, y, k.x, n).vectorize(c).unroll(x).unroll(y).split(k.x, ko, ki, deep)
    depthwise.store_in(hl.MemoryType.Stack).bound_extent(c, deep).compute_at(pointwise, ko)
    depthwise.vectorize(c).reorder(x, y, c).unroll(x).unroll(y)
    depthwise.update().vectorize(c).reorder(x, y, c, r.x, r.y, n).unroll(x).unroll(y)
    padded.store_in(hl.MemoryType.Stack).compute_at(pointwise, ko)
    padded.tile(c, x, ci, xi, vector if deep % vector == 0 else deep, 4, hl.TailStrategy.RoundUp).vectorize(ci).unroll(
        xi
    )
