"""Tails of loops, copies of what is read, reductions in parts, atomic updates, gaps in memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.llvm.memory.loads import _vector_offsets
from hjit.sched.language import transforms
from hjit.sched.language.build import paths
from hjit.sched.language.tree import Store, from_json
from hjit.trace.ir.poly import Sym, extremum, poly
from hjit.trace.passes.canonical import canonicalise
from hjit.trace.passes.rewrites import Rewrites
from tests.numpy_check import check
from tests.trace.test_canonical import graphs

RNG = np.random.default_rng(5)
SIZES = [(45, 83), (7, 5), (16, 64), (1, 1)]
GRAY = {size: RNG.integers(0, 1 << 16, size).astype(np.uint16) for size in SIZES}


def blur(img: Any) -> Any:
    padded = np.pad(img, 1, mode="edge")
    blur_x = (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) // 3
    blur_y = (blur_x[:-2] + blur_x[1:-1] + blur_x[2:]) // 3
    return blur_y


def added(img: Any) -> Any:
    total = img + np.uint16(1)
    total[:, ::-1] += total
    return total


def running(img: Any) -> Any:
    total = np.cumsum(img, axis=0)
    return total


def every_fourth(img: Any) -> Any:
    some = img[:, ::4] + img[:, 0:1]
    return some


def columns(img: Any) -> Any:
    turned = img.T * 2
    return turned


def counted(img: Any) -> Any:
    hist = np.zeros(1000 * img.shape[0], np.int64)
    np.add.at(hist, img[0] >> 7, 1)
    return hist


def summed(img: Any) -> Any:
    total = img.sum(axis=0, dtype=np.int64)
    return total


def means(img: Any) -> Any:
    total = img.astype(np.float32).mean(axis=0)
    return total


Make = Callable[[Any], Any]
CASES: dict[str, tuple[Any, Make, str]] = {
    "lanes that do nothing": (blur, lambda s: s["blur_y"].vectorize("x", 16, tail="predicate"), "lanes before"),
    "lanes that do nothing, in an update": (added, lambda s: last(s, 1).vectorize("x", 8, tail="predicate"), "lanes before"),
    "lanes that do nothing, far apart": (every_fourth, lambda s: last(s).vectorize("x", 8, tail="predicate"), "lanes before"),
    "lanes that do nothing, across rows": (columns, lambda s: last(s).reorder("x", "y").vectorize("y", 4, tail="predicate"), "lanes before"),
    "single elements": (blur, lambda s: s["blur_y"].vectorize("x", 16, tail="guard_with_if"), "d1 .. d1 + 15:"),
    "vectors shifted inwards": (blur, lambda s: s["blur_y"].vectorize("x", 16, tail="shift_inwards"), "shift_inwards before"),
    "unrolled iterations, then single ones": (blur, lambda s: s["blur_y"].unroll("y", 4, tail="guard_with_if"), "step 4:"),
    "whole tiles shifted inwards": (blur, lambda s: (
        s["blur_y"].tile("y", "x", "yo", "xo", "yi", "xi", 8, 32, tail="shift_inwards"), s["blur_x"].compute_at("blur_y", "xo")), "shift_inwards before"),
    "whole vectors of a temporary": (blur, lambda s: (
        s["blur_y"].tile("y", "x", "yo", "xo", "yi", "xi", 8, 30), s["blur_x"].compute_at("blur_y", "xo").vectorize("x", 16, tail="round_up")), "x 32 from"),
    "two lanes of every fourth element": (every_fourth, lambda s: last(s).vectorize("x", 2), "d1 .. d1 + 1"),
    "a copy of the input in tiles": (columns, lambda s: (
        last(s).tile("y", "x", "yo", "xo", "yi", "xi", 16, 16), s.cache_read("img").compute_at("turned", "xo")), "buffer img_cache: 16 from"),
    "a copy of a stage": (blur, lambda s: s.cache_read("blur_x").root().reorder_storage(1, 0), "nest blur_x_cache"),
    "gaps between rows": (blur, lambda s: s["blur_x"].root().align_storage(1, 64), "nest blur_x"),
    "gaps in a buffer": (blur, lambda s: (s["blur_y"].serial("y"), s["blur_x"].compute_at("blur_y", "y").store_root().align_storage(1, 64)), "aligned to 1, 64"),
    "a sum in parts": (summed, lambda s: last(s).rfactor("r0", 4).parallel("y"), "nest total_parts"),
    "a mean in parts": (means, lambda s: s[s.stages[0]].rfactor("r0", 3), "_parts"),
    "tasks that count into one histogram": (counted, lambda s: s[s.stages[-1]].update(1).parallel("r0"), "atomic add"),
}  # fmt: skip


def last(s: Any, nest: int = 0) -> Any:
    return s[next(n for n in reversed(s.stages) if not n.endswith(("_parts", "_rows")))].update(nest)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_the_numbers_stay(case: str, size: tuple[int, int], tmp_path: Path) -> None:
    function, make, seen = CASES[case]
    img = GRAY[size]
    f = hjit.pipeline(function, verify="off", num_threads=2)
    s = f.schedule(img)
    make(s)
    assert seen in str(f.use(s).loops(img)) or size != SIZES[0]
    s.save(tmp_path / "s.json")
    check(function, img, exact=function is not means, schedule=hjit.Schedule.load(tmp_path / "s.json"), num_threads=2)
    for tree in s:
        assert from_json(tree.to_json()) == tree


@pytest.mark.parametrize(
    ("function", "say", "why"),
    [
        (blur, lambda s: s["blur_y"].split("y", "a", "b", 4, tail="wrap"), "no tail .wrap.; there are auto"),
        (blur, lambda s: s["blur_y"].unroll("y", 4, tail="predicate"), "only lanes"),
        (blur, lambda s: s["blur_y"].vectorize("x", 8, tail="round_up"), "inside other loops"),
        (running, lambda s: last(s, 1).vectorize("x", 8, tail="shift_inwards"), "no iteration is repeated"),
        (summed, lambda s: last(s).split("r0", "a", "b", 4, tail="guard_with_if"), "run once each"),
        (summed, lambda s: last(s).reorder("r0", "x").parallel("r0"), "rfactor"),
        (summed, lambda s: last(s).rfactor("x", 4), "no loop over a reduction dimension; total has x, r0"),
        (summed, lambda s: last(s).rfactor("r0", 0), "not a number of parts"),
        (lambda img: np.cumsum(img, axis=0), lambda s: last(s).rfactor("y", 4), "no loop over a reduction"),
        (blur, lambda s: s.cache_read("nothing"), "no input or stage nothing"),
        (blur, lambda s: s["blur_x"].align_storage(2, 8), "has the axes 0, 1"),
        (blur, lambda s: s["blur_y"].align_storage(1, 8), "without gaps"),
        (blur, lambda s: s["blur_y"].vectorize("x", 8).reorder("xv", "x"), "xv would be outside"),
        (blur, lambda s: s["blur_y"].split("y", "yo", "yi", 8).reorder("yi", "yo"), "yi would be outside"),
    ],
)  # fmt: skip
def test_what_is_impossible_says_why(function: Any, say: Any, why: str) -> None:
    s = hjit.pipeline(function).schedule(GRAY[45, 83])
    with pytest.raises(hjit.ScheduleError, match=why):
        say(s)
        s.trees()


def test_a_window_does_not_slide_where_iterations_shift_inwards() -> None:
    f = hjit.pipeline(blur, verify="off")
    s = f.schedule(GRAY[45, 83])
    s["blur_y"].split("y", "yo", "yi", 8, tail="shift_inwards").serial("yo")
    s["blur_x"].compute_at("blur_y", "yo").store_root()
    with pytest.raises(hjit.ScheduleError, match="cannot slide"):
        f.use(s)(GRAY[45, 83])


def test_transforms_keep_the_layout_of_a_stage() -> None:
    f = hjit.pipeline(blur)
    s = f.schedule(GRAY[45, 83])
    s["blur_x"].root().reorder_storage(1, 0).align_storage(0, 16)
    (graph,), (tree,) = s.graphs(), s.trees()
    (before,) = [n for _, n in paths(tree) if isinstance(n, Store) and n.stage == "blur_x"]
    lowered = transforms.lower_compute(tree, graph, "blur_x")
    for new in (
        lowered,
        transforms.hoist_storage(lowered, graph, "blur_x"),
        transforms.hoist_compute(lowered, graph, "blur_x"),
    ):
        (store,) = [n for _, n in paths(new) if isinstance(n, Store) and n.stage == "blur_x"]
        assert (store.order, store.align) == (before.order, before.align) == ((1, 0), (16, 1))


def test_rewrites_name_what_they_make() -> None:
    source = graphs(summed, GRAY[45, 83])[0]
    img = source.inputs[0].name
    made = canonicalise(source, Rewrites(cached={img}, factored={"total": (0, 5)}))
    assert [s.name for s in made.stages] == [f"{img}_cache", "total_parts", "total"]
    assert {x.source for x in made.stage("total_parts").loads} == {f"{img}_cache", "total_parts"}
    assert made.stage("total_parts").shape[0] == 5


@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("step", [2, 3, 4])
def test_strided_loads_stay_between_their_first_and_last_element(lanes: int, step: int) -> None:
    span = step * (lanes - 1) + 1
    pieces = [range(k, k + lanes) for k in _vector_offsets(lanes, span)]
    assert {i for p in pieces for i in p} == set(range(span))


def test_an_empty_part_of_an_update_writes_nothing() -> None:
    def some(a: Any) -> Any:
        b = np.abs(a)
        b[::3, 21:] += b[::3, 21:]
        return b[..., 0]

    a = RNG.integers(-9, 9, (8, 64))
    f = hjit.pipeline(some, verify="off")
    s = f.schedule(a)
    name, out = s.stages[0], s.stages[-1]
    s[name].compute_at(out, "x").update(1).vectorize("x", 16)
    check(some, a, schedule=s)


def test_long_minima_print_once() -> None:
    p = poly(Sym("n"))
    for k in range(60):
        p = extremum("min", p * 2, poly(Sym(f"m{k}"))) + 1
    assert len(str(p)) < 10_000


def test_atomic_parallel_loops_are_for_whole_numbers() -> None:
    def weighted(img: Any) -> Any:
        hist = np.zeros(256)
        np.add.at(hist, img >> 8, 0.5)
        return hist

    s = hjit.pipeline(weighted).schedule(GRAY[45, 83])
    with pytest.raises(hjit.ScheduleError, match="atomically"):
        s[s.stages[-1]].update(1).parallel("r0")
        s.trees()


def test_a_schedule_for_another_function_says_so(tmp_path: Path) -> None:
    s = hjit.pipeline(blur).schedule(GRAY[45, 83])
    s["blur_x"].root()
    with pytest.raises(hjit.ScheduleError, match="speaks of a stage blur_x, which there is not; there are total"):
        hjit.pipeline(summed).use(s)(GRAY[45, 83])


def test_lanes_that_do_nothing_leave_a_window_of_one_row_alone() -> None:
    def twice(img: Any) -> Any:
        half = img * np.uint16(3)
        result = half + np.uint16(1)
        return result

    img = GRAY[7, 5]
    s = hjit.pipeline(twice).schedule(img)
    s["result"].reorder("x", "y").serial("x").serial("y")
    s["half"].compute_at("result", "x").store_root().vectorize("x", 4, tail="predicate")
    check(twice, img, schedule=s)


def product(a: Any, b: Any) -> Any:
    result = a @ b
    return result


def test_products_pack_their_right_matrix_unless_told_otherwise() -> None:
    a, b = RNG.random((37, 50)).astype(np.float32), RNG.random((50, 75)).astype(np.float32)
    s = hjit.pipeline(product).schedule(a, b)
    assert s.stages == ["b_cache", "result"] and "store b_cache" in str(s).split("parallel result")[1]
    s["b_cache"].inline()
    assert s.stages == ["result"]
    check(product, a, b, exact=False, schedule=s)
    check(product, a, b, exact=False)


PRODUCTS = {
    "right": (lambda a, b: a @ b.T, (37, 50), (75, 50), ["b_cache", "product"]),
    "left": (lambda a, b: a.T @ b, (50, 37), (50, 75), ["a_cache", "b_cache", "product"]),
    "both": (lambda a, b: a.T @ b.T, (50, 37), (75, 50), ["a_cache", "b_cache", "product"]),
    "itself": (lambda a, b: a @ a.T, (37, 50), (1, 1), ["a_cache", "product"]),
    "itself from the left": (lambda a, b: a.T @ a, (37, 50), (1, 1), ["a_cache", "a_cache_2", "product"]),
    "square": (lambda a, b: a @ a, (37, 37), (1, 1), ["a_cache", "product"]),
    "written otherwise": (
        lambda a, b: np.einsum("ki,jk->ij", a, b),
        (50, 37),
        (75, 50),
        ["product"],  # in Fortran's order, as NumPy has it: nothing is read across
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_transposed_matrices_of_products_are_packed_as_they_were_before(name: str) -> None:
    f, shape, other, stages = PRODUCTS[name]
    a, b = RNG.random(shape).astype(np.float32), RNG.random(other).astype(np.float32)
    s = hjit.pipeline(f).schedule(a, b)
    assert s.stages == stages
    if "a_cache" in stages and name not in ("itself", "square"):
        assert "store a_cache\n" not in str(s).split("parallel product")[1], (
            "what each block of columns reads is copied once"
        )
    check(f, a, b, exact=False)


def test_blocks_of_vectors_stay_whole_beside_other_stages() -> None:
    a, b = RNG.random((37, 50)).astype(np.float32), RNG.random((50, 75)).astype(np.float32)
    f = hjit.pipeline(product, fast_math=True)
    s = f.schedule(a, b)
    s["result"].vectorize("x", 16).unroll("x", 4).unroll("y", 6).reorder("x", "y", "r0", "yu", "xu", "xv").parallel("x")
    s.cache_read("b").compute_at("result", "x").vectorize("x", 16)
    assert re.search(r"vectors d1\S* \.\. d1\S* \+ 15, 4 of them", str(f.use(s).loops(a, b)))
    check(product, a, b, exact=False, schedule=s)


def test_one_lane_that_does_something_stores_no_more_than_its_element() -> None:
    def first(a: Any) -> Any:
        b = np.ones(a.shape, np.uint16)
        b[:, :1] = a[:, :1]
        return b

    a = RNG.integers(-9, 9, (7, 3))
    s = hjit.pipeline(first, verify="off").schedule(a)
    last(s, 1).vectorize("x", 4, tail="predicate")
    check(first, a, schedule=s)
