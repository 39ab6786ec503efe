"""`benchmarks.apps.mat_mul` in JAX, in float32, where GPUs would round to fewer bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def mat_mul(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
