"""`np.vectorize`: traced as a loop over the elements, which are numbers of Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from tests.trace.helpers import assert_same

RNG = np.random.default_rng(0)
IMAGE = RNG.random((20, 30))
BYTES = RNG.integers(0, 256, (20, 30), np.uint8)


@np.vectorize
def stepped(v: Any, t: Any) -> Any:
    if v < t:
        return 0.0
    elif v < 2 * t:
        return 0.5
    return 1.0


@np.vectorize(otypes=[np.uint8])
def gamma(v: Any) -> Any:
    return int(255 * (v / 255) ** 0.5)


def inside(img: Any) -> Any:
    @np.vectorize
    def f(v: Any, shift: Any = 2) -> Any:
        return v * 2 if v > 0.5 else v - shift

    return f(img), f(img, img[0]), f(img[0, 0], 3.0)


FUNCTIONS: list[tuple[Callable[[Any], Any], Any]] = [
    (lambda a: stepped(a, 0.3), IMAGE),
    (lambda a: gamma(a), BYTES),
    (inside, IMAGE),
    (lambda a: np.vectorize(lambda v: v * 2)(a // 4), BYTES),
    (lambda a: np.vectorize(lambda v: (v / 2, v > 7))(a), BYTES),
    (lambda a: np.vectorize(lambda r, g, b: max(r, g, b) - min(r, g, b))(a, a[::-1], a[:, ::-1]), BYTES),
    (lambda a: np.vectorize(lambda v: math.sqrt(v) if v > 0.2 else 0)(a), IMAGE.astype(np.float32)),
    (lambda a: np.vectorize(lambda v: 1 if v >= 0.4 else 0, otypes=[int])(a), IMAGE),
    (lambda a: np.vectorize(lambda v: v + 1, otypes="f")(a[:0]), IMAGE),
    (lambda a: np.vectorize(np.sqrt)(a), IMAGE),
]


@pytest.mark.parametrize(("f", "given"), FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_functions_of_numbers(f: Callable[[Any], Any], given: Any) -> None:
    p = hjit.pipeline(f, verify="off", on_unsupported="raise")
    for a in (given, given[::-1].copy(), given[:, :7].copy()):
        assert_same(p(a), f(a))


REFUSED: list[tuple[Callable[[Any], Any], Any]] = [
    (lambda a: np.vectorize(lambda v: v * 2)(a), BYTES),  # Python's numbers are out of the bounds of the first one's
    (lambda a: np.vectorize(lambda v: 1 / v)(a - a[3, 3]), IMAGE),
    (lambda a: np.vectorize(lambda v: v + 1)(a[:0]), IMAGE),
]


@pytest.mark.parametrize(("f", "given"), REFUSED, ids=range(len(REFUSED)))
def test_what_numpy_refuses(f: Callable[[Any], Any], given: Any) -> None:
    with pytest.raises(Exception) as theirs:
        f(given)
    p = hjit.pipeline(f, on_unsupported="numpy")
    for _ in range(2):
        with pytest.raises(type(theirs.value)) as ours:
            p(given)
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    "f",
    [
        lambda a: np.vectorize(np.sum, signature="(n)->()")(a),
        lambda a: np.vectorize(lambda v, n: v**n, excluded={"n"})(a, n=2),
        lambda a: np.vectorize(lambda v: "a" if v > 0.5 else "b")(a),
        lambda a: np.vectorize(lambda v: 0 if v > 0.5 else v)(np.sort(a, axis=None)[::-1]),
    ],
)
@pytest.mark.filterwarnings("ignore::hjit.HjitWarning")
def test_what_takes_more_runs_as_it_is(f: Callable[[Any], Any]) -> None:
    p = hjit.pipeline(f, on_unsupported="break")
    for a in (IMAGE, IMAGE[::-1].copy()):
        np.testing.assert_array_equal(p(a), f(a))
