"""Which part of a kernel's time each of its stages has a share in.

A kernel that notes times tells the seconds of each nest (`hjit.kernels.runtime.kernel.Bound.nest_seconds`), and the
cost model predicts those of each stage. What can be compared is a part: nests that have no stage in common with others.
An inlined stage is in the nests of those that it is inlined into.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.graph import Graph

Array = np.ndarray[Any, Any]


def parts(
    graph: Graph, inlined: Collection[str], nests: Sequence[Sequence[int]], seconds: Array
) -> tuple[Array, Array]:
    """The part that each stage is in, int [stages], and the seconds of each, float [stages], 0 behind the last part.

    Args:
        nests: the stages that each computes, by position in the Graph.
        seconds: of each nest.
    """
    position = {s.name: k for k, s in enumerate(graph.stages)}
    where: list[set[int]] = [set() for _ in graph.stages]
    for number, stages in enumerate(nests):
        for k in stages:
            where[k].add(number)
    consumers = graph.consumers()
    for k in reversed(range(len(where))):
        name = graph.stages[k].name
        if name in inlined:
            where[k].update(*(where[position[x]] for x in consumers[name] if x in position))
    part = list(range(len(nests)))
    for numbers in where:
        joined = {part[x] for x in numbers}
        part = [min(joined) if x in joined else x for x in part]
    order = {x: k for k, x in enumerate(sorted(set(part)))}
    found = np.zeros(len(where))
    np.add.at(found, [order[x] for x in part], seconds)
    return np.array([order[part[min(x)]] if x else 0 for x in where]), found
