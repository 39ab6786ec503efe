"""Line buffers: the stages that the default schedule computes inside their consumers' nest.

A group is a head stage whose rows run in parallel tasks, and producers of which each iteration needs only a few rows.
Each task walks along its rows; a producer computes the rows that earlier iterations of the task have not. Whole
intermediate images are never written to memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hjit.sched.analysis.bounds import Definitions, Reads, Region
from hjit.sched.analysis.propagation import Uses
from hjit.sched.analysis.sliding import advance, warm_up_iterations
from hjit.sched.default.thresholds import MAX_GROUP_ROWS, MAX_ROWS, MAX_SIDES, MAX_WARM_UP
from hjit.trace.ir.graph import Stage
from hjit.trace.ir.intervals import Interval
from hjit.trace.ir.poly import Var, extremum, poly

ROW, COLUMN = Var("row"), Var("column")


@dataclass(frozen=True, slots=True)
class Head:
    """A nest at the root in whose row iterations other stages may be computed.

    Attributes:
        nest: its number among those of the stage.
        group: its definitions.
        dim: their dimension along which rows follow each other, in parallel tasks.
        step: rows that one iteration computes: those of a tile that is read across, or 1.
    """

    stage: Stage
    nest: int
    group: tuple[int, ...]
    dim: int
    step: int = 1


def _moving(region: Region) -> tuple[int, int] | None:
    """The axis along which what a row of the head needs moves, and how many rows that are.

    None where they do not move steadily, or are too many.
    """
    moving = [k for k, s in enumerate(region) if s.base.mentions(ROW)]
    if len(moving) != 1 or not region[moving[0]].length.is_const:
        return None
    s = region[moving[0]]
    rows, new = s.length.const, advance(s.base, ROW, 1)
    if new is None or rows > MAX_ROWS:
        return None
    iterations = warm_up_iterations(s.base, ROW, 1, rows - 1, max(new, 1), MAX_WARM_UP)
    return None if iterations is None else (moving[0], rows)


def named(stage: str, region: Region) -> Region:
    """The region with names for its exact bounds, on which nothing here depends; they would grow with each stage."""
    return tuple(
        replace(s, low=poly(Var(f"{stage}.low{k}")), high=poly(Var(f"{stage}.high{k}"))) for k, s in enumerate(region)
    )


def _uses(reads: Reads, head: Head, points: Mapping[int, Var]) -> Uses[Definitions]:
    """The reads of a head, at a point of some of its dimensions and for all of the others."""
    uses: Uses[Definitions] = Uses(reads.stages)
    for number in head.group:
        group = reads.group(head.stage.name, number)
        uses.add(group, group.whole | {k: Interval.point(poly(var)) for k, var in points.items() if k in group.whole})
    return uses


def members_of(
    reads: Reads,
    head: Head,
    taken: set[str],
    may_join: Callable[[Stage, int], bool],
    consumers: Mapping[str, list[str]],
) -> tuple[str, ...]:
    """The producers that can be computed in the iterations of `head`, in the order of the Graph.

    Where an iteration computes several rows, only what each of them needs one row of joins: tasks have few iterations.

    Args:
        taken: stages that are computed elsewhere.
        may_join: are rows of a stage, along one of its axes, computed as fast as all of it?
    """
    uses, own, step = _uses(reads, head, {head.dim: ROW}), head.stage.name, head.step
    members: dict[str, int] = {}
    for s in reversed(reads.graph.stages[: reads.position[own]]):
        if s.name in taken or not all(c == own or c in members for c in consumers[s.name]):
            continue
        region = named(s.name, reads.region(s.name, uses))
        found = _moving(region)
        if found is None or not may_join(s, found[0]) or (step > 1 and found[1] > 1):
            continue
        if (sum(members.values()) + found[1]) * step <= MAX_GROUP_ROWS:
            members[s.name] = found[1]
            for number in range(len(s.definitions)):
                group = reads.group(s.name, number)
                uses.add(group, group.dims(region))
    return tuple(reversed(members))


def bytes_of_column(reads: Reads, head: Head, column: int, members: Sequence[str]) -> int | None:
    """The bytes that the buffers of a group have per element of a dimension of the head, `column`, other than its rows.

    Returns:
        None where strips of that dimension would compute more than a few neighbouring elements twice.
    """
    uses = _uses(reads, head, {head.dim: ROW, column: COLUMN})
    total = 0
    for name in reversed(members):
        s = reads.stages[name]
        region = named(name, reads.region(name, uses))
        moving = [x for x in region if x.base.mentions(COLUMN)]
        if len(moving) != 1 or advance(moving[0].base, COLUMN, 1) != 1 or not all(x.length.is_const for x in region):
            return None
        if moving[0].length.const > MAX_SIDES:
            return None
        others = [x.length.const for x in region if x is not moving[0]]
        # storage is folded to lengths that are powers of two
        total += s.dtype.itemsize * math.prod(1 << (n - 1).bit_length() for n in others)
        for number in range(len(s.definitions)):
            group = reads.group(name, number)
            uses.add(group, group.dims(tuple(map(_new_rows, region))))
    return total


def _new_rows(s: Interval) -> Interval:
    """The rows that one iteration adds to a window."""
    new = advance(s.base, ROW, 1) if s.base.mentions(ROW) else None
    return s if new is None else replace(s, first=extremum("max", s.first, s.newest(max(new, 1)).first))
