"""Ints of Python in loops: Python's numbers, however large, and its exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import sample
from tests.trace.nesting import seeds, with_source
from tests.trace.test_carried_variables import compiled, identical, outcome

Array = np.ndarray[Any, Any]
INTS = (np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64)


def products(a: Array) -> Array:
    out = np.zeros(len(a))
    for i in range(len(a)):
        x = int(a[i])
        out[i] = (x * x * 5) >> 40
    return out


def sums(a: Array) -> Array:
    out = np.zeros(len(a), bool)
    for i in range(1, len(a)):
        out[i] = int(a[i]) + int(a[i - 1]) > 0
    return out


def totals(a: Array) -> Any:
    s = 0
    for i in range(len(a)):
        s += int(a[i])
        if s > 1000000:
            s = s // 3
    return s


def powers(a: Array) -> Any:
    s = 0
    for i in range(len(a)):
        s = (s * 31 + int(a[i]) ** 3) % 1000003
    return s


def shifted(a: Array) -> Array:
    out = np.zeros(len(a), np.int64)
    for i in range(len(a)):
        out[i] = (1 << (int(a[i]) & 127)) % 1000
    return out


def shifted_by_negative(a: Array) -> Array:
    out = np.zeros(len(a), np.int64)
    for i in range(len(a)):
        out[i] = 5 >> int(a[i])
    return out


def quotients(a: Array) -> Array:
    out = np.zeros(len(a))
    for i in range(1, len(a)):
        out[i] = int(a[i]) / 3 + int(a[i - 1]) / 7
    return out


def compared(a: Array) -> Any:
    n = 0
    for i in range(1, len(a)):
        if int(a[i]) * 4 > int(a[i - 1]):
            n += 1
    return n


def products_with_elements(a: Array) -> Any:
    """Of an int of Python and an element, which wrap as NumPy's do."""
    best, n = 0, 0
    for i in range(len(a)):
        n += 1
        best = max(best, a[i] * (n % 100))
        if a[i] % 7 == 0:
            n = 1
    return best, n


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize(
    "f",
    [products, sums, totals, powers, shifted, shifted_by_negative, quotients, compared, products_with_elements],
    ids=lambda f: f.__name__,
)
def test_results_have_no_end(f: Callable[..., Any], dtype: Any) -> None:
    p = compiled(f, on_unsupported="break")
    for a in (sample(200, dtype), np.arange(200).astype(dtype)):
        for _ in range(2):
            assert identical(outcome(p, a), outcome(f, a))


# -- checked in each iteration


def collatz(a: Array) -> Array:
    out = np.zeros(len(a), np.int64)
    for i in range(len(a)):
        n, k = int(a[i]), 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            k += 1
        out[i] = k
    return out


def divisors(a: Array) -> Array:
    out = np.zeros_like(a)
    for i in range(len(a)):
        x, y = a[i], 36
        while y:
            x, y = y, x % y
        out[i] = x
    return out


def crc(a: Array) -> int:
    c = 0xFFFFFFFF
    for v in a:
        c ^= int(v) & 0xFF
        for _ in range(8):
            if c & 1:
                c = (c >> 1) ^ 0xEDB88320
            else:
                c >>= 1
    return c ^ 0xFFFFFFFF


def fnv(a: Array) -> int:
    h = 0x811C9DC5
    for v in a:
        h = h ^ (int(v) & 0xFF)
        h = (h * 0x01000193) & 0xFFFFFFFF
    return h


def products_with_a_number(a: Array, k: int) -> Any:
    n = 0
    for i in range(len(a)):
        n += int(a[i]) * k
    return n


@pytest.mark.parametrize("f", [collatz, divisors, crc, fnv], ids=lambda f: f.__name__)
def test_loops_are_compiled_where_numbers_stay_small(f: Callable[..., Any]) -> None:
    a = np.random.default_rng(0).integers(1, 200, 300)
    p = compiled(f, on_unsupported="break")
    assert identical(outcome(p, a), outcome(f, a))
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)


def test_python_runs_where_a_checked_number_is_large() -> None:
    p, a = compiled(products_with_a_number, on_unsupported="break"), np.arange(300)
    assert identical(outcome(p, a, 3), outcome(products_with_a_number, a, 3))
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)
    for k in (2**40, 2**62, -(2**63), 5):
        assert identical(outcome(p, a, k), outcome(products_with_a_number, a, k))


# -- random ones


def expression(r: np.random.Generator, depth: int) -> str:
    if not depth or r.random() < 0.2:
        return str(r.choice(["x", "y", "s", "t", "k", str(r.integers(-9, 9)), str(2 ** int(r.integers(2, 40)))]))
    a, b = expression(r, depth - 1), expression(r, depth - 1)
    n = r.integers(1, 12)
    forms = [f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} // {n})", f"({a} % {n})", f"({a} // -{n})"]
    forms += [f"({a} << {n})", f"({a} >> {n})", f"({a} & {b})", f"({a} | {b})", f"({a} ^ {b})", f"(-{a})", f"(~{a})"]
    forms += [f"abs({a})", f"max({a}, {b})", f"min({a}, {b})", f"({a} if {a} < {b} else {b})", f"({a} ** 2)"]
    forms += [f"({a} >> ({b} & 15))", f"({a} << ({b} & 31))"]
    return str(r.choice(forms))


def with_ints(seed: int) -> tuple[str, Any]:
    r = np.random.default_rng(seed)
    text = f"""def f(a, k):
    out = np.zeros(len(a), np.int64)
    s, t = 0, 1
    for i in range(1, len(a)):
        x, y = int(a[i]), int(a[i - 1])
        if {expression(r, 2)} > {expression(r, 2)}:
            t = {expression(r, 2)} % {r.integers(2, 2000)}
        s = ({expression(r, 3)}) % {r.choice([7, 1000, 2**31])}
        out[i] = ({expression(r, 3)}) % 1000
    return out, s, t
"""
    return text, with_source(text, f"<ints {seed}>")


@pytest.mark.parametrize("seed", seeds(12, 60))
def test_random_ints(seed: int) -> None:
    text, f = with_ints(seed)
    p, dtype = compiled(f, on_unsupported="break"), INTS[seed % len(INTS)]
    for a in (np.arange(60).astype(dtype), sample(60, dtype, seed)):
        assert identical(outcome(p, a, 3), outcome(f, a, 3)), text


def bits(a: Any) -> int:
    value = 0
    for bit in (a > 0.5).ravel():
        value = value << 1 | int(bit)
    return value


@pytest.mark.parametrize("on_unsupported", ["break", "numpy"])
def test_ints_that_outgrow_64_bits_are_not_traced_at_each_call(on_unsupported: Any) -> None:
    p = hjit.pipeline(lambda a: bits(a * 2 - a), cache="off", tune=False, on_unsupported=on_unsupported).quiet()
    a = np.random.default_rng(1).random((8, 9))
    for _ in range(9):
        assert p(a) == bits(a) > 2**64
    assert p.stats.traces <= 3  # after 1 call, then after 3, 7 and so on
    if on_unsupported == "break":
        assert p.stats.parts and p.stats.fallbacks == 0
