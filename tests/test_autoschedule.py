"""Searched schedules: what a call with ``tune=`` runs, what is kept on disk, and what happens where that is damaged."""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.call.segments import TraceSegments, graphs_of, recorded
from hjit.errors import OptionError, ScheduleError, SlidingError
from hjit.options import Options
from hjit.process import deadline, machine
from hjit.sched.default.schedules import default_schedule
from hjit.sched.language.build import serial_loops
from hjit.sched.language.check import check_tree
from hjit.sched.language.target import Target
from hjit.sched.language.transforms import storage_at_compute
from hjit.sched.language.tree import Compute, Loop, Root, Store, computes
from hjit.sched.nests.root_nests import root_schedule
from hjit.sched.search.nest_costs import NestCosts
from hjit.sched.search.portfolio import greedily
from hjit.sched.search.refine import Schedule
from hjit.sched.search.search import presets
from hjit.sched.search.space import Space
from hjit.sched.search.unrolled_bodies import unrolled_instructions
from hjit.trace.passes.fusion import inline_after
from hjit.trace.passes.rewrites import Rewrites
from hjit.training.cases import segment_of
from hjit.tuning import autoschedule, candidates, limits, plans
from hjit.tuning.autoschedule import Effort, are_near, frozen, searched, space_of
from hjit.tuning.candidates import with_fixes
from hjit.tuning.choice import DEFAULT, Choice
from hjit.tuning.decide import by_search, found_or_searched
from hjit.tuning.plans import Plan, from_text, plan_name, store_plans, to_text
from tests.sched.random_schedules import random_schedule
from tests.sched.test_space import Program, blurred, equalised, interleaved, product, pyramid
from tests.scripts import run_script
from tests.test_autotune import trees_of_kernels

Array = np.ndarray[Any, Any]
IMAGE = np.random.default_rng(3).standard_normal((70, 96)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(plans, "_plans", {})
    with hjit.options(cache_dir=tmp_path):
        yield tmp_path


def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of stages of each Graph that is searched from now on."""
    found: list[int] = []
    real = autoschedule.searched

    def counted(segment: Any, *more: Any) -> Plan:
        found.append(len(segment.graph.stages))
        return real(segment, *more)

    monkeypatch.setattr(autoschedule, "searched", counted)
    return found


@pytest.mark.parametrize("function", [blurred, pyramid, product, equalised, interleaved])
def test_searched_schedules_compute_what_numpy_does(function: Any, folder: Path) -> None:
    f = hjit.pipeline(function, tune="greedy")
    np.testing.assert_allclose(f(IMAGE), function(IMAGE), rtol=1e-5, atol=1e-5)
    assert f.stats.fallbacks == 0 and f.stats.verified


def test_a_beam_computes_what_numpy_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(autoschedule.EFFORTS, "beam", Effort(presets(4)["beam"], passes=2, sample=True))
    np.testing.assert_allclose(hjit.pipeline(blurred, tune="beam")(IMAGE), blurred(IMAGE), rtol=1e-5)


def test_a_plan_is_searched_once_and_found_by_later_pipelines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = searches(monkeypatch)
    hjit.pipeline(blurred, tune="greedy")(IMAGE)
    assert len(found) == 1 and len(list(folder.glob("*.plan"))) == 1
    again = hjit.pipeline(blurred, tune="greedy")
    np.testing.assert_allclose(again(IMAGE), blurred(IMAGE), rtol=1e-5)
    assert len(found) == 1
    again(IMAGE[:-2])  # about the same size
    assert len(found) == 1
    again(np.tile(IMAGE, (6, 6)))
    assert len(found) == 2


def test_without_tune_nothing_is_searched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = searches(monkeypatch)
    hjit.pipeline(blurred, tune=False)(IMAGE)
    hjit.pipeline(blurred, tune="greedy").use(None)
    f = hjit.pipeline(blurred, tune="greedy")
    f.use(hjit.pipeline(blurred).schedule(IMAGE))
    f(IMAGE)
    assert found == []


def test_tune_is_an_option_like_the_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = searches(monkeypatch)
    monkeypatch.setenv("HJIT_TUNE", "greedy")
    hjit.pipeline(blurred)(IMAGE)
    assert len(found) == 1
    monkeypatch.setenv("HJIT_TUNE", "0")
    hjit.pipeline(pyramid)(IMAGE)
    assert len(found) == 1
    with hjit.options(tune="greedy"):
        hjit.pipeline(pyramid)(IMAGE)
    assert len(found) == 2
    with pytest.raises(OptionError, match="tune"):
        hjit.pipeline(blurred, tune="much")


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{}",
        b"[1, 2]",
        b'{"tree": ["loop"], "inlined": [], "cost": 1}',
        b'{"tree": null, "inlined": ["s99"], "cost": 1}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_plan_is_a_miss(damage: bytes) -> None:
    assert from_text(damage, Program(blurred).graph) is None


def test_a_plan_that_is_not_legal_any_more_costs_time_only(folder: Path) -> None:
    f = hjit.pipeline(blurred, tune="greedy")
    f(IMAGE)
    (path,) = folder.glob("*.plan")
    from hjit import cache

    wrong = {"tree": json.loads(Root(()).to_json()), "inlined": [], "cost": 0.0}
    cache.store(path.stem, json.dumps(wrong).encode(), {}, folder, "rw", "plan")
    np.testing.assert_allclose(hjit.pipeline(blurred, tune="greedy")(IMAGE), blurred(IMAGE), rtol=1e-5)


def test_plans_survive_being_written_whatever_stages_are_called() -> None:
    p, q = Program(blurred), Program(pyramid)
    state = greedily(p.space).best
    assert state is not None
    plan = Plan(state.tree, state.inlined, 1.0)
    again = from_text(to_text(plan, p.graph), p.graph)
    assert again is not None and (again.tree, again.inlined) == (plan.tree, plan.inlined)
    nothing = from_text(to_text(Plan(None, frozenset(), math.inf), q.graph), q.graph)
    assert nothing is not None and nothing.tree is None


def test_names_of_plans_tell_machines_graphs_and_magnitudes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = Program(blurred), Program(pyramid)
    one = Options(tune="greedy", num_threads=1)

    def name(x: Program, options: Options, times: int = 1) -> str:
        return plan_name(x.segment, {k: n * times for k, n in x.variant.rec.sizes.items()}, options).entry

    first = name(p, one)
    assert first == name(p, one)
    others = [
        name(q, one),
        name(p, Options(tune="beam", num_threads=1)),
        name(p, Options(tune="greedy", num_threads=1, fast_math=True)),
        name(p, one, 20),
    ]
    monkeypatch.setattr(machine, "cpu", lambda: "another processor")
    others.append(name(p, one))
    assert len({first, *others}) == 6


def test_a_search_that_has_no_time_leaves_the_default_schedule_or_all_at_the_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(autoschedule.EFFORTS, "greedy", Effort(presets()["greedy"], seconds=0.0))
    p = Program(blurred)
    plan = searched(p.segment, p.variant.rec.sizes, Options(tune="greedy"))
    assert plan.record is not None and plan.record.stopped
    assert plan.tree is None or {x.stage for x in plan.tree.children} == {s.name for s in p.graph.stages}  # type: ignore[union-attr]


@pytest.mark.parametrize("function", [blurred, pyramid, interleaved])
def test_what_a_search_has_no_time_for_stays_at_the_root(function: Any) -> None:
    p = Program(function)
    for n in range(greedily(p.space).record.expansions):
        left = iter(range(n))
        found = greedily(p.space, lambda: next(left, None) is None)
        assert found.best is not None and found.record.stopped and found.cost < math.inf
        check_tree(
            found.best.tree,
            graphs_of(recorded(p.variant.rec), p.variant.trace.goals, by_search({}, found.best.inlined).rewrites)[0],
        )
        if not n:
            assert all(
                isinstance(x, Store) and {x.stage} == {c.stage for c in computes(x)} for x in found.best.tree.children
            )


def test_slow_kernels_are_run_twice_and_quick_ones_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, runs = [0.0], [0]

    def run(seconds: float) -> Any:
        def taken() -> bool:
            clock[0] += seconds
            runs[0] += 1
            return True

        return taken

    monkeypatch.setattr(candidates.time, "perf_counter", lambda: clock[0])
    for seconds, count in ((1e-5, 40), (0.008, 7), (0.2, 3), (3.0, 2), (5.0, 1)):
        clock[0], runs[0] = 0.0, 0
        candidates.least_times([run(seconds), run(seconds)], 0.1)
        assert runs[0] == 2 * count


def test_an_effort_may_be_given() -> None:
    p = Program(blurred)
    beam = Effort(presets(4)["beam"], passes=2, sample=True)
    for effort in (beam, replace(beam, memoise=False), replace(beam, by_depth=True)):
        plan = searched(p.segment, p.variant.rec.sizes, Options(tune="greedy"), effort=effort)
        assert plan.record is not None and plan.record.expansions > len(p.space.decisions)


def test_what_measures_slower_than_the_default_schedule_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        candidates, "measured", lambda kernels, *_: (len(kernels) - 1, [2.0] * (len(kernels) - 1) + [1.0])
    )
    f = hjit.pipeline(blurred, tune="greedy")
    f(IMAGE)
    (path,) = folder.glob("*.plan")
    assert json.loads(path.read_bytes().partition(b"\n")[2])["tree"] is None
    assert str(f.tree(IMAGE)) == str(hjit.pipeline(blurred, tune=False).tree(IMAGE))


def test_of_several_schedules_that_were_found_the_fastest_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(autoschedule.EFFORTS, "beam", Effort(presets(8)["beam"], timed=3))
    timed: list[list[str]] = []
    trees = trees_of_kernels(monkeypatch)

    def second(kernels: Any, *_: Any) -> tuple[int, list[float]]:
        timed.append([str(trees[k.kernel.name]) for k in kernels])
        return 1, []

    monkeypatch.setattr(candidates, "measured", second)
    f = hjit.pipeline(blurred, tune="beam")
    np.testing.assert_allclose(f(IMAGE), blurred(IMAGE), rtol=1e-5)
    (ways,) = timed
    assert 3 <= len(ways) <= 4 and len(set(ways)) == len(ways) and ways[-1] == "None"
    assert str(f.tree(IMAGE)) == ways[1]
    again = hjit.pipeline(blurred, tune="beam")
    again(IMAGE)
    assert str(again.tree(IMAGE)) == ways[1] and len(timed) == 1


def test_schedules_that_compute_a_stage_elsewhere_are_timed_too() -> None:
    def said(*directives: tuple[Any, ...]) -> Schedule:
        s = hjit.pipeline(blurred).schedule(IMAGE)
        for stage, word, *args in directives:
            getattr(s[stage], word)(*args)
        (graph,) = s.graphs()
        return Schedule(s.tree(graph, Target(64)), frozenset(n for n, word, *_ in directives if word == "inline"))

    producer, head = hjit.pipeline(blurred).schedule(IMAGE).stages
    first = said((producer, "compute_at", head, "y"))
    alike = said((producer, "compute_at", head, "y"), (head, "unroll", "x", 4))
    rooted, inlined = said((producer, "root")), said((producer, "inline"))
    assert autoschedule.unlike([alike, rooted, inlined], first) == [rooted, alike, inlined]
    assert autoschedule.unlike([first, alike, inlined], rooted) == [first, alike, inlined]


def curves(a: Array) -> Array:
    first = np.exp(a)
    second = np.exp(-first[1:]) + first[:-1]
    return second[:, 1:] * second[:, :-1]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_most_expensive_stages_are_flipped(count: int) -> None:
    (graph,) = hjit.pipeline(curves).schedule(IMAGE).graphs()
    sizes = {"a.0": 700, "a.1": 960}
    space = space_of(segment_of(graph, Options()), sizes, Options(num_threads=2))
    tree = default_schedule(graph, space.target)
    found = autoschedule.flipped(space, math.inf, Schedule(tree, frozenset()), count, lambda: False)
    assert len(found) == count and all(x.inlined for _, x in found)
    for _, x in found:
        back = autoschedule.flipped(space, math.inf, x, len(graph.stages), lambda: False)
        assert any(not x.inlined <= y.inlined for _, y in back), "what is inlined is flipped, too"
    assert autoschedule.flipped(space, 0.0, Schedule(tree, frozenset()), count, lambda: False) == []


def sharpened(a: Array) -> Array:
    bright = np.exp(a)
    soft = sum(bright[k : k + a.shape[0] - 8] for k in range(9))
    inner = a[4:-4]
    ratio = np.sqrt(np.abs(soft - inner))
    return np.stack([ratio * inner, ratio + inner, ratio - inner])


def test_of_stages_in_one_nest_the_one_that_is_cheapest_to_compute_again_is_tried_first() -> None:
    (graph,) = hjit.pipeline(sharpened).schedule(IMAGE).graphs()
    space = space_of(segment_of(graph, Options()), {"a.0": 700, "a.1": 960}, Options(num_threads=2))
    tree = default_schedule(graph, space.target)
    assert len(tree.children) == 1 and len(graph.stages) == 3, "one nest"
    ((_, found),) = autoschedule.flipped(space, math.inf, Schedule(tree, frozenset()), 1, lambda: False)
    assert found.inlined == {graph.stages[1].name}, "it is read in one place by all three planes; the other one in nine"


def test_stages_are_not_flipped_into_long_unrolled_bodies() -> None:
    def windows(a: Array) -> Array:
        for _ in range(2):
            n, m = a.shape[0] - 4, a.shape[1] - 4
            a = sum(np.float32(1 / (k + 2)) * a[k // 5 : n + k // 5, k % 5 : m + k % 5] for k in range(25))
        return a

    a = np.random.default_rng(0).random((200, 300), np.float32)
    (graph,) = hjit.pipeline(windows).schedule(a).graphs()
    space = space_of(segment_of(graph, Options()), {"a.0": 700, "a.1": 960}, Options(num_threads=2))
    apart = Schedule(default_schedule(graph, space.target), frozenset())
    for _, x in autoschedule.flipped(space, math.inf, apart, len(graph.stages), lambda: False):
        assert all(unrolled_instructions(space.nests, n, x.inlined) <= space.rules.inlined for n in x.tree.children)


def test_long_stencils_are_not_flipped_into_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(a: Array) -> Array:
        for f in (np.minimum, np.maximum):
            n, m = a.shape[0] - 9, a.shape[1] - 9
            a = functools.reduce(f, [a[k // 10 : n + k // 10, k % 10 : m + k % 10] for k in range(100)])
        return a

    (graph,) = hjit.pipeline(opened).schedule(np.zeros((200, 300), np.uint8)).graphs()
    space = space_of(segment_of(graph, Options()), {"a.0": 700, "a.1": 960}, Options(num_threads=2))
    apart = Schedule(default_schedule(graph, space.target), frozenset())
    monkeypatch.setattr(autoschedule, "greedily", None)  # nothing is searched
    assert len(graph.stages) == 2
    assert autoschedule.flipped(space, math.inf, apart, 2, lambda: False) == []


def test_the_fastest_is_that_of_the_least_time() -> None:
    class Kernel:
        inputs: tuple[str, ...] = ()
        scalars: tuple[Any, ...] = ()
        outputs: tuple[Any, ...] = ()

        def __init__(self, seconds: float, runs: bool = True, lucky: int = 0) -> None:
            self.seconds, self.runs, self.count, self.lucky = seconds, runs, 0, lucky

        def new_outputs(self) -> list[Any]:
            return []

        def run(self, _: Any, outputs: Any, *more: Any) -> bool:
            written.append(id(outputs))
            self.count += 1
            clock[0] += self.seconds / 2 if self.count == self.lucky else self.seconds
            return self.runs

    clock, written = [0.0], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(autoschedule.time, "perf_counter", lambda: clock[0])
        kernels: list[Any] = [Kernel(0.05), Kernel(0.01), Kernel(0.02)]
        best, seconds = candidates.measured(kernels, {}, {})
        assert best == 1 and seconds == pytest.approx([0.05, 0.01, 0.02])
        assert (kernels[0].count, kernels[2].count) == (1, 4) and kernels[
            1
        ].count > 2  # what is much slower is not run again
        assert len(set(written)) == 1, "a new array costs its first writer more than the kernel does"
        assert candidates.measured([Kernel(0.02, lucky=2), Kernel(0.02)], {}, {})[0] == 1  # once only
        assert candidates.measured([Kernel(0.01, runs=False), *kernels], {}, {}) == (
            3,
            [],
        )  # an index is out of bounds: NumPy is to say so
        kernels = [Kernel(3.0), Kernel(2.0), Kernel(1.9)]
        best, seconds = candidates.measured(kernels, {}, {})
        assert best == 2 and seconds == pytest.approx([3.0, 2.0, 1.9])
        assert [x.count for x in kernels] == [1, 2, 2], (
            "of those that take long, only what is nearly as fast is run again"
        )
        kernels = [Kernel(30.0), Kernel(20.0)]
        assert candidates.measured(kernels, {}, {})[0] == 1 and [x.count for x in kernels] == [1, 1]


def serial(node: Any) -> Any:
    return serial_loops(node) if isinstance(node, Loop) else replace(node, children=tuple(map(serial, node.children)))


def test_where_compiling_takes_long_not_all_that_was_found_is_tried(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []

    def found(segment: Any, sizes: Any, options: Any) -> Plan:
        tree, graph = segment.default, segment.graph
        others = [serial(root_schedule(graph, Target(64))), root_schedule(graph, Target(64))]
        return Plan(serial(tree), frozenset(), 1.0, others=tuple(Plan(x, frozenset(), 1.0) for x in others))

    def fastest(kernels: Any, *more: Any) -> tuple[int, list[float]]:
        timed.append(len(kernels))
        return 0, []

    monkeypatch.setattr(autoschedule, "searched", found)
    monkeypatch.setattr(candidates, "measured", fastest)
    for seconds in (1000.0, 0.0):
        monkeypatch.setitem(limits.COMPILING_SECONDS, "beam", seconds)
        monkeypatch.setattr(plans, "_plans", {})
        hjit.pipeline(blurred, tune="beam", cache="off")(IMAGE)
    assert timed == [4, 2], "of what was found the best, and the default schedule"


def test_where_the_default_schedule_takes_very_long_to_compile_it_is_the_only_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoschedule, "searched", lambda segment, *_: Plan(serial(segment.default), frozenset(), 1.0))
    timed: list[int] = []
    monkeypatch.setattr(candidates, "measured", lambda kernels, *_: (timed.append(len(kernels)), (0, []))[1])
    for seconds in (0.0, 1000.0):
        monkeypatch.setattr(candidates, "LONG_COMPILATION", seconds)
        monkeypatch.setitem(limits.COMPILING_SECONDS, "greedy", 0.0)
        monkeypatch.setattr(plans, "_plans", {})
        f = hjit.pipeline(blurred, tune="greedy", cache="off")
        np.testing.assert_allclose(f(IMAGE), blurred(IMAGE), rtol=1e-5)
        assert timed == ([2] if seconds else [])
        assert ("parallel" in str(f.tree(IMAGE))) is (seconds == 0.0)


def test_nothing_is_searched_where_the_default_schedule_takes_very_long_to_compile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[Any] = []
    real = autoschedule.searched
    monkeypatch.setattr(autoschedule, "searched", lambda *args: (searches.append(args), real(*args))[1])
    for seconds in (0.0, 1000.0):
        monkeypatch.setattr(candidates, "LONG_COMPILATION", seconds)
        monkeypatch.setitem(limits.COMPILING_SECONDS, "greedy", 0.0)
        monkeypatch.setattr(plans, "_plans", {})
        f = hjit.pipeline(blurred, tune="greedy", cache="off")
        np.testing.assert_allclose(f(IMAGE), blurred(IMAGE), rtol=1e-5)
        assert len(searches) == bool(seconds)


def test_schedules_whose_tiles_differ_by_little_are_near() -> None:
    def tiled(size: int, lanes: int = 8) -> Schedule:
        vector = Loop("s", 1, "vector", lanes, (Compute("s", (0,)),))
        tile = Loop("s", 0, "serial", size, (vector,))
        rows = Loop("s", 0, "parallel", None, (Loop("s", 1, "serial", None, (tile,)),))
        return Schedule(Root((Store("s", (rows,)),)), frozenset())

    assert are_near(tiled(64), tiled(96)) and are_near(tiled(96), tiled(64)) and are_near(tiled(8), tiled(8))
    assert not are_near(tiled(64), tiled(192))
    assert not are_near(tiled(64), tiled(64, 16))
    assert not are_near(tiled(64), replace(tiled(64), inlined=frozenset({"t"})))


def test_of_schedules_that_are_near_to_each_other_a_first_call_times_one() -> None:
    p = Program(blurred)
    tree = p.segment.default

    def sized(node: Any, size: int) -> Any:
        if isinstance(node, Compute):
            return Loop(node.stage, 0, "serial", size, (node,))
        return replace(node, children=tuple(sized(x, size) for x in node.children))

    other, near, default = (Schedule(sized(tree, n), frozenset()) for n in (8, 9, 1))
    costs = [(1e-4, other), (1.1e-4, near), (2e-4, default)]
    assert len(autoschedule._plan_of(costs, default, 2).others) == 1
    assert not autoschedule._plan_of(costs, default, 2, long_run=1.0).others
    assert len(autoschedule._plan_of(costs, default, 2, long_run=1e-5).others) == 1


def test_once_much_was_compared_little_gains_are_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of a function share the time for it."""
    p = Program(blurred)
    spent = deadline.Spent()
    monkeypatch.setattr(deadline, "spent", lambda: spent)

    def searched(segment: Any, *_: Any) -> Plan:
        return Plan(serial(segment.default), frozenset(), 1.0, default_cost=1.0 + gain)

    for gain in (limits.LITTLE_GAIN / 2, limits.LITTLE_GAIN * 2):
        for seconds in (0.0, limits.COMPARED_TOGETHER["greedy"] + 1.0):
            spent.comparing = seconds
            monkeypatch.setattr(plans, "_plans", {})
            options = Options(tune="greedy", cache="off")
            found = found_or_searched(lambda _: (p.segment,), p.variant.rec.sizes, options, searched)
            assert bool(found.best.trees) is (seconds == 0.0 or gain > limits.LITTLE_GAIN)


def test_the_time_of_what_is_compared_is_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoschedule, "searched", lambda segment, *_: Plan(serial(segment.default), frozenset(), 1.0))
    spent = deadline.Spent()
    monkeypatch.setattr(deadline, "spent", lambda: spent)
    np.testing.assert_allclose(hjit.pipeline(blurred, tune="greedy")(IMAGE), blurred(IMAGE), rtol=1e-5)
    assert spent.comparing > 0


def test_what_is_found_beside_the_default_schedule_is_compiled_where_that_takes_no_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flipped_only(segment: Any, sizes: Any, options: Any) -> Plan:
        return Plan(None, frozenset(), 1.0, others=(Plan(serial(segment.default), frozenset(), 1.0),))

    timed: list[int] = []

    def fastest(kernels: Any, *more: Any) -> tuple[int, list[float]]:
        timed.append(len(kernels))
        return 0, []

    monkeypatch.setattr(autoschedule, "searched", flipped_only)
    monkeypatch.setattr(candidates, "measured", fastest)
    for seconds in (0.0, 1000.0):
        monkeypatch.setitem(limits.COMPILING_SECONDS, "greedy", seconds)
        monkeypatch.setattr(plans, "_plans", {})
        f = hjit.pipeline(blurred, tune="greedy", cache="off")
        f(IMAGE)
        assert timed == ([2] if seconds else [])
        assert ("parallel" in str(f.tree(IMAGE))) is (seconds == 0.0)


def transformed(img: Array) -> Any:
    """Two kernels with a call between them."""
    return blurred(np.abs(np.fft.fft2(blurred(img))).astype(img.dtype))


def faster_by(gain: float) -> Any:
    """A search that predicts such a gain of schedules without threads."""
    return lambda segment, *_: Plan(serial(segment.default), frozenset(), 1.0 - gain, default_cost=1.0)


@pytest.mark.parametrize("gain", [0.1, 0.3])
def test_of_several_kernels_what_is_predicted_to_be_much_faster_is_timed(
    gain: float, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[Any] = []

    def first(kernels: Any, *arguments: Any) -> tuple[int, list[float]]:
        timed.append([x.inputs for x in kernels])
        return 0, [1.0, 2.0]

    monkeypatch.setattr(autoschedule, "searched", faster_by(gain))
    monkeypatch.setattr(candidates, "measured", first)
    f = hjit.pipeline(transformed, tune="greedy")
    f(IMAGE)
    assert len(timed) == (2 if gain > 1 - limits.BELIEVED else 0) and all(a == b for a, b in timed)
    kept = [json.loads(x.read_bytes().partition(b"\n")[2])["tree"] for x in folder.glob("*.plan")]
    assert [tree is None for tree in kept] == [not timed] * 2


def test_each_kernel_has_its_fastest_schedule(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1, 0])  # the first by the default schedule, the second as it was found
    monkeypatch.setattr(autoschedule, "searched", faster_by(0.5))
    monkeypatch.setattr(candidates, "measured", lambda *_: (next(times), [1.0, 2.0]))
    f = hjit.pipeline(transformed, tune="greedy", cache="off")
    np.testing.assert_allclose(f(IMAGE), transformed(IMAGE), rtol=1e-4)
    trees = trees_of_kernels(monkeypatch)
    monkeypatch.setattr(autoschedule, "searched", lambda *_: pytest.fail("plans are kept in the process"))
    hjit.pipeline(transformed, tune="greedy", cache="off")(IMAGE)
    assert [tree is None for tree in trees.values()] == [True, False]


def shared_by_kernels(img: Array) -> Any:
    """What the first kernel computes is read by later ones, and calls are between them."""
    soft = (img[1:] + img[:-1]) * img.dtype.type(0.5)
    edges = np.abs(soft[:, 1:] - soft[:, :-1])
    a = np.abs(np.fft.fft2(blurred(edges))).astype(img.dtype)
    b = np.sqrt(a[1:-1, 1:-1]) + edges[2:-2, 2:-2]
    c = np.abs(np.fft.fft2(b)).astype(img.dtype)
    return np.sqrt(c + soft[2:-2, 3:-2]) + b, blurred(c) + edges[3:-3, 3:-3]


@pytest.mark.parametrize("seed", range(8))
def test_whichever_schedules_of_several_kernels_win_results_are_numpys(
    seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    r = random.Random(seed)

    def found(segment: Any, *_: Any) -> Plan:
        graph = segment.graph
        inlined = frozenset(s.name for s in graph.stages if s.name not in graph.outputs and r.random() < 0.5)
        tree = random_schedule(inline_after(graph, Rewrites(inlined_after=inlined)), r)
        return Plan(tree, inlined, 0.5, default_cost=1.0)

    monkeypatch.setattr(autoschedule, "searched", found)
    monkeypatch.setattr(candidates, "least_times", lambda some, *_: [r.random() for _ in some])
    f = hjit.pipeline(shared_by_kernels, tune="greedy", verify="off")
    for got, expected in zip(f(IMAGE), shared_by_kernels(IMAGE), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    assert f.stats.fallbacks == 0


def test_of_kernels_between_calls_with_effects_none_is_timed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noisy(img: Array) -> Any:
        soft = blurred(img)
        return blurred(soft + np.random.random(soft.shape).astype(np.float32))

    monkeypatch.setattr(autoschedule, "searched", faster_by(0.5))
    monkeypatch.setattr(candidates, "measured", lambda *_: pytest.fail("timed"))
    trees = trees_of_kernels(monkeypatch)
    hjit.pipeline(noisy, tune="greedy", cache="off")(IMAGE)
    assert any(tree is not None for tree in trees.values())


def test_what_is_shown_is_what_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "measured", lambda *_: (0, [1.0, 2.0]))
    f = hjit.pipeline(blurred, tune="greedy")
    f(IMAGE)
    (path,) = folder.glob("*.plan")
    kept = json.loads(path.read_bytes().partition(b"\n")[2])
    if kept["tree"] is not None:  # the search beats the default schedule by its own cost
        assert str(f.tree(IMAGE)) != str(hjit.pipeline(blurred, tune=False).tree(IMAGE))
    assert "compute" in str(f.tree(IMAGE)) and "for" in str(f.loops(IMAGE))


def test_storage_moves_inwards_until_a_tree_can_be_lowered() -> None:
    p = Program(blurred)
    tree = default_schedule(p.graph, Target(64))
    tried: list[Root] = []

    def make(s: Choice) -> str:
        (mine,) = s.trees.values()
        tried.append(mine)
        if len(tried) == 1:
            raise SlidingError("wide", "wide cannot slide")
        return "made"

    made, done = with_fixes(make, by_search({p.graph.outputs: tree}), lambda _: [p.segment])
    assert made == "made" and done.trees[p.graph.outputs] == tried[1] == storage_at_compute(tree, "wide")

    def refuse(s: Choice) -> str:
        raise SlidingError("wide", "wide cannot slide")

    with pytest.raises(ScheduleError):
        with_fixes(refuse, by_search({p.graph.outputs: tree}), lambda _: [p.segment])


def test_all_but_the_most_expensive_stages_of_a_large_graph_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoschedule, "FEW_STAGES", 2)
    p = Program(interleaved)
    some = frozen(p.space)
    free = [s.name for s in p.graph.stages if s.name not in some.frozen]
    assert 0 < len(free) <= 1 + 2 * round(math.log2(len(p.graph.stages)))
    assert set(some.frozen.values()) <= {"root", "inline"}


def test_a_graph_too_large_for_the_time_there_is_has_the_default_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoschedule, "FEW_STAGES", 2)
    monkeypatch.setattr(autoschedule, "COMPLETED", 1e6)
    p = Program(interleaved)
    plan = searched(p.segment, p.variant.rec.sizes, Options(tune="greedy", cache="off"))
    assert plan.tree is None and not plan.others and plan.cost > 0


def test_a_large_graph_is_searched_in_the_time_that_costing_its_default_schedule_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, tree_cost = [0.0], Space.tree_cost

    def now() -> float:
        clock[0] += 1e-4
        return clock[0]

    def slow(*given: Any) -> float:
        clock[0] += 0.3
        return tree_cost(*given)

    monkeypatch.setattr(autoschedule, "FEW_STAGES", 2)
    monkeypatch.setattr(autoschedule, "time", SimpleNamespace(perf_counter=now, thread_time=now))
    monkeypatch.setattr(Space, "tree_cost", slow)
    p = Program(interleaved)
    plan = searched(p.segment, p.variant.rec.sizes, Options(tune="greedy", cache="off"))
    assert plan.evaluations > 0 and plan.record is not None


def summed_on_and_on(a: Any) -> Any:
    for k in range(40):
        a = np.sqrt(abs(a - a.mean(axis=k % 2, keepdims=True)))
    return a


def test_the_default_schedule_of_a_large_graph_is_not_costed_beyond_the_time_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(autoschedule.EFFORTS, "greedy", replace(autoschedule.EFFORTS["greedy"], seconds=1e-9))
    monkeypatch.setattr(
        autoschedule, "DEFINITIONS_A_SECOND", 1e18
    )  # by the number of its definitions it would be left out at once
    p = Program(summed_on_and_on)
    costed: list[Any] = []
    unchanged = NestCosts.unchanged

    def counting(self: NestCosts, nest: Any, *rest: Any) -> Any:
        costed.append(nest)
        return unchanged(self, nest, *rest)

    monkeypatch.setattr(NestCosts, "unchanged", counting)
    plan = searched(p.segment, p.variant.rec.sizes, Options(tune="greedy", cache="off"))
    assert plan.tree is None and plan.cost > 0
    assert len(costed) == 1 and len(default_schedule(p.graph, p.space.target).children) > 3


def test_nests_that_there_is_no_time_for_cost_as_much_as_others() -> None:
    p = Program(summed_on_and_on)
    tree = default_schedule(p.graph, p.space.target)
    looks = iter(range(len(tree.children)))
    costs = p.space.costs_of_nests(tree)
    assert len(costs) > 3
    assert p.space.tree_cost(tree, lambda: next(looks) == 2) == pytest.approx(sum(costs[:3]) * len(costs) / 3)
    assert p.space.tree_cost(tree) == pytest.approx(sum(costs))


def test_functions_of_several_kernels_have_a_plan_for_each(folder: Path) -> None:
    def decided(a: Array) -> Array:
        soft = a[1:] + a[:-1]
        if soft.max() > 0:
            soft = soft * 2 + a[1:]
        return np.sqrt(np.abs(soft[1:] - soft[:-1]))

    f = hjit.pipeline(decided, tune="greedy")
    np.testing.assert_allclose(f(IMAGE), decided(IMAGE), rtol=1e-5)
    assert len(list(folder.glob("*.plan"))) == 2


def test_nothing_is_kept_where_the_cache_is_off(folder: Path) -> None:
    hjit.pipeline(blurred, tune="greedy", cache="off")(IMAGE)
    assert list(folder.glob("*.plan")) == []
    p = Program(blurred)
    store_plans(
        DEFAULT,
        [(plan_name(p.segment, p.variant.rec.sizes, Options()), p.graph)],
        Options(cache="ro", cache_dir=folder),
    )
    assert list(folder.glob("*.plan")) == []


SCRIPT = """
    import sys
    import numpy as np
    import hjit

    @hjit.pipeline(verify="off", tune="greedy")
    def f(img):
        rows = img[1:] * 2 + img[:-1]
        return np.sqrt(rows[:, 1:] + rows[:, :-1])

    f(np.ones((700, 900)))  # less work is not searched
    print(f.stats.compilations > 0, "hjit.tuning.autoschedule" in sys.modules)
"""


def test_a_process_that_finds_a_plan_neither_searches_nor_compiles(tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    assert run_script(tmp_path, SCRIPT, HJIT_CACHE_DIR=folder).split() == ["True", "True"]
    assert run_script(tmp_path, SCRIPT, HJIT_CACHE_DIR=folder).split() == ["False", "False"]


SEARCHED = """
    import numpy as np
    from hjit.process import machine
    from hjit.tuning.autoschedule import EFFORTS, searched
    from hjit.options import Options
    from hjit.tuning.plans import to_text
    from hjit.sched.search.search import presets
    from dataclasses import replace
    from tests.sched.test_space import PROGRAMS, Program

    machine.bandwidth = lambda threads: 1e10
    for function in PROGRAMS[:4]:
        p = Program(function)
        for effort in (EFFORTS["greedy"], replace(EFFORTS["beam"], parameters=presets(8)["beam"], passes=3, sample=True, refine=0.0)):
            plan = searched(p.segment, p.variant.rec.sizes, Options(num_threads=2), effort=replace(effort, seconds=1000.0))
            print(plan.cost, plan.evaluations, len(plan.others), to_text(plan, p.graph).decode())
"""


def test_searches_find_the_same_in_every_process(tmp_path: Path) -> None:
    first, second = (run_script(tmp_path, SEARCHED, PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert first == second and len(first.splitlines()) == 8


INTERRUPTED = """
    import gc, signal
    import numpy as np
    import hjit
    from hjit.tuning import plans

    def f(img):
        soft = np.exp(-img * img) + img
        rows = soft[1:] * 2 + soft[:-1]
        return np.sqrt(rows[:, 1:] ** 2 + rows[:, :-1] ** 2)

    image = np.random.default_rng(0).standard_normal((300, 400))
    hjit.pipeline(lambda x: x + 1)(image)  # what the first call of a process loads is loaded
    limits, interrupted = gc.get_threshold(), 0
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for tune in ("greedy", "refined", "beam"):
        for iteration in range(8):
            plans._plans.clear()
            g = hjit.pipeline(f, tune=tune, cache="off", verify="off")
            signal.setitimer(signal.ITIMER_REAL, 0.005 + 0.02 * iteration)
            try:
                g(image)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
            assert gc.isenabled() and gc.get_threshold() == limits
            assert iteration % 4 or np.allclose(g(image), f(image), rtol=1e-12)
    print(interrupted > 3)
"""


def test_a_search_that_is_interrupted_leaves_nothing_broken(tmp_path: Path) -> None:
    assert run_script(tmp_path, INTERRUPTED).split() == ["True"]


def test_where_there_is_no_disk_a_process_searches_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = searches(monkeypatch)
    f = hjit.pipeline(blurred, tune="greedy", cache="off")
    for image in (IMAGE, IMAGE[:-2], IMAGE[:, 3:]):
        np.testing.assert_allclose(f(image), blurred(image), rtol=1e-5)
    assert len(found) == 1
    monkeypatch.setattr(plans, "MAX_PLANS", 1)
    hjit.pipeline(pyramid, tune="greedy", cache="off")(IMAGE)
    assert len(found) == 2 and len(plans._plans) == 1


def test_the_default_schedule_is_final_where_a_search_finds_nothing_better(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = Program(blurred)
    monkeypatch.setattr(autoschedule, "searched", lambda *_: Plan(None, frozenset(), 1.0))
    segments_of, options = TraceSegments(p.variant.trace, p.segment.target), Options(tune="greedy", cache_dir=folder)
    decision = found_or_searched(segments_of, p.variant.rec.sizes, options, autoschedule.searched)
    assert decision.is_final and decision.best == DEFAULT
    assert len(list(folder.glob("*.plan"))) == 1


def test_the_space_knows_the_machine() -> None:
    p = Program(blurred)
    space = space_of(p.segment, p.variant.rec.sizes, Options(num_threads=1))
    assert space.templates.cores == 1 and len(space.nests.machine) == 6 and (space.nests.machine > 0).all()


def column_sums(a: Any) -> Any:
    soft = np.exp(-a)
    return (soft[:, 1:] * soft[:, :-1]).sum(1)


def test_plans_are_of_the_order_of_magnitude_of_what_is_computed(folder: Path) -> None:
    """Also where the result is as small for every image."""
    for rows in (40, 44, 4000):
        hjit.pipeline(lambda a: np.abs(a[1:] - a[:-1]).max(0), tune="greedy")(
            np.random.default_rng(0).random((rows, 100))
        )
    assert len(list(folder.glob("*.plan"))) == 2


def test_a_plan_says_what_was_predicted_and_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "measured", lambda *_: (0, [1.0, 2.0]))
    hjit.pipeline(blurred, tune="greedy")(IMAGE)
    (path,) = folder.glob("*.plan")
    text = path.read_bytes().partition(b"\n")[2]
    kept = json.loads(text)
    assert kept["measured"] == [1.0, 2.0] and kept["cost"] > 0
    assert [x["seconds"] for x in kept["timed"]] == [1.0, 2.0]
    q = Program(blurred)
    found = from_text(text, q.graph)
    assert found is not None and from_text(to_text(found, q.graph), q.graph) == found
    assert {x.tree for x in found.timed} >= {found.tree}


def test_long_reductions_to_few_elements_are_done_in_parts_where_that_is_expected_to_be_faster(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "measured", lambda *_: (0, [1.0, 2.0]))
    real, better = autoschedule.searched, []

    def searched_in_parts(segment: Any, *more: Any) -> Plan:
        """The search, with the cost of another number of cores."""
        plan = real(segment, *more)
        is_in_parts = any(s.name.endswith("_parts") for s in segment.graph.stages)
        better.append(is_in_parts)
        return replace(plan, cost=plan.cost / 2 if is_in_parts else plan.cost)

    monkeypatch.setattr(autoschedule, "searched", searched_in_parts)
    a = np.random.default_rng(0).random((2, 300_000))
    for _ in range(2):  # the second time from the plan
        f = hjit.pipeline(column_sums, tune="greedy")
        np.testing.assert_allclose(f(a), column_sums(a), rtol=1e-12)
        assert "_parts" in str(f.tree(a))
    assert better == [False, True]
    (path,) = folder.glob("*.plan")
    assert json.loads(path.read_bytes().partition(b"\n")[2])["factored"]
