"""`benchmarks.apps.stencil_chain` in Halide, with the app's own CPU schedule: line buffers in groups of stencils."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.apps.stencil_chain import STENCILS
from benchmarks.peers.halide import Program

GROUP = 11


def define(arguments: tuple, manual: bool) -> Program:
    (img,) = arguments
    source = hl.ImageParam(hl.UInt(16), 2, "img")
    x, y = hl.Var("x"), hl.Var("y")
    stages = [hl.BoundaryConditions.repeat_edge(source)]
    for k in range(STENCILS):
        last, stage = stages[-1], hl.Func(f"stage_{k}")
        total = hl.u16(0)
        for dx in range(-2, 3):
            for dy in range(-2, 3):
                total = total + hl.u16((dx + 3) * (dy + 3)) * last[x + dx, y + dy]
        stage[x, y] = total
        stages.append(stage)
    output = hl.Func("output")
    output[x, y] = stages[-1][x, y]
    if manual:
        schedule(stages, output, img.shape[1], img.shape[0])
    return Program(output, [source], [img], img.shape, np.uint16)


def schedule(stages: list[hl.Func], output: hl.Func, width: int, height: int) -> None:
    """Every `GROUP`th stage as a whole, in sixteen tiles; the ones between row by row, just before they are needed."""
    vector = hl.get_host_target().natural_vector_size(hl.UInt(16))
    xo, yo, xi, yi, tile = (hl.Var(name) for name in ("xo", "yo", "xi", "yi", "tile"))
    for end in range(STENCILS, 0, -GROUP):
        halo = 4 * (STENCILS - end)
        whole = output if end == STENCILS else stages[end]
        x, y = whole.args()
        wide, high = (width + halo) // 4, (height + halo) // 4
        lanes = min(vector, wide)
        whole.compute_root().tile(x, y, xo, yo, xi, yi, wide, high).fuse(xo, yo, tile)
        whole.parallel(tile).vectorize(xi, lanes)
        for stage in stages[max(0, end - GROUP + 1) : end]:
            stage.store_at(whole, tile).compute_at(whole, yi).vectorize(stage.args()[0], vector)
