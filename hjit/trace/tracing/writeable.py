"""Whether an array may be written to."""

from __future__ import annotations

from typing import Any

import numpy as np

_WRITEABLE = 0x400  # NPY_ARRAY_WRITEABLE


def is_writeable(a: np.ndarray[Any, Any]) -> bool:
    """As ``a.flags.writeable``, which gives a warning where `numpy.broadcast_arrays` has made the array."""
    return bool(a.flags.num & _WRITEABLE)
