"""`benchmarks.apps.iir_blur` in JAX: a linear recurrence is an associative scan, of few steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Step = tuple[jax.Array, jax.Array]  # y -> decay * y + value


def after(first: Step, second: Step) -> Step:
    """Two steps in one."""
    return first[0] * second[0], second[0] * first[1] + second[1]


def recurrence(img: jax.Array, alpha: float, axis: int, reverse: bool) -> jax.Array:
    """The filter one way along an axis: what it starts with is as it is."""
    n = img.shape[axis]
    k = jnp.arange(n).reshape([n if a == axis else 1 for a in range(img.ndim)])
    value = jnp.where(k == (n - 1 if reverse else 0), img, alpha * img)
    decay = jnp.full(k.shape, 1 - alpha, img.dtype)
    return jax.lax.associative_scan(after, (decay, value), reverse=reverse, axis=axis)[1]


def iir_blur(img: jax.Array, alpha: float = 0.5) -> jax.Array:
    for axis in (1, 2):
        for reverse in (False, True):
            img = recurrence(img, alpha, axis, reverse)
    return img
