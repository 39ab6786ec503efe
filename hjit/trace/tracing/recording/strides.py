"""Strides of the caller's arrays, in elements: kernels count in elements, and have small strides as constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.trace.ir.graph import element_strides
from hjit.trace.ir.poly import SMALL

Array = np.ndarray[Any, Any]


def packed(array: Array) -> Array:
    """The array, or a copy in C order if its strides are not whole elements, as in a field of a structured array."""
    return array.copy() if any(s % array.itemsize for s in array.strides) else array


def constant_strides(array: Array) -> tuple[int | None, ...]:
    """Strides in elements that are small and so constants of the kernel, else None.

    Axes of length 1 have stride 0: NumPy leaves theirs open.
    """
    return tuple(
        0 if n == 1 else step if abs(step) <= SMALL else None
        for n, step in zip(array.shape, element_strides(array), strict=True)
    )
