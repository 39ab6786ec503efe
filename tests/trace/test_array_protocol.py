"""Objects that are arrays by an `__array__` in Python and hold traced arrays: `numpy.poly1d`, and those of users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import check

X = np.random.default_rng(0).normal(size=40)


class Doubled:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.x * 2, dtype)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.asarray(Doubled(x)) + 1,
        lambda x: np.asarray(Doubled(x), np.float32),
        lambda x: np.abs(Doubled(x)),
        lambda x: np.maximum(x, Doubled(x[::-1])),
        lambda x: np.stack([Doubled(x), x]),
        lambda x: np.convolve(Doubled(x), x[:3]),
    ],
)
def test_objects_are_converted(f: Callable[[Any], Any]) -> None:
    check(f, X, exact=False, on_unsupported="raise")


@pytest.mark.parametrize("f", [np.polymul, np.polyadd, np.polysub, np.polydiv])
def test_polynomials(f: Any) -> None:
    """Leading zeros are left out by value: each is a decision, so that other ones are another kernel."""
    pipe = hjit.pipeline(lambda a, b: f(a, b), on_unsupported="raise", verify="off", numpy_if_faster=False)
    a, b = X[:5].copy(), X[5:8].copy()
    for zeros in (0, 1, 2, 0):
        for x in (a, b):
            x[:zeros] = 0
        found, numpys = pipe(a, b), f(a, b)
        for x, y in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, numpys)), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12)
        a[:2], b[:2] = X[:2], X[5:7]


class Length:
    """As a package for units has it: NumPy's functions are its own."""

    def __init__(self, metres: Any) -> None:
        self.metres = metres

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.metres)

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **options: Any) -> Any:
        return Length(ufunc(*(1000 * x.metres if type(x) is Length else x for x in args), **options))


def test_objects_with_ufuncs_of_their_own_are_not_converted() -> None:
    check(lambda x: np.abs(Length(x)).metres, X, on_unsupported="raise")
