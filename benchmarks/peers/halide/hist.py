"""`benchmarks.apps.hist` in Halide; the schedule is that of Halide's own app for the CPU."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program


def define(arguments: tuple, manual: bool) -> Program:
    (rgb,) = arguments
    _, h, w = rgb.shape
    source = hl.ImageParam(hl.UInt(8), 3, "rgb")
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    luma, cr, cb = hl.Func("luma"), hl.Func("cr"), hl.Func("cb")
    r, b = hl.f32(source[x, y, 0]), hl.f32(source[x, y, 2])
    luma[x, y] = hl.f32(0.299) * r + hl.f32(0.587) * hl.f32(source[x, y, 1]) + hl.f32(0.114) * b
    cr[x, y] = (r - luma[x, y]) * hl.f32(0.713) + 128
    cb[x, y] = (b - luma[x, y]) * hl.f32(0.564) + 128

    rows, histogram, cdf = hl.Func("rows"), hl.Func("histogram"), hl.Func("cdf")
    rx, ry, rb = hl.RDom([(0, w)]), hl.RDom([(0, h)]), hl.RDom([(1, 255)])
    rows[x, y] = hl.i32(0)
    rows[hl.i32(hl.clamp(luma[rx, y], 0, 255)), y] += 1
    histogram[x] = hl.i32(0)
    histogram[x] += rows[x, ry]
    cdf[x] = histogram[0]
    cdf[rb.x] = cdf[rb.x - 1] + histogram[rb.x]

    bins, equalised, output = hl.Func("bins"), hl.Func("equalised"), hl.Func("output")
    bins[x, y] = hl.u8(hl.clamp(luma[x, y], 0, 255))
    equalised[x, y] = hl.clamp(cdf[hl.i32(bins[x, y])] * hl.f32(255 / (h * w)), 0, 255)
    red = equalised[x, y] + (cr[x, y] - 128) * hl.f32(1.4)
    green = equalised[x, y] - hl.f32(0.343) * (cb[x, y] - 128) - hl.f32(0.711) * (cr[x, y] - 128)
    blue = equalised[x, y] + hl.f32(1.765) * (cb[x, y] - 128)
    output[x, y, c] = hl.mux(c, [hl.u8(hl.clamp(channel, 0, 255)) for channel in (red, green, blue)])

    if manual:
        lanes = hl.get_jit_target_from_environment().natural_vector_size(hl.Float(32))
        cdf.bound(x, 0, 256)
        # Luma twice: of whole vectors where it is counted, and again where the output needs it, which costs less than a
        # load.
        luma.clone_in(rows).compute_at(rows.in_(), y).vectorize(x, lanes, hl.TailStrategy.ShiftInwards)
        rows.update(0).unscheduled()
        rows.in_().compute_root().vectorize(x, lanes).parallel(y, 4)
        rows.compute_at(rows.in_(), y).vectorize(x, lanes).update().reorder(y, rx.x).unroll(y)
        histogram.compute_root().vectorize(x, lanes)
        histogram.update().reorder(x, ry.x).vectorize(x, lanes).unroll(x, 4).parallel(x).reorder(ry.x, x)
        cdf.compute_root().update().unscheduled()
        output.reorder(c, x, y).bound(c, 0, 3).unroll(c).parallel(y, 8).vectorize(x, 2 * lanes)
    return Program(output, [source], [rgb], rgb.shape, np.uint8)
