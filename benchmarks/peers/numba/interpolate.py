"""`benchmarks.apps.interpolate` in numba: by rows, vertically first; the premultiplied image is never stored."""

from __future__ import annotations

import itertools
import time

import numba
import numpy as np

from benchmarks.peers import Compiled

HALF, QUARTER = np.float32(0.5), np.float32(0.25)


@numba.njit(inline="always")
def halve(column: np.ndarray, width: int, out: np.ndarray) -> None:
    """Every other sample of `column`, whose index 1 is the first of a row of `width`; extends it by its edge."""
    column[0] = column[1]
    column[width + 1] = column[width + 2] = column[width]
    for x in range(out.size):
        out[x] = (column[2 * x] + np.float32(2) * column[2 * x + 1] + column[2 * x + 2]) * QUARTER


@numba.njit(parallel=True, fastmath=True, error_model="numpy")
def downsample_first(img: np.ndarray, out: np.ndarray) -> None:
    _, height, width = img.shape
    for y in numba.prange(out.shape[1]):
        column = np.empty(width + 3, np.float32)
        above, here, below = max(2 * y - 1, 0), min(2 * y, height - 1), min(2 * y + 1, height - 1)
        for c in range(3):
            for x in range(width):
                a, b, d = (
                    img[c, above, x] * img[3, above, x],
                    img[c, here, x] * img[3, here, x],
                    img[c, below, x] * img[3, below, x],
                )
                column[x + 1] = (a + np.float32(2) * b + d) * QUARTER
            halve(column, width, out[c, y])
        for x in range(width):
            column[x + 1] = (img[3, above, x] + np.float32(2) * img[3, here, x] + img[3, below, x]) * QUARTER
        halve(column, width, out[3, y])


@numba.njit(parallel=True, fastmath=True, error_model="numpy")
def downsample(img: np.ndarray, out: np.ndarray) -> None:
    _, height, width = img.shape
    for y in numba.prange(out.shape[1]):
        column = np.empty(width + 3, np.float32)
        above, here, below = max(2 * y - 1, 0), min(2 * y, height - 1), min(2 * y + 1, height - 1)
        for c in range(4):
            for x in range(width):
                column[x + 1] = (img[c, above, x] + np.float32(2) * img[c, here, x] + img[c, below, x]) * QUARTER
            halve(column, width, out[c, y])


@numba.njit(inline="always")
def double(coarse: np.ndarray, y: int, width: int, column: np.ndarray, up: np.ndarray) -> None:
    """Row y of one channel, upsampled."""
    above, below = coarse[y // 2], coarse[(y + 1) // 2]
    for x in range(above.size):
        column[x] = (above[x] + below[x]) * HALF
    for x in range(width // 2):
        up[2 * x] = column[x]
        up[2 * x + 1] = (column[x] + column[x + 1]) * HALF
    if width % 2:
        up[width - 1] = column[width // 2]


@numba.njit(parallel=True, fastmath=True, error_model="numpy")
def fill(down: np.ndarray, coarse: np.ndarray) -> None:
    """In place of `down`."""
    _, height, width = down.shape
    for y in numba.prange(height):
        column, up, keep = (
            np.empty(coarse.shape[2], np.float32),
            np.empty(width, np.float32),
            np.empty(width, np.float32),
        )
        for x in range(width):
            keep[x] = np.float32(1) - down[3, y, x]
        for c in range(4):
            double(coarse[c], y, width, column, up)
            for x in range(width):
                down[c, y, x] += keep[x] * up[x]


@numba.njit(parallel=True, fastmath=True, error_model="numpy")
def fill_last(img: np.ndarray, coarse: np.ndarray, out: np.ndarray) -> None:
    _, height, width = img.shape
    for y in numba.prange(height):
        column, up, scale = (
            np.empty(coarse.shape[2], np.float32),
            np.empty(width, np.float32),
            np.empty(width, np.float32),
        )
        double(coarse[3], y, width, column, up)
        for x in range(width):
            alpha = img[3, y, x]
            scale[x] = np.float32(1) / (alpha + (np.float32(1) - alpha) * up[x])
        for c in range(3):
            double(coarse[c], y, width, column, up)
            for x in range(width):
                alpha = img[3, y, x]
                out[c, y, x] = (img[c, y, x] * alpha + (np.float32(1) - alpha) * up[x]) * scale[x]


def build(arguments: tuple, threads: int) -> Compiled:
    img, levels = arguments
    begin = time.perf_counter()
    numba.set_num_threads(threads)
    _, height, width = img.shape
    pyramid, h, w = [], height, width
    for _ in range(1, levels):
        h, w = h // 2 + 1, w // 2 + 1
        pyramid.append(np.empty((4, h, w), np.float32))
    array = numba.typeof(img)
    for function in (downsample_first, downsample, fill):
        function.compile((array, array))
    fill_last.compile((array, array, array))

    def run(out: np.ndarray) -> None:
        numba.set_num_threads(threads)
        downsample_first(img, pyramid[0])
        for fine, coarse in itertools.pairwise(pyramid):
            downsample(fine, coarse)
        for coarse, fine in itertools.pairwise(reversed(pyramid)):
            fill(fine, coarse)
        fill_last(img, pyramid[0], out)

    return Compiled(run, (3, height, width), img.dtype, time.perf_counter() - begin)
