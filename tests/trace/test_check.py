"""The rules of a well-formed Graph: for each of them a Graph that breaks it, and no other rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hjit.errors import CompileError
from hjit.trace.ir.check import DEFINITION_RULES, EXPR_RULES, GRAPH_RULES, INDEX_RULES, check_graph, faults
from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, Op, ScalarRef, select
from hjit.trace.ir.graph import Definition, Graph, Input, Scalar, Stage, identity
from hjit.trace.ir.poly import Dim, Sym, Var, poly
from hjit.trace.passes import canonical

F4, F8 = np.dtype("f4"), np.dtype("f8")
N = (poly(Sym("h")), poly(Sym("w")))
HERE = identity(2)
IMG = Load("img", HERE, F4)


def graph(value: Expr, *updates: Definition, **changes: Any) -> Graph:
    """``out = value``, with the input `img`, the stage `twice` before it and the stage `total` behind it."""
    twice = Stage("twice", F4, N, Op("add", (IMG, IMG), F4))
    out = Stage("out", F4, N, value, updates)
    own = Load("total", (), F4)
    add = Definition((), N, (), Op("add", (own, Load("out", HERE, F4)), F4), "add")
    total = Stage("total", F4, (), Const(0, F4), (add,))
    made = Graph((Input("img", F4, N, (None, 1)),), (Scalar("s0", F4),), (twice, out, total), ("out", "total"))
    return replace(made, **changes)


def with_stage(number: int, **changes: Any) -> tuple[Stage, ...]:
    stages = list(graph(IMG).stages)
    stages[number] = replace(stages[number], **changes)
    return tuple(stages)


def with_update(**changes: Any) -> tuple[Stage, ...]:
    (add,) = graph(IMG).stages[2].updates
    return with_stage(2, updates=(replace(add, **changes),))


def load(source: str, *index: Any, dtype: Any = F4) -> Load:
    return Load(source, tuple(map(poly, index)), dtype)


BROKEN = {
    "names_are_unique": graph(IMG, stages=(*graph(IMG).stages, Stage("twice", F4, N, IMG))),
    "outputs_are_stages": graph(IMG, outputs=("out", "img")),
    "stages_are_defined": graph(IMG, stages=with_stage(0, initial=None)),
    "target_has_an_index_per_axis": graph(IMG, Definition(N, (), HERE[:1], IMG)),
    "value_has_the_dtype": graph(Cast(IMG, F8)),
    "order_is_the_operation": graph(IMG, stages=with_update(order="maximum")),
    "joined_updates_are_alike": graph(IMG, stages=with_update(joined=True)),
    "dimensions_exist": graph(load("img", Dim(0), Dim(2))),
    "loop_variables_are_lowered": graph(load("img", Dim(0), Var("x"))),
    "sources_exist": graph(load("image", Dim(0), Dim(1))),
    "sources_are_computed_first": graph(Op("add", (IMG, load("total")), F4)),
    "loads_have_an_index_per_axis": graph(load("img", Dim(0))),
    "loads_have_the_dtype": graph(Cast(load("img", Dim(0), Dim(1), dtype=F8), F4)),
    "scalars_exist": graph(ScalarRef("s1", F4)),
    "selects_have_one_dtype": graph(Op("select", (IMG, IMG, IMG), F4)),
}
ALSO_BROKEN = {
    "a stage that loads itself before it has a value": ("sources_are_computed_first", graph(load("out", *HERE))),
    "a scalar of another dtype": ("scalars_exist", graph(Cast(ScalarRef("s0", F8), F4))),
    "a dimension inside of a division": ("dimensions_exist", graph(load("img", Dim(0), poly(Dim(2)) // 3))),
    "a dimension of a target": ("dimensions_exist", graph(IMG, Definition(N, (), (poly(Dim(0)), poly(Dim(2))), IMG))),
    "a dimension of an index as a value": ("dimensions_exist", graph(Cast(Index(poly(Dim(2))), F4))),
    "a reduction whose own element is the second operand": (
        "order_is_the_operation",
        graph(IMG, stages=with_update(value=Op("add", (Load("out", HERE, F4), Load("total", (), F4)), F4))),
    ),
    "a reduction of what reads its own stage": (
        "order_is_the_operation",
        graph(IMG, stages=with_update(value=Op("add", (Load("total", (), F4), Load("total", (), F4)), F4))),
    ),
    "a select between dtypes": ("selects_have_one_dtype", graph(select(Const(True, "?"), IMG, Cast(IMG, F8)))),
}


def test_every_rule_has_a_graph_that_breaks_it() -> None:
    assert list(BROKEN) == [r.__name__ for r in (*GRAPH_RULES, *DEFINITION_RULES, *INDEX_RULES, *EXPR_RULES)]


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_found(rule: str) -> None:
    assert {name for name, _ in faults(BROKEN[rule])} == {rule}
    with pytest.raises(CompileError, match=rf"invalid Graph after fuse: {rule}: "):
        check_graph(BROKEN[rule], "fuse")


READS_TWICE = graph(Op("add", (ScalarRef("s0", F4), load("twice", *HERE)), F4))
CHANGED_AROUND = {  # and the stage `out` stays as it is
    "loads_have_the_dtype": replace(
        READS_TWICE, stages=(Stage("twice", F8, N, Cast(IMG, F8)), *READS_TWICE.stages[1:])
    ),
    "loads_have_an_index_per_axis": replace(
        READS_TWICE, stages=(Stage("twice", F4, N[:1], load("img", Dim(0), 0)), *READS_TWICE.stages[1:])
    ),
    "sources_are_computed_first": replace(READS_TWICE, stages=tuple(READS_TWICE.stages[k] for k in (1, 0, 2))),
    "sources_exist": replace(READS_TWICE, stages=READS_TWICE.stages[1:]),
    "scalars_exist": replace(READS_TWICE, scalars=()),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_it_is_found_where_all_else_is_as_it_was(rule: str) -> None:
    assert {name for name, _ in faults(BROKEN[rule], graph(IMG))} == {rule}


@pytest.mark.parametrize("rule", CHANGED_AROUND)
def test_it_is_found_where_only_what_a_stage_reads_has_changed(rule: str) -> None:
    assert not list(faults(READS_TWICE)) and not list(faults(READS_TWICE, READS_TWICE))
    assert {name for name, _ in faults(CHANGED_AROUND[rule], READS_TWICE)} == {rule}


@pytest.mark.parametrize("what", ALSO_BROKEN)
def test_so_are_other_ways_to_break_it(what: str) -> None:
    rule, broken = ALSO_BROKEN[what]
    assert {name for name, _ in faults(broken)} == {rule}


def test_well_formed_graphs_pass() -> None:
    own = Definition(N, (), HERE, Op("add", (load("out", *HERE), load("twice", *HERE)), F4))
    chosen = select(Op("less", (ScalarRef("s0", F4), IMG), "?"), IMG, Const(1, F4))
    for g in (graph(IMG), graph(IMG, own), graph(chosen), graph(Cast(Index(HERE[1]), F4))):
        check_graph(g)


def test_graphs_are_checked_after_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks_it(g: Graph) -> Graph:
        return BROKEN["sources_exist"]

    monkeypatch.setattr(canonical, "PASSES", (breaks_it, canonical.drop_dead_stages))
    monkeypatch.setenv("HJIT_CHECK", "1")
    with pytest.raises(CompileError, match="after breaks_it: sources_exist"):
        canonical.canonicalise(graph(IMG))
    monkeypatch.setenv("HJIT_CHECK", "0")
    canonical.canonicalise(graph(IMG))
