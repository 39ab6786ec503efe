"""From a canonical Graph to LLVM IR: schedule, lower, emit. Imported only where something is compiled."""

from __future__ import annotations

from dataclasses import dataclass

from hjit.kernels import features
from hjit.kernels.emit import Machine, emit_module
from hjit.kernels.kernel import kernel_name
from hjit.kernels.loopir import Program
from hjit.kernels.lower import lower
from hjit.kernels.params import Params, params_of
from hjit.options import Options
from hjit.sched.default import Target, default_schedule
from hjit.sched.tree import Root, check
from hjit.trace.graph import Graph
from hjit.trace.key import Key, graph_key


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
    return Machine(features.native_width(found), found, options.fast_math)


def plan(graph: Graph, options: Options) -> Plan:
    """Schedule, lower and emit a canonical Graph."""
    key = graph_key(graph)
    target = machine(options)
    schedule = default_schedule(graph, Target(target.width))
    check(schedule, graph)
    program = lower(graph, schedule)
    params = params_of(graph, key.symbols, [n for nest in program.nests for n in nest.lines])
    name = kernel_name(key, options)
    return Plan(graph, key, schedule, program, params, emit_module(graph, program, params, name, target), name)
