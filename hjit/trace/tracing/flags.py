"""Flags of NumPy's arrays."""

from __future__ import annotations

from typing import Any

_WRITEABLE = 0x0400  # NPY_ARRAY_WRITEABLE


def is_writeable(array: Any) -> bool:
    """``array.flags.writeable``, without the warning that this gives of results of `numpy.broadcast_arrays`."""
    return bool(array.flags.num & _WRITEABLE)
