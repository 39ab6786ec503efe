"""`benchmarks.apps.bilateral_grid` in numba: a cell's bins are contiguous, with sums and counts interleaved."""

from __future__ import annotations

import time

import numba
import numpy as np

from benchmarks.peers import Compiled


@numba.njit(inline="always")
def taps(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray, e: np.ndarray, out: np.ndarray) -> None:
    for n in range(out.size):
        out[n] = a[n] + np.float32(4) * b[n] + np.float32(6) * c[n] + np.float32(4) * d[n] + e[n]


@numba.njit(parallel=True, fastmath=True, error_model="numpy")
def bilateral_grid(img: np.ndarray, scale: np.float32, s: int, bins: int, out: np.ndarray) -> None:
    height, width = img.shape
    rows, cols = (height - 1) // s + 6, (width - 1) // s + 6
    before = 2 * s + s // 2
    blurx = np.empty((rows, cols - 4, 2 * bins + 2), np.float32)
    for row in numba.prange(rows):
        histogram = np.zeros((cols, 2 * bins + 10), np.float32)
        for y in range(row * s - before, (row + 1) * s - before):
            source = img[min(max(y, 0), height - 1)]
            for col in range(cols):
                cell = histogram[col]
                for x in range(col * s - before, (col + 1) * s - before):
                    value = min(max(source[min(max(x, 0), width - 1)], np.float32(0)), np.float32(1))
                    depth = 2 * np.int64(np.int32(value * scale + np.float32(0.5))) + 4
                    cell[depth] += value
                    cell[depth + 1] += np.float32(1)
        blurz = np.empty((cols, 2 * bins + 2), np.float32)
        for col in range(cols):
            h = histogram[col]
            taps(h, h[2:], h[4:], h[6:], h[8:], blurz[col])
        for col in range(cols - 4):
            taps(blurz[col], blurz[col + 1], blurz[col + 2], blurz[col + 3], blurz[col + 4], blurx[row, col])

    blury = np.empty((rows - 4, cols - 4, 2 * bins + 2), np.float32)
    for row in numba.prange(rows - 4):
        for col in range(cols - 4):
            taps(
                blurx[row, col],
                blurx[row + 1, col],
                blurx[row + 2, col],
                blurx[row + 3, col],
                blurx[row + 4, col],
                blury[row, col],
            )

    for strip in numba.prange(rows - 5):
        grid = np.empty((cols - 4, 2 * bins + 2), np.float32)
        for y in range(strip * s, min((strip + 1) * s, height)):
            yf = np.float32(y - strip * s) / np.float32(s)
            for col in range(cols - 4):
                above, below, row = blury[strip, col], blury[strip + 1, col], grid[col]
                for n in range(row.size):
                    row[n] = above[n] + yf * (below[n] - above[n])
            for col in range(cols - 5):
                left, right = grid[col], grid[col + 1]
                for x in range(col * s, min((col + 1) * s, width)):
                    xf = np.float32(x - col * s) / np.float32(s)
                    position = min(max(img[y, x], np.float32(0)), np.float32(1)) * scale
                    zi = np.int32(position)
                    zf, n = position - np.float32(zi), 2 * np.int64(zi)
                    total = left[n] + xf * (right[n] - left[n])
                    weight = left[n + 1] + xf * (right[n + 1] - left[n + 1])
                    total += zf * (left[n + 2] + xf * (right[n + 2] - left[n + 2]) - total)
                    weight += zf * (left[n + 3] + xf * (right[n + 3] - left[n + 3]) - weight)
                    out[y, x] = total / weight


def build(arguments: tuple, threads: int) -> Compiled:
    img, r_sigma, s_sigma = arguments
    begin = time.perf_counter()
    numba.set_num_threads(threads)
    rest = np.float32(1 / r_sigma), s_sigma, int(1 / r_sigma + 0.5) + 1
    bilateral_grid.compile(tuple(numba.typeof(argument) for argument in (img, *rest, img)))

    def run(out: np.ndarray) -> None:
        numba.set_num_threads(threads)
        bilateral_grid(img, *rest, out)

    return Compiled(run, img.shape, img.dtype, time.perf_counter() - begin)
