"""Fill the transparent parts of an image from their surroundings, through a pyramid of premultiplied colours.

Source: Halide's `apps/interpolate`; S. Gortler et al., "The lumigraph" (1996), section 3.4 (pull-push). Every level
repeats its own edge, where Halide's app does so at two of them.
"""

from __future__ import annotations

import numpy as np

SHAPE = (4, 2560, 1536)
SMALL = (4, 203, 166)
LEVELS = 10
TOLERANCE = (1e-4, 1e-6)


def downsample(img: np.ndarray) -> np.ndarray:
    """(C, H, W) -> (C, H // 2 + 1, W // 2 + 1): the taps 1 2 1 around every other sample."""
    _, h, w = img.shape
    p = np.pad(img, ((0, 0), (1, 2), (1, 2)), mode="edge")
    ny, nx = 2 * (h // 2) + 1, 2 * (w // 2) + 1
    downx = (p[:, :, :nx:2] + 2.0 * p[:, :, 1 : nx + 1 : 2] + p[:, :, 2 : nx + 2 : 2]) * 0.25
    return (downx[:, :ny:2] + 2.0 * downx[:, 1 : ny + 1 : 2] + downx[:, 2 : ny + 2 : 2]) * 0.25


def upsample(img: np.ndarray, h: int, w: int) -> np.ndarray:
    """(C, h // 2 + 1, w // 2 + 1) -> (C, h, w): the samples themselves, and the means of neighbours between them."""
    twice_x = np.repeat(img, 2, axis=2)
    upx = (twice_x[:, :, :w] + twice_x[:, :, 1 : w + 1]) / 2.0
    twice_y = np.repeat(upx, 2, axis=1)
    return (twice_y[:, :h] + twice_y[:, 1 : h + 1]) / 2.0


def interpolate(img: np.ndarray, levels: int = LEVELS) -> np.ndarray:
    """float32 (4, H, W), red, green, blue and alpha -> float32 (3, H, W)."""
    premultiplied = np.concatenate([img[:3] * img[3], img[3:]])
    pyramid = [premultiplied]
    for _ in range(1, levels):
        pyramid.append(downsample(pyramid[-1]))

    filled = pyramid[-1]
    for down in reversed(pyramid[:-1]):
        up = upsample(filled, *down.shape[1:])
        filled = down + (1.0 - down[3]) * up
    return filled[:3] / filled[3]


def inputs(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray, int]:
    """A random image with random alpha, float32 (4, H, W), and the number of levels."""
    return rng.random(shape, np.float32), LEVELS
