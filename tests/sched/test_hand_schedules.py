"""What users may say in a schedule that is seldom said: odd numbers of lanes, loops of updates, files that lie, whole trees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.errors import ScheduleError
from hjit.sched.language import transforms
from hjit.sched.language.build import paths
from hjit.sched.language.tree import Loop, from_json
from tests.numpy_check import check

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 65535, (45, 83)).astype(np.uint16)


def blur(img: Any) -> Any:
    blur_x = (img[:, :-2] + img[:, 1:-1] + img[:, 2:]) // 3
    blur_y = (blur_x[:-2] + blur_x[1:-1] + blur_x[2:]) // 3
    return blur_y


def scheduled(function: Any, *args: Any) -> tuple[Any, Any]:
    f = hjit.pipeline(function, verify="off", cache="off", tune=False)
    return f, f.schedule(*args)


@pytest.mark.parametrize("lanes", [3, 5, 6, 7, 12, 24])
@pytest.mark.parametrize("dtype", ["int64", "float32", "uint8"])
def test_any_number_of_lanes_adds_up(lanes: int, dtype: str) -> None:
    m = RNG.integers(0, 99, (20, 61)).astype(dtype)
    for function in (
        lambda a: a.sum(axis=1),
        lambda a: a.max(axis=1),
        lambda a: a.argmin(axis=1),
        lambda a: a.astype(np.float64).mean(axis=1),
    ):
        _, s = scheduled(function, m)
        if s.stages:
            s[s.stages[0]].vectorize("r0", lanes)
        check(function, m, exact=False, schedule=s)


@pytest.mark.parametrize("lanes", [3, 12, 24, 33, 48])
@pytest.mark.parametrize("dtype", ["float64", "int32", "uint8"])
def test_any_number_of_lanes_is_stored(lanes: int, dtype: str) -> None:
    def doubled(a: Any) -> Any:
        v = a + a[0:1]
        return v

    def stacked(a: Any) -> Any:
        v = np.stack([a, a * 2, a + 1], -1)
        return v

    a = IMAGE.astype(dtype)
    for function in (doubled, stacked):
        f, s = scheduled(function, a)
        s["v"].vectorize("x", lanes)
        f.use(s)
        out = np.zeros(function(a).shape, dtype)
        f.into(out, a)
        assert np.array_equal(out, function(a))


def two(img: Any) -> Any:
    v = np.sqrt(img.astype(np.float32))[1:-1] * 2
    out = img.astype(np.float32)
    out[1:-1, 1:-1] += v[:, 2:] + v[:, :-2]
    return out


def test_a_stage_is_computed_at_the_outermost_loop_of_an_update() -> None:
    for loop in ("yo1", "yi1", "y"):
        _, s = scheduled(two, IMAGE)
        if loop != "y":
            s["out_v"].update(1).split("y", "yo1", "yi1", 8)
        s["v"].compute_at("out_v", loop)
        assert s.trees()
        check(two, IMAGE, exact=False, schedule=s)


def test_what_cannot_be_meant_is_refused_at_once() -> None:
    _, s = scheduled(blur, IMAGE)
    with pytest.raises(ScheduleError, match="loops of its own"):
        s["blur_x"].compute_at("blur_x", "y")
    with pytest.raises(ScheduleError, match="both loops would be called y"):
        s["blur_y"].split("y", "y", "y", 8)
    assert s.directives == ()


@pytest.mark.parametrize("directive", [
    ["blur_y", 0, "split", ["y"]], ["blur_y", 0, "compute_at", []], ["blur_y", 0, "rfactor", [0]], ["blur_y", 0, "compute_at", [["blur_x"], "y"]],
    ["blur_y", 0, "inline", [1]], ["blur_y", 0, "kind", ["y", None]], ["blur_y", 0, "rfactor", ["a", "b"]],
])  # fmt: skip
def test_a_file_with_wrong_arguments_is_no_schedule(directive: Any, tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_text(json.dumps({"hjit schedule": 1, "directives": [directive]}))
    with pytest.raises(ScheduleError, match=directive[2]):
        hjit.Schedule.load(file)


def test_a_file_of_endless_brackets_is_no_schedule(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / "s.json").write_text(deep)
    with pytest.raises(ScheduleError):
        hjit.Schedule.load(tmp_path / "s.json")
    with pytest.raises(ScheduleError):
        from_json(deep)


def test_trees_run_too() -> None:
    f, _ = scheduled(blur, IMAGE)
    (tree,) = f.tree(IMAGE)
    graph = f.graph(IMAGE)[0]
    path = next(p for p, x in paths(tree) if isinstance(x, Loop) and x.kind == "vector")
    changed = transforms.resize(tree, graph, path, 16)
    for given in (changed, [changed], from_json(changed.to_json())):
        assert str(f.use(given).tree(IMAGE)) == str(changed)
        assert np.array_equal(f(IMAGE), blur(IMAGE))
    assert str(f.use(None).tree(IMAGE)) == str(tree)
    assert np.array_equal(f.use(f.tree(IMAGE))(IMAGE), blur(IMAGE))


def test_searched_trees_run_as_they_are() -> None:
    f = hjit.pipeline(blur, verify="off", cache="off", tune="greedy")
    f(IMAGE)
    tree = f.tree(IMAGE)
    again = hjit.pipeline(blur, verify="off", cache="off", tune=False).use(tree)
    assert np.array_equal(again(IMAGE), blur(IMAGE)) and str(again.tree(IMAGE)) == str(tree)


@pytest.mark.parametrize("given", ["x.json", 3, [], [1]])
def test_what_is_no_schedule_is_not_used(given: Any) -> None:
    with pytest.raises(ScheduleError, match="is no schedule"):
        hjit.pipeline(blur).use(given)


def test_a_tree_of_another_function_is_refused() -> None:
    f, _ = scheduled(two, IMAGE)
    other, _ = scheduled(blur, IMAGE)
    with pytest.raises(ScheduleError, match="another function"):
        f.use(other.tree(IMAGE))(IMAGE)


def test_a_schedule_in_use_does_not_change_with_what_is_said_later() -> None:
    f, s = scheduled(blur, IMAGE)
    s["blur_y"].vectorize("x", 16)
    before = str(f.use(s).tree(IMAGE))
    s["blur_y"].unroll("x", 4)
    assert str(f.tree(IMAGE)) == before != str(s)


def test_a_stage_that_is_gone_is_told_before_the_call() -> None:
    def shifted(img: Any) -> Any:
        out = img.copy()
        out[2:] += 3
        return out

    _, s = scheduled(shifted, IMAGE)
    s["out"].vectorize("x", 8)
    with pytest.raises(ScheduleError, match="speaks of a stage out"):
        s.trees()


@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8"])
@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_lone_pieces_with_steps_leave_what_lies_between(dtype: str, step: int) -> None:
    def written(a: Any, e: Any) -> Any:
        out = a.copy()
        out[1::2, step - 1 :: step] = e * 2
        return out

    for shape in ((9, 133), (4, 7), (3, 260)):
        a = RNG.integers(0, 99, shape).astype(dtype)
        check(written, a, a[1::2, step - 1 :: step].copy())


@pytest.mark.parametrize("channels", [2, 3, 4, 5])
def test_all_channels_may_be_the_lanes(channels: int) -> None:
    def mixed(a: Any) -> Any:
        v = a * 2 + a[..., ::-1]
        return v

    a = RNG.random((9, 21, channels)).astype(np.float32)
    _, s = scheduled(mixed, a)
    s["v"].vectorize("c")
    check(mixed, a, schedule=s)


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_pieces_with_steps_in_any_number_of_lanes(lanes: int, step: int) -> None:
    """Masks of two lanes and more, and fewer lanes than steps."""
    for dtype in ("u1", "u2", "i4", "f8"):

        def written(a: Any, e: Any) -> Any:
            out = a * 2
            out[:, 1::step] = e * 3
            return out

        a = RNG.integers(0, 60, (3, 3 * lanes * step + 5)).astype(dtype)
        e = a[:, 1::step].copy()
        _, s = scheduled(written, a, e)
        stage = s.stages[-1]
        s[stage].update(1).vectorize("x", lanes)
        check(written, a, e, schedule=s)


@pytest.mark.parametrize("shape", [(7, 20), (45, 83), (200, 64)])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_window_reads_what_each_iteration_computes_anew(shape: tuple[int, int], threads: int) -> None:
    """The iterations before the first one, which fill the window, compute that, too."""

    def sharpened(img: Any) -> Any:
        bright = np.sqrt(img) * 2
        rows = bright[:-2] + bright[2:]
        out = rows[:-3] * rows[3:]
        return out

    image = RNG.random(shape, np.float32)
    _, s = scheduled(sharpened, image)
    s["out"].parallel("y").vectorize("x", 8)
    s["rows"].compute_at("out", "y").store_root().vectorize("x", 8)
    s["bright"].compute_at("out", "y").vectorize("x", 8)
    check(sharpened, image, schedule=s, num_threads=threads)


def test_a_window_does_not_read_what_is_looked_up_anew() -> None:
    """Before the first iteration nobody has written the indices."""

    def toned(img: Any, tone: Any) -> Any:
        place = img // 2 % 256
        bright = tone[place]
        rows = bright[:-2] + bright[2:]
        out = rows[:-3] * rows[3:]
        return out

    tone = RNG.random(256, np.float32)
    f, s = scheduled(toned, IMAGE, tone)
    s["out"].parallel("y").vectorize("x", 8)
    s["rows"].compute_at("out", "y").store_root()
    s["bright"].compute_at("out", "y")
    s["place"].compute_at("out", "y").store_root()
    with pytest.raises(ScheduleError, match="looks up elements at computed indices"):
        f.use(s)(IMAGE, tone)


def test_code_is_repeated_for_as_many_rows_as_are_needed() -> None:
    """Two rows at a time, where six would be too many: else each would be one of its own."""

    def brighter(img: Any) -> Any:
        rows = img[:, :-2] + img[:, 2:]
        out = rows * rows
        return out

    image = RNG.random((40, 66), np.float32)
    f, s = scheduled(brighter, image)
    s["out"].split("y", "yo", "yi", 2).vectorize("x", 16)
    s["rows"].compute_at("out", "yo").split("y", "yo", "yi", 6).unroll("yi").vectorize("x", 16)
    check(brighter, image, schedule=s)
    f.use(s)
    (program,) = f.loops(image)
    assert "for rows.d0 in [rows.low0, rows.high0 + 1) step 2 " in str(program)


@pytest.mark.parametrize(
    ("directive", "text"),
    [
        (
            lambda s: s.reorder_storage("x", "y"),
            r"reorder_storage\('x', 'y'\): axes is 'x'; it is to be a whole number",
        ),
        (lambda s: s.reorder_storage(0), r"reorder_storage: blur_x has the axes 0, 1"),
        (lambda s: s.align_storage("x", 8), r"align_storage\('x', 8\)"),
        (lambda s: s.vectorize(3), r"vectorize\(3\)"),
        (lambda s: s.vectorize("x", "y"), r"vectorize\('x', 'y'\)"),
        (lambda s: s.unroll("x", 0), r"unroll x: 0 is not a number"),
        (lambda s: s.parallel("y", 0), r"parallel y: 0 is not a number"),
        (lambda s: s.parallel("y", 2.5), r"parallel\('y', 2.5\)"),
        (lambda s: s.gpu_blocks(1), r"gpu_blocks\(1\)"),
    ],
)
def test_errors_name_the_method_that_was_called(directive: Any, text: str) -> None:
    def f(img: Any) -> Any:
        blur_x = (img[:, :-2] + img[:, 1:-1] + img[:, 2:]) // 3
        return (blur_x[:-2] + blur_x[1:-1] + blur_x[2:]) // 3

    with pytest.raises(ScheduleError, match=text):
        directive(hjit.pipeline(f).schedule(IMAGE)["blur_x"].root())
