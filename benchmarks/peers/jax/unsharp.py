"""`benchmarks.apps.unsharp` in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.apps.unsharp import gaussian_taps


def unsharp(rgb: jax.Array, sigma: float) -> jax.Array:
    taps = gaussian_taps(sigma)
    height, width = rgb.shape[1:]
    gray = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
    padded = jnp.pad(gray, 3, mode="edge")  # once, which XLA fuses better than a pad for each direction
    blur_y = taps[0] * padded[3:-3]
    for k in range(1, 4):
        blur_y += taps[k] * (padded[3 - k : height + 3 - k] + padded[3 + k : height + 3 + k])
    blur_x = taps[0] * blur_y[:, 3:-3]
    for k in range(1, 4):
        blur_x += taps[k] * (blur_y[:, 3 - k : width + 3 - k] + blur_y[:, 3 + k : width + 3 + k])
    return (2 * gray - blur_x) / gray * rgb
