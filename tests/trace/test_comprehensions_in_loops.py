"""Comprehensions, sorted lists and conditional expressions in loops over pixels."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hjit.trace.capture.loops.rewriting.hoisting import Hoisting
from tests.trace.nesting import with_source
from tests.trace.test_carried_variables import compiled, identical, outcome

Array = np.ndarray[Any, Any]
AROUND = [(-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1)]


def image(*shape: int) -> Array:
    return np.random.default_rng(shape).integers(0, 256, shape).astype(np.uint8)


def median(a: Array) -> Array:
    out = a.copy()
    for y in range(1, a.shape[0] - 1):
        for x in range(1, a.shape[1] - 1):
            values = []
            for dy in (-1, 0, 1):
                for dx in (-1, 0, 1):
                    values.append(a[y + dy, x + dx])
            values.sort()
            out[y, x] = values[4]
    return out


def listed_median(a: Array) -> Array:
    out = a.copy()
    for y in range(1, a.shape[0] - 1):
        for x in range(1, a.shape[1] - 1):
            values = sorted([a[y + dy, x + dx] for dy in range(-1, 2) for dx in range(-1, 2) if dy or dx])
            out[y, x] = values[0] // 2 + values[-1] // 2
    return out


def binary_pattern(a: Array) -> Array:
    out = np.zeros(a.shape, np.uint8)
    powers = [1, 2, 4, 8, 16, 32, 64, 128]
    for y in range(1, a.shape[0] - 1):
        for x in range(1, a.shape[1] - 1):
            bits = []
            for dy, dx in AROUND:
                bits.append(1 if a[y + dy, x + dx] >= a[y, x] else 0)
            out[y, x] = sum(b * p for b, p in zip(bits, powers, strict=True))
    return out


def pattern_by_a_comprehension(a: Array) -> Array:
    out = np.zeros(a.shape, np.int64)
    for y in range(1, a.shape[0] - 1):
        for x in range(1, a.shape[1] - 1):
            out[y, x] = sum([2**k for k, (dy, dx) in enumerate(AROUND) if a[y + dy, x + dx] > a[y, x]])
    return out


def names_stay(a: Array) -> Any:
    k, out = 7, np.zeros(a.shape)
    for y in range(a.shape[0]):
        for x in range(1, a.shape[1] - 1):
            out[y, x] = max(float(a[y, x + k]) * 2 for k in (-1, 0, 1)) + k
    return out, k


def by_rows(a: Array) -> Array:
    out = np.zeros(a.shape[0])
    for y in range(a.shape[0]):
        out[y] = max([a[y, k::3].mean() for k in range(3)])
    return out


LOOPS: list[Callable[..., Any]] = [median, listed_median, binary_pattern, names_stay, by_rows]


@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_loops_are_compiled(f: Callable[..., Any]) -> None:
    p = compiled(f, on_unsupported="raise")
    for shape in ((40, 47), (31, 20)):
        a = image(*shape)
        for _ in range(2):
            assert identical(outcome(p, a), outcome(f, a))
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)


SOURCE = """
def f(log, n):
    v = "outside"
    for k in range(n):
        log.append(("a", k)); x = (log.pop(), [len(log) for _ in range(2)], 1 if log else 0)
        log.append(x)
        log[len(log) - 1 :] = [(v, sum(w for w in (k, k))) for v in (k, len(log))]
        y = len([q for q in log]) if k else [log.append(q) for q in (5, 6)]
        log.append([y, v, [v for v in range(v == "outside", 3) if v]])
        log[0] += max([log.append(7) or 8 for _ in range(2)]) if k > 5 else (1, 2)
        if sum([z for z in range(k)]) > len([log.append(w) for w in (1, 2)]):
            log.append(sorted(-v for v in range(4))[0 if log.pop() else 1])
    return log
"""


@pytest.mark.parametrize("conditions", [False, True])
def test_what_is_evaluated_first_stays_first(conditions: bool) -> None:
    tree = ast.parse(SOURCE)
    (function,) = tree.body
    assert isinstance(function, ast.FunctionDef)
    hoisting = Hoisting(conditions)
    function.body = hoisting.block(function.body)
    names: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), "<hoisted>", "exec"), names)
    f = with_source(SOURCE, "<as it is>")
    assert hoisting.count >= 3
    assert names["f"]([(0,)], 4) == f([(0,)], 4)


@pytest.mark.parametrize("f", [*LOOPS, pattern_by_a_comprehension], ids=lambda f: f.__name__)
def test_where_loops_are_pythons_results_are_the_same(f: Callable[..., Any]) -> None:
    p = compiled(f, on_unsupported="break")
    a = image(5, 6)
    assert identical(outcome(p, a), outcome(f, a))
