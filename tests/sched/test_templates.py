"""What the loops of a nest may be, beyond the papers: split reductions, atomic counting, one core for little work, any number of cores."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hjit.model.costs import WeightedSum
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Loop, Store, dims_of, walk
from hjit.sched.nests.root_nests import root_schedule
from hjit.sched.search.nest_costs import Machine
from hjit.sched.search.portfolio import greedily
from hjit.sched.search.refine import Schedule
from hjit.sched.search.space import Space
from hjit.sched.search.templates import Template, chosen, parallel_iterations
from tests.sched.test_space import MACHINE, Array, Program, equalised


def matrices(a: Array) -> Array:
    return np.einsum("ij,kj->ik", a, a[:64])


def scattered(a: Array) -> Array:
    """Votes for places of an image, which is too large to be counted in parts."""
    votes = np.zeros(a.shape, np.int64)
    i = np.clip(a * 30 + 80, 0, len(a) - 1).astype(np.int64)
    np.add.at(votes, (i, i[:, ::-1]), 1)
    return votes


def all_templates(space: Space) -> list[tuple[str, tuple[int, ...], Template]]:
    """The legal templates of every nest at the root."""
    return [
        (s.name, g, x)
        for s in space.graph.stages
        for g in space.groups[s.name]
        for x in space._templates(s, g, True, ())
    ]


def with_nest(p: Program, stage: str, node: Any) -> Schedule:
    """All at the root, and the last nest of a stage as it is given."""
    tree = root_schedule(p.graph, Target(64))
    return Schedule(
        replace(
            tree,
            children=tuple(Store(stage, (*x.children[:-1], node)) if x.stage == stage else x for x in tree.children),
        ),
        frozenset(),
    )


def test_several_parallel_iterations_long_reductions_may_be_one() -> None:
    p = Program(matrices, (96, 150))
    found = set()
    for name, group, template in all_templates(p.space):
        d = p.graph.stage(name).definitions[group[-1]]
        costs_of = p.space.nest_costs(Store(name, (template.node,)), template.sizes)
        for row in range(0, len(template.sizes), 29):
            node = chosen(template.node, template.sizes[row])
            iterations = [
                x.size
                for x in walk(node)
                if isinstance(x, Loop) and x.kind == "unroll" and dims_of(x.dim)[0] >= len(d.dims)
            ]
            if iterations and iterations[0] not in found and costs_of[row] < math.inf:
                found.add(iterations[0])
                np.testing.assert_allclose(p.result(with_nest(p, name, node)), matrices(p.image), rtol=1e-5, atol=1e-5)
    assert found == {2, 4, 8}


def test_histograms_without_parts_may_count_atomically() -> None:
    p = Program(scattered, (300, 400))
    atomic = [
        (name, template)
        for name, group, template in all_templates(p.space)
        for d in [p.graph.stage(name).definitions[group[-1]]]
        if any(
            isinstance(x, Loop) and x.kind == "parallel" and dims_of(x.dim)[0] >= len(d.dims)
            for x in walk(template.node)
        )
        and d.is_scatter
    ]
    assert atomic
    for name, template in atomic:
        assert np.array_equal(
            p.result(with_nest(p, name, chosen(template.node, template.sizes[0]))), scattered(p.image)
        )


def test_a_nest_of_little_work_may_run_on_one_core() -> None:
    def kinds(shape: tuple[int, int]) -> set[str]:
        templates = all_templates(Program(lambda a: a * 2 + 1, shape).space)
        return {next(x for x in walk(template.node) if isinstance(x, Loop)).kind for *_, template in templates}

    assert kinds((30, 40)) == {"parallel", "serial"}
    assert kinds((600, 700)) == {"parallel"}


@pytest.mark.parametrize("cores", [1, 2, 8, 64])
@pytest.mark.parametrize(
    "function", [equalised, scattered, lambda a: (np.exp(a) * a).sum(1), lambda a: np.exp(a[:3]) - a[1:4]]
)
def test_there_is_a_schedule_for_any_number_of_cores(function: Any, cores: int) -> None:
    p = Program(function, (6, 40000))
    space = Space(p.graph, p.variant.rec.sizes, WeightedSum(), Machine(MACHINE, cores, Target(64)))
    assert greedily(space).best is not None


def test_few_tasks_cost_infinitely_much_where_there_may_be_more() -> None:
    p = Program(lambda a: np.exp(a) * a, (200, 300))
    space = Space(p.graph, p.variant.rec.sizes, WeightedSum(), Machine(MACHINE, 8, Target(64)))
    (s,) = (x for x in p.graph.stages if x.name in p.graph.outputs)
    costs_of = {}
    for *_, template in all_templates(space):
        rows = space.nest_costs(Store(s.name, (template.node,)), template.sizes)
        for row, cost in zip(template.sizes, rows, strict=True):
            node = chosen(template.node, row)
            costs_of[parallel_iterations(node, space.sized.group(s.name, (0,)).extents)] = cost
    few = [c for t, c in costs_of.items() if 1 < t < 8]
    assert few and set(few) == {math.inf} and any(c < math.inf for t, c in costs_of.items() if t >= 8)
