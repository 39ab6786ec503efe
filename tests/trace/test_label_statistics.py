"""Statistics of the regions of a label image, as `scipy.ndimage` computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hjit
from tests.numpy_check import assert_same, check, sample

RNG = np.random.default_rng(2)
NAMES = ("sum", "sum_labels", "mean", "variance", "standard_deviation", "minimum", "maximum")
LABELS = np.kron(RNG.integers(-2, 30, (8, 9)), np.ones((4, 5), int))


def statistic(name: str, index: Any) -> Callable[..., Any]:
    return lambda image, labels: getattr(ndimage, name)(image, labels, index)


def extern_calls(p: Any) -> list[str]:
    return [e.operation for e in p.entries[-1].variants[0].rec.breaks if e.call is not None]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "uint64", "float32", "float64"])
def test_regions(name: str, dtype: str) -> None:
    image = (RNG.random(LABELS.shape) * 200).astype(dtype)
    for labels in (LABELS.astype("int16"), np.abs(LABELS).astype("uint8"), LABELS.T.copy().T):
        for index in (np.arange(1, 34), [3, 4, 5], np.array([7])):  # of some there are no pixels
            p = check(statistic(name, index), image, labels, zeros=False)
            assert not extern_calls(p)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_are_not_finite(name: str) -> None:
    image = sample(LABELS.shape, "float64", special=True)
    image[LABELS == 4], image[LABELS == 5], image[LABELS == 6] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        check(statistic(name, np.arange(30)), image, LABELS, zeros=False)


@pytest.mark.parametrize("name", NAMES)
def test_what_scipy_computes_as_it_is(name: str) -> None:
    image = RNG.random(LABELS.shape)
    for index in (None, 3, [5, 3, 9], [1, 1], np.array([[1, 2], [3, 4]]), np.array([1.0, 2.0])):
        check(statistic(name, index), image, LABELS)
    check(lambda a: getattr(ndimage, name)(a), image)
    check(lambda a, b: getattr(ndimage, name)(a, b[0], [1, 2]), image, LABELS)
    check(lambda a, b: getattr(ndimage, name)(a, b * 0.5, [1, 2]), image, LABELS)


@pytest.mark.parametrize("name", NAMES)
def test_regions_that_are_found_at_each_call(name: str) -> None:
    def f(image: Any) -> Any:
        labels, n = ndimage.label(image > 0.6)
        return getattr(ndimage, name)(image, labels, np.arange(1, n + 1))

    p = hjit.pipeline(f, cache="off", tune=False)
    for k in range(3):
        image = RNG.random((30 + k, 40))
        assert_same(p(image), f(image))
    assert p.stats.fallbacks == 0 and extern_calls(p) == ["scipy.ndimage.label"]


def test_the_run_of_labels_is_decided_on_where_it_is_an_argument() -> None:
    p = hjit.pipeline(lambda a, b, index: ndimage.mean(a, b, index), cache="off", tune=False, verify="off")
    image = RNG.random(LABELS.shape)
    for index in (np.arange(1, 9), np.arange(3, 11), np.array([1, 5, 2, 3, 4, 6, 7, 8]), np.arange(1, 9)):
        assert_same(p(image, LABELS, index), ndimage.mean(image, LABELS, index))
