"""Complex arrays in memory: real ones with a last axis of 2, which are their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.trace.tracing.flags import is_writeable

Array = np.ndarray[Any, Any]

_PARTS: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}
_WHOLE = {part: whole for whole, part in _PARTS.items()}


def supported_complex(dtype: np.dtype[Any]) -> bool:
    """complex64 and complex128, in native byte order."""
    return dtype in _PARTS and dtype.isnative


def part_dtype(dtype: Any) -> Any:
    """The dtype of the parts of a complex one."""
    return _PARTS[np.dtype(dtype)]


def complex_dtype(part: Any) -> Any:
    """The complex dtype whose parts have a dtype."""
    return _WHOLE[np.dtype(part)]


def parts_of(x: Any) -> Any:
    """A complex array as its parts, in the same memory; any other array is itself."""
    if x.dtype.kind != "c":
        return x
    part = _PARTS.get(x.dtype)
    if part is not None and type(x) is np.ndarray and x.flags.c_contiguous:
        flat: Any = x.reshape(-1)  # so that the base of the parts is the array
        return flat.view(part).reshape(*x.shape, 2)
    real = x.real
    return np.lib.stride_tricks.as_strided(real, (*x.shape, 2), (*x.strides, real.itemsize), writeable=is_writeable(x))


def complex_of(parts: Array) -> Array:
    """The complex array that has these parts, in the same memory."""
    whole: Array = parts.view(complex_dtype(parts.dtype))
    return whole[..., 0]
