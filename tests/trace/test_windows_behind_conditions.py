"""Slices in loops over pixels that lie inside the image behind a condition alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.trace.test_carried_variables import compiled, identical, outcome

Array = np.ndarray[Any, Any]


def image(*shape: int) -> Array:
    return np.random.default_rng(shape).integers(0, 256, shape).astype(np.uint8)


def border_is_kept(a: Array) -> Array:
    h, w = a.shape
    out = np.zeros(a.shape, np.int64)
    for y in range(h):
        for x in range(w):
            if y == 0 or x == 0 or y == h - 1 or x == w - 1:
                out[y, x] = a[y, x]
            else:
                out[y, x] = a[y - 1 : y + 2, x - 1 : x + 2].max()
    return out


def inside(a: Array, r: int = 2) -> Array:
    h, w = a.shape
    out = np.zeros(a.shape, np.int64)
    for y in range(h):
        for x in range(w):
            if r <= y < h - r and r <= x < w - r:
                out[y, x] = a[y - r : y + r + 1, x - r : x + r + 1].sum()
    return out


def skipped(a: Array) -> Array:
    out = a.astype(np.int64)
    for y in range(a.shape[0]):
        if y < 3:
            continue
        out[y] = a[y - 3 : y].min(axis=0)
    return out


def written(a: Array) -> Array:
    out = np.zeros(a.shape, np.int64)
    h, w = a.shape
    for y in range(h):
        for x in range(w):
            if a[y, x] > 200 and 0 < y < h - 1 and 0 < x < w - 1:
                out[y - 1 : y + 2, x - 1 : x + 2] += 1
    return out


def paths_to_the_top(a: Array) -> Any:
    h, w = a.shape
    m, at = a.astype(np.float64), np.zeros(a.shape, np.int64)
    for i in range(1, h):
        for j in range(w):
            if j == 0:
                k = np.argmin(m[i - 1, j : j + 2]) + j
            else:
                k = np.argmin(m[i - 1, j - 1 : j + 2]) + j - 1
            at[i, j] = k
            m[i, j] += m[i - 1, k]
    return m, at


@pytest.mark.parametrize("f", [border_is_kept, inside, skipped, written, paths_to_the_top], ids=lambda f: f.__name__)
def test_windows_are_compiled(f: Callable[..., Any]) -> None:
    p = compiled(f, on_unsupported="raise")
    shapes = ((40, 47), (21, 30), (3, 40), (40, 2), (2, 2), (1, 1), (0, 5))
    for shape in shapes:
        a = image(*shape)
        for _ in range(2):
            assert identical(outcome(p, a), outcome(f, a)), shape
    assert p.stats.parts == 0
