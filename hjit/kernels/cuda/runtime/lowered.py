"""Lowering and emitting: a canonical Graph and its schedule -> source of kernels. Imported only to compile."""

from __future__ import annotations

from dataclasses import dataclass

from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.cuda.launches import Module
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Program
from hjit.kernels.runtime.scheduled import Scheduled
from hjit.options import Options
from hjit.process import debug
from hjit.sched.language.check import check_tree
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Lowered:
    """What a Graph is lowered to under its schedule, and the kernels of that."""

    graph: Graph
    schedule: Root
    program: Program
    module: Module


def lowered(scheduled: Scheduled, options: Options, name: str, bits: int) -> Lowered:
    """Lower a Graph under its schedule, and emit it.

    Args:
        name: what kernels' names begin with.
        bits: of indices.

    Raises:
        ScheduleError: the schedule asks for what cannot be done.
        CompileError: there is no schedule, or no C for an operation.
    """
    graph, machine = scheduled.graph, Machine(fast_math=options.fast_math, small=bits == 32)

    def by(tree: Root) -> Lowered:
        check_tree(tree, graph, "cuda")
        program = lower(graph, tree, machine, debug.passes("lower"), CUDA)
        return Lowered(graph, tree, program, emit_module(graph, program, name, bits))

    found = scheduled.lowered(by)
    debug.say("schedule", name, lambda: found.schedule)
    debug.say("loops", name, lambda: found.program)
    debug.say("cuda", name, lambda: found.module.text)
    return found
