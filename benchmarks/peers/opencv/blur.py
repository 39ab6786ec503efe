"""`benchmarks.apps.blur` in OpenCV.

`cv2.blur` neither wraps nor rounds down as the app does. So each sum is made of whole numbers, its low 16 bits are
kept, and a third of what is one less rounds to the quotient.
"""

from __future__ import annotations

import time

import cv2
import numpy as np

from benchmarks.peers import Compiled


def build(arguments: tuple, threads: int) -> Compiled:
    (img,) = arguments
    height, width = img.shape
    begin = time.perf_counter()
    cv2.setNumThreads(threads)
    sums = np.empty((height, width - 2), np.int32)
    blur_x = np.empty((height, width - 2), np.uint16)

    def run(out: np.ndarray) -> None:
        whole = cv2.boxFilter(img, cv2.CV_32S, (3, 1), normalize=False)[:, 1:-1]
        cv2.bitwise_and(whole, 0xFFFF, dst=sums)
        cv2.addWeighted(sums, 1 / 3, sums, 0, -1 / 3, dst=blur_x, dtype=cv2.CV_16U)
        whole = cv2.boxFilter(blur_x, cv2.CV_32S, (1, 3), normalize=False)[1:-1]
        cv2.bitwise_and(whole, 0xFFFF, dst=sums[:-2])
        cv2.addWeighted(sums[:-2], 1 / 3, sums[:-2], 0, -1 / 3, dst=out, dtype=cv2.CV_16U)

    return Compiled(run, (height - 2, width - 2), img.dtype, time.perf_counter() - begin)
