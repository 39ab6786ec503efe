"""`benchmarks.apps.harris` in OpenCV, of its derivatives and box sums: `cv2.cornerHarris` scales otherwise."""

from __future__ import annotations

import time

import cv2
import numpy as np

from benchmarks.peers import Compiled


def build(arguments: tuple, threads: int) -> Compiled:
    (rgb,) = arguments
    _, height, width = rgb.shape
    begin = time.perf_counter()
    cv2.setNumThreads(threads)
    gray, ix, iy, xx, yy, xy = (np.empty((height, width), np.float32) for _ in range(6))
    red, green, blue = rgb

    def run(out: np.ndarray) -> None:
        cv2.addWeighted(red, 0.299, green, 0.587, 0, dst=gray)
        cv2.scaleAdd(blue, 0.114, gray, dst=gray)
        cv2.Sobel(gray, cv2.CV_32F, 1, 0, dst=ix, ksize=3, scale=1 / 12)
        cv2.Sobel(gray, cv2.CV_32F, 0, 1, dst=iy, ksize=3, scale=1 / 12)
        cv2.multiply(ix, iy, dst=xy)
        cv2.multiply(ix, ix, dst=xx)
        cv2.multiply(iy, iy, dst=yy)
        for product in (xx, yy, xy):
            cv2.boxFilter(product, cv2.CV_32F, (3, 3), dst=product, normalize=False)
        sxx, syy, sxy = xx[3:-3, 3:-3], yy[3:-3, 3:-3], xy[3:-3, 3:-3]
        trace = cv2.add(sxx, syy, dst=ix[3:-3, 3:-3])
        cv2.multiply(trace, trace, dst=trace, scale=0.04)
        cv2.multiply(sxy, sxy, dst=sxy)
        cv2.multiply(sxx, syy, dst=out)
        cv2.subtract(out, sxy, dst=out)
        cv2.subtract(out, trace, dst=out)

    return Compiled(run, (height - 6, width - 6), rgb.dtype, time.perf_counter() - begin)
