"""Random programs under searched schedules against NumPy; `tests.searched` runs as many as you like."""

from __future__ import annotations

import os
from typing import Any

import pytest

from hjit.errors import ScheduleError
from hjit.tuning import candidates
from hjit.tuning.choice import Choice
from tests import searched

PROGRAMS = int(os.environ.get("HJIT_FUZZ_SEARCHED", "12"))
BATCH = 3
FOUND = (  # seeds that failed once
    10,  # an unrolled dimension without elements
    164,  # a tile around a parallel loop
    1778,  # more copies of a body than there may be
    21773,  # a blank image less its mean: roundings are all that is left
    21,  # gathers in unrolled code: a block longer than there may be
)


@pytest.mark.parametrize("start", range(0, PROGRAMS, BATCH))
def test_random_programs(start: int) -> None:
    for seed in range(start, min(start + BATCH, PROGRAMS)):
        why = searched.failure(seed)
        assert why is None, f"seed {seed}: {why}"


@pytest.mark.parametrize("seed", FOUND)
def test_programs_that_failed_once(seed: int) -> None:
    assert searched.failure(seed) is None


@pytest.mark.parametrize("seed", [8, 7])
def test_a_schedule_that_is_refused_fails(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*_: Any) -> Any:
        raise ScheduleError("no")

    monkeypatch.setattr(candidates, "with_fixes", built)
    assert set((searched.failure(seed) or "").split("; ")) == {"refused: no"}
    monkeypatch.setattr(Choice, "check", built)
    assert set((searched.failure(seed) or "").split("; ")) == {"refused: no"}
