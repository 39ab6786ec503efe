"""`benchmarks.apps.blur` in Halide; the schedule is that of Halide's own app for the CPU."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program


def define(arguments: tuple, manual: bool) -> Program:
    (img,) = arguments
    source = hl.ImageParam(hl.UInt(16), 2, "img")
    x, y, yi = hl.Var("x"), hl.Var("y"), hl.Var("yi")
    blur_x, blur_y = hl.Func("blur_x"), hl.Func("blur_y")
    blur_x[x, y] = (source[x, y] + source[x + 1, y] + source[x + 2, y]) / hl.u16(3)
    blur_y[x, y] = (blur_x[x, y] + blur_x[x, y + 1] + blur_x[x, y + 2]) / hl.u16(3)
    if manual:
        blur_y.split(y, y, yi, 32).parallel(y).vectorize(x, 32)
        blur_x.store_at(blur_y, y).compute_at(blur_y, yi).vectorize(x, 32)
    h, w = img.shape
    return Program(blur_y, [source], [img], (h - 2, w - 2), np.uint16)
