"""Blocks of threads on PoCL: tiles, shared memory, barriers, reductions; by hand, by default and at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hjit.errors import ScheduleError
from hjit.kernels.cuda import across_threads
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.emit import MAX_SHARED_BYTES, emit_module
from hjit.kernels.lower.loopir import Barrier, CombineThreads, Stmt, Threads
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.program import Program
from hjit.kernels.lower.traverse import Body, every, with_bodies
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.hand.schedule import Schedule
from hjit.sched.language.check import check_tree
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Root, from_json
from hjit.trace.ir.graph import Graph
from tests.kernels.cuda import pairs
from tests.kernels.cuda.launching import needs_device, needs_opencl
from tests.kernels.cuda.races import races
from tests.kernels.cuda.running import computed
from tests.trace.test_canonical import canonical

GRAY = np.random.default_rng(3).random((77, 101), np.float32)
CUDA_TARGET = Target(kind="cuda")

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


def rows(a: Any) -> Any:
    down = (a[:-2] + a[1:-1] + a[2:]) * 0.3 + np.sqrt(a[1:-1])
    return down[:, :-2] + down[:, 1:-1] + down[:, 2:]


def chain(a: Any) -> Any:
    p = np.exp(a[:-1] - a[1:])
    q = np.exp(p[:-1, :-1] - p[1:, 1:])
    return q[:-1] * q[1:]


def row_sums(a: Any) -> Any:
    return (a * 2).sum(axis=1)


def schedule(graph: Graph, edit: Callable[[Schedule], Any]) -> Root:
    """The tree of directives for a GPU, checked."""
    s = Schedule(lambda _: [graph], target=CUDA_TARGET)
    edit(s)
    (tree,) = s.trees()
    assert from_json(tree.to_json()) == tree
    return tree


def loops(function: Any, edit: Callable[[Schedule], Any] | None = None) -> tuple[Graph, Program]:
    graph = canonical(function, GRAY)
    tree = cuda_schedule(graph) if edit is None else schedule(graph, edit)
    check_tree(tree, graph, "cuda")
    return graph, lower(graph, tree, passes=CUDA)


def statements(program: Program, kind: type) -> list[Any]:
    return [s for nest in program.nests for s in every(nest.body) if isinstance(s, kind)]


# -- by hand


def tiled(s: Schedule) -> None:
    down, out = s.stages
    s[out].gpu_tile("y", "x", "yi", "xi", 4, 16)
    s[down].compute_at(out, "x").store_in("shared")


def in_registers(s: Schedule) -> None:
    down, out = s.stages
    s[out].gpu_tile("y", "x", "yi", "xi", 8, 32)
    s[down].compute_at(out, "xi").store_in("register")


def in_strips(s: Schedule) -> None:
    """A block goes down a strip of columns, a few rows at a time, which share memory."""
    down, out = s.stages
    s[out].split("x", "x", "xi", 32).split("y", "y", "yi", 4).reorder("x", "y", "yi", "xi")
    s[out].gpu_blocks("x").gpu_threads("yi", "xi")
    s[down].compute_at(out, "y")


def sliding(s: Schedule) -> None:
    """As `in_strips`, and each step keeps the rows that the next one reads, too."""
    first, second, out = s.stages
    s[out].split("x", "x", "xi", 32).split("y", "y", "yi", 4).reorder("x", "y", "yi", "xi")
    s[out].gpu_blocks("x").gpu_threads("yi", "xi")
    s[second].compute_at(out, "y").store_at(out, "x")
    s[first].compute_at(out, "y").store_at(out, "x")


def few_threads(s: Schedule) -> None:
    s[s.stages[-1]].gpu_tile("y", "x", "yi", "xi", 3, 5)


def shifted(s: Schedule) -> None:
    """The last blocks begin earlier, so that all are whole; an image of less than one has blocks of its own."""
    down, out = s.stages
    s[out].gpu_tile("y", "x", "yi", "xi", 8, 32, "shift_inwards")
    s[down].compute_at(out, "x").store_in("shared")


def shifted_strips(s: Schedule) -> None:
    """As `shifted`, and a block has several rows of tiles."""
    out = s.stages[-1]
    s[out].split("y", "y", "ys", 8).split("ys", "ys", "yi", 4).split("x", "x", "xi", 32, "shift_inwards")
    s[out].reorder("y", "x", "ys", "yi", "xi").gpu_blocks("y", "x").gpu_threads("yi", "xi")


HAND: dict[str, tuple[Any, Callable[[Schedule], Any]]] = {
    "a tile's producer in shared memory": (rows, tiled),
    "a thread's producer in registers": (rows, in_registers),
    "strips": (rows, in_strips),
    "a window that slides down a strip": (chain, sliding),
    "tiles that are no multiples of a warp": (rows, few_threads),
    "blocks shifted inwards": (rows, shifted),
    "strips shifted inwards": (rows, shifted_strips),
}


@needs_device
@pytest.mark.parametrize("case", HAND)
def test_schedules_by_hand_are_numpys(case: str) -> None:
    function, edit = HAND[case]
    graph, program = loops(function, edit)
    np.testing.assert_allclose(computed(graph, program, GRAY), function(GRAY), rtol=1e-6)


@needs_opencl
@pytest.mark.parametrize("edit", [shifted, shifted_strips])
def test_blocks_are_shifted_inwards_where_there_is_room(edit: Any) -> None:
    graph, program = loops(rows, edit)
    assert "min(32*" in str(program) and "else:" in str(program)
    for shape in ((6, 200), (40, 20), (10, 34), (9, 33), (5, 5)):
        image = GRAY[: shape[0], : shape[1]].copy()
        np.testing.assert_allclose(computed(graph, program, image), rows(image), rtol=1e-6)


def test_memory_is_that_of_the_place() -> None:
    _, shared = loops(rows, tiled)
    _, private = loops(rows, in_registers)
    assert [b.shared for b in shared.buffers.values()] == [True]
    assert [b.shared for b in private.buffers.values()] == [False]
    assert statements(shared, Barrier) and not statements(private, Barrier)


def test_a_window_that_slides_is_circular_in_shared_memory() -> None:
    _, program = loops(chain, sliding)
    assert all(b.shared and b.fold == 0 for b in program.buffers.values())


def test_more_shared_memory_than_there_is_is_refused() -> None:
    def large(s: Schedule) -> None:
        down, out = s.stages
        s[out].gpu_tile("y", "x", "yi", "xi", 128, 128)
        s[down].compute_at(out, "x")

    graph, program = loops(rows, large)
    with pytest.raises(ScheduleError, match=f"no more than {MAX_SHARED_BYTES} bytes"):
        emit_module(graph, program, "hj_blocks")


@pytest.mark.parametrize("level", ["xo", "xi"])
def test_levels_of_memory_have_limits_of_their_own(level: str) -> None:
    """2**18 elements in the shared memory of a block, 2**16 in that of a thread."""

    def large(s: Schedule) -> None:
        down, out = s.stages
        s[out].tile("y", "x", "yo", "xo", "yt", "xt", 1200, 1200).tile("yt", "xt", "yi", "xi", "ye", "xe", 300, 300)
        s[out].gpu_blocks("yo", "xo").gpu_threads("yi", "xi")
        s[down].compute_at(out, level)

    with pytest.raises(ScheduleError, match=r"the tiles that it is computed for need .* elements of it, more than"):
        loops(rows, large)


# -- by default


def test_the_default_schedule_computes_producers_in_shared_memory() -> None:
    _, program = loops(chain)
    assert len(program.nests) == 1 and len(program.buffers) == 2
    assert all(b.shared for b in program.buffers.values())
    assert program.nests[0].threads == 256


def test_rows_are_reduced_by_the_threads_of_a_block() -> None:
    _, program = loops(row_sums)
    assert statements(program, CombineThreads)


@needs_device
def test_sums_of_rows_are_the_same_at_every_run() -> None:
    graph, program = loops(row_sums)
    first, second = (computed(graph, program, GRAY) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, row_sums(GRAY), rtol=1e-6)


def highest(a: Any) -> Any:
    return (np.pad(a, 1, mode="edge") * 2).max(axis=1)


@needs_device
def test_reductions_that_are_combined_one_after_the_other_use_the_same_memory() -> None:
    def together(s: Schedule) -> None:
        out = s.stages[-1]
        s[out].split("x", "x", "xi", 4).unroll("xi").reorder("x", "r0", "xi").gpu_blocks("x").gpu_threads("r0")

    graph, program = loops(highest, together)
    assert len(statements(program, CombineThreads)) >= 4
    text = emit_module(graph, program, "hj_blocks").text
    assert text.count("HJ_SHARED") == 1
    # each waits for the others' values, and but for the first one before it overwrites those that were read last
    assert text.count("HJ_BARRIER") == 2 * text.count("HJ_FIRST_WARP") - 1
    np.testing.assert_array_equal(computed(graph, program, GRAY), highest(GRAY))


def products(a: Any) -> Any:
    return a.prod(axis=1)


@needs_device
@pytest.mark.parametrize("threads", [32, 96, 256, 1024])
def test_threads_are_combined_halves_with_halves(threads: int) -> None:
    """Of a product of floats every order has its own roundings."""
    image = np.random.default_rng(4).uniform(0.5, 2, (5, 2500))
    graph = canonical(products, image)
    program = lower(graph, cuda_schedule(graph), passes=CUDA)
    program = replace(program, nests=tuple(replace(n, threads=threads) for n in program.nests))
    expected = np.ones((5, threads))
    for first in range(0, image.shape[1], threads):
        part = image[:, first : first + threads]
        expected[:, : part.shape[1]] *= part
    for half in (512, 256, 128, 64, 32, 16, 8, 4, 2, 1):
        upper = expected[:, half : 2 * half].copy()
        expected[:, : upper.shape[1]] *= upper
        expected = expected[:, :half] if expected.shape[1] > half else expected
    np.testing.assert_array_equal(computed(graph, program, image), expected[:, 0])


@needs_device
def test_a_loop_of_reductions_waits_before_memory_is_used_again() -> None:
    def one_after_the_other(s: Schedule) -> None:
        out = s.stages[-1]
        s[out].split("x", "x", "xi", 4).reorder("x", "xi", "r0").gpu_blocks("x").gpu_threads("r0")

    graph, program = loops(highest, one_after_the_other)
    text = emit_module(graph, program, "hj_blocks").text
    before, _, after = text.partition("v_all_f32_0[HJ_THREAD_X] =")
    assert before.rstrip().endswith("HJ_BARRIER();") and "HJ_BARRIER();" in after
    np.testing.assert_array_equal(computed(graph, program, GRAY), highest(GRAY))


@needs_nvrtc
def test_a_reduction_by_256_threads_has_one_barrier_and_shuffles() -> None:
    graph, program = loops(row_sums)
    made = nvrtc.compiled(emit_module(graph, program, "hj_blocks").text, 80)
    assert made.ptx.count("bar.sync") == 1
    assert made.ptx.count("shfl.sync.down") == 10  # 5 steps of two words
    assert all(r.spill_loads == 0 and r.stack == 0 for r in made.resources.values())


def test_memory_for_combining_counts_as_that_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, program = loops(row_sums)
    emit_module(graph, program, "hj_blocks")
    monkeypatch.setattr(across_threads, "MAX_SHARED_BYTES", 1000)
    with pytest.raises(ScheduleError, match="no more than 1000 bytes"):
        emit_module(graph, program, "hj_blocks")


# -- barriers; what numbers are without one, `test_barriers` says


def without(body: Body, number: int) -> Body:
    """The statements without one of their barriers."""
    count = iter(range(1 << 30))

    def kept(body: Body) -> Iterator[Stmt]:
        for s in body:
            if isinstance(s, Threads):
                yield s
            elif not isinstance(s, Barrier) or next(count) != number:
                yield with_bodies(s, lambda b: tuple(kept(b)))

    return tuple(kept(body))


RACES: dict[str, tuple[Any, Callable[[Schedule], Any] | None]] = {
    "two stages": (rows, None),
    "three stages": (chain, None),
    "small tiles": (rows, tiled),
    "strips": (rows, in_strips),
    "windows": (chain, sliding),
}


SIZES = {"a0.0": 37, "a0.1": 75}


@pytest.mark.parametrize("case", RACES)
def test_without_any_of_its_barriers_there_is_a_race(case: str) -> None:
    _, program = loops(*RACES[case])
    (nest,) = program.nests
    barriers = len(statements(program, Barrier))
    assert barriers and not list(races(program, SIZES))
    for k in range(barriers):
        broken = Program((replace(nest, body=without(nest.body, k)),), program.layouts)
        assert len(statements(broken, Barrier)) == barriers - 1
        assert list(races(broken, SIZES)), f"barrier {k} is not needed"


# -- at random


@needs_opencl
@pytest.mark.parametrize("seed", range(6))
def test_random_programs_under_random_schedules_are_numpys(seed: int) -> None:
    assert pairs.failure(seed) is None


@needs_nvrtc
@pytest.mark.parametrize("case", HAND)
def test_schedules_by_hand_compile_without_spills(case: str) -> None:
    graph, program = loops(*HAND[case])
    made = nvrtc.compiled(emit_module(graph, program, "hj_blocks").text, 80)
    assert all(r.spill_loads == 0 for r in made.resources.values())
