"""A depthwise separable convolution: a 3x3 filter for each channel, then a matrix across the channels, bias and ReLU.

Source: Halide's `apps/depthwise_separable_conv`; the size is that of the second layer of MobileNet v2 (M. Sandler et
al., 2018).
"""

from __future__ import annotations

import numpy as np

SHAPE = (4, 112, 112, 32, 16)
SMALL = (2, 22, 29, 19, 21)
TOLERANCE = (1e-5, 1e-5)


def depthwise_separable_conv(
    images: np.ndarray, depthwise_filter: np.ndarray, pointwise_filter: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """float32 (N, H, W, CI), (3, 3, CI), (CI, CO) and (CO,) -> float32 (N, H, W, CO); zero outside of the images."""
    _, h, w, _ = images.shape
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    depthwise = np.zeros_like(images)
    for dy in range(3):
        for dx in range(3):
            depthwise += depthwise_filter[dy, dx] * padded[:, dy : dy + h, dx : dx + w]
    pointwise = depthwise @ pointwise_filter + bias
    return np.maximum(pointwise, 0)


def inputs(
    rng: np.random.Generator, shape: tuple[int, ...] = SHAPE
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Random images, filters and biases for `shape` (N, H, W, CI, CO)."""
    n, h, w, ci, co = shape
    images = rng.random((n, h, w, ci), np.float32)
    depthwise_filter = rng.standard_normal((3, 3, ci), np.float32) / np.float32(3)
    pointwise_filter = rng.standard_normal((ci, co), np.float32) / np.float32(ci**0.5)
    bias = rng.standard_normal(co, np.float32)
    return images, depthwise_filter, pointwise_filter, bias
