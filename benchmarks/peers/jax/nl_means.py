"""`benchmarks.apps.nl_means` in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Array = Any  # jax.Array: `sum` begins with an int


def nl_means(img: Array, patch: int = 7, search: int = 7, sigma: float = 0.12) -> Array:
    _, height, width = img.shape
    margin, far = patch // 2, search // 2
    padded = jnp.pad(img, ((0, 0), (margin + far,) * 2, (margin + far,) * 2), mode="edge")
    tall, wide = height + 2 * margin, width + 2 * margin
    centre = padded[:, far : far + tall, far : far + wide]
    scale = -1.0 / (sigma * patch) ** 2

    def add(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        total, norm = sums
        shifted = jax.lax.dynamic_slice(padded, (0, k // search, k % search), centre.shape)
        distance: Array = ((centre - shifted) ** 2).sum(axis=0)
        blur_y: Array = sum(distance[j : j + height] for j in range(patch))
        weight = jnp.exp(sum(blur_y[:, j : j + width] for j in range(patch)) * scale)
        return total + weight * shifted[:, margin : margin + height, margin : margin + width], norm + weight

    # a loop: its 49 iterations side by side take longer to compile, and ran no faster on a CPU
    total, norm = jax.lax.fori_loop(0, search * search, add, (jnp.zeros_like(img), jnp.zeros_like(img[0])))
    return jnp.clip(total / norm, 0.0, 1.0)
