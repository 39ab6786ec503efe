"""A layer of a convolutional network: 3x3 filters over all channels ("valid" convolution), bias and ReLU.

Source: Halide's `apps/conv_layer`; channels last, filters as (dy, dx, in, out), as most frameworks on CPUs have them.
"""

from __future__ import annotations

import numpy as np

SHAPE = (5, 82, 102, 128, 128)
SMALL = (2, 20, 25, 19, 37)
TOLERANCE = (1e-5, 1e-5)


def conv_layer(images: np.ndarray, filters: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """float32 (N, H, W, CI), (3, 3, CI, CO) and (CO,) -> float32 (N, H - 2, W - 2, CO)."""
    n, h, w, _ = images.shape
    conv = np.zeros((n, h - 2, w - 2, bias.size), np.float32)
    for dy in range(3):
        for dx in range(3):
            window = images[:, dy : dy + h - 2, dx : dx + w - 2]
            conv += window @ filters[dy, dx]
    return np.maximum(conv + bias, 0)


def inputs(rng: np.random.Generator, shape: tuple[int, ...] = SHAPE) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random images, filters and biases for `shape` (N, H, W, CI, CO); half of the results are negative before ReLU."""
    n, h, w, ci, co = shape
    images = rng.random((n, h, w, ci), np.float32)
    filters = rng.standard_normal((3, 3, ci, co), np.float32) / np.float32(3 * ci**0.5)
    bias = rng.standard_normal(co, np.float32)
    return images, filters, bias
