"""Stages that several subgraphs need: kept by the first subgraph that computes them, or recomputed by each.

What is kept stays in memory until the last subgraph has read it. A reduction over a whole array ends before the next
subgraph begins, so that all chunks kept until then are in memory at once. A stage is kept if there is room for them,
and if recomputing it costs more than keeping it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from hjit.chunks.bounds import elements
from hjit.chunks.limits import KEPT_COST, TASK_COST
from hjit.chunks.subgraphs import Cutter, Subgraph
from hjit.trace.ir.analysis.costs import cost


def subgraphs_with_kept(cutter: Cutter, room: int) -> tuple[list[Subgraph], int]:
    """The subgraphs of a Graph, with some stages kept for several of them; and the remaining room in bytes."""
    stages = KeptStages(cutter, room)
    subgraphs = cutter.subgraphs()
    while (name := stages.next(subgraphs)) is not None:
        cutter.keep(name)
        subgraphs = cutter.subgraphs()
    return subgraphs, stages.room


class KeptStages:
    """Chooses the stages of a Graph to keep.

    Attributes:
        room: bytes that there still are for others.
    """

    def __init__(self, cutter: Cutter, room: int) -> None:
        self.cutter, self.graph, self.bounds, self.room = cutter, cutter.graph, cutter.bounds, room
        self._work: dict[str, float] = {}

    def next(self, subgraphs: Sequence[Subgraph]) -> str | None:
        """The latest stage that is better kept than recomputed by these subgraphs; None if there is none (any
        more). Its bytes are taken of the room.
        """
        computed = [frozenset(self._computed(p)) for p in subgraphs]
        times = Counter(n for names in computed for n in names)
        shared = frozenset(n for n, k in times.items() if k > 1)
        for name in self._ends(subgraphs, computed, shared):
            size = math.prod(self.bounds.shapes[name]) * self.graph.stage(name).dtype.itemsize
            again = sum(self._share(p, name) for p, names in zip(subgraphs, computed, strict=True) if name in names) - 1
            if size <= self.room and self._is_worth_it(name, again, shared):
                self.room -= size
                return name
        return None

    def _computed(self, subgraph: Subgraph) -> Iterator[str]:
        """The stages that the tasks of a subgraph compute."""
        return (n for n in subgraph.required if n in self.graph.by_name and n not in subgraph.reads)

    def _ends(
        self, subgraphs: Sequence[Subgraph], computed: Sequence[frozenset[str]], shared: frozenset[str]
    ) -> Iterator[str]:
        """Shared stages from which subgraphs go on with what is theirs alone, the latest first."""
        found = {n for p in subgraphs for n in p.outputs if n in shared}
        for names in computed:
            for own in names - shared:
                found |= self.graph.stage(own).sources & shared & names
        return (s.name for s in reversed(self.graph.stages) if s.name in found and s.name not in self.cutter.kept)

    def _share(self, subgraph: Subgraph, name: str) -> float:
        """How often the tasks of a subgraph compute a stage, all together."""
        points = np.sum(elements(subgraph.required[name]) * np.ones(math.prod(subgraph.numblocks)))
        return float(points) / max(math.prod(map(float, self.bounds.shapes[name])), 1.0)

    def _is_worth_it(self, name: str, again: float, shared: frozenset[str]) -> bool:
        """Does recomputing a stage, and the shared stages before it, cost more than keeping it?"""
        saved = again * sum(map(self._work_of, self._before(name, shared)))
        kept = KEPT_COST * math.prod(map(float, self.bounds.shapes[name]))
        if saved <= kept + TASK_COST:
            return False
        subgraph = self.cutter.subgraph_of(name)
        return not subgraph.is_whole and saved > kept + TASK_COST * float(math.prod(subgraph.numblocks))

    def _before(self, name: str, shared: frozenset[str]) -> set[str]:
        """A stage, and the shared ones that it is computed from."""
        found, new = set[str](), {name}
        while new:
            found |= new
            new = {n for s in new for n in self.graph.stage(s).sources & shared} - found
        return found

    def _work_of(self, name: str) -> float:
        """Additions that computing a stage costs."""
        if name not in self._work:
            definitions = zip(self.graph.stage(name).definitions, self.bounds.loops(name), strict=True)
            self._work[name] = sum(cost(d.value) * math.prod(map(float, x.extents)) for d, x in definitions)
        return self._work[name]
