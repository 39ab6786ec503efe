"""Splitting the loads of long basic blocks of LLVM IR by markers, because LLVM's time is not linear in their length."""

from __future__ import annotations

import itertools
import re

from hjit.kernels.llvm import thresholds

_VECTOR = re.compile(r" = load <(\d+) x (\w+)>")
_BITS = {"i1": 1, "i8": 8, "i16": 16, "half": 16, "i32": 32, "float": 32, "i64": 64, "double": 64, "ptr": 64}
MARK = '  call void asm sideeffect "", ""()'


def with_marks(lines: list[str], width: int) -> list[str]:
    """The lines of a function, with a mark after every `MAX_BLOCK_LOADS` loads of a block that no store separates.

    For each load of a vector of 16 or 32 bytes LLVM's x86 backend looks at all others that no effect separates from it,
    to see whether one of them is wider, and does so again whenever it changes the load: thousands of loads take it
    minutes. So do hundreds of vectors that take several registers of `width` bytes. The mark is no instruction.
    """
    found: list[str] = []
    loads = 0
    for line in lines:
        if " = load " in line:
            weight = thresholds.WIDE_LOAD if _is_wider(line, width) else 1
            loads += weight
            if loads > thresholds.MAX_BLOCK_LOADS:
                found.append(MARK)
                loads = weight
        elif line.endswith(":") or line.startswith("  store "):
            loads = 0
        found.append(line)
    return found


def _is_wider(load: str, width: int) -> bool:
    """Does a line load a vector of more than `width` bytes?"""
    found = _VECTOR.search(load)
    return found is not None and int(found[1]) * _BITS[found[2]] > 8 * width


def longest_block(text: str) -> int:
    """How many instructions the longest block of a module of LLVM IR has."""
    ends = [k for k, line in enumerate(text.split("\n")) if line.endswith((":", "{", "}"))]
    return max((end - start - 1 for start, end in itertools.pairwise(ends)), default=0)
