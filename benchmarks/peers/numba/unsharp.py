"""`benchmarks.apps.unsharp` in numba: strips of rows, each with its own luma."""

from __future__ import annotations

import time

import numba
import numpy as np

from benchmarks.apps.unsharp import gaussian_taps
from benchmarks.peers import Compiled

STRIP = 32


@numba.njit(parallel=True, fastmath=True, error_model="numpy")
def unsharp(rgb: np.ndarray, taps: tuple[np.float32, ...], out: np.ndarray) -> None:
    _, height, width = rgb.shape
    t0, t1, t2, t3 = taps
    to_red, to_green, to_blue, two = np.float32(0.299), np.float32(0.587), np.float32(0.114), np.float32(2)
    for strip in numba.prange((height + STRIP - 1) // STRIP):
        gray = np.empty((STRIP + 6, width), np.float32)
        blur_y = np.empty(width + 6, np.float32)
        ratio = np.empty(width, np.float32)
        first, last = strip * STRIP, min((strip + 1) * STRIP, height)
        for k in range(last - first + 6):
            y = min(max(first + k - 3, 0), height - 1)
            red, green, blue, row = rgb[0, y], rgb[1, y], rgb[2, y], gray[k]
            for x in range(width):
                row[x] = to_red * red[x] + to_green * green[x] + to_blue * blue[x]
        for y in range(first, last):
            k = y - first + 3
            a3, a2, a1, middle, b1, b2, b3 = (
                gray[k - 3],
                gray[k - 2],
                gray[k - 1],
                gray[k],
                gray[k + 1],
                gray[k + 2],
                gray[k + 3],
            )
            for x in range(width):
                blur_y[x + 3] = t0 * middle[x] + t1 * (a1[x] + b1[x]) + t2 * (a2[x] + b2[x]) + t3 * (a3[x] + b3[x])
            blur_y[:3] = blur_y[3]
            blur_y[width + 3 :] = blur_y[width + 2]
            for x in range(width):
                near = t0 * blur_y[x + 3] + t1 * (blur_y[x + 2] + blur_y[x + 4])
                blurred = near + t2 * (blur_y[x + 1] + blur_y[x + 5]) + t3 * (blur_y[x] + blur_y[x + 6])
                ratio[x] = (two * middle[x] - blurred) / middle[x]
            for c in range(3):
                source, target = rgb[c, y], out[c, y]
                for x in range(width):
                    target[x] = ratio[x] * source[x]


def build(arguments: tuple, threads: int) -> Compiled:
    rgb, sigma = arguments
    begin = time.perf_counter()
    numba.set_num_threads(threads)
    taps = tuple(np.array(gaussian_taps(sigma), np.float32))
    unsharp.compile((numba.typeof(rgb), numba.typeof(taps), numba.typeof(rgb)))

    def run(out: np.ndarray) -> None:
        numba.set_num_threads(threads)
        unsharp(rgb, taps, out)

    return Compiled(run, rgb.shape, rgb.dtype, time.perf_counter() - begin)
