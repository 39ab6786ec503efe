"""Schedules beyond all measure, and damaged ones, are refused with a message that says what is allowed, or run and are right."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.sched.language.limits import MAX_ALIGN, MAX_DIRECTIVES, MAX_LANES, MAX_PARTS, MAX_SIZE
from hjit.sched.language.tree import Compute, Loop, Node, Root, Store, from_json, with_children
from tests import mutants
from tests.sched.test_schedule import GRAY, A, B, blur, last, product, sums

MUTANTS = int(os.environ.get("HJIT_MUTANTS", "500"))
HUGE = (MAX_SIZE + 1, 2**31, 2**62, 2**63, 2**64, 2**65, 10**5000)


def compiled(function: Any) -> Any:
    return hjit.pipeline(function, verify="off", cache="off", tune=False)


def on_all(make: Callable[[Node], Node]) -> Callable[[Node], Node]:
    def change(node: Node) -> Node:
        return make(node) if isinstance(node, Compute) else make(with_children(node, tuple(map(change, node.children))))

    return change


@pytest.mark.parametrize("size", [*HUGE, 0, -1, -(2**65), True, 8.0, float("nan"), None, "8"], ids=lambda n: type(n).__name__ + repr(n)[:20] if not isinstance(n, int) or abs(n) < 2**70 else "int of thousands of digits")  # fmt: skip
def test_no_size_wraps_round(size: Any, tmp_path: Path) -> None:
    for say in (
        lambda s: s["blur_y"].split("x", "xo", "xi", size),
        lambda s: s["blur_y"].tile("y", "x", "yo", "xo", "yi", "xi", 8, size),
        lambda s: s["blur_y"].prefetch("img", "x", size),
        lambda s: s["blur_x"].align_storage(1, size if size != MAX_SIZE + 1 else MAX_ALIGN + 1),
    ):
        with pytest.raises(hjit.ScheduleError, match=r"whole numbers? from 1 to|whole number"):
            say(hjit.pipeline(blur).schedule(GRAY))
    if not isinstance(size, int) or size < 10**4000:
        (tmp_path / "s.json").write_text(
            json.dumps({"hjit schedule": 1, "directives": [["blur_y", 0, "split", ["x", "xo", "xi", size]]]})
        )
        with pytest.raises(hjit.ScheduleError, match="whole number"):
            compiled(blur).use(hjit.Schedule.load(tmp_path / "s.json"))(GRAY)
        if size is not None:
            tree = compiled(blur).tree(GRAY)[0]
            data = on_all(lambda n: replace(n, size=size) if isinstance(n, Loop) and n.size is not None else n)(tree)
            for make in (lambda: compiled(blur).use(data), lambda: from_json(data.to_json())):  # type: ignore[union-attr]
                with pytest.raises(hjit.ScheduleError, match=f"from 1 to {MAX_SIZE} elements"):
                    make()


def test_sizes_of_splits_multiply() -> None:
    s = hjit.pipeline(blur).schedule(GRAY)
    s["blur_y"].split("x", "x", "a", 2**20)
    with pytest.raises(hjit.ScheduleError, match=r"split x: b would have \d+ elements; allowed are up to"):
        s["blur_y"].split("x", "x", "b", 2**20)


@pytest.mark.parametrize("lanes", [MAX_LANES + 1, 4096, 65535, 2**28])
def test_a_vector_has_few_lanes(lanes: int) -> None:
    with pytest.raises(hjit.ScheduleError, match=f"{lanes} lanes of blur_y, more than {MAX_LANES}"):
        hjit.pipeline(blur).schedule(GRAY)["blur_y"].vectorize("x", lanes)
    tree = compiled(blur).tree(GRAY)[0]
    wide = on_all(lambda n: replace(n, size=lanes) if isinstance(n, Loop) and n.kind == "vector" else n)(tree)
    with pytest.raises(hjit.ScheduleError, match=f"{lanes} lanes, more than {MAX_LANES}"):
        compiled(blur).use(wide)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float64])
@pytest.mark.parametrize("say", [
    lambda s: s["blur_y"].vectorize("x", 64), lambda s: s["blur_y"].vectorize("x", 256), lambda s: s["blur_y"].split("x", "xo", "xi", MAX_SIZE),
    lambda s: s["blur_y"].unroll("y", 64).vectorize("x", 64).reorder("y", "x", "yu", "xv"), lambda s: s["blur_x"].root().align_storage(1, 4096),
    lambda s: (s["blur_y"].split("x", "xo", "xi", 2**16), s["blur_x"].compute_at("blur_y", "xo").split("x", "xo", "xi", 2**10, "round_up")),
])  # fmt: skip
def test_what_is_generous_runs(say: Any, dtype: Any) -> None:
    img = (GRAY & 255).astype(dtype)
    f = compiled(blur)
    s = f.schedule(img)
    say(s)
    np.testing.assert_array_equal(f.use(s)(img), blur(img))


def test_a_schedule_that_is_refused_can_be_edited() -> None:
    f = compiled(blur)
    s = f.schedule(GRAY)
    s["blur_y"].split("y", "yo", "yi", 8, tail="shift_inwards").serial("yo")
    s["blur_x"].compute_at("blur_y", "yo").store_root()
    with pytest.raises(hjit.ScheduleError, match="cannot slide"):
        f.use(s)(GRAY)
    s = f.schedule(GRAY)
    s["blur_x"].root()
    np.testing.assert_array_equal(f.use(s)(GRAY), blur(GRAY))


def test_code_of_all_copies_together() -> None:
    def heavy(a: Any) -> Any:
        result = np.exp(a) * np.log(a) + np.sin(a) * np.cos(a)
        return result

    a = np.linspace(1, 2, 40 * 300).reshape(40, 300)
    f = compiled(heavy)
    s = f.schedule(a)
    s["result"].vectorize("x", 256).unroll("y", 256).reorder("y", "x", "yu", "xv")
    with pytest.raises(hjit.ScheduleError, match=r"compute result: code for more than .*256 copies of 32 registers"):
        f.use(s)(a)


def test_a_long_definition_is_no_fault_of_the_schedule() -> None:
    def sorted_rows(a: Any) -> Any:
        return np.take_along_axis(a, np.argsort(a[:, ::2], 1, kind="stable"), 1)

    a = np.random.default_rng(0).random((20, 38)).astype(np.float32)
    f = compiled(sorted_rows)
    np.testing.assert_array_equal(f(a), sorted_rows(a))
    assert not f.stats.fallbacks


def test_divisions_of_integers_are_code_for_each_lane() -> None:
    def odd(a: Any) -> Any:
        result = (a // (a[:, ::-1] + 1)) % (a[::-1] + 7)
        return result

    a = np.arange(1, 40 * 300 + 1).reshape(40, 300)
    f = compiled(odd)
    s = f.schedule(a)
    s["result"].vectorize("x", 64).unroll("y", 64).reorder("y", "x", "yu", "xv")
    with pytest.raises(hjit.ScheduleError, match="compute result: code for more than"):
        f.use(s)(a)


def test_kinds_of_rests_multiply() -> None:
    s = hjit.pipeline(blur).schedule(GRAY)
    for k in range(26):
        s["blur_y"].split("x", "x", f"x{k}", 2, "shift_inwards").split("y", "y", f"y{k}", 2, "shift_inwards")
    s["blur_x"].compute_at("blur_y", "x0")
    for k in range(26):
        s["blur_x"].split("x", "x", f"x{k}", 2, "shift_inwards").split("y", "y", f"y{k}", 2, "shift_inwards")
    with pytest.raises(hjit.ScheduleError, match=r"loops in one another|combinations of tails"):
        s.trees()


@pytest.mark.parametrize("parts", [MAX_PARTS + 1, 2**62, 2**65, 0, True, 2.0])
def test_parts_of_a_reduction(parts: Any, tmp_path: Path) -> None:
    s = hjit.pipeline(sums).schedule(GRAY)
    with pytest.raises(hjit.ScheduleError, match="not a number of parts"):
        last(s).rfactor("r0", parts)
    (tmp_path / "s.json").write_text(
        json.dumps({"hjit schedule": 1, "directives": [[s.stages[-1], 0, "rfactor", [0, parts]]]})
    )
    with pytest.raises(hjit.ScheduleError, match="not a number of parts|parts is"):
        hjit.Schedule.load(tmp_path / "s.json")


def test_parts_of_what_has_none(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"hjit schedule": 1, "directives": [["blur_y", 0, "rfactor", [0, 4]]]}')
    with pytest.raises(hjit.ScheduleError, match="rfactor: blur_y is not computed by an associative"):
        compiled(blur).use(hjit.Schedule.load(tmp_path / "s.json"))(GRAY)


def test_memory_that_the_machine_has_not() -> None:
    for size, why in ((2**28, "of it, more than"), (2**19, "more than this machine's")):
        f = compiled(blur)
        s = f.schedule(GRAY)
        s["blur_y"].tile("y", "x", "yo", "xo", "yi", "xi", size, size)
        s["blur_x"].compute_at("blur_y", "xo")
        with pytest.raises(hjit.ScheduleError, match=f"store blur_x: .*{why}"):
            f.use(s)(GRAY)


def test_two_blocks_of_a_sum_in_one_another() -> None:
    f = compiled(product)
    s = f.schedule(A, B)
    s["result"].split("y", "y", "a", 2).unroll("a").split("y", "y", "b", 2).unroll("b").reorder(
        "y", "x", "r0", "b", "a"
    )
    np.testing.assert_allclose(f.use(s)(A, B), A @ B, 1e-5)


# -- trees


def store(children: Any, stage: Any = "t", **more: Any) -> Root:
    return Root((Store(stage, children, **more),))


LEAF = Compute("t", (0,))
ROWS = Loop("t", 0, "serial", None, (Loop("t", 1, "serial", None, (LEAF,)),))


def deep(n: int) -> Node:
    node: Node = ROWS
    for _ in range(n):
        node = Store("t", (node,))
    return node


def doubled(n: int) -> Node:
    node: Node = ROWS
    for _ in range(n):
        node = Store("t", (node, node))
    return node


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (Root((None,)), "None is no node"),  # type: ignore[arg-type]
        (store(()), "nothing is computed inside"),
        (store([ROWS]), "children are a tuple"),
        (store((ROWS,), stage=3), "named by a string"),
        (store((ROWS,), order=(True, 0)), "no order of axes"),
        (store((ROWS,), align=(2**62, 1)), "aligned to"),
        (store((ROWS,), align=(2**16, 2**16)), "aligned to"),
        (store((replace(ROWS, dim=()),)), "neither a dimension nor several"),
        (store((replace(ROWS, dim=-1),)), "neither a dimension nor several"),
        (store((replace(ROWS, kind="vectorised"),)), "no kind of loop"),
        (store((replace(ROWS, tail=None),)), "no tail"),
        (store((replace(ROWS, stage="u"),)), "no such stage"),
        (
            store(
                (Loop("t", 0, "serial", None, (Loop("t", 1, "serial", None, (replace(LEAF, definitions=(-1,)),)),)),)
            ),
            "no numbers of definitions",
        ),
        (
            store(
                (
                    Loop(
                        "t",
                        0,
                        "serial",
                        None,
                        (Loop("t", 1, "serial", None, (replace(LEAF, prefetches=(("a", 0, 2**62),)),)),),
                    ),
                )
            ),
            "cannot prefetch",
        ),
        (
            store(
                (
                    Loop(
                        "t",
                        0,
                        "serial",
                        None,
                        (Loop("t", 1, "serial", None, (replace(LEAF, prefetches=(("b", 0, 2),)),)),),
                    ),
                )
            ),
            "does not read b",
        ),
        (
            store(
                (
                    Loop(
                        "t",
                        0,
                        "serial",
                        None,
                        (Loop("t", 1, "serial", None, (replace(LEAF, prefetches=(("a", 2, 2),)),)),),
                    ),
                )
            ),
            "prefetches along d2",
        ),
        (Root((deep(5000),)), "nodes above one another"),
        (Root((doubled(60),)), "nodes above one another|nodes$"),
    ],
)
def test_broken_trees(tree: Root, why: str) -> None:
    def plus(a: Any) -> Any:
        t = a + 1
        return t

    with pytest.raises(hjit.ScheduleError, match=why):
        compiled(plus).use(tree)(GRAY)


@pytest.mark.parametrize("text", ["[" * 100_000, '["root", [["loop", "t", {}, "serial", NaN, "auto", [["compute", "t", [0]]]]]]', '["root", ["x"]]', "9" * 10_000,
                                  '["root", [["compute", "t", [0.5]]]]', '["root", [["compute", "t", [true]]]]', '["root", [["store", "t", "ab", [], []]]]'])  # fmt: skip
def test_broken_texts(text: str) -> None:
    with pytest.raises(hjit.ScheduleError):
        from_json(text)


# -- files


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"hjit schedule": 1, "directives": [], "more": 1}, "keys directives, hjit schedule, not the keys .*'more'"),
        ({"hjit schedule": 1}, "keys directives, hjit schedule"),
        ([], "not a schedule"),
        ({"hjit schedule": True, "directives": []}, "format True"),
        ({"hjit schedule": 1, "directives": [["a", 0, "root", []]] * (MAX_DIRECTIVES + 1)}, "directives, more than"),
        ({"hjit schedule": 1, "directives": {"a": 1}}, "list of"),
        ({"hjit schedule": 1, "directives": [[["a"], 0, "root", []]]}, "not the name of a stage"),
        ({"hjit schedule": 1, "directives": [["a", "0", "root", []]]}, "not the number of a nest"),
        ({"hjit schedule": 1, "directives": [["a", True, "root", []]]}, "not the number of a nest"),
        (
            {"hjit schedule": 1, "directives": [["a", 0, "split", ["x", 3, "b", 4]]]},
            "a: split.*outer is 3; it is to be a name",
        ),
        (
            {"hjit schedule": 1, "directives": [["a", 0, "storage", [0, "1"]]]},
            "axes is '1'; it is to be a whole number",
        ),
        ({"hjit schedule": 1, "directives": [["a", 0, "kind", ["x"]]]}, "missing a required argument"),
        ({"hjit schedule": 1, "directives": [["a", 0, "inline", ["x"]]]}, "too many"),
    ],
)
def test_files_that_say_something_else(data: Any, why: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(data))
    with pytest.raises(hjit.ScheduleError, match=why):
        hjit.Schedule.load(tmp_path / "s.json")


@pytest.mark.parametrize(
    "said",
    [("kind", "x", "fast"), ("inner", "x", "", 8), ("inner", "x", "fast", 8), ("split", "x", "a", "b", 8, "none")],
)
def test_a_word_that_there_is_not(said: tuple[Any, ...], tmp_path: Path) -> None:
    word, *args = said
    (tmp_path / "s.json").write_text(json.dumps({"hjit schedule": 1, "directives": [["blur_y", 0, word, args]]}))
    with pytest.raises(hjit.ScheduleError, match=r"blur_y: .*there is no (kind|tail) '\w*'; there are (serial|auto), "):
        hjit.Schedule.load(tmp_path / "s.json")
    with pytest.raises(hjit.ScheduleError, match="there is no (kind|tail)"):
        hjit.pipeline(blur).schedule(GRAY).add(("blur_y", 0, word, tuple(args)))


# -- mutations


def mutated(first: int, count: int) -> None:
    counts, wrong = mutants.run(first, count)
    assert not wrong
    assert counts["right"] > count / 10, "mutations that leave schedules legal are among them"
    assert counts["refused"] > count / 10


def test_damaged_schedules_are_refused_or_right() -> None:
    mutated(0, MUTANTS)


@pytest.mark.slow
def test_many_damaged_schedules_are_refused_or_right() -> None:
    mutated(1_000_000, 60_000)
