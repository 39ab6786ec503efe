"""A chain of 32 weighted 5x5 sums of a 16-bit image, whose edge pixels are repeated outside of it.

Source: Halide's `apps/stencil_chain`.
"""

from __future__ import annotations

import numpy as np

SHAPE = (2560, 1536)
SMALL = (45, 77)
TOLERANCE = (0.0, 0.0)

STENCILS = 32


def stencil(img: np.ndarray) -> np.ndarray:
    """The sum of 5x5 neighbours, weighted 1 to 5 along each axis, modulo 2**16; uint16 (H, W) -> (H - 4, W - 4)."""
    h, w = img.shape[0] - 4, img.shape[1] - 4
    total = np.zeros((h, w), np.uint16)
    for dy in range(5):
        for dx in range(5):
            total += (dy + 1) * (dx + 1) * img[dy : dy + h, dx : dx + w]
    return total


def stencil_chain(img: np.ndarray) -> np.ndarray:
    """uint16 (H, W) -> uint16 (H, W)."""
    stage = np.pad(img, 2 * STENCILS, mode="edge")
    for _ in range(STENCILS):
        stage = stencil(stage)
    return stage


def inputs(rng: np.random.Generator, shape: tuple[int, int] = SHAPE) -> tuple[np.ndarray]:
    """A random image, uint16 (H, W)."""
    return (rng.integers(0, 1 << 16, shape, np.uint16),)
