"""Schedules by hand: every directive, what it becomes, and that the numbers stay NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import assert_same

RNG = np.random.default_rng(3)
GRAY = RNG.integers(0, 1 << 16, (45, 83)).astype(np.uint16)
COLOUR = RNG.random((29, 41, 3)).astype(np.float32)
A, B = RNG.random((37, 50)).astype(np.float32), RNG.random((50, 75)).astype(np.float32)


def blur(img: Any) -> Any:
    blur_x = (img[:, :-2] + img[:, 1:-1] + img[:, 2:]) // 3
    blur_y = (blur_x[:-2] + blur_x[1:-1] + blur_x[2:]) // 3
    return blur_y


def blur_along(img: Any) -> Any:
    blur_y = (img[:-2] + img[1:-1] + img[2:]) // 3
    blur_x = (blur_y[:, :-2] + blur_y[:, 1:-1] + blur_y[:, 2:]) // 3
    return blur_x


def mirrored(img: Any) -> Any:
    padded = np.pad(img, 2, mode="reflect")
    rows = padded[:-4] + padded[2:-2] * 3 + padded[4:]
    result = rows[:, :-4] + rows[:, 2:-2] * 3 + rows[:, 4:]
    return result


def pyramid(img: Any) -> Any:
    half = img[:-1:2, :-1:2] + img[1::2, 1::2]
    back = np.repeat(np.repeat(half, 2, axis=0), 2, axis=1)
    result = back[1:-1, 1:-1] ^ img[1 : back.shape[0] - 1, 1 : back.shape[1] - 1]
    return result


def channels(img: Any) -> Any:
    soft = img[1:-1] * np.float32(0.5) + img[:-2] * np.float32(0.25) + img[2:] * np.float32(0.25)
    result = soft[:, 1:-1] + soft[:, 2:] * soft[:, :-2]
    return result


def product(a: Any, b: Any) -> Any:
    result = a @ b
    return result


def assembled(img: Any) -> Any:
    result = np.empty((2 * img.shape[0], img.shape[1]), np.uint16)
    result[0::2] = img * 3
    result[1::2] = img + 1
    return result


def sums(img: Any) -> Any:
    result = img.sum(axis=0, dtype=np.int64)
    return result


def last(s: Any) -> Any:
    return s[s.stages[-1]]


Make = Callable[[Any], Any]
CASES: dict[str, tuple[Any, tuple[Any, ...], Make, str]] = {
    "row by row": (blur, (GRAY,), lambda s: (
        s["blur_y"].parallel("y").vectorize("x", 32), s["blur_x"].compute_at("blur_y", "y").store_root().vectorize("x", 32)), "circular"),
    "strips with a sliding window": (blur, (GRAY,), lambda s: (
        s["blur_y"].split("y", "yo", "yi", 8).parallel("yo").vectorize("x", 16),
        s["blur_x"].compute_at("blur_y", "yi").store_at("blur_y", "yo").vectorize("x", 16)), "slide blur_x"),
    "tasks of eight rows": (blur, (GRAY,), lambda s: (
        s["blur_y"].parallel("y", 8).vectorize("x", 16), s["blur_x"].compute_at("blur_y", "yt").store_at("blur_y", "y").vectorize("x", 16)),
        "parallel ((img.0 + 5)//(8)) iterations"),
    "tasks that start earlier where fewer rows are left": (mirrored, (GRAY,), lambda s: (
        s["result"].parallel("y", 16, tail="shift_inwards").vectorize("x", 16), s["rows"].compute_at("result", "y").vectorize("x", 16)), "step 16 shift_inwards"),
    "tiles": (blur, (GRAY,), lambda s: (
        s["blur_y"].tile("y", "x", "yo", "xo", "yi", "xi", 8, 32).parallel("yo").vectorize("xi", 16),
        s["blur_x"].compute_at("blur_y", "xo").vectorize("x", 16)), "buffer blur_x: 10 from"),
    "a window along rows": (blur, (GRAY,), lambda s: (
        s["blur_y"].reorder("x", "y").parallel("x"), s["blur_x"].compute_at("blur_y", "y").store_at("blur_y", "x").reorder("x", "y")), "circular"),
    "a window along vectors": (blur_along, (GRAY,), lambda s: (
        s["blur_x"].tile("y", "x", "y", "xo", "yi", "x", 4, 32).parallel("y").vectorize("x", 16),
        s["blur_y"].compute_at("blur_x", "xo").store_at("blur_x", "y").vectorize("x", 16)), "buffer blur_y: 4 from blur_y.low0 x img.1"),
    "everything at the root": (blur, (GRAY,), lambda s: (s["blur_x"].root().parallel("y").vectorize("x", 8), s["blur_y"].serial("y")), "nest blur_x"),
    "all in one": (blur, (GRAY,), lambda s: s["blur_x"].inline(), "nest blur_y"),
    "unrolled rows share loads": (blur, (GRAY,), lambda s: (
        s["blur_y"].unroll("y", 4).parallel("y").vectorize("x", 16).reorder("y", "x", "yu", "xv"), s["blur_x"].inline()), "step 4"),
    "two vectors at once": (blur, (GRAY,), lambda s: s["blur_y"].vectorize("x", 16).unroll("x", 2), "d1 + 15, 2 of them"),
    "mirrored tiles": (mirrored, (GRAY,), lambda s: (
        s["result"].tile("y", "x", "yo", "xo", "yi", "xi", 16, 32).vectorize("xi", 16), s["rows"].compute_at("result", "xo").vectorize("x", 16)), "buffer"),
    "mirrored rows": (mirrored, (GRAY,), lambda s: (
        s["result"].parallel("y").vectorize("x", 16), s["rows"].compute_at("result", "y").vectorize("x", 16)), "buffer rows"),
    "up and down": (pyramid, (GRAY,), lambda s: (
        s["result"].split("y", "yo", "yi", 8).parallel("yo").vectorize("x", 16),
        s["half"].compute_at("result", "yi").store_at("result", "yo").vectorize("x", 16)), "circular"),
    "pixels and channels as one": (channels, (COLOUR,), lambda s: (
        s["result"].fuse("x", "c", "xc").vectorize("xc", 16).unroll("xc", 3), s["soft"].root().fuse("x", "c", "xc").vectorize("xc", 16)), "d1.d2"),
    "another order in memory": (blur, (GRAY,), lambda s: s["blur_x"].root().reorder_storage(1, 0), "nest blur_x"),
    "a block of sums": (product, (A, B), lambda s: (
        s["result"].unroll("y", 4).vectorize("x", 16).unroll("x", 2).reorder("y", "x", "r0", "yu", "xu", "xv").parallel("y")), "d1 + 15, 2 of them"),
    "an unrolled reduction": (sums, (GRAY,), lambda s: last(s).vectorize("x", 8).unroll("r0", 4).reorder("x", "r0", "r0u", "xv"), "step 4:"),
    "rows fetched ahead": (mirrored, (GRAY,), lambda s: (
        s["result"].parallel("y").vectorize("x", 16).prefetch("rows", "y", 3), s["rows"].root().prefetch("img", "y", 5).vectorize("x", 8)),
        "prefetch rows[d0 + 3"),
    "channels fetched ahead": (channels, (COLOUR,), lambda s: s["soft"].root().vectorize("x", 16).unroll("x", 2).prefetch("img", "y", 2), "prefetch img["),
    "pieces by themselves": (assembled, (GRAY,), lambda s: last(s).update(0).vectorize("x", 32), "32 lanes"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_directives(case: str, threads: int, tmp_path: Path) -> None:
    function, args, make, seen = CASES[case]
    f = hjit.pipeline(function, verify="off", num_threads=threads)
    s = f.schedule(*args)
    make(s)
    f.use(s)
    expected = function(*args)
    exact = expected.dtype.kind != "f"
    assert_same(f(*args), expected, exact, ulps=64)
    assert seen in str(f.loops(*args))
    s.save(tmp_path / "s.json")
    g = hjit.pipeline(function, verify="off").use(hjit.Schedule.load(tmp_path / "s.json"))
    assert_same(g(*args), f(*args))
    assert str(g.loops(*args)) == str(f.loops(*args))


@pytest.mark.parametrize("size", [(3, 3), (5, 40), (17, 16), (200, 9)])
def test_a_schedule_serves_all_sizes(size: tuple[int, int]) -> None:
    f = hjit.pipeline(blur, verify="off")
    s = f.schedule(GRAY)
    s["blur_y"].tile("y", "x", "yo", "xo", "yi", "xi", 8, 32).parallel("yo").vectorize("xi", 16)
    s["blur_x"].compute_at("blur_y", "xo").vectorize("x", 16)
    f.use(s)
    img = RNG.integers(0, 1 << 16, size).astype(np.uint16)
    assert_same(f(img), blur(img))


def test_the_schedule_is_part_of_the_kernels_key() -> None:
    f = hjit.pipeline(blur, verify="off")
    plain = f.inspect_llvm(GRAY)
    s = f.schedule(GRAY)
    s["blur_y"].vectorize("x", 8)
    assert f.use(s).inspect_llvm(GRAY) != plain
    assert f.use(None).inspect_llvm(GRAY) == plain


def test_all_lines_of_interleaved_channels_are_fetched_ahead() -> None:
    def gray(img: Any) -> Any:
        result = img[..., 0] + img[..., 1] + img[..., 2]
        return result

    f = hjit.pipeline(gray)
    s = f.schedule(COLOUR)
    s["result"].vectorize("x", 16, tail="guard_with_if").prefetch("img", "y", 2)
    found = f.use(s).inspect_llvm(COLOUR).count("call void @llvm.prefetch")
    assert found == 16 * 3 * COLOUR.itemsize // 64


@pytest.mark.parametrize(
    ("say", "why"),
    [
        (lambda s: s["nothing"], "there is no stage nothing; there are blur_x, blur_y"),
        (lambda s: s["blur_x"].split("z", "a", "b", 4), "no loop z; it has y, x"),
        (lambda s: s["blur_x"].split("y", "x", "b", 4), "there is a loop x already"),
        (lambda s: s["blur_x"].split("y", "a", "b", 0), "not a number of iterations"),
        (lambda s: s["blur_x"].compute_at("blur_y", "yo"), "no loop yo; it has y, x"),
        (lambda s: s["blur_x"].compute_at("blur", "y"), "no stage blur"),
        (lambda s: s["blur_x"].parallel("y", 0), "not a number of iterations"),
        (lambda s: s["blur_x"].parallel("z", 8), "no loop z; it has y, x"),
        (lambda s: s["blur_x"].reorder("y", "y"), "twice"),
        (lambda s: s["blur_x"].fuse("x", "y", "z"), "neighbouring"),
        (lambda s: s["blur_x"].update(1).parallel("y"), "no update"),
        (lambda s: s["blur_x"].reorder_storage(0, 0), "each is named once"),
        (lambda s: s["blur_x"].prefetch("img", "z", 2), "no loop z; it has y, x"),
        (lambda s: s["blur_x"].prefetch("img", "y", 0), "not a number of iterations"),
    ],
)  # fmt: skip
def test_wrong_directives_name_what_there_is(say: Any, why: str) -> None:
    s = hjit.pipeline(blur).schedule(GRAY)
    before = str(s)
    with pytest.raises(hjit.ScheduleError, match=why):
        say(s)
    assert str(s) == before


@pytest.mark.parametrize(
    ("say", "why"),
    [
        (lambda s: s["blur_y"].vectorize("x"), "has a size"),
        (lambda s: s["blur_y"].unroll("x"), "known length"),
        (lambda s: s["blur_y"].parallel("x"), "outermost"),
        (lambda s: s["blur_y"].parallel("x", 8), "outermost"),
        (lambda s: s["blur_y"].parallel("y", 8).parallel("yt"), "only the loop over all of a dimension is parallel"),
        (lambda s: (s["blur_y"].compute_at("blur_x", "y")), "result|reads"),
        (lambda s: s["blur_x"].root().prefetch("blur_y", "y", 2), "does not read blur_y; it reads img"),
        (lambda s: (s["blur_y"].vectorize("y", 4).vectorize("x", 4)), "only one dimension"),
    ],
)  # fmt: skip
def test_what_is_not_legal_is_refused_at_the_call(say: Any, why: str) -> None:
    f = hjit.pipeline(blur)
    s = f.schedule(GRAY)
    say(s)
    with pytest.raises(hjit.ScheduleError, match=why):
        s.trees()
    with pytest.raises(hjit.ScheduleError, match=why):
        f.use(s)(GRAY)


def running(a: Any) -> Any:
    total = np.cumsum(a, axis=1)
    result = total * 2 + total[:, ::-1]
    return result


@pytest.mark.parametrize(("stage", "why"), [("total", "it has updates, 2 definitions"), ("result", "it is a result")])
def test_what_cannot_be_inlined_says_why(stage: str, why: str, tmp_path: Path) -> None:
    f = hjit.pipeline(running)
    s = f.schedule(GRAY)
    with pytest.raises(hjit.ScheduleError, match=why):
        s[stage].inline()
    (tmp_path / "s.json").write_text(f'{{"hjit schedule": 1, "directives": [["{stage}", 0, "inline", []]]}}')
    with pytest.raises(hjit.ScheduleError, match=why):
        f.use(hjit.Schedule.load(tmp_path / "s.json"))(GRAY)


def test_a_prefetch_is_for_one_dimension_and_no_reduction() -> None:
    with pytest.raises(hjit.ScheduleError, match="several dimensions"):
        hjit.pipeline(blur).schedule(GRAY)["blur_x"].fuse("y", "x", "yx").prefetch("img", "yx", 1)
    with pytest.raises(hjit.ScheduleError, match="is a reduction"):
        last(hjit.pipeline(sums).schedule(GRAY)).prefetch("img", "x", 1)


def test_a_prefetch_fetches_a_line_at_a_time() -> None:
    f = hjit.pipeline(blur, verify="off")
    s = f.schedule(GRAY)
    s["blur_x"].inline()
    s["blur_y"].vectorize("x", 32).prefetch("img", "y", 4)
    assert str(f.use(s).loops(GRAY)).count("prefetch img[d0 + 6, d1 + 2]") == 3, (
        "of vectors at once, single ones, and what they leave"
    )
    copies = f.inspect_llvm(GRAY).count("call void @llvm.prefetch.p0")
    s["blur_y"].unroll("x", 2)
    assert copies and f.use(s).inspect_llvm(GRAY).count("call void @llvm.prefetch.p0") > copies


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"hjit schedule": 99, "directives": []}', '{"hjit schedule": 1, "directives": [["a", 0, "fly", []]]}'],
)
def test_a_file_that_holds_no_schedule(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(hjit.ScheduleError):
        hjit.Schedule.load(tmp_path / "s.json")


def test_it_is_a_picture_in_a_notebook() -> None:
    s = hjit.pipeline(blur).schedule(GRAY)
    assert "parallel" in s._repr_html_() and "blur_x" in s._repr_html_()


def test_graphs_are_made_once_for_many_directives() -> None:
    s = hjit.pipeline(mirrored).schedule(GRAY)
    make, said = s._make, []
    assert make is not None
    s._make = lambda rewrites: said.append(rewrites) or make(rewrites)  # type: ignore[func-returns-value]
    s["padded"].compute_at("result", "y").vectorize("x", 16).store_root()
    s["rows"].compute_at("result", "y").vectorize("x", 8)
    assert len(said) <= 1  # where nothing is inlined
    s.trees()
    assert len(said) <= 2
