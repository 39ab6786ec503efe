"""`benchmarks.apps.max_filter` in OpenCV: `dilate`, which skips what is outside the disc but makes no runs of it."""

from __future__ import annotations

import time

import cv2
import numpy as np

from benchmarks.apps.max_filter import run_reach
from benchmarks.peers import Compiled

RADIUS = 26


def build(arguments: tuple, threads: int) -> Compiled:
    (img,) = arguments
    begin = time.perf_counter()
    cv2.setNumThreads(threads)
    reaches = np.array([run_reach(dx, RADIUS) for dx in range(-RADIUS, RADIUS + 1)])
    tallest = reaches.max()
    disc = (np.abs(np.arange(-tallest, tallest + 1))[:, None] <= reaches).astype(np.uint8)

    def run(out: np.ndarray) -> None:
        for channel, result in zip(img, out, strict=True):
            cv2.dilate(channel, disc, dst=result, borderType=cv2.BORDER_REPLICATE)

    return Compiled(run, img.shape, img.dtype, time.perf_counter() - begin)
