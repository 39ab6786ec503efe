"""Which function joins a value to an element atomically."""

from __future__ import annotations

from typing import Any

import numpy as np

from hjit.errors import ScheduleError
from hjit.kernels.cuda.ctext import c_type

ATOMICS = {"add": "add", "maximum": "max", "minimum": "min"}
ATOMICS |= {f"bitwise_{name}": name for name in ("and", "or", "xor")}


def atomic(op: str, dtype: np.dtype[Any], shared: bool) -> str:
    """The function of an operation, for shared memory or that of the device.

    Raises:
        ScheduleError: there is none.
    """
    if op not in ATOMICS or dtype.kind not in "iu" or dtype.itemsize < 4:
        raise ScheduleError(f"tasks cannot join {dtype} by {op} on CUDA; make the loop over them serial")
    return f"hj_atomic_{ATOMICS[op]}_{'shared' if shared else 'global'}_{c_type(dtype)}"
