"""`benchmarks.apps.bgu` in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.apps.bgu import R_SIGMA, REGULARISATION, S_SIGMA, TAPS, brightness, lerp, solve_symmetric

Array = Any  # jax.Array: helpers of the application have NumPy's types


def blur7(grid: Array, axis: int) -> Array:
    n = grid.shape[axis] - 6
    return sum(t * jax.lax.slice_in_dim(grid, k, k + n, axis=axis) for k, t in enumerate(TAPS))


def affine_models(splat: Array, value: Array, rows: int, cols: int, r_sigma: float, s_sigma: int) -> list[list[Array]]:
    """For each cell the model of each colour, by its four coefficients: 4 x 3 arrays (bins, rows, cols)."""
    bins = int(1 / r_sigma)
    affine = [*splat, jnp.ones_like(splat[0])]
    products = [affine[i] * affine[j] for i in range(4) for j in range(i, 4)] + [v * a for v in value for a in affine]
    zi = jnp.rint(jnp.clip(brightness(splat), 0.0, 1.0) * (1.0 / r_sigma)).astype(jnp.int32) + 3
    row = jnp.arange(rows * s_sigma)[:, None] // s_sigma
    col = jnp.arange(cols * s_sigma) // s_sigma
    histogram = jnp.zeros((22, bins + 8, rows, cols)).at[:, zi, row, col].add(jnp.stack(products))
    blurred = blur7(blur7(blur7(histogram, 1), 2), 3)

    upper = {(i, j): 4 * i - i * (i - 1) // 2 + j - i for i in range(4) for j in range(i, 4)}
    gram = [[blurred[upper[min(i, j), max(i, j)]] for j in range(4)] for i in range(4)]
    target = [[blurred[10 + 4 * c + i] for c in range(3)] for i in range(4)]
    for i in range(4):
        gram[i][i] = gram[i][i] + REGULARISATION
    for i in range(3):
        target[i][i] = target[i][i] + REGULARISATION
    return solve_symmetric(gram, target)


def bgu(splat_loc: Array, values: Array, slice_loc: Array, r_sigma: float = R_SIGMA, s_sigma: int = S_SIGMA) -> Array:
    _, small_h, small_w = splat_loc.shape
    _, h, w = slice_loc.shape
    big_sigma = s_sigma * max(-(-h // small_h), -(-w // small_w))
    bins = int(1 / r_sigma)
    before = 3 * s_sigma + s_sigma // 2
    rows, cols = (h - 1) // big_sigma + 8, (w - 1) // big_sigma + 8
    around = [(0, 0), (before, rows * s_sigma - before - small_h), (before, cols * s_sigma - before - small_w)]
    splat, value = (jnp.pad(x, around, mode="edge") for x in (splat_loc, values))
    models = affine_models(splat, value, rows, cols, r_sigma, s_sigma)
    line: Array = jnp.stack([models[i][c] for c in range(3) for i in range(4)])

    y, x = jnp.arange(h), jnp.arange(w)
    yi, xi = y // big_sigma, x // big_sigma
    yf: Array = (y % big_sigma).astype(jnp.float32)[:, None] / big_sigma
    xf: Array = (x % big_sigma).astype(jnp.float32) / big_sigma
    matrix_y = lerp(line[:, :, yi], line[:, :, yi + 1], yf)
    position = jnp.clip(brightness(slice_loc), 0.0, 1.0) * bins
    zi = position.astype(jnp.int32)
    zf: Array = position - zi.astype(jnp.float32)
    y = y[:, None]
    near = lerp(matrix_y[:, zi, y, xi], matrix_y[:, zi, y, xi + 1], xf)
    far = lerp(matrix_y[:, zi + 1, y, xi], matrix_y[:, zi + 1, y, xi + 1], xf)
    model = lerp(near, far, zf).reshape(3, 4, h, w)
    r, g, b = slice_loc
    return jnp.clip(model[:, 0] * r + model[:, 1] * g + model[:, 2] * b + model[:, 3], 0.0, 1.0)
