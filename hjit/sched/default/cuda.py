"""Default schedules on CUDA: every stage at the root, a thread for each iteration of its pure loops."""

from __future__ import annotations

from hjit.sched.language.build import Step, nest
from hjit.sched.language.groups import groups
from hjit.sched.language.tree import Node, Root, Store
from hjit.trace.ir.graph import Graph, Stage


def cuda_schedule(graph: Graph) -> Root:
    """The schedule of a canonical Graph; legal for every one."""
    return Root(tuple(Store(s.name, tuple(_nest(s, group) for group in groups(s))) for s in graph.stages))


def _nest(s: Stage, group: tuple[int, ...]) -> Node:
    """Pure loops outermost, which are threads; reductions and scans run inside each."""
    d = s.definitions[group[-1]]
    loops: list[Step] = [(k, "parallel" if k < len(d.dims) else "serial", None) for k in range(len(d.extents))]
    return nest(s.name, group, loops)
