"""A stereo pair refocused: depth by matching, then a blur as wide as each pixel is out of focus.

Source: Halide's `apps/lens_blur`. The aperture is sampled at random; the random numbers are R. Rivest's permutation
polynomials modulo a power of two (2001), so that every program draws the same ones.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import ndimage

SHAPE = (3, 320, 192)
SMALL = (3, 130, 133)
SLICES, FOCUS_DEPTH, BLUR_RADIUS_SCALE, APERTURE_SAMPLES = 32, 13, 0.5, 32
LEVELS = 8
TOLERANCE = (1e-5, 1e-6)


def downsample(volume: np.ndarray) -> np.ndarray:
    """(..., H, W) -> (..., H // 2, W // 2): the taps 1 3 3 1."""
    h, w = volume.shape[-2] // 2 * 2, volume.shape[-1] // 2 * 2
    p = np.pad(volume, [(0, 0)] * (volume.ndim - 2) + [(1, 1), (1, 1)], mode="edge")
    downx = (p[..., 0:w:2] + 3.0 * (p[..., 1 : w + 1 : 2] + p[..., 2 : w + 2 : 2]) + p[..., 3 : w + 3 : 2]) / 8.0
    return (
        downx[..., 0:h:2, :]
        + 3.0 * (downx[..., 1 : h + 1 : 2, :] + downx[..., 2 : h + 2 : 2, :])
        + downx[..., 3 : h + 3 : 2, :]
    ) / 8.0


def upsample(volume: np.ndarray, h: int, w: int) -> np.ndarray:
    """(..., h // 2, w // 2) -> (..., h, w), bilinear."""
    p = np.pad(volume, [(0, 0)] * (volume.ndim - 2) + [(1, 2), (1, 2)], mode="edge")
    even, odd = (w + 1) // 2, w // 2
    upx = np.empty(p.shape[:-1] + (w,), volume.dtype)
    upx[..., 0::2] = 0.25 * p[..., :even] + 0.75 * p[..., 1 : even + 1]
    upx[..., 1::2] = 0.25 * p[..., 2 : odd + 2] + 0.75 * p[..., 1 : odd + 1]
    even, odd = (h + 1) // 2, h // 2
    upy = np.empty(volume.shape[:-2] + (h, w), volume.dtype)
    upy[..., 0::2, :] = 0.25 * upx[..., :even, :] + 0.75 * upx[..., 1 : even + 1, :]
    upy[..., 1::2, :] = 0.25 * upx[..., 2 : odd + 2, :] + 0.75 * upx[..., 1 : odd + 1, :]
    return upy


def permute(n: np.ndarray) -> np.ndarray:
    """A permutation of the 32-bit integers."""
    return (n * np.uint32(0x3C6EF372) + np.uint32(0x85EBCA6B)) * n + np.uint32(0x9E3779B9)


def noise(seed: np.ndarray) -> np.ndarray:
    """uint32 -> float32 from -1 to 1, evenly spread."""
    return (permute(seed) >> np.uint32(8)).astype(np.float32) * np.float32(2**-23) - 1.0


def absolute_difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a > b, a - b, b - a)


def lens_blur(
    left: np.ndarray,
    right: np.ndarray,
    slices: int = SLICES,
    focus_depth: int = FOCUS_DEPTH,
    blur_radius_scale: float = BLUR_RADIUS_SCALE,
    aperture_samples: int = APERTURE_SAMPLES,
) -> np.ndarray:
    """uint8 (3, H, W), twice -> float32 (3, H, W) in 0 to 1; H and W of 128 at least."""
    _, h, w = left.shape
    radius = int(max(slices - focus_depth, focus_depth) * blur_radius_scale)

    # How badly each disparity explains each pixel, and how sure that is: the variance over all disparities.
    shifted = np.pad(right, [(0, 0), (0, 0), (0, 2 * slices - 1)], mode="edge")
    shifted = np.moveaxis(sliding_window_view(shifted, w, axis=2), 2, 1)  # (3, 2 * slices, H, W)
    reference = left[:, None]
    diff = np.minimum(
        absolute_difference(reference, shifted[:, 0::2]), absolute_difference(reference, shifted[:, 1::2])
    )
    diff = diff.astype(np.float32)
    cost = diff[0] ** 2 + diff[1] ** 2 + diff[2] ** 2
    mean = (cost / slices).sum(axis=0)
    confidence = (cost**2).sum(axis=0) / slices - mean**2

    # Costs where the confidence is low are filled in from around, by a pyramid of costs with weights.
    push = [np.stack([cost * confidence, np.broadcast_to(confidence, cost.shape)])]
    for _ in range(1, LEVELS):
        push.append(downsample(push[-1]))
    pull = push[-1]
    for level in reversed(push[:-1]):
        pull = 0.5 * upsample(pull, *level.shape[-2:]) + 0.5 * level
    filtered_cost = pull[0] / pull[1]
    depth = filtered_cost.argmin(axis=0).astype(np.int32)

    bokeh_radius = np.abs(depth - focus_depth).astype(np.float32) * blur_radius_scale
    bokeh_radius_squared = bokeh_radius**2
    worst_case_radius = ndimage.maximum_filter(bokeh_radius, 2 * radius + 1, mode="nearest")

    # What samples may see beyond the border is the border.
    colours = np.pad(left, [(0, 0), (radius, radius), (radius, radius)], mode="edge").astype(np.float32)
    depths = np.pad(depth, radius, mode="edge")
    bokehs = np.pad(bokeh_radius_squared, radius, mode="edge")

    # Each sample is taken where one pixel's blur covers the other.
    y, x = np.arange(h, dtype=np.int32)[:, None], np.arange(w, dtype=np.int32)
    sample = np.arange(aperture_samples, dtype=np.uint32)[:, None, None]
    seed = permute(permute(permute(x.astype(np.uint32)) + y.astype(np.uint32)) + sample)
    u = np.clip((noise(seed) * worst_case_radius).astype(np.int32), -radius, radius)
    v = np.clip((noise(seed + np.uint32(1)) * worst_case_radius).astype(np.int32), -radius, radius)
    sample_y, sample_x = y + v + radius, x + u + radius
    distance = (u * u + v * v).astype(np.float32)
    covers = distance < bokeh_radius_squared
    covered = distance < bokehs[sample_y, sample_x]
    in_front = depths[sample_y, sample_x] < depth
    weight = ((covers | in_front) & covered).astype(np.float32)
    total = left + (weight * colours[:, sample_y, sample_x]).sum(axis=1)
    alpha = 255.0 + (weight * 255.0).sum(axis=0)
    return total / alpha


def inputs(rng: np.random.Generator, shape: tuple[int, int, int] = SHAPE) -> tuple[np.ndarray, np.ndarray]:
    """Two random images, uint8 (3, H, W)."""
    return rng.integers(0, 256, shape, np.uint8), rng.integers(0, 256, shape, np.uint8)
