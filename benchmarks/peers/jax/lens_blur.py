"""`benchmarks.apps.lens_blur` in JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.apps.lens_blur import APERTURE_SAMPLES, BLUR_RADIUS_SCALE, FOCUS_DEPTH, LEVELS, SLICES


def downsample(volume: jax.Array) -> jax.Array:
    h, w = volume.shape[-2] // 2 * 2, volume.shape[-1] // 2 * 2
    p = jnp.pad(volume, [(0, 0)] * (volume.ndim - 2) + [(1, 1), (1, 1)], mode="edge")
    p = (p[..., 0:w:2] + 3.0 * (p[..., 1 : w + 1 : 2] + p[..., 2 : w + 2 : 2]) + p[..., 3 : w + 3 : 2]) / 8.0
    middle = p[..., 1 : h + 1 : 2, :] + p[..., 2 : h + 2 : 2, :]
    return (p[..., 0:h:2, :] + 3.0 * middle + p[..., 3 : h + 3 : 2, :]) / 8.0


def doubled(padded: jax.Array, axis: int, n: int) -> jax.Array:
    """Bilinear, along an axis with one sample before the first and two after the last, to n."""
    p = jnp.moveaxis(padded, axis, -1)
    half = (n + 1) // 2
    here = 0.75 * p[..., 1 : half + 1]
    both = jnp.stack([0.25 * p[..., :half] + here, 0.25 * p[..., 2 : half + 2] + here], -1)
    return jnp.moveaxis(both.reshape(*p.shape[:-1], 2 * half)[..., :n], -1, axis)


def upsample(volume: jax.Array, h: int, w: int) -> jax.Array:
    p = jnp.pad(volume, [(0, 0)] * (volume.ndim - 2) + [(1, 2), (1, 2)], mode="edge")
    return doubled(doubled(p, -1, w), -2, h)


def permute(n: jax.Array) -> jax.Array:
    return (n * np.uint32(0x3C6EF372) + np.uint32(0x85EBCA6B)) * n + np.uint32(0x9E3779B9)


def noise(seed: jax.Array) -> jax.Array:
    return (permute(seed) >> np.uint32(8)).astype(jnp.float32) * np.float32(2**-23) - 1.0


def matching(left: jax.Array, right: jax.Array, slices: int) -> tuple[jax.Array, jax.Array]:
    """The cost of each disparity, (slices, H, W), and how sure it is, (H, W)."""
    w = left.shape[2]
    padded = jnp.pad(right, [(0, 0), (0, 0), (0, 2 * slices - 1)], mode="edge")
    shifted = jnp.stack([padded[:, :, k : k + w] for k in range(2 * slices)], 1)
    reference = left[:, None]
    off = jnp.where(reference > shifted, reference - shifted, shifted - reference)
    diff = jnp.minimum(off[:, 0::2], off[:, 1::2]).astype(jnp.float32)
    cost = (diff**2).sum(axis=0)
    mean = (cost / slices).sum(axis=0)
    return cost, (cost**2).sum(axis=0) / slices - mean**2


def lens_blur(
    left: jax.Array,
    right: jax.Array,
    slices: int = SLICES,
    focus_depth: int = FOCUS_DEPTH,
    blur_radius_scale: float = BLUR_RADIUS_SCALE,
    aperture_samples: int = APERTURE_SAMPLES,
) -> jax.Array:
    _, h, w = left.shape
    radius = int(max(slices - focus_depth, focus_depth) * blur_radius_scale)

    cost, confidence = matching(left, right, slices)
    push = [jnp.stack([cost * confidence, jnp.broadcast_to(confidence, cost.shape)])]
    for _ in range(1, LEVELS):
        push.append(downsample(push[-1]))
    pull = push[-1]
    for level in reversed(push[:-1]):
        pull = 0.5 * upsample(pull, *level.shape[-2:]) + 0.5 * level
    depth = (pull[0] / pull[1]).argmin(axis=0).astype(jnp.int32)

    bokeh_radius = jnp.abs(depth - focus_depth).astype(jnp.float32) * blur_radius_scale
    bokeh_radius_squared = bokeh_radius**2
    window = (2 * radius + 1,) * 2
    worst_case_radius = jax.lax.reduce_window(bokeh_radius, -jnp.inf, jax.lax.max, window, (1, 1), "SAME")

    colours = jnp.pad(left, [(0, 0), (radius, radius), (radius, radius)], mode="edge").astype(jnp.float32)
    depths = jnp.pad(depth, radius, mode="edge")
    bokehs = jnp.pad(bokeh_radius_squared, radius, mode="edge")

    y, x = jnp.arange(h)[:, None], jnp.arange(w)
    sample = jnp.arange(aperture_samples, dtype=jnp.uint32)[:, None, None]
    seed = permute(permute(permute(x.astype(jnp.uint32)) + y.astype(jnp.uint32)) + sample)
    u = jnp.clip((noise(seed) * worst_case_radius).astype(jnp.int32), -radius, radius)
    v = jnp.clip((noise(seed + np.uint32(1)) * worst_case_radius).astype(jnp.int32), -radius, radius)
    sample_y, sample_x = y + v + radius, x + u + radius
    distance = (u * u + v * v).astype(jnp.float32)
    covers, covered = distance < bokeh_radius_squared, distance < bokehs[sample_y, sample_x]
    in_front = depths[sample_y, sample_x] < depth
    weight = ((covers | in_front) & covered).astype(jnp.float32)
    total = left + (weight * colours[:, sample_y, sample_x]).sum(axis=1)
    return total / (255.0 + (weight * 255.0).sum(axis=0))
