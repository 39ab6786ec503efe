"""Which stages are computed row by row inside their consumers' nest, through line buffers.

A group is a head stage whose rows run in parallel tasks, and producers of which each head row needs only a few rows.
Each task walks down its rows; a producer computes the rows that no earlier step of the task has, into a circular
buffer of as many rows as the window needs. Whole intermediate images are then never written to memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from hjit.trace.graph import Graph, Stage, loads
from hjit.trace.intervals import Span, span, whole
from hjit.trace.poly import Poly, Var, poly

MAX_ROWS = 64  # rows of one line buffer
MAX_GROUP_ROWS = 256  # rows of all line buffers of a group

ROW = Var("d0")


def rows_needed(graph: Graph, head: str, members: tuple[str, ...], row: Poly) -> dict[str, Span] | None:
    """For each member the rows that one row of the head needs, or None where they cannot be bounded.

    `members` are in the order of the Graph; consumers of each are the head and later members.
    """
    stages = graph.by_name
    found: dict[str, Span] = {head: Span.point(row)}
    for name in reversed(members):
        total: Span | None = None
        for consumer in (*members, head):
            if consumer not in found:
                continue
            part = _from(stages[consumer], name, found[consumer])
            if part is False:
                return None
            if isinstance(part, Span):
                total = part if total is None else total.hull(part)
                if total is None:
                    return None
        if total is None:
            return None
        total = total.clipped(stages[name].shape[0])
        if not total.length.is_const or total.length.const > MAX_ROWS:
            return None
        found[name] = total
    return found


def _from(consumer: Stage, producer: str, rows: Span) -> Span | bool:
    """Rows of `producer` that some rows of `consumer` read; True where none, False where it cannot be told."""
    total: Span | None = None
    for d in consumer.definitions:
        dims: Mapping[int, Span] = {0: rows, **{k: whole(n) for k, n in enumerate(d.extents) if k and n.is_const}}
        for load in loads(*d.exprs()):
            if load.source != producer:
                continue
            part = span(load.index[0], dims, {k: whole(n) for k, n in enumerate(d.extents)})
            if part is None:
                return False
            total = part if total is None else total.hull(part)
            if total is None:
                return False
    return True if total is None else total


def group_of(graph: Graph, head: Stage, taken: set[str], eligible: Mapping[str, Stage], consumers: Mapping[str, list[str]]) -> tuple[str, ...]:
    """The producers that can be computed inside the nest of `head`, in the order of the Graph."""
    members: list[str] = []
    order = {s.name: k for k, s in enumerate(graph.stages)}
    for s in reversed(graph.stages[: order[head.name]]):
        if s.name in taken or s.name not in eligible:
            continue
        if not all(c == head.name or c in members for c in consumers[s.name]):
            continue
        wanted = tuple(sorted([*members, s.name], key=order.__getitem__))
        rows = rows_needed(graph, head.name, wanted, poly(ROW))
        if rows is not None and sum(r.length.const for n, r in rows.items() if n != head.name) <= MAX_GROUP_ROWS:
            members = list(wanted)
    return tuple(members)
