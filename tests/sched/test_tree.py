"""Schedule trees: printed, stored as JSON, and checked."""

from typing import Any

import numpy as np
import pytest

from hjit.errors import ScheduleError
from hjit.sched.default.schedules import default_schedule
from hjit.sched.language.check import check_tree
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Compute, Loop, Root, Store, from_json
from tests.trace.test_canonical import canonical


def blur(a: Any) -> Any:
    rows = (a[:-2] + a[1:-1] + a[2:]) * 0.3 + np.sqrt(a[1:-1])
    return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]


GRAPH = canonical(blur, np.ones((40, 50), np.float32))
TREE = default_schedule(GRAPH, Target(64))


def test_the_default_schedule_is_well_formed() -> None:
    check_tree(TREE, GRAPH)


def test_json_round_trip() -> None:
    assert from_json(TREE.to_json()) == TREE


def test_it_prints_as_the_nests_of_the_papers() -> None:
    head = GRAPH.outputs[0]
    assert str(TREE) == "\n".join(
        [
            "root",
            f"  store {head}",
            "    store rows",
            f"      parallel {head}.d0",
            "        serial rows.d0",
            "          serial rows.d1",
            "            vector rows.d1 of 16",
            "              compute rows",
            f"        serial {head}.d1",
            f"          vector {head}.d1 of 16",
            f"            compute {head}",
        ]
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '["loop"]',
        '["root", [["compute", 3, []]]]',
        '["compute", "a", [0]]',
        '["root", [["loop", "a", 0, "warp", null, []]]]',
    ],
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError):
        from_json(text)


def leaf(*loops: int, stage: str = "s") -> Any:
    node: Any = Compute(stage, (0,))
    for k in reversed(loops):
        node = Loop(stage, k, "serial", None, (node,))
    return node


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (lambda s: Root((leaf(0, 1, stage=s),)), "storage"),
        (lambda s: Root((Store(s, (leaf(0, stage=s),)),)), "dimensions"),
        (lambda s: Root((Store("nothing", (leaf(0, 1, stage="nothing"),)),)), "no such stage"),
        (lambda s: Root(()), "computed once"),
        (lambda s: Root((Store(s, (Loop(s, 0, "serial", 4, (leaf(0, 1, stage=s),)),)),)), "no outer loop"),
        (
            lambda s: Root(
                (Store(s, (Loop(s, 0, "serial", None, (Loop(s, 1, "parallel", None, (Compute(s, (0,)),)),)),)),)
            ),
            "outermost",
        ),
        (lambda s: Root((Store(s, (Loop(s, 0, "unroll", None, (leaf(1, stage=s),)),)),)), "known length"),
        (lambda s: Root((Store(s, (Loop(s, 0, "vector", None, (leaf(1, stage=s),)),)),)), "has a size"),
        (lambda s: Root((Store(s, (leaf(0, 1, stage=s), leaf(0, 1, stage=s))),)), "computed twice"),
        (lambda s: Root((Store(s, (leaf(0, 1, stage=s),), (1, 0)),)), "in C order"),
    ],
)
def test_a_broken_tree_says_what_is_wrong(tree: Any, message: str) -> None:
    graph = canonical(lambda a: a + 1, np.ones((40, 50), np.float32))
    with pytest.raises(ScheduleError, match=message):
        check_tree(tree(graph.outputs[0]), graph)
