"""`benchmarks.apps.stencil_chain` in JAX; the weights are products, and so rows are summed first."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.apps.stencil_chain import STENCILS

Array = Any  # jax.Array: `sum` begins with an int


def stencil(img: Array) -> Array:
    h, w = img.shape[0] - 4, img.shape[1] - 4
    rows = sum((dy + 1) * img[dy : dy + h] for dy in range(5))
    return sum((dx + 1) * rows[:, dx : dx + w] for dx in range(5))


def stencil_chain(img: Array) -> Array:
    stage = jnp.pad(img, 2 * STENCILS, mode="edge")
    for _ in range(STENCILS):
        # a kernel each: fused, a stage would be computed again for each of the pixels that read it
        stage = jax.lax.optimization_barrier(stencil(stage))
    return stage
