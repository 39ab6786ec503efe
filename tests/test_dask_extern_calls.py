"""Functions of NumPy and SciPy that run as they are, on arrays of Dask: in lazy tasks, where their results are known."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.chunks import extern_calls
from hjit.errors import HjitWarning
from tests.test_dask import image, never, one_thread  # noqa: F401 (the fixture)

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
ndimage = pytest.importorskip("scipy.ndimage")
Array = np.ndarray[Any, Any]


def sorted_columns(x: Array) -> Any:
    return np.sort(x, axis=0) + np.uint8(1)


def sorted_rows(x: Array) -> Any:
    return np.sort(x // 2, axis=1, kind="stable") - x.min()


def sorted_in_all(x: Array) -> Any:
    return np.sort(x, axis=None)


def orders(x: Array) -> Any:
    return np.argsort(x, 0, kind="stable"), np.argsort(x, kind="stable") * 2


def least(x: Array) -> Any:
    return np.partition(x, 50, axis=0)[50] + 0, np.take_along_axis(x, np.argpartition(x, 40, axis=1), 1)[:, 40]


def medians(x: Array) -> Any:
    return np.median(x, 0), np.median(x, axis=1, keepdims=True), np.median(x), np.percentile(x, 30, axis=0)


def several_quantiles(x: Array) -> Any:
    return np.quantile(x, [0.1, 0.5], axis=1) * 2


def transforms(x: Array) -> Any:
    f = np.fft.fft2(x)
    return np.abs(f), np.real(np.fft.ifft2(f * 2)), np.fft.fft(x, axis=0), np.fft.fftn(x, axes=(1,))


def labels(x: Array) -> Any:
    found, count = ndimage.label(x > 100)
    return found, count, found * count


def labels_alone(x: Array) -> Any:
    return ndimage.label(x > 100, structure=np.ones((3, 3)))[0] % 7


def distances(x: Array) -> Any:
    mask = x > 30
    return ndimage.distance_transform_edt(mask) * 2, ndimage.distance_transform_cdt(mask, "taxicab")


def other_sizes(x: Array) -> Any:
    y = x.astype(np.float32)
    return ndimage.zoom(y, 1.5, order=1), ndimage.zoom(y, (0.5, 2), order=3), ndimage.rotate(y, 30, reshape=False)


def one_after_the_other(x: Array) -> Any:
    return np.sort(np.sort(x * 3, axis=0), axis=1) - np.sort(x, axis=1)


def inverse(x: Array) -> Any:
    return np.linalg.inv(x[:20, :20] + 1000 * np.eye(20)).T * 2


FUNCTIONS = [sorted_columns, sorted_rows, sorted_in_all, orders, least, medians, several_quantiles, transforms, labels]
FUNCTIONS += [labels_alone, distances, other_sizes, one_after_the_other, inverse]


def assert_same(found: Any, expected: Any) -> None:
    several = isinstance(expected, tuple)
    for lazy, a, b in zip(
        found if several else (found,),
        dask.compute(*found) if several else dask.compute(found),
        expected if several else (expected,),
        strict=True,
    ):
        assert (lazy.shape, lazy.dtype, np.shape(a), np.asarray(a).dtype) == (np.shape(b), np.asarray(b).dtype) * 2
        if np.asarray(b).dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-4)  # SciPy and pocketfft round by what lies beside
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("small", [0, extern_calls.SMALL_CHUNK])
@pytest.mark.parametrize("f", FUNCTIONS, ids=[f.__name__ for f in FUNCTIONS])
def test_numbers_are_numpy_s(f: Callable[..., Any], small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extern_calls, "SMALL_CHUNK", small)
    x = image((110, 150), "u1")
    with warnings.catch_warnings():
        warnings.simplefilter("error", HjitWarning)
        assert_same(hjit.pipeline(f)(da.from_array(x, chunks=(40, 33))), f(x))


@pytest.mark.parametrize("f", FUNCTIONS, ids=[f.__name__ for f in FUNCTIONS])
def test_nothing_is_computed_at_the_call(f: Callable[..., Any]) -> None:
    x = da.from_delayed(dask.delayed(never)(), (1000, 1200), np.uint8).rechunk((300, 500))
    found = hjit.pipeline(f)(x)
    with pytest.raises(AssertionError, match="a chunk was computed"):
        dask.compute(found)


def test_tasks_have_all_of_one_axis_and_are_not_larger_than_chunks_were() -> None:
    x = da.zeros((8000, 6000), chunks=1000, dtype="f4")
    p: Any = hjit.pipeline(lambda x: np.sort(x, axis=0))
    found: Any = p(x)
    assert found.chunks[0] == (8000,) and len(found.chunks[1]) == 48
    assert "numpy.sort: as it is, in 48 tasks, each with all of its array along axis 0" in p.explain(x)
    along: Any = p(da.zeros((8000, 6000), chunks=(8000, 500), dtype="f4"))
    assert along.chunks == ((8000,), (500,) * 12), "chunks that have all of the axis stay"
    images: Any = hjit.pipeline(lambda x: np.abs(np.fft.fft2(x)))
    stack = images(da.zeros((20, 300, 300), chunks=(4, 100, 100)))
    assert len(stack.chunks[0]) >= 10, "a stack of images is cut between them"
    whole = hjit.pipeline(lambda x: ndimage.label(x > 0)[0])
    assert "scipy.ndimage.label: as it is, in one task, as it needs all of its array" in whole.explain(x)


def test_complex_arrays_come_and_go() -> None:
    x = image((60, 70), "f8") + 1j * image((60, 70), "f8", seed=1)
    lazy = da.from_array(x, chunks=(20, 30))
    for f in (lambda z: z * 2, lambda z: np.fft.ifft2(z), lambda z: np.abs(z) + z.real, lambda z: z.T + 1):
        assert_same(hjit.pipeline(f)(lazy), f(x))


def test_the_same_array_in_two_shapes() -> None:
    def f(x: Array) -> Any:
        y = x + 1
        return np.sort(y, axis=None)[::2] + 0, np.sort(y, axis=0)

    x = image((30, 40), "i4")
    assert_same(hjit.pipeline(f)(da.from_array(x, chunks=(10, 40))), f(x))


def test_calls_travel() -> None:
    x = image((60, 70), "u1")
    for f in (sorted_columns, transforms, labels, other_sizes):
        found = hjit.pipeline(f)(da.from_array(x, chunks=20))
        assert_same(pickle.loads(pickle.dumps(found)), f(x))


def test_what_the_function_decides_on_is_computed() -> None:
    def f(x: Array) -> Any:
        found, count = ndimage.label(x > 250)
        return [(found == k + 1).sum() for k in range(count)]

    x = image((40, 50), "u1")
    with pytest.warns(HjitWarning, match="decides on values"):
        found = hjit.pipeline(f)(da.from_array(x, chunks=20))
    np.testing.assert_array_equal(dask.compute(*found), f(x))


def test_errors_are_the_function_s_own() -> None:
    x = da.zeros((40, 50), chunks=20)
    with pytest.raises(np.exceptions.AxisError):
        hjit.pipeline(lambda x: np.sort(x, axis=5))(x)
    with pytest.raises(ValueError, match="kth"):
        dask.compute(hjit.pipeline(lambda x: np.partition(x, 500, axis=0))(x))
