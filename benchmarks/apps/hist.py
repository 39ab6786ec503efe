"""Histogram equalisation of a colour image: luma is equalised, chroma is kept.

Source: Halide's `apps/hist`.
"""

from __future__ import annotations

import numpy as np

SHAPE = (3, 2560, 1536)
SMALL = (3, 45, 83)
# One luma in a thousand is an integer but for rounding, and may come to lie in the next bin.
TOLERANCE = (0.0, 4.0)


def hist(rgb: np.ndarray) -> np.ndarray:
    """uint8 (3, H, W) -> uint8 (3, H, W)."""
    r, g, b = rgb.astype(np.float32)
    luma = 0.299 * r + 0.587 * g + 0.114 * b
    cr = (r - luma) * 0.713 + 128
    cb = (b - luma) * 0.564 + 128

    bins = np.clip(luma, 0, 255).astype(np.uint8)
    histogram = np.bincount(bins.ravel(), minlength=256)
    cdf = np.cumsum(histogram)
    curve = np.clip(cdf.astype(np.float32) * (255 / luma.size), 0, 255)
    equalised = curve[bins]

    red = equalised + (cr - 128) * 1.4
    green = equalised - 0.343 * (cb - 128) - 0.711 * (cr - 128)
    blue = equalised + 1.765 * (cb - 128)
    return np.clip(np.stack([red, green, blue]), 0, 255).astype(np.uint8)


def inputs(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray]:
    """A random image, uint8 (3, H, W)."""
    return (rng.integers(0, 256, shape, np.uint8),)
