"""`benchmarks.apps.unsharp` in Halide; the schedule is that of Halide's own app for the CPU."""

from __future__ import annotations

import math

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program


def define(arguments: tuple, manual: bool) -> Program:
    rgb, sigma = arguments
    source = hl.ImageParam(hl.Float(32), 3, "rgb")
    x, y, c, yo, yi = (hl.Var(name) for name in ("x", "y", "c", "yo", "yi"))
    gray, blur_y, blur_x, ratio, output = (hl.Func(name) for name in ("gray", "blur_y", "blur_x", "ratio", "output"))
    taps = [hl.f32(math.exp(-k * k / (2 * sigma * sigma)) / (math.sqrt(2 * math.pi) * sigma)) for k in range(4)]

    bounded = hl.BoundaryConditions.repeat_edge(source)
    gray[x, y] = hl.f32(0.299) * bounded[x, y, 0] + hl.f32(0.587) * bounded[x, y, 1] + hl.f32(0.114) * bounded[x, y, 2]
    vertical = taps[0] * gray[x, y]
    for k in range(1, 4):
        vertical += taps[k] * (gray[x, y - k] + gray[x, y + k])
    blur_y[x, y] = vertical
    horizontal = taps[0] * blur_y[x, y]
    for k in range(1, 4):
        horizontal += taps[k] * (blur_y[x - k, y] + blur_y[x + k, y])
    blur_x[x, y] = horizontal
    ratio[x, y] = (2 * gray[x, y] - blur_x[x, y]) / gray[x, y]
    output[x, y, c] = ratio[x, y] * source[x, y, c]

    if manual:
        lanes = hl.get_jit_target_from_environment().natural_vector_size(hl.Float(32))
        output.split(y, yo, yi, 32).vectorize(x, lanes).parallel(yo).reorder(x, c, yi, yo)
        for stage in (gray, blur_y, ratio):
            stage.compute_at(output, yi).store_at(output, yo).vectorize(x, lanes)
    return Program(output, [source], [rgb], rgb.shape, np.float32)
