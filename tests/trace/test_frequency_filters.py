"""Whole functions of complex numbers, as they are found in image processing: compiled as one, and verified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import check


def gabor(image: Any, frequency: float, theta: float, sigma: float) -> Any:
    y, x = np.mgrid[-7:8, -7:8]
    turned = x * np.cos(theta) + y * np.sin(theta)
    kernel = np.exp(-0.5 * (x**2 + y**2) / sigma**2) * np.exp(2j * np.pi * frequency * turned)
    windows = np.lib.stride_tricks.sliding_window_view(image, kernel.shape)
    real, imaginary = (windows * kernel.real).sum((-2, -1)), (windows * kernel.imag).sum((-2, -1))
    return np.hypot(real, imaginary)


def butterworth(image: Any, cutoff: float, order: int) -> Any:
    rows, columns = (np.fft.fftfreq(n) for n in image.shape)
    distance = np.sqrt(rows[:, None] ** 2 + columns**2)
    return np.fft.ifft2(np.fft.fft2(image) / (1 + (distance / cutoff) ** (2 * order))).real


def wiener(image: Any, blur: Any, balance: float) -> Any:
    transfer = np.fft.fft2(blur, image.shape)
    return np.real(np.fft.ifft2(np.conj(transfer) / (np.abs(transfer) ** 2 + balance) * np.fft.fft2(image)))


def phase_correlation(a: Any, b: Any) -> Any:
    product = np.fft.fft2(a) * np.fft.fft2(b).conj()
    product /= np.maximum(np.abs(product), 1e-12)
    peaks = np.abs(np.fft.ifft2(product))
    return np.fft.fftshift(peaks), peaks.argmax()


def spectral_residual(image: Any) -> Any:
    spectrum = np.fft.fft2(image)
    log_amplitude, phase = np.log(np.abs(spectrum) + 1e-6), np.angle(spectrum)
    padded = np.pad(log_amplitude, 1, mode="edge")
    mean = sum(padded[i : i + image.shape[0], j : j + image.shape[1]] for i in range(3) for j in range(3)) / 9
    return np.abs(np.fft.ifft2(np.exp(log_amplitude - mean + 1j * phase))) ** 2


IMAGE = np.random.default_rng(5).random((48, 64))
WHOLE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gabor": (gabor, (IMAGE, 0.2, 0.6, 2.5)),
    "butterworth": (butterworth, (IMAGE, 0.1, 2)),
    "wiener": (wiener, (IMAGE, np.ones((5, 5)) / 25, 0.01)),
    "phase correlation": (phase_correlation, (IMAGE, np.roll(IMAGE, (3, -7), (0, 1)))),
    "spectral residual": (spectral_residual, (IMAGE,)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_functions(name: str) -> None:
    function, args = WHOLE[name]
    check(function, *args, exact=False, ulps=256, on_unsupported="raise")
    pipe = hjit.pipeline(function, on_unsupported="raise", cache="off")
    for _ in range(3):
        pipe(*args)
    assert pipe.stats.verified
