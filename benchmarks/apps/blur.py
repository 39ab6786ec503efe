"""A 3x3 box blur of a 16-bit image, only where the whole window is inside.

Source: Halide's `apps/blur`; J. Ragan-Kelley et al., "Decoupling algorithms from schedules" (2012), figure 1.
"""

from __future__ import annotations

import numpy as np

SHAPE = (1538, 2562)
SMALL = (38, 83)
TOLERANCE = (0.0, 0.0)


def blur(img: np.ndarray) -> np.ndarray:
    """uint16 (H, W) -> uint16 (H - 2, W - 2); sums wrap as uint16 does."""
    blur_x = (img[:, :-2] + img[:, 1:-1] + img[:, 2:]) // 3
    return (blur_x[:-2] + blur_x[1:-1] + blur_x[2:]) // 3


def inputs(rng: np.random.Generator, shape: tuple[int, int] = SHAPE) -> tuple[np.ndarray]:
    """A random image, uint16 (H, W)."""
    return (rng.integers(0, 1 << 16, shape, np.uint16),)
