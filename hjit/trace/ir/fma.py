"""Fused multiply-add in plain NumPy: a product and a sum, rounded once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_SPLIT = float((1 << 27) + 1)  # halves a double of 53 bits
_LOW, _HIGH = 2.0**-450, 2.0**450  # between these the error of a product of doubles is a double


def fma(a: Any, b: Any, c: Any) -> Array:
    """``a * b + c``, rounded once.

    After S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
    odd" (2008).
    """
    dtype = np.result_type(a, b, c)
    x, y, z = np.broadcast_arrays(*(np.asarray(v, dtype) for v in (a, b, c)))
    with np.errstate(all="ignore"):
        if dtype.itemsize < 8:
            product = x.astype(np.float64) * y.astype(np.float64)
            return np.asarray(_odd(*_two_sum(product, z.astype(np.float64)))).astype(dtype)
        if dtype.itemsize > 8:
            return np.asarray(x * y + z)
        return _doubles(x, y, z)


def _doubles(x: Array, y: Array, z: Array) -> Array:
    high, low = _two_product(x, y)
    t, rest = _two_sum(z, low)
    v, rounding = _two_sum(high, t)
    found = np.asarray(v + _odd(*_two_sum(rest, rounding)))
    finite = np.isfinite(x) & np.isfinite(y)
    is_plain = np.isin(x, (0.0, 1.0, -1.0)) | np.isin(y, (0.0, 1.0, -1.0)) | ~finite  # the product is not rounded
    is_ordinary = finite & np.isfinite(z)
    for v in (x, y, z):
        is_ordinary = is_ordinary & ((v == 0) | ((np.abs(v) > _LOW) & (np.abs(v) < _HIGH)))
    found = np.where(is_plain, x * y + z, np.where(np.isfinite(z), found, z))
    for k in np.argwhere(~is_ordinary & ~is_plain & np.isfinite(z)):
        at = tuple(k)
        found[at] = _exact(float(x[at]), float(y[at]), float(z[at]))
    return found


def _exact(x: float, y: float, z: float) -> float:
    """For finite numbers of any size."""
    total = Fraction(x) * Fraction(y) + Fraction(z)
    if not total:
        return x * y + z  # its sign
    try:
        return total.numerator / total.denominator
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """A sum and its rounding error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """A product and its rounding error."""
    p = a * b
    ah, al = _halves(a)
    bh, bl = _halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _halves(a: Array) -> tuple[Array, Array]:
    c = _SPLIT * a
    high = c - (c - a)
    return high, a - high


def _odd(s: Array, error: Array) -> Array:
    """A sum rounded to odd: if it is not exact, the neighbour whose last bit is set."""
    s = np.asarray(s)
    bits = s.view(np.int64)
    inexact = (error != 0) & (bits & 1 == 0) & np.isfinite(s) & np.isfinite(error)
    return np.where(inexact, bits + np.where((error > 0) == (s > 0), 1, -1), bits).view(np.float64)
