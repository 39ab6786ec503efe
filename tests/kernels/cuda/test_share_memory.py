"""Buffers of a block that are not needed at the same time lie in the same shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.lower.loopir import Barrier
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.program import Program
from hjit.sched.default import cuda_fusion
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.hand.schedule import Schedule
from tests.kernels.cuda.launching import needs_device
from tests.kernels.cuda.races import races
from tests.kernels.cuda.running import by_hand, computed
from tests.kernels.cuda.test_blocks import GRAY, SIZES, loops, statements, without
from tests.trace.test_canonical import canonical


def times(count: int) -> Callable[[Any], Any]:
    def chain(a: Any) -> Any:
        for _ in range(count):
            a = np.exp(a[:-1] - a[1:]) * np.float32(0.3)
        return a

    return chain


def kept(a: Any) -> Any:
    """The first stage is read by the last one, too."""
    p = np.exp(a[:-1] - a[1:])
    q = np.exp(p[:-1] - p[1:])
    r = np.exp(q[:-1] - q[1:])
    return r[:-1] * r[1:] + p[3:]


def narrowed(a: Any) -> Any:
    """The first of three stages has another dtype than the last one."""
    p = np.exp(a[:-1].astype(np.float64) - a[1:])
    q = np.exp((p[:-1] - p[1:]).astype(np.float32))
    r = np.exp(q[:-1] - q[1:])
    return r[:-1] * r[1:]


def in_tiles(s: Schedule) -> None:
    *inside, out = s.stages
    s[out].gpu_tile("y", "x", "yi", "xi", 8, 32)
    for stage in inside:
        s[stage].compute_at(out, "x").store_in("shared")


def sliding(s: Schedule) -> None:
    *inside, out = s.stages
    s[out].split("x", "x", "xi", 32).split("y", "y", "yi", 4).reorder("x", "y", "yi", "xi")
    s[out].gpu_blocks("x").gpu_threads("yi", "xi")
    for stage in inside:
        s[stage].compute_at(out, "y").store_at(out, "x")


def shared(program: Program) -> dict[str, str]:
    return {name: b.memory for name, b in program.buffers.items() if b.memory is not None}


@needs_device
@pytest.mark.parametrize("edit", [None, in_tiles])
def test_every_other_stage_of_a_chain_is_in_the_memory_of_the_one_before(edit: Any) -> None:
    graph, program = loops(times(5), edit)
    (nest,) = program.nests
    first, second, *others = nest.buffers
    assert shared(program) == {others[0]: first, others[1]: second}
    assert emit_module(graph, program, "hj").text.count("HJ_SHARED") == 2
    assert not list(races(program, SIZES))
    np.testing.assert_allclose(computed(graph, program, GRAY), times(5)(GRAY), rtol=1e-5)


def test_they_wait_for_those_who_read_what_was_there() -> None:
    _, program = loops(times(5))
    (nest,) = program.nests
    barriers = len(statements(program, Barrier))
    assert barriers == 4
    for k in range(barriers):
        broken = Program((replace(nest, body=without(nest.body, k)),), program.layouts)
        assert list(races(broken, SIZES)), f"barrier {k} is not needed"


def test_what_is_read_later_stays() -> None:
    _, program = loops(kept, in_tiles)
    first, _, third = program.buffers
    assert shared(program) == {}
    (nest,) = program.nests
    buffers = {**program.buffers, third: replace(program.buffers[third], memory=first)}
    broken = Program((replace(nest, buffers=buffers),), program.layouts)
    assert any(f"where {third} is" in fault for fault in races(broken, SIZES))


@needs_device
def test_memory_is_shared_by_one_dtype() -> None:
    graph, program = loops(narrowed, in_tiles)
    assert [str(graph.dtypes[name]) for name in program.buffers] == ["float64", "float32", "float32"]
    assert shared(program) == {}
    np.testing.assert_allclose(computed(graph, program, GRAY), narrowed(GRAY), rtol=1e-5)


@needs_device
def test_windows_have_memory_of_their_own() -> None:
    graph, program = loops(times(4), sliding)
    assert len(program.buffers) == 3 and shared(program) == {}
    np.testing.assert_allclose(computed(graph, program, GRAY), times(4)(GRAY), rtol=1e-5)


def copied_twice(a: Any, b: Any) -> Any:
    return a[:-2] + a[1:-1] + a[2:] + np.exp(b[1:-1] - b[2:])


def test_what_is_copied_meanwhile_has_memory_of_its_own() -> None:
    def edit(s: Schedule) -> None:
        (out,) = s.stages
        s[out].gpu_tile("y", "x", "yi", "xi", 8, 32)
        for name in ("a0", "a1"):
            s.cache_read(name).compute_at(out, "x").store_in("shared")

    graph, tree = by_hand(copied_twice, edit, GRAY, GRAY.copy())
    program = lower(graph, tree, passes=CUDA)
    assert len(program.buffers) == 2 and shared(program) == {}


def test_blocks_compute_more_stages_than_have_memory_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a schedule are those of stages in memory: there are fewer of these."""

    def kernels() -> int:
        graph = canonical(times(12), GRAY)
        return len(lower(graph, cuda_schedule(graph), passes=CUDA).nests)

    with_reuse = kernels()
    monkeypatch.setattr(cuda_fusion._Block, "memory", lambda self, sizes: sum(sizes.values()))
    assert with_reuse < kernels()
