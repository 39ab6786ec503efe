"""Limits of the numbers and the size of schedule trees; anything larger is refused before lowering.

A schedule may come from a person, a file, or a damaged file. Every limit leaves room for any reasonable schedule;
beyond it, machine integers overflow, or LLVM takes minutes or aborts the process. `hjit.sched.language.check` applies
the limits to trees, `hjit.sched.hand.directives` to directives when they are given, so that the message names the
offending line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hjit.errors import ScheduleError
from hjit.sched.language.kinds import MEMORY_LEVELS, Memory

# elements of an inner loop, of what is prefetched ahead: sums of a few indices stay within 32 bits, see
# `hjit.kernels.lower.params.SMALL_ARRAY`
MAX_SIZE = 1 << 28
# lanes of one vector: four registers of bytes, or 32 of float64. LLVM ends the process from 65,536 on, and is slow long
# before
MAX_LANES = 256
WARP = 32  # lanes of a warp: threads of a GPU that run in step
MAX_THREADS = 1024  # of a block, on every GPU
MAX_UNROLL = 256  # copies of one body: LLVM's time grows with them, see `MAX_CODE`
# elements that the axes of a stage are rounded up to, all axes multiplied: a longer gap is memory that nothing reads
MAX_ALIGN = 1 << 20
MAX_PARTS = 1 << 16  # of a reduction: each is an element of a stage that is kept in memory
# loops around one computation: lowering calls itself for each, and what it knows of tiles in tiles grows with the
# square of them
MAX_LOOPS = 64
MAX_DEPTH = 400  # nodes from the root to a computation: what walks trees calls itself for each node
MAX_NODES = 100_000  # of a tree; what lowering takes grows with them
MAX_DIRECTIVES = 10_000  # of a schedule; each of them makes the list of its stage's loops anew
MAX_PREFETCHES = 64  # arrays that a computation prefetches
# vector registers computed in the code of one computation, all its copies together: LLVM takes some seconds for them
MAX_CODE = 60_000
# what a lane of a division of integers, but by a constant, counts in `MAX_CODE`: no processor divides them in vectors
DIVISION_CODE = 16


def shown(n: Any) -> str:
    """A number, or whatever stands in its place, in a message: short."""
    if isinstance(n, int) and not isinstance(n, bool) and n.bit_length() > 128:
        return f"{'-' if n < 0 else ''}2**{n.bit_length() - 1} or more"  # Python does not print integers of any length
    text = repr(n)
    return text if len(text) <= 80 else text[:77] + "..."


def is_size(n: object) -> bool:
    """Is it a number of elements that an inner loop may have?"""
    return type(n) is int and 1 <= n <= MAX_SIZE


def check_number(what: str, n: object, most: int, unit: str) -> None:
    """Is it a whole number from 1 to `most`?

    Raises:
        ScheduleError: `what`, and what is allowed.
    """
    if type(n) is not int or not 1 <= n <= most:
        raise ScheduleError(f"{what}: {shown(n)} is not a number of {unit}; allowed are whole numbers from 1 to {most}")


def check_buffer(stage: str, lengths: Sequence[int], memory: Memory) -> None:
    """May a buffer at a level of memory have axes of these constant lengths?

    Raises:
        ScheduleError: it is too large.
    """
    most = MEMORY_LEVELS[memory].max_elements
    if math.prod(lengths) > most:
        sizes = " x ".join(map(str, lengths))
        advice = f"more than {most}; make the tiles smaller"
        raise ScheduleError(f"store {stage}: the tiles that it is computed for need {sizes} elements of it, {advice}")
