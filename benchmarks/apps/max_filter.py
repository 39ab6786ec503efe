"""The maximum over a disc around every pixel: grey dilation by a circular support, with the edges repeated.

Source: Halide's `apps/max_filter`. The disc is a row of vertical runs. The maximum of a run of any length is that of
two overlapping runs whose length is a power of two, and those are made by doubling.
"""

from __future__ import annotations

import numpy as np

SHAPE = (3, 2560, 1536)
SMALL = (3, 61, 83)
TOLERANCE = (0.0, 0.0)


def run_reach(dx: int, radius: int) -> int:
    """How many rows the disc reaches up and down, `dx` columns off its centre."""
    return sum(dx * dx + dy * dy < (radius + 0.25) ** 2 for dy in range(radius + 1))


def max_filter(img: np.ndarray, radius: int = 26) -> np.ndarray:
    """float32 (C, H, W) -> float32 (C, H, W)."""
    _, height, width = img.shape
    tallest = run_reach(0, radius)
    padded = np.pad(img, ((0, 0), (tallest, tallest), (radius, radius)), mode="edge")

    # runs[k][:, y] is the maximum of the 2**k rows from y on
    runs = [padded]
    for k in range((2 * tallest + 1).bit_length() - 1):
        runs.append(np.maximum(runs[k][:, : -(1 << k)], runs[k][:, 1 << k :]))

    out = img
    for dx in range(radius + 1):
        reach = run_reach(dx, radius)
        level = (2 * reach + 1).bit_length() - 1
        first, second = tallest - reach, tallest + reach + 1 - (1 << level)
        run = np.maximum(runs[level][:, first : first + height], runs[level][:, second : second + height])
        both = np.maximum(run[:, :, radius - dx : radius - dx + width], run[:, :, radius + dx : radius + dx + width])
        out = np.maximum(out, both)
    return out


def inputs(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray]:
    """A random image, float32 (C, H, W)."""
    return (rng.random(shape, np.float32),)
