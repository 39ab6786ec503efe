"""Views by strides (`as_strided`), and writes to views that show an element more than once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import hjit
from hjit import TraceError
from tests.numpy_check import check

IMAGE = np.random.default_rng(6).random((24, 32))
GREY = (IMAGE * 255).astype(np.uint8)


def windows(a: Any) -> Any:
    return as_strided(a, (a.shape[0] - 2, a.shape[1] - 2, 3, 3), a.strides * 2).sum(axis=(2, 3))


def blocks(a: Any) -> Any:
    step = np.array([4, 8])
    shape = tuple(np.array(a.shape) // step) + tuple(step)
    return as_strided(a, shape, tuple(np.array(a.strides) * step) + a.strides).max(axis=(2, 3))


@pytest.mark.parametrize(
    "a",
    [IMAGE, GREY, IMAGE[::-1], IMAGE[2:, ::2], IMAGE.T, np.asfortranarray(GREY)],
    ids=lambda a: f"{a.dtype}{a.strides}",
)
def test_windows_blocks_and_diagonals(a: Any) -> None:
    for f in (windows, blocks):
        check(f, a, exact=False)
    check(lambda a: as_strided(a, (min(a.shape),), (sum(a.strides),)) + 1, a)
    check(lambda a: as_strided(a[1:, 2:], (3, 2, 4), (a.strides[0] * 2, 0, a.strides[1])) * 2, a)
    check(lambda a: as_strided(a) * 2, a)


def test_rows_that_run_into_one_another() -> None:
    check(lambda a: as_strided(a, (a.size - 5, 6), (a.itemsize, a.itemsize)).mean(axis=1), IMAGE, exact=False)
    check(lambda a: as_strided(np.arange(12.0), (4, 3), (8, 16)) + a[0, 0], IMAGE)


def test_another_size_compiles_nothing() -> None:
    f = hjit.pipeline(windows, verify="off", cache="off", tune=False)
    for a in (IMAGE, np.ones((40, 53)), np.ones((55, 39))):
        np.testing.assert_allclose(f(a), windows(a))
    assert f.stats.compilations <= 1


def test_nothing_outside_of_the_array_is_read() -> None:
    a = IMAGE.copy()
    for shape, strides in (((24, 33), a.strides), ((25, 32), a.strides), ((3,), (-8,)), ((3,), (4,))):
        with pytest.raises(TraceError, match="out of the array, or between its elements"):
            hjit.pipeline(lambda a, s=shape, t=strides: as_strided(a, s, t) + 1)(a)
    check(lambda a: as_strided(a, (3, 3), (8,)), a)


def test_writes_in_numpys_order() -> None:
    def f(a: Any) -> Any:
        b, c, d = a.copy(), a.copy(), a.copy()
        as_strided(b, (22, 3), (b.strides[0],) * 2)[...] = np.arange(66.0).reshape(22, 3)
        sliding_window_view(c, 5, 1, writeable=True)[...] = np.arange(5.0) * a[:, :1, None]
        as_strided(d, (24,), (d.strides[0] + 8,))[...] = 0
        return b, c, d

    check(f, IMAGE)


def test_a_view_is_written_to() -> None:
    def f(a: Any) -> Any:
        as_strided(a, (6, 4, 4, 8), (a.strides[0] * 4, a.strides[1] * 8, *a.strides))[1:3, 0] += 1
        return a * 2

    check(f, IMAGE)


def test_a_view_that_is_read_only() -> None:
    def f(a: Any) -> Any:
        v = as_strided(a, (4, 4), a.strides, writeable=False)
        try:
            v[0] = 1
        except ValueError:
            return v.flags.writeable, v.view(np.int64), v * 2
        return None

    check(f, IMAGE)


def test_scikit_images_windows_and_blocks() -> None:
    util, measure = pytest.importorskip("skimage.util"), pytest.importorskip("skimage.measure")
    transform = pytest.importorskip("skimage.transform")
    check(lambda a: util.view_as_windows(a, (3, 3), 2).sum(axis=(2, 3)), IMAGE, exact=False)
    check(lambda a: util.view_as_blocks(a, (4, 4)).max(axis=(2, 3)), GREY)
    check(lambda a: measure.block_reduce(a, (3, 5), np.max), IMAGE)
    check(lambda a: transform.downscale_local_mean(a, (2, 3)), IMAGE, exact=False)
