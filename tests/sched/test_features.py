"""Features of schedules against counting them, and of stages against a look at their definitions."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hjit.errors import ScheduleError
from hjit.kernels.lower.lower import lower
from hjit.model.feature_names import PIPELINE, SCHEDULE
from hjit.sched.analysis.sized import SizedGraph
from hjit.sched.analysis.tape import Num, Program, Tape, ceil_div, choose, floor_div, least, most, power_of_two
from hjit.sched.default.schedules import default_schedule
from hjit.sched.features.algorithm_features import pipeline_features
from hjit.sched.features.featurise import assembled, layouts_of, nest_features, schedule_features
from hjit.sched.language.check import check_tree
from hjit.sched.language.memory import Layout
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Compute, Loop, Node, Root, computes, from_json, walk
from hjit.trace.ir.expressions import Cast, Const, Expr, Op
from hjit.trace.ir.graph import Graph, Input, Stage
from hjit.trace.ir.poly import Indirect, boundary, sizes_value
from hjit.trace.passes.canonical import canonicalise
from hjit.trace.passes.fusion import inline
from tests.fuzz import random_program
from tests.sched.counting import Counter
from tests.sched.examples import F4, GRAPHS, IMAGE, SIZES, TREES, ZERO, H, W, X, Y, add, at, f, graph, stage, tree
from tests.sched.random_schedules import random_schedule
from tests.trace.test_canonical import graphs as traced
from tests.trace.test_interleaved_updates import thirds_of_rows


def sized(name: str, tasks: int | None = None, **options: Any) -> SizedGraph:
    return SizedGraph(GRAPHS[name], SIZES, 32, tasks, **options)


def assert_counted(
    g: Graph,
    root: Root,
    tasks: int | None = None,
    inlined: frozenset[str] = frozenset(),
    sizes: Any = SIZES,
    counter: Counter | None = None,
) -> None:
    """Assert that every feature of every stage is what counting finds."""
    got = schedule_features(SizedGraph(g, sizes, 32, tasks, inlined), root)[0]
    wanted = (counter or Counter(g, sizes, root, 32, tasks, inlined)).features()
    differ = {
        f"{s.name}.{feature}": (x, wanted.get(s.name, {}).get(feature, 0.0))
        for s, row in zip(g.stages, got, strict=True)
        for feature, x in zip(SCHEDULE, row, strict=True)
        if not math.isclose(x, wanted.get(s.name, {}).get(feature, 0.0), rel_tol=1e-12)
    }
    assert not differ, f"got and counted differ in\n{root}\n{differ}"


# -- against counting


@pytest.mark.parametrize("case", TREES)
@pytest.mark.parametrize("tasks", [None, 4])
def test_every_feature_is_what_counting_finds(case: str, tasks: int | None) -> None:
    name, text = TREES[case]
    root = tree(text)
    check_tree(root, GRAPHS[name])
    lower(GRAPHS[name], root)
    assert_counted(GRAPHS[name], root, tasks)


@pytest.mark.parametrize("tasks", [None, 4])
def test_rows_that_no_iteration_reads_are_not_counted(tasks: int | None) -> None:
    g = graph(
        [IMAGE],
        stage("rows", (H, W), f("multiply", at("img", Y, X), Const(2, F4))),
        stage("out", (H - 20, W), f("sqrt", at("rows", Y * 4, X))),
    )
    root = tree("""
        store out
          store rows
            serial out.d0
              serial rows.d0
                serial rows.d1
                  compute rows
              serial out.d1
                compute out""")
    assert_counted(g, root, tasks)


def is_plain(root: Root) -> bool:
    """Is nothing computed inside fused loops, of which bounds inference knows little, and no region rounded up, so that its parts add up to it?"""
    loops = [x for x in walk(root) if isinstance(x, Loop)]
    return not any(
        (isinstance(x.dim, tuple) and len({c.stage for c in computes(x)}) > 1) or x.tail == "round_up" for x in loops
    )


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("seed", range(4))
def test_so_it_is_under_random_schedules_whose_iterations_are_alike(name: str, seed: int) -> None:
    rng = random.Random(f"{seed} {name}")
    sizes, tasks = {"h": 14, "w": 18, "k": 6}, rng.choice([None, 3, 5])
    for _ in range(10):
        root = lowered_schedule(GRAPHS[name], rng)
        if is_plain(root):
            counter = Counter(GRAPHS[name], sizes, root, 32, tasks)
            if counter.is_regular():
                assert_counted(GRAPHS[name], root, tasks, counter=counter, sizes=sizes)
                return
    pytest.skip("no such schedule")


def lowered_schedule(g: Graph, rng: random.Random) -> Root:
    """A random schedule whose windows slide."""
    for _ in range(50):
        root = random_schedule(g, rng)
        try:
            lower(g, root)
        except ScheduleError:
            continue
        return root
    raise AssertionError(g)


@pytest.mark.parametrize(
    "case",
    [
        "a row at a time",
        "tiles that compute what they need",
        "loops inside loops inside loops",
        "read by two",
        "an unrolled window",
    ],
)
def test_buffers_are_as_long_as_those_of_lowering(case: str) -> None:
    name, text = TREES[case]
    root, sizes = tree(text), {"h": 2000, "w": 3000}
    got = schedule_features(SizedGraph(GRAPHS[name], sizes), root)[0]
    for b in lower(GRAPHS[name], root).buffers.values():
        s = GRAPHS[name].stage(b.stage)
        bytes_ = s.dtype.itemsize * math.prod(
            sizes_value(n, sizes) for n in b.lengths
        )  # without what rows are padded with
        assert got[GRAPHS[name].stages.index(s), SCHEDULE.index("bytes_at_realization")] == bytes_


# -- parts of schedules


PARTIAL = tree("""
        store out
          parallel out.d0
            serial out.d1
              vector out.d1 of 8
                compute out""")


@pytest.mark.parametrize("name", ["rows", "cols", "padded", "down and up", "gather"])
def test_stages_that_are_not_placed_cost_nothing_and_suit_their_readers(name: str) -> None:
    assert_counted(GRAPHS[name], PARTIAL)
    assert not schedule_features(sized(name), PARTIAL)[0, 0].any()


def test_loads_of_what_is_not_placed_are_dense() -> None:
    g = graph([IMAGE], stage("a", (H, W), f("exp", at("img", Y, X))), stage("out", (W, H), at("a", X, Y)))
    a_in_order = Root(
        (
            *tree("""
        store a
          serial a.d0
            serial a.d1
              compute a""").children,
            *PARTIAL.children,
        )
    )
    loads = [SCHEDULE.index("vector_loads_per_vector"), SCHEDULE.index("scalar_loads_per_vector")]
    assert schedule_features(SizedGraph(g, SIZES), PARTIAL)[0, 1, loads].tolist() == [1, 0]
    assert schedule_features(SizedGraph(g, SIZES), a_in_order)[0, 1, loads].tolist() == [0, 8]


@pytest.mark.parametrize(
    ("name", "inlined"),
    [("rows", {"rows"}), ("deep", {"a"}), ("deep", {"a", "b"}), ("down and up", {"half"}), ("channels", {"gray"})],
)
def test_inlined_stages_are_looked_through(name: str, inlined: set[str]) -> None:
    g = GRAPHS[name]
    small = inline(g, inlined)
    root = Root(tuple(x for s in small.stages for x in tree("\n".join([f"store {s.name}", *nest_text(s)])).children))
    assert_counted(g, root, inlined=frozenset(inlined))
    whole = sized(name)
    schedule_features(whole, Root(()))
    got, same = (
        schedule_features(whole.inlining(frozenset(inlined)), root)[0],
        schedule_features(SizedGraph(small, SIZES, 32), root)[0],
    )
    np.testing.assert_array_equal(got, schedule_features(sized(name, inlined=frozenset(inlined)), root)[0])
    for s, row in zip(small.stages, same, strict=True):
        k = [x.name for x in g.stages].index(s.name)
        np.testing.assert_allclose(got[k], row, err_msg=s.name)
    assert all(got[k, SCHEDULE.index("inlined_calls")] > 0 for k, s in enumerate(g.stages) if s.name in inlined)


@pytest.mark.parametrize(("rows", "each"), [(1, 3.0), (2, 2.0), (4, 1.5)])
def test_rows_that_run_together_share_what_they_call(rows: int, each: float) -> None:
    g, root = (
        GRAPHS["cols"],
        tree(f"""
        store out
          parallel out.d0
            serial out.d1
              unroll out.d0 of {rows}
                vector out.d1 of 8
                  compute out"""),
    )
    assert_counted(g, root, inlined=frozenset({"cols"}))
    got = schedule_features(sized("cols", inlined=frozenset({"cols"})), root)[0]
    points = math.prod(sizes_value(n, SIZES) for n in g.stage("out").shape)
    assert got[0, SCHEDULE.index("inlined_calls")] == each * points


def nest_text(s: Stage) -> list[str]:
    """Plain loops of a stage, as they are printed."""
    n = len(s.shape)
    loops = [f"{' ' * (k + 1)}serial {s.name}.d{k}" for k in range(n)]
    return [*loops, f"{' ' * (n + 1)}vector {s.name}.d{n - 1} of 8", f"{' ' * (n + 2)}compute {s.name}"]


def test_a_stage_that_is_called_twice_by_each_point_counts_twice() -> None:
    g = GRAPHS["rows"]
    calls = schedule_features(sized("rows", inlined=frozenset({"rows"})), PARTIAL)[0, 0]
    points = math.prod(sizes_value(n, SIZES) for n in g.stage("out").shape)
    assert calls[SCHEDULE.index("inlined_calls")] == 3 * points
    assert {name for name, x in zip(SCHEDULE, calls, strict=True) if x} == {
        "inlined_calls", "num_vectors", "vector_size", "native_vector_size", "inner_parallelism", "outer_parallelism"}  # fmt: skip


# -- batches, nests, keys


def slots(root: Node) -> list[Loop]:
    return [x for x in walk(root) if isinstance(x, Loop) and x.size is not None]


def with_sizes(x: Node, sizes: list[int]) -> Any:
    """The tree with other sizes of its loops, which are taken from the list."""
    if isinstance(x, Compute):
        return x
    new = replace(x, size=sizes.pop(0)) if isinstance(x, Loop) and x.size is not None else x
    return replace(new, children=tuple(with_sizes(c, sizes) for c in x.children))


def tilings(root: Root, rng: random.Random, n: int) -> np.ndarray[Any, Any]:
    """Sizes in place of the tree's own; those inside divide those outside."""
    rows = []
    for _ in range(n):
        sizes: dict[Any, int] = {}
        row = []
        for x in reversed(slots(root)):
            sizes[x.stage, x.dim] = (
                sizes.get((x.stage, x.dim), 1) * rng.choice([1, 2, 3, 4]) * (4 if x.kind == "vector" else 1)
            )
            row.insert(0, sizes[x.stage, x.dim])
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("case", [case for case, (_, text) in TREES.items() if " of " in text])
def test_a_batch_is_its_tilings_one_at_a_time(case: str) -> None:
    name, text = TREES[case]
    root, g = tree(text), sized(name, 4)
    tiles = tilings(root, random.Random(case), 7)
    got = schedule_features(g, root, tiles)
    assert got.shape == (7, len(GRAPHS[name].stages), len(SCHEDULE)) and got.dtype == np.float64
    for row, features in zip(tiles.tolist(), got, strict=True):
        np.testing.assert_allclose(features, schedule_features(g, with_sizes(root, row))[0], rtol=1e-12)
    np.testing.assert_array_equal(
        schedule_features(g, root, np.array([[x.size for x in slots(root)]])), schedule_features(g, root)
    )


def test_tiles_of_another_shape_are_refused() -> None:
    root = tree(TREES["tiles of blocks of vectors"][1])
    with pytest.raises(ValueError, match=r"\(3, 4\) for 5 loops"):
        schedule_features(sized("point"), root, np.ones((3, 4), int))
    with pytest.raises(ValueError, match=r"\(5,\) for 5 loops"):
        nest_features(sized("point"), root.children[0], np.ones(5, int))


@pytest.mark.parametrize("case", TREES)
def test_a_tree_is_its_nests(case: str) -> None:
    name, text = TREES[case]
    root, g = tree(text), sized(name)
    nests = [nest_features(g, child, placed=layouts_of(root)) for child in root.children]
    np.testing.assert_array_equal(assembled(g, nests), schedule_features(g, root))


def nest_key(graph: SizedGraph, nest: Node, placed: Mapping[str, Layout]) -> str:
    """What the features of a nest depend on, for one SizedGraph."""
    inside = layouts_of(nest)
    sources = {source for c in computes(nest) for source in graph.group(c.stage, c.definitions).footprints}
    outside = [f"{name}{layout}" for name, layout in sorted(placed.items()) if name in sources and name not in inside]
    return f"{nest} {', '.join(outside)}"


def test_equal_keys_have_equal_features_whatever_else_the_tree_has() -> None:
    g = sized("chain")
    seen: dict[str, Any] = {}
    shared = 0
    for seed in range(60):
        root = random_schedule(GRAPHS["chain"], random.Random(seed), inside=0.3)
        placed = layouts_of(root)
        for child in root.children:
            key = nest_key(g, from_json(Root((child,)).to_json()).children[0], placed)
            found = nest_features(sized("chain"), child, placed=placed)
            if key in seen:
                shared += 1
                np.testing.assert_array_equal(found.values, seen[key].values)
                np.testing.assert_array_equal(found.allocated, seen[key].allocated)
            seen[key] = found
    assert shared and len(seen) > 20


def test_keys_tell_apart_what_lies_differently_in_memory_outside_of_the_nest() -> None:
    make = "store rows{}\n  serial rows.d0\n    serial rows.d1\n      compute rows"
    roots = [
        PARTIAL,
        *(Root((*tree(make.format(order)).children, *PARTIAL.children)) for order in ("", " in order 1, 0")),
    ]
    g = sized("rows")
    assert len({r.children[-1] for r in roots}) == 1
    assert len({nest_key(g, r.children[-1], layouts_of(r)) for r in roots}) == 3
    lines = [schedule_features(g, r)[0, 1, SCHEDULE.index("vector_loads_per_vector")] for r in roots]
    assert lines == [3, 3, 0]


# -- anything at all


@pytest.mark.parametrize("seed", range(30))
def test_features_of_random_programs_are_finite_and_not_negative(seed: int) -> None:
    program = random_program(seed)
    try:
        g, recorder, _ = traced(program.function(), *program.args.values())
    except Exception as error:  # what cannot be traced is not at issue here
        pytest.skip(str(error))
    g = canonicalise(g)
    rng = random.Random(seed)
    sizes = {**recorder.sizes}
    for _ in range(3):
        root = random_schedule(g, rng)
        tiles = np.array([[x.size for x in slots(root)], [rng.randint(1, 40) for _ in slots(root)]])
        sized = SizedGraph(g, sizes, 32, rng.choice([None, 8]))
        got = schedule_features(sized, root, tiles)
        assert np.isfinite(got).all() and (got >= 0).all()
        some = tiles.repeat(3, 0)  # one half of the sizes is the same for all, the other is open
        some[:, ::2] = tiles[0, ::2]
        for each in (tiles, some):  # alone, all sizes are known while the tree is walked
            found = [schedule_features(sized, root, row[None])[0] for row in each]
            np.testing.assert_allclose(schedule_features(sized, root, each), found, rtol=1e-12)
        assert np.isfinite(pipeline_features(g, sizes)).all()


def test_pieces_without_elements_need_nothing() -> None:
    """Of rows whose length is a multiple of three the pieces that alternate leave nothing over."""
    g, recorder, _ = traced(thirds_of_rows, np.zeros((64, 96), np.uint8))
    g = canonicalise(g)
    assert len(g.stages[0].updates) == 5
    (store,) = default_schedule(g, Target(64)).children
    for nest in store.children:
        got = nest_features(SizedGraph(g, {**recorder.sizes}, 64, 8), replace(store, children=(nest,))).values
        assert np.isfinite(got).all() and (got >= 0).all()


@pytest.mark.parametrize("sizes", [{"h": 0, "w": 40, "k": 3}, {"h": 1, "w": 1, "k": 1}, {"h": 5, "w": 3, "k": 0}])
@pytest.mark.parametrize(
    "case", ["tiles that compute what they need", "a window in strips", "a block of sums", "an update of some columns"]
)
def test_images_of_any_size(case: str, sizes: dict[str, int]) -> None:
    name, text = TREES[case]
    got = schedule_features(SizedGraph(GRAPHS[name], sizes), tree(text))
    assert np.isfinite(got).all() and (got >= 0).all()


# -- what the numbers are made of


OPERATIONS: list[Any] = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a * 3.0 - 2.0, lambda a, b: 7.0 - a, least, most,
    lambda a, b: floor_div(a, most(b, 1.0)), lambda a, b: ceil_div(a, most(b, 1.0)), lambda a, b: choose(a >= b, a, b),
    lambda a, b: choose((a > b) & (b < 9.0), 1.0, b), lambda a, b: choose((a <= b) | (a > 4.0), a, -b), lambda a, b: power_of_two(most(a, 1.0)),
]  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_known_of_other_nests_changes_nothing(name: str) -> None:
    """Places that were met in nests before are looked up; the features are those of a nest that is met first."""
    met = sized(name, 8)
    for seed in range(25):
        root = random_schedule(GRAPHS[name], random.Random(seed), inside=0.7)
        slots = sum(isinstance(x, Loop) and x.size is not None for x in walk(root))
        tiles = np.random.default_rng(seed).integers(1, 40, (5, slots))
        np.testing.assert_array_equal(
            schedule_features(met, root, tiles), schedule_features(sized(name, 8), root, tiles)
        )
    assert any(key[0] == "row" for key in met.memo)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_tape_recorded_runs_for_other_numbers(seed: int) -> None:
    """Every operation of random formulas, from whatever was known of ranges and sums while they were recorded."""

    def formula(values: list[Num]) -> list[Num]:
        rng = random.Random(seed)
        found = [*values, 2.0]
        for _ in range(40):
            a, b = rng.choice(found), rng.choice(found)
            x = rng.choice(OPERATIONS)(a, b)
            found.append(least(most(x, -1000.0), 1000.0))
        return found

    tape = Tape()
    given = [tape.input() for _ in range(3)]
    recorded = formula([*given])
    program = Program(tape, [x.at for x in given], [tape.position(x) for x in recorded])
    inputs = np.random.default_rng(seed).integers(1, 30, (3, 11)).astype(np.float64)
    many = program.run(list(inputs))
    for k, column in enumerate(inputs.T.tolist()):
        expected = formula(column)
        assert program.run(column) == expected
        assert [float(np.broadcast_to(x, 11)[k]) for x in many] == expected


def only(got: np.ndarray[Any, Any]) -> dict[str, float]:
    return {name: round(float(x), 4) for name, x in zip(PIPELINE, got, strict=True) if x}


def one_stage(value: Expr, *inputs: Input, shape: tuple[Any, ...] = (H, W)) -> dict[str, float]:
    """The operations and accesses of a stage of its own."""
    got = only(pipeline_features(graph(inputs or (IMAGE,), stage("out", shape, value)), SIZES)[0])
    return {name: x for name, x in got.items() if name.startswith(("op_", "access_")) and name != "op_input_load"}


PIXEL = at("img", Y, X)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (add(PIXEL, PIXEL), {"op_add": 1, "access_pointwise": 1}),
        (f("true_divide", PIXEL, Const(3, F4)), {"op_div_const": 1, "op_const": 1, "access_pointwise": 1}),
        (f("floor_divide", PIXEL, at("img", X, Y)), {"op_div": 1, "access_pointwise": 1, "access_transpose": 1}),
        (f("minimum", f("maximum", PIXEL, ZERO), Const(9, F4)), {"op_saturate": 1, "op_const": 2, "access_pointwise": 1}),
        (f("minimum", f("maximum", PIXEL, ZERO), PIXEL), {"op_min": 1, "op_max": 1, "op_const": 1, "access_pointwise": 1}),
        (Cast(at("img", Y, 3), np.int32), {"op_cast_float": 1, "access_slice": 1}),
        (Cast(Cast(PIXEL, np.float64), F4), {"op_cast_wide": 1, "op_cast_narrow": 1, "access_pointwise": 1}),
        (at("img", Y * 2, X), {"access_strided": 1}),
        (at("img", Y // 2, X), {"access_strided": 1}),
        (at("img", Y, -1 * X), {"access_strided": 1}),
        (at("img", boundary("reflect", Y - 1, H), X), {"access_pointwise": 1}),
        (at("img", Y % 2, X), {"access_unknown": 1}),
        (at("img", Indirect(Cast(PIXEL, np.int64), H), X), {"op_gather": 1, "op_cast_float": 1, "access_pointwise": 1, "access_unknown": 1}),
        (Op("bitwise_and", (Op("less", (PIXEL, ZERO), np.bool_), Op("isnan", (PIXEL,), np.bool_)), np.bool_),
         {"op_logic": 1, "op_compare_lt": 1, "op_compare_eq": 1, "op_const": 1, "access_pointwise": 1}),
        (f("arctan2", PIXEL, f("sinh", f("gcd", PIXEL))), {"op_trig": 1, "op_hyperbolic": 1, "op_other": 1, "access_pointwise": 1}),
    ],
)  # fmt: skip
def test_operations_and_accesses(value: Expr, wanted: dict[str, float]) -> None:
    assert one_stage(value) == wanted


def test_several_definitions_count_by_their_points() -> None:
    got = only(pipeline_features(GRAPHS["product"], SIZES)[0])
    points = 1 + SIZES["k"]  # the initial value, and one for each term
    assert got["op_const"] == round(1 / points, 4) and got["op_fma"] == round(SIZES["k"] / points, 4)
    assert "op_mul" not in got and "op_self_load" not in got and "op_accumulate" not in got
    assert got["reduction_points"] == SIZES["k"] and got["has_updates"] == got["is_output"] == got["is_input_only"] == 1


def test_stages_by_their_shapes_and_types() -> None:
    rows, out = pipeline_features(GRAPHS["rows"], SIZES)
    common = {"op_add": 2, "access_stencil": 3, "type_float32": 1, "reduction_points": 1, "dimensions": 2}
    assert only(rows) == common | {"op_input_load": 3, "is_input_only": 1}
    assert only(out) == common | {"op_stage_load": 3, "is_output": 1}
    assert pipeline_features(GRAPHS["rows"], SIZES).dtype == np.float32
    conv = only(pipeline_features(GRAPHS["window"], SIZES)[0])
    assert conv["access_stencil"] == conv["access_broadcast"] == 0.9  # a window of the image, and its weights
    half = graph([IMAGE], stage("out", (H, W), Cast(PIXEL, np.float16)))
    assert only(pipeline_features(half, SIZES)[0])["type_int16"] == 1


@pytest.mark.parametrize(
    ("rows", "lanes", "vectors", "scalars"), [(1, 8, 1, 1), (4, 8, 0.25, 1), (4, 16, 0.5 / 4, 0.5)]
)
def test_unrolled_blocks_share_loads(rows: int, lanes: int, vectors: float, scalars: float) -> None:
    """Of a product of matrices: a vector of one factor serves all rows, an element of the other all vectors."""
    root = with_sizes(tree(TREES["a block of sums"][1]), [rows, lanes, 8])
    got = dict(zip(SCHEDULE, schedule_features(sized("product"), root)[0, 0], strict=True))
    assert (got["vector_loads_per_vector"], got["scalar_loads_per_vector"]) == (
        vectors if lanes == 8 else 1 / rows,
        scalars,
    )
