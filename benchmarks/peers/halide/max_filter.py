"""`benchmarks.apps.max_filter` in Halide; the schedule follows that of Halide's own app for the CPU.

A task is a strip of columns of one channel: all runs of the strip are computed first, then the disc, row by row.
"""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.apps.max_filter import run_reach
from benchmarks.peers.halide import Program

RADIUS = 26
AUTOSCHEDULER = {"beam_size": "8"}  # 32 takes minutes


def define(arguments: tuple, manual: bool) -> Program:
    (img,) = arguments
    source = hl.ImageParam(hl.Float(32), 3, "img")
    x, y, c, k, reach = (hl.Var(n) for n in ("x", "y", "c", "k", "reach"))
    padded = hl.BoundaryConditions.repeat_edge(source)

    reaches = [run_reach(dx, RADIUS) for dx in range(-RADIUS, RADIUS + 1)]
    tallest = max(reaches)
    levels = [(2 * n + 1).bit_length() - 1 for n in range(tallest + 1)]
    reach_of = hl.Buffer(np.array(reaches, np.int32))
    level_of = hl.Buffer(np.array(levels, np.int32))

    # runs(y, k): the maximum of the 2**k rows from y on
    runs = hl.Func("runs")
    runs[x, y, c, k] = padded[x, y, c]
    r = hl.RDom([hl.Range(-tallest, source.height() + tallest), hl.Range(1, levels[-1])], "r")
    step = hl.clamp(hl.i32(1) << (r.y - 1), 1, 1 << (levels[-1] - 1))
    runs[x, r.x, c, r.y] = hl.max(runs[x, r.x, c, r.y - 1], runs[x, r.x + step, c, r.y - 1])

    level = hl.clamp(level_of[reach], 0, levels[-1])
    length = hl.clamp(hl.i32(1) << level, 1, 1 << levels[-1])
    column = hl.Func("column")
    column[x, y, c, reach] = hl.max(runs[x, y - reach, c, level], runs[x, y + reach + 1 - length, c, level])

    dx = hl.RDom([hl.Range(0, len(reaches))], "dx")
    disc = hl.Func("disc")
    disc[x, y, c] = hl.maximum(column[x + dx.x - RADIUS, y, c, hl.clamp(reach_of[dx.x], 0, tallest)])

    if manual:
        xo, task = hl.Var("xo"), hl.Var("task")
        disc.split(x, xo, x, min(256, img.shape[2])).reorder(x, y, c, xo).fuse(c, xo, task).parallel(task).vectorize(
            x, 16
        )
        runs.compute_at(disc, task).vectorize(x, 16)
        runs.update().reorder(x, r.x, r.y, c).vectorize(x, 16)
        column.compute_at(disc, y).vectorize(x, 16)
    return Program(disc, [source], [img], img.shape, np.float32)
