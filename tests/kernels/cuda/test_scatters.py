"""Histograms and scatters of whole numbers: the copies that blocks of threads have of them, on PoCL and by NVRTC."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.lower.loopir import Barrier, For
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.program import Program
from hjit.kernels.lower.traverse import every
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.hand.schedule import Schedule
from hjit.trace.ir.graph import Graph
from hjit.trace.passes.canonical import canonicalise
from tests.kernels.cuda.launching import needs_device, needs_opencl
from tests.kernels.cuda.races import races
from tests.kernels.cuda.running import computed
from tests.kernels.cuda.test_blocks import schedule, statements, without
from tests.trace.test_canonical import canonical, graphs

RNG = np.random.default_rng(6)
BYTES = RNG.integers(0, 256, (70, 300), np.uint8)
SHORTS = RNG.integers(0, 5000, (70, 300), np.uint16)
SMALL = RNG.integers(-9, 10, (70, 300), np.int8)
LONG = RNG.integers(-(1 << 40), 1 << 40, (70, 300))

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


def histogram(a: Any) -> Any:
    return np.bincount(a.ravel(), minlength=256)


def many_bins(a: Any) -> Any:
    return np.bincount(a.ravel(), minlength=5000)


def two_axes(a: Any, b: Any) -> Any:
    out = np.zeros((16, 8), np.int32)
    np.add.at(out, (a >> 4, b & 7), 1)
    return out


def greatest(a: Any) -> Any:
    out = np.full(40, 7, np.int32)
    np.maximum.at(out, a % 40, a.astype(np.int32) * 3 - 300)
    return out


def sums(a: Any, b: Any) -> Any:
    out = np.zeros(256, np.int64)
    np.add.at(out, a, b)
    return out


def greatest_of_row(a: Any) -> Any:
    out = np.full(10, 7, np.int32)
    np.maximum.at(out, a[3] % 10, a[3].astype(np.int32))
    return out


def histogram_of_row(a: Any) -> Any:
    return np.bincount(a[3], minlength=256)


# the dtype of the copy; None: updates go to the result
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str | None]] = {
    "bytes": (histogram, (BYTES,), "u4"),
    "more bins than fit, known at run time": (many_bins, (SHORTS,), "u4"),
    "two axes of known lengths": (two_axes, (BYTES, SHORTS), "i4"),
    "an extremum": (greatest, (BYTES,), "i4"),
    "sums of small numbers with signs": (sums, (BYTES, SMALL), "i4"),
    "sums that need 64 bits": (sums, (BYTES, LONG), None),
    "one axis": (histogram_of_row, (BYTES,), "u4"),
}


@functools.cache
def loops(case: str) -> tuple[Graph, Program, dict[str, int]]:
    """With the numbers of the function that are run-time sizes."""
    function, args, _ = CASES[case]
    traced, recorder, _ = graphs(function, *args)
    graph = canonicalise(traced)
    return graph, lower(graph, cuda_schedule(graph), passes=CUDA), recorder.sizes


@pytest.mark.parametrize("case", CASES)
def test_blocks_have_copies_in_words_that_hold_all_sums(case: str) -> None:
    _, program, _ = loops(case)
    found = {b.dtype for b in program.buffers.values() if b.shared}
    dtype = CASES[case][2]
    assert found == (set() if dtype is None else {np.dtype(dtype)})


@needs_device
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_numpys(case: str) -> None:
    function, args, _ = CASES[case]
    graph, program, sizes = loops(case)
    np.testing.assert_array_equal(computed(graph, program, *args, numbers=sizes), function(*args))


@pytest.mark.parametrize("case", CASES)
def test_every_thread_of_many_blocks_has_work(case: str) -> None:
    _, program, _ = loops(case)
    nest = next(n for n in program.nests for x in statements(Program((n,)), For) if n.blocks and x.most == 32)
    assert nest.threads == 256 and nest.count is not None and not nest.count.is_const


@needs_opencl
def test_barriers_around_the_updates_are_needed() -> None:
    """Two, none of them in the loop over the image: without either the race is seen, and the numbers are others."""
    graph, program, sizes = loops("bytes")
    k, nest = next((k, n) for k, n in enumerate(program.nests) if n.buffers)
    assert len(statements(Program((nest,)), Barrier)) == 2
    assert not any(isinstance(t, Barrier) for s in every(nest.body) if isinstance(s, For) for t in every(s.body))
    assert not list(races(program, sizes))
    for number in range(2):
        broken = replace(nest, body=without(nest.body, number))
        nests = (*program.nests[:k], broken, *program.nests[k + 1 :])
        assert list(races(Program(nests), sizes))
        got = computed(graph, replace(program, nests=nests), BYTES, numbers=sizes)
        assert not np.array_equal(got, histogram(BYTES)), f"barrier {number} changes nothing"


@pytest.mark.parametrize(("updates", "copies"), [(8, False), (16, True)])
def test_copies_have_no_more_elements_than_a_block_updates(updates: int, copies: bool) -> None:
    def in_blocks(s: Schedule) -> None:
        s[s.stages[1]].update(1).split("r0", "r0", "ri", updates).gpu_blocks("x", "r0").gpu_threads("ri")

    graph = canonical(greatest_of_row, BYTES)
    assert bool(lower(graph, schedule(graph, in_blocks), passes=CUDA).buffers) == copies


@needs_nvrtc
def test_updates_of_shared_memory_are_instructions() -> None:
    graph, program, _ = loops("bytes")
    made = nvrtc.compiled(emit_module(graph, program, "hj_scatters").text, 80)
    assert made.ptx.count("atom.shared.add.u32") and "atom.shared.add.u64" not in made.ptx
    assert all(r.spill_loads == 0 and r.stack == 0 for r in made.resources.values())
