"""Lowering: Graph + schedule tree -> loop IR, a list of passes.

    place_loops        the tree, opened into loops around each definition: bounds are inferred, windows slide, storage is folded
    unroll_and_jam     unrolled loops become code for each turn; turns that do not depend on each other share loads
    partition_loops    borders apart from the interior: no clamp, wrap or mask where vectors run
    drop_unused_lets   names of indices that nothing refers to
    outline            loops that occur again and again become functions

Each but the first is a function from nest to nest; `show` sees the Program after each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hjit.kernels.lower.check import check_loop_ir
from hjit.kernels.lower.loop_partitioning import partition_loops
from hjit.kernels.lower.loopir import Nest, Program
from hjit.kernels.lower.outlining import outline
from hjit.kernels.lower.place_loops import place_loops
from hjit.kernels.lower.unroll_and_jam import unroll_and_jam
from hjit.kernels.lower.unused_lets import drop_unused_lets
from hjit.process import deadline, debug
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph

PASSES: tuple[Callable[[Nest], Nest], ...] = (unroll_and_jam, partition_loops, drop_unused_lets, outline)


def lower(
    graph: Graph, schedule: Root, fast: bool = False, show: Callable[[str, Program], None] | None = None
) -> Program:
    """The loop nests of a Graph under a schedule.

    Args:
        fast: may sums of floats be accumulated in their own dtype?
        show: is given the name of each pass and what it makes.

    Raises:
        ScheduleError: a stage cannot slide along the loop that the schedule says.
    """
    program = place_loops(graph, schedule, fast)
    done = [place_loops.__name__]

    def finished() -> None:
        if debug.checks():
            check_loop_ir(program, graph, tuple(done))
        if show is not None:
            show(done[-1], program)

    finished()
    for run in PASSES:
        changed = (nest if nest.like is not None else run(nest) for nest in deadline.within("lowering", program.nests))
        program = replace(program, nests=tuple(changed))
        done.append(run.__name__)
        finished()
    return program
