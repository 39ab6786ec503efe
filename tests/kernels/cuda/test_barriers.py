"""Each barrier in the text of a kernel is needed: without it, its numbers are others.

PoCL runs a block's threads one after the other from barrier to barrier, always in the same order. What a missing barrier
spoils in one order it may leave as it is in the other, so that kernels run in both. One kind of them it cannot show: PoCL
itself waits between the iterations of a loop that has a barrier, and shuffles are made of barriers there, so that nothing
is overwritten too early in the next iteration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hjit.kernels.cuda.compilers import opencl
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.cuda.prelude import program
from hjit.kernels.lower.program import Program
from hjit.sched.hand.schedule import Schedule
from hjit.trace.ir.graph import Graph
from tests.kernels.cuda import launching
from tests.kernels.cuda import test_blocks as blocks
from tests.kernels.cuda import test_scatters as scatters
from tests.kernels.cuda.launching import needs_opencl
from tests.kernels.cuda.on_opencl import module
from tests.kernels.cuda.races import races
from tests.kernels.cuda.running import computed
from tests.kernels.cuda.test_blocks import GRAY, RACES, highest, row_sums, without
from tests.trace.test_canonical import canonical

BARRIER = re.compile(r"HJ_BARRIER\(\);")
THREAD = "#define HJ_THREAD_X ((i32)get_local_id(0))"
LONG = np.random.default_rng(8).integers(-99, 99, (3, 1100))
NONE: Mapping[str, int] = {}
# the barriers before what the iteration before has read is overwritten
BETWEEN_ITERATIONS = {"strips": [0], "a loop of reductions": [0], "a scan": [0]}
Case = tuple[Graph, Program, Callable[[Any], Any], Any, Mapping[str, int]]


def one_after_the_other(s: Schedule) -> None:
    out = s.stages[-1]
    s[out].split("x", "x", "xi", 4).reorder("x", "xi", "r0").gpu_blocks("x").gpu_threads("r0")


def running(a: Any) -> Any:
    return np.cumsum(a, axis=1)


def histogram() -> Case:
    graph, program, sizes = scatters.loops("bytes")
    return graph, program, scatters.histogram, scatters.BYTES, sizes


def scan() -> Case:
    graph = canonical(running, LONG)
    return graph, module(graph)[0], running, LONG, NONE


CASES: dict[str, Callable[[], Case]] = {
    **{
        name: lambda function=function, edit=edit: (*blocks.loops(function, edit), function, GRAY, NONE)
        for name, (function, edit) in {
            **RACES,
            "sums of rows": (row_sums, None),
            "a loop of reductions": (highest, one_after_the_other),
        }.items()
    },
    "a scan": scan,
    "a histogram": histogram,
}


@needs_opencl
@pytest.mark.parametrize("name", CASES)
def test_each_barrier_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, loops, function, image, sizes = CASES[name]()
    expected = function(image)
    text = emit_module(graph, loops, "hj_loops").text
    barriers = [*BARRIER.finditer(text)]
    assert barriers

    def is_right(barrier: int | None, backwards: bool) -> bool:
        monkeypatch.setattr(launching, "compiled", lambda body: compiled(body, barrier, backwards))
        return np.allclose(computed(graph, loops, image, numbers=sizes), expected, rtol=1e-5, equal_nan=True)

    assert is_right(None, False) and is_right(None, True)
    not_seen = [k for k in range(len(barriers)) if is_right(k, False) and is_right(k, True)]
    assert not_seen == BETWEEN_ITERATIONS.get(name, [])
    shared = "|".join(re.findall(r"HJ_SHARED \w+ (\w+)\[", text))
    for k in not_seen:  # what comes next overwrites shared memory
        first = re.search(rf"\b({shared})\[[^;]*;", text[barriers[k].end() :])
        assert first is not None and "] = " in first[0]


def test_barriers_between_iterations_are_races() -> None:
    """In the loop IR, which has those of the first case; see also `test_blocks` about those of reductions."""
    _, loops, *_ = CASES["strips"]()
    (nest,) = loops.nests
    sizes = {f"a0.{k}": n for k, n in enumerate(GRAY.shape)}
    assert not list(races(loops, sizes))
    for k in BETWEEN_ITERATIONS["strips"]:
        assert list(races(Program((replace(nest, body=without(nest.body, k)),), loops.layouts), sizes))


def compiled(body: str, barrier: int | None, backwards: bool) -> opencl.Program:
    """Kernels without one of their barriers.

    Args:
        backwards: run the threads of a block from the last one to the first.
    """
    if barrier is not None:
        at = [*BARRIER.finditer(body)][barrier]
        body = body[: at.start()] + body[at.end() :]
    text = program(body, "opencl")
    assert THREAD in text
    return opencl.Program(
        text.replace(THREAD, "#define HJ_THREAD_X (HJ_THREADS_X - 1 - (i32)get_local_id(0))") if backwards else text
    )
