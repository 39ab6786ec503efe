"""`benchmarks.apps.blur` in numba: strips of rows, each with the last three rows of the horizontal blur at hand."""

from __future__ import annotations

import time

import numba
import numpy as np

from benchmarks.peers import Compiled

STRIP = 32


@numba.njit(parallel=True, fastmath=True, error_model="numpy")
def blur(img: np.ndarray, out: np.ndarray) -> None:
    height, width = out.shape
    for strip in numba.prange((height + STRIP - 1) // STRIP):
        blur_x = np.empty((3, width), np.uint16)
        first, last = strip * STRIP, min((strip + 1) * STRIP, height)
        for y in range(first, last + 2):
            source, row = img[y], blur_x[y % 3]
            for x in range(width):
                row[x] = np.uint16(source[x] + source[x + 1] + source[x + 2]) // 3
            if y >= first + 2:
                a, b, target = blur_x[(y - 2) % 3], blur_x[(y - 1) % 3], out[y - 2]
                for x in range(width):
                    target[x] = np.uint16(a[x] + b[x] + row[x]) // 3


def build(arguments: tuple, threads: int) -> Compiled:
    (img,) = arguments
    begin = time.perf_counter()
    numba.set_num_threads(threads)
    height, width = img.shape
    blur.compile(tuple(numba.typeof(array) for array in (img, img)))

    def run(out: np.ndarray) -> None:
        numba.set_num_threads(threads)
        blur(img, out)

    return Compiled(run, (height - 2, width - 2), img.dtype, time.perf_counter() - begin)
