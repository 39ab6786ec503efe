"""Recurrences keep what their iterations store in registers, and give NumPy's numbers."""

from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.lower.loopir import Block, For, If, Store
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.passes.scalar_replacement import carried, replace_scalars
from hjit.kernels.lower.program import Buffer, Nest
from hjit.sched.language.memory import Layout
from hjit.sched.nests.thresholds import SCAN_ROWS
from hjit.trace.ir.expressions import Load, Op
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import ONE, ZERO, Poly, Var, poly
from tests.numpy_check import check

F4 = np.dtype("f4")
I, J = Var("i"), Var("j")
RNG = np.random.default_rng(3)


def load(*index: Poly, source: str = "y") -> Load:
    return Load(source, index, F4)


def put(index: tuple[Poly, ...], *args: Load, atomic: str | None = None) -> Store:
    return Store("y", index, Op("add", args, F4), atomic)


def loop(*puts: Store, step: int = 1, limit: Poly | None = None) -> For:
    return For(I, poly(0), poly(J), step, (Block(puts),), limit)


i, j, x = poly(I), poly(J), load(poly(I), source="x")


def test_what_the_iterations_before_stored_is_kept() -> None:
    p = put((i + 2,), load(i + 1), load(i), x)
    (kept,) = carried(loop(p))
    assert kept.store == p and kept.loads == {1: load(i + 1), 2: load(i)}


def test_loops_of_other_steps_and_directions_keep_it_too() -> None:
    assert carried(loop(put((i,), load(i - 3), x), step=3))[0].loads == {1: load(i - 3)}
    assert carried(loop(put((j - i,), load(j - i + 1), x)))[0].loads == {1: load(j - i + 1)}


def test_rows_side_by_side_keep_their_own() -> None:
    found = carried(loop(put((j, i + 1), load(j, i)), put((j + 1, i + 1), load(j + 1, i))))
    assert [x.loads for x in found] == [{1: load(j, i)}, {1: load(j + 1, i)}]


@pytest.mark.parametrize(
    "s",
    [
        loop(put((i + 9,), load(i), x)),  # too long ago
        loop(put((i,), load(i + 1), x)),  # not yet
        loop(put((j,), load(j), x)),  # always the same element
        loop(put((i // 2,), load((i - 1) // 2), x)),  # some elements twice
        loop(put((i + 1,), load(i), x), put((i + 2,), x, x)),  # another store comes between
        loop(put((i + 1,), load(i), x), put((j,), x, x)),  # it may
        loop(put((i + 1,), load(i), x, atomic="add")),
        loop(put((i + 1,), load(i), x), limit=j),  # iterations are repeated
        For(I, poly(0), j, 1, (loop(put((i + 1,), load(i), x)),)),
    ],
)
def test_nothing_else_is_kept(s: For) -> None:
    assert carried(s) == []


def second_order(a: Any) -> Any:
    y = a.copy()
    for k in range(2, a.shape[1]):
        y[:, k] = a[:, k] * 0.5 + y[:, k - 1] * 0.3 + y[:, k - 2] * 0.2
    return y


def every_third(a: Any) -> Any:
    y = a.copy()
    for k in range(3, a.shape[1]):
        y[:, k] += y[:, k - 3] * 0.5
    return y


def backwards(a: Any) -> Any:
    y = a.copy()
    for k in range(a.shape[1] - 2, -1, -1):
        y[:, k] = np.maximum(y[:, k + 1] - 1, a[:, k])
    return y


def pixels(a: Any) -> Any:
    y = np.zeros_like(a)
    for r in range(a.shape[0]):
        for c in range(1, a.shape[1]):
            y[r, c] = y[r, c - 1] * 0.25 + a[r, c]
    return y


def flags(a: Any) -> Any:
    return np.logical_or.accumulate(a > 0.99, axis=1)


SCANS = (
    second_order, every_third, backwards, pixels, flags,
    lambda a: np.cumsum(a, axis=1),
    lambda a: np.cumsum((a * 255).astype(np.uint8), axis=1, dtype=np.uint8),
    lambda a: np.maximum.accumulate(a[:, ::-1], axis=1),
    lambda a: np.cumsum(a.reshape(-1)),
    lambda a: np.cumsum(a.astype(np.float16), axis=1, dtype=np.float16),
    lambda a: np.cumsum(np.stack([a, a * 2], -1), axis=1),
)  # fmt: skip


@pytest.mark.parametrize("f", SCANS)
@pytest.mark.parametrize("shape", [(13, 40), (SCAN_ROWS - 1, 7), (4, 1), (5, 2), (1, 3), (9, 4)])
def test_scans_are_numpys(f: Any, shape: tuple[int, int]) -> None:
    check(f, RNG.random(shape).astype(np.float32))


def test_scans_along_rows_do_several_rows_at_once() -> None:
    a = RNG.random((30, 50)).astype(np.float32)
    f = hjit.pipeline(lambda a: np.cumsum(a, axis=1), cache="off")
    assert f"unroll add.d0 of {SCAN_ROWS}" in str(f.tree(a))
    assert str(f.loops(a)).count("register %add.before") >= SCAN_ROWS


def of_rows(y: Any) -> Any:
    return y[:-2] + y[1:-1] * 2 + y[2:]


FUSED = (
    lambda a: of_rows(np.cumsum(a, axis=1)),
    lambda a: of_rows(second_order(a)),
    lambda a: of_rows(np.minimum.accumulate((a * 255).astype(np.uint8)[:, ::-1], axis=1)),
)


@pytest.mark.parametrize("f", FUSED)
def test_recurrences_along_rows_of_circular_buffers_are_in_registers(f: Any) -> None:
    a = RNG.random((30, 50)).astype(np.float32)
    assert " circular" in (loops := str(hjit.pipeline(f, cache="off").loops(a)))
    assert loops.count(".before") >= SCAN_ROWS
    for shape in ((30, 50), (3, 2), (4, 1), (9, 5)):
        check(f, a[: shape[0], : shape[1]].copy())


@pytest.mark.parametrize(
    ("s", "is_kept"),
    [
        (loop(put((j, i + 1), load(j, i)), put((j + 1, i + 1), load(j + 1, i))), True),
        (loop(put((j, i + 1), load(j, i)), put((j + 4, i + 1), load(j + 4, i))), False),  # in the same place
        (loop(put((i + 1, j), load(i, j))), False),  # round and round
    ],
)
def test_elements_of_a_circular_buffer_that_share_a_place_are_not(s: For, is_kept: bool) -> None:
    buffer = Buffer("y", (ZERO, ZERO), (poly(4), j), Layout(), fold=0)
    nest = Nest("y", (s,), None, ONE, buffers={"y": buffer})
    (found,) = replace_scalars(nest, Graph((), (), (), ()), Machine()).body
    assert isinstance(found, If) == is_kept
