"""Unrolled bodies of a nest: how many copies of them loops make, and how many instructions those have."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hjit.sched.language.build import iteration_size
from hjit.sched.language.tree import Compute, Loop, Node, computes, dims_of
from hjit.sched.search.nest_costs import NestCosts
from hjit.trace.ir.analysis.costs import instruction_count


def unrolled_instructions(nests: NestCosts, nest: Node, inlined: frozenset[str]) -> int:
    """Instructions of all copies of the longest unrolled body, with those of the stages that are inlined into it.

    0 where no loop is unrolled.
    """
    bodies = _bodies(nests, nest, 1)
    return max((copies * _length(nests, c, inlined) for c, copies in bodies if copies > 1), default=0)


def own_compute(loop: Loop) -> Compute:
    """What a loop computes of the stage that it is a loop of."""
    return next(c for c in computes(loop) if c.stage == loop.stage)


def _bodies(nests: NestCosts, node: Node, copies: int) -> Iterator[tuple[Compute, int]]:
    """What a nest computes, and how many copies of it unrolled loops make."""
    if isinstance(node, Compute):
        yield node, copies
        return
    if isinstance(node, Loop) and node.kind == "unroll":
        extents = nests.sized.part(node.stage, own_compute(node).definitions).extents
        size = math.prod(int(extents[k]) for k in dims_of(node.dim)) if node.size is None else node.size
        copies *= max(size // iteration_size(node, dims_of(node.dim)[-1]), 1)
    for child in node.children:
        yield from _bodies(nests, child, copies)


def _length(nests: NestCosts, c: Compute, inlined: frozenset[str]) -> int:
    """Instructions of one evaluation, with those of the stages that are inlined into it."""
    calls = nests.sized_for(nests.through(c, inlined)).part(c.stage, c.definitions).calls
    own = sum(instruction_count(nests.graph.stage(c.stage).definitions[n].value) for n in c.definitions)
    return own + sum(
        len(indices) * instruction_count(nests.graph.stage(name).definitions[0].value)
        for name, indices in calls.items()
    )
