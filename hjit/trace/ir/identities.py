"""Identity elements of reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

IDENTITIES: dict[str, Any] = {
    "add": 0,
    "multiply": 1,
    "maximum": None,
    "minimum": None,
    "fmax": None,
    "fmin": None,
    "logical_and": True,
    "logical_or": False,
    "logical_xor": False,
    "bitwise_and": -1,
    "bitwise_or": 0,
    "bitwise_xor": 0,
}


def start_value(name: str, dtype: np.dtype[Any]) -> Any:
    """The initial value of the reduction `name`."""
    start = IDENTITIES[name]
    if start is not None:
        return dtype.type(start) if dtype.kind != "u" or start >= 0 else np.array(start).astype(dtype)[()]
    smallest = name in ("maximum", "fmax")
    if dtype.kind == "b":
        return not smallest
    if name in ("fmax", "fmin"):
        return dtype.type(np.nan) if dtype.kind == "f" else (np.iinfo(dtype).min if smallest else np.iinfo(dtype).max)
    if dtype.kind == "f":
        return dtype.type(-np.inf if smallest else np.inf)
    return np.iinfo(dtype).min if smallest else np.iinfo(dtype).max
