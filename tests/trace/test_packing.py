"""np.packbits and np.unpackbits against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.numpy_check import check, layouts, sample

SHAPES = ((), (1,), (29,), (9, 16), (9, 67), (16, 3, 5))
EMPTY = ((0, 5), (4, 0))


def axes(shape: tuple[int, ...]) -> tuple[Any, ...]:
    return (None, *range(-1, max(len(shape), 1)))


@pytest.mark.parametrize("bitorder", ["big", "little"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32"])
def test_packbits(dtype: str, bitorder: Any) -> None:
    for shape in (*SHAPES, *EMPTY):
        check(lambda a: [np.packbits(a, k, bitorder) for k in axes(a.shape)], sample(shape, dtype))


@pytest.mark.parametrize("bitorder", ["big", "little"])
@pytest.mark.parametrize("count", [None, 0, 1, 19, 129, -1, -8])
def test_unpackbits(count: int | None, bitorder: Any) -> None:
    for shape in SHAPES:
        check(lambda a: [np.unpackbits(a, k, count, bitorder) for k in axes(a.shape)], sample(shape, "uint8"))


def test_unpackbits_of_nothing() -> None:
    """NumPy leaves what it pads an empty array with undefined."""
    for shape in EMPTY:
        check(lambda a: [np.unpackbits(a, k) for k in axes(a.shape)], sample(shape, "uint8"))


def test_layouts_of_results() -> None:
    def f(a: Any) -> Any:
        return [np.packbits(a, 0), np.packbits(a, 1), np.unpackbits(a, 0), np.unpackbits(a, 1), np.unpackbits(a)]

    for a in layouts(sample((9, 24), "uint8")).values():
        pipe = check(f, a)
        for got, expected in zip(pipe(a), f(a), strict=True):
            assert got.strides == expected.strides


@pytest.mark.parametrize(
    "f",
    [
        lambda a: np.packbits(a.astype(np.float32)),
        lambda a: np.packbits(a, bitorder="up"),
        lambda a: np.packbits(a, 2),
        lambda a: np.unpackbits(a.astype(np.int8)),
        lambda a: np.unpackbits(a, 1, -500),
        lambda a: np.unpackbits(a, 1, 2.5),
    ],
)
def test_errors_are_numpys(f: Any) -> None:
    check(f, sample((5, 20), "uint8"))


def test_a_hash_of_an_image() -> None:
    """The difference hash: is a pixel brighter than the one beside it?"""

    def difference_hash(a: Any) -> Any:
        return np.packbits(a[:, 1:] > a[:, :-1])

    check(difference_hash, sample((8, 9), "uint8"))


def test_new_sizes_need_no_new_kernel() -> None:
    def f(a: Any) -> Any:
        return np.unpackbits(a, axis=1)[:, 3:] ^ 1

    pipe = check(f, sample((40, 30), "uint8"))
    compiled = pipe.stats.compilations
    pipe(sample((50, 77), "uint8"))
    assert pipe.stats.compilations == compiled
