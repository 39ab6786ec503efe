"""The Harris corner response: from the gradients of an image to the determinant and trace of their 3x3 sums.

Source: Halide's `apps/harris`; C. Harris and M. Stephens, "A combined corner and edge detector" (1988).
"""

from __future__ import annotations

import numpy as np

SHAPE = (3, 2560, 1536)
SMALL = (3, 45, 83)
TOLERANCE = (1e-4, 1e-6)


def neighbours(image: np.ndarray) -> list[list[np.ndarray]]:
    """For every pixel inside a border of 1: the 3x3 pixels around it, as [row][column] of whole images."""
    height, width = image.shape[0] - 2, image.shape[1] - 2
    return [[image[j : j + height, i : i + width] for i in range(3)] for j in range(3)]


def sum_3x3(image: np.ndarray) -> np.ndarray:
    """(H, W) -> (H - 2, W - 2)."""
    return sum(pixel for row in neighbours(image) for pixel in row)


def response(gray: np.ndarray) -> np.ndarray:
    """float32 (H, W) -> float32 (H - 6, W - 6): the response, at 3 pixels or more from the border."""
    (nw, n, ne), (w, _, e), (sw, s, se) = neighbours(gray)
    ix = (ne - nw + 2 * (e - w) + se - sw) * (1 / 12)
    iy = (sw - nw + 2 * (s - n) + se - ne) * (1 / 12)

    sxx = sum_3x3(ix * ix)
    syy = sum_3x3(iy * iy)
    sxy = sum_3x3(ix * iy)

    det = sxx * syy - sxy * sxy
    trace = sxx + syy
    corners = det - 0.04 * trace * trace
    return corners[1:-1, 1:-1]


def harris(rgb: np.ndarray) -> np.ndarray:
    """float32 (3, H, W) -> float32 (H - 6, W - 6)."""
    gray = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
    return response(gray)


def channels_last(rgb: np.ndarray) -> np.ndarray:
    """`harris` of an image with its channels last: float32 (H, W, 3) -> float32 (H - 6, W - 6)."""
    gray = 0.299 * rgb[..., 0] + 0.587 * rgb[..., 1] + 0.114 * rgb[..., 2]
    return response(gray)


def inputs(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray]:
    """A random image, float32 (3, H, W) in [0, 1)."""
    return (rng.random(shape, np.float32),)


def inputs_last(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray]:
    """The same of a (3, H, W), with the channels last."""
    (rgb,) = inputs(rng, shape)
    return (np.ascontiguousarray(np.moveaxis(rgb, 0, -1)),)
