"""Values of uninitialised elements, which in NumPy are whatever was in memory.

A function is traced with zeros there. If it is traced again with other numbers, the results show which elements depend
on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

FILLS = 8  # ways to fill: the first is with zeros
_SCALES = (1.0, 100.0)  # of the last ones; those before are about as large as the dtype allows


def fill_values(shape: tuple[int, ...], dtype: np.dtype[Any], fill: int) -> np.ndarray[Any, Any]:
    """Numbers of a dtype, for an array, or one for all of it (`shape` is ``()``).

    The first that are not zero are NaN, or have all bits set. Others differ from each other, as an argmax or a
    difference depends on that, and alternate between positive and negative, as a threshold depends on that.
    """
    if fill == 0:
        return np.zeros(shape, dtype)
    if dtype.kind == "c":
        both = np.empty(0, dtype).real.dtype
        return np.asarray(fill_values(shape, both, fill) + 1j * fill_values(shape, both, fill)).astype(dtype)
    if fill == 1:
        return np.full(shape, np.nan).astype(dtype) if dtype.kind == "f" else np.full(shape, -1).astype(dtype)
    random = np.random.default_rng(fill)
    if dtype.kind == "b":
        return np.asarray(random.random(shape) < 0.5) if shape else np.ones((), bool)
    numbers = np.asarray(0.25 + 0.5 * random.random(shape)) * (-1 if fill % 2 else 1)
    largest = float(np.finfo(dtype).max if dtype.kind == "f" else np.iinfo(dtype).max)
    pair = fill // 2 - 1
    scale = largest if pair == 0 else min(_SCALES[-pair] if dtype.kind == "f" else 256.0, largest)
    if dtype.kind == "u":
        numbers = np.abs(numbers)
    return np.asarray(numbers * scale).astype(dtype)
