"""Isomorphic stages, and searches that decide on one of each class: `hjit.sched.search.isomorphic_stages`."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from hjit.options import Options
from hjit.sched.language.build import at, own_nests
from hjit.sched.search.batches import State
from hjit.sched.search.isomorphic_stages import INLINED, IsomorphicStages, _renamed
from hjit.sched.search.portfolio import GREEDY, greedily
from hjit.sched.search.search import search
from hjit.sched.search.space import Space
from hjit.tuning import autoschedule
from tests.sched.test_portfolio import shifts
from tests.sched.test_space import Program, blurred


def under(p: Program, **changed: bool | int) -> Space:
    """The space of a program with the choices of isomorphic stages."""
    rules = replace(p.space.rules, **{"producer_tiles": False, "share_choices": True, **changed})
    return Space.under(p.space, rules)


def found(space: Space) -> State:
    best = greedily(space).best
    assert best is not None
    return best


def test_stages_of_a_loop_over_shifts_are_isomorphic() -> None:
    graph = Program(shifts).graph
    isomorphic = IsomorphicStages.of(graph)
    kinds = [isomorphic.kind[s.name] for s in graph.stages]
    assert sorted(kinds.count(k) for k in set(kinds)) == [1, 1, 2, 6]  # some differences are of one row or column less
    for name, other in isomorphic.before.items():
        assert isomorphic.kind[name] == isomorphic.kind[other]
        assert graph.stage(name).shape == graph.stage(other).shape


def test_stages_that_read_otherwise_are_not_isomorphic() -> None:
    graph = Program(blurred).graph
    assert not IsomorphicStages.of(graph).before


def test_isomorphic_stages_have_the_same_schedule() -> None:
    p = Program(shifts)
    best, isomorphic = found(under(p)), IsomorphicStages.of(p.graph)
    assert isomorphic.before
    for name, other in isomorphic.before.items():
        place = isomorphic.place(best.nests, best.inlined, name)
        assert place == isomorphic.place(best.nests, best.inlined, other)
        if place != INLINED:
            own = at(best.tree, own_nests(best.tree, name)[0])
            assert isomorphic.nest(best.nests, name, 0) == _renamed(own, name, name)


def test_decisions_that_follow_are_not_searched() -> None:
    p = Program(shifts)
    space, plain = under(p), under(p, share_choices=False)
    fewer, more = (search(x, x.start, GREEDY).record.expansions for x in (space, plain))
    assert 2 * fewer < more


def test_what_follows_but_is_forbidden_is_searched() -> None:
    p = Program(shifts)
    space = under(p)
    asked: list[bool] = []

    def never(batch: object) -> bool:
        asked.append(True)
        return False

    space._is_permitted = never  # type: ignore[method-assign,assignment]
    best = greedily(space)
    assert asked and best.best is not None and best.cost < inf
    assert best.cost == greedily(under(p, share_choices=False)).cost
    np.testing.assert_allclose(p.result(best.best), p.function(p.image), rtol=1e-5, atol=1e-5)


def test_frozen_stages_are_left_where_they_are() -> None:
    p = Program(shifts)
    names = [*IsomorphicStages.of(p.graph).before][:3]
    space = Space.freezing(under(p), dict.fromkeys(names, "root"), ())
    best = found(space)
    for name in names:
        place = IsomorphicStages.of(p.graph).place(best.nests, best.inlined, name)
        assert isinstance(place, tuple) and place[0] == ()


def test_a_graph_of_few_kinds_of_stages_is_searched_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    p = Program(shifts)
    assert p.space.kinds == 4 < len(p.graph.stages)
    asked: list[int] = []

    def frozen(space: Space, stop: object) -> Space:
        asked.append(len(space.graph.stages))
        return space

    monkeypatch.setattr(autoschedule, "frozen", frozen)
    for most in (4, 3):
        monkeypatch.setattr(autoschedule, "FEW_STAGES", most)
        autoschedule.searched(p.segment, p.variant.rec.sizes, Options(tune="greedy", cache="off"))
    assert asked == [len(p.graph.stages)]  # only where there are more kinds than few
