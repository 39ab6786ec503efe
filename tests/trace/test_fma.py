"""`fma` in plain NumPy rounds once, as processors do; the reference is exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hjit.trace.ir.fma import fma

RANDOM = np.random.default_rng(5)


def exact(a: float, b: float, c: float, dtype: Any) -> Any:
    total = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        nearest = total.numerator / total.denominator
    except OverflowError:
        nearest = np.inf if total > 0 else -np.inf
    if dtype == np.float64 or not np.isfinite(nearest):
        return dtype(nearest)
    # a rounded double that lies between two floats may be on the wrong side of the exact number
    low = np.float32(nearest)
    other = np.nextafter(low, np.float32(np.inf if Fraction(float(low)) < total else -np.inf))
    is_nearer = abs(Fraction(float(other)) - total) < abs(Fraction(float(low)) - total)
    return other if is_nearer else low


def numbers(kind: str, dtype: Any) -> list[Any]:
    shape = (3, 400)
    x = RANDOM.standard_normal(shape)
    if kind == "of all sizes":
        x = x * 2.0 ** RANDOM.integers(*((-60, 60) if dtype == np.float32 else (-700, 700)), shape)
    a, b, c = x.astype(dtype)
    if kind == "cancelling":
        c = -(a * b)
    if kind == "between":  # halfway, but for what the product has beyond its digits
        a, b = (np.nextafter(np.abs(v), dtype(9)) for v in (a, b))
        c = np.spacing(a * b) * dtype(2.0) ** RANDOM.integers(20, 55, 400)
    return [a, b, c.astype(dtype)]


@pytest.mark.parametrize("kind", ["ordinary", "of all sizes", "cancelling", "between"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounds_once(dtype: Any, kind: str) -> None:
    a, b, c = numbers(kind, dtype)
    expected = [exact(float(x), float(y), float(z), dtype) for x, y, z in zip(a, b, c, strict=True)]
    found = fma(a, b, c)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.array(expected, dtype))


def test_special_values() -> None:
    values = np.array([0.0, -0.0, 1.0, -3.0, np.inf, -np.inf, np.nan, 1e308, 5e-324])
    a, b, c = (v.ravel() for v in np.meshgrid(values, values, values))
    small = (
        (np.abs(a) < 1e300)
        & (np.abs(b) < 1e300)
        & ((np.abs(a) > 1e-300) | (a == 0))
        & ((np.abs(b) > 1e-300) | (b == 0))
    )
    with np.errstate(all="ignore"):
        plain = a * b + c
    found = fma(a, b, c)
    same = small | ~np.isfinite(a) | ~np.isfinite(b)  # where no product overflows
    np.testing.assert_array_equal(found[same], plain[same])
    assert fma(1e308, 10.0, -np.inf) == -np.inf
    assert fma(1e308, 10.0, -1.7e308) == np.inf
    assert fma(5e-324, 0.5, 0.0) == 0.0
    assert fma(1e200, 1e200, 0.0) == np.inf
    assert np.signbit(fma(-0.0, 1.0, -0.0))
