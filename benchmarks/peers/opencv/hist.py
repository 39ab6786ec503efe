"""`benchmarks.apps.hist` in OpenCV.

OpenCV rounds where the app truncates. Luma is a multiple of 1/1000: less 0.4995, it rounds to its whole part.
"""

from __future__ import annotations

import time

import cv2
import numpy as np

from benchmarks.peers import Compiled


def build(arguments: tuple, threads: int) -> Compiled:
    (rgb,) = arguments
    begin = time.perf_counter()
    cv2.setNumThreads(threads)
    red, green, blue = rgb
    luma, cr, cb, equalised = (np.empty(red.shape, np.float32) for _ in range(4))
    bins = np.empty(red.shape, np.uint8)

    def run(out: np.ndarray) -> None:
        cv2.addWeighted(red, 0.299, green, 0.587, 0, dst=luma, dtype=cv2.CV_32F)
        cv2.addWeighted(luma, 1, blue, 0.114, 0, dst=luma, dtype=cv2.CV_32F)
        cv2.addWeighted(luma, 1, luma, 0, -0.4995, dst=bins, dtype=cv2.CV_8U)
        histogram = cv2.calcHist([bins], [0], None, [256], [0, 256])
        curve = np.clip(np.cumsum(histogram) * np.float32(255 / red.size), 0, 255)
        cv2.LUT(bins, curve, dst=equalised)
        cv2.subtract(red, luma, dst=cr, dtype=cv2.CV_32F)
        cv2.subtract(blue, luma, dst=cb, dtype=cv2.CV_32F)
        cv2.addWeighted(equalised, 1, cr, 0.713 * 1.4, -0.5, dst=out[0], dtype=cv2.CV_8U)
        cv2.addWeighted(equalised, 1, cb, 0.564 * 1.765, -0.5, dst=out[2], dtype=cv2.CV_8U)
        cv2.scaleAdd(cb, -0.343 * 0.564, equalised, dst=equalised)
        cv2.addWeighted(equalised, 1, cr, -0.711 * 0.713, -0.5, dst=out[1], dtype=cv2.CV_8U)

    return Compiled(run, rgb.shape, rgb.dtype, time.perf_counter() - begin)
