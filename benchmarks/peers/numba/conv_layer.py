"""`benchmarks.apps.conv_layer` in numba: short runs of pixels, whose sums and slice of the filters stay in L1."""

from __future__ import annotations

import time

import numba
import numpy as np

from benchmarks.peers import Compiled

RUN = 20


@numba.njit(parallel=True, fastmath=True, error_model="numpy")
def conv_layer(images: np.ndarray, filters: np.ndarray, bias: np.ndarray, out: np.ndarray) -> None:
    """Two pixels by four channels at a time, for results at least two pixels wide."""
    count, height, width, channels = out.shape
    deep = images.shape[3]
    whole = deep - deep % 4
    run = min(RUN, width - width % 2)
    for row in numba.prange(count * height):
        n, y = row // height, row % height
        sums = np.empty((run, channels), np.float32)
        for begin in range(0, width, run):
            first = min(begin, width - run)
            for p in range(run):
                for c in range(channels):
                    sums[p, c] = bias[c]
            for dy in range(3):
                for dx in range(3):
                    # whole arrays with all their indices: a view would cost a reference count at every turn
                    for k in range(0, whole, 4):
                        for p in range(0, run, 2):
                            v, x = y + dy, first + p + dx
                            a0, a1, a2, a3 = (
                                images[n, v, x, k],
                                images[n, v, x, k + 1],
                                images[n, v, x, k + 2],
                                images[n, v, x, k + 3],
                            )
                            x += 1
                            b0, b1, b2, b3 = (
                                images[n, v, x, k],
                                images[n, v, x, k + 1],
                                images[n, v, x, k + 2],
                                images[n, v, x, k + 3],
                            )
                            for c in range(channels):
                                f0, f1 = filters[dy, dx, k, c], filters[dy, dx, k + 1, c]
                                f2, f3 = filters[dy, dx, k + 2, c], filters[dy, dx, k + 3, c]
                                sums[p, c] += a0 * f0 + a1 * f1 + a2 * f2 + a3 * f3
                                sums[p + 1, c] += b0 * f0 + b1 * f1 + b2 * f2 + b3 * f3
                    for k in range(whole, deep):
                        for p in range(run):
                            value = images[n, y + dy, first + p + dx, k]
                            for c in range(channels):
                                sums[p, c] += value * filters[dy, dx, k, c]
            for p in range(run):
                for c in range(channels):
                    out[n, y, first + p, c] = max(sums[p, c], np.float32(0))


def build(arguments: tuple, threads: int) -> Compiled:
    images, filters, bias = arguments
    begin = time.perf_counter()
    numba.set_num_threads(threads)
    n, h, w, _ = images.shape
    conv_layer.compile(tuple(numba.typeof(array) for array in (images, filters, bias, images)))

    def run(out: np.ndarray) -> None:
        numba.set_num_threads(threads)
        conv_layer(images, filters, bias, out)

    return Compiled(run, (n, h - 2, w - 2, bias.size), images.dtype, time.perf_counter() - begin)
