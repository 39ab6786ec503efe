"""Reductions of whole arrays by many blocks: their numbers, that they are the same at every run, and the kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.lower.loopir import CombineThreads, If, Threads
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.program import Program
from hjit.kernels.lower.traverse import every
from hjit.sched.default.cuda import cuda_schedule
from hjit.trace.ir.graph import Graph
from tests.kernels.cuda.launching import needs_device
from tests.kernels.cuda.races import races
from tests.kernels.cuda.running import computed
from tests.trace.test_canonical import canonical

RNG = np.random.default_rng(5)
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


EXACT: dict[str, Callable[[Any], Any]] = {
    "max": lambda a: a.max(),
    "min": lambda a: a.min(),
    "argmax": lambda a: a.argmax(),
    "argmin": lambda a: a.argmin(),
    "any": lambda a: (a > 100).any(),
    "all": lambda a: (a < 200).all(),
    "count": lambda a: np.count_nonzero(a > 3),
    "flipped": lambda a: a.T[::-1].max(),
    "columns": lambda a: a.max(axis=0),
}
ROUNDED: dict[str, Callable[[Any], Any]] = {
    "sum": lambda a: a.sum(),
    "mean": lambda a: a.mean(),
    "var": lambda a: a.var(),
    "mean of columns": lambda a: a.mean(axis=0),
    "of a border": lambda a: np.pad(a, 1, mode="reflect").sum() if a.ndim > 1 else np.pad(a, 1).sum(),
}
SHAPES = [(40_001,), (16_384,), (129, 517), (70_000, 2), (40, 300, 3), (3, 70, 260), (5, 66, 20, 3)]
DTYPES = ["u1", "i2", "i4", "u8", "f2", "f4", "f8"]


def array(shape: tuple[int, ...], dtype: str) -> Any:
    return RNG.integers(0, 120, shape).astype(dtype)


CASES_OF_NUMBERS = list(zip(SHAPES, DTYPES, strict=True))
CASES_OF_FLOATS = list(zip(SHAPES, itertools.cycle(["f4", "f8", "i4", "f4"]), strict=False))
Cases = list[tuple[tuple[int, ...], str]]


@needs_device
@pytest.mark.parametrize("name", EXACT)
def test_what_does_not_round_is_numpys(name: str, on_device: None) -> None:
    assert_exact(name, CASES_OF_NUMBERS[[*EXACT].index(name) % 3 :: 3])  # by turns: each shape is a kernel


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_what_does_not_round_is_numpys_in_all_shapes(name: str, on_device: None) -> None:
    assert_exact(name, CASES_OF_NUMBERS)


def assert_exact(name: str, cases: Cases) -> None:
    f = hjit.pipeline(EXACT[name], target="cuda", verify="off")
    for shape, dtype in cases:
        a = array(shape, dtype)
        expected = EXACT[name](a)
        got = f(a)
        np.testing.assert_array_equal(got, expected)
        assert np.asarray(got).dtype == np.asarray(expected).dtype


@needs_device
@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes_and_sums_of_all_dtypes(dtype: str, on_device: None) -> None:
    f = hjit.pipeline(lambda a: (a.max(), a.min(), a.sum(), a.argmin()), target="cuda", verify="off")
    a = array((131, 300), dtype)
    for got, expected in zip(f(a), f.py_func(a), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-3 if dtype == "f2" else 1e-6 if dtype == "f4" else 0)
        assert got.dtype == expected.dtype


@needs_device
@pytest.mark.parametrize("name", ROUNDED)
def test_sums_are_not_less_accurate_than_numpys(name: str, on_device: None) -> None:
    assert_accurate(name, CASES_OF_FLOATS[[*ROUNDED].index(name) % 3 :: 3])


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("name", ROUNDED)
def test_sums_of_all_shapes_are_not_less_accurate(name: str, on_device: None) -> None:
    assert_accurate(name, CASES_OF_FLOATS)


def assert_accurate(name: str, cases: Cases) -> None:
    f = hjit.pipeline(ROUNDED[name], target="cuda", verify="off")
    for shape, dtype in cases:
        a = array(shape, dtype)
        a = a + RNG.random(shape).astype(dtype) if dtype != "i4" else a
        exact = np.asarray(ROUNDED[name](a.astype(np.longdouble) if dtype != "i4" else a), np.longdouble)
        expected, got = np.asarray(ROUNDED[name](a)), np.asarray(f(a))
        assert got.dtype == expected.dtype and got.shape == expected.shape
        slack = 4 * np.spacing(np.abs(expected))
        assert (np.abs(got - exact) <= np.abs(expected - exact) + slack).all(), shape


@needs_device
def test_products_differ_from_numpys_by_roundings(on_device: None) -> None:
    f = hjit.pipeline(lambda a: a.prod(), target="cuda", verify="off")
    for shape, dtype in (((40_001,), "f4"), ((129, 517), "f8")):
        a = RNG.uniform(0.999, 1.001, shape).astype(dtype)
        np.testing.assert_allclose(f(a), f.py_func(a), rtol=a.size * np.finfo(dtype).eps)


@needs_device
def test_nan_and_infinities_are_numpys(on_device: None) -> None:
    f = hjit.pipeline(lambda a: (a.max(), a.min(), a.sum(), a.argmax()), target="cuda", verify="off")
    for value, place in ((np.nan, 0), (np.nan, 69_999), (np.inf, 17_000), (-np.inf, 5)):
        a = RNG.random(70_000).astype(np.float32)
        a[place] = value
        for got, expected in zip(f(a), f.py_func(a), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)


@needs_device
def test_empty_arrays_have_their_initial_value(on_device: None) -> None:
    f = hjit.pipeline(lambda a: (a.sum(), a.prod(), a.any()), target="cuda", verify="off")
    for shape in ((0,), (0, 50), (50, 0)):
        a = np.zeros(shape, np.float32)
        assert [x.item() for x in f(a)] == [0, 1, False]


# -- the kernels


def total(a: Any) -> Any:
    return a.sum()


def channels(a: Any) -> Any:
    return a.mean(axis=(0, 1))


def loops(function: Any, a: Any) -> tuple[Graph, Program]:
    graph = canonical(function, a, target="cuda")
    return graph, lower(graph, cuda_schedule(graph), passes=CUDA)


CASES: dict[str, tuple[Any, Any]] = {
    "a row": (total, np.ones(1000, np.float32)),
    "an image": (total, np.ones((50, 60), np.float32)),
    "a transposed image": (lambda a: a.T.sum(), np.ones((50, 60), np.float64)),
    "colours": (total, np.ones((50, 60, 3), np.uint8)),
    "each colour": (channels, np.ones((50, 60, 3), np.float32)),
    "columns": (lambda a: a.sum(axis=0), np.ones((50, 60), np.float32)),
    "places": (lambda a: a.argmax(), np.ones((50, 60), np.float32)),
}


@pytest.mark.parametrize("case", CASES)
def test_there_are_no_races(case: str) -> None:
    _, program = loops(*CASES[case])
    sizes = {"a0.0": 130, "a0.1": 257}
    assert list(races(program, sizes, blocks=2)) == []


@needs_device
def test_sums_are_the_same_at_every_run() -> None:
    image = RNG.random((200, 700))
    graph, program = loops(total, image)
    first, second = (computed(graph, program, image) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@needs_device
def test_parts_are_combined_in_the_order_that_sizes_give() -> None:
    """A product of floats in the order of the kernels: strides of 256 in a part, halves with halves, then the parts."""
    row = RNG.uniform(0.999, 1.001, 50_000)
    graph, program = loops(lambda a: a.prod(), row)

    def halves(x: Any) -> Any:
        x = x.copy()
        while x.size > 1:
            x = x[: x.size // 2] * x[x.size // 2 :]
        return x[0]

    def threads(part: Any) -> Any:
        own = np.ones(256)
        for k in range(0, part.size, 256):
            own[: part[k : k + 256].size] *= part[k : k + 256]
        return halves(own)

    parts = np.array([threads(row[k : k + 16_384]) for k in range(0, row.size, 16_384)])
    assert computed(graph, program, row) == threads(parts)


def test_blocks_inside_an_image_have_no_boundary_handling() -> None:
    _, program = loops(total, CASES["an image"][1])
    first, second = program.nests
    (branch,) = (s for s in every(first.body) if isinstance(s, If))
    (inside,) = branch.body
    assert isinstance(inside, Threads) and "clamp" not in str(Program((first,))).partition("else:")[0]
    assert not any(isinstance(s, If) for s in every(second.body))
    assert all(any(isinstance(s, CombineThreads) for s in every(n.body)) for n in program.nests)


@needs_nvrtc
@pytest.mark.parametrize("capability", [75, 90])
@pytest.mark.parametrize("case", CASES)
def test_kernels_compile_without_spills(case: str, capability: int) -> None:
    graph, program = loops(*CASES[case])
    made = nvrtc.compiled(emit_module(graph, program, "hj_blocks").text, capability)
    assert all(r.spill_loads == 0 and r.stack == 0 for r in made.resources.values())


def test_sums_of_float32_are_in_double_precision_alone() -> None:
    """It holds them without their rounding errors."""
    text = str(loops(total, CASES["an image"][1])[1])
    assert "f8(a0[" in text and "error" not in text
    assert "error" in str(loops(*CASES["a transposed image"])[1])
