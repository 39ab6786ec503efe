"""Python's builtins on traced scalars."""

from __future__ import annotations

import itertools
from functools import reduce
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.call.arguments import leaves_of
from tests.numpy_check import check, sample

SPECIAL = [np.nan, 0.0, -0.0, 1.0, -np.inf, np.inf]
NUMBERS = "bool uint8 int16 uint64 int64 float16 float32 float64".split()


def extremes(a: Any) -> Any:
    x, y, z = a[0], a[1], a[2]
    return max(x, y), min(x, y), max(x, y, z), min((z, y, x)), max([z, x]), reduce(max, [x, y, z]), reduce(min, [z, y])


@pytest.mark.parametrize("dtype", NUMBERS)
def test_extremes_of_scalars_of_one_type(dtype: str) -> None:
    values = [1, 0, 1] if dtype == "bool" else [0, 3, 200] if dtype == "uint8" else SPECIAL
    values = [2**63, 2**63 + 1, 5] if dtype == "uint64" else values if dtype[0] in "bfu" else [-3, 0, 99]
    f = hjit.pipeline(extremes, verify="off")
    for triple in itertools.product(values, repeat=3):
        ours, expected = f(np.array(triple, dtype)), extremes(np.array(triple, dtype))
        for x, y in zip(ours, expected, strict=True):
            assert type(x) is type(y) and np.array_equal(x, y, equal_nan=dtype[0] == "f")
            assert np.signbit(x) == np.signbit(y) if dtype[0] == "f" and x == 0 else True
    assert f.stats.traces == 1  # which one is larger is no condition of the trace


def test_extremes_of_python_floats() -> None:
    def f(a: Any, k: float) -> Any:
        x, y = float(a.max()), float(a.min())
        return max(x, y), min(x, 2.5), max(k, x), min(y, k, x), a * max(x, k), a.astype(np.float32) * min(x, k)

    a = sample((9, 17), "float64", special=False)
    p = check(f, a, 0.5)
    for k in (-1.0, 0.25, np.inf, np.nan):
        for x, y in zip(leaves_of(p(a * 2, k)), leaves_of(f(a * 2, k)), strict=True):
            assert type(x) is type(y)
            np.testing.assert_array_equal(x, y)
    assert p.stats.traces == 1


def test_extremes_whose_type_depends_on_values() -> None:
    def f(a: Any) -> Any:
        return max(a[0], 0), min(a[1], 3.0), max(a[2], a.astype(np.float32)[3]), max(1, 2), min(a[:3].sum(), 5, key=abs)

    p = hjit.pipeline(f)
    for a in (np.array([-1.0, 2, 3, 4]), np.array([1.0, 4, 3, 2])):
        ours, expected = p(a), f(a)
        assert ours == expected and [*map(type, ours)] == [*map(type, expected)]


def test_extremes_that_python_refuses() -> None:
    check(lambda a: max(a[:2], a[2:4]), np.arange(5.0))
    check(lambda a: max(a[0]), np.arange(5.0))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64"])
def test_extremes_in_loops_are_traced_once(dtype: str) -> None:
    def f(x: Any) -> Any:
        largest, pair = np.zeros(3, x.dtype), np.full(x.shape[0], x[0])
        for i in range(x.shape[0]):
            largest[1] = max(largest[1], x[i])
        for i in range(1, x.shape[0]):
            pair[i] = min(pair[i - 1], x[i], x[i - 1])
        return largest, pair

    a = sample((50,), dtype, special=False)
    p = check(f, a)
    assert len(str(p.graph(a)).splitlines()) < 16
    for k in (0, 3, 49):
        if dtype[0] == "f":
            a[k] = np.nan
        for x, y in zip(p(a), f(a), strict=True):
            np.testing.assert_array_equal(x, y)
