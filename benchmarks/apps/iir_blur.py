"""A recursive low-pass filter of first order, run down and up the columns, then along and against the rows.

Source: Halide's `apps/iir_blur`.
"""

from __future__ import annotations

import numpy as np

SHAPE = (3, 2560, 1536)
SMALL = (3, 38, 53)
TOLERANCE = (1e-5, 1e-6)


def blur_columns(img: np.ndarray, alpha: float) -> np.ndarray:
    """The filter along axis 1, forth and back."""
    height = img.shape[1]
    blurred = img.copy()
    for y in range(1, height):
        blurred[:, y] = alpha * img[:, y] + (1 - alpha) * blurred[:, y - 1]
    for y in range(height - 2, -1, -1):
        blurred[:, y] = alpha * blurred[:, y] + (1 - alpha) * blurred[:, y + 1]
    return blurred


def iir_blur(img: np.ndarray, alpha: float = 0.5) -> np.ndarray:
    """float32 (C, H, W) -> float32 (C, H, W); `alpha` is the weight of what enters the filter."""
    blur_y = blur_columns(img, alpha)
    blur_x = blur_columns(blur_y.swapaxes(1, 2), alpha)
    return np.ascontiguousarray(blur_x.swapaxes(1, 2))


def inputs(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray, float]:
    """A random image, float32 (C, H, W), and alpha."""
    return rng.random(shape, np.float32), 0.5
