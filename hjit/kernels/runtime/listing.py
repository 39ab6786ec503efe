"""From a canonical Graph to LLVM IR: schedule, lower, emit. Imported only where something is compiled."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace

from hjit.errors import CompileError, ScheduleError
from hjit.kernels.llvm.emit import emit_module
from hjit.kernels.lower.loopir import Program
from hjit.kernels.lower.lower import lower
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.params import Params, params_of
from hjit.kernels.runtime import features
from hjit.kernels.runtime.naming import kernel_name
from hjit.options import Options
from hjit.process import debug
from hjit.sched.default.schedules import default_schedule
from hjit.sched.language.check import check_tree
from hjit.sched.language.target import Target, native_width
from hjit.sched.language.tree import Root
from hjit.sched.nests.root_nests import root_schedule
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.key import Key, graph_key

log = logging.getLogger("hjit")


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that leads from a Graph to its LLVM IR, for people to look at."""

    graph: Graph
    key: Key
    schedule: Root
    program: Program
    params: Params
    llvm: str
    name: str


def machine(options: Options) -> Machine:
    """What to generate code for."""
    found = features.target_features(options.target)
    return Machine(native_width(found), found, options.fast_math)


def plan(graph: Graph, options: Options, schedule: Root | None = None, small: bool = True) -> Plan:
    """Lower and emit a canonical Graph under a schedule; None is the default schedule. `small`: see `emit.Machine`.

    Raises:
        ScheduleError: the schedule asks for what cannot be done; `BlockError`: it was searched, and makes too long a block.
    """
    key = graph_key(graph)
    target = replace(machine(options), small=small)
    name = kernel_name(graph, key, options, schedule, small)
    if schedule is None:
        schedule, program = _by_default(graph, features.schedule_target(options.target), target)
    else:
        program = lower(graph, schedule, target, debug.passes("lower"))
    params = params_of(graph, key.symbols, program.buffers)
    longest = math.inf if options.schedule is None else options.schedule.longest_block
    text = emit_module(graph, program, params, name, target, longest)
    debug.say("schedule", name, lambda: schedule)
    debug.say("loops", name, lambda: program)
    debug.say("llvm", name, lambda: text)
    return Plan(graph, key, schedule, program, params, text, name)


def _by_default(graph: Graph, target: Target, machine: Machine) -> tuple[Root, Program]:
    """The default schedule and its loops; every stage at the root where a window turns out not to slide."""
    for make in (default_schedule, root_schedule):
        schedule = make(graph, target)
        try:
            check_tree(schedule, graph)
            return schedule, lower(graph, schedule, machine, debug.passes("lower"))
        except ScheduleError as error:
            log.debug("the default schedule is not legal: %s", error)
    raise CompileError(f"no schedule for\n{graph}")
