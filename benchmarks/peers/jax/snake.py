"""`benchmarks.apps.snake` in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.apps.snake import AREA, BLUR, LENGTH, REGULARITY, TIME_STEP, TINY, WIDTH, dx, dy, laplacian

Array = Any  # jax.Array: helpers of the application have NumPy's types


def gaussian_filter(img: Array, sigma: float) -> Array:
    radius = int(3.0 * sigma + 0.5)
    taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    taps = (taps / taps.sum()).tolist()
    h, w = img.shape
    padded: Array = jnp.pad(img, radius, mode="edge")
    rows = sum(t * padded[k : k + h] for k, t in enumerate(taps))
    return sum(t * rows[:, k : k + w] for k, t in enumerate(taps))


def evolve(phi: Array, g: Array, g_x: Array, g_y: Array) -> Array:
    padded: Array = jnp.pad(phi, 2, mode="edge")
    phi_x, phi_y = dx(padded), dy(padded)
    slope: Array = jnp.sqrt(phi_x * phi_x + phi_y * phi_y)
    normal_x, normal_y = phi_x / (slope + TINY), phi_y / (slope + TINY)

    well: Array = jnp.where(slope <= 1.0, jnp.sin(2.0 * np.pi * slope) / (2.0 * np.pi), slope - 1.0)
    flow_x, flow_y = well * normal_x - phi_x, well * normal_y - phi_y
    regular = dx(flow_x) + dy(flow_y) + laplacian(padded[1:-1, 1:-1])

    dirac = jnp.where(jnp.abs(phi) <= WIDTH, (1.0 + jnp.cos(np.pi / WIDTH * phi)) / (2.0 * WIDTH), 0.0)
    curvature = dx(normal_x) + dy(normal_y)
    edge = dirac * (g_x * normal_x[1:-1, 1:-1] + g_y * normal_y[1:-1, 1:-1] + g * curvature)
    return phi + TIME_STEP * (REGULARITY * regular + LENGTH * edge + AREA * (dirac * g))


def snake(img: Array, phi: Array, iterations: int = 8) -> Array:
    smooth: Array = jnp.pad(gaussian_filter(img, BLUR), 1, mode="edge")
    smooth_x, smooth_y = dx(smooth), dy(smooth)
    g = 1.0 / (1.0 + smooth_x * smooth_x + smooth_y * smooth_y)
    g_padded: Array = jnp.pad(g, 1, mode="edge")
    g_x, g_y = dx(g_padded), dy(g_padded)
    return jax.lax.fori_loop(0, iterations, lambda _, phi: evolve(phi, g, g_x, g_y), phi)
