"""Where stages lie in scratch memory: two that no nest needs at the same time share it, as arrays that NumPy frees do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hjit.trace.ir.graph import Graph

if TYPE_CHECKING:
    from hjit.kernels.lower.loopir import Program

PAGE, APART = 4096, 5 * 64  # bytes
LARGE = 1 << 16  # bytes from which on some more do not matter

Lifetime = tuple[int, int]  # the first nest that computes or reads a stage, and the last one


def lifetimes(graph: Graph, program: Program) -> dict[str, Lifetime]:
    """For each stage that is in memory, from which nest on it is needed, and up to which."""
    found: dict[str, Lifetime] = {}
    for k, nest in enumerate(program.nests):
        for name in {*nest.writes, *(x for w in nest.writes for x in graph.by_name[w].sources if x in graph.by_name)}:
            found[name] = found.get(name, (k, k))[0], k
    return found


def staggered(size: int) -> int:
    """The bytes to set aside for an array: those of large ones lie at different places of a page, one after the other.

    A cache has few lines for addresses that are alike within a page, and a nest may read many arrays at the same row and column: 49 of
    them, each of whole pages, took it 1.5 times as long.
    """
    return size if size < LARGE else -(-size // PAGE) * PAGE + APART


def offsets(sizes: Mapping[str, int], lives: Mapping[str, Lifetime]) -> tuple[dict[str, int], int]:
    """Where each stage begins, and how much memory they need together: first fit, in the order in which they begin to live.

    Args:
        sizes: bytes, of the alignment's multiples. lives: of each of them.
    """
    found: dict[str, int] = {}
    living: list[tuple[int, int, int]] = []  # (begin, end, last nest), in the order of memory
    total = 0
    for name in sorted(sizes, key=lambda n: (lives[n][0], -sizes[n])):
        first, last = lives[name]
        living = [x for x in living if x[2] >= first]
        at, position = _first_gap(living, sizes[name])
        found[name] = at
        living.insert(position, (at, at + sizes[name], last))
        total = max(total, at + sizes[name])
    return found, total


def _first_gap(living: Sequence[tuple[int, int, int]], size: int) -> tuple[int, int]:
    """The lowest place for `size` bytes between what is there, and its position in the list."""
    at = 0
    for position, (begin, end, _) in enumerate(living):
        if begin - at >= size:
            return at, position
        at = max(at, end)
    return at, len(living)
