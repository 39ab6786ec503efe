"""Buckets of alike schedules, from coarse to fine, and tiles that are made for a producer."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

from hjit.sched.language.tree import Loop, computes, walk
from hjit.sched.search.batches import Batch, State
from hjit.sched.search.buckets import Buckets, _unique
from tests.sched.test_space import Program, blurred, product, pyramid

FINENESS = (0, 1, 2, 3, 4)


def families(program: Any, seed: int) -> list[Batch]:
    """Families after random decisions."""
    space, rng = program.space, random.Random(seed)
    state: State = space.start
    found = []
    while not state.batch.is_complete:
        batches = space.families(state)
        found += batches
        batch = rng.choice(batches)
        state = batch[rng.randrange(len(batch))]
    return found


@pytest.mark.parametrize("function", [blurred, pyramid, product])
def test_finer_buckets_are_parts_of_coarser_ones(function: Any) -> None:
    buckets = Buckets()
    p = Program(function)
    for batch in families(p, 1):
        numbers = [buckets(batch, f) for f in FINENESS]
        assert all(len(n) == len(batch) for n in numbers)
        for coarse, fine in itertools.pairwise(numbers):
            pairs = set(zip(fine.tolist(), coarse.tolist(), strict=True))
            assert len(pairs) == len(set(fine.tolist())), "states of one fine bucket are in one coarse bucket"


def test_sizes_are_told_apart_when_it_is_fine_enough_only() -> None:
    buckets = Buckets()
    batch = max(families(Program(blurred), 2), key=len)
    counts = [len(set(buckets(batch, f).tolist())) for f in range(8)]
    assert counts[0] == 1 < counts[-1] and counts == sorted(counts)


def test_structures_differ_at_any_fineness() -> None:
    buckets, p = Buckets(), Program(blurred)
    step: dict[int, list[Batch]] = {}
    for batch in families(p, 3):
        step.setdefault(batch.step, []).append(batch)
    for alike in step.values():
        kinds = {(b.inlined, tuple(str([c.stage for c in computes(n)]) for n in b.nests)) for b in alike}
        for f in FINENESS:
            assert len({n for b in alike for n in buckets(b, f).tolist()}) >= len(kinds)


def has_tiles(state: State) -> bool:
    return any(isinstance(x, Loop) and x.size is not None and x.kind == "serial" for x in walk(state.tree))


def together(state: State) -> bool:
    """Are two stages computed in one nest?"""
    return any(len({c.stage for c in computes(nest)}) > 1 for nest in state.nests)


def test_consumers_get_tiles_for_a_producer() -> None:
    """Of a consumer without tiles there are states in which it has some, and the producer is computed for each."""
    space = Program(blurred).space
    (first, *_) = space.families(space.start)
    state = first[0]
    assert not has_tiles(state) and not together(state)
    assert any(has_tiles(b[len(b) - 1]) and together(b[len(b) - 1]) for b in space.families(state))


def test_numbers_do_not_depend_on_what_was_asked_before() -> None:
    p = Program(blurred)
    (a, *_, b) = families(p, 4)
    one, other = Buckets(), Buckets()
    first = [one(a, 2), one(b, 2)]
    second = [other(b, 2), other(a, 2)][::-1]
    for x, y in zip(first, second, strict=True):
        assert [np.flatnonzero(x == n).tolist() for n in dict.fromkeys(x)] == [
            np.flatnonzero(y == n).tolist() for n in dict.fromkeys(y)
        ]


def test_rows_of_sizes_are_told_apart_as_numpy_does() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        rows = rng.integers(-3, 4, rng.integers(1, (40, 4), endpoint=True))
        found, which = _unique(rows)
        expected, numpys = np.unique(rows, axis=0, return_inverse=True)
        assert np.array_equal(found, expected) and np.array_equal(which, numpys.reshape(-1))
