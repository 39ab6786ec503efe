"""Reductions in tiles, whose operands go through shared memory: numbers, barriers, transactions, registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.lower.loopir import Barrier, Block
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.passes.staging import stage_operands
from hjit.kernels.lower.program import Program
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.hand.schedule import Schedule
from hjit.sched.language.check import check_tree
from hjit.trace.ir.graph import Graph
from tests.kernels.cuda.launching import needs_device
from tests.kernels.cuda.races import races
from tests.kernels.cuda.running import computed
from tests.kernels.cuda.test_blocks import schedule, statements, without
from tests.kernels.cuda.transactions import traffic
from tests.trace.test_canonical import canonical

RNG = np.random.default_rng(12)
PLAIN = tuple(p for p in CUDA if p is not stage_operands.stage_operands)
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


def product(a: Any, b: Any) -> Any:
    return a @ b


def of_transposes(a: Any, b: Any) -> Any:
    return (b.T @ a.T) * 2


def with_itself(a: Any, b: Any) -> Any:
    return a @ a.T + b[0, 0]


def in_batches(a: Any, b: Any) -> Any:
    return np.stack([a, a + 1]) @ b


def shortest(a: Any, b: Any) -> Any:
    """A product of other operations."""
    return (a[:, :, None] + b[None, :, :]).min(axis=1)


def differences(a: Any, b: Any) -> Any:
    return np.abs(a[:, None, :] - b.T[None, :, :]).sum(axis=-1)


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    f.__name__: f for f in (product, of_transposes, with_itself, in_batches, shortest, differences)
}
SHAPES = [(64, 64, 64), (70, 83, 130), (150, 17, 66), (40, 70, 60), (200, 1, 64), (7, 90, 300)]


def operands(shape: tuple[int, int, int], dtype: str) -> tuple[Any, Any]:
    rows, terms, columns = shape
    return (RNG.integers(0, 4, n).astype(dtype) for n in ((rows, terms), (terms, columns)))  # type: ignore[return-value]


@needs_device
@pytest.mark.parametrize("name", FUNCTIONS)
def test_whole_numbers_are_numpys(name: str, on_device: None) -> None:
    """Of floats, too: all sums are exact."""
    f = hjit.pipeline(FUNCTIONS[name], target="cuda", verify="off", blas=False)
    others = SHAPES[1:2] if name in ("product", "shortest") else []
    for dtype, shapes in (("f4", SHAPES), ("f8", others), ("i4", others), ("u1", others)):
        for shape in shapes:
            a, b = operands(shape, dtype)
            np.testing.assert_array_equal(f(a, b), f.py_func(a, b), err_msg=f"{dtype} {shape}")


@needs_device
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_are_not_less_accurate_than_numpys(dtype: str, on_device: None) -> None:
    f = hjit.pipeline(product, target="cuda", verify="off", blas=False)
    a, b = RNG.random((65, 2000)).astype(dtype), RNG.random((2000, 70)).astype(dtype)
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    bound = 24 * np.finfo(dtype).eps * exact  # 16 roundings, 4, and 2; NumPy's pairwise sum has 16 + 5
    got = f(a, b)
    assert (np.abs(got - exact) <= bound).all()
    np.testing.assert_array_equal(f(a, b), got)


@needs_device
def test_infinities_and_nan_stay_in_their_rows(on_device: None) -> None:
    f = hjit.pipeline(product, target="cuda", verify="off", blas=False)
    a, b = RNG.random((70, 90)).astype(np.float32), RNG.random((90, 66)).astype(np.float32)
    a[3, 5], b[7, 9] = np.inf, np.nan
    np.testing.assert_allclose(f(a, b), a @ b, rtol=1e-5)


# -- the loops


def loops(function: Any, edit: Callable[[Schedule], Any] | None = None, passes: Any = CUDA) -> tuple[Graph, Program]:
    graph = canonical(function, *operands((70, 83, 130), "f4"), target="cuda")
    tree = cuda_schedule(graph) if edit is None else schedule(graph, edit)
    check_tree(tree, graph, "cuda")
    return graph, lower(graph, tree, passes=passes)


def tiles(s: Schedule, *, rows: int, columns: int, terms: int, side: int) -> None:
    out = s.stages[-1]
    s[out].gpu_tile("y", "x", "yi", "xi", rows, columns, "shift_inwards").split("r0", "r0", "tile", terms)
    if side > 1:
        s[out].unroll("yi", side).unroll("xi", side)
        s[out].reorder("y", "x", "yi", "xi", "r0", "tile", "yiu", "xiu")


HAND: dict[str, dict[str, int]] = {
    "one result a thread": {"rows": 8, "columns": 32, "terms": 8, "side": 1},
    "squares": {"rows": 32, "columns": 32, "terms": 32, "side": 4},
    "few rows": {"rows": 4, "columns": 128, "terms": 16, "side": 2},
}
SIZES = {"a.0": 70, "a.1": 83, "b.0": 83, "b.1": 130, "a0.0": 70, "a0.1": 83, "a1.0": 83, "a1.1": 130}


@needs_device
@pytest.mark.parametrize("case", HAND)
def test_tiles_by_hand(case: str) -> None:
    graph, program = loops(product, lambda s: tiles(s, **HAND[case]))
    assert len([name for name in program.buffers if "operand" in name]) == 2
    for shape in SHAPES:
        a, b = operands(shape, "f4")
        np.testing.assert_array_equal(computed(graph, program, a, b), a @ b)


def weighted(a: Any, k: Any) -> Any:
    """A filter, of which the size is known at the call only."""
    windows = np.lib.stride_tricks.sliding_window_view(a, k.shape)
    return (windows * k).sum(axis=(-2, -1))


@needs_device
def test_the_window_of_a_filter_is_read_once_by_a_block() -> None:
    def in_tiles(s: Schedule) -> None:
        out = s.stages[-1]
        s[out].gpu_tile("y", "x", "yi", "xi", 8, 32, "shift_inwards").split("r1", "r1", "tap", 8)

    a, k = RNG.integers(0, 4, (60, 90)).astype(np.float32), RNG.integers(0, 4, (18, 21)).astype(np.float32)
    graph = canonical(weighted, a, k, target="cuda")
    program = lower(graph, schedule(graph, in_tiles), passes=CUDA)
    (image,) = (b for name, b in program.buffers.items() if name.startswith("a0"))
    assert [n.const for n in image.lengths] == [8, 40]  # 32 columns and 7 beside them, to whole accesses
    np.testing.assert_array_equal(computed(graph, program, a, k), weighted(a, k))


@pytest.mark.parametrize("function", [product, shortest])
def test_without_any_of_its_barriers_there_is_a_race(function: Any) -> None:
    _, program = loops(function, lambda s: tiles(s, rows=16, columns=32, terms=4, side=4))
    nest = program.nests[-1]
    sizes = {**SIZES, "a.1": 9, "b.0": 9, "a0.1": 9, "a1.0": 9}
    assert len(nest.buffers) == 2 and not list(races(program, sizes, blocks=1))
    barriers = len(statements(Program((nest,)), Barrier))
    assert barriers == 2
    for k in range(barriers):
        broken = Program((replace(nest, body=without(nest.body, k)),), program.layouts)
        assert list(races(broken, sizes, blocks=1)), f"barrier {k} is not needed"


@needs_device
def test_without_the_barrier_after_its_copies_the_numbers_are_others() -> None:
    graph, program = loops(product)
    (nest,) = program.nests
    a, b = operands((70, 83, 130), "f4")
    broken = Program((replace(nest, body=without(nest.body, 1)),), program.layouts)
    assert not np.array_equal(computed(graph, broken, a, b), a @ b)


def test_operands_come_from_memory_once_for_a_tile() -> None:
    graph, program = loops(product)
    _, plain = loops(product, passes=PLAIN)
    sizes = {**SIZES, "a0.0": 128, "a1.1": 128}
    before, after = (traffic(graph, p, 0, sizes, block=1) for p in (plain, program))
    assert after.sectors * 8 < before.sectors
    assert after.passes < 1.5 * after.accesses


def test_what_a_thread_reads_side_by_side_is_one_access() -> None:
    _, program = loops(product)
    shared = [r for s in statements(program, Block) for r in s.rows if "operand" in r.array]
    assert shared and all(r.count == 4 for r in shared)


def test_operands_are_no_more_than_there_is_memory_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_operands, "MAX_BYTES", 6000)
    _, program = loops(product)
    assert len(program.buffers) == 1
    monkeypatch.setattr(stage_operands, "MAX_BYTES", 1000)
    _, program = loops(product)
    assert not program.buffers


def test_the_default_schedule_says_where_tiles_are_worth_it() -> None:
    def tiled(function: Any, *args: Any) -> bool:
        graph = canonical(function, *args, target="cuda")
        return any("operand" in name for name in lower(graph, cuda_schedule(graph), passes=CUDA).buffers)

    a, b = operands((70, 83, 130), "f4")
    assert tiled(product, a, b) and tiled(shortest, a, b)
    assert tiled(product, a, b[:, :16]) and tiled(differences, a, b)
    assert not tiled(product, a[:5], b[:, :16])  # threads for less than a warp
    assert not tiled(product, a, b[:, 0])  # one of the operands is read once only
    assert not tiled(product, a[:3], b)  # rows for no more than a thread
    assert not tiled(lambda x: x.sum(axis=0), a)


@needs_nvrtc
@pytest.mark.parametrize("capability", [75, 80, 90, 100])
def test_kernels_have_registers_enough(capability: int) -> None:
    for dtype in ("f4", "f8", "i4"):
        graph = canonical(product, *operands((70, 83, 130), dtype), target="cuda")
        text = emit_module(graph, lower(graph, cuda_schedule(graph), passes=CUDA), "hj_product").text
        made = nvrtc.compiled(text, capability)
        assert not made.spilling() and all(r.stack == 0 for r in made.resources.values())
        assert "ld.shared.v" in made.ptx
