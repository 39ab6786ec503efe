"""`benchmarks.apps.iir_blur` in Halide; the schedule is that of Halide's own app for the CPU.

A pass filters columns and transposes, so that two passes filter both ways, each with vectors across its columns.
"""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program

LANES = 16


def define(arguments: tuple, manual: bool) -> Program:
    img, alpha = arguments
    source = hl.ImageParam(hl.Float(32), 3, "img")
    _, height, width = img.shape
    columns = _blur_columns(source, source.height(), alpha, "blur_y", min(4 * LANES, width) if manual else 0)
    rows = _blur_columns(columns, source.width(), alpha, "blur_x", min(4 * LANES, height) if manual else 0)
    return Program(rows, [source], [img], img.shape, np.float32)


def _blur_columns(img: hl.Func, height: hl.Expr, alpha: float, name: str, strip: int) -> hl.Func:
    """The filter down and up the columns, transposed; scheduled by hand in strips of columns, if they are given."""
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    new, old = hl.f32(alpha), hl.f32(1 - alpha)
    blur, transposed = hl.Func(name), hl.Func(f"{name}_transposed")
    blur[x, y, c] = hl.undef(hl.Float(32))
    blur[x, 0, c] = img[x, 0, c]
    down = hl.RDom([hl.Range(1, height - 1)], "down")
    blur[x, down.x, c] = new * img[x, down.x, c] + old * blur[x, down.x - 1, c]
    up = height - 1 - down.x
    blur[x, up, c] = new * blur[x, up, c] + old * blur[x, up + 1, c]
    transposed[x, y, c] = blur[y, x, c]
    if strip:
        xo, yo = hl.Var("xo"), hl.Var("yo")
        transposed.compute_root().tile(x, y, xo, yo, x, y, LANES, strip).vectorize(x).parallel(yo).parallel(c)
        blur.compute_at(transposed, yo)
        blur.update(0).vectorize(x, LANES)
        for k in (1, 2):
            blur.update(k).reorder(x, down.x).vectorize(x, LANES)
    return transposed
