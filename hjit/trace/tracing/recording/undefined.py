"""Numbers for elements that nothing has written: NumPy's are whatever was in memory.

A function is traced with zeros there. Traced again with other numbers, its results show which elements depend on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

FILLS = 4  # the first is zero


def undefined(dtype: np.dtype[Any], fill: int) -> Any:
    """The number for elements of a dtype; `fill`: which of the `FILLS`."""
    if fill == 0:
        return 0
    if dtype.kind == "c":
        part = undefined(np.empty(0, dtype).real.dtype, fill)
        return complex(part, part)
    if dtype.kind == "f":
        largest = float(np.finfo(dtype).max)
        return (np.nan, largest / 3, -largest / 5)[fill - 1]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return (-1, info.max, info.min)[fill - 1] if info.min else (info.max, info.max // 3, 1)[fill - 1]
    return True
