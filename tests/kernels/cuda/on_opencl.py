"""Kernels of the CUDA back end on OpenCL in place of those of the CPU, so that whole pipelines run by them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hjit.call import build
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.cuda.runtime import bound
from hjit.kernels.cuda.runtime.device import VARIABLE
from hjit.kernels.lower.lower import CUDA, lower
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.language.check import check_tree
from hjit.trace.ir.graph import Graph


def module(graph: Graph, bits: int = 32) -> Any:
    """The loops and the kernels of a Graph by its default schedule."""
    tree = cuda_schedule(graph)
    check_tree(tree, graph)
    program = lower(graph, tree, passes=CUDA)
    return program, emit_module(graph, program, "hj_test", bits)


class Bound(bound.Bound):
    """As `hjit.kernels.runtime.kernel.Bound`, by the default schedule of CUDA."""

    runs = 0

    def __init__(
        self, scheduled: Any, options: Any, sizes: Mapping[str, int], strides: Mapping[str, Sequence[int]]
    ) -> None:
        graph = scheduled.graph
        default = replace(scheduled, tree=None, defaults=lambda: iter([cuda_schedule(graph)]))
        super().__init__(default, options, sizes, strides)

    def run(self, *args: Any) -> bool:
        Bound.runs += 1
        return super().run(*args)


@contextlib.contextmanager
def on_opencl() -> Iterator[None]:
    """All kernels that are made meanwhile are those of the CUDA back end."""
    before = Bound.runs
    with pytest.MonkeyPatch.context() as m:
        m.setattr(build, "Bound", Bound)
        m.setenv(VARIABLE, "opencl")
        yield
    assert Bound.runs > before, "no kernel ran on OpenCL"
