"""`benchmarks.apps.interpolate` in Halide; the schedule is that of Halide's own app for the CPU."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program

# A beam of 32 takes minutes to search.
AUTOSCHEDULER = {"beam_size": "8"}


def define(arguments: tuple, manual: bool) -> Program:
    img, levels = arguments
    _, h, w = img.shape
    source = hl.ImageParam(hl.Float(32), 3, "img")
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    heights, widths = [h], [w]
    for _ in range(1, levels):
        heights.append(heights[-1] // 2 + 1)
        widths.append(widths[-1] // 2 + 1)

    downsampled = [hl.Func(f"downsampled_{n}") for n in range(levels)]
    downx = [hl.Func(f"downx_{n}") for n in range(levels)]
    downsampled[0][x, y, c] = hl.select(c < 3, source[x, y, c] * source[x, y, 3], source[x, y, 3])
    extended = []
    for n in range(1, levels):
        extended.append(
            hl.BoundaryConditions.repeat_edge(downsampled[n - 1], [(0, widths[n - 1]), (0, heights[n - 1])])
        )
        fine, half = extended[n - 1], downx[n]
        half[x, y, c] = (fine[2 * x - 1, y, c] + 2.0 * fine[2 * x, y, c] + fine[2 * x + 1, y, c]) * 0.25
        downsampled[n][x, y, c] = (half[x, 2 * y - 1, c] + 2.0 * half[x, 2 * y, c] + half[x, 2 * y + 1, c]) * 0.25

    filled = [hl.Func(f"filled_{n}") for n in range(levels)]
    filled[-1][x, y, c] = downsampled[-1][x, y, c]
    for n in reversed(range(levels - 1)):
        upx, up, coarse, down = hl.Func(f"upx_{n}"), hl.Func(f"up_{n}"), filled[n + 1], downsampled[n]
        upx[x, y, c] = (coarse[x / 2, y, c] + coarse[(x + 1) / 2, y, c]) / 2.0
        up[x, y, c] = (upx[x, y / 2, c] + upx[x, (y + 1) / 2, c]) / 2.0
        filled[n][x, y, c] = down[x, y, c] + (1.0 - down[x, y, 3]) * up[x, y, c]
    normalized = hl.Func("normalized")
    normalized[x, y, c] = filled[0][x, y, c] / filled[0][x, y, 3]

    if manual:
        vector = hl.get_host_target().natural_vector_size(hl.Float(32))
        xo, xi, yo, yi = hl.Var("xo"), hl.Var("xi"), hl.Var("yo"), hl.Var("yi")
        for n in range(1, levels - 1):
            downsampled[n].compute_root().reorder(x, c, y).split(y, yo, yi, 8).parallel(yo).vectorize(x, vector)
        # Cheaper to compute again than to store; once for the first downsampling, once inline.
        premultiplied = downsampled[0].clone_in(extended[0])
        premultiplied.store_at(downsampled[1], yo).compute_at(downsampled[1], yi).reorder(c, x, y).unroll(c)
        premultiplied.vectorize(x, vector, hl.TailStrategy.ShiftInwards)
        normalized.bound(x, 0, w).bound(y, 0, h).bound(c, 0, 3).never_partition([y])
        normalized.split(x, xo, xi, vector).split(y, yo, yi, 32).reorder(xi, c, xo, yi, yo).unroll(c).vectorize(
            xi
        ).parallel(yo)
        for n in range(1, levels):
            filled[n].store_at(normalized, yo).compute_at(normalized, yi).never_partition_all().vectorize(x, vector)
    return Program(normalized, [source], [img], (3, h, w), np.float32)
