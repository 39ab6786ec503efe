"""Functions in a small part of Python, compiled, give what Python gives."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pytest

from hjit.kernels.functions.translate import module
from hjit.kernels.runtime import backend
from hjit.kernels.runtime.machine_code import Compiled

Ints1: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats1: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Floats2: TypeAlias = Floats1

FIRST, SECOND = range(2)


class Table(NamedTuple):
    numbers: Ints1
    rows: Floats2


def pair(a: float, b: int) -> tuple[float, int]:
    """Two results."""
    return a / 2.0, b + 1


def small(x: int) -> bool:
    return 0 <= x < 3 or x == 7


def numbers(t: Table, found: Floats1) -> int:
    """Operators, and types that change."""
    total, count = 0, 0  # the first becomes a float
    for k in range(len(t.numbers)):
        n = t.numbers[k]
        if small(n):
            continue
        elif n > 90:
            break
        else:
            count += 1
        total += n * 0.5 if n % 2 == 0 else float(n)
    found[0], found[1] = total, count
    a, b = pair(total, count)
    a, b = b, a
    found[2], found[3] = a, b
    for column in (FIRST, SECOND):
        found[4 + column] = t.rows[1, column]
    return count


def loops(t: Table, found: Floats1) -> int:
    """Down, over parts of arrays, while."""
    row = t.rows[t.rows.shape[0] - 1]
    at = 0
    for k in range(len(row) - 1, -1, -1):
        found[at] = row[k]
        at += 1
    n = 1 << 10
    while n > 3 and not at > 100:
        n = n // 3
        at += n & 1
    found[at] = n
    return at


def mathematics(t: Table, found: Floats1) -> int:
    for k in range(t.rows.shape[1]):
        x = t.rows[0, k]
        found[0] += np.floor(x) + 10.0 * np.ceil(x) + abs(-x) + 2.0 ** np.ceil(np.log2(abs(x) + 1.0))
        found[1] = max(min(x, 1.5), found[1])
        found[2] += -x if x > 0.0 else int(x)
        found[3] += small(int(x)) and True
    return -1


def compiled(*functions: Callable[..., Any]) -> Compiled:
    text = module(functions, (Table,), "entry")
    return backend.load_object(backend.compile_module(text, "entry", "cpu"), "entry")


@pytest.mark.parametrize("function", [numbers, loops, mathematics], ids=lambda f: f.__name__)
def test_functions_give_what_python_gives(function: Callable[..., int]) -> None:
    rng = np.random.default_rng(0)
    for high in (3, 10, 200):
        t = Table(rng.integers(0, high, 20), rng.standard_normal((3, 5)) * 4)
        wanted, found = np.zeros(30), np.zeros(30)
        result = function(t, wanted)
        words = [n for x in t for n in (x.__array_interface__["data"][0], *x.shape)]
        words += [found.__array_interface__["data"][0], len(found)]
        assert compiled(pair, small, function).entry(array("q", words).tobytes()) == result
        np.testing.assert_array_equal(found, wanted)


def unknown(t: Table, found: Floats1) -> int:
    return len({1: t})


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(NotImplementedError, match=r"\{1: t\}"):
        module([unknown], (Table,), "entry")
