"""Interleaved updates need no initial value where they cover a stage, and run together over rows of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.numpy_check import check
from tests.test_stencils import mosaic
from tests.trace.test_canonical import canonical

IMAGE = np.random.default_rng(1).integers(0, 200, (37, 70)).astype(np.uint8)


def bayer(a: Any) -> Any:
    out = np.empty((2 * a.shape[0], 2 * a.shape[1]), np.int16)
    out[0::2, 0::2] = a
    out[0::2, 1::2] = a * 2
    out[1::2, 0::2] = a + 7
    out[1::2, 1::2] = a[::-1]
    return out


def thirds(a: Any) -> Any:
    out = np.zeros((a.shape[0], 3 * a.shape[1]), np.float32)
    for k in range(3):
        out[:, k::3] = a * (k + 0.5)
    return out


def not_all(a: Any) -> Any:
    out = np.full((a.shape[0], 2 * a.shape[1]), 5, np.int32)
    out[:, 0::2] = a
    return out


def too_short(a: Any) -> Any:
    out = np.full((a.shape[0], 2 * a.shape[1] + 1), 5, np.int32)
    out[:, 0:-1:2] = a
    out[:, 1::2] = a + 1
    return out


@pytest.mark.parametrize(("function", "covered"), [(bayer, True), (thirds, True), (not_all, False), (too_short, False)])
def test_interleaved_updates_need_no_initial_value(function: Any, covered: bool) -> None:
    graph = canonical(function, IMAGE)
    assert (graph.stage(graph.outputs[0]).initial is None) is covered
    check(function, IMAGE)


def test_planes_in_interleaved_updates_need_no_initial_value() -> None:
    def mosaic(a: Any) -> Any:
        out = np.empty((2, 2 * a.shape[0], a.shape[1]), np.float32)
        for c in range(2):
            out[c, 0::2] = a * (c + 1)
            out[c, 1::2] = a + c
        return out

    (s,) = canonical(mosaic, np.ones((20, 30), np.float32)).stages
    assert s.initial is None and len(s.updates) == 4

    def gap(a: Any) -> Any:
        out = np.zeros((3, 2 * a.shape[0], a.shape[1]), np.float32)
        out[0, 0::2] = a
        out[1, 1::2] = a
        return out

    assert canonical(gap, np.ones((20, 30), np.float32)).stages[0].initial is not None


def thirds_of_rows(a: Any) -> Any:
    out = np.zeros_like(a)
    for k in range(3):
        out[:, k::3] = a[:, k::3] * (k + 1)
    return out


def overwritten(a: Any) -> Any:
    """Of three updates the last one is the next element of the first."""
    out = np.zeros_like(a)
    out[:, 0:-2:2] = a[:, 0:-2:2] * 3
    out[:, 1:-1:2] = a[:, 1:-1:2] * 5
    out[:, 2::2] = a[:, 2::2] * 7
    return out


def reading(a: Any) -> Any:
    out = a.copy()
    out[:, 0::2] += 1
    out[:, 1::2] += out[:, 0:-1:2]
    return out


@pytest.mark.parametrize(
    "shape", [(37, 71), (37, 70), (36, 71), (20, 300), (1, 33), (33, 1), (2, 2), (19, 66), (19, 67), (19, 68)]
)
def test_interleaved_updates_of_rows_of_any_length(shape: tuple[int, int]) -> None:
    a = np.random.default_rng(3).integers(0, 80, (*shape, 3)).astype(np.uint8)
    check(mosaic, a)
    for f in (thirds_of_rows, overwritten, reading):
        check(f, a[..., 0])
        check(f, a[..., 0].astype(np.float32))


def test_interleaved_updates_write_as_many_elements_each() -> None:
    (s,) = canonical(mosaic, np.ones((40, 60, 3), np.float32)).stages
    assert len(s.updates) == 6
    assert s.updates[0].dims == s.updates[1].dims and s.updates[3].dims == s.updates[4].dims
    (s,) = canonical(thirds_of_rows, np.ones((40, 60), np.float32)).stages
    assert len({d.dims for d in s.updates[:3]}) == 1 and len(s.updates) == 5


def test_a_diagonal_is_no_whole_array() -> None:
    def f(a: Any) -> Any:
        for i in range(a.shape[0]):
            a[i, i] -= 2
        return a

    check(f, np.random.default_rng(0).random((20, 20)))
