"""Buffer allocation by live ranges: stages that are not live at the same time share scratch memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hjit.trace.ir.graph import Graph

if TYPE_CHECKING:
    from hjit.kernels.lower.program import Program

PAGE_BYTES = 4096  # whose offset selects a line of the first cache, as on most processors
STAGGER_BYTES = 5 * 64  # between the page offsets of arrays that follow each other: five lines of a cache
LARGE_BYTES = 1 << 16  # arrays of which some more bytes do not matter

LiveRange = tuple[int, int]  # the first nest that computes or reads a stage, and the last one


def live_ranges_of(graph: Graph, program: Program) -> dict[str, LiveRange]:
    """The live range, in nests, of each stage that is in memory."""
    found: dict[str, LiveRange] = {}
    for k, nest in enumerate(program.nests):
        for name in {*nest.writes, *(x for w in nest.writes for x in graph.by_name[w].sources if x in graph.by_name)}:
            found[name] = found.get(name, (k, k))[0], k
    return found


def staggered(size: int) -> int:
    """The bytes to allocate for an array, so that large ones begin at different offsets within a page.

    A cache has few lines for addresses with the same offset within a page, and a nest may read many arrays at the same
    row and column: with 49 of them, each of whole pages, a nest took 1.5 times as long.
    """
    return size if size < LARGE_BYTES else -(-size // PAGE_BYTES) * PAGE_BYTES + STAGGER_BYTES


def offsets(sizes: Mapping[str, int], live_ranges: Mapping[str, LiveRange]) -> tuple[dict[str, int], int]:
    """The offset of each stage, and the total size: first fit, in the order in which live ranges begin.

    Args:
        sizes: bytes of each stage, multiples of the alignment.
        live_ranges: the live range of each stage.
    """
    found: dict[str, int] = {}
    living: list[tuple[int, int, int]] = []  # (begin, end, last nest), in the order of memory
    total = 0
    for name in sorted(sizes, key=lambda n: (live_ranges[n][0], -sizes[n])):
        first, last = live_ranges[name]
        living = [x for x in living if x[2] >= first]
        at, position = _first_gap(living, sizes[name])
        found[name] = at
        living.insert(position, (at, at + sizes[name], last))
        total = max(total, at + sizes[name])
    return found, total


def _first_gap(living: Sequence[tuple[int, int, int]], size: int) -> tuple[int, int]:
    """The lowest offset of a gap of `size` bytes, and its position in the list."""
    at = 0
    for position, (begin, end, _) in enumerate(living):
        if begin - at >= size:
            return at, position
        at = max(at, end)
    return at, len(living)
