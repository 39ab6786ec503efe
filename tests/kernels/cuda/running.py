"""Runs the kernels of loops as `launching` says, whatever made the loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.cuda.launches import Parameter
from hjit.kernels.lower.program import Program
from hjit.sched.hand.schedule import Schedule
from hjit.sched.language.memory import C_ORDER
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Poly, sizes_value
from hjit.trace.passes.canonical import canonicalise
from tests.kernels.cuda import launching
from tests.trace.test_canonical import graphs

Array = np.ndarray[Any, Any]
NONE: Mapping[str, int] = {}


def by_hand(function: Callable[..., Any], edit: Callable[[Schedule], Any], *args: Any) -> tuple[Graph, Root]:
    """A function for a GPU under directives."""
    traced, *_ = graphs(function, *args)
    s = Schedule(lambda rewrites: [canonicalise(traced, rewrites, "cuda")], target=Target(kind="cuda"))
    edit(s)
    (graph,), (tree,) = s.graphs(), s.trees()
    return graph, tree


def computed(graph: Graph, program: Program, *arrays: Array, numbers: Mapping[str, int] = NONE) -> Array:
    """The result of a Graph of one, whose arguments are arrays in C order alone.

    Args:
        numbers: that are run-time sizes, too.
    """
    given = {i.name: a for i, a in zip((i for i in graph.inputs if i.data is None), arrays, strict=True)}
    for i in graph.inputs:
        if i.data is not None:
            given[i.name] = np.frombuffer(i.data, i.dtype).reshape([sizes_value(p, numbers) for p in i.shape])
    sizes = {**numbers, **{f"{name}.{k}": n for name, a in given.items() for k, n in enumerate(a.shape)}}
    strides = {name: [n // a.itemsize for n in a.strides] for name, a in given.items()}

    def elements(shape: tuple[Poly, ...]) -> int:
        return math.prod(sizes_value(p, sizes) for p in shape)

    memory = {name: a.reshape(-1) for name, a in given.items()}
    for s in graph.stages:
        layout = program.layouts.get(s.name, C_ORDER)
        memory[s.name] = np.full(max(elements(tuple(layout.lengths(s.shape))), 1), 77, s.dtype)
    status = np.zeros(1, np.uint32)

    def argument(p: Parameter, count: int) -> Any:
        values = {"array": lambda: memory[p.name], "status": lambda: status, "offset": lambda: np.int32(0)}
        values |= {"first": lambda: np.int32(0)}
        values |= {"size": lambda: np.int32(sizes[p.name]), "count": lambda: np.int32(count)}
        values |= {"stride": lambda: np.int32(strides[p.name][p.axis])}
        return values[p.kind]()

    module = emit_module(graph, program, "hj_loops")
    kernels = launching.compiled(module.text)
    for launch in module.launches:
        count = 1 if launch.count is None else sizes_value(launch.count, sizes)
        args = [argument(p, count) for p in launch.parameters]
        kernels.launch(launch.kernel, (launch.blocks(count), 1, 1), (launch.threads, 1, 1), args)
    assert not status[0]
    (name,) = graph.outputs
    return memory[name].reshape([sizes_value(p, sizes) for p in graph.stage(name).shape])
