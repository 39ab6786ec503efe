"""Local contrast of a 16-bit image by a Laplacian pyramid that depends on the pixel: local Laplacian filters.

Source: Halide's `apps/local_laplacian`; S. Paris, S. Hasinoff, J. Kautz, "Local Laplacian filters" (2011), in the fast
form of M. Aubry et al. (2014). Every level repeats its own edge, where Halide's app repeats the input's.
"""

from __future__ import annotations

import itertools

import numpy as np

SHAPE = (3, 2560, 1536)
SMALL = (3, 214, 171)
J = 8
LEVELS, ALPHA, BETA = 8, 1 / 7, 1.0
# A pixel on the edge of two entries of the table of curves may take either: one pixel in 10,000 by more than 1.
TOLERANCE = (0.005, 8.0)


def downsample(img: np.ndarray) -> np.ndarray:
    """(..., H, W) -> half the size, rounded up: the taps 1 3 3 1."""
    h, w = img.shape[-2:]
    ny, nx = h + h % 2, w + w % 2
    p = np.pad(img, [(0, 0)] * (img.ndim - 2) + [(1, 1 + h % 2), (1, 1 + w % 2)], mode="edge")
    downy = (p[..., :ny:2, :] + 3.0 * (p[..., 1 : ny + 1 : 2, :] + p[..., 2 : ny + 2 : 2, :]) + p[..., 3::2, :]) / 8.0
    return (
        downy[..., :nx:2] + 3.0 * (downy[..., 1 : nx + 1 : 2] + downy[..., 2 : nx + 2 : 2]) + downy[..., 3::2]
    ) / 8.0


def upsample(img: np.ndarray, h: int, w: int) -> np.ndarray:
    """(..., ceil(h / 2), ceil(w / 2)) -> (..., h, w), bilinear."""
    p = np.pad(img, [(0, 0)] * (img.ndim - 2) + [(1, 1), (1, 1)], mode="edge")
    upx = np.empty(p.shape[:-1] + (2 * img.shape[-1],), img.dtype)
    upx[..., 0::2] = 0.75 * p[..., 1:-1] + 0.25 * p[..., :-2]
    upx[..., 1::2] = 0.75 * p[..., 1:-1] + 0.25 * p[..., 2:]
    upy = np.empty(img.shape[:-2] + (2 * img.shape[-2], upx.shape[-1]), img.dtype)
    upy[..., 0::2, :] = 0.75 * upx[..., 1:-1, :] + 0.25 * upx[..., :-2, :]
    upy[..., 1::2, :] = 0.75 * upx[..., 1:-1, :] + 0.25 * upx[..., 2:, :]
    return upy[..., :h, :w]


def local_laplacian(img: np.ndarray, levels: int = LEVELS, alpha: float = ALPHA, beta: float = BETA) -> np.ndarray:
    """uint16 (3, H, W) -> uint16 (3, H, W). levels: of brightness; alpha: of the detail; beta: of the contrast."""
    floating = img.astype(np.float32) / 65535.0
    gray = 0.299 * floating[0] + 0.587 * floating[1] + 0.114 * floating[2]

    # The curves, around every level, of 256 entries a level.
    span = 256 * (levels - 1)
    fx = np.arange(-span, span + 1, dtype=np.float32) / 256.0
    remap = alpha * fx * np.exp(-fx * fx / 2.0)

    # The Gaussian pyramid of every remapped image.
    k = np.arange(levels)[:, None, None]
    level = k.astype(np.float32) * (1.0 / (levels - 1))
    idx = np.clip((gray * (levels - 1) * 256.0).astype(np.int32), 0, span)
    remapped = beta * (gray - level) + level + remap[idx - 256 * k + span]
    pyramid = [remapped]
    for _ in range(1, J):
        pyramid.append(downsample(pyramid[-1]))

    # Their Laplacian pyramids, and the Gaussian pyramid of the input.
    laplacian = [fine - upsample(coarse, *fine.shape[-2:]) for fine, coarse in itertools.pairwise(pyramid)] + [
        pyramid[-1]
    ]
    guide = [gray]
    for _ in range(1, J):
        guide.append(downsample(guide[-1]))

    # The output's Laplacian pyramid takes each pixel from the two remapped images whose levels are next to it.
    detail = []
    for g, lap in zip(guide, laplacian, strict=True):
        position = g * (levels - 1)
        li = np.clip(position.astype(np.int32), 0, levels - 2)
        lf = position - li.astype(np.float32)
        below = np.take_along_axis(lap, li[None], axis=0)[0]
        above = np.take_along_axis(lap, li[None] + 1, axis=0)[0]
        detail.append((1.0 - lf) * below + lf * above)

    result = detail[-1]
    for d in reversed(detail[:-1]):
        result = upsample(result, *d.shape) + d

    # The colours, at the new brightness; eps keeps the noise of dark pixels down.
    eps = 0.01
    color = img * (result + eps) / (gray + eps)
    return np.clip(color, 0.0, 65535.0).astype(np.uint16)


def inputs(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray, int, float, float]:
    """A random image, uint16 (3, H, W), the number of levels, and the strengths of detail and contrast."""
    return rng.integers(0, 1 << 16, shape, np.uint16), LEVELS, ALPHA, BETA
