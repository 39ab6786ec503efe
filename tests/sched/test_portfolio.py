"""Searches of a space under several sets of rules: `hjit.sched.search.portfolio`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hjit.sched.language.tree import Loop, walk
from hjit.sched.search.portfolio import VARIATIONS, beam_searches, greedily, greedy_searches, variations
from hjit.sched.search.search import Options, presets
from tests.sched.test_space import Program, blurred, interleaved, pyramid


def chain(image: Any) -> Any:
    for _ in range(6):
        image = image[1:-1, 1:-1] + image[:-2, 1:-1] + image[2:, 1:-1] + image[1:-1, :-2] * 2 + image[1:-1, 2:]
    return image


FUNCTIONS = (blurred, pyramid, interleaved, chain)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_found_under_each_set_of_rules_is_legal_and_numpys(function: Callable[..., Any]) -> None:
    p = Program(function)
    searches = greedy_searches(p.space)
    assert len(searches) == len(VARIATIONS)
    for x in searches:
        assert x.found.best is not None
        np.testing.assert_allclose(p.result(x.found.best), p.function(p.image), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_cheapest_is_first_and_no_dearer_than_without_other_rules(function: Callable[..., Any]) -> None:
    p = Program(function)
    costs = [x.found.cost for x in greedy_searches(p.space)]
    assert costs == sorted(costs) and costs[0] <= greedily(p.space).cost


def test_costs_under_other_rules_are_those_of_the_space_itself() -> None:
    p = Program(chain)
    for x in greedy_searches(p.space):
        assert x.found.best is not None
        tree, inlined = x.found.best.tree, x.found.best.inlined
        assert x.found.cost == pytest.approx(Program(chain).space.schedule_cost(tree, inlined), rel=1e-4)


def test_stricter_rules_leave_the_tiles_of_producers_out() -> None:
    p = Program(chain)
    for space, changed in zip(variations(p.space), VARIATIONS, strict=True):
        assert space.rules.producer_tiles is changed.get("producer_tiles", True)
        best = greedily(space).best
        assert best is not None
        for nest in best.tree.children:
            sizes = [x for x in walk(nest) if isinstance(x, Loop) and x.kind == "serial" and x.size is not None]
            inner = {(x.stage, x.dim) for x in sizes}
            assert space.rules.producer_tiles or len(sizes) == len(inner)  # at most those of templates


def test_searches_after_the_end_are_left_out_but_for_one() -> None:
    p = Program(chain)
    assert len(greedy_searches(p.space, further=lambda: True)) == 1
    (only,) = greedy_searches(p.space, lambda: True)
    assert only.found.record.stopped and only.found.cost < math.inf


def test_beams_search_each_space_with_its_own_options() -> None:
    p = Program(chain)
    asked: list[int] = []

    def options(space: Any, number: int) -> Any:
        asked.append(number)
        return Options(passes=2, buckets=space.buckets)

    spaces = variations(p.space)
    beams = beam_searches(spaces, presets(4)["beam"], options)
    assert asked == [0, 1, 2, 3] and len({id(x.buckets) for x in spaces}) == 4
    assert [x.found.cost for x in beams] == sorted(x.found.cost for x in beams)
