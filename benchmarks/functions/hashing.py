"""Perceptual hashes of images, as they are usually written in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def cells(img: Array, n: int) -> Array:
    """Means of n x n cells."""
    h, w = img.shape[0] // n * n, img.shape[1] // n * n
    return img[:h, :w].reshape(n, h // n, n, w // n).mean(axis=(1, 3))


def bits_to_int(bits: Array) -> int:
    value = 0
    for bit in bits.ravel():
        value = value << 1 | int(bit)
    return value


def average_hash(img: Array) -> int:
    small = cells(img, 8)
    return bits_to_int(small > small.mean())


def difference_hash(img: Array) -> Array:
    small = cells(img, 9)
    return np.packbits(small[:8, 1:] > small[:8, :-1])


def perceptual_hash(img: Array) -> Array:
    small = cells(img, 32)
    k = np.arange(32)
    cosines = np.cos(np.pi * (2 * k[None, :] + 1) * k[:, None] / 64)
    low = (cosines @ small @ cosines.T)[:8, :8]
    return np.packbits(low > np.median(low))


def wavelet_hash(img: Array) -> Array:
    a = cells(img, 16)
    for _ in range(1):
        rows = (a[0::2] + a[1::2]) / 2
        a = (rows[:, 0::2] + rows[:, 1::2]) / 2
    return np.packbits(a > np.median(a))


def block_mean_hash(img: Array) -> Array:
    small = cells(img.astype(np.float64), 16)
    return np.packbits(small >= np.median(small))


def colour_hash(img: Array) -> Array:
    high, low = img.max(axis=-1), img.min(axis=-1)
    is_gray = (high - low) < 0.1
    is_black = high < 0.125
    brightest = np.argmax(img, axis=-1)
    counts = [np.mean(is_black), np.mean(is_gray & ~is_black)]
    counts += [np.mean((brightest == c) & ~is_gray & ~is_black) for c in range(3)]
    return np.minimum(7, np.array(counts) * 8).astype(np.uint8)
