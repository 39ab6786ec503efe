"""Copies of what stencils read to shared memory: begun, waited for, an iteration ahead along a window; numbers, races, code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.lower.loopir import Barrier, CommitCopies, CopyAsync, For, Stmt, WaitForCopies
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.program import Program
from hjit.kernels.lower.traverse import Body, every, with_bodies
from hjit.sched.hand.schedule import Schedule
from hjit.trace.ir.graph import Graph
from tests.kernels.cuda.launching import needs_device
from tests.kernels.cuda.races import races
from tests.kernels.cuda.running import by_hand, computed

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")
IMAGE = np.random.default_rng(3).random((77, 101), np.float32)
CAPABILITIES = (75, 80, 90, 100)


def blurred(a: Any) -> Any:
    p = np.pad(a, 1, mode="edge")
    return (p[:-2, :-2] + p[1:-1, 1:-1] + p[2:, 2:]) * np.float32(0.3)


def framed(a: Any) -> Any:
    p = np.pad(a, 1)
    return p[:-2, :-2] + p[1:-1, 1:-1] * 2 + p[2:, 2:]


def blurred_down(a: Any) -> Any:
    return a[:-4] + a[1:-3] * 2 + a[2:-2] * 3 + a[3:-1] * 2 + a[4:]


def two_images(a: Any, b: Any) -> Any:
    return a[:-2] * b[2:] + a[2:] * b[:-2]


def of_tiles(s: Schedule, *names: str) -> None:
    (out,) = s.stages
    s[out].gpu_tile("y", "x", "yi", "xi", 8, 32)
    for name in names:
        s.cache_read(name).compute_at(out, "x").store_in("shared")


def of_strips(s: Schedule, *names: str) -> None:
    """A block goes down a strip of columns, four rows at a time, and keeps the rows that the next ones read, too."""
    (out,) = s.stages
    s[out].split("x", "x", "xi", 32).split("y", "y", "yi", 4).reorder("x", "y", "yi", "xi")
    s[out].gpu_blocks("x").gpu_threads("yi", "xi")
    for name in names:
        s.cache_read(name).compute_at(out, "y").store_at(out, "x")


def of_short_strips(s: Schedule, name: str) -> None:
    """As `of_strips`, three rows at a time."""
    (out,) = s.stages
    s[out].split("x", "x", "xi", 32).split("y", "y", "yi", 3).reorder("x", "y", "yi", "xi")
    s[out].gpu_blocks("x").gpu_threads("yi", "xi")
    s.cache_read(name).compute_at(out, "y").store_at(out, "x")


def of_steps(s: Schedule, *names: str) -> None:
    """As `of_strips`, without the rows of steps before."""
    (out,) = s.stages
    s[out].split("x", "x", "xi", 32).split("y", "y", "yi", 4).reorder("x", "y", "yi", "xi")
    s[out].gpu_blocks("x").gpu_threads("yi", "xi")
    for name in names:
        s.cache_read(name).compute_at(out, "y").store_in("shared")


CASES: dict[str, tuple[Any, Callable[..., None], tuple[Any, ...]]] = {
    "tiles": (blurred_down, of_tiles, (IMAGE,)),
    "tiles with borders": (blurred, of_tiles, (IMAGE,)),
    "tiles in a frame": (framed, of_tiles, (IMAGE,)),
    "tiles of two images": (two_images, of_tiles, (IMAGE, IMAGE[::-1].copy())),
    "steps": (blurred_down, of_steps, (IMAGE,)),
    "windows": (blurred_down, of_strips, (IMAGE,)),
    "windows with borders": (blurred, of_strips, (IMAGE,)),
    "windows of two images": (two_images, of_strips, (IMAGE, IMAGE[::-1].copy())),
    "windows of doubles": (blurred_down, of_strips, (IMAGE.astype(np.float64),)),
}
SLIDING = [name for name in CASES if name.startswith("windows")]
SIZES = {"a0.0": 37, "a0.1": 75, "a1.0": 37, "a1.1": 75}


def loops(case: str) -> tuple[Graph, Program]:
    return lowered(*CASES[case])


def lowered(
    function: Any, edit: Callable[..., None], args: tuple[Any, ...], passes: Any = CUDA
) -> tuple[Graph, Program]:
    graph, tree = by_hand(function, lambda s: edit(s, *(f"a{k}" for k in range(len(args)))), *args)
    return graph, lower(graph, tree, passes=passes)


def statements(program: Program, *kinds: type) -> list[Any]:
    return [s for nest in program.nests for s in every(nest.body) if isinstance(s, kinds)]


def without(body: Body, kind: type, number: int) -> Body:
    """The statements without one of a kind."""
    count = iter(range(1 << 30))

    def kept(body: Body) -> Iterator[Stmt]:
        for s in body:
            if not isinstance(s, kind) or next(count) != number:
                yield with_bodies(s, lambda b: tuple(kept(b)))

    return tuple(kept(body))


@needs_device
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_numpys(case: str) -> None:
    function, _, args = CASES[case]
    graph, program = loops(case)
    assert statements(program, CopyAsync)
    np.testing.assert_array_equal(computed(graph, program, *args), function(*args))


@needs_device
@pytest.mark.parametrize("rows", [5, 6, 8, 9, 12, 33])
def test_windows_of_few_rows(rows: int) -> None:
    graph, program = loops("windows")
    image = IMAGE[:rows].copy()
    np.testing.assert_array_equal(computed(graph, program, image), blurred_down(image))


@pytest.mark.parametrize("case", CASES)
def test_without_a_barrier_or_a_wait_there_is_a_race(case: str) -> None:
    _, program = loops(case)
    (nest,) = program.nests
    assert not list(races(program, SIZES))
    for kind in (Barrier, WaitForCopies):
        count = len(statements(program, kind))
        assert count
        for k in range(count):
            broken = Program((replace(nest, body=without(nest.body, kind, k)),), program.layouts)
            is_last = kind is WaitForCopies and case in SLIDING and k == count - 1  # nothing is read any more
            assert bool(list(races(broken, SIZES))) != is_last, f"{kind.__name__} {k} is not needed"


def test_a_step_waits_once_where_what_is_ahead_is_apart() -> None:
    """16 rows: while a step reads 8, those before it are free. Of 5 in 8, the next 3 take the place of what the step before reads."""
    _, apart = loops("windows")
    (loop,) = (s for s in statements(apart, For) if any(isinstance(x, CommitCopies) for x in s.body))
    assert sum(isinstance(s, Barrier) for s in every(loop.body)) == 1
    near = lowered(lambda a: a[:-2] + a[2:], of_short_strips, (IMAGE,))[1]
    (loop,) = (s for s in statements(near, For) if any(isinstance(x, CommitCopies) for x in s.body))
    assert [b.lengths[0].const for b in near.buffers.values()] == [8]
    assert sum(isinstance(s, Barrier) for s in every(loop.body)) == 2
    assert not list(races(near, SIZES))
    for k in range(len(statements(near, Barrier))):
        (nest,) = near.nests
        assert list(races(Program((replace(nest, body=without(nest.body, Barrier, k)),), near.layouts), SIZES))


@pytest.mark.parametrize("case", SLIDING)
def test_windows_are_an_iteration_ahead(case: str) -> None:
    _, program = loops(case)
    assert sorted(x.groups for x in statements(program, WaitForCopies)) == [0, 1]
    text = str(program)
    assert text.index("commit copies") < text.index("for d0") < text.index("wait for copies but the last 1 groups")


def test_a_window_has_room_for_what_is_ahead() -> None:
    """Rows of two steps: 8 that are read, and 4 that come."""
    _, program = loops("windows")
    (buffer,) = program.buffers.values()
    assert buffer.fold == 0 and buffer.lengths[0].const == 16
    passes = [p for p in CUDA if p.__name__ not in ("prefetch_windows", "copy_async", "insert_barriers")]
    _, before = lowered(*CASES["windows"], passes)
    assert [b.lengths[0].const for b in before.buffers.values()] == [8]


def test_copies_of_several_images_are_waited_for_together() -> None:
    _, program = loops("tiles of two images")
    assert len(statements(program, CommitCopies)) == len(statements(program, WaitForCopies)) == 1
    assert len(statements(program, CopyAsync)) == 2


@pytest.mark.parametrize("dtype", ["u1", "i2", "f2"])
def test_elements_of_less_than_four_bytes_are_loaded(dtype: str) -> None:
    function = (lambda a: a[:-2] + a[2:]) if dtype == "f2" else (lambda a: a[:-2] | a[2:])
    _, program = lowered(function, of_tiles, (IMAGE.astype(dtype),))
    assert not statements(program, CopyAsync, CommitCopies, WaitForCopies) and statements(program, Barrier)


@needs_nvrtc
@pytest.mark.parametrize("case", CASES)
def test_copies_are_asynchronous_where_there_are_such(case: str) -> None:
    graph, program = loops(case)
    text = emit_module(graph, program, "hj_copies").text
    for capability in CAPABILITIES:
        if capability in nvrtc.capabilities():
            made = nvrtc.compiled(text, capability)
            assert ("cp.async" in made.ptx) == (capability >= 80)
            assert all(r.spill_loads == 0 and r.stack == 0 for r in made.resources.values())


@needs_device
def test_a_pipeline_by_such_a_schedule(on_device: None) -> None:
    f = hjit.pipeline(blurred, target="cuda", verify="off")
    s = f.schedule(IMAGE)
    (out,) = s.stages
    s[out].gpu_tile("y", "x", "yi", "xi", 8, 32)
    s.cache_read("a").compute_at(out, "x").store_in("shared")
    f.use(s)
    np.testing.assert_array_equal(f(IMAGE), blurred(IMAGE))
    assert "copy of a[" in str(f.loops(IMAGE))
