"""How many vectors and single elements features say that a schedule computes is what the lowered loops compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from hjit.model.feature_names import SCHEDULE
from tests.sched.loop_counts import stored
from tests.sched.lowered import lowered

VECTORS, SCALARS, TASKS = map(SCHEDULE.index, ("num_vectors", "num_scalars", "inner_parallelism"))


@dataclass(frozen=True)
class Computed:
    """A stage under a schedule: vectors and single elements in all, as its loops run and by its features."""

    program: int
    origin: str
    stage: str
    ran: float
    expected: float

    @property
    def ratio(self) -> float:
        return self.ran / self.expected


def computed(program: int, schedules: int) -> Iterator[Computed]:
    """Of the stages of a random program under some schedules."""
    for x in lowered(program, 200 * 200, schedules, threads=1, passes=()):
        tasks = {
            n.stage: max(int(x.features[n.stage][TASKS]), 1) if n.stage in x.features else 1 for n in x.nests.nests
        }
        for stage, s in stored(x.nests, x.sizes, tasks).items():
            if stage in x.features:
                expected = x.features[stage][VECTORS] + x.features[stage][SCALARS]
                yield Computed(program, x.origin, stage, s.vectors + s.scalars, max(expected, 1.0))


def judged(programs: Sequence[int], schedules: int) -> None:
    """Most are the same; pieces shorter than a vector, and what tasks compute twice, are means in features."""
    found = [x for seed in programs for x in computed(seed, schedules)]
    assert len(found) > 4 * len(programs)
    apart = [x for x in found if not 1 / 1.3 <= x.ratio <= 1.3]
    far = [x for x in found if not 1 / 3 <= x.ratio <= 3]
    assert len(apart) <= 0.25 * len(found), apart
    assert len(far) <= 0.03 * len(found), far
    assert abs(np.median(np.log([x.ratio for x in found]))) < 0.02, apart


def test_loops_of_random_schedules() -> None:
    judged(range(20, 23), 3)


@pytest.mark.slow
def test_loops_of_two_thousand_schedules() -> None:
    judged(range(1000, 1500), 4)
