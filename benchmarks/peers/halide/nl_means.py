"""`benchmarks.apps.nl_means` in Halide.

The schedule by hand goes further than that of Halide's own app: it walks down tiles row by row, and keeps the distances
of all offsets of the last rows.
"""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program

PATCH = 7
SEARCH = 7
SIGMA = 0.12
AUTOSCHEDULER = {"beam_size": "8"}  # 32 takes minutes


def define(arguments: tuple, manual: bool) -> Program:
    (img,) = arguments
    _, height, width = img.shape
    source = hl.ImageParam(hl.Float(32), 3, "img")
    x, y, c, dx, dy = (hl.Var(n) for n in ("x", "y", "c", "dx", "dy"))
    padded = hl.BoundaryConditions.repeat_edge(source)

    distance, blur_y, weight = hl.Func("distance"), hl.Func("blur_y"), hl.Func("weight")
    differences = [padded[x, y, k] - padded[x + dx, y + dy, k] for k in range(3)]
    r, g, b = (d * d for d in differences)
    distance[x, y, dx, dy] = r + g + b
    taps = range(-(PATCH // 2), PATCH // 2 + 1)
    blur_y[x, y, dx, dy] = _sum([distance[x, y + k, dx, dy] for k in taps])
    blur = _sum([blur_y[x + k, y, dx, dy] for k in taps])
    weight[x, y, dx, dy] = hl.exp(blur * hl.f32(-1.0 / (SIGMA * PATCH) ** 2))

    # channel 3 is the sum of the weights
    offset = hl.RDom([hl.Range(-(SEARCH // 2), SEARCH), hl.Range(-(SEARCH // 2), SEARCH)], "offset")
    total, mean = hl.Func("total"), hl.Func("mean")
    shifted = hl.select(c == 3, hl.f32(1.0), padded[x + offset.x, y + offset.y, hl.min(c, 2)])
    total[x, y, c] = hl.f32(0.0)
    total[x, y, c] += weight[x, y, offset.x, offset.y] * shifted
    mean[x, y, c] = hl.clamp(total[x, y, c] / total[x, y, 3], hl.f32(0.0), hl.f32(1.0))

    if manual:
        yo, yi, xi, xv = (hl.Var(n) for n in ("yo", "yi", "xi", "xv"))
        mean.bound(c, 0, 3).split(y, yo, yi, min(64, height)).split(x, x, xi, min(128, width // 16 * 16))
        mean.split(xi, xi, xv, 16).reorder(xv, xi, c, yi, x, yo).vectorize(xv).parallel(yo)
        padded.store_at(mean, x).compute_at(mean, yi).vectorize(padded.args()[0], 16)
        distance.store_at(mean, x).compute_at(mean, yi).vectorize(x, 16)
        total.compute_at(mean, yi).bound(c, 0, 4).vectorize(x, 16)
        total.update().reorder(x, c, offset.x, offset.y).vectorize(x, 16).unroll(x).unroll(c)
        blur_y.compute_at(total, offset.x).vectorize(x, 16).unroll(x)
        weight.compute_at(total, offset.x).vectorize(x, 16).unroll(x)
    return Program(mean, [source], [img], img.shape, np.float32)


def _sum(terms: list[hl.Expr]) -> hl.Expr:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
