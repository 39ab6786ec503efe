"""`benchmarks.apps.depthwise_separable_conv` in JAX: nine products, which XLA fuses, and a product of matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def depthwise_separable_conv(
    images: jax.Array, depthwise_filter: jax.Array, pointwise_filter: jax.Array, bias: jax.Array
) -> jax.Array:
    _, h, w, _ = images.shape
    padded = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    depthwise = sum(
        depthwise_filter[dy, dx] * padded[:, dy : dy + h, dx : dx + w] for dy in range(3) for dx in range(3)
    )
    return jnp.maximum(jnp.matmul(depthwise, pointwise_filter, precision=jax.lax.Precision.HIGHEST) + bias, 0)
