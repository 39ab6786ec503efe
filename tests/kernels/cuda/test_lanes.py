"""Loops over the lanes of a warp (`gpu_lanes`): numbers, shuffles without barriers, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.errors import ScheduleError
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.lower.loopir import Barrier, CombineThreads
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.program import Program
from hjit.sched.hand.schedule import Schedule
from hjit.trace.ir.graph import Graph
from tests.kernels.cuda.launching import needs_device
from tests.kernels.cuda.races import races
from tests.kernels.cuda.running import computed
from tests.kernels.cuda.test_blocks import schedule, statements
from tests.kernels.cuda.transactions import traffic
from tests.trace.test_canonical import canonical

IMAGE = np.random.default_rng(13).random((77, 101), np.float32)
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


def sums(a: Any) -> Any:
    return (a * 2).sum(axis=1)


def highest(a: Any) -> Any:
    return (np.pad(a, ((0, 0), (1, 1)), mode="edge") * 2).max(axis=1)


def products(a: Any) -> Any:
    return a.astype(np.float64).prod(axis=1)


def doubled(a: Any) -> Any:
    return a * 2 + 1


def by_lanes(lanes: int, rows: int) -> Callable[[Schedule], Any]:
    """A reduction of rows, of which so many are a block's."""

    def edit(s: Schedule) -> None:
        out = s[s.stages[-1]].gpu_lanes("r0", lanes)
        if rows:
            out.split("x", "x", "row", rows).reorder("x", "row", "r0", "r0g").gpu_threads("row")
        out.gpu_blocks("x")

    return edit


def loops(function: Any, edit: Callable[[Schedule], Any]) -> tuple[Graph, Program]:
    graph = canonical(function, IMAGE)
    return graph, lower(graph, schedule(graph, edit), passes=CUDA)


@needs_device
@pytest.mark.parametrize(
    ("lanes", "rows", "threads"), [(32, 8, 256), (32, 0, 32), (8, 5, 64), (16, 16, 256), (2, 3, 32)]
)
def test_rows_are_reduced_by_lanes(lanes: int, rows: int, threads: int) -> None:
    for function in (sums, highest):
        graph, program = loops(function, by_lanes(lanes, rows))
        assert program.nests[-1].threads == threads
        for shape in (IMAGE.shape, (1, 1), (9, 31)):
            image = IMAGE[: shape[0], : shape[1]].copy()
            np.testing.assert_allclose(computed(graph, program, image), function(image), rtol=1e-6)


@needs_device
def test_lanes_are_combined_halves_with_halves() -> None:
    """Of a product of floats every order has its own roundings."""
    graph, program = loops(products, by_lanes(32, 4))
    image = np.random.default_rng(4).uniform(0.5, 2, (6, 100)).astype(np.float32)
    expected = np.ones((6, 32))
    for first in range(0, 100, 32):
        part = image[:, first : first + 32]
        expected[:, : part.shape[1]] *= part
    for half in (16, 8, 4, 2, 1):
        expected = expected[:, :half] * expected[:, half : 2 * half]
    np.testing.assert_array_equal(computed(graph, program, image), expected[:, 0])


def test_lanes_need_no_barrier() -> None:
    graph, program = loops(sums, by_lanes(32, 8))
    assert not statements(program, Barrier)
    assert [s.lanes for s in statements(program, CombineThreads)] == [32]
    assert not list(races(program, {"a0.0": 20, "a0.1": 70}))
    text = emit_module(graph, program, "hj_lanes").text
    assert "HJ_BARRIER" not in text and "HJ_SHARED" not in text and "HJ_FIRST_WARP" not in text


def test_lanes_read_neighbours() -> None:
    graph, program = loops(sums, by_lanes(32, 8))
    moved = traffic(graph, program, 0, {"a0.0": 64, "a0.1": 256})
    assert moved.sectors == 8 * 256 * 4 // 32 + 8  # rows, and a result of each warp


@needs_nvrtc
@pytest.mark.parametrize("capability", [75, 90])
def test_a_reduction_by_lanes_is_shuffles(capability: int) -> None:
    graph, program = loops(sums, by_lanes(32, 8))
    made = nvrtc.compiled(emit_module(graph, program, "hj_lanes").text, capability)
    assert made.ptx.count("shfl.sync.down") == 10  # 5 steps of two words
    assert "bar.sync" not in made.ptx
    assert all(r.shared == 0 and r.spill_loads == 0 for r in made.resources.values())


@needs_device
def test_lanes_of_what_is_not_reduced() -> None:
    def edit(s: Schedule) -> None:
        s[s.stages[-1]].split("x", "x", "lane", 16).split("y", "y", "row", 8).reorder("y", "x", "row", "lane")
        s[s.stages[-1]].gpu_blocks("y", "x").gpu_threads("row").gpu_lanes("lane")

    graph, program = loops(doubled, edit)
    assert program.nests[0].threads == 128
    np.testing.assert_array_equal(computed(graph, program, IMAGE), doubled(IMAGE))


@needs_device
def test_a_schedule_with_lanes_is_kept(on_device: None, tmp_path: Any) -> None:
    f = hjit.pipeline(sums, target="cuda", verify="off")
    s = f.schedule(IMAGE)
    by_lanes(32, 8)(s)
    s.save(tmp_path / "s.json")
    f.use(s)
    g = hjit.pipeline(sums, target="cuda", verify="off").use(hjit.Schedule.load(tmp_path / "s.json"))
    np.testing.assert_array_equal(f(IMAGE), g(IMAGE))
    assert "gpu_lane" in str(g.tree(IMAGE)[0]) and "combine 32 lanes" in str(g.loops(IMAGE))


REFUSED: dict[str, tuple[Any, Callable[[Schedule], Any], str]] = {
    "a whole loop": (sums, lambda s: s[s.stages[-1]].gpu_blocks("x").gpu_lanes("r0"), "a power of two of iterations"),
    "no power of two": (sums, lambda s: s[s.stages[-1]].gpu_blocks("x").gpu_lanes("r0", 24), "a power of two of iterations"),
    "more than a warp": (sums, lambda s: s[s.stages[-1]].gpu_blocks("x").gpu_lanes("r0", 64), "at most 32"),
    "more threads than a block has": (sums, by_lanes(32, 64), "1024 threads together at most"),
    "threads without number": (
        sums, lambda s: s[s.stages[-1]].gpu_threads("x").gpu_lanes("r0", 32), "loops over threads around it have sizes"),
    "lanes in two loops": (
        doubled, lambda s: s[s.stages[-1]].gpu_lanes("y", 4).gpu_lanes("x", 8).reorder("y", "x", "yg", "xg"),
        "only one loop runs along the lanes"),
    "lanes that are not the last": (
        doubled, lambda s: s[s.stages[-1]].split("x", "x", "xi", 8).split("xi", "xi", "xl", 4).gpu_lanes("xi"),
        "another loop over d1 inside it"),
    "lanes apart from threads": (
        doubled, lambda s: s[s.stages[-1]].gpu_threads("y").gpu_lanes("x", 8), "directly inside the others"),
    "parallel loops": (doubled, lambda s: s[s.stages[-1]].parallel("y").gpu_lanes("x", 8), "inside a parallel loop"),
    "an order that matters": (
        lambda a: np.cumsum(a, axis=1), lambda s: s[s.stages[-1]].update(1).gpu_blocks("x").gpu_lanes("r0", 32),
        "one after the other"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_lanes_that_are_refused(case: str) -> None:
    function, edit, words = REFUSED[case]
    with pytest.raises(ScheduleError, match=words):
        schedule(canonical(function, IMAGE), edit)


@pytest.mark.parametrize("inside", ["serial", "unroll"])
def test_threads_around_a_reduction_by_lanes_do_nothing_else(inside: str) -> None:
    """Where a block ends in the middle of what a thread computes, some lanes of a warp are not there."""

    def edit(s: Schedule) -> None:
        out = s[s.stages[-1]].gpu_lanes("r0", 8).split("x", "x", "row", 8).split("row", "row", "two", 2)
        out.reorder("x", "row", "two", "r0", "r0g").gpu_blocks("x").gpu_threads("row")
        if inside == "unroll":
            out.unroll("two")

    with pytest.raises(ScheduleError, match="threads around lanes that share a reduction do nothing else"):
        loops(sums, edit)


def test_cpus_have_no_lanes() -> None:
    f = hjit.pipeline(doubled)
    s = f.schedule(IMAGE)
    s[s.stages[-1]].gpu_lanes("x", 8)
    with pytest.raises(ScheduleError, match="the target cpu has no such loops"):
        f.use(s)(IMAGE)
