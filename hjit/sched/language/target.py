"""The target of a schedule: properties of the machine that code is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.sched.language.kinds import TARGET_KINDS, TargetKind, TargetTraits

REGISTER_BYTES = 64  # of the widest vector register that there is
# Rows and vectors of accumulators of a sum of products, by the number of vector registers: they are in registers, with
# the operands of one step. On AVX2 (5, 2) made products 2.2 times as fast as (6, 4).
BLOCKS = {32: (6, 4), 16: (5, 2)}
BLOCK_ROWS = 16  # of few vectors: depthwise_separable_conv, which has one
# Registers of a table at most, by the bytes of its elements: of more, single loads, or gathers, were as fast (AVX-512).
TABLE_REGISTERS = {1: 32, 2: 32, 4: 16}
NEON_TABLE_REGISTERS = 4  # of 64 bytes, four of its own each: half of the 32 that there are
# More of a group's buffers in the second cache than this makes strips no faster.
MAX_NEAR_BYTES = 512 << 10


@dataclass(frozen=True, slots=True)
class Target:
    """What a schedule must know of the machine.

    Attributes:
        vector_bytes: width of a native vector register.
        table_bytes: bytes of the elements of which small tables are looked up in registers.
        l2_bytes: size of a core's second cache; the default is that of the machine on which thresholds were timed.
        kind: see `hjit.sched.language.kinds.TARGET_KINDS`.
    """

    vector_bytes: int = 64
    table_bytes: frozenset[int] = frozenset()
    l2_bytes: int = 2 << 20
    kind: TargetKind = "cpu"

    @property
    def traits(self) -> TargetTraits:
        """The kinds of loops and of memory that it has."""
        return TARGET_KINDS[self.kind]

    @property
    def vector_registers(self) -> int:
        """How many there are: AVX-512 has 32, shorter vectors of x86-64 have 16."""
        return 32 if self.vector_bytes >= 64 else 16

    def block(self, vectors: int | None) -> tuple[int, int]:
        """Rows and vectors of the accumulators of a sum of products of so many columns; of few vectors more rows."""
        rows, most = BLOCKS[self.vector_registers]
        fewer = most if vectors is None else min(most, max(vectors, 1))
        return min(rows * most // fewer, max(rows, BLOCK_ROWS)), fewer

    @property
    def near_bytes(self) -> int:
        """What a task may keep in the second cache and find there again, in addition to what it reads and writes.

        Half of the cache, up to 512 KiB: with more, strips are no faster. nl_means gained 1.4 times by 512 KiB of 2
        MiB, and takes 1.08 times as long with 256 KiB of 1 MiB as with 512 KiB.
        """
        return min(self.l2_bytes // 2, MAX_NEAR_BYTES)


def table_registers(cell: np.dtype[Any], count: int | None, lanes: int, vector_bytes: int = 64) -> int | None:
    """How many registers of 64 bytes hold a table of at most `count` elements; None where loading these is better."""
    if count is None or count < 1 or cell.itemsize not in TABLE_REGISTERS:
        return None
    n = -(-count * cell.itemsize // REGISTER_BYTES)
    most = TABLE_REGISTERS[cell.itemsize] if vector_bytes == REGISTER_BYTES else NEON_TABLE_REGISTERS
    return n if n <= min(most, lanes) else None


def table_bytes(features: frozenset[str]) -> frozenset[int]:
    """Bytes of the elements of which a register takes lanes from others: small tables are looked up so."""
    bytes_of = {1} if features & {"vbmi", "neon"} else set()
    return frozenset(bytes_of | ({2, 4} if "avx512" in features else set()))


def native_width(features: frozenset[str]) -> int:
    """The bytes of the widest vector register."""
    return 64 if "avx512" in features else 32 if "avx2" in features else 16
