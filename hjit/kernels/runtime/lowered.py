"""Lowering and emitting: a canonical Graph and its schedule -> LLVM IR. Imported only to compile."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hjit.kernels.llvm.emit import emit_module
from hjit.kernels.lower.lower import lower
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.params import Params, params_of
from hjit.kernels.lower.program import Program
from hjit.kernels.runtime import features
from hjit.kernels.runtime.scheduled import Scheduled
from hjit.options import Options
from hjit.process import debug
from hjit.sched.language.check import check_tree
from hjit.sched.language.target import native_width
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Lowered:
    """What a Graph is lowered to under its schedule, and the LLVM IR of that."""

    graph: Graph
    schedule: Root
    program: Program
    params: Params
    llvm: str
    name: str


def machine(options: Options) -> Machine:
    """What to generate code for."""
    found = features.target_features(options.target)
    return Machine(native_width(found), found, options.fast_math)


def lowered(scheduled: Scheduled, options: Options, name: str = "", small: bool = True) -> Lowered:
    """Lower a Graph under its schedule, and emit it.

    Args:
        name: the kernel's, where it is known.
        small: see `hjit.kernels.lower.machine.Machine`.

    Raises:
        ScheduleError: the schedule asks for what cannot be done; `BlockError`: it makes too long a block.
    """
    return lowered_for(scheduled, replace(machine(options), small=small), name or scheduled.name(options, small))


def lowered_for(scheduled: Scheduled, target: Machine, name: str) -> Lowered:
    """As `lowered`, for a machine that need not be this one."""

    def by(tree: Root) -> tuple[Root, Program]:
        if scheduled.tree is None:  # which is legal
            check_tree(tree, scheduled.graph)
        return tree, lower(scheduled.graph, tree, target, debug.passes("lower"))

    schedule, program = scheduled.lowered(by)
    params = params_of(scheduled.graph, scheduled.key.symbols, program.buffers, scheduled.timed)
    text = emit_module(scheduled.graph, program, params, name, target, scheduled.longest_block)
    debug.say("schedule", name, lambda: schedule)
    debug.say("loops", name, lambda: program)
    debug.say("llvm", name, lambda: text)
    return Lowered(scheduled.graph, schedule, program, params, text, name)
