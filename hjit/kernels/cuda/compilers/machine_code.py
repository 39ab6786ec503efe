"""Compiled kernels with their resources; kernels that spill registers are compiled again with a larger limit.

By default, ptxas may spill registers so that a multiprocessor can hold more threads. Such a kernel is compiled again
for fewer threads: as many as need no spills.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

# threads that a multiprocessor holds at least; it has 65536 registers
FEWER_THREADS = (1024, 768, 512, 256)


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel needs, as ptxas reports it.

    Attributes:
        registers: of a thread.
        spill_stores: bytes of registers stored to local memory.
        spill_loads: bytes of them loaded again.
        stack: bytes of local memory of a thread.
        shared: bytes of static shared memory of a block.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int

    @property
    def spills(self) -> bool:
        return self.spill_stores > 0 or self.spill_loads > 0


@dataclass(frozen=True, slots=True)
class Compiled:
    """Machine code for one compute capability.

    Attributes:
        source: the whole program, prelude included.
        ptx: the assembly that it was made from.
        cubin: the machine code.
        log: what the compiler said.
        resources: of each kernel by name.
    """

    source: str
    ptx: str
    cubin: bytes
    log: str
    resources: dict[str, Resources]

    def spilling(self) -> list[str]:
        """The kernels that do."""
        return [name for name, r in self.resources.items() if r.spills]


_KERNEL = re.compile(r"^HJ_KERNEL\((\w+), (\d+), (\d+), (\d+)\)", re.MULTILINE)


def kernel_names(body: str) -> list[str]:
    """Of all kernels of a text."""
    return [m[1] for m in _KERNEL.finditer(body)]


def without_spills(compiled: Callable[[str], Compiled], body: str) -> Compiled:
    """The kernels of a text, none of which spills if that can be had.

    Args:
        compiled: compiles a text.
    """
    made = compiled(body)
    counts = {m[1]: _counts(math.prod(map(int, m.groups()[1:]))) for m in _KERNEL.finditer(body)}
    found: dict[str, int] = {}
    for k in range(len(FEWER_THREADS)):
        blocks = {name: counts[name][k] for name in made.spilling() if name not in found and k < len(counts[name])}
        if not blocks:
            break
        trial = compiled(with_blocks(_only(body, blocks), blocks))
        found |= {name: n for name, n in blocks.items() if not trial.resources[name].spills}
    return compiled(with_blocks(body, found)) if found else made


def _counts(threads: int) -> list[int]:
    """How many blocks of so many threads a multiprocessor may have to hold."""
    return list(dict.fromkeys(max(n // threads, 1) for n in FEWER_THREADS))


def _only(body: str, names: Container[str]) -> str:
    """The text with some of its kernels."""
    starts = [m.start() for m in _KERNEL.finditer(body)]
    parts = [body[: starts[0]], *(body[a:b] for a, b in zip(starts, [*starts[1:], len(body)], strict=True))]
    return "".join(p for p in parts if (m := _KERNEL.match(p)) is None or m[1] in names)


def with_blocks(body: str, blocks: Mapping[str, int]) -> str:
    """The text, of which a multiprocessor is to hold so many blocks of some kernels, and need not hold more."""
    return _KERNEL.sub(
        lambda m: f"HJ_KERNEL_OF({blocks[m[1]]}, {m[0].partition('(')[2]}" if m[1] in blocks else m[0], body
    )
