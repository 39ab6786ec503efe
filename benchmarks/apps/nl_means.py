"""Denoising by non-local means: every pixel becomes the mean of its neighbours, weighted by the similarity of patches.

Source: Halide's `apps/nl_means`; A. Buades, B. Coll, J.-M. Morel, "A non-local algorithm for image denoising" (2005).
Windows are centred; beyond the border the edges are repeated.
"""

from __future__ import annotations

import numpy as np

SHAPE = (3, 2560, 1536)
SMALL = (3, 38, 53)
TOLERANCE = (1e-4, 1e-5)


def nl_means(img: np.ndarray, patch: int = 7, search: int = 7, sigma: float = 0.12) -> np.ndarray:
    """float32 (3, H, W) in 0 ... 1 -> float32 (3, H, W); `patch` and `search` are the odd widths of windows."""
    _, height, width = img.shape
    margin, far = patch // 2, search // 2
    pad = margin + far
    padded = np.pad(img, ((0, 0), (pad, pad), (pad, pad)), mode="edge")
    tall, wide = height + 2 * margin, width + 2 * margin
    centre = padded[:, far : far + tall, far : far + wide]
    scale = -1.0 / (sigma * patch) ** 2

    total = np.zeros_like(img)
    norm = np.zeros((height, width), img.dtype)
    for dy in range(search):
        for dx in range(search):
            shifted = padded[:, dy : dy + tall, dx : dx + wide]
            r, g, b = centre - shifted
            distance = r * r + g * g + b * b
            blur_y = sum(distance[k : k + height] for k in range(patch))
            blur = sum(blur_y[:, k : k + width] for k in range(patch))
            weight = np.exp(blur * scale)
            total += weight * shifted[:, margin : margin + height, margin : margin + width]
            norm += weight
    return np.clip(total / norm, 0.0, 1.0)


def inputs(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray]:
    """A random image, float32 (3, H, W)."""
    return (rng.random(shape, np.float32),)
