"""Scans along rows by the threads of a block, and of few rows by many blocks: their numbers, and the kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.errors import ScheduleError
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.lower.loopir import ScanThreads
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.program import Program
from hjit.kernels.lower.traverse import every
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.language.build import nest
from hjit.sched.language.check import check_tree
from hjit.sched.language.tree import Root, Store
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Sym
from hjit.trace.passes import limits
from hjit.trace.passes.cuda import scans
from tests.kernels.cuda.launching import needs_device
from tests.kernels.cuda.races import races
from tests.kernels.cuda.running import computed
from tests.trace.test_canonical import canonical

RNG = np.random.default_rng(6)
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


def by_loop(a: Any) -> Any:
    """Iterations in their order, as they are written."""
    out = a.copy()
    for k in range(1, a.shape[1]):
        out[:, k] = out[:, k - 1] + a[:, k]
    return out


EXACT: dict[str, Callable[[Any], Any]] = {
    "sums": lambda a: np.cumsum(a, axis=-1),
    "of all elements": lambda a: np.cumsum(a),
    "products": lambda a: np.cumprod(a, axis=-1),
    "greatest so far": lambda a: np.maximum.accumulate(a, axis=-1),
    "least so far": lambda a: np.minimum.accumulate(a[..., ::-1], axis=-1),
    "any so far": lambda a: np.logical_or.accumulate(a > 117, axis=-1),
    "parity": lambda a: np.bitwise_xor.accumulate(a, axis=-1),
    "of a computed row": lambda a: np.cumsum(a[..., 1:] * 3 - a[..., :-1], axis=-1) + 1,
    "of a border": lambda a: np.cumsum(np.pad(a, [(0, 0)] * (a.ndim - 1) + [(2, 1)], mode="edge"), axis=-1),
    "columns": lambda a: np.cumsum(a, axis=0),
    "columns upwards": lambda a: np.maximum.accumulate(a[::-1], axis=0),
    "columns of differences": lambda a: np.cumsum(a[1:] * 3 - a[:-1], axis=0, dtype=np.int64)[::2],
    "a summed-area table": lambda a: np.cumsum(np.cumsum(a, axis=0), axis=-1),
}
SHAPES = [(40_003,), (17,), (3, 16_386), (37, 1500), (20, 1025), (2, 3, 700), (700, 41), (1000, 30, 3), (129, 33)]


QUICK = ("sums", "greatest so far", "of a computed row", "of a border", "columns", "a summed-area table")
CASES_OF_NUMBERS = list(zip(SHAPES, itertools.cycle(["i4", "u1", "i8", "u2"]), strict=False))


@needs_device
@pytest.mark.parametrize("name", QUICK)
def test_scans_of_whole_numbers_are_numpys(name: str, on_device: None) -> None:
    assert_exact(name, CASES_OF_NUMBERS[QUICK.index(name) % 4 :: 4])  # by turns: each shape is a kernel


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_scans_of_all_shapes_are_numpys(name: str, on_device: None) -> None:
    assert_exact(name, CASES_OF_NUMBERS)


def assert_exact(name: str, cases: list[tuple[tuple[int, ...], str]]) -> None:
    f = hjit.pipeline(EXACT[name], target="cuda", verify="off")
    for shape, dtype in cases:
        a = RNG.integers(0, 120, shape).astype(dtype)
        got, expected = f(a), EXACT[name](a)
        np.testing.assert_array_equal(got, expected, err_msg=str(shape))
        assert got.dtype == expected.dtype


@needs_device
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_extremes_of_floats_are_numpys(dtype: str, on_device: None) -> None:
    f = hjit.pipeline(EXACT["greatest so far"], target="cuda", verify="off")
    for shape in SHAPES[::3]:
        a = RNG.standard_normal(shape).astype(dtype)
        a.reshape(-1)[a.size // 2] = np.nan
        np.testing.assert_array_equal(f(a), f.py_func(a), err_msg=str(shape))


@needs_device
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_of_floats_are_not_less_accurate_than_numpys(dtype: str, on_device: None) -> None:
    rng = np.random.default_rng(7)
    for function in (lambda a: np.cumsum(a), lambda a: np.cumsum(a, axis=-1)):
        f = hjit.pipeline(function, target="cuda", verify="off")
        checked = hjit.pipeline(function, target="cuda", verify="first")
        for shape in [(100_003,), (30, 3000)]:  # by rows; columns are below
            for a in (rng.random(shape).astype(dtype), rng.standard_normal(shape).astype(dtype)):
                got, exact = f(a), f.py_func(a.astype(np.longdouble))
                size = f.py_func(np.abs(a).astype(np.longdouble))
                bound = 3 * np.finfo(dtype).eps * size  # of three roundings; NumPy's own has one an element
                assert (np.abs(got - exact) <= bound).all(), shape
            checked(a)
        assert checked.stats.fallbacks == 0


@needs_device
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_of_columns_are_not_less_accurate_than_numpys(dtype: str, on_device: None) -> None:
    f = hjit.pipeline(lambda a: np.cumsum(a, axis=0), target="cuda", verify="off")
    for a in (RNG.random((3000, 20)).astype(dtype), RNG.standard_normal((3000, 20)).astype(dtype)):
        exact, size = (np.cumsum(x.astype(np.longdouble), axis=0) for x in (a, np.abs(a)))
        ours, numpys = np.abs(f(a) - exact), np.abs(f.py_func(a) - exact)
        assert ours.max() <= numpys.max()
        assert (ours <= limits.SCAN_ROWS * np.finfo(dtype).eps * size).all()
        np.testing.assert_array_equal(f(a), f(a))


@needs_device
@pytest.mark.parametrize("shape", [(40, 53), (400, 530)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_that_cancel_are_not_taken_for_wrong(
    axis: int, dtype: str, shape: tuple[int, int], on_device: None
) -> None:
    f = hjit.pipeline(lambda a: np.cumsum(a, axis=axis), target="cuda", verify="first")
    f(np.random.default_rng(0).normal(size=shape).astype(dtype))
    assert f.stats.fallbacks == 0


@needs_device
def test_infinities_and_nan_go_on(on_device: None) -> None:
    f = hjit.pipeline(lambda a: np.cumsum(a, axis=1), target="cuda", verify="off")
    for dtype in (np.float32, np.float64):
        a = RNG.random((3, 4000)).astype(dtype)
        a[0, 1500], a[1, 2000], a[2, 7], a[2, 3000] = np.inf, np.nan, np.inf, -np.inf
        np.testing.assert_allclose(f(a), f.py_func(a), rtol=1e-5)
        g = hjit.pipeline(lambda a: np.cumsum(a, axis=0), target="cuda", verify="off")
        np.testing.assert_allclose(g(a.T), g.py_func(a.T), rtol=1e-5)


@needs_device
def test_loops_over_floats_keep_their_order(on_device: None) -> None:
    """What a user writes as a loop has its bits; `np.cumsum` leaves the order open."""
    f = hjit.pipeline(by_loop, target="cuda", verify="off")
    a = RNG.random((5, 3000)).astype(np.float32)
    np.testing.assert_array_equal(f(a), by_loop(a))
    g = hjit.pipeline(by_loop, target="cuda", verify="off")
    b = RNG.integers(0, 99, (5, 3000))
    np.testing.assert_array_equal(g(b), by_loop(b))
    assert "scan threads" not in str(f.loops(a)) and "scan threads" in str(g.loops(b))


# -- the kernels


def loops(function: Any, a: Any) -> tuple[Graph, Program]:
    graph = canonical(function, a, target="cuda")
    tree = cuda_schedule(graph)
    check_tree(tree, graph, "cuda")
    return graph, lower(graph, tree, passes=CUDA)


def rows(a: Any) -> Any:
    return np.cumsum(a, axis=1)


def one_row(a: Any) -> Any:
    return np.cumsum(a)


CASES: dict[str, tuple[Any, Any]] = {
    "rows of floats": (rows, np.ones((40, 50), np.float32)),
    "rows of doubles": (rows, np.ones((40, 50), np.float64)),
    "rows of bytes": (rows, np.ones((40, 50), np.uint8)),
    "truth": (lambda a: np.logical_or.accumulate(a > 0, axis=1), np.ones((40, 50), np.float32)),
    "one row": (one_row, np.ones(4000, np.float32)),
    "three rows": (rows, np.ones((3, 4000), np.int32)),
    "columns": (lambda a: np.cumsum(a, axis=0), np.ones((400, 50), np.float32)),
    "columns of colours": (lambda a: np.maximum.accumulate(a, axis=0), np.ones((400, 50, 3), np.uint8)),
}


@pytest.mark.parametrize("case", CASES)
def test_there_are_no_races(case: str) -> None:
    _, program = loops(*CASES[case])
    assert list(races(program, {"a0.0": 2100, "a0.1": 2100}, blocks=1)) == []


def test_rows_are_scanned_by_blocks_and_few_rows_in_parts() -> None:
    _, many = loops(*CASES["rows of floats"])
    assert [n.stage for n in many.nests] == ["add", "add"]
    _, few = loops(*CASES["one row"])
    assert [n.stage for n in few.nests] == ["add_blocks", "add_before", "add_before", "add", "add"]
    for program in (many, few):
        assert any(isinstance(s, ScanThreads) for s in every(program.nests[-1].body))


def test_columns_are_scanned_in_parts() -> None:
    graph, program = loops(*CASES["columns"])
    assert [n.stage for n in program.nests] == ["add_blocks", "add_before", "add_before", "add", "add"]
    assert str(graph.stage("add_blocks").shape[0]) == f"((a0.0 + {limits.SCAN_ROWS - 2})//({limits.SCAN_ROWS}))"
    last = program.nests[-1]
    assert last.count is not None and last.count.mentions(Sym("a0.0")) and last.count.mentions(Sym("a0.1"))
    assert "select" not in str(Program((last,))), "no thread reads what another one writes"


def test_volumes_and_loops_over_floats_have_no_parts() -> None:
    for function, a in (
        (lambda a: np.cumsum(a, axis=0), np.ones((40, 50, 60), np.float32)),
        (lambda a: by_loop(a.T).T, np.ones((400, 50), np.float32)),
    ):
        assert len(canonical(function, a, target="cuda").stages) == 1


@needs_device
def test_small_parts_of_columns_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "SCAN_ROWS", 4)
    for n in (20, 64, 130, 257):
        image = RNG.integers(0, 99, (n, 70)).astype(np.int32)
        graph = canonical(lambda a: np.cumsum(a, axis=0), image, target="cuda")
        program = lower(graph, cuda_schedule(graph), passes=CUDA)
        np.testing.assert_array_equal(computed(graph, program, image), np.cumsum(image, axis=0))


@needs_device
@pytest.mark.parametrize("threads", [32, 128, 256, 512, 1024])
def test_any_number_of_warps_scans(threads: int) -> None:
    image = RNG.integers(0, 99, (3, 2500)).astype(np.int32)
    graph = canonical(rows, image)
    before = [p for p in CUDA if p.__name__ != "insert_barriers"]
    at = [p.__name__ for p in before].index("block_scans")

    def fixed(nest: Any, *_: Any) -> Any:
        return replace(nest, threads=threads)

    program = lower(graph, cuda_schedule(graph), passes=(*CUDA[:at], fixed, *CUDA[at:]))
    np.testing.assert_array_equal(computed(graph, program, image), rows(image))


@needs_device
def test_small_parts_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many parts, and a last one that is not whole."""
    monkeypatch.setattr(scans, "SCAN_ELEMENTS", 64)
    for n in (65, 6400, 70_001):
        row = RNG.integers(0, 99, n).astype(np.int32)
        graph = canonical(one_row, row, target="cuda")
        program = lower(graph, cuda_schedule(graph), passes=CUDA)
        np.testing.assert_array_equal(computed(graph, program, row), one_row(row))


def test_what_threads_may_scan() -> None:
    graph = canonical(rows, np.ones((40, 50), np.int32))
    (name,) = graph.outputs
    first = nest(name, (0,), [(0, "gpu_block", None), (1, "gpu_thread", None)])

    def refused(why: str, *steps: Any) -> None:
        tree = Root((Store(name, (first, nest(name, (1,), list(steps)))),))
        with pytest.raises(ScheduleError, match=why):
            check_tree(tree, graph, "cuda")

    refused("threads scan all iterations together", (0, "gpu_block", None), (1, "serial", None), (1, "gpu_thread", 64))
    refused("iterations of a reduction write", (0, "gpu_block", None), (1, "gpu_block", None))
    refused("not what loops inside it compute", (1, "gpu_thread", None), (0, "serial", None))
    floats = canonical(by_loop, np.ones((40, 50), np.float32))
    (name,) = floats.outputs
    tree = cuda_schedule(floats)
    assert "gpu_thread" in str(tree) and f"gpu_thread {name}.d1" not in str(tree).rpartition("gpu_block")[2]


@needs_nvrtc
@pytest.mark.parametrize("capability", [75, 80, 90, 100])
@pytest.mark.parametrize("case", CASES)
def test_kernels_compile_without_spills(case: str, capability: int) -> None:
    graph, program = loops(*CASES[case])
    made = nvrtc.compiled(emit_module(graph, program, "hj_scans").text, capability)
    assert all(r.spill_loads == 0 and r.stack == 0 for r in made.resources.values())


def test_parts_are_as_long_as_the_limit_says() -> None:
    text = str(canonical(one_row, np.ones(4000, np.float32), target="cuda"))
    assert f"%({limits.SCAN_ELEMENTS})" in text and f"//({limits.SCAN_ELEMENTS})" in text
