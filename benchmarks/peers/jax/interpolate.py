"""`benchmarks.apps.interpolate` in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def downsample(img: jax.Array) -> jax.Array:
    _, h, w = img.shape
    p = jnp.pad(img, ((0, 0), (1, 2), (1, 2)), mode="edge")
    ny, nx = 2 * (h // 2) + 1, 2 * (w // 2) + 1
    downy = (p[:, :ny:2] + 2 * p[:, 1 : ny + 1 : 2] + p[:, 2 : ny + 2 : 2]) * 0.25
    return (downy[:, :, :nx:2] + 2 * downy[:, :, 1 : nx + 1 : 2] + downy[:, :, 2 : nx + 2 : 2]) * 0.25


def between(img: jax.Array, axis: int, n: int) -> jax.Array:
    """The samples and the means of neighbours, by turns."""
    half = (n + 1) // 2
    here = jax.lax.slice_in_dim(img, 0, half, axis=axis)
    after = jnp.concatenate([img, img], axis)[(slice(None),) * axis + (slice(1, half + 1),)]
    both = jnp.stack([here, (here + after) / 2], axis + 1)
    return jax.lax.slice_in_dim(both.reshape(*img.shape[:axis], -1, *img.shape[axis + 1 :]), 0, n, axis=axis)


def interpolate(img: jax.Array, levels: int) -> jax.Array:
    pyramid = [jnp.concatenate([img[:3] * img[3], img[3:]])]
    for _ in range(1, levels):
        pyramid.append(downsample(pyramid[-1]))
    filled = pyramid[-1]
    for down in reversed(pyramid[:-1]):
        filled = down + (1 - down[3]) * between(between(filled, 2, down.shape[2]), 1, down.shape[1])
    return filled[:3] / filled[3]
