"""Producers computed row by row inside their consumers, by several threads: the same numbers, whatever the sizes."""

from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import check

RNG = np.random.default_rng(5)


def blur(a: Any, r: int) -> Any:
    """Down, then across, with mirrored borders."""
    p = np.pad(a, r, mode="reflect")
    n = 2 * r + 1
    rows = sum(p[k : k + a.shape[0]] * (k + 1.5) for k in range(n)) / n
    return sum(rows[:, k : k + a.shape[1]] * (k + 0.5) for k in range(n)) / n


def two_groups_of_different_width(a: Any) -> Any:
    """Line buffers of two nests, in the order of the stages not that of the nests."""
    narrow, wide = np.sqrt(a[:, ::3]) + 2, np.sqrt(a) * 3 + 1
    down, small = wide[:-4] + wide[2:-2] + wide[4:], narrow[:-2] + narrow[1:-1] * narrow[2:]
    return down[:, 1:] - down[:, :-1], small + 1


def chain(a: Any) -> Any:
    return blur(np.exp(blur(a, 2)) + a, 3)


def shared(a: Any) -> Any:
    edges = np.sqrt(np.abs(a[2:] - a[:-2]) + 1) * 2 + np.sin(a[1:-1])
    return edges[:-2] * edges[2:], edges[1:-1].max(axis=1)


def halves(a: Any) -> Any:
    soft = np.sqrt(a[:-1] + a[1:]) + np.cos(a[1:])
    return soft[: soft.shape[0] // 2 * 2 : 2] + soft[1::2] if soft.shape[0] % 2 == 0 else soft[:-1:2] + soft[1::2]


def mirrored_halves(a: Any) -> Any:
    """The iterations before the first one compute a part of what they would: its mirrored rows come from further on."""
    return _halved(np.pad(np.exp(np.sqrt(a)), ((2, 1), (2, 1)), mode="reflect"))


def clamped_halves(a: Any) -> Any:
    return _halved(np.pad(np.exp(np.sqrt(a)), ((3, 0), (2, 1)), mode="edge"))


def _halved(p: Any) -> Any:
    across = p[:, :-3] + p[:, 1:-2] + p[:, 2:-1] + p[:, 3:]
    down = across[:-3] + 3 * across[1:-2] + 3 * across[2:-1] + across[3:]
    height, width = down.shape[0] // 2 * 2, down.shape[1] // 2 * 2
    return (
        down[:height:2, :width:2]
        + down[:height:2, 1:width:2]
        + down[1:height:2, :width:2]
        + down[1:height:2, 1:width:2]
    )


FUNCTIONS = (mirrored_halves, clamped_halves, two_groups_of_different_width, chain, shared, halves)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("shape", [(20, 17), (64, 33), (301, 517), (1000, 90)])
@pytest.mark.parametrize("threads", [1, 2])
def test_they_compute_what_numpy_does(function: Any, shape: tuple[int, int], threads: int) -> None:
    image = RNG.random(shape)
    p = hjit.pipeline(function, verify="off", num_threads=threads)
    expected = function(image)
    for _ in range(5):
        got = p(image)
        for g, e in zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]:
            np.testing.assert_allclose(g, e, rtol=1e-12, atol=1e-12)
    assert p.stats.fallbacks == 0


@pytest.mark.parametrize("function", FUNCTIONS[2:4])
def test_they_are_used(function: Any) -> None:
    assert "circular" in str(hjit.pipeline(function).loops(RNG.random((64, 48))))


def test_a_loop_until_convergence_is_refused_in_time() -> None:
    def relax(a: Any) -> Any:
        while a.max() > 1e-6:
            a = a * 0.99
        return a

    with pytest.raises(hjit.TraceError, match="decided on computed values"):
        hjit.pipeline(relax)(RNG.random((20, 30)))


@pytest.mark.parametrize("mode", [None, "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("stages", [4, 9])
def test_chains_of_weighted_rows(mode: str | None, stages: int) -> None:
    """No iteration of the loop may compute more rows than its part, at the first rows neither."""

    def weighted(img: Any) -> Any:
        for _ in range(stages):
            p = img if mode is None else np.pad(img, ((2, 2), (0, 0)), mode=mode)
            img = p[:-4] + 2 * p[1:-3] + 3 * p[2:-2] + 5 * p[3:-1] + 7 * p[4:]
        return img

    check(weighted, np.random.default_rng(0).integers(0, 1 << 16, (50, 37)).astype(np.uint16))


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric"])
def test_windows_that_look_one_way_only(mode: str) -> None:
    def upwards(img: Any) -> Any:
        for _ in range(3):
            p = np.pad(img, ((6, 0), (0, 0)), mode=mode)
            img = p[:-6] * 3 + p[1:-5] + p[2:-4]
        for _ in range(3):
            p = np.pad(img, ((0, 5), (0, 0)), mode=mode)
            img = p[5:] * 3 + p[4:-1]
        return img

    check(upwards, np.random.default_rng(0).integers(0, 1 << 16, (50, 37)).astype(np.uint16))


def sparse(a: Any) -> Any:
    v = np.full_like(a, 3)
    v[::3, 1:] = a[::3, 1:]
    v[:, 0] += 1
    result = v[::5] * v[::5, ::-1]
    return result


@pytest.mark.parametrize("shape", [(1, 9), (16, 9), (31, 40)])
def test_a_window_that_skips_rows_of_a_stage_with_updates(shape: tuple[int, int]) -> None:
    """The rows between are not computed: they share the memory of those that the iteration reads."""
    a = RNG.integers(0, 99, shape)
    s = hjit.pipeline(sparse).schedule(a)
    s["result"].serial("y")
    s[s.stages[0]].compute_at("result", "y").store_root()
    assert "circular" in str(hjit.pipeline(sparse).use(s).loops(a))
    check(sparse, a, schedule=s)


def interleaved_columns(a: Any) -> Any:
    m = np.empty((a.shape[0], 2 * a.shape[1]), np.float32)
    m[:, 0::2] = np.sqrt(a) + 1
    m[:, 1::2] = np.exp(a) * a
    return m[:, 1:-3] + m[:, 3:-1]


def interleaved_rows(a: Any) -> Any:
    m = np.empty((2 * a.shape[0], a.shape[1]), np.float32)
    m[0::2] = np.sqrt(a) + 1
    m[1::2] = np.exp(a) * a
    return m[1:-3] + m[3:-1]


@pytest.mark.parametrize("function", [interleaved_columns, interleaved_rows])
def test_pieces_side_by_side_are_computed_whole(function: Any) -> None:
    check(function, np.random.default_rng(0).random((18, 40), np.float32), exact=False)


def test_a_window_along_a_fused_loop_over_a_part() -> None:
    def part(img: Any) -> Any:
        rows = img * 3
        mid = rows ^ 5
        out = mid[:, ::-1] + 1
        return out

    colour = np.random.default_rng(0).integers(0, 255, (9, 41, 3)).astype(np.uint8)
    s = hjit.pipeline(part, verify="off").schedule(colour)
    s["out"].split("x", "xo", "xi", 8)
    s["mid"].compute_at("out", "xo").fuse("x", "c", "xc").split("xc", "xco", "xci", 2)
    s["rows"].compute_at("mid", "xco").store_at("mid", "y")
    check(part, colour, schedule=s)


def test_a_part_that_is_read_from_both_ends_is_no_more_than_all_iterations_need() -> None:
    def late(img: Any) -> Any:
        rows = img * 3
        mid = rows + 1
        out = mid[21:] ^ mid[21:][::-1]
        return out

    gray = np.random.default_rng(0).integers(0, 255, (63, 18)).astype(np.uint8)
    s = hjit.pipeline(late, verify="off").schedule(gray)
    s["out"].serial("y")
    s["mid"].compute_at("out", "y")
    s["rows"].compute_at("out", "y").store_root()
    check(late, gray, schedule=s, num_threads=1)
