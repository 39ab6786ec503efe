"""Indices of the bands of satellite images, terrain, composites."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def ratio(a: Array, b: Array) -> Array:
    """(a - b) / (a + b), 0 where both are."""
    total = a + b
    return np.divide(a - b, total, out=np.zeros_like(total), where=total != 0)


def ndvi(nir: Array, red: Array) -> Array:
    return ratio(nir, red)


def evi(nir: Array, red: Array, blue: Array) -> Array:
    return 2.5 * (nir - red) / (nir + 6 * red - 7.5 * blue + 1)


def savi(nir: Array, red: Array, soil: float = 0.5) -> Array:
    return (nir - red) * (1 + soil) / (nir + red + soil)


def ndwi(green: Array, nir: Array) -> Array:
    return ratio(green, nir) > 0.1


def nbr(nir: Array, swir: Array) -> Array:
    return np.digitize(ratio(nir, swir), [-0.25, -0.1, 0.1, 0.27, 0.44, 0.66])


def msavi(nir: Array, red: Array) -> Array:
    return (2 * nir + 1 - np.sqrt((2 * nir + 1) ** 2 - 8 * (nir - red))) / 2


def bare_soil(swir: Array, red: Array, nir: Array, blue: Array) -> Array:
    return ratio(swir + red, nir + blue)


def tasselled_cap(bands: Array) -> Array:
    weights = np.array(
        [
            [0.3037, 0.2793, 0.4743, 0.5585, 0.5082],
            [-0.2848, -0.2435, -0.5436, 0.7243, 0.0840],
            [0.1509, 0.1973, 0.3279, 0.3406, -0.7112],
        ]
    )
    return np.tensordot(weights, bands, axes=1)


def reflectance(counts: Array, gain: float = 2.0e-3, offset: float = -0.1, elevation: float = 40.0) -> Array:
    values = np.where(counts == 0, np.nan, counts * gain + offset)
    return np.clip(values / np.sin(np.deg2rad(elevation)), 0, 1).astype(np.float32)


def cloud_mask(blue: Array, green: Array, red: Array, nir: Array, swir: Array) -> Array:
    white = (np.abs(blue - green) + np.abs(green - red)) / np.maximum((blue + green + red) / 3, 1e-6)
    return (blue > 0.15) & (white < 0.7) & (nir / np.maximum(red, 1e-6) < 2) & (nir / np.maximum(swir, 1e-6) > 0.75)


def slope(heights: Array, size: float = 30.0) -> Array:
    dy, dx = np.gradient(heights * 100, size)
    return np.degrees(np.arctan(np.hypot(dx, dy)))


def hillshade(heights: Array, azimuth: float = 315.0, altitude: float = 45.0) -> Array:
    dy, dx = np.gradient(heights * 100, 30.0)
    steep, aspect = np.arctan(np.hypot(dx, dy)), np.arctan2(-dx, dy)
    sun, zenith = np.deg2rad(360 - azimuth + 90), np.deg2rad(90 - altitude)
    shade = np.cos(zenith) * np.cos(steep) + np.sin(zenith) * np.sin(steep) * np.cos(sun - aspect)
    return np.clip(255 * shade, 0, 255).astype(np.uint8)


def to_composite(red: Array, green: Array, blue: Array) -> Array:
    out = np.empty((*red.shape, 3), np.uint8)
    for k, band in enumerate((red, green, blue)):
        low, high = np.percentile(band, (2, 98))
        out[..., k] = np.clip((band - low) / (high - low) * 255, 0, 255)
    return out


def masked_mean(band: Array, mask: Array) -> tuple[float, float]:
    values = band[mask]
    return values.mean(), values.std()
