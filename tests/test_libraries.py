"""What published image functions do that tests of single operations miss; packages of others are not needed here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fft
from scipy import signal, stats

import hjit
from hjit import TraceError

IMAGE = np.random.default_rng(5).random((40, 52))
SMALL = IMAGE[:33, :41].astype(np.float32)
BYTES = (IMAGE * 255).astype(np.uint8)
MODES = {"edge", "wrap"}


def agree(f: Callable[..., Any], *images: Any) -> None:
    """Two compiled calls for each image give NumPy's results, types included."""
    p = hjit.pipeline(f, verify="off")
    for image in images or (IMAGE, SMALL):
        for _ in range(2):
            ours, expected = p(image), f(image)
            many = isinstance(expected, tuple)
            for x, y in zip(ours if many else (ours,), expected if many else (expected,), strict=True):
                assert type(x) is type(y)
                assert np.asarray(x).dtype == np.asarray(y).dtype
                np.testing.assert_allclose(x, y, rtol=1e-6)
    assert p.stats.fallbacks == 0


def test_an_element_at_a_computed_index_is_a_scalar() -> None:
    def f(img: Any) -> Any:
        rows = img.max(axis=1)
        at = np.argmax(rows)
        return rows[at], rows[at, ...], img[at, 3], img[at].copy(), img[at // 2, at // 2, None].copy()

    agree(f, IMAGE, SMALL, BYTES)


def test_a_scalar_is_not_changed_in_place() -> None:
    def f(img: Any) -> Any:
        x = y = img.max() + 1
        x **= 2
        y += 1
        return x, y

    agree(f)


def test_values_under_a_mask_are_changed_in_place() -> None:
    def f(img: Any) -> Any:
        mask = img > 0.5
        a = img[mask]
        b, c = a, a.copy()
        a += np.float64(1.1)
        b **= 2
        np.sqrt(c, out=c)
        one, two = img.copy(), img.copy()
        one[mask], two[mask] = a, c
        return one, two

    agree(f)


@pytest.mark.parametrize(
    "f",
    [lambda img: img[img > 0.5][1:], lambda img: list(img[img > 0.5]), lambda img: float(img[img > 0.5])],
)
def test_what_values_under_a_mask_cannot_do(f: Callable[..., Any]) -> None:
    with pytest.raises(TraceError, match="boolean-mask read depends on the image's values"):
        hjit.pipeline(f)(IMAGE)


def test_a_transform_of_known_numbers_is_known() -> None:
    def f(img: Any) -> Any:
        kernel = np.zeros((3, 3))
        kernel[1, 1] = 4.0
        spectrum = np.abs(scipy.fft.rfftn(kernel, axes=range(-2, 0))) + np.fft.fft(kernel[1]).real[0]
        return img * float(spectrum.max()) + np.linalg.svd(np.diag(kernel[1]))[1][0]

    agree(f)


class Scaled:
    """A decorator that is a class and does more than what it wraps."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, x: Any) -> Any:
        return 3 * self.function(x)


@Scaled
def squared(x: Any) -> Any:
    return x * x


def test_a_decorator_that_is_a_class() -> None:
    agree(lambda img: squared(img))


def test_a_set_is_guarded_by_its_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(img: Any) -> Any:
        return img + 1 if "edge" in MODES else -img

    p = hjit.pipeline(f, verify="off")
    np.testing.assert_array_equal(p(IMAGE), f(IMAGE))
    np.testing.assert_array_equal(p(IMAGE), f(IMAGE))
    assert p.stats.traces == 1
    MODES.remove("edge")
    np.testing.assert_array_equal(p(IMAGE), -IMAGE)
    MODES.add("edge")
    np.testing.assert_array_equal(p(IMAGE), IMAGE + 1)

    def changes(img: Any) -> Any:
        MODES.add("reflect")
        return img * 2

    with pytest.raises(TraceError, match="outlives"):
        hjit.pipeline(changes)(IMAGE)
    assert {"edge", "wrap"} == MODES


def test_writes_through_flat_reach_a_view() -> None:
    def f(img: Any) -> Any:
        rows, columns, turned = img.copy(), img.copy(), img.copy()
        rows[2:5].flat[::7] = 1
        columns[:, 2:5].flat[::7] = 1
        turned.T.flat[::7] = 1
        return rows, columns, turned, np.diag(img[0, :3]), np.diag(np.arange(3.0)) * img[0, 0]

    agree(f)


def test_functions_that_scipy_wraps_for_arrays_of_any_package() -> None:
    agree(lambda img: signal.wiener(img, 3), IMAGE)
    agree(lambda img: stats.zscore(img, axis=None), IMAGE)
    agree(lambda img: stats.zscore(img * (img > 0.1)[0], axis=1), IMAGE)
    agree(lambda img: img.astype(np.result_type(np.uint8, img.shape[0])), BYTES)


def test_the_array_api() -> None:
    def f(img: Any) -> Any:
        xp = img.__array_namespace__()
        out = xp.zeros(img.shape, dtype=img.dtype, device=img.device)
        out[1:, :] = xp.sqrt(img.to_device("cpu"))[:-1, :]
        img.put([1, 2], [7, 8])
        return out + img.take([3]) + img[:, :2].compress([False, True], axis=1)

    agree(lambda img: f(img.copy()), IMAGE, SMALL)


def test_wrapping_as_an_array_is_wrapped() -> None:
    def f(a: Any) -> Any:
        made = np.asarray(a)
        return a.__array_wrap__(made) is made, getattr(a, "__array_wrap__", None) is None, a.__array_wrap__(made * 2)

    agree(f, IMAGE, IMAGE * 1j)
    p = hjit.pipeline(lambda a: a.__array_wrap__(a.sum()), on_unsupported="break")
    for _ in range(2):
        with pytest.raises(TypeError, match="argument 1 must be"):
            p(IMAGE)


def test_steady_states_of_filters() -> None:
    taps = [x.copy() for x in signal.butter(3, 0.2)]
    p = hjit.pipeline(signal.lfilter_zi)
    for _ in range(2):
        np.testing.assert_array_equal(p(*taps), signal.lfilter_zi(*taps))
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError):
            p(np.ones(2), np.array([1.0, -1.0]))
