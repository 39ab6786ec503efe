"""`np.apply_along_axis`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import check

STACK = np.random.default_rng(6).random((5, 18, 21))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(
    "f",
    [
        np.cumsum,
        np.max,
        lambda r: r - r.mean(),
        lambda r: np.outer(r[:3], r[:2]),
        lambda r: r.shape[0],
        lambda r: r[:3] > 0.5,
    ],
)
def test_each_line(f: Any, axis: int) -> None:
    check(lambda a: np.apply_along_axis(f, axis, a), STACK, exact=False)


def test_arguments_of_the_function() -> None:
    check(lambda a, k: np.apply_along_axis(lambda r, n, scale: r[:n] * scale, 1, a, 4, scale=k), STACK, 2.5)
    check(lambda a: np.apply_along_axis(np.interp, 1, a[0], np.arange(21.0), np.arange(21.0) ** 2), STACK, exact=False)


def test_the_first_line_decides_on_the_dtype() -> None:
    check(lambda a: np.apply_along_axis(lambda r: np.float32(r), 0, a), STACK)


def test_errors() -> None:
    check(lambda a: np.apply_along_axis(np.sum, 3, a), STACK)
    check(lambda a: np.apply_along_axis(np.sum, 0, a), STACK[:, :0])


def test_lines_are_rolled_into_one() -> None:
    """The trace does not grow with the image, and another size compiles nothing."""
    f = hjit.pipeline(lambda a: np.apply_along_axis(lambda r: r - r[::-1], 1, a), verify="off", cache="off", tune=False)
    for a in (STACK[0], np.ones((300, 40)), np.ones((400, 50))):
        np.testing.assert_array_equal(f(a), a - a[:, ::-1])
    assert f.stats.compilations <= 2
    assert len(f.graph(np.ones((300, 40)))[0].stages) <= 3
