"""What schedules must know of the machine that code is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BLOCK = (6, 4)  # rows and vectors of accumulators that a sum of products has in registers, where there are 32
SMALL_BLOCK = (5, 2)  # where there are 16, and what memory broadcasts takes another one
REGISTER = 64  # bytes; shorter registers hold too little
MOST = {
    1: 32,
    2: 32,
    4: 16,
}  # registers of a table, by the bytes of its elements: of more, single loads, or gathers, are as fast


@dataclass(frozen=True, slots=True)
class Target:
    """What a schedule must know of the machine.

    Attributes:
        vector_bytes: width of a native vector register.
        picked: bytes of the elements of which small tables are looked up in registers.
    """

    vector_bytes: int = 64
    picked: frozenset[int] = frozenset()

    @property
    def block(self) -> tuple[int, int]:
        """Rows and vectors of accumulators: AVX-512 has 32 registers, and products that take what memory broadcasts."""
        return BLOCK if self.vector_bytes >= 64 else SMALL_BLOCK


def registers(cell: np.dtype[Any], count: int | None, lanes: int) -> int | None:
    """How many registers hold a table of at most `count` elements; None where it is better to load its elements by themselves."""
    if count is None or count < 1 or cell.itemsize not in MOST:
        return None
    n = -(-count * cell.itemsize // REGISTER)
    return n if n <= min(MOST[cell.itemsize], lanes) else None


def picked(features: frozenset[str]) -> frozenset[int]:
    """Bytes of the elements of which a register takes lanes from two others: small tables are looked up so."""
    return frozenset({1} if "vbmi" in features else ()) | frozenset({2, 4} if "avx512" in features else ())


def native_width(features: frozenset[str]) -> int:
    """The bytes of the widest vector register."""
    return 64 if "avx512" in features else 32 if "avx2" in features else 16
