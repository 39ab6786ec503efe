"""`np.histogram2d` and `np.histogramdd`: the bins of values and of edges, ranges of the samples, what NumPy refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hjit
from tests.numpy_check import check

RNG = np.random.default_rng(7)
DTYPES = ("uint8", "int16", "int64", "float32", "float64")
quick = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
EDGES = np.array([0.0, 0.2, 0.21, 7.0, 90.0])


def samples(dtype: str, n: int = 300) -> list[Any]:
    return [(100 * RNG.random(n)).astype(dtype) for _ in range(3)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bins": 5, "density": True},
        {"bins": (4, 9), "range": ((0, 100), (10, 20.5))},
        {"bins": 3, "range": (None, (-1, 5))},
        {"bins": EDGES},
        {"bins": (8, EDGES), "range": ((7, 7), None)},
        {"bins": [np.array([0, 3, 50]), np.array([1, 1, 2, 99])], "density": True},
    ],
)
def test_two_dimensions(dtype: str, options: dict[str, Any]) -> None:
    x, y, _ = samples(dtype)
    check(lambda x, y: np.histogram2d(x, y, **options), x, y)
    check(lambda x, y, w: np.histogram2d(x, y, weights=w, **{**options, "density": False}), x, y, RNG.random(300))


@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_and_lists_of_samples(dtype: str) -> None:
    x, y, z = samples(dtype)
    check(lambda x, y, z: np.histogramdd((x, y.astype("f4"), z), bins=(3, 4, 5)), x, y, z)
    check(lambda a: np.histogramdd(a, 6), np.stack([x, y, z], axis=1))
    check(lambda a: np.histogramdd(a.T, 6, density=True)[0], np.stack([x, y]))
    check(lambda x: np.histogramdd([x], 4), x)
    check(lambda x: np.histogramdd(x, 4), x)
    check(lambda a: np.histogramdd(a, 2), (RNG.random((40, 6)) * 9).astype(dtype))


def test_an_image_is_one_kernel_behind_the_range_of_its_values() -> None:
    p = hjit.pipeline(
        lambda a, b: np.histogram2d(a.ravel(), b.ravel(), 32)[0], cache="off", tune=False, on_unsupported="raise"
    )
    a, b = RNG.random((2, 60, 70))
    for k in range(3):  # other extremes
        np.testing.assert_array_equal(p(a * k + b, b), np.histogram2d((a * k + b).ravel(), b.ravel(), 32)[0])
    assert p.stats.traces == 1
    (variant,) = p.entries[0].variants
    assert len(variant.rec.breaks) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"bins": 0},
        {"bins": (3, 4, 5)},
        {"range": ((1, 0), (0, 1))},
        {"range": ((0, np.inf), (0, 1))},
        {"range": ((0, 1),)},
        {"bins": [np.array([3, 2, 1]), 4]},
        {"bins": 2.5},
        {"weights": np.ones(7)},
    ],
)
def test_what_numpy_refuses(options: dict[str, Any]) -> None:
    x, y, _ = samples("float64")
    check(lambda x, y: np.histogramdd([x, y], **options), x, y)


def test_ranges_that_numpy_takes_otherwise() -> None:
    p = hjit.pipeline(lambda x, y: np.histogram2d(x, y, 4), cache="off", verify="off", tune=False)
    x, y, _ = samples("float64")
    for a in (x, np.full(300, 3.5), np.where(x < 1, np.nan, x), np.nextafter(np.ones(300), x % 2 * 2), x):
        try:
            expected = np.histogram2d(a, y, 4)
        except ValueError as error:
            with pytest.raises(ValueError, match="finite"):
                p(a, y)
            assert "finite" in str(error)
            continue
        for ours, numpys in zip(p(a, y), expected, strict=True):
            np.testing.assert_array_equal(ours, numpys, strict=True)
    check(lambda x, y: np.histogram2d(x, y, 4), x[:0], y[:0])
    check(lambda x, y: np.histogram2d(x, y, 4, ((0, 50), (0, 50)))[0], np.where(x < 30, np.nan, x), y)


@quick
@given(
    st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=30),
    st.integers(1, 12),
    st.sampled_from(["float32", "float64"]),
)
def test_values_at_the_edges(values: list[float], bins: int, dtype: str) -> None:
    edges = np.linspace(-5, 5, bins + 1)
    beside = [np.nextafter(edges, 9), np.nextafter(edges, -9), np.nextafter(edges.astype("f4"), np.float32(-9)), edges]
    a = np.concatenate([np.array(values, dtype), *(x.astype(dtype) for x in beside), [np.nan]]).astype(dtype)
    check(lambda a: np.histogramdd([a, a[::-1].copy()], bins, ((-5, 5), (-5, 5))), a)
    check(lambda a: np.histogram2d(a[:-1], a[-2::-1], bins), a)
