"""An edge-preserving blur of a grey image by way of a coarse grid over position and brightness.

Source: Halide's `apps/bilateral_grid`; J. Chen, S. Paris, F. Durand, "Real-time edge-aware image processing with the
bilateral grid" (2007).
"""

from __future__ import annotations

import numpy as np

SHAPE = (2560, 1536)
SMALL = (214, 171)
R_SIGMA, S_SIGMA = 0.1, 8
TOLERANCE = (1e-4, 1e-6)


def blur5(grid: np.ndarray, axis: int) -> np.ndarray:
    """The taps 1 4 6 4 1 along an axis, where all are inside."""
    g = np.moveaxis(grid, axis, 0)
    blurred = g[:-4] + g[1:-3] * 4.0 + g[2:-2] * 6.0 + g[3:-1] * 4.0 + g[4:]
    return np.moveaxis(blurred, 0, axis)


def lerp(a: np.ndarray, b: np.ndarray, t: np.ndarray) -> np.ndarray:
    return a * (1.0 - t) + b * t


def bilateral_grid(img: np.ndarray, r_sigma: float = R_SIGMA, s_sigma: int = S_SIGMA) -> np.ndarray:
    """float32 (H, W), values in 0 to 1 -> float32 (H, W)."""
    h, w = img.shape
    bins = int(1 / r_sigma + 0.5) + 1

    # A cell is around its sample; two more on every side for the blur, one for the last interpolation.
    before = 2 * s_sigma + s_sigma // 2
    rows, cols = (h - 1) // s_sigma + 6, (w - 1) // s_sigma + 6
    after_y, after_x = rows * s_sigma - before - h, cols * s_sigma - before - w
    padded = np.clip(np.pad(img, ((before, after_y), (before, after_x)), mode="edge"), 0.0, 1.0)

    # Sum and count of each cell's pixels, by brightness: two empty bins below, three above.
    depth = (padded * (1.0 / r_sigma) + 0.5).astype(np.int32) + 2
    row = np.arange(rows * s_sigma)[:, None] // s_sigma
    col = np.arange(cols * s_sigma) // s_sigma
    histogram = np.zeros((2, bins + 5, rows, cols), np.float32)
    np.add.at(histogram[0], (depth, row, col), padded)
    np.add.at(histogram[1], (depth, row, col), np.float32(1.0))

    blurz = blur5(histogram, 1)
    blurx = blur5(blurz, 3)
    blury = blur5(blurx, 2)

    # Trilinear samples.
    position = np.clip(img, 0.0, 1.0) * (1.0 / r_sigma)
    zi = position.astype(np.int32)
    zf = position - zi.astype(np.float32)
    yi, yf = np.divmod(np.arange(h)[:, None], s_sigma)
    xi, xf = np.divmod(np.arange(w), s_sigma)
    yf, xf = yf.astype(np.float32) / s_sigma, xf.astype(np.float32) / s_sigma
    corners = [[[blury[:, zi + dz, yi + dy, xi + dx] for dx in range(2)] for dy in range(2)] for dz in range(2)]
    planes = [lerp(lerp(*top, xf), lerp(*bottom, xf), yf) for top, bottom in corners]
    total, weight = lerp(*planes, zf)
    return total / weight


def inputs(rng: np.random.Generator, shape: tuple[int, int] = SHAPE) -> tuple[np.ndarray, float, int]:
    """A random image, float32 (H, W), and the sizes of the blur in brightness and in pixels."""
    return rng.random(shape, np.float32), R_SIGMA, S_SIGMA
