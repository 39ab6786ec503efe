"""`benchmarks.apps.bilateral_grid` in Halide; the schedule is that of Halide's own app for the CPU."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program

# A beam of 32 takes minutes to search.
AUTOSCHEDULER = {"beam_size": "8"}


def define(arguments: tuple, manual: bool) -> Program:
    img, r_sigma_value, s_sigma = arguments
    h, w = img.shape
    source = hl.ImageParam(hl.Float(32), 2, "img")
    r_sigma = hl.Param(hl.Float(32), "r_sigma", r_sigma_value)
    r_sigma.set_estimate(r_sigma_value)
    x, y, z, c = hl.Var("x"), hl.Var("y"), hl.Var("z"), hl.Var("c")
    padded = hl.BoundaryConditions.repeat_edge(source, [(0, w), (0, h)])

    cell = hl.RDom([(0, s_sigma), (0, s_sigma)], "cell")
    pixel = hl.clamp(padded[x * s_sigma + cell.x - s_sigma // 2, y * s_sigma + cell.y - s_sigma // 2], 0.0, 1.0)
    depth = hl.i32(pixel * (1.0 / r_sigma) + 0.5)
    histogram, blurz, blurx, blury = hl.Func("histogram"), hl.Func("blurz"), hl.Func("blurx"), hl.Func("blury")
    histogram[x, y, z, c] = 0.0
    histogram[x, y, depth, c] += hl.mux(c, [pixel, hl.f32(1.0)])

    def taps(f: hl.Func, dx: int, dy: int, dz: int) -> hl.Expr:
        a, b, m, d, e = (f[x + k * dx, y + k * dy, z + k * dz, c] for k in range(-2, 3))
        return a + b * 4.0 + m * 6.0 + d * 4.0 + e

    blurz[x, y, z, c] = taps(histogram, 0, 0, 1)
    blurx[x, y, z, c] = taps(blurz, 1, 0, 0)
    blury[x, y, z, c] = taps(blurx, 0, 1, 0)

    position = hl.clamp(source[x, y], 0.0, 1.0) * (1.0 / r_sigma)
    zi = hl.i32(position)
    xf, yf, zf = hl.f32(x % s_sigma) / s_sigma, hl.f32(y % s_sigma) / s_sigma, position - zi

    def along_x(dy: int, dz: int) -> hl.Expr:
        xi, yi = x / s_sigma, y / s_sigma + dy
        return hl.lerp(blury[xi, yi, zi + dz, c], blury[xi + 1, yi, zi + dz, c], xf)

    interpolated, output = hl.Func("interpolated"), hl.Func("output")
    planes = [hl.lerp(along_x(0, dz), along_x(1, dz), yf) for dz in range(2)]
    interpolated[x, y, c] = hl.lerp(planes[0], planes[1], zf)
    output[x, y] = interpolated[x, y, 0] / interpolated[x, y, 1]

    bins = int(1 / r_sigma_value + 0.5) + 2
    histogram.set_estimate(z, -2, bins + 4)
    for blur in (blurz, blurx, blury):
        blur.set_estimate(z, 0, bins)
    if manual:
        blurz.compute_at(blurx, y).reorder(c, z, x, y).vectorize(x, 8).unroll(c)
        histogram.compute_at(blurz, y)
        histogram.update().reorder(c, cell.x, cell.y, x, y).unroll(c)
        blurx.compute_root().reorder(c, x, z, y).parallel(y).vectorize(x, 8).unroll(c)
        blury.compute_at(output, y).store_in(hl.MemoryType.Stack).reorder(c, x, y, z).reorder_storage(
            c, z, x, y
        ).vectorize(x, 8).unroll(c)
        output.parallel(y, 8).vectorize(x, 8)
    return Program(output, [source], [img], (h, w), np.float32)
