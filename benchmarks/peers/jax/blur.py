"""`benchmarks.apps.blur` in JAX."""

from __future__ import annotations

import jax


def blur(img: jax.Array) -> jax.Array:
    blur_x = (img[:, :-2] + img[:, 1:-1] + img[:, 2:]) // 3
    return (blur_x[:-2] + blur_x[1:-1] + blur_x[2:]) // 3
