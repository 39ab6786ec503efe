"""`benchmarks.apps.harris` in JAX."""

from __future__ import annotations

import jax


def sum_3x3(image: jax.Array) -> jax.Array:
    rows = image[:-2] + image[1:-1] + image[2:]
    return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]


def harris(rgb: jax.Array) -> jax.Array:
    gray = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
    across = (gray[:, 2:] - gray[:, :-2]) / 12
    along = (gray[2:] - gray[:-2]) / 12
    ix = across[:-2] + 2 * across[1:-1] + across[2:]
    iy = along[:, :-2] + 2 * along[:, 1:-1] + along[:, 2:]
    sxx, syy, sxy = sum_3x3(ix * ix), sum_3x3(iy * iy), sum_3x3(ix * iy)
    trace = sxx + syy
    return (sxx * syy - sxy * sxy - 0.04 * trace * trace)[1:-1, 1:-1]
