"""Elements side by side in one access: which ones, and their numbers on PoCL wherever rows of an image begin."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hjit.kernels.cuda.compilers import nvrtc
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.lower.loopir import Block
from hjit.kernels.lower.lower import CUDA, lower
from hjit.kernels.lower.program import Program
from hjit.sched.default.cuda import cuda_schedule
from hjit.sched.hand.schedule import Schedule
from hjit.trace.ir.graph import Graph
from tests.kernels.cuda.launching import needs_device
from tests.kernels.cuda.running import computed
from tests.kernels.cuda.test_blocks import schedule, statements
from tests.trace.test_canonical import canonical

RNG = np.random.default_rng(7)
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


def by_four(s: Schedule) -> None:
    out = s.stages[-1]
    s[out].gpu_tile("y", "x", "yi", "xi", 8, 128).split("xi", "xi", "xu", 4).unroll("xu")


def across(a: Any) -> Any:
    """What is read begins elsewhere than what is written."""
    return np.maximum(a[:, 1:], a[:, :-1])


Case = tuple[Callable[[Any], Any], str, Callable[[Schedule], Any] | None, list[tuple[str, int]]]
# function, dtype, schedule by hand, and the arrays with rows of so many elements
CASES: dict[str, Case] = {
    "bytes": (lambda a: a // 3 + 1, "u1", None, [("out", 8), ("in", 8)]),
    "two bytes": (lambda a: a * 3 + 1, "i2", None, [("out", 8), ("in", 8)]),
    "halves": (lambda a: a * 2 + 1, "f2", None, [("out", 8), ("in", 8)]),
    "truth of bytes": (lambda a: a > 100, "u1", None, [("out", 8), ("in", 8)]),
    "floats, four by hand": (lambda a: a * 2 + 1, "f4", by_four, [("out", 4), ("in", 4)]),
    "doubles, four by hand": (lambda a: a * 2 + 1, "f8", by_four, [("in", 2), ("in", 2), ("out", 2), ("out", 2)]),
    "neighbours": (across, "u1", None, [("in", 8), ("out", 8)]),
    "upside down": (lambda a: a[::-1] + 1, "u1", None, [("in", 8), ("out", 8)]),
    "every other one": (lambda a: a[:, ::2] + 1, "u1", None, [("out", 8)]),
}  # fmt: skip


def loops(case: str) -> tuple[Graph, Program]:
    function, dtype, edit, _ = CASES[case]
    graph = canonical(function, np.ones((40, 50), dtype))
    tree = cuda_schedule(graph) if edit is None else schedule(graph, edit)
    return graph, lower(graph, tree, passes=CUDA)


@pytest.mark.parametrize("case", CASES)
def test_rows_are_what_is_side_by_side(case: str) -> None:
    graph, program = loops(case)
    found = [("out" if r.array in graph.outputs else "in", r.count) for s in statements(program, Block) for r in s.rows]
    assert sorted(found) == sorted(CASES[case][3])


@needs_device
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_numpys_wherever_rows_begin(case: str) -> None:
    """Rows of a length that is no multiple of an access begin anywhere."""
    function, dtype, _, _ = CASES[case]
    graph, program = loops(case)
    for width in (64, 53):
        image = RNG.integers(0, 200, (9, width)).astype(dtype)
        np.testing.assert_array_equal(computed(graph, program, image), function(image))


@needs_nvrtc
def test_128_bits_are_one_instruction() -> None:
    graph, program = loops("floats, four by hand")
    made = nvrtc.compiled(emit_module(graph, program, "hj_rows").text, 80)
    wide = re.findall(r"(ld|st)\.global(?:\.nc)?\.(?:v4\.[ubf]32|v2\.[ubf]64)", made.ptx)
    assert wide == ["ld", "st"]
    assert ".local" not in made.ptx
    assert all(r.stack == 0 for r in made.resources.values())
