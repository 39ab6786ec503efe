"""``python -m benchmarks reach``: which schedules are in the space of searches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchmarks import reach
from hjit.sched.language.tree import Loop, Node, Root, with_children
from hjit.sched.search.portfolio import greedy_searches
from tests.sched.test_space import Program, blurred, pyramid


@pytest.mark.parametrize("function", [blurred, pyramid])
def test_what_searches_find_is_in_the_space(function: Callable[..., Any]) -> None:
    p = Program(function)
    for x in greedy_searches(p.space):
        assert x.found.best is not None
        assert reach.stages_elsewhere(Program(function).space, x.found.best.tree) == 0


def test_stages_with_other_loops_are_counted() -> None:
    p = Program(blurred)
    (best, *_) = greedy_searches(p.space)
    assert best.found.best is not None
    tree = best.found.best.tree
    inlined = best.found.best.inlined

    def twice(node: Node) -> Node:
        """Each parallel loop in a serial one."""
        if isinstance(node, Loop) and node.kind == "parallel":
            return replace(node, kind="serial", children=(replace(node, size=8),))
        return with_children(node, tuple(map(twice, node.children))) if hasattr(node, "children") else node

    other = twice(tree)
    assert isinstance(other, Root)
    assert reach.stages_elsewhere(Program(blurred).space, other) == len(p.graph.stages) - len(inlined)


def test_the_default_schedule_of_an_application_is_found_and_shown() -> None:
    numbers = reach.run(["blur"], small=True)
    (row,) = numbers["rows"]
    assert row["default"] == {"stages": 2, "elsewhere": 0} and row["by_hand"] is None
    assert "blur" in reach.table(numbers) and "in the space" in reach.table(numbers)
