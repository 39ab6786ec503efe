"""`benchmarks.apps.conv_layer` in JAX, with XLA's own convolution; in float32, where GPUs would round to fewer bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def conv_layer(images: jax.Array, filters: jax.Array, bias: jax.Array) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    conv = jax.lax.conv_general_dilated(
        images, filters, (1, 1), "VALID", dimension_numbers=layout, precision=jax.lax.Precision.HIGHEST
    )
    return jnp.maximum(conv + bias, 0)
