"""How far two results are apart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def difference(a: Any, b: Any) -> float:
    """The largest difference of two results, relative to the largest finite magnitude of each array of `a`.

    0: they are equal, NaNs, dtypes and shapes included. Infinite: they are of other types, shapes or dtypes, one has a
    NaN or an infinity where the other one has not, or they are other objects that are not equal.
    """
    if isinstance(a, (np.ndarray, np.generic)) and isinstance(b, (np.ndarray, np.generic)):
        return _of_arrays(np.asarray(a), np.asarray(b))
    if type(a) is not type(b):
        return math.inf
    if isinstance(a, (list, tuple)):
        return math.inf if len(a) != len(b) else max(map(difference, a, b), default=0.0)
    if isinstance(a, Mapping):
        return math.inf if list(a) != list(b) else max((difference(a[k], b[k]) for k in a), default=0.0)
    if isinstance(a, (float, complex)):
        return _of_arrays(np.asarray(a), np.asarray(b))
    try:
        if a is b or bool(a == b):
            return 0.0
    except Exception:
        return math.inf
    return difference(vars(a), vars(b)) if getattr(a, "__dict__", None) else math.inf


def _of_arrays(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    if a.dtype != b.dtype or a.shape != b.shape:
        return math.inf
    if a.dtype.kind not in "fciub":
        return 0.0 if bool(np.all(a == b)) else math.inf
    if a.dtype.kind in "iub":
        differing = a != b
        if not differing.any():
            return 0.0
        apart = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
        return float(apart / max(float(np.abs(a.astype(np.float64)).max()), 1.0))
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.array_equal(finite, np.isfinite(b)):
        return math.inf
    x, y = a[finite], b[finite]
    if np.array_equal(x, y):
        return 0.0
    wide = np.result_type(x, np.float64)
    apart, scale = np.abs(x.astype(wide) - y.astype(wide)).max(), np.abs(x.astype(wide)).max()
    return float(apart / scale) if scale else math.inf


def text(apart: float) -> str:
    """For a table."""
    if apart == 0:
        return "equal"
    return f"to {apart:.0e}" if math.isfinite(apart) else "differ"
