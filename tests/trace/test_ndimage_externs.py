"""Filters that SciPy itself computes in the midst of a Graph: large windows, and repeating until nothing changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.ndimage as ndi
import scipy.signal

from tests.numpy_check import check

RNG = np.random.default_rng(0)


def compiled(f: Any, *args: Any) -> None:
    check(f, *args, on_unsupported="raise", tune=False)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
def test_ranks_in_large_windows(dtype: str) -> None:
    a = (RNG.random((31, 40)) * 100).astype(dtype)

    def f(x: Any) -> Any:
        centre = ndi.median_filter(x * 2, 7, mode="nearest")
        return x - centre, ndi.percentile_filter(x, 20, (9, 5), mode="wrap", origin=1), ndi.rank_filter(x, -3, 7)

    compiled(f, a)
    compiled(lambda x: scipy.signal.medfilt(x, 7) + x, a)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64"])
def test_ranks_in_long_windows_of_lines(dtype: str) -> None:
    a = (RNG.random(300) * 100).astype(dtype)
    compiled(lambda x: x - ndi.median_filter(x, 41), a)
    compiled(lambda x: ndi.percentile_filter(x, 10, 35, mode="constant", cval=3), a)


def test_into_an_array_and_with_a_footprint() -> None:
    def f(x: Any, dtype: Any) -> Any:
        out = np.zeros(x.shape, dtype)
        ndi.median_filter(x, footprint=np.hypot(*np.ogrid[-4:5, -4:5]) < 4.5, output=out)
        out += 1
        return out

    for dtype in ("float32", "int16"):
        compiled(f, RNG.random((31, 40)).astype(np.float32) * 90, dtype)


def test_an_adaptive_threshold() -> None:
    def f(img: Any, offset: Any) -> Any:
        return img > ndi.median_filter(img, 11) - offset

    compiled(f, (RNG.random((40, 50)) * 255).astype(np.uint8), 3.5)


def test_until_nothing_changes() -> None:
    def f(x: Any, times: Any) -> Any:
        seeds, mask = x > 0.95, x > 0.4
        grown = ndi.binary_dilation(seeds, mask=mask, iterations=times)
        out = np.zeros(x.shape, bool)
        ndi.binary_erosion(mask, iterations=-1, output=out)
        return grown * x, ndi.binary_opening(mask, iterations=2), out

    for times in (0, -1, 3):
        compiled(f, RNG.random((31, 40)), times)


def test_convolutions_by_the_transform_that_scipy_chooses() -> None:
    a, kernel = RNG.random((40, 50)), RNG.random((5, 5))

    def f(x: Any, k: Any) -> Any:
        return scipy.signal.convolve(x * 2, k, mode="same") + 1, scipy.signal.correlate(x, k)

    compiled(f, a, kernel)
    compiled(f, a.astype(np.float32), kernel.astype(np.float32))
    compiled(f, (a * 100).astype(np.uint8), kernel)
    with pytest.warns(RuntimeWarning, match="fft"):
        compiled(lambda x, k: scipy.signal.convolve(x, k) * 2, np.where(a > 0.99, np.nan, a), kernel)
