"""Scatters by indices that count up every so many elements: blocks that are independent, in NumPy's order, at every size."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.sched.language.tree import Compute, Loop, walk
from tests.numpy_check import check

RNG = np.random.default_rng(0)


def cells(img: Any, s: int, oy: int, ox: int) -> Any:
    h, w = img.shape
    grid = np.zeros(((h + oy) // s + 1, (w + ox) // s + 1, 16), np.float32)
    y, x = (np.arange(h)[:, None] + oy) // s, (np.arange(w) + ox) // s
    np.add.at(grid, (y, x, (img * 15).astype(np.int64)), img)
    return grid


def last_ones(img: Any, s: int, oy: int, ox: int) -> Any:
    """Where an element is hit twice, the last value stays."""
    h, w = img.shape
    out = np.zeros(((h + oy) // s + 1, (w + ox) // s + 1, 16), np.float32)
    out[(np.arange(h)[:, None] + oy) // s, (np.arange(w) + ox) // s, (img * 15).astype(np.int64)] = img
    return out


def by_row(img: Any) -> Any:
    """A histogram of each row."""
    counts = np.zeros((len(img), 256), np.int32)
    np.add.at(counts, (np.arange(len(img))[:, None], (img * 255).astype(np.uint8)), 1)
    return counts


def sums_and_counts(img: Any) -> Any:
    h, w = img.shape
    grid = np.zeros((2, 16, h // 8, w // 8), np.float32)
    place = (img * 15).astype(np.int32), np.arange(h)[:, None] // 8, np.arange(w) // 8
    np.add.at(grid[0], place, img)
    np.add.at(grid[1], place, np.float32(1.0))
    return grid


def updates(pipe: Any, *args: Any) -> list[tuple[Compute, Loop]]:
    """The computations of updates, each with the outermost of its loops."""
    found: dict[Compute, Loop] = {}
    for x in walk(pipe.tree(*args)[0]):
        for c in walk(x) if isinstance(x, Loop) else ():
            if isinstance(c, Compute) and 0 not in c.definitions and c.stage == x.stage:
                found.setdefault(c, x)
    return list(found.items())


@pytest.mark.parametrize("function", [cells, last_ones])
@pytest.mark.parametrize("shape", [(64, 96), (67, 99), (131, 40), (17, 5)])
def test_cells_of_any_size_and_offset(function: Any, shape: tuple[int, int]) -> None:
    img = RNG.random(shape, np.float32)
    for s, oy, ox in itertools.product((1, 2, 8), (0, 3), (0, 5)):
        check(function, img, s, oy, ox)


GRIDS = (
    lambda h, w: np.mgrid[:h, :w],
    lambda h, w: np.indices((h, w)),
    lambda h, w: np.meshgrid(np.arange(h), np.arange(w), indexing="ij"),
)


@pytest.mark.parametrize("grid", GRIDS)
def test_grids_of_indices(grid: Any) -> None:
    def function(img: Any) -> Any:
        y, x = grid(*img.shape)
        cells = np.zeros((img.shape[0] // 4 + 1, img.shape[1] // 4 + 1), np.float32)
        np.add.at(cells, (y // 4, x // 4), img)
        return cells

    img = RNG.random((130, 70), np.float32)
    pipe = check(function, img, num_threads=2)
    assert any(loop.kind == "parallel" for _, loop in updates(pipe, img))


@pytest.mark.parametrize("known", [False, True])
def test_rows_of_cells_run_in_parallel(known: bool) -> None:
    def function(img: Any) -> Any:
        h, w = (320, 240) if known else img.shape
        grid = np.zeros((h // 8, w // 8, 16), np.float32)
        np.add.at(grid, (np.arange(h)[:, None] // 8, np.arange(w) // 8, (img * 15).astype(np.int64)), img)
        return grid

    img = RNG.random((320, 240), np.float32)
    pipe = check(function, img, num_threads=2)
    ((_, loop),) = updates(pipe, img)
    assert loop.kind == "parallel" and loop.dim == 0


def test_histograms_of_rows_run_in_parallel() -> None:
    img = RNG.random((300, 77), np.float32)
    pipe = check(by_row, img, num_threads=2)
    ((_, loop),) = updates(pipe, img)
    assert loop.kind == "parallel"


def test_updates_of_separate_parts_share_their_loops_and_what_they_read() -> None:
    img = RNG.random((400, 320), np.float32)
    pipe = check(sums_and_counts, img, num_threads=2)
    ((compute, loop),) = updates(pipe, img)
    assert compute.definitions == (1, 2) and loop.kind == "parallel"


def test_a_new_size_compiles_nothing() -> None:
    pipe = hjit.pipeline(by_row, verify="off", cache="off")
    compiled = set()
    for n in (300, 200, 417):
        img = RNG.random((n, 33), np.float32)
        assert np.array_equal(pipe(img), by_row(img))
        compiled.add(pipe.stats.compilations)
    assert len(compiled) == 1


def test_a_scalar_that_the_blocks_depend_on_is_looked_at_again() -> None:
    pipe = hjit.pipeline(cells, verify="off", cache="off")
    img = RNG.random((90, 80), np.float32)
    for s in (8, 5, 8, 9):
        assert np.array_equal(pipe(img, s, 0, 0), cells(img, s, 0, 0))


@pytest.mark.parametrize(
    "index", [np.arange(40)[::-1].copy(), np.arange(40) * 2 % 40, np.arange(40) - 20, np.arange(40) // 3 * 2]
)
def test_other_indices_stay_what_they_are(index: Any) -> None:
    def function(a: Any) -> Any:
        out = np.zeros(40)
        np.add.at(out, index, a)
        out[index] *= 2
        return out

    check(function, RNG.random(40))


def test_indices_out_of_range_raise_what_numpy_raises() -> None:
    def function(a: Any) -> Any:
        out = np.zeros(30)
        np.add.at(out, np.arange(40), a)
        return out

    check(function, RNG.random(40))


def test_tables_of_blocks() -> None:
    def function(img: Any) -> Any:
        h = img.shape[0]
        out = np.zeros(h, np.float32)
        np.add.at(out, (np.arange(h) // 2)[np.arange(h) // 4], img[:, 0])
        return out

    check(function, RNG.random((64, 3), np.float32))


def test_a_table_that_is_too_short_raises_what_numpy_raises() -> None:
    def function(img: Any) -> Any:
        h = img.shape[0]
        out = np.zeros(h, np.float32)
        np.add.at(out, (np.arange(h) // 2)[: h // 4][np.arange(h) // 2], img[:, 0])
        return out

    check(function, RNG.random((64, 3), np.float32))
