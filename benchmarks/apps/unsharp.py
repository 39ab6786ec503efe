"""An unsharp mask: luma is sharpened against its Gaussian blur, and the colours follow it by ratio.

Source: Halide's `apps/unsharp`.
"""

from __future__ import annotations

import math

import numpy as np

SHAPE = (3, 2560, 1536)
SMALL = (3, 45, 83)
TOLERANCE = (1e-4, 1e-4)


def gaussian_taps(sigma: float) -> list[float]:
    """The centre of a Gaussian and three taps to one side of it."""
    return [math.exp(-k * k / (2 * sigma * sigma)) / (math.sqrt(2 * math.pi) * sigma) for k in range(4)]


def luma_ratio(gray: np.ndarray, sigma: float) -> np.ndarray:
    """The sharpened luma over the luma; edges are repeated."""
    taps = gaussian_taps(sigma)
    height, width = gray.shape

    rows = np.pad(gray, ((3, 3), (0, 0)), mode="edge")
    blur_y = taps[0] * gray
    for k in range(1, 4):
        blur_y = blur_y + taps[k] * (rows[3 - k : height + 3 - k] + rows[3 + k : height + 3 + k])

    columns = np.pad(blur_y, ((0, 0), (3, 3)), mode="edge")
    blur_x = taps[0] * blur_y
    for k in range(1, 4):
        blur_x = blur_x + taps[k] * (columns[:, 3 - k : width + 3 - k] + columns[:, 3 + k : width + 3 + k])

    sharpened = 2 * gray - blur_x
    ratio = sharpened / gray
    return ratio


def unsharp(rgb: np.ndarray, sigma: float = 1.5) -> np.ndarray:
    """float32 (3, H, W) -> float32 (3, H, W); edges are repeated."""
    gray = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
    return luma_ratio(gray, sigma) * rgb


def channels_last(rgb: np.ndarray, sigma: float = 1.5) -> np.ndarray:
    """`unsharp` of an image with its channels last: float32 (H, W, 3) -> float32 (H, W, 3)."""
    gray = 0.299 * rgb[..., 0] + 0.587 * rgb[..., 1] + 0.114 * rgb[..., 2]
    return luma_ratio(gray, sigma)[..., np.newaxis] * rgb


def inputs(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray, float]:
    """A random image, float32 (3, H, W) in [0, 1), and sigma."""
    return rng.random(shape, np.float32), 1.5


def inputs_last(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray, float]:
    """The same of a (3, H, W), with the channels last."""
    rgb, sigma = inputs(rng, shape)
    return np.ascontiguousarray(np.moveaxis(rgb, 0, -1)), sigma
