"""Long blocks of code, for which LLVM would take minutes: they are split by marks, or not compiled for a guess."""

import re

import numpy as np
import pytest

import hjit
from hjit.kernels.llvm import thresholds
from hjit.kernels.llvm.builder.blocks import MARK, longest_block, with_marks
from hjit.kernels.llvm.thresholds import MAX_BLOCK_LOADS, WIDE_LOAD
from hjit.options import Options
from hjit.sched.language.kinds import LoopKind
from hjit.sched.language.tree import Compute, Loop, Root, Store
from hjit.training.cases import compiled
from hjit.tuning import decide
from tests.numpy_check import assert_same

ROWS, COLUMNS = 15, 21


def window(x: np.ndarray) -> np.ndarray:
    """A sum of more neighbours than LLVM is to see at once."""
    total = x[: -ROWS + 1, : -COLUMNS + 1] * np.float32(0.5)
    for i in range(ROWS):
        for j in range(COLUMNS):
            total = total + x[i : x.shape[0] - ROWS + 1 + i, j : x.shape[1] - COLUMNS + 1 + j]
    return total


def loads_between_marks(text: str) -> list[int]:
    """How many loads each block has between its effects."""
    counts = [0]
    for line in text.splitlines():
        if line == MARK or line.endswith((":", "{")) or line.startswith("  store "):
            counts.append(0)
        counts[-1] += " = load " in line
    return counts


def test_loads_of_long_blocks_are_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "MAX_BLOCK_LOADS", 100)
    x = np.random.default_rng(0).random((60, 90), np.float32)
    f = hjit.pipeline(window, tune=False, cache="off")
    assert_same(f(x), window(x))
    text = f.inspect_llvm(x)
    assert MARK in text
    assert max(loads_between_marks(text)) == 100


def test_short_blocks_have_no_marks() -> None:
    x = np.random.default_rng(0).random((60, 90), np.float32)
    f = hjit.pipeline(lambda x: x[1:] + x[:-1], tune=False, cache="off")
    assert_same(f(x), x[1:] + x[:-1])
    assert MARK not in f.inspect_llvm(x)


def test_marks_begin_again_after_stores_and_labels() -> None:
    load, store, label = "  %v = load i64, ptr %p", "  store i64 %v, ptr %p", "next:"
    block = [load] * (MAX_BLOCK_LOADS - 1)
    assert with_marks([*block, store, *block, label, *block], 32).count(MARK) == 0
    assert with_marks([*block, load, load, load], 32) == [*block, load, MARK, load, load]


def test_marks_are_closer_between_vectors_of_several_registers() -> None:
    loads = ["  %v = load <64 x i8>, ptr %p, align 1"] * 200
    assert with_marks(loads, 64) == loads
    assert with_marks(loads, 32).count(MARK) == (200 - 1) * WIDE_LOAD // MAX_BLOCK_LOADS


def test_the_longest_block_is_counted() -> None:
    text = "define void @f() {\nentry:\n  a\n  br label %next\nnext:\n  b\n  c\n  d\n  ret void\n}\n"
    assert longest_block(text) == 4


def test_searched_schedules_of_very_long_blocks_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decide, "LONGEST_BLOCK", 300)
    x = np.random.default_rng(0).random((600, 900), np.float32)
    f = hjit.pipeline(window, tune="greedy", cache="off")
    with caplog.at_level("DEBUG", "hjit"):
        assert_same(f(x), window(x))  # by the default schedule
    assert re.search(r"refused: \d+ instructions in one block of code of \w+, more than 300", caplog.text)


def rows_together(x: np.ndarray) -> np.ndarray:
    return np.exp(x[1:]) * x[:-1] + np.exp(x[:-1])


def test_searched_schedules_of_long_blocks_unroll_less(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).random((60, 90), np.float32)
    options = Options(tune=False, cache="off")
    variant = hjit.pipeline(rows_together, tune=False, cache="off").variant_of((x,), {}, options)
    (graph,) = variant.graphs
    (stage,) = graph.outputs

    def nest(kind: LoopKind) -> Root:
        inner = Loop(stage, 0, kind, 32, (Loop(stage, 1, "vector", 8, (Compute(stage, (0,)),)),))
        return Root((Store(stage, (Loop(stage, 0, "parallel", None, (Loop(stage, 1, "serial", None, (inner,)),)),)),))

    monkeypatch.setattr(decide, "LONGEST_BLOCK", 150)
    bound, found = compiled(variant, decide.by_search({graph.outputs: nest("unroll")}), options)
    assert found.trees == {graph.outputs: nest("serial")}
    (out,) = bound.new_outputs()
    assert bound.run([x], [out], ())
    np.testing.assert_allclose(out, rows_together(x), rtol=1e-6)
