"""Convolution, stacking and photometry of astronomical images, written in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def convolve_with_gaps(img: Array, kernel: Array) -> Array:
    """NaNs are gaps, filled from their neighbours."""
    ky, kx = kernel.shape
    valid = ~np.isnan(img)
    padded = np.pad(np.where(valid, img, 0.0), ((ky // 2,) * 2, (kx // 2,) * 2))
    weights = np.pad(valid.astype(img.dtype), ((ky // 2,) * 2, (kx // 2,) * 2))
    total, weight = np.zeros_like(img), np.zeros_like(img)
    h, w = img.shape
    for y in range(ky):
        for x in range(kx):
            total += kernel[y, x] * padded[y : y + h, x : x + w]
            weight += kernel[y, x] * weights[y : y + h, x : x + w]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(weight > 0, total / weight, np.nan)


def sigma_clipped_mean(img: Array, sigma: float = 3.0, rounds: int = 5) -> tuple[float, float]:
    values = img.ravel()
    for _ in range(rounds):
        center, spread = np.median(values), values.std()
        kept = values[np.abs(values - center) <= sigma * spread]
        if kept.size == values.size:
            break
        values = kept
    return values.mean(), values.std()


def sigma_clipped_stack(stack: Array, sigma: float = 2.0) -> Array:
    center, spread = np.median(stack, axis=0), stack.std(axis=0)
    kept = np.abs(stack - center) <= sigma * spread
    return np.where(kept, stack, 0).sum(axis=0) / np.maximum(kept.sum(axis=0), 1)


def median_stack(stack: Array) -> Array:
    return np.median(stack / np.mean(stack, axis=(1, 2), keepdims=True), axis=0)


def weighted_stack(stack: Array) -> Array:
    weights = 1 / stack.var(axis=(1, 2))
    return np.average(stack, axis=0, weights=weights)


def background(img: Array, box: int = 32) -> Array:
    h, w = img.shape[0] // box, img.shape[1] // box
    boxes = img[: h * box, : w * box].reshape(h, box, w, box).transpose(0, 2, 1, 3).reshape(h, w, -1)
    level = 2.5 * np.median(boxes, axis=-1) - 1.5 * boxes.mean(axis=-1)
    return np.repeat(np.repeat(level, box, axis=0), box, axis=1)


def asinh_stretch(img: Array, a: float = 0.1) -> Array:
    low, high = img.min(), img.max()
    return np.arcsinh((img - low) / (high - low) / a) / np.arcsinh(1 / a)


def zscale_limits(img: Array, contrast: float = 0.25) -> tuple[float, float]:
    values = np.sort(img[::4, ::4].ravel())
    n = values.size
    x = np.arange(n) - (n - 1) / 2
    slope = (x * values).sum() / (x * x).sum() / contrast
    middle = values[n // 2]
    return max(values[0], middle - slope * n / 2), min(values[-1], middle + slope * n / 2)


def aperture_sum(img: Array, radius: float = 10.0) -> tuple[float, float]:
    h, w = img.shape
    y, x = np.ogrid[:h, :w]
    distance = np.sqrt((y - h / 2) ** 2 + (x - w / 2) ** 2)
    inside, ring = distance <= radius, (distance > 1.5 * radius) & (distance <= 2 * radius)
    sky = np.median(img[ring])
    return img[inside].sum() - sky * inside.sum(), sky


def moffat(img: Array, gamma: float = 3.0, alpha: float = 2.5) -> Array:
    h, w = img.shape
    y, x = np.mgrid[:h, :w]
    return img.max() * (1 + ((x - w / 2) ** 2 + (y - h / 2) ** 2) / gamma**2) ** -alpha


def cosmic_rays(img: Array, limit: float = 4.0) -> Array:
    p = np.pad(img, 1, mode="edge")
    h, w = img.shape
    near = np.stack([p[y : y + h, x : x + w] for y in range(3) for x in range(3) if (y, x) != (1, 1)])
    center = np.median(near, axis=0)
    spread = np.median(np.abs(near - center), axis=0) * 1.4826
    return np.where(img > center + limit * np.maximum(spread, 1e-3), center, img)


def clipped_background(img: Array, sigma: float = 2.0, rounds: int = 3) -> Array:
    """The image less its median and by its deviation, both without the sources."""
    kept = np.ones(img.shape, bool)
    for _ in range(rounds):
        center = np.median(img[kept])
        spread = 1.4826 * np.median(np.abs(img[kept] - center))
        kept = np.abs(img - center) <= sigma * spread
    return (img - center) / spread


def percentile_stretch(img: Array) -> Array:
    low, high = np.nanpercentile(img, (0.5, 99.5))
    return np.sqrt(np.clip((img - low) / (high - low), 0, 1))


def spread_of_stack(stack: Array) -> Array:
    """Half of the distance between two quantiles of each pixel; gaps are NaN."""
    with_gaps = np.where(stack < 95, np.nan, stack)
    low, high = np.nanpercentile(with_gaps, (15.87, 84.13), axis=0)
    return (high - low) / 2
