"""`benchmarks.apps.local_laplacian` in JAX. The table of curves is made while tracing."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.apps.local_laplacian import J


def downsample(img: jax.Array) -> jax.Array:
    h, w = img.shape[-2:]
    ny, nx = h + h % 2, w + w % 2
    p = jnp.pad(img, [(0, 0)] * (img.ndim - 2) + [(1, 1 + h % 2), (1, 1 + w % 2)], mode="edge")
    downy = (p[..., :ny:2, :] + 3.0 * (p[..., 1 : ny + 1 : 2, :] + p[..., 2 : ny + 2 : 2, :]) + p[..., 3::2, :]) / 8.0
    return (
        downy[..., :nx:2] + 3.0 * (downy[..., 1 : nx + 1 : 2] + downy[..., 2 : nx + 2 : 2]) + downy[..., 3::2]
    ) / 8.0


def by_turns(even: jax.Array, odd: jax.Array, axis: int) -> jax.Array:
    """The elements of two arrays by turns, along an axis from the end."""
    shape = list(even.shape)
    shape[axis] *= 2
    return jnp.stack([even, odd], even.ndim + axis + 1).reshape(shape)


def upsample(img: jax.Array, h: int, w: int) -> jax.Array:
    p = jnp.pad(img, [(0, 0)] * (img.ndim - 2) + [(1, 1), (1, 1)], mode="edge")
    centre = 0.75 * p[..., 1:-1]
    upx = by_turns(centre + 0.25 * p[..., :-2], centre + 0.25 * p[..., 2:], -1)
    centre = 0.75 * upx[..., 1:-1, :]
    return by_turns(centre + 0.25 * upx[..., :-2, :], centre + 0.25 * upx[..., 2:, :], -2)[..., :h, :w]


def local_laplacian(img: jax.Array, levels: int, alpha: float, beta: float) -> jax.Array:
    floating = img.astype(jnp.float32) / 65535.0
    gray = 0.299 * floating[0] + 0.587 * floating[1] + 0.114 * floating[2]

    span = 256 * (levels - 1)
    fx = np.arange(-span, span + 1, dtype=np.float32) / 256.0
    remap = jnp.asarray(alpha * fx * np.exp(-fx * fx / 2.0))
    k = jnp.arange(levels)[:, None, None]
    level = k.astype(jnp.float32) * (1.0 / (levels - 1))
    idx = jnp.clip((gray * (levels - 1) * 256.0).astype(jnp.int32), 0, span)
    pyramid, guide = [beta * (gray - level) + level + remap[idx - 256 * k + span]], [gray]
    for _ in range(1, J):
        pyramid.append(downsample(pyramid[-1]))
        guide.append(downsample(guide[-1]))
    laplacian = [fine - upsample(coarse, *fine.shape[-2:]) for fine, coarse in itertools.pairwise(pyramid)]
    laplacian.append(pyramid[-1])

    detail = []
    for g, lap in zip(guide, laplacian, strict=True):
        position = g * (levels - 1)
        li = jnp.clip(position.astype(jnp.int32), 0, levels - 2)
        lf = position - li.astype(jnp.float32)
        below = jnp.take_along_axis(lap, li[None], axis=0)[0]
        above = jnp.take_along_axis(lap, li[None] + 1, axis=0)[0]
        detail.append((1.0 - lf) * below + lf * above)
    result = detail[-1]
    for d in reversed(detail[:-1]):
        result = upsample(result, *d.shape) + d

    eps = 0.01
    color = img * (result + eps) / (gray + eps)
    return jnp.clip(color, 0.0, 65535.0).astype(jnp.uint16)
