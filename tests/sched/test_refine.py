"""Local search: schedules by transforms, cheaper than the one it starts from, and with NumPy's results."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hjit.errors import ScheduleError
from hjit.sched.default.schedules import default_schedule
from hjit.sched.language import transforms
from hjit.sched.language.check import check_loops, faults
from hjit.sched.language.tree import Compute, Loop, Root, Store
from hjit.sched.search.pruning import Rules
from hjit.sched.search.refine import Refined, Schedule, is_permitted, moves, random_walk, refined
from hjit.trace.ir.graph import Graph
from hjit.trace.passes.fusion import inline
from hjit.training.schedules import limited
from tests.sched.test_space import PROGRAMS, Program, blurred, turned

Array = np.ndarray[Any, Any]
COSTS = 400  # that the searches here ask


def by_default(p: Program) -> Schedule:
    return Schedule(default_schedule(p.graph, p.space.target), frozenset())


@functools.cache
def found(function: Callable[[Array], Array]) -> tuple[Program, float, Refined]:
    p = Program(function)
    start = by_default(p)
    return p, p.space.tree_cost(start.tree), refined(p.space, start, stop=limited(COSTS))


@pytest.mark.parametrize("function", PROGRAMS)
def test_it_finds_cheaper_schedules_that_are_legal(function: Any) -> None:
    p, before, after = found(function)
    assert after.moves > 0
    assert after.cost < before
    assert list(faults(after.schedule.tree, inline(p.graph, set(after.schedule.inlined)))) == []
    assert after.cost == pytest.approx(sum(p.space.costs_of_nests(after.schedule.tree, after.schedule.inlined)))


@pytest.mark.parametrize("function", PROGRAMS)
def test_what_it_finds_computes_what_numpy_does(function: Any) -> None:
    p, _, after = found(function)
    np.testing.assert_allclose(p.result(after.schedule), p.function(p.image), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", PROGRAMS)
def test_what_it_finds_breaks_no_rule(function: Any) -> None:
    p, _, after = found(function)
    assert all(is_permitted(p.space, nest, after.schedule.inlined) for nest in after.schedule.tree.children)


def unrolled(*sizes: int) -> Store:
    """The result of `turned` with so many rows and columns unrolled."""
    rows, columns = sizes
    inner = Loop("out_v", 0, "unroll", rows, (Loop("out_v", 1, "unroll", columns, (Compute("out_v", (0,)),)),))
    return Store("out_v", (Loop("out_v", 0, "parallel", None, (Loop("out_v", 1, "serial", None, (inner,)),)),))


def test_unrolled_bodies_stay_short_with_what_is_inlined_into_them() -> None:
    p = Program(turned)
    assert is_permitted(p.space, unrolled(8, 8), frozenset())
    assert not is_permitted(p.space, unrolled(8, 8), frozenset({"soft"}))  # two exponentials each
    assert is_permitted(p.space, unrolled(4, 4), frozenset({"soft"}))
    assert not is_permitted(p.space, unrolled(32, 8), frozenset())
    assert is_permitted(Program(turned, rules=Rules(unrolled=math.inf)).space, unrolled(32, 8), frozenset({"soft"}))


def test_vectors_stay_native() -> None:
    def nest(lanes: int) -> Store:
        return Store(
            "soft", (Loop("soft", 0, "serial", None, (Loop("soft", 1, "vector", lanes, (Compute("soft", (0,)),)),)),)
        )

    p = Program(turned)
    assert is_permitted(p.space, nest(16), frozenset())
    assert not is_permitted(p.space, nest(32), frozenset())


def test_the_same_seed_finds_the_same_schedule() -> None:
    p, _, after = found(blurred)
    again = refined(p.space, by_default(p), stop=limited(COSTS))
    assert again.schedule == after.schedule and again.cost == after.cost


def test_a_search_that_is_stopped_at_once_returns_what_it_started_from() -> None:
    p, before, _ = found(blurred)
    start = by_default(p)
    assert refined(p.space, start, stop=lambda: True) == Refined(start, before, 0, 0)


def test_inlined_stages_may_get_loops_of_their_own_again() -> None:
    p = Program(blurred)
    names = frozenset(s.name for s in p.graph.stages if p.space.may_inline(s))
    tree = default_schedule(inline(p.graph, set(names)), p.space.target)
    start = Schedule(tree, names)
    after = refined(p.space, start, stop=limited(COSTS))
    assert list(faults(after.schedule.tree, inline(p.graph, set(after.schedule.inlined)))) == []
    assert after.cost <= sum(p.space.costs_of_nests(tree, names))


@pytest.mark.parametrize("function", PROGRAMS)
def test_whether_loops_may_change_is_told_from_their_child_of_the_root(
    function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = {True: 0, False: 0}

    def both(root: Root, graph: Graph, child: int) -> None:
        is_legal = next(faults(root, graph), None) is None
        verdicts[is_legal] += 1
        if is_legal:
            check_loops(root, graph, child)
        else:
            with pytest.raises(ScheduleError):
                check_loops(root, graph, child)
            raise ScheduleError("not legal")

    p, rng = Program(function), random.Random(0)
    monkeypatch.setattr(transforms, "check_loops", both)
    start = by_default(p)
    for _ in range(6):
        for move in list(moves(p.space, start, rng))[:200]:
            try:
                move()
            except ScheduleError:
                continue
        start = random_walk(p.space, start, 2, rng)
    assert min(verdicts.values()) > 20
