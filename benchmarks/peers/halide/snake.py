"""`benchmarks.apps.snake` in Halide.

The authors inlined a whole step into one loop. Here the normals and the flow are computed once, a row ahead of the step
that reads them; `fast_sin` and `fast_cos`, because the others are calls of the C library for each pixel (they are
within 3e-7).
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl
import numpy as np

from benchmarks.apps import snake as app
from benchmarks.peers.halide import Program

ITERATIONS = 8
AUTOSCHEDULER = {"beam_size": "1"}  # more take minutes
STRIP = 64  # rows of a task
LANES = 16
x, y = hl.Var("x"), hl.Var("y")


@dataclass(frozen=True)
class Edges:
    """What stays the same from step to step: the edge indicator and its gradient."""

    g: hl.Func
    slope: hl.Func


def define(arguments: tuple, manual: bool) -> Program:
    img, contour = arguments
    source, phi_in = hl.ImageParam(hl.Float(32), 2, "img"), hl.ImageParam(hl.Float(32), 2, "phi")
    bounds = [hl.Range(0, source.width()), hl.Range(0, source.height())]
    strip = min(STRIP, img.shape[0]) if manual else 0
    edges = _edges(source, bounds, strip)
    phi = hl.Func("phi_0")
    phi[x, y] = phi_in[x, y]
    for k in range(ITERATIONS):
        phi = _evolve(phi, edges, bounds, k + 1, strip)
    return Program(phi, [source, phi_in], [img, contour], img.shape, np.float32)


def _edges(img: hl.ImageParam, bounds: list[hl.Range], strip: int) -> Edges:
    radius = int(3.0 * app.BLUR + 0.5)
    taps = np.arange(-radius, radius + 1)
    bell = np.exp(-0.5 * (taps / app.BLUR) ** 2)
    weights = [float(np.float32(w)) for w in bell / bell.sum()]
    padded = hl.BoundaryConditions.repeat_edge(img)
    blur_y, blur_x, g, g_slope = hl.Func("blur_y"), hl.Func("blur_x"), hl.Func("g"), hl.Func("g_slope")
    blur_y[x, y] = sum((hl.f32(w) * padded[x, y + int(k)] for w, k in zip(weights, taps, strict=True)), hl.f32(0.0))
    blur_x[x, y] = sum((hl.f32(w) * blur_y[x + int(k), y] for w, k in zip(weights, taps, strict=True)), hl.f32(0.0))
    smooth = hl.BoundaryConditions.repeat_edge(blur_x, bounds)
    smooth_x, smooth_y = _dx(smooth), _dy(smooth)
    g[x, y] = 1.0 / (1.0 + smooth_x * smooth_x + smooth_y * smooth_y)
    repeated = hl.BoundaryConditions.repeat_edge(g, bounds)
    g_slope[x, y] = (_dx(repeated), _dy(repeated))
    if strip:
        yi = hl.Var("yi")
        blur_x.compute_root().split(y, y, yi, strip).parallel(y).vectorize(x, LANES)
        blur_y.store_at(blur_x, y).compute_at(blur_x, yi).vectorize(x, LANES)
        g.compute_root().split(y, y, yi, strip).parallel(y).vectorize(x, LANES)
        g_slope.compute_root().split(y, y, yi, strip).parallel(y).vectorize(x, LANES)
    return Edges(g, g_slope)


def _evolve(phi: hl.Func, edges: Edges, bounds: list[hl.Range], step: int, strip: int) -> hl.Func:
    padded = hl.BoundaryConditions.repeat_edge(phi, bounds)
    phi_x, phi_y = _dx(padded), _dy(padded)
    slope = hl.sqrt(phi_x * phi_x + phi_y * phi_y)
    length = slope + hl.f32(app.TINY)
    normal_x, normal_y = phi_x / length, phi_y / length
    well = hl.select(slope <= 1.0, hl.fast_sin(hl.f32(2.0 * np.pi) * slope) * hl.f32(0.5 / np.pi), slope - 1.0)

    # one loop gives all four, which share nearly everything
    field = hl.Func(f"field_{step}")
    field[x, y] = (normal_x, normal_y, well * normal_x - phi_x, well * normal_y - phi_y)

    def divergence(k: int) -> hl.Expr:
        return 0.5 * (field[x + 1, y][k] - field[x - 1, y][k]) + 0.5 * (field[x, y + 1][k + 1] - field[x, y - 1][k + 1])

    centre = phi[x, y]
    laplacian = padded[x + 1, y] + padded[x - 1, y] + padded[x, y + 1] + padded[x, y - 1] - 4.0 * centre
    regular = divergence(2) + laplacian
    bell = (1.0 + hl.fast_cos(hl.f32(np.pi / app.WIDTH) * centre)) * hl.f32(0.5 / app.WIDTH)
    dirac = hl.select(hl.abs(centre) <= app.WIDTH, bell, 0.0)
    g, g_slope = edges.g[x, y], edges.slope[x, y]
    edge = dirac * (g_slope[0] * field[x, y][0] + g_slope[1] * field[x, y][1] + g * divergence(0))
    area = dirac * g
    evolved = hl.Func(f"phi_{step}")
    change = hl.f32(app.REGULARITY) * regular + hl.f32(app.LENGTH) * edge + hl.f32(app.AREA) * area
    evolved[x, y] = centre + hl.f32(app.TIME_STEP) * change
    if strip:
        yi = hl.Var("yi")
        evolved.compute_root().split(y, y, yi, strip).parallel(y).vectorize(x, LANES)
        field.store_at(evolved, y).compute_at(evolved, yi).vectorize(x, LANES)
    return evolved


def _dx(f: hl.Func) -> hl.Expr:
    return 0.5 * (f[x + 1, y] - f[x - 1, y])


def _dy(f: hl.Func) -> hl.Expr:
    return 0.5 * (f[x, y + 1] - f[x, y - 1])
