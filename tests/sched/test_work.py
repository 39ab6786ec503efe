"""How much work checks of schedules do, counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hjit.sched.language.check import check_tree
from hjit.sched.language.target import Target
from hjit.sched.nests.root_nests import root_schedule
from hjit.trace.ir.expressions import loads
from hjit.trace.ir.graph import Definition
from tests.trace.test_canonical import canonical


def looked_at(updates: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a check asks what a definition reads, where each update reads another stage."""

    def f(a: Any) -> Any:
        out = np.zeros((updates, a.shape[1]))
        for k in list(range(updates)):  # one after the other
            out[k] = np.cumsum(a[k] * (k + 2))
        return out

    asked: list[int] = []

    def sources(d: Definition) -> frozenset[str]:
        asked.append(1)
        return frozenset(x.source for x in loads(*d.exprs()))

    graph = canonical(f, np.ones((50, 60)))
    assert len(graph.stages) > updates
    tree = root_schedule(graph, Target(64))
    with monkeypatch.context() as m:
        m.setattr(Definition, "sources", property(sources))
        check_tree(tree, graph)
    return len(asked)


def test_checks_take_work_in_proportion_to_the_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = looked_at(10, monkeypatch), looked_at(40, monkeypatch)
    assert 0 < many <= 5 * few
