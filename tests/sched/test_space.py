"""The space of schedules: every state is a legal schedule with NumPy's results, and costs what its nests cost."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hjit.model.costs import WeightedSum
from hjit.model.feature_names import SCHEDULE
from hjit.model.network import UNFITTED, Network
from hjit.model.network import random as random_network
from hjit.options import Options
from hjit.pipeline import Pipeline
from hjit.sched.features.featurise import layouts_of, nest_features
from hjit.sched.language.check import faults, leaves, nest_faults
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Compute, Loop, Root, Store, computes, walk
from hjit.sched.nests.root_nests import root_schedule
from hjit.sched.search import nest_costs
from hjit.sched.search.batches import NONE, State
from hjit.sched.search.nest_costs import Machine
from hjit.sched.search.pruning import Rules, log_spaced
from hjit.sched.search.refine import Schedule
from hjit.sched.search.search import Options as SearchOptions
from hjit.sched.search.search import presets, search
from hjit.sched.search.space import Space, sliding_at
from hjit.sched.search.templates import chosen
from hjit.sched.search.unrolled_bodies import unrolled_instructions
from hjit.trace.ir.graph import Graph
from hjit.training.cases import compiled, segment_of
from hjit.training.schedules import chosen_state, random_state
from hjit.tuning.decide import by_search
from hjit.tuning.weights import weights

Array = np.ndarray[Any, Any]
AT_ROOT = SCHEDULE.index("working_set_at_root")
MACHINE = (2.0, 64.0, 32e3, 1e6, 16e6, 1e10)


def blurred(a: Array) -> Array:
    rows = a[:, :-2] + a[:, 1:-1] + a[:, 2:]
    wide = np.sqrt(rows * rows + 1)
    return wide[:-2] + wide[1:-1] + wide[2:]


def pyramid(a: Array) -> Array:
    soft = np.exp(-a * a) + a
    down = (soft[::2, ::2] + soft[1::2, ::2] + soft[::2, 1::2] + soft[1::2, 1::2]) / 4
    edges = np.abs(down[1:, 1:] - down[:-1, :-1] + down[:-1, 1:] - down[1:, :-1]) ** 0.5
    return np.repeat(np.repeat(edges, 2, 0), 2, 1)[: a.shape[0] - 2, : a.shape[1] - 2] - soft[2:, 2:]


def product(a: Array) -> Array:
    b = np.abs(a) + 1
    return (b @ b.T) / b.sum(1, keepdims=True)


def equalised(a: Array) -> Array:
    levels = np.minimum(np.abs(a) * 16, 255).astype(np.uint8)
    counts = np.bincount(levels.ravel(), minlength=256)
    steps = np.cumsum(counts) / levels.size
    return steps[levels].astype(np.float32)


def interleaved(a: Array) -> Array:
    out = np.zeros((a.shape[0], a.shape[1], 3), np.float32)
    soft = (a[:-1] + a[1:]) / 2
    out[:-1, :, 0] = soft
    out[1:, :, 1] = soft * soft
    out[0::2, :, 2] = a[0::2]
    return out.max(2) + np.cumsum(out[:, :, 1], 0)


def turned(a: Array) -> Array:
    soft = np.exp(a)
    out = np.zeros(a.shape[::-1], np.float32)
    out[1:] = soft.T[1:] - soft.T[:-1]
    return out


PROGRAMS = (blurred, pyramid, product, equalised, interleaved, turned)


class Program:
    """A traced program: its Graph, sizes and space."""

    def __init__(self, function: Callable[[Array], Array], shape: tuple[int, int] = (70, 96), **given: Any) -> None:
        self.function = function
        self.image = np.random.default_rng(1).standard_normal(shape, np.float32)
        pipe = Pipeline(function, {"cache": "off", "verify": "off"})
        self.variant = pipe.variant_of((self.image,), {}, Options(tune=False, cache="off", verify="off"))
        (self.graph,) = self.variant.graphs
        self.segment = segment_of(self.graph, Options())
        self.space = Space(self.graph, self.variant.rec.sizes, WeightedSum(), Machine(MACHINE, 2, Target(64)), **given)

    def result(self, state: State | Schedule) -> Array:
        choice = by_search({self.graph.outputs: state.tree}, state.inlined)
        bound, _ = compiled(self.variant, choice, Options(tune=False, cache="off"))
        guarded = self.variant.guards.values((self.image,))
        assert guarded is not None
        (out,), slots = bound.new_outputs(), self.variant.body.slots
        assert bound.run([self.image], [out], [guarded[0][slots[name]] for name, _ in bound.scalars])
        return out


def after(space: Space, state: State) -> list[State]:
    """The states after one more decision."""
    return [family[k] for family in space.families(state) for k in range(len(family))]


def costs(space: Space, states: list[State]) -> list[float]:
    """The cost of each."""
    return [float(cost) for found in space.cost([(x.batch, np.array([x.row])) for x in states]) for cost in found]


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda f: f.__name__)
def program(request: pytest.FixtureRequest) -> Program:
    return Program(request.param)


def test_the_legality_of_a_nest_asks_nothing_of_the_other_nests_of_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that a thousand updates write has as many nests, each of which is checked with some templates."""
    looked_at: list[int] = []

    def counted(root: Root, graph: Graph) -> Iterator[tuple[str, str]]:
        looked_at.append(len([*leaves(root)]))
        return nest_faults(root, graph)

    monkeypatch.setattr("hjit.sched.search.space.nest_faults", counted)
    p = Program(interleaved)
    assert any(len(groups) > 2 for groups in p.space.groups.values())
    state = random_state(p.space, random.Random(0))
    assert state is not None and state.batch.is_complete
    assert set(looked_at) == {1}


def test_random_states_compute_what_numpy_does(program: Program) -> None:
    expected = program.function(program.image)
    rng = random.Random(0)
    found = 0
    for _ in range(4):
        state = random_state(program.space, rng)
        if state is not None:
            found += 1
            np.testing.assert_allclose(program.result(state), expected, rtol=1e-5, atol=1e-5)
    assert found


def test_every_child_is_legal_and_its_cost_that_of_its_tree(program: Program) -> None:
    space, rng = program.space, random.Random(2)
    state = space.start
    while not state.batch.is_complete:
        children = after(space, state)
        assert len(set(children)) >= 0.5 * len(children)
        for child, cost in zip(rng.sample(children, min(12, len(children))), costs(space, children), strict=False):
            names = {c.stage for c in computes(child.tree)}
            stages = tuple(s for s in program.graph.stages if s.name in names)
            outputs = tuple(n for n in program.graph.outputs if n in names)
            if not child.inlined:
                assert (
                    list(faults(child.tree, Graph(program.graph.inputs, program.graph.scalars, stages, outputs))) == []
                )
            assert cost >= 0
            again = space.schedule_cost(child.tree, child.inlined)
            (own,) = costs(space, [child])
            assert own == again or abs(own - again) <= 1e-9 * own
        state = rng.choice([c for c, x in zip(children, costs(space, children), strict=True) if x < math.inf])


def test_what_all_nests_allocate_costs_beside_them(program: Program) -> None:
    """By a model that knows of it: of batches, of trees, and of the features of a schedule, memoised or not."""
    rng = random.Random(3)
    network = random_network(0)
    without = Network({**network.arrays, "whole_log_unit": np.full(2, UNFITTED, np.float32)})
    for memoise in (True, False):
        space, plain = (
            Space(program.graph, program.variant.rec.sizes, x, Machine(MACHINE, 2, Target(64)), memoise=memoise)
            for x in (network, without)
        )
        state = space.start
        while not state.batch.is_complete:
            children = after(space, state)
            found, alone = costs(space, children), costs(plain, after(plain, state))
            finite = [k for k, cost in enumerate(found) if cost < math.inf]
            for k in rng.sample(finite, min(4, len(finite))):
                child = children[k]
                own = [plain.nests.unchanged(x, child.inlined, child.batch.layouts) for x in child.nests]
                more = float(space.nests.whole(np.array(sum(x.allocated[0] for x in own))))
                assert found[k] - alone[k] == pytest.approx(more, rel=1e-3, abs=1e-12)
                nests = sum(x.costs[0] for x in own)
                assert space.schedule_cost(child.tree, child.inlined) == pytest.approx(nests + more, rel=1e-5)
            state = children[rng.choice(finite)]
        features = space.features(state.tree, state.inlined)
        placed = [s.name not in state.inlined for s in program.graph.stages]
        (allocated,) = set(features[placed, AT_ROOT])
        nests = [
            nest_features(space.nests.sized_for(state.inlined), x, None, layouts_of(state.tree)) for x in state.nests
        ]
        assert allocated == sum(x.allocated[0] for x in nests) > 0
        assert not features[~np.array(placed), AT_ROOT].any()
        total = space.schedule_cost(state.tree, state.inlined)
        assert total > sum(space.costs_of_nests(state.tree, state.inlined)) * (1 + 1e-9)
        predicted = network.stages(space.nests.pipeline, features[None], space.nests.machine).sum()
        assert total == pytest.approx(float(predicted), rel=3e-2)  # features of one stage in several nests are merged
        if not state.inlined:
            assert space.tree_cost(state.tree) == pytest.approx(total, rel=1e-9)


def test_the_first_form_is_that_of_the_default_schedule(program: Program) -> None:
    by_root = {x.stage: x for x in root_schedule(program.graph, Target(64)).children if isinstance(x, Store)}
    for s in program.graph.stages:
        for group, nest in zip(program.space.groups[s.name], by_root[s.name].children, strict=True):
            extents = program.space.sized.group(s.name, group).extents
            template = next(program.space.templates.of(s, group, extents, at_root=True))
            ours, theirs = chosen(template.node, template.sizes[0]), nest
            assert [(x.dim, x.kind, x.size) for x in walk(ours) if isinstance(x, Loop) and x.kind != "serial"] == [
                (x.dim, x.kind, x.size) for x in walk(theirs) if isinstance(x, Loop) and x.kind != "serial"
            ]


def test_a_greedy_search_ends_with_a_complete_schedule(program: Program) -> None:
    found = search(program.space, program.space.start, presets()["greedy"])
    assert found.best is not None and found.best.batch.is_complete
    np.testing.assert_allclose(program.result(found.best), program.function(program.image), rtol=1e-5, atol=1e-5)


def test_searches_with_buckets_samples_and_passes_find_no_worse_schedules() -> None:
    space = Program(blurred).space
    greedy = search(space, space.start, presets()["greedy"])
    options: SearchOptions[State] = SearchOptions(passes=3, buckets=space.buckets, sample=True, seed=4)
    beam = search(space, space.start, presets(8)["beam"], options)
    assert beam.cost <= greedy.cost * 1.05
    again = search(space, space.start, presets(8)["beam"], options)
    assert again.cost == beam.cost and again.best == beam.best


def test_costs_are_the_same_whether_they_are_kept_or_not() -> None:
    kept, again = Program(pyramid).space, Program(pyramid, memoise=False).space
    found = [search(space, space.start, presets(4)["beam"]) for space in (kept, again)]
    assert found[0].record == found[1].record
    assert again.counters.evaluations == kept.counters.evaluations
    assert again.counters.featurised > 1.2 * kept.counters.featurised


def test_what_is_recorded_of_nests_is_forgotten_before_it_takes_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Program(pyramid).space
    found = search(whole, whole.start, presets(8)["beam"])
    monkeypatch.setattr(nest_costs, "MAX_PLANS", 10)
    space = Program(pyramid).space
    recorded: list[int] = []
    remember = space.cost
    monkeypatch.setattr(space, "cost", lambda some: (recorded.append(space.nests.plans), remember(some))[1])
    again = search(space, space.start, presets(8)["beam"])
    assert max(recorded) > 10 and any(later < one for one, later in itertools.pairwise(recorded))
    assert (again.cost, again.best, again.record) == (found.cost, found.best, found.record)


@pytest.mark.parametrize("function", [blurred, pyramid, equalised])
def test_what_is_not_placed_yet_may_be_assumed_where_it_costs_its_readers_least(function: Any) -> None:
    plain, hopeful = (
        Space.like(Program(function, rules=rules).space, weights()) for rules in (Rules(), Rules(optimistic=True))
    )
    state, differ = hopeful.start, 0
    while not state.batch.is_complete:
        batches = hopeful.families(state)
        state = batches[0][0]  # at the root
        (found,) = costs(hopeful, [state])
        undecided = state.batch.undecided
        assert (
            undecided
            == {s.name for s in hopeful.graph.stages} - {c.stage for c in computes(state.tree)} - state.inlined
        )
        at_root = sum(plain.costs_of_nests(state.tree, state.inlined))
        differ += found != pytest.approx(at_root, rel=1e-5)
        assert undecided or found == pytest.approx(at_root, rel=1e-5)
    assert differ


def test_what_is_frozen_is_not_searched() -> None:
    free = Program(pyramid)
    middle = [s.name for s in free.graph.stages if s.name not in free.graph.outputs]
    space = Space.freezing(Program(pyramid).space, dict.fromkeys(middle, "root"))
    for seed in range(3):
        state = chosen_state(space, random.Random(seed), 2)
        assert state is not None and not state.inlined
        assert len(state.tree.children) == len(free.graph.stages)
    inlined = [s.name for s in free.graph.stages if space.may_inline(s)]
    space = Space.freezing(Program(pyramid, rules=Rules(recompute=math.inf)).space, dict.fromkeys(inlined, "inline"))
    state = chosen_state(space, random.Random(0), 2)
    assert state is not None and state.inlined == frozenset(inlined)


def test_what_is_frozen_inline_is_so_from_the_start() -> None:
    rows, _ = Program(blurred).graph.stages
    free, known = (
        Space.freezing(Program(blurred, rules=Rules(recompute=math.inf)).space, frozen)
        for frozen in ({}, {rows.name: "inline"})
    )
    assert free.start.inlined == set() and known.start.inlined == {rows.name}
    first = after(known, known.start)
    assert all(x.inlined == {rows.name} for x in first)
    other = [x for x in after(free, free.start) if x.tree in [y.tree for y in first]]
    assert len(other) == len(first) and min(costs(known, first)) > min(costs(free, other)), (
        "a nest costs what is inlined into it, too"
    )


# -- rules, one by one


def states(space: Space, count: int = 12) -> list[State]:
    return [x for seed in range(count) if (x := random_state(space, random.Random(seed))) is not None]


def test_no_more_stages_than_the_rule_says_share_a_nest() -> None:
    for most in (1, 2):
        space = Program(pyramid, rules=Rules(together=most)).space
        assert all(len({c.stage for c in computes(nest)}) <= most for x in states(space, 6) for nest in x.nests)
    space = Program(pyramid).space
    assert any(len({c.stage for c in computes(nest)}) > 2 for x in states(space) for nest in x.nests)


def test_windows_slide_along_one_dimension() -> None:
    def dims_between(root: Root) -> list[set[tuple[str, Any]]]:
        found = []

        def visit(node: Any, above: list[Any]) -> None:
            if isinstance(node, Loop):
                slid = sliding_at(root_of(node), (0,)) if node.children else set()
                for name in slid:
                    inside = above[
                        max((k for k, x in enumerate(above) if isinstance(x, Store) and x.stage == name), default=0) :
                    ]
                    found.append({(x.stage, x.dim) for x in [*inside, node] if isinstance(x, Loop)})
            for c in getattr(node, "children", ()):
                visit(c, [*above, node])

        visit(root, [])
        return found

    def root_of(node: Loop) -> Root:
        return Root((node,))

    seen = [x for state in states(Program(blurred).space, 40) for x in dims_between(state.tree)]
    assert seen and all(len(x) == 1 for x in seen)


def test_a_stage_is_stored_at_any_level_of_its_window() -> None:
    rows = Loop("f", 1, "vector", 16, (Compute("f", (0,)),))
    tile = Loop("f", 0, "serial", 4, (Loop("f", 0, "serial", 2, (Loop("f", 1, "serial", None, (rows,)),)),))
    root = Root((Store("f", (Loop("f", 0, "serial", None, (tile,)),)),))
    assert [*Rules().stores(root, (0, 0, 0, 0))] == [(0, 0, 0, 0), (0, 0, 0), (0, 0), (0,)]
    assert [*Rules().stores(root, (0, 0, 0, 0, 0))] == [(0, 0, 0, 0, 0), (0, 0, 0, 0)]  # rows are another dimension


def test_levels_of_tiles_are_limited() -> None:
    space = Program(pyramid, rules=Rules(tile_levels=1)).space
    own = len([x for x in walk(states(space, 1)[0].tree) if isinstance(x, Loop)])
    assert own
    loop = Loop("f", 0, "serial", None, ())
    assert Rules(tile_levels=1).tile_sizes([loop, Loop("f", 0, "serial", 64, ())], 4, 0, 512.0) == (4,)
    assert Rules(tile_levels=2).tile_sizes([loop, Loop("f", 0, "serial", 64, ())], 4, 0, 512.0) == (4, 8, 16, 32)
    assert Rules(tile_levels=2).tile_sizes([loop, Loop("f", 0, "serial", 60, ())], 4, 0, 512.0) == (4, 12, 20)
    assert Rules(largest_tile=4).tile_sizes([loop], 4, 0, 512.0) == (4, 8, 12, 16)
    assert Rules(tiles=1).tile_sizes([loop], 4, 0, 512.0) == (4, 8, 16, 32, 64, 128, 256)
    assert Rules().tile_sizes([loop], 4, 0, 10.0) == (4, 8)


def test_sizes_are_spaced_alike_between_powers_of_two() -> None:
    assert log_spaced(64, 1) == (1, 2, 4, 8, 16, 32, 64)
    assert log_spaced(20, 4) == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20)
    assert log_spaced(40, 2, least=5) == (6, 8, 12, 16, 24, 32)


@pytest.mark.parametrize(("computed", "inlined", "pruned"), [(1000, 0, False), (1001, 0, True), (0, 1001, True)])
def test_nothing_is_computed_more_often_than_the_rule_says(computed: float, inlined: float, pruned: bool) -> None:
    features = np.zeros((1, 1, len(SCHEDULE)))
    features[..., SCHEDULE.index("points_computed_total")] = computed
    features[..., SCHEDULE.index("inlined_calls")] = inlined
    assert Rules().pruned(features, np.array([100.0]), 2).tolist() == [pruned]
    assert Rules(recompute=math.inf).pruned(features, np.array([100.0]), 2).tolist() == [False]


def shared(a: Array) -> tuple[Array, Array]:
    soft = np.exp(a)
    rows = sum((soft[k : k - 7] for k in range(1, 7)), soft[:-7])
    columns = sum((soft[:, k : k - 7] for k in range(1, 7)), soft[:, :-7])
    return rows, columns


@pytest.mark.parametrize(("recompute", "pruned"), [(10.0, True), (20.0, False)])
def test_calls_by_all_nests_together_count(recompute: float, pruned: bool) -> None:
    """Seven times by each of two nests."""
    space = Program(shared, rules=Rules(recompute=recompute)).space
    soft = space.graph.stages[0].name
    state = space.start
    while state.batch.step < space.first_of[soft]:
        state = space.families(state)[0][0]
    (inlined,) = [b for b in space.families(state) if soft in b.inlined]
    assert [bool(cost == math.inf) for cost in costs(space, [inlined[0]])] == [pruned]
    assert all(cost < math.inf for cost in space.costs_of_nests(inlined[0].tree, inlined.inlined))


@pytest.mark.parametrize(("tasks", "pruned"), [(1, False), (2, True), (4, False)])
def test_parallel_loops_have_an_iteration_for_each_core(tasks: float, pruned: bool) -> None:
    features = np.zeros((1, 1, len(SCHEDULE)))
    features[..., SCHEDULE.index("inner_parallelism")] = tasks
    assert Rules().pruned(features, np.ones(1), 4).tolist() == [pruned]


def test_definitions_of_one_task_are_not_few_tasks_by_another_with_some() -> None:
    """The feature is a mean over the definitions of a stage."""
    features = np.zeros((1, 1, len(SCHEDULE)))
    features[..., SCHEDULE.index("inner_parallelism")] = 1.07
    assert Rules().pruned(features, np.ones(1), 4).tolist() == [False]


@pytest.mark.parametrize("function", PROGRAMS)
def test_states_after_as_many_decisions_are_as_deep(function: Any) -> None:
    """What is inlined has no loops to choose, but is not ahead of what has: costs of partial schedules compare at one depth."""
    space, rng = Program(function).space, random.Random(4)
    ways = set()
    for iteration in range(6):
        state, depths = space.start, [0]
        while not state.batch.is_complete:
            children = after(space, state)
            allowed = [c for c, x in zip(children, costs(space, children), strict=True) if x < math.inf]
            state = rng.choice([c for c in allowed if c.inlined] or allowed) if iteration % 2 else rng.choice(allowed)
            depths.append(state.batch.depth)
        ways.add(tuple(depths))
    assert len(ways) == 1


def few_rows(a: Array) -> Array:
    soft = np.exp(-a[:5] * a[:5])
    return soft[:, :-2] + soft[:, 1:-1] * soft[:, 2:]


def orders(states: list[State]) -> set[tuple[int, ...]]:
    return {x.order for state in states for x in walk(state.tree) if isinstance(x, Store)}


def test_a_stage_may_lie_in_memory_as_the_vectors_of_its_reader_run() -> None:
    p = Program(turned)
    some = states(p.space, 30)
    assert orders(some) == {(), (1, 0)}
    loops = [
        y
        for state in some
        for x in walk(state.tree)
        if isinstance(x, Store) and x.order
        for y in walk(x)
        if isinstance(y, Loop)
    ]
    assert any(y.stage == "soft" and y.dim == 0 and y.kind == "vector" for y in loops), "along what is innermost now"
    for state in [x for x in some if len(orders([x])) > 1][:6]:
        np.testing.assert_allclose(p.result(state), turned(p.image), rtol=1e-5, atol=1e-5)
    assert (
        orders(states(Program(turned, rules=Rules(orders=False)).space))
        == orders(states(Program(blurred).space))
        == {()}
    )


def test_a_nest_costs_what_the_order_of_what_it_reads_makes_it_cost() -> None:
    space = Space.like(Program(turned).space, weights())
    first = next(
        x for x in after(space, space.start) if any(isinstance(n, Loop) and n.kind == "vector" for n in walk(x.tree))
    )
    placed = [x for x in after(space, first) if len(x.tree.children) == 2]
    assert sorted(x.batch.nests[0].order for x in placed) == [(), (1, 0)]  # type: ignore[union-attr]
    in_c_order, turned_round = (space.nest_costs(x.nests[1], NONE, x.inlined, x.batch.layouts)[0] for x in placed)
    assert turned_round < in_c_order


def test_no_tile_is_around_a_parallel_loop() -> None:
    """Rows too few for all cores, and columns, are parallel together."""
    p = Program(few_rows)
    both = next(
        s
        for s in after(p.space, p.space.start)
        if [x.kind for x in walk(s.tree) if isinstance(x, Loop)].count("parallel") == 2
    )
    inside = [s for s in after(p.space, both) if not s.inlined]
    assert len(inside) > 2
    for state in inside:
        assert list(faults(state.tree, p.graph)) == []


def test_a_stage_that_a_sliding_one_reads_slides_with_it() -> None:
    for state in states(Program(blurred).space, 30):
        for node in walk(state.tree):
            if isinstance(node, Loop):
                slides = sliding_at(Root((node,)), (0,))
                here = {x.stage for x in node.children if isinstance(x, Loop)} - slides - {node.stage}
                assert not (slides and here)


def test_unrolled_bodies_stay_short_when_a_stage_is_inlined_later() -> None:
    """The rows of a reader are chosen before it is decided that what it reads is inlined."""

    def sums(a: Array) -> Array:
        for _ in range(2):
            a = sum(
                (a[i : a.shape[0] - 2 + i, j : a.shape[1] - 2 + j] for i in range(3) for j in range(3)),
                np.sqrt(a[1:-1, 1:-1]),
            )
        return a

    most = 300.0
    space = Program(sums, rules=Rules(inlined=most)).space
    lengths = []
    for seed in range(40):
        state = random_state(space, random.Random(seed))
        lengths += [unrolled_instructions(space.nests, nest, state.inlined) for nest in state.nests if state.inlined]
    assert lengths and max(lengths) <= most


def test_each_lane_of_a_gather_counts_for_how_much_is_unrolled() -> None:
    def near(a: Array) -> Array:
        n = a.shape[0] - 40
        return sum((a[i : n + i, i : n + i] for i in range(40)), np.float32(0))

    def anywhere(a: Array) -> Array:
        n = a.shape[0] - 40
        row, at = np.arange(n)[:, None], np.clip((20 * a[:n, :n]).astype(np.int32), 0, 20)
        return sum((a[row, at + i] for i in range(40)), np.float32(0))

    def is_unrolled(function: Callable[[Array], Array]) -> bool:
        p = Program(function, (600, 600))
        (last,) = p.graph.outputs
        loops = (x for s in states(p.space, 40) for x in walk(s.tree) if isinstance(x, Loop))
        return any(x.kind == "unroll" and x.stage == last for x in loops)

    assert is_unrolled(near)
    assert not is_unrolled(anywhere)
