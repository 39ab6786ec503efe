"""Segmentation by an active contour: the zero level of phi moves until it clings to the edges of the image.

Source: C. Li, C. Xu, C. Gui, M. D. Fox, "Distance regularized level set evolution and its application to image
segmentation" (2010), as in J. Ragan-Kelley et al., "Decoupling algorithms from schedules" (2012), section 6.4.
Beyond the border the edges of the image and of phi are repeated.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

SHAPE = (2048, 2048)
SMALL = (45, 83)
TOLERANCE = (1e-3, 1e-3)

BLUR = 1.5  # sigma of the Gaussian before edges are looked for
TIME_STEP = 1.0  # short, so that rounding errors do not grow
REGULARITY = 0.2 / TIME_STEP  # mu: keeps phi a distance near its zero level
LENGTH = 6.0  # lambda: pulls the contour to edges, and smooths it
AREA = 1.5  # alpha: shrinks the contour while it finds no edge
WIDTH = 1.5  # epsilon: of the band around the contour that moves
TINY = 1e-10


def dx(f: np.ndarray) -> np.ndarray:
    """Central differences along x, without the outermost pixels."""
    return 0.5 * (f[1:-1, 2:] - f[1:-1, :-2])


def dy(f: np.ndarray) -> np.ndarray:
    """Central differences along y, without the outermost pixels."""
    return 0.5 * (f[2:, 1:-1] - f[:-2, 1:-1])


def laplacian(f: np.ndarray) -> np.ndarray:
    return f[1:-1, 2:] + f[1:-1, :-2] + f[2:, 1:-1] + f[:-2, 1:-1] - 4.0 * f[1:-1, 1:-1]


def evolve(phi: np.ndarray, g: np.ndarray, g_x: np.ndarray, g_y: np.ndarray) -> np.ndarray:
    """One step of the contour; `g` is small at edges."""
    padded = np.pad(phi, 2, mode="edge")
    phi_x, phi_y = dx(padded), dy(padded)
    slope = np.sqrt(phi_x * phi_x + phi_y * phi_y)
    normal_x, normal_y = phi_x / (slope + TINY), phi_y / (slope + TINY)

    # the potential has two wells, at the slopes 0 and 1
    well = np.where(slope <= 1.0, np.sin(2.0 * np.pi * slope) / (2.0 * np.pi), slope - 1.0)
    flow_x, flow_y = well * normal_x - phi_x, well * normal_y - phi_y
    regular = dx(flow_x) + dy(flow_y) + laplacian(padded[1:-1, 1:-1])

    dirac = np.where(np.abs(phi) <= WIDTH, (1.0 + np.cos(np.pi / WIDTH * phi)) / (2.0 * WIDTH), 0.0)
    curvature = dx(normal_x) + dy(normal_y)
    edge = dirac * (g_x * normal_x[1:-1, 1:-1] + g_y * normal_y[1:-1, 1:-1] + g * curvature)
    area = dirac * g
    return phi + TIME_STEP * (REGULARITY * regular + LENGTH * edge + AREA * area)


def snake(img: np.ndarray, phi: np.ndarray, iterations: int = 8) -> np.ndarray:
    """Evolve `phi`, which is negative inside the contour; float32 (H, W) in 0 ... 255 and (H, W) -> float32 (H, W)."""
    smooth = np.pad(ndimage.gaussian_filter(img, BLUR, mode="nearest", truncate=3.0), 1, mode="edge")
    smooth_x, smooth_y = dx(smooth), dy(smooth)
    g = 1.0 / (1.0 + smooth_x * smooth_x + smooth_y * smooth_y)
    g_padded = np.pad(g, 1, mode="edge")
    g_x, g_y = dx(g_padded), dy(g_padded)
    for _ in range(iterations):
        phi = evolve(phi, g, g_x, g_y)
    return phi


def inputs(rng: np.random.Generator, shape: tuple[int, int] = SHAPE) -> tuple[np.ndarray, np.ndarray]:
    """A noisy image of round cells, float32 (H, W), and phi: squares around the cells, float32 (H, W)."""
    y, x = np.ogrid[: shape[0], : shape[1]]
    y, x = y % 64 - 32, x % 64 - 32
    img = np.where(x * x + y * y < 14 * 14, 180.0, 80.0) + 20.0 * rng.random(shape)
    phi = np.where(np.maximum(np.abs(x), np.abs(y)) < 21, -2.0, 2.0)
    return img.astype(np.float32), phi.astype(np.float32)
