"""Small tables are looked up in registers, with NumPy's numbers and errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.runtime import features
from hjit.sched.default.schedules import default_schedule
from hjit.sched.language.target import Target, table_bytes, table_registers
from hjit.sched.language.tree import Loop, walk
from tests.numpy_check import check
from tests.trace.test_canonical import canonical

RNG = np.random.default_rng(11)
SIZES = (1, 3, 31, 64, 65, 129, 200, 256, 1000)
PICKS = pytest.mark.skipif(table_bytes(features.host_features()) != {1, 2, 4}, reason="the processor picks no lanes")


def table(size: int, dtype: str) -> np.ndarray[Any, Any]:
    return RNG.integers(0, 2 if dtype == "?" else 120, size).astype(dtype)


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "f2", "i4", "f4", "f8"])
@pytest.mark.parametrize("size", SIZES)
def test_every_element_is_found(size: int, dtype: str) -> None:
    t = table(size, dtype)
    for kind in ("u1", "i2", "i8"):
        i = RNG.integers(0, min(size, np.iinfo(kind).max + 1), (4, 133)).astype(kind)
        check(lambda t, i: t[i], t, i)
        check(lambda t, i: t[np.clip(i, 0, size - 1)], t, i)
        check(lambda t, i: t[-1 - np.clip(i, 0, size - 1)], t, i)


def test_tables_may_be_views_and_chosen_by_other_loops() -> None:
    t = table(512, "u1")
    i = RNG.integers(0, 256, (5, 70, 3)).astype(np.uint8)
    check(lambda t, i: t[::2][i], t, i)
    check(lambda t, i: t[255::-1][i], t, i)
    check(lambda t, i: t[100:400][i], t, i)
    check(lambda t, i: t.reshape(2, 256)[1, i], t, i)
    check(lambda t, i: t.reshape(2, 256)[np.arange(5)[:, None, None] % 2, i], t, i)
    check(lambda t, i: (t // 2)[i] + t[i // 2], t, i)
    check(lambda t, i: t[t[i]], t, i)


def test_a_table_that_changes_in_the_loop_is_read_again() -> None:
    def counted(i: Any) -> Any:
        seen = np.zeros(256, np.uint8)
        out = np.empty(i.shape, np.uint8)
        for y in range(len(i)):
            out[y] = seen[i[y]]
            seen[i[y, 0]] = y + 1
        return out

    check(counted, RNG.integers(0, 8, (40, 70)).astype(np.uint8))


def rows_by_tables(i: Any, gain: Any) -> Any:
    """Each row has its table, which is computed in the loop over rows."""
    levels = (np.arange(256, dtype=np.int32) * gain[:, None] // 100).astype(np.uint8)
    return np.take_along_axis(levels, i.astype(np.int64), 1) + i


@PICKS
def test_a_table_that_is_computed_in_a_loop_around_is_loaded_once_an_iteration() -> None:
    i, gain = RNG.integers(0, 256, (37, 301)).astype(np.uint8), RNG.integers(1, 100, 37).astype(np.int32)
    f = hjit.pipeline(rows_by_tables, cache="off")
    blocks = re.split(r"^[\w.]+:$", f.inspect_llvm(i, gain), flags=re.MULTILINE)
    picking = [b for b in blocks if "= call <64 x i8> @llvm.x86.avx512.vpermi2var" in b]
    assert picking and all(b.count("= load <64 x i8>") == 1 for b in picking), "that of the image alone"


def test_a_table_that_is_computed_in_a_loop_around_is_that_of_the_iteration() -> None:
    for columns in (1, 63, 301):
        i = RNG.integers(0, 256, (37, columns)).astype(np.uint8)
        check(rows_by_tables, i, RNG.integers(1, 100, 37).astype(np.int32))


@pytest.mark.parametrize("dtype", ["u1", "u2", "i4", "f4", "f8"])
def test_large_tables_of_a_loop_around_are_gathered_from(dtype: str) -> None:
    def f(i: Any, gain: Any) -> Any:
        levels = (np.arange(5000) * gain[:, None] % 113).astype(dtype)
        return np.take_along_axis(levels, i, 1) + np.take_along_axis(levels, 4999 - i, 1)

    check(f, RNG.integers(0, 5000, (19, 203)), RNG.integers(1, 100, 19))


def test_a_table_that_changes_between_two_loops_is_read_by_both() -> None:
    def f(i: Any) -> Any:
        t, first, second = np.zeros(256, np.uint8), np.empty(i.shape, np.uint8), np.empty(i.shape, np.uint8)
        for y in range(len(i)):
            first[y] = t[i[y]]
            t = t + i[y, 0]
            second[y] = t[i[y]]
        return first, second

    check(f, RNG.integers(0, 256, (40, 130)).astype(np.uint8))


@pytest.mark.parametrize("size", [0, 1, 100, 255])
def test_indices_outside_are_errors(size: int) -> None:
    f = hjit.pipeline(lambda t, i: t[i])
    i = np.zeros((3, 130), np.uint8)
    i[-1, -1] = size
    with pytest.raises(IndexError):
        f(np.zeros(size, np.uint8), i)


@PICKS
def test_lanes_are_picked_from_registers() -> None:
    i = RNG.integers(0, 256, (4, 133)).astype(np.uint8)
    for dtype in ("u1", "u2", "f4"):
        assert "vpermi2var" in hjit.pipeline(lambda t, i: t[i]).inspect_llvm(table(256, dtype), i), dtype
    assert "vpermi2var" not in hjit.pipeline(lambda t, i: t[i]).inspect_llvm(table(256, "f8"), i)
    assert "vpermi2var" not in hjit.pipeline(lambda t, i: t[i]).inspect_llvm(table(256, "u1"), i.astype(np.int16)), (
        "the index may be large"
    )


def test_large_tables_are_not() -> None:
    u1, u2 = np.dtype("u1"), np.dtype("u2")
    assert [table_registers(u1, n, 64) for n in (1, 64, 65, 2048, 2049)] == [1, 1, 2, 32, None]
    assert [table_registers(u2, n, 32) for n in (32, 1024, 1025)] == [1, 32, None]
    assert table_registers(u1, 1024, 8) is None, "a few single loads are sooner done"
    assert table_registers(u1, None, 64) is table_registers(np.dtype("f8"), 8, 8) is None


def test_the_default_schedule_fills_a_register() -> None:
    graph = canonical(lambda t, i: t[np.clip(i, 0, 1000)], table(1024, "u1"), np.zeros((50, 300), np.int16))

    def lanes(target: Target) -> list[int | None]:
        return [x.size for x in walk(default_schedule(graph, target)) if isinstance(x, Loop) and x.kind == "vector"]

    assert lanes(Target(64, frozenset({1}))) == [64]
    assert lanes(Target(64)) == [16]
