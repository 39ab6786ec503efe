"""What programs as users write them found: each was a wrong dtype, a false alarm, a first call without end, or a refusal."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hjit
from tests.numpy_check import check

RNG = np.random.default_rng(4)
IMAGE = RNG.random((17, 31))


@pytest.mark.parametrize("size", [3, 5, 15])
def test_box_filters_of_doubles_are_no_false_alarm(size: int) -> None:
    """SciPy keeps a running sum: its last digits are others."""
    f = hjit.pipeline(lambda a: ndimage.uniform_filter(a, size) * 2, cache="off", verify="first")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(f(IMAGE), ndimage.uniform_filter(IMAGE, size) * 2, rtol=1e-13)
    assert f.stats.fallbacks == 0


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_linspace_has_the_dtype_of_its_ends(dtype: str) -> None:
    a = IMAGE.astype(dtype)
    check(lambda a: np.linspace(0, a.max(), 5), a)
    check(lambda a: np.linspace(a.min(), a.max(), 7, endpoint=False), a)


@pytest.mark.parametrize("convert", [int, float, complex, range, lambda u: [10, 20, 30][u], lambda u: IMAGE[:u]])
def test_only_arrays_without_axes_are_python_numbers(convert: Any) -> None:
    u = np.ones((4, 5), np.uint8)
    with pytest.raises(TypeError):
        convert(u)
    with pytest.raises(TypeError):
        hjit.pipeline(lambda u: (convert(u), u + 1)[1])(u)
    with pytest.raises(TypeError):
        hjit.pipeline(lambda u, k: (convert(k), u + 1)[1])(u, np.array([2]))


def richardson_lucy(d: Any, iterations: int = 3) -> Any:
    y, x = np.mgrid[-2:3, -2:3]
    psf = np.exp(-(x**2 + y**2) / 2.0)
    psf /= psf.sum()
    e = np.full(d.shape, 0.5)
    for _ in range(iterations):
        e *= ndimage.convolve(d / np.maximum(ndimage.convolve(e, psf), 1e-12), psf[::-1, ::-1])
    return e


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (17, 31)])
def test_a_search_does_not_inline_filters_into_filters_without_end(shape: tuple[int, int]) -> None:
    """It looks free where there are a few pixels only; the programs that came of it were millions of operations long."""
    f = hjit.pipeline(richardson_lucy, tune="greedy", cache="off", verify="off")
    d = RNG.random(shape)
    np.testing.assert_allclose(f(d), richardson_lucy(d), rtol=1e-10)
    assert len(str(f.graph(d))) < 200_000


def test_long_tables_are_interpolated_in_after_few_steps_of_the_compiler() -> None:
    x, y = np.sort(RNG.random(1000)), RNG.random(1000)
    check(lambda v, x, y: np.interp(v, x, y), IMAGE, x, y, exact=False)


@pytest.mark.parametrize("name", ["nanvar", "nanstd", "nanmean"])
@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_statistics_without_nans(name: str, axis: Any) -> None:
    a = IMAGE.copy()
    a[3, 5:9] = np.nan
    check(lambda a: getattr(np, name)(a, axis=axis), a, exact=False)


def test_files_are_not_read_once_for_all_calls(tmp_path: Path) -> None:
    file = str(tmp_path / "x.npy")
    np.save(file, 2.0)
    for read in (lambda: np.load(file), lambda: np.fromfile(file).sum(), lambda: np.memmap(file).sum()):
        with pytest.raises(hjit.TraceError, match="read it outside the function"):
            hjit.pipeline(lambda a: a * read())(IMAGE)


def test_paths_and_fractions_are_values(tmp_path: Path) -> None:
    check(lambda a: a * len((tmp_path / "x").parts), IMAGE)


def test_integers_out_of_range_compare_as_numpys_do() -> None:
    u = RNG.integers(0, 256, (9, 40)).astype(np.uint8)
    f = hjit.pipeline(lambda u, k: (u < k) & (u != -k), cache="off", verify="off")
    for k in (3, 300, 3, -1, 255, 256, 1 << 70):
        assert np.array_equal(f(u, k), (u < k) & (u != -k)), k
    g = hjit.pipeline(lambda u, k: u + k, cache="off", verify="off")
    for k in (3, 300, 4, -1):
        if 0 <= k < 256:
            assert np.array_equal(g(u, k), u + k)
        else:
            with pytest.raises(OverflowError):
                g(u, k)


@pytest.mark.parametrize(
    "f",
    [
        lambda v: np.interp(v[0], [0, 1], [2, 3]),
        lambda v: np.interp(v[:1].reshape(()), [0, 1], [2, 3]),
        lambda v: (np.digitize(v[0], [0.0, 1.0]), np.digitize(v.sum(), v)),
        lambda v: np.searchsorted(v, v[2:3].reshape(())),
    ],
)
def test_look_ups_of_one_number_are_scalars(f: Any) -> None:
    check(f, np.arange(6.0))


def test_interpolation_in_one_point_and_in_points_out_of_order() -> None:
    x = np.array([np.nan, -1.0, 0.0, 1.0, np.inf])
    one = [np.array([0.0]), np.array([5.0])]
    check(
        lambda v, p, q: (np.interp(v, p, q), np.interp(v, p, q, left=1, right=2), np.interp(v, [1.0], [7.0])), x, *one
    )
    f = hjit.pipeline(lambda v, p, q: np.interp(v, p, q))
    for p in (np.arange(6.0), np.array([3.0, 1, 2, 5, 4, 0]), np.array([0.0, 1, np.nan, 3, 4, 5]), np.zeros(6)):
        v, q = np.linspace(-1, 6, 40), np.arange(6.0) * 2
        np.testing.assert_array_equal(f(v, p, q), np.interp(v, p, q))


def test_whole_numbers_of_the_random_state_are_python_numbers() -> None:
    f = hjit.pipeline(lambda v: (np.random.get_state()[2:], v + 1))
    for seed in range(3):
        np.random.seed(seed)
        np.random.rand(seed + 3)
        found, expected = f(IMAGE)[0], np.random.get_state()[2:]
        assert found == expected and list(map(type, found)) == list(map(type, expected))
