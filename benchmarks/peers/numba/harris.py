"""`benchmarks.apps.harris` in numba: strips of rows, each with its own luma and gradients."""

from __future__ import annotations

import time

import numba
import numpy as np

from benchmarks.peers import Compiled

STRIP = 32


@numba.njit(parallel=True, fastmath=True, error_model="numpy")
def harris(rgb: np.ndarray, out: np.ndarray) -> None:
    height, width = out.shape
    to_red, to_green, to_blue = np.float32(0.299), np.float32(0.587), np.float32(0.114)
    two, twelfth, k = np.float32(2), np.float32(1 / 12), np.float32(0.04)
    for strip in numba.prange((height + STRIP - 1) // STRIP):
        # out[y, x] is at rgb[:, y + 3, x + 3]; gray[0] at row `first + 1`, ix[0] and iy[0] at row `first + 2`.
        gray = np.empty((STRIP + 4, width + 6), np.float32)
        ix = np.empty((STRIP + 2, width + 2), np.float32)
        iy = np.empty((STRIP + 2, width + 2), np.float32)
        vxx, vyy, vxy = (
            np.empty(width + 2, np.float32),
            np.empty(width + 2, np.float32),
            np.empty(width + 2, np.float32),
        )
        first, last = strip * STRIP, min((strip + 1) * STRIP, height)
        rows = last - first
        for j in range(rows + 4):
            red, green, blue, row = rgb[0, first + 1 + j], rgb[1, first + 1 + j], rgb[2, first + 1 + j], gray[j]
            for x in range(width + 6):
                row[x] = to_red * red[x] + to_green * green[x] + to_blue * blue[x]
        for j in range(rows + 2):
            up, middle, down, gx, gy = gray[j], gray[j + 1], gray[j + 2], ix[j], iy[j]
            for x in range(width + 2):
                gx[x] = (
                    up[x + 3] - up[x + 1] + two * (middle[x + 3] - middle[x + 1]) + down[x + 3] - down[x + 1]
                ) * twelfth
                gy[x] = (down[x + 1] - up[x + 1] + two * (down[x + 2] - up[x + 2]) + down[x + 3] - up[x + 3]) * twelfth
        for j in range(rows):
            x0, x1, x2, y0, y1, y2, target = ix[j], ix[j + 1], ix[j + 2], iy[j], iy[j + 1], iy[j + 2], out[first + j]
            for x in range(width + 2):
                vxx[x] = x0[x] * x0[x] + x1[x] * x1[x] + x2[x] * x2[x]
                vyy[x] = y0[x] * y0[x] + y1[x] * y1[x] + y2[x] * y2[x]
                vxy[x] = x0[x] * y0[x] + x1[x] * y1[x] + x2[x] * y2[x]
            for x in range(width):
                sxx = vxx[x] + vxx[x + 1] + vxx[x + 2]
                syy = vyy[x] + vyy[x + 1] + vyy[x + 2]
                sxy = vxy[x] + vxy[x + 1] + vxy[x + 2]
                trace = sxx + syy
                target[x] = sxx * syy - sxy * sxy - k * trace * trace


def build(arguments: tuple, threads: int) -> Compiled:
    (rgb,) = arguments
    begin = time.perf_counter()
    numba.set_num_threads(threads)
    _, height, width = rgb.shape
    shape = height - 6, width - 6
    harris.compile((numba.typeof(rgb), numba.typeof(rgb[0])))

    def run(out: np.ndarray) -> None:
        numba.set_num_threads(threads)
        harris(rgb, out)

    return Compiled(run, shape, rgb.dtype, time.perf_counter() - begin)
