"""Searches of a space under several sets of rules: `hjit.sched.search.portfolio`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hjit.sched.language.tree import Loop, computes, walk
from hjit.sched.search.portfolio import SAMPLED, VARIATIONS, beam_searches, greedily, greedy_searches, variations
from hjit.sched.search.search import Options, presets
from hjit.sched.search.space import Space
from tests.sched.test_space import Program, blurred, interleaved, pyramid


def chain(image: Any) -> Any:
    for _ in range(6):
        image = image[1:-1, 1:-1] + image[:-2, 1:-1] + image[2:, 1:-1] + image[1:-1, :-2] * 2 + image[1:-1, 2:]
    return image


def shifts(image: Any) -> Any:
    """Weights by the differences of the image to shifted ones, as non-local means have them."""
    total, weights = np.zeros_like(image[3:-3, 3:-3]), np.zeros_like(image[3:-3, 3:-3])
    for dy in range(3):
        for dx in range(3):
            shifted = image[dy : dy + image.shape[0] - 2, dx : dx + image.shape[1] - 2]
            away = (shifted - image[1:-1, 1:-1]) ** 2
            rows = away[:-4] + away[1:-3] + away[2:-2] + away[3:-1] + away[4:]
            weight = np.exp(-(rows[:, :-4] + rows[:, 1:-3] + rows[:, 2:-2] + rows[:, 3:-1] + rows[:, 4:]))
            total, weights = total + weight * shifted[2:-2, 2:-2], weights + weight
    return total / weights


def filtered(image: Any) -> Any:
    """A recurrence along the rows of a blurred image, and what reads it."""
    soft = (image[:-1] + image[1:]) / 2
    out = soft.copy()
    for x in range(1, image.shape[1]):
        out[:, x] = 0.25 * soft[:, x] + 0.75 * out[:, x - 1]
    return np.sqrt(np.abs(out)) + soft


def planes(image: Any) -> Any:
    """Three planes, blurred."""
    colours = np.stack([image, image * image, np.abs(image)])
    rows = colours[:, :-2] + 2 * colours[:, 1:-1] + colours[:, 2:]
    return rows[:, :, :-2] + 2 * rows[:, :, 1:-1] + rows[:, :, 2:]


FUNCTIONS = (blurred, pyramid, interleaved, chain, shifts, filtered, planes)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_found_under_each_set_of_rules_is_legal_and_numpys(function: Callable[..., Any]) -> None:
    p = Program(function)
    searches = greedy_searches(p.space, sets=SAMPLED)
    assert len(searches) == len(SAMPLED) > len(VARIATIONS)
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
    assert asked == [*range(len(VARIATIONS))] and len({id(x.buckets) for x in spaces}) == len(VARIATIONS)
    assert [x.found.cost for x in beams] == sorted(x.found.cost for x in beams)


def test_scans_are_computed_inside_loops_of_what_reads_them() -> None:
    p = Program(filtered)
    scans = [s.name for s in p.graph.stages if any(d.order == "sequential" for d in s.definitions)]
    assert scans
    best = greedy_searches(p.space)[0].found.best
    assert best is not None
    shared = [n for nest in best.tree.children for n in scans if len({c.stage for c in computes(nest)} - {n}) > 0]
    assert shared


def test_planes_are_loops_where_the_rule_says_so() -> None:
    p = Program(planes)
    for plane_loops in (False, True):
        space = Space.under(p.space, replace(p.space.rules, plane_loops=plane_loops))
        kinds = {
            x.kind
            for s in p.graph.stages
            for t in space._templates(s, (0,), True, ())
            for x in walk(t.node)
            if isinstance(x, Loop) and x.dim == 0
        }
        assert "unroll" in kinds and (kinds == {"unroll"}) is not plane_loops
