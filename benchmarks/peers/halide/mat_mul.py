"""`benchmarks.apps.mat_mul` in Halide; blocked by hand for registers and for the caches."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program


def define(arguments: tuple, manual: bool) -> Program:
    a, b = arguments
    (m, k), n = a.shape, b.shape[1]
    left, right = hl.ImageParam(hl.Float(32), 2, "left"), hl.ImageParam(hl.Float(32), 2, "right")
    x, y, r = hl.Var("x"), hl.Var("y"), hl.RDom([(0, k)], "r")
    product, result = hl.Func("product"), hl.Func("result")
    product[x, y] = hl.f32(0.0)
    product[x, y] += left[r.x, y] * right[x, r.x]
    result[x, y] = product[x, y]
    result.bound(x, 0, n).bound(y, 0, m)
    if manual:
        schedule(product, result, right, r, n, m)
    return Program(result, [left, right], [a, b], (m, n), np.float32)


def schedule(product: hl.Func, result: hl.Func, right: hl.ImageParam, r: hl.RDom, n: int, m: int) -> None:
    """A tile of the result stays in 24 registers; the rows of the right matrix that it needs are copied together."""
    vector = min(hl.get_host_target().natural_vector_size(hl.Float(32)), n)
    wide, high = min(3, n // vector) * vector, min(8, m)
    x, y = product.args()
    xo, xi, yo, yi = (hl.Var(name) for name in ("xo", "xi", "yo", "yi"))
    result.tile(x, y, xo, yo, xi, yi, wide, high, hl.TailStrategy.ShiftInwards)
    result.reorder(xi, yi, yo, xo).vectorize(xi, vector).unroll(xi).unroll(yi).parallel(xo)
    product.compute_at(result, yo).vectorize(x, vector).unroll(x).unroll(y)
    product.update().reorder(x, y, r.x).vectorize(x, vector).unroll(x).unroll(y).unroll(r.x, 2)
    panel = right.in_()
    panel.compute_at(result, xo).vectorize(panel.args()[0], vector).unroll(panel.args()[0])
