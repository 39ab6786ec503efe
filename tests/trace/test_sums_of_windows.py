"""Sums over windows in loops over pixels have NumPy's bits: its order of additions is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hjit.trace.ops.reductions.pairwise import is_as_known, runs_of
from tests.trace.nesting import with_source
from tests.trace.test_carried_variables import compiled

Array = np.ndarray[Any, Any]
PICTURE = np.random.default_rng(8).random((30, 26)) * 255
LAYOUTS = {
    "in C order": lambda a: a,
    "in Fortran's order": np.asfortranarray,
    "backwards": lambda a: a[::-1, ::-1],
    "transposed": lambda a: a.T,
    "with gaps": lambda a: np.repeat(a, 2, 1)[:, ::2],
}
OF_ALL = (
    "r.sum()",
    "r.mean()",
    "r.var()",
    "(r - r.mean()).std()",
    "r.T.sum()",
    "r[::-1].sum()",
    "r[:, ::-1].mean()",
    "r[:, :2].sum()",
    "r[0].mean()",
    "g[y - 2 : y + 3 : 2, x - 2 : x + 3].sum()",
    "g[y - 3 : y + 4, x - 3 : x + 4].sum()",
    "np.average(r)",
    "(r.T * r.T).sum()",
    "r.reshape(-1).var()",
    "np.abs(r - g[y, x]).sum()",
    "g[y, x - 4 : x + 5].sum()",
    "g[y - 4 : y + 5, x].sum()",
)
OF_SOME = (
    "r.sum(axis=(0, 1))",
    "r.mean(axis=(0, 1))",
    "r.var(axis=(0, 1))",
    "(r * r).sum(axis=(0, 1))",
    "r.sum(axis=(1, 2)).max()",
    "r.sum(axis=(0, 2)).min()",
    "r.sum(axis=2).mean()",
    "r.reshape(-1, 3).sum(axis=0)",
    "np.sqrt(((r - g[y, x]) ** 2).sum(axis=2)).min()",
)


TEXT = """
def f(g):
    h, w = g.shape[:2]
    out = np.zeros({shape}, g.dtype)
    for y in range(4, h - 4):
        for x in range(4, w - 4):
            r = g[y - 2 : y + 3, x - 2 : x + 3]
            out[y, x] = {value}
    return out
"""


def function(value: str, shape: str) -> Any:
    return with_source(TEXT.format(value=value, shape=shape), f"<window {value} {shape}>")


@pytest.mark.parametrize("value", OF_ALL)
def test_sums_of_windows(value: str) -> None:
    f = function(value, "(h, w)")
    pipe = compiled(f)
    for dtype in (np.float64, np.float32):
        for layout in LAYOUTS.values():
            picture = layout(PICTURE.astype(dtype))
            np.testing.assert_array_equal(pipe(picture), f(picture), strict=True)


@pytest.mark.parametrize("value", OF_SOME)
def test_sums_over_some_axes_of_windows(value: str) -> None:
    f = function(value, "(h, w, 3)")
    pipe = compiled(f)
    for dtype in (np.float64, np.float32):
        picture = np.stack([PICTURE, PICTURE[::-1], PICTURE[:, ::-1]], axis=-1).astype(dtype)
        for layout in (np.ascontiguousarray(picture), np.moveaxis(np.moveaxis(picture, -1, 0).copy(), 0, -1)):
            np.testing.assert_array_equal(pipe(layout), f(layout), strict=True)


def corners(g: Array) -> list[Any]:
    gy, gx = np.gradient(g)
    found = []
    for y in range(2, g.shape[0] - 2):
        for x in range(2, g.shape[1] - 2):
            a = (gx[y - 2 : y + 3, x - 2 : x + 3] ** 2).sum()
            b = (gy[y - 2 : y + 3, x - 2 : x + 3] ** 2).sum()
            c = (gx[y - 2 : y + 3, x - 2 : x + 3] * gy[y - 2 : y + 3, x - 2 : x + 3]).sum()
            response = a * b - c * c - 0.04 * (a + b) * (a + b)
            if response > 3.5e9:
                found.append((x, y, response))
    return found


def test_lists_of_what_such_sums_decide() -> None:
    pipe = compiled(corners)
    found = corners(PICTURE)
    assert pipe(PICTURE) == found and 0 < len(found) < PICTURE.size / 2
    assert pipe.stats.fallbacks == 0


def test_the_order_is_that_of_this_numpy() -> None:
    assert is_as_known()
    assert runs_of((2, 3), (24, 8), (0, 1)) == [[{0: i, 1: j} for i in range(2) for j in range(3)]]
    assert runs_of((2, 3), (24, 8), (0,)) == [[{0: 0}], [{0: 1}]]
    assert runs_of((2, 3), (8, 16), (0, 1)) == [[{1: j, 0: i} for j in range(3) for i in range(2)]]
