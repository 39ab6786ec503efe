"""`benchmarks.apps.conv_layer` in Halide; the schedule is that of Halide's own app for the CPU."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program


def define(arguments: tuple, manual: bool) -> Program:
    images, filters, bias = arguments
    count, height, width, channels = images.shape
    shape = (count, height - 2, width - 2, bias.size)
    source, weights = hl.ImageParam(hl.Float(32), 4, "source"), hl.ImageParam(hl.Float(32), 4, "weights")
    offset = hl.ImageParam(hl.Float(32), 1, "offset")
    c, x, y, n = (hl.Var(name) for name in "cxyn")
    r = hl.RDom([(0, channels), (0, 3), (0, 3)], "r")
    conv, relu = hl.Func("conv"), hl.Func("relu")
    conv[c, x, y, n] = offset[c]
    conv[c, x, y, n] += weights[c, r.x, r.y, r.z] * source[r.x, x + r.y, y + r.z, n]
    relu[c, x, y, n] = hl.max(conv[c, x, y, n], hl.f32(0.0))
    for var, extent in zip((n, y, x, c), shape, strict=True):
        relu.bound(var, 0, extent)
    if manual:
        for param, array in zip((source, weights, offset), arguments, strict=True):
            for k, (extent, stride) in enumerate(zip(reversed(array.shape), reversed(array.strides), strict=True)):
                param.dim(k).set_bounds(0, extent).set_stride(stride // array.itemsize)
        schedule(source, weights, conv, relu, r, images.shape, bias.size)
    return Program(relu, [source, weights, offset], [images, filters, bias], shape, np.float32)


def schedule(
    source: hl.ImageParam,
    weights: hl.ImageParam,
    conv: hl.Func,
    relu: hl.Func,
    r: hl.RDom,
    images: tuple[int, ...],
    out: int,
) -> None:
    """Twenty accumulators: four vectors of channels for five pixels."""
    vector = min(hl.get_host_target().natural_vector_size(hl.Float(32)), out)
    vectors, pixels = min(4, out // vector), min(5, images[2] - 2)
    c, x, y, n = conv.args()
    co, ci, xo, xi = (hl.Var(name) for name in ("co", "ci", "xo", "xi"))
    relu.split(c, co, ci, vectors * vector).split(x, xo, xi, pixels).reorder(ci, xi, xo, y, n, co)
    relu.vectorize(ci, vector).unroll(ci).unroll(xi).parallel(y).parallel(n).parallel(co)
    conv.compute_at(relu, xo).vectorize(c, vector).unroll(c).unroll(x).unroll(y)
    update = conv.update().reorder(c, x, y, r.x, r.y, r.z, n)
    update.vectorize(c, vector).unroll(c).unroll(x).unroll(y).unroll(r.x, 2 - images[3] % 2)
    rows = weights.in_()
    rows.compute_at(conv, r.x).vectorize(rows.args()[0], vector).unroll(rows.args()[0]).unroll(rows.args()[1])
    pixel = source.in_()
    pixel.compute_at(conv, x).unroll(pixel.args()[0])
