"""`benchmarks.apps.harris` in Halide; the schedule is that of Halide's own app for the CPU, kept inside the input."""

from __future__ import annotations

import halide as hl
import numpy as np

from benchmarks.peers.halide import Program

SPARE_ROWS = 64
_rooms: dict[tuple[int, ...], np.ndarray] = {}  # kept, as Halide's parameters do not own their arrays


def define(arguments: tuple, manual: bool) -> Program:
    (rgb,) = arguments
    source = hl.ImageParam(hl.Float(32), 3, "rgb")
    x, y, yi = hl.Var("x"), hl.Var("y"), hl.Var("yi")
    gray, ix, iy = hl.Func("gray"), hl.Func("ix"), hl.Func("iy")
    gray[x, y] = hl.f32(0.299) * source[x, y, 0] + hl.f32(0.587) * source[x, y, 1] + hl.f32(0.114) * source[x, y, 2]

    def derivative(dx: int, dy: int) -> hl.Expr:
        """Across (dx, dy), smoothed along the other axis."""
        total = hl.f32(0)
        for along, weight in ((-1, 1 / 12), (0, 2 / 12), (1, 1 / 12)):
            total += hl.f32(weight) * gray[x + dx + dy * along, y + dy + dx * along]
            total -= hl.f32(weight) * gray[x - dx + dy * along, y - dy + dx * along]
        return total

    def sum_3x3(product: hl.Func) -> hl.Expr:
        return sum((product[x + i, y + j] for i in (-1, 0, 1) for j in (-1, 0, 1)), hl.f32(0))

    ix[x, y] = derivative(1, 0)
    iy[x, y] = derivative(0, 1)
    ixx, iyy, ixy, sxx, syy, sxy = (hl.Func(name) for name in ("ixx", "iyy", "ixy", "sxx", "syy", "sxy"))
    ixx[x, y] = ix[x, y] * ix[x, y]
    iyy[x, y] = iy[x, y] * iy[x, y]
    ixy[x, y] = ix[x, y] * iy[x, y]
    sxx[x, y], syy[x, y], sxy[x, y] = sum_3x3(ixx), sum_3x3(iyy), sum_3x3(ixy)

    det, trace, corners, output = (hl.Func(name) for name in ("det", "trace", "corners", "output"))
    det[x, y] = sxx[x, y] * syy[x, y] - sxy[x, y] * sxy[x, y]
    trace[x, y] = sxx[x, y] + syy[x, y]
    corners[x, y] = det[x, y] - hl.f32(0.04) * trace[x, y] * trace[x, y]
    output[x, y] = corners[x + 3, y + 3]

    if manual:
        lanes = hl.get_jit_target_from_environment().natural_vector_size(hl.Float(32))
        output.split(y, y, yi, 32).parallel(y).vectorize(x, lanes)
        # Rounding the width up would read past the end of a row.
        gray.store_at(output, y).compute_at(output, yi).vectorize(x, lanes, hl.TailStrategy.ShiftInwards)
        for stage in (ix, iy):
            stage.store_at(output, y).compute_at(output, yi).vectorize(x, lanes, hl.TailStrategy.ShiftInwards)
        ix.compute_with(iy, x)
    _, h, w = rgb.shape
    return Program(output, [source], [on_deep_stack(rgb)], (h - 6, w - 6), np.float32)


def on_deep_stack(image: np.ndarray) -> np.ndarray:
    """A copy with rows to spare around it: Adams2019's schedule reads three rows ahead of the image."""
    room = SPARE_ROWS * image.shape[-1]
    whole = _rooms.setdefault(image.shape, np.zeros(image.size + 2 * room, image.dtype))
    copy = whole[room:-room].reshape(image.shape)
    copy[...] = image
    return copy
