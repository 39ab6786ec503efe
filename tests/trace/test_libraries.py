"""Published image code, traced with its packages untouched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.ndimage
from scipy.ndimage import gaussian_filter

from tests.trace.helpers import check

color = pytest.importorskip("skimage.color")
exposure = pytest.importorskip("skimage.exposure")
feature = pytest.importorskip("skimage.feature")
filters = pytest.importorskip("skimage.filters")
bayer = pytest.importorskip("colour_demosaicing")

SHAPES = ((4, 5), (20, 37))


def rgb(shape: Any, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    a = np.random.default_rng(0).random((*shape, 3))
    return (a * 255).astype(dtype) if np.dtype(dtype).kind == "u" else a.astype(dtype)


def grey(shape: Any, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(rgb(shape, dtype)[..., 0])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_skimage_color(shape: Any, dtype: Any) -> None:
    check(color.rgb2gray, rgb(shape, dtype), exact=False)
    check(color.rgb2hsv, rgb(shape, dtype), exact=False)
    check(
        lambda a: color.rgb2lab(a) / 100, rgb(shape, dtype), exact=False
    )  # a and b are small differences of large numbers


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_skimage_filters(shape: Any, dtype: Any) -> None:
    check(filters.gaussian, grey(shape, dtype), 1.5, exact=False)
    check(filters.gaussian, rgb(shape, dtype), sigma=2, channel_axis=-1, exact=False)
    check(filters.sobel, grey(shape, dtype), exact=False)
    check(filters.unsharp_mask, grey(shape, dtype), radius=2, amount=1.5, exact=False)
    check(filters.unsharp_mask, rgb(shape, dtype), radius=2, channel_axis=2, exact=False)
    check(feature.corner_harris, grey(shape, dtype), exact=False)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_skimage_exposure(dtype: Any) -> None:
    check(exposure.adjust_gamma, grey((20, 18), dtype), 2.2, exact=False)


@pytest.mark.parametrize("pattern", ["RGGB", "BGGR"])
@pytest.mark.parametrize("shape", [(6, 8), (20, 34)])
def test_demosaicing(shape: Any, pattern: str) -> None:
    check(bayer.demosaicing_CFA_Bayer_bilinear, grey(shape), pattern, exact=False)
    check(bayer.demosaicing_CFA_Bayer_Malvar2004, grey(shape), pattern, exact=False)


def test_own_function() -> None:
    kernel = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16

    def edges(a: Any, sigma: float) -> Any:
        smooth = scipy.ndimage.convolve(a, kernel, mode="nearest")
        detail = a - gaussian_filter(a, sigma)
        return np.where(np.abs(detail) > 0.1, smooth + detail, smooth)

    for shape in SHAPES:
        check(edges, grey(shape), 1.2)


MORPHOLOGY = ["erosion", "dilation", "opening", "closing", "white_tophat", "black_tophat"]
RANKS = ["mean", "median", "minimum", "autolevel", "entropy", "otsu"]


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
@pytest.mark.parametrize("name", MORPHOLOGY)
def test_skimage_grey_morphology(name: str, dtype: Any) -> None:
    morphology = pytest.importorskip("skimage.morphology")
    f = getattr(morphology, name)
    check(lambda a: f(a, morphology.disk(1)) * 2, grey((20, 37), dtype), exact=False)
    check(f, grey((20, 37), dtype), exact=False)


@pytest.mark.parametrize("name", RANKS)
def test_skimage_rank_filters(name: str) -> None:
    rank, disk = pytest.importorskip("skimage.filters.rank"), pytest.importorskip("skimage.morphology").disk
    f = getattr(rank, name)
    check(lambda a: f(a, disk(2)) + 1, grey((20, 37), np.uint8), exact=False)


def test_skimage_transforms() -> None:
    transform = pytest.importorskip("skimage.transform")
    a = grey((20, 37))
    check(lambda a: transform.resize(a, (11, 23), anti_aliasing=True), a, exact=False)
    check(lambda a: transform.resize(a > 0.5, (11, 23)), a, exact=False)
    check(lambda a: transform.rotate(a, 30), a, exact=False)


def test_sigmas_in_an_array() -> None:
    check(lambda a, s: gaussian_filter(a, s), grey((20, 37)), np.array([1.0, 2.5]), exact=False)
    check(lambda a: gaussian_filter(a, np.array(a.shape) / 20), grey((20, 37)), exact=False)
