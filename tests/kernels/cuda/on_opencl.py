"""Kernels of the CUDA back end on OpenCL in place of those of the CPU, so that whole pipelines run by them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hjit.call import build
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.cuda.execute import Executable, OpenCL
from hjit.kernels.lower.lower import CUDA, lower
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.language.check import check_tree
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import sizes_value

Array = np.ndarray[Any, Any]


def module(graph: Graph, bits: int = 32, schedule: Callable[[Graph], Root] = cuda_schedule) -> Any:
    """The loops and the kernels of a Graph."""
    tree = schedule(graph)
    check_tree(tree, graph, "cuda")
    program = lower(graph, tree, passes=CUDA)
    return program, emit_module(graph, program, "hj_test", bits)


class Bound:
    """As `hjit.kernels.runtime.kernel.Bound`."""

    may_stream = False
    scratch_bytes = 0
    runs = 0
    schedule: Callable[[Graph], Root] = staticmethod(cuda_schedule)

    def __init__(
        self, scheduled: Any, options: Any, sizes: Mapping[str, int], strides: Mapping[str, Sequence[int]]
    ) -> None:
        graph = scheduled.graph
        program, kernels = module(graph, schedule=Bound.schedule)
        self.inputs = tuple(i.name for i in graph.inputs if i.data is None)
        self.outputs = tuple(
            (n, tuple(sizes_value(p, sizes) for p in graph.by_name[n].shape), graph.by_name[n].dtype)
            for n in graph.outputs
        )
        self.scalars = tuple((s.name, s.dtype) for s in graph.scalars)
        self.scheduled = scheduled
        self.kernel = SimpleNamespace(name=f"opencl.{hash(kernels.text)}", from_cache=False)
        self.executable = Executable(graph, program, kernels, 32, sizes, strides, OpenCL())

    def new_outputs(self) -> list[Array]:
        return [np.empty(shape, dtype) for _, shape, dtype in self.outputs]

    def run(self, arrays: Sequence[Array], outputs: Sequence[Array], scalars: Sequence[Any], *how: bool) -> bool:
        Bound.runs += 1
        try:
            with np.errstate(all="ignore"):
                values = {n: np.array(x, dtype)[()] for (n, dtype), x in zip(self.scalars, scalars, strict=True)}
        except OverflowError:
            return False
        given = {n: in_memory(a) for n, a in zip(self.inputs, arrays, strict=True)}
        made = {n: out.reshape(-1) for (n, _, _), out in zip(self.outputs, outputs, strict=True)}
        return self.executable.run(given, made, values)


def in_memory(a: Array) -> tuple[Array, int]:
    """All that an array lies in, as one row, and where in it its first element is."""
    if not a.size:
        return np.empty(1, a.dtype), 0
    first = a[tuple(slice(None, None, -1 if step < 0 else 1) for step in a.strides)]
    low, high = np.lib.array_utils.byte_bounds(a)
    row = np.lib.stride_tricks.as_strided(
        first.reshape(-1)[:1] if first.ndim == 0 else first, ((high - low) // a.itemsize,), (a.itemsize,)
    )
    return row, (a.__array_interface__["data"][0] - low) // a.itemsize


@contextlib.contextmanager
def on_opencl(schedule: Callable[[Graph], Root] = cuda_schedule, must_run: bool = True) -> Iterator[None]:
    """All kernels that are made meanwhile are those of the CUDA back end, under some schedule.

    Args:
        must_run: is it an error if there are none?
    """
    before = Bound.runs
    with pytest.MonkeyPatch.context() as m:
        m.setattr(build, "Bound", Bound)
        m.setattr(Bound, "schedule", staticmethod(schedule))
        yield
    assert Bound.runs > before or not must_run, "no kernel ran on OpenCL"
