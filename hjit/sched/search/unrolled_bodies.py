"""The number of copies that unrolling makes of the bodies of a nest, and their instructions."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hjit.sched.language.build import iteration_size
from hjit.sched.language.tree import Compute, Loop, Node, computes, dims_of
from hjit.sched.search.nest_costs import NestCosts
from hjit.trace.ir.analysis.costs import instruction_count


def unrolled_instructions(nests: NestCosts, nest: Node, inlined: frozenset[str]) -> int:
    """The instructions of all copies of the longest unrolled body, including inlined stages.

    0 where no loop is unrolled.
    """
    bodies = _bodies(nests, nest, 1, 1)
    return max((n * _length(nests, c, lanes, inlined) for c, n, lanes in bodies if n > 1), default=0)


def own_compute(loop: Loop) -> Compute:
    """The computation of a loop's own stage inside it."""
    return next(c for c in computes(loop) if c.stage == loop.stage)


def _bodies(nests: NestCosts, node: Node, copies: int, lanes: int) -> Iterator[tuple[Compute, int, int]]:
    """What a nest computes, how many copies of it unrolled loops make, and the lanes of its vectors."""
    if isinstance(node, Compute):
        yield node, copies, lanes
        return
    if isinstance(node, Loop) and node.kind in ("unroll", "vector"):
        extents = nests.sized.group(node.stage, own_compute(node).definitions).extents
        size = math.prod(int(extents[k]) for k in dims_of(node.dim)) if node.size is None else node.size
        if node.kind == "unroll":
            copies *= max(size // iteration_size(node, dims_of(node.dim)[-1]), 1)
        else:
            lanes = max(size, 1)
    for child in node.children:
        yield from _bodies(nests, child, copies, lanes)


def _length(nests: NestCosts, c: Compute, lanes: int, inlined: frozenset[str]) -> int:
    """The instructions of one evaluation, including inlined stages."""
    calls = nests.sized_for(nests.through(c, inlined)).group(c.stage, c.definitions).calls
    own = sum(instruction_count(nests.graph.stage(c.stage).definitions[n].value, lanes) for n in c.definitions)
    return own + sum(
        len(indices) * instruction_count(nests.graph.stage(name).definitions[0].value, lanes)
        for name, indices in calls.items()
    )
