"""Kernels of the CUDA back end on OpenCL in place of those of the CPU, so that whole pipelines run by them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hjit.call import compiling
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.cuda.runtime import bound
from hjit.kernels.cuda.runtime.device import VARIABLE
from hjit.kernels.lower.lower import CUDA, lower
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.language.check import check_tree
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph


def module(graph: Graph, bits: int = 32, schedule: Callable[[Graph], Root] = cuda_schedule) -> Any:
    """The loops and the kernels of a Graph."""
    tree = schedule(graph)
    check_tree(tree, graph, "cuda")
    program = lower(graph, tree, passes=CUDA)
    return program, emit_module(graph, program, "hj_test", bits)


class Bound(bound.Bound):
    """As `hjit.kernels.runtime.kernel.Bound`, by schedules for CUDA."""

    runs = 0
    schedule: Callable[[Graph], Root] = staticmethod(cuda_schedule)

    def __init__(
        self, scheduled: Any, options: Any, sizes: Mapping[str, int], strides: Mapping[str, Sequence[int]]
    ) -> None:
        graph = scheduled.graph
        super().__init__(replace(scheduled, tree=Bound.schedule(graph)), options, sizes, strides)

    def run(self, *args: Any) -> bool:
        Bound.runs += 1
        return super().run(*args)


@contextlib.contextmanager
def on_opencl(schedule: Callable[[Graph], Root] = cuda_schedule, must_run: bool = True) -> Iterator[None]:
    """All kernels that are made meanwhile are those of the CUDA back end, under some schedule.

    Args:
        must_run: is it an error if there are none?
    """
    before = Bound.runs
    with pytest.MonkeyPatch.context() as m:
        m.setattr(compiling, "bind", Bound)
        m.setattr(Bound, "schedule", staticmethod(schedule))
        m.setenv(VARIABLE, "opencl")
        yield
    assert Bound.runs > before or not must_run, "no kernel ran on OpenCL"
