"""Blocks of LLVM IR: long ones, for which LLVM would take minutes."""

from __future__ import annotations

import itertools

from hjit.kernels.llvm import thresholds

MARK = '  call void asm sideeffect "", ""()'


def with_marks(lines: list[str]) -> list[str]:
    """The lines of a function, with a mark after every `MAX_BLOCK_LOADS` loads of a block that no store separates.

    For each load of a vector of 16 or 32 bytes LLVM's x86 backend looks at all others that no effect separates from it,
    to see whether one of them is wider, and does so again whenever it changes the load: thousands of loads take it
    minutes. The mark is no instruction.
    """
    if sum(" = load " in x for x in lines) <= thresholds.MAX_BLOCK_LOADS:
        return lines
    found: list[str] = []
    loads = 0
    for line in lines:
        if " = load " in line:
            loads += 1
            if loads > thresholds.MAX_BLOCK_LOADS:
                found.append(MARK)
                loads = 1
        elif line.endswith(":") or line.startswith("  store "):
            loads = 0
        found.append(line)
    return found


def longest_block(text: str) -> int:
    """How many instructions the longest block of a module of LLVM IR has."""
    ends = [k for k, line in enumerate(text.split("\n")) if line.endswith((":", "{", "}"))]
    return max((end - start - 1 for start, end in itertools.pairwise(ends)), default=0)
