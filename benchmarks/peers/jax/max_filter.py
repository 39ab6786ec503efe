"""`benchmarks.apps.max_filter` in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.apps.max_filter import run_reach


def max_filter(img: jax.Array, radius: int = 26) -> jax.Array:
    _, height, width = img.shape
    tallest = run_reach(0, radius)
    runs = [jnp.pad(img, ((0, 0), (tallest, tallest), (radius, radius)), mode="edge")]
    for k in range((2 * tallest + 1).bit_length() - 1):
        runs.append(jnp.maximum(runs[k][:, : -(1 << k)], runs[k][:, 1 << k :]))

    out = img
    for dx in range(radius + 1):
        reach = run_reach(dx, radius)
        level = (2 * reach + 1).bit_length() - 1
        first, second = tallest - reach, tallest + reach + 1 - (1 << level)
        run = jnp.maximum(runs[level][:, first : first + height], runs[level][:, second : second + height])
        both = jnp.maximum(run[:, :, radius - dx : radius - dx + width], run[:, :, radius + dx : radius + dx + width])
        out = jnp.maximum(out, both)
    return out
