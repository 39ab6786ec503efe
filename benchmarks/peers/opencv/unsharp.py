"""`benchmarks.apps.unsharp` in OpenCV."""

from __future__ import annotations

import time

import cv2
import numpy as np

from benchmarks.apps.unsharp import gaussian_taps
from benchmarks.peers import Compiled


def build(arguments: tuple, threads: int) -> Compiled:
    rgb, sigma = arguments
    begin = time.perf_counter()
    cv2.setNumThreads(threads)
    taps = gaussian_taps(sigma)
    kernel = np.array(taps[:0:-1] + taps, np.float32)
    gray, blurred = (np.empty(rgb.shape[1:], np.float32) for _ in range(2))
    red, green, blue = rgb

    def run(out: np.ndarray) -> None:
        cv2.addWeighted(red, 0.299, green, 0.587, 0, dst=gray)
        cv2.scaleAdd(blue, 0.114, gray, dst=gray)
        cv2.sepFilter2D(gray, cv2.CV_32F, kernel, kernel, dst=blurred, borderType=cv2.BORDER_REPLICATE)
        cv2.addWeighted(gray, 2, blurred, -1, 0, dst=blurred)
        ratio = cv2.divide(blurred, gray, dst=blurred)
        for channel, target in zip(rgb, out, strict=True):
            cv2.multiply(ratio, channel, dst=target)

    return Compiled(run, rgb.shape, rgb.dtype, time.perf_counter() - begin)
