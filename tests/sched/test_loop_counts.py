"""How many vectors and single elements features say that a schedule computes is what the lowered loops compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from hjit.call.segments import TraceSegments
from hjit.errors import HjitError
from hjit.kernels.lower.lower import lower
from hjit.kernels.lower.program import Program
from hjit.kernels.runtime import features
from hjit.model import generator, network
from hjit.model.names import SCHEDULE
from hjit.options import Options
from hjit.pipeline import Pipeline
from hjit.training.cases import segment_of
from hjit.training.schedules import candidates
from hjit.tuning.autoschedule import space_of
from hjit.tuning.candidates import with_fixes
from hjit.tuning.choice import Choice
from hjit.tuning.decide import by_search
from tests.sched.loop_counts import stored

VECTORS, SCALARS, TASKS = map(SCHEDULE.index, ("num_vectors", "num_scalars", "inner_parallelism"))


@dataclass(frozen=True)
class Computed:
    """A stage under a schedule: vectors and single elements in all, as its loops run and by its features."""

    program: int
    origin: str
    stage: str
    lowered: float
    expected: float

    @property
    def ratio(self) -> float:
        return self.lowered / self.expected


def computed(program: int, schedules: int) -> Iterator[Computed]:
    """Of the stages of a random program under some schedules."""
    made = generator.random_program(program, 200 * 200)
    given = {"verify": "off", "cache": "off", "tune": False, "num_threads": 1}
    options = Options(on_unsupported="raise", **given)  # type: ignore[arg-type]
    variant = Pipeline(made.function, given).variant_of(tuple(made.inputs(program)), {}, options)
    if len(variant.graphs) != 1:
        return
    (graph,), sizes, cost = variant.graphs, variant.rec.sizes, network.random(program)
    space = space_of(segment_of(graph, options), sizes, options, cost)
    cut = TraceSegments(variant.trace, features.schedule_target(options.target))
    names = [s.name for s in graph.stages]

    def make(choice: Choice) -> Program:
        (segment,) = cut(choice.rewrites)
        tree = choice.of(segment).tree
        assert tree is not None
        return lower(segment.graph, tree, passes=())

    for origin, found in candidates(space, graph, schedules, program, cost):
        try:
            lowered, done = with_fixes(make, by_search({graph.outputs: found.tree}, found.inlined), cut)
        except HjitError:
            continue
        values = dict(zip(names, space.features(done.trees[graph.outputs], found.inlined), strict=True))
        tasks = {n.stage: max(int(values[n.stage][TASKS]), 1) if n.stage in values else 1 for n in lowered.nests}
        for stage, x in stored(lowered, sizes, tasks).items():
            if stage in values:
                expected = values[stage][VECTORS] + values[stage][SCALARS]
                yield Computed(program, origin, stage, x.vectors + x.scalars, max(expected, 1.0))


def judged(programs: range, schedules: int) -> None:
    """Most are the same; pieces shorter than a vector, and what tasks compute twice, are means in features."""
    found = [x for seed in programs for x in computed(seed, schedules)]
    assert len(found) > 4 * len(programs)
    apart = [x for x in found if not 1 / 1.3 <= x.ratio <= 1.3]
    far = [x for x in found if not 1 / 3 <= x.ratio <= 3]
    assert len(apart) <= 0.25 * len(found), apart
    assert len(far) <= 0.03 * len(found), far
    assert abs(np.median(np.log([x.ratio for x in found]))) < 0.02, apart


def test_loops_of_random_schedules() -> None:
    judged(range(20, 26), 3)


@pytest.mark.slow
def test_loops_of_two_thousand_schedules() -> None:
    judged(range(1000, 1500), 4)
