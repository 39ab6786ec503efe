"""Which tables are looked up in registers; see `hjit.kernels.llvm.register_tables`."""

from __future__ import annotations

from typing import Any

import numpy as np

REGISTER = 64  # bytes; shorter registers hold too little
MOST = {1: 32, 2: 32, 4: 16}  # registers of a table, by the bytes of its elements: of more, single loads, or gathers, are as fast


def registers(cell: np.dtype[Any], count: int | None, lanes: int) -> int | None:
    """How many registers hold a table of at most `count` elements; None where it is better to load its elements by themselves."""
    if count is None or count < 1 or cell.itemsize not in MOST:
        return None
    n = -(-count * cell.itemsize // REGISTER)
    return n if n <= min(MOST[cell.itemsize], lanes) else None
