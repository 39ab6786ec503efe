"""Which stages the default schedule computes inside their consumers' nest, through circular buffers.

A group is a head stage whose rows run in parallel tasks, and producers of which each turn needs only a few rows. Each
task walks along its rows; a producer computes what no earlier turn of the task has. Whole intermediate images are then
never written to memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hjit.sched.boxes import Box, Reads, advance, boxes
from hjit.sched.tree import Compute
from hjit.trace.graph import Stage
from hjit.trace.intervals import Span, whole
from hjit.trace.poly import Var, poly

MAX_ROWS = 64  # rows of one buffer
MAX_GROUP_ROWS = 256  # rows of all buffers of a group

ROW = Var("row")


def rows_needed(reads: Reads, head: Stage, dim: int, members: tuple[str, ...]) -> dict[str, int] | None:
    """For each member the rows that one turn of the head's loop over `dim` needs, or None where they do not move steadily."""
    computed = [Compute(n, tuple(range(len(reads.stages[n].definitions)))) for n in (*members, head.name)]

    def dims(stage: str, number: int) -> dict[int, Span] | None:
        if stage != head.name:
            return None
        found = {k: whole(n) for k, n in enumerate(head.definitions[number].extents)}
        found[dim] = Span.point(poly(ROW))
        return found

    found = boxes(reads, computed, dims, _named)
    rows: dict[str, int] = {}
    for name in members:
        moving = [s for s in found[name] if s.base.mentions(ROW)]
        if len(moving) != 1 or not moving[0].length.is_const or advance(moving[0].base, ROW, 1) is None:
            return None
        rows[name] = moving[0].length.const
        if rows[name] > MAX_ROWS:
            return None
    return rows


def _named(stage: str, box: Box) -> Box:
    """The box with names for its exact bounds, which nothing here depends on and which would grow with each stage."""
    return tuple(replace(s, low=poly(Var(f"{stage}.low{k}")), high=poly(Var(f"{stage}.high{k}"))) for k, s in enumerate(box))


def group_of(
    reads: Reads, head: Stage, dim: int, taken: set[str], eligible: Mapping[str, Stage], consumers: Mapping[str, list[str]]
) -> tuple[str, ...]:
    """The producers that can be computed inside the nest of `head`, in the order of the Graph."""
    members: list[str] = []
    for s in reversed(reads.graph.stages[: reads.position[head.name]]):
        if s.name in taken or s.name not in eligible:
            continue
        if not all(c == head.name or c in members for c in consumers[s.name]):
            continue
        wanted = tuple(sorted([*members, s.name], key=reads.position.__getitem__))
        rows = rows_needed(reads, head, dim, wanted)
        if rows is not None and sum(rows.values()) <= MAX_GROUP_ROWS:
            members = list(wanted)
    return tuple(members)
