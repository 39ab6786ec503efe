"""`benchmarks.apps.bilateral_grid` in JAX: `jax.jit` on jnp code that gathers nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def blur5(grid: jax.Array, axis: int) -> jax.Array:
    n = grid.shape[axis] - 4
    a, b, c, d, e = (jax.lax.slice_in_dim(grid, k, k + n, axis=axis) for k in range(5))
    return a + 4 * b + 6 * c + 4 * d + e


def bilateral_grid(img: jax.Array, r_sigma: float, s: int) -> jax.Array:
    h, w = img.shape
    bins = int(1 / r_sigma + 0.5) + 1
    before = 2 * s + s // 2
    rows, cols = (h - 1) // s + 6, (w - 1) // s + 6
    after_y, after_x = rows * s - before - h, cols * s - before - w
    padded = jnp.clip(jnp.pad(img, ((before, after_y), (before, after_x)), mode="edge"), 0, 1)

    depth = (padded * np.float32(1 / r_sigma) + 0.5).astype(jnp.int32) + 2
    at = (depth * rows + jnp.arange(rows * s)[:, None] // s) * cols + jnp.arange(cols * s) // s
    flat = jnp.zeros((bins + 5) * rows * cols)
    histogram = jnp.stack([flat.at[at].add(padded), flat.at[at].add(1.0)]).reshape(2, bins + 5, rows, cols)
    blury = blur5(blur5(blur5(histogram, 1), 3), 2)

    # Two planes count for a pixel; to read all of them in order is faster than a gather, with a cell's columns
    # outermost.
    position = jnp.clip(jnp.pad(img, ((0, -h % s), (0, -w % s)), mode="edge"), 0, 1) * np.float32(1 / r_sigma)
    position = position.reshape(rows - 5, s, cols - 5, s).transpose(3, 0, 1, 2)
    f = jnp.arange(s) / np.float32(s)
    y = blury[:, :, :-1, None] * (1 - f[:, None]) + blury[:, :, 1:, None] * f[:, None]
    total, weight = jnp.zeros_like(position), jnp.zeros_like(position)
    for z in range(bins + 1):
        near = jnp.maximum(0, 1 - jnp.abs(position - z))
        value, norm = (
            plane[..., :-1] + f[:, None, None, None] * (plane[..., 1:] - plane[..., :-1]) for plane in y[:, z]
        )
        total, weight = total + near * value, weight + near * norm
    return (total / weight).transpose(1, 2, 3, 0).reshape((rows - 5) * s, (cols - 5) * s)[:h, :w]
