"""`benchmarks.apps.stencil_chain` in OpenCV.

The weights are the product of 1 to 5 along each axis, and no sum exceeds 2^24: float32 holds it exactly. OpenCV's own
conversion to 16 bits saturates, so NumPy takes the low ones.
"""

from __future__ import annotations

import time

import cv2
import numpy as np

from benchmarks.apps.stencil_chain import STENCILS
from benchmarks.peers import Compiled


def build(arguments: tuple, threads: int) -> Compiled:
    (img,) = arguments
    begin = time.perf_counter()
    cv2.setNumThreads(threads)
    weights = np.arange(1, 6, dtype=np.float32)
    border = 2 * STENCILS
    padded = tuple(extent + 2 * border for extent in img.shape)
    stages, sums, words = np.empty(padded, np.uint16), np.empty(padded, np.float32), np.empty(padded, np.int32)

    def run(out: np.ndarray) -> None:
        stage = cv2.copyMakeBorder(img, border, border, border, border, cv2.BORDER_REPLICATE, dst=stages)
        for k in range(STENCILS):
            h, w = stage.shape
            cv2.sepFilter2D(stage, cv2.CV_32F, weights, weights, dst=sums[:h, :w])
            whole, stage = words[: h - 4, : w - 4], out if k == STENCILS - 1 else stages[: h - 4, : w - 4]
            np.copyto(whole, sums[2 : h - 2, 2 : w - 2], casting="unsafe")
            np.copyto(stage, whole, casting="unsafe")

    return Compiled(run, img.shape, img.dtype, time.perf_counter() - begin)
