"""Loops over one of two ranges, as serpentine scans of error diffusion have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hjit.trace.capture.loops.rewriting.exits import code_of
from tests.trace.test_carried_variables import compiled
from tests.trace.test_lists_that_loops_fill import identical, image

Array = np.ndarray[Any, Any]


def conditional(a: Array) -> Array:
    b = a.astype(np.float64) / 255
    h, w = b.shape
    for y in range(h):
        for x in range(w) if y & 1 == 0 else reversed(range(w)):
            old = b[y, x]
            b[y, x] = 1.0 if old >= 0.5 else 0.0
            if y + 1 < h:
                b[y + 1, x] += (old - b[y, x]) / 2
    return b


def set_before(a: Array) -> Array:
    b = a.astype(np.float64) / 255
    h, w = b.shape
    for y in range(h):
        columns = range(w) if y % 2 == 0 else range(w - 1, -1, -1)
        step = 1 if y % 2 == 0 else -1
        for x in columns:
            old = b[y, x]
            b[y, x] = 1.0 if old >= 0.5 else 0.0
            error = old - b[y, x]
            if 0 <= x + step < w:
                b[y, x + step] += error * 7 / 16
            if y + 1 < h:
                b[y + 1, x] += error * 9 / 16
    return b


def set_by_both_sides(a: Array) -> Array:
    b = a.astype(np.float64)
    h, w = b.shape
    for y in range(h):
        if y % 2:
            columns = range(w)[::-1]
        else:
            columns = range(w)
        for x in columns:
            if 0 < x < w - 1:
                b[y, x] = (b[y, x - 1] + b[y, x] + b[y, x + 1]) / 3
    return b


def turned(a: Array) -> Array:
    b = a.astype(np.float64)
    h, w = b.shape
    for y in range(h):
        columns = range(1, w - 1)
        if y % 2:
            columns = reversed(columns)
        for x in columns:
            if b[y, x] < 40:
                continue
            if b[y, x] > 250:
                break
            b[y, x] = (b[y, x - 1] + b[y, x] + b[y, x + 1]) / 3
    return b


def turned_by_a_slice(a: Array) -> Array:
    b = a.astype(np.float64)
    h, w = b.shape
    for y in range(h):
        columns = range(1, w - 1)
        if y % 2:
            columns = columns[::-1]
        for x in columns:
            b[y, x] = (b[y, x - 1] + b[y, x] + b[y, x + 1]) / 3
    return b


FUNCTIONS = (conditional, set_before, set_by_both_sides, turned, turned_by_a_slice)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_loops_over_one_of_two_ranges(f: Callable[..., Any]) -> None:
    pipe = compiled(f)
    for shape in ((40, 33), (40, 33), (17, 21)):
        assert identical(pipe(image(*shape)), f(image(*shape)))
    assert pipe.stats.fallbacks == 0


def read_again(a: Array) -> Any:
    total = 0.0
    for y in range(a.shape[0]):
        columns = range(4) if y % 2 else range(3)
        for x in columns:
            total += float(a[y, x])
        total += len(columns)
    return total


def changed_between(a: Array) -> Any:
    w, total = 4, 0
    for y in range(a.shape[0]):
        columns = range(w) if y % 2 else range(3)
        w = 5
        for x in columns:
            total += int(a[y, x])
    return total


@pytest.mark.parametrize("f", [read_again, changed_between], ids=lambda f: f.__name__)
def test_ranges_that_are_used_otherwise_stay_variables(f: Callable[..., Any]) -> None:
    assert code_of(f) is f.__code__
    assert compiled(f)(image(9, 12)) == f(image(9, 12))


def bits(a: Array) -> Array:
    out = np.zeros(a.shape, np.int64)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = (y ^ x) + ((x << 2) | 1) + (x >> 1) + (~y) + (7 & y) + (5 ^ x) + (3 << (x & 3))
    return out


def test_bits_of_loop_variables() -> None:
    pipe = compiled(bits)
    for shape in ((40, 33), (17, 21)):
        assert identical(pipe(image(*shape)), bits(image(*shape)))
    assert pipe.stats.fallbacks == 0
