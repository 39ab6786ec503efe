"""Measured time as a cost of complete schedules."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hjit.errors import HjitError
from hjit.options import Options
from hjit.sched.search.pruning import Rules
from hjit.sched.search.refine import Schedule
from hjit.sched.search.search import Options as SearchOptions
from hjit.sched.search.search import presets, search
from hjit.sched.search.timed import Timed
from hjit.tuning.decide import by_search
from hjit.tuning.samples import compiled, timed
from tests.sched.test_space import Program, blurred


def test_a_search_finds_the_schedule_that_ran_fastest() -> None:
    p = Program(blurred, rules=Rules(tiles=1))

    def seconds(schedule: Schedule) -> float:
        try:
            choice = by_search({p.graph.outputs: schedule.tree}, schedule.inlined)
            bound, _ = compiled(p.variant, choice, Options(tune=False, cache="off"))
        except HjitError:
            return math.inf
        return timed(bound, [p.image], bound.new_outputs())

    tree = Timed(p.space, seconds)
    found = search(tree, p.space.start, presets(3)["beam"], SearchOptions(expansions=8))
    assert found.best is not None and len(tree.measured) > 1
    assert found.cost == min(tree.measured.values()) == tree.measured[Schedule(found.best.tree, found.best.inlined)]


def test_each_schedule_is_measured_once_and_forbidden_ones_never() -> None:
    p = Program(blurred)
    asked: list[Schedule] = []

    def seconds(schedule: Schedule) -> float:
        asked.append(schedule)
        return float(len(asked))

    tree = Timed(p.space, seconds)
    found = search(tree, p.space.start, presets(4)["beam"], SearchOptions(passes=2, buckets=p.space.buckets))
    assert found.cost == 1.0 and len(asked) == len(set(asked)) == len(tree.measured)
    for schedule in asked:
        assert sum(p.space.costs_of_nests(schedule.tree, schedule.inlined)) < math.inf
    some = [(f, np.arange(len(f))) for f in p.space.families(p.space.start)]
    for ours, predicted in zip(tree.cost(some), p.space.cost(some), strict=True):
        assert list(ours) == pytest.approx(list(predicted))  # of partial ones what the model predicts
