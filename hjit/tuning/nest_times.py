"""How long each nest of a kernel takes, and which stages have a share in that.

A kernel that records times gives the seconds of each nest, while the cost model predicts those of each stage. They are
compared for parts: sets of nests that share no stage with others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hjit.kernels.runtime.bind import kernel_for, named_nests
from hjit.kernels.runtime.kernel import Bound
from hjit.kernels.runtime.scheduled import Scheduled
from hjit.options import Options
from hjit.trace.ir.graph import Graph

Array = np.ndarray[Any, Any]


def noting(bound: Bound, scheduled: Scheduled, options: Options) -> Bound:
    """The same kernel, but that it notes when each nest ends; see `Bound.nest_seconds`.

    Args:
        scheduled: what the kernel was made of.

    Raises:
        HjitError: it cannot be compiled.
    """
    timed = replace(scheduled, timed=True)
    kernel = kernel_for(timed, options, bound.kernel.name == scheduled.name(options, True))
    parameters = replace(bound.parameters, nests=named_nests(kernel, scheduled.graph))
    return Bound(kernel, parameters, options)


def components(
    graph: Graph, inlined: Collection[str], nests: Sequence[Sequence[str]], seconds: Array
) -> tuple[Array, Array]:
    """Nests that share inlined stages are timed together, as one component.

    Returns the component of each stage, int [stages], and the seconds of each, float [stages], 0 after the last one.

    Args:
        graph: with the stages that are inlined: such a one is in the nests of those that it is inlined into.
        nests: the stages that each computes.
        seconds: of each nest.
    """
    where: dict[str, set[int]] = {s.name: set() for s in graph.stages}
    for number, stages in enumerate(nests):
        for name in stages:
            where[name].add(number)
    consumers = graph.consumers()
    for s in reversed(graph.stages):
        if s.name in inlined:
            where[s.name].update(*(where[x] for x in consumers[s.name]))
    part = list(range(len(nests)))
    for numbers in where.values():
        joined = {part[x] for x in numbers}
        part = [min(joined) if x in joined else x for x in part]
    order = {x: k for k, x in enumerate(sorted(set(part)))}
    found = np.zeros(len(where))
    np.add.at(found, [order[x] for x in part], seconds)
    return np.array([order[part[min(x)]] if x else 0 for x in where.values()]), found
