"""How far two results are apart."""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


def difference(a: Any, b: Any) -> float:
    """The largest difference of two results, relative to the largest finite magnitude of each array of `a`.

    0: they are equal, NaNs, dtypes and shapes included. Infinite: they are of other types, shapes or dtypes, one has a
    NaN or an infinity where the other one has not, or they are other objects that are not equal.
    """
    return _difference(a, b, frozenset())


def _difference(a: Any, b: Any, around: frozenset[tuple[int, int]]) -> float:
    """As `difference`; `around`: the pairs of objects that these are parts of, by identity."""
    if a is b:
        return 0.0
    if isinstance(a, (np.ndarray, np.generic)) and isinstance(b, (np.ndarray, np.generic)):
        return _of_arrays(np.asarray(a), np.asarray(b))
    if type(a) is not type(b):
        return math.inf
    if isinstance(a, (float, complex)):
        return _of_arrays(np.asarray(a), np.asarray(b))
    if (id(a), id(b)) in around:  # as far as they are looked at, they are equal
        return 0.0
    around |= {(id(a), id(b))}
    if isinstance(a, (list, tuple)):
        return (
            math.inf
            if len(a) != len(b)
            else max((_difference(x, y, around) for x, y in zip(a, b, strict=True)), default=0.0)
        )
    if isinstance(a, Mapping):
        return math.inf if list(a) != list(b) else max((_difference(a[k], b[k], around) for k in a), default=0.0)
    with contextlib.suppress(Exception):  # an object of arrays has no truth value
        if bool(a == b):
            return 0.0
    return math.inf if isinstance(a, _BY_EQUALITY) else _of_objects(a, b, around)


_BY_EQUALITY = (int, str, bytes, type, types.FunctionType, types.ModuleType)


def _of_objects(a: Any, b: Any, around: frozenset[tuple[int, int]]) -> float:
    """Of objects that are not equal by themselves: of what they are copied by, their `__dict__` and slots as a rule."""
    try:
        x, y = a.__reduce_ex__(4), b.__reduce_ex__(4)
        if isinstance(x, str) or isinstance(y, str):  # a name
            return 0.0 if x == y else math.inf
        x, y = (list(map(_listed, made)) for made in (x, y))
    except Exception:  # it has no such parts, or they are not to be had
        return math.inf
    return _difference(x, y, around)


def _listed(part: Any) -> Any:
    """The items of a list or a dict come one by one."""
    return list(part) if isinstance(part, Iterator) else part


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
