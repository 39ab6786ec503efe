"""Random programs under random legal schedules against NumPy; `tests.schedules` runs as many as you like."""

from __future__ import annotations

import os

import pytest

from tests.schedules import failure

PAIRS = int(os.environ.get("HJIT_FUZZ_PAIRS", "40"))
BATCH = 10
FOUND = (  # pairs that failed once
    10,  # a fused dimension without elements
    1322,  # a recurrence in a buffer that the first iteration fills
    1,  # an update of an empty part, in vectors
    69,  # lanes that do nothing, in a window of one row
    100057,  # a tile shifted inwards, in which other stages are computed
    100106,  # two lanes of every fourth element
    100165,  # lanes that do nothing, far apart in memory
    1000448,  # a load from an array without elements, hoisted out of a loop that never runs
    1000461,  # a window that no iteration needs to its end, indexing a table
    1000677,  # more than one vector of lanes that may do nothing
    400346,  # a Python int added at indices of a uint64 array
    200285,  # an array without elements, reshaped
    605593,  # a part read from both ends, and a producer of it that is stored outside
    603034,  # a mask of one lane that LLVM knows
    501617,  # several vectors where there is nothing new in a window
    501908,  # vectors over a part that ends long before it begins
    305798,  # copies of vectors that must start at a multiple, and too few elements for all of them
    307201,  # a part that nothing is needed of, and what else reads its producer
    2000852,  # rows rounded up by themselves, in a tile that was rounded up as a whole: a producer lacked what they read
    2001224,  # an array without elements is changed: it does not overlap itself
    4016618,  # a window that moves on by more than its length, of a stage with updates: rows between shared memory with rows of the window
    pytest.param(
        4000920, marks=pytest.mark.slow
    ),  # a part of an array of which an iteration needs nothing: as many elements as none, where one was promised
    3010243,  # a negative number as int64 and as uint64
    3012548,  # the same, in what is decided by it
    500306,  # a fused loop over a part of its first dimension, and a window along it
    9506873,  # three values side by side in vectors of two lanes
    11000692,  # every second element in vectors of two lanes, of whose masks LLVM knows one lane
    11002043,  # the same, behind the end of the memory
    9001053,  # a window in a tile that is larger than what is needed, which its producer has no memory for
)


@pytest.mark.parametrize("start", range(0, PAIRS, BATCH))
def test_random_pairs(start: int) -> None:
    for seed in range(start, min(start + BATCH, PAIRS)):
        why = failure(seed)
        assert why is None, f"seed {seed}: {why}"


@pytest.mark.parametrize("seed", FOUND)
def test_pairs_that_failed_once(seed: int) -> None:
    assert failure(seed) is None
