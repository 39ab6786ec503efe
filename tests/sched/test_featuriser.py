"""The compiled featuriser against the recorded features: the same numbers, and the same choices."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.search import counted_searches, plans
from hjit import cache
from hjit.errors import CompileError
from hjit.model.feature_names import SCHEDULE
from hjit.options import Options
from hjit.sched.analysis.sized import SizedGraph
from hjit.sched.default.schedules import default_schedule
from hjit.sched.features.compiled_plan import CompiledPlan
from hjit.sched.features.featurise import Structure, layouts_of, schedule_features
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Compute, Loop, Root
from hjit.sched.native import records as rec
from hjit.sched.native.argument_block import Featuriser
from hjit.sched.native.nests import is_known
from hjit.trace.passes.canonical import canonicalise
from hjit.trace.passes.fusion import inline
from hjit.training.cases import segment_of
from hjit.tuning import autoschedule, featuriser
from hjit.tuning.autoschedule import EFFORTS
from hjit.tuning.choice import Segment
from hjit.tuning.featuriser import compiled_featuriser
from tests.fuzz import random_program
from tests.sched.examples import GRAPHS, SIZES, TREES, tree
from tests.sched.random_schedules import random_schedule
from tests.trace.test_canonical import graphs as traced

OPTIONS = Options(num_threads=2)
EFFORT = replace(EFFORTS["greedy"], seconds=1e9)  # however busy the machine is
ROUNDING = 1e-12  # as of recorded features themselves, in another order of products and quotients
Tiles = Callable[[Any], Any]


def own(tiles: Any) -> Any:
    """The tree's own sizes."""
    return tiles


def several(rng: random.Random) -> Tiles:
    """Multiples of the tree's own, and any."""

    def tiles(own: Any) -> Any:
        multiples = own * np.array([[rng.choice([1, 1, 2, 4]) for _ in own[0]] for _ in range(4)], np.int64)
        return np.concatenate([multiples, [[rng.randint(1, 40) for _ in own[0]]]]).astype(np.int64)

    return tiles


def plan_of(structure: Structure, machine_code: Featuriser | None) -> CompiledPlan:
    def fails(tiles: Any) -> Any:
        raise AssertionError("the featuriser gave up")

    return CompiledPlan.of(structure.graph, machine_code, structure.nest, structure.placed, fails)


def assert_same(graph: SizedGraph, root: Root, machine_code: Featuriser | None, tiles: Tiles = own) -> int:
    """Assert that the featuriser computes what is recorded, of all nests of a schedule; of how many?"""
    count, placed = 0, layouts_of(root)
    for nest in root.children:
        if not is_known(nest):
            continue
        structure = Structure.of(graph, nest, placed)
        sizes = tiles(np.array([structure.sizes], np.int64))
        recorded, computed = structure.recorded(sizes).run(sizes), plan_of(structure, machine_code).run(sizes)
        assert computed.stages == recorded.stages
        np.testing.assert_array_equal(computed.allocated, np.broadcast_to(recorded.allocated, len(sizes)))
        np.testing.assert_allclose(
            computed.values, recorded.values, rtol=ROUNDING, err_msg=f"{recorded.stages}\n{SCHEDULE}\n{root}"
        )
        count += 1
    return count


@pytest.fixture(scope="module")
def machine_code(tmp_path_factory: pytest.TempPathFactory) -> Featuriser:
    found = compiled_featuriser(Options(cache_dir=str(tmp_path_factory.mktemp("featuriser"))))
    assert found is not None
    return found


@pytest.mark.parametrize("case", TREES)
@pytest.mark.parametrize("tasks", [None, 4])
def test_features_are_the_recorded_ones(machine_code: Featuriser, case: str, tasks: int | None) -> None:
    name, text = TREES[case]
    graph = SizedGraph(GRAPHS[name], SIZES, 32, tasks)
    count = assert_same(graph, tree(text), machine_code)
    assert count or "round_up" in text
    if tasks is None:
        assert assert_same(graph, tree(text), None) == count  # the same functions in Python


@pytest.mark.parametrize("name", GRAPHS)
def test_so_they_are_of_random_schedules(machine_code: Featuriser, name: str) -> None:
    rng, count = random.Random(name), 0
    for _ in range(20):
        sizes = {"h": rng.choice([14, 100, 1000]), "w": rng.choice([18, 333, 2000]), "k": 6}
        graph = SizedGraph(GRAPHS[name], sizes, 32, rng.choice([None, 3, 8]))
        count += assert_same(graph, random_schedule(GRAPHS[name], rng), machine_code, several(rng))
    assert count > 10


@pytest.mark.parametrize("seed", range(20))
def test_and_of_random_programs(machine_code: Featuriser, seed: int) -> None:
    program, rng = random_program(seed), random.Random(seed)
    with np.errstate(all="ignore"):
        graph, recorder, _ = traced(program.function(), *program.args.values())
    for g in (graph, canonicalise(graph)):
        sized = SizedGraph(g, recorder.sizes, 32, 8)
        for _ in range(3):
            assert_same(sized, random_schedule(g, rng), machine_code, several(rng))


def test_what_a_schedule_allocates_is_the_same(machine_code: Featuriser) -> None:
    """The one feature of all stages, from what either way says of each nest."""
    at_root = SCHEDULE.index("working_set_at_root")
    for name, text in TREES.values():
        found, recorded = (
            schedule_features(SizedGraph(GRAPHS[name], SIZES, 32, 4, featuriser=x), tree(text))[..., at_root]
            for x in (machine_code, None)
        )
        np.testing.assert_array_equal(found, recorded)
        assert found.any() and len(set(found[found > 0])) == 1


def test_inlined_stages_have_rows_of_their_own(machine_code: Featuriser) -> None:
    graph = GRAPHS[TREES["read by two"][0]]
    for stage in graph.stages:
        if stage.initial is not None and not stage.updates and stage.name not in graph.outputs:
            inlined = frozenset({stage.name})
            root = default_schedule(inline(graph, set(inlined)), Target(32))
            assert assert_same(SizedGraph(graph, SIZES, 32, 4, inlined), root, machine_code)


@pytest.mark.parametrize("app", ["unsharp", "camera_pipe", "interpolate"])
def test_searches_choose_the_same(app: str, machine_code: Featuriser, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    effort = replace(EFFORTS["greedy"], seconds=1e9)
    for given in (machine_code, None):
        for name in ("compiled_featuriser", "stored_featuriser"):
            monkeypatch.setattr(autoschedule, name, lambda options, given=given: given)
        monkeypatch.setattr(autoschedule, "is_due", lambda: True)  # however long searches take
        with counted_searches() as counters:
            made = plans(app, "greedy", 2, True, effort)
        found.append([(str(p.tree), p.inlined, p.cost, p.evaluations) for p, *_ in made])
        assert sum(x.featurised for x in counters) > 100
    assert found[0] == found[1]


# -- what it does not know, and where there is none


def test_rounded_regions_are_recorded(machine_code: Featuriser) -> None:
    nest = Loop("out", 0, "serial", None, (Loop("out", 0, "serial", 4, (Compute("out", (0,)),), "round_up"),))
    assert not is_known(nest)
    assert is_known(replace(nest, children=(Compute("out", (0,)),)))


def test_a_featuriser_that_gives_up_leaves_it_to_the_recorded_features() -> None:
    def gives_up(words: bytes) -> int:
        return rec.TOO_LARGE

    name, text = TREES["read by two"]
    wanted = schedule_features(SizedGraph(GRAPHS[name], SIZES), tree(text))
    assert (schedule_features(SizedGraph(GRAPHS[name], SIZES, featuriser=gives_up), tree(text)) == wanted).all()


@pytest.fixture
def compiled_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is compiled meanwhile."""
    found: list[str] = []
    real = featuriser.llvm_ir

    def llvm_ir(name: str) -> str:
        found.append(name)
        return real(name)

    monkeypatch.setattr(featuriser, "llvm_ir", llvm_ir)
    monkeypatch.setattr(featuriser, "_known", None)
    monkeypatch.setattr(featuriser, "_recorded", 0.0)
    return found


def test_it_is_compiled_once_and_kept(
    tmp_path: Path, compiled_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(cache_dir=str(tmp_path))
    assert compiled_featuriser(options) is not None
    monkeypatch.setattr(featuriser, "_known", None)  # as in another process
    assert compiled_featuriser(options) is not None
    (name,) = compiled_names
    assert [x.stem for x in tmp_path.glob("*.code")] == [name]


@pytest.mark.parametrize("code", [b"", b"no object code", b"\x7fELF\x02\x01\x01" + bytes(300)])
def test_damaged_code_is_compiled_anew(
    tmp_path: Path, compiled_names: list[str], code: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(cache_dir=str(tmp_path))
    assert compiled_featuriser(options) is not None
    cache.store(compiled_names[0], code, {}, tmp_path, "rw")
    monkeypatch.setattr(featuriser, "_known", None)
    found = compiled_featuriser(options)
    assert len(compiled_names) == 2
    name, text = TREES["read by two"]
    assert assert_same(SizedGraph(GRAPHS[name], SIZES), tree(text), found)


@pytest.mark.parametrize(
    "error", [CompileError("busy"), OSError("could not get source code"), NotImplementedError("match x:")]
)
def test_where_it_cannot_be_compiled_features_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refused(name: str) -> str:
        raise error

    monkeypatch.setattr(featuriser, "llvm_ir", refused)
    monkeypatch.setattr(featuriser, "_known", None)
    assert compiled_featuriser(Options(cache_dir=str(tmp_path))) is None


@pytest.fixture
def segment() -> Segment:
    """What there is to search."""
    name, _ = TREES["read by two"]
    return segment_of(GRAPHS[name], OPTIONS)


def test_a_short_search_compiles_no_featuriser(
    segment: Segment, tmp_path: Path, compiled_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoschedule, "RECORDED_SECONDS", 1e9)
    plan = autoschedule.searched(segment, SIZES, replace(OPTIONS, cache_dir=str(tmp_path)), EFFORT)
    assert plan.evaluations > 0
    assert not compiled_names
    assert featuriser._recorded > 0


def test_a_long_one_goes_on_with_it(
    segment: Segment, tmp_path: Path, compiled_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(OPTIONS, cache_dir=str(tmp_path))
    wanted = autoschedule.searched(segment, SIZES, options, EFFORT)
    assert not compiled_names
    for seconds in (0.0, 1e-3, 1e-2):
        monkeypatch.setattr(featuriser, "_known", None)
        monkeypatch.setattr(featuriser, "_recorded", 0.0)
        monkeypatch.setattr(autoschedule, "RECORDED_SECONDS", seconds)
        found = autoschedule.searched(segment, SIZES, replace(options, cache_dir=str(tmp_path / str(seconds))), EFFORT)
        assert compiled_names or seconds
        assert (found.tree, found.inlined) == (wanted.tree, wanted.inlined)
        assert found.cost == wanted.cost
        assert seconds or found.evaluations == wanted.evaluations


def test_after_many_short_ones_it_is_compiled(
    segment: Segment, tmp_path: Path, compiled_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoschedule, "RECORDED_SECONDS", 1e9)
    monkeypatch.setattr(featuriser, "_recorded", 1e9)
    autoschedule.searched(segment, SIZES, replace(OPTIONS, cache_dir=str(tmp_path)), EFFORT)
    assert len(compiled_names) == 1


def test_for_a_large_graph_it_is_compiled_at_once(
    segment: Segment, tmp_path: Path, compiled_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its search would take longer than features are recorded for."""
    monkeypatch.setattr(autoschedule, "RECORDED_SECONDS", 1e9)
    monkeypatch.setattr(autoschedule, "RECORDED_DEFINITIONS", 0)
    too_large = replace(EFFORT, freeze=True, seconds=0.0)
    autoschedule.searched(segment, SIZES, replace(OPTIONS, cache_dir=str(tmp_path)), too_large)
    assert not compiled_names, "nothing is searched"
    autoschedule.searched(segment, SIZES, replace(OPTIONS, cache_dir=str(tmp_path)), EFFORT)
    assert len(compiled_names) == 1
