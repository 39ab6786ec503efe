"""Channels that are stored side by side: computed in the order of memory where that takes fewer shuffles, with NumPy's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.lower.passes import stream_stores
from tests.numpy_check import check

RNG = np.random.default_rng(5)
SHAPE = (9, 133)
GRAY = RNG.random(SHAPE).astype(np.float32)
MASK = RNG.random(SHAPE) > 0.5
TABLE = RNG.permutation(256).astype(np.uint8)
GRAY_BYTES = RNG.integers(0, 256, SHAPE).astype(np.uint8)


def pixels(channels: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return (RNG.random((*SHAPE, channels)) * (250 if dtype == np.uint8 else 1)).astype(dtype)


def shuffles(function: Callable[..., Any], *args: Any) -> list[int]:
    """Lanes of the results of shuffles that are no copies of one lane. Without those at the ends of streamed rows."""
    with pytest.MonkeyPatch.context() as m:
        m.setattr(stream_stores, "written_once", lambda graph: [])
        text = hjit.pipeline(function, tune=False, num_threads=1).inspect_llvm(*args)
    return [
        line.count("i32 ") for line in text.splitlines() if "shufflevector" in line and "zeroinitializer" not in line
    ]


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "a gain": (lambda a, g: a * g[..., None], lambda n: (pixels(n), GRAY)),
    "a blend": (lambda a, b, g: g[..., None] * a + (1 - g[..., None]) * b, lambda n: (pixels(n), pixels(n), GRAY)),
    "numbers for channels": (lambda a: a * np.arange(1, a.shape[-1] + 1, dtype=np.float32), lambda n: (pixels(n),)),
    "gains of channels": (lambda a, w: np.clip(a * w, 0, 1), lambda n: (pixels(n), RNG.random(n).astype(np.float32))),
    "neighbours": (lambda a: np.maximum(a[:, 2:], a[:, :-2]) - a[:, 1:-1], lambda n: (pixels(n),)),
    "neighbours beyond the edge": (lambda a: (p := np.pad(a, ((0, 0), (1, 1), (0, 0)), mode="edge"))[:, 2:] - p[:, :-2], lambda n: (pixels(n),)),
    "bytes": (lambda a: np.clip(a.astype(np.int16) + 20, 0, 255).astype(np.uint8), lambda n: (pixels(n, np.uint8),)),
    "bytes by a mask": (lambda a, m: np.where(m[..., None], a, 255 - a), lambda n: (pixels(n, np.uint8), MASK)),
    "truth": (lambda a, g: (a > g[..., None]) & (a < 0.9), lambda n: (pixels(n), GRAY)),
    "truth that is read": (lambda a: ~a, lambda n: (pixels(n) > 0.5,)),
    "channels turned round": (lambda a: a[..., ::-1] * np.float32(2), lambda n: (pixels(n),)),
    "channels mixed": (lambda a: a - a.mean(axis=-1, keepdims=True), lambda n: (pixels(n),)),
    "channels of several kinds": (lambda a: np.stack([a[..., 0], np.sqrt(a[..., 1]), *([a[..., 0] + 1] * (a.shape[-1] - 2))], axis=-1), lambda n: (pixels(n),)),
    "a stack with a grey one": (lambda a, g: np.concatenate([g[..., None], a[..., 1:] * 2], axis=-1), lambda n: (pixels(n), GRAY)),
    "colours of a table": (lambda g: np.arange(768, dtype=np.uint8).reshape(256, 3)[g], lambda n: (GRAY_BYTES,)),
    "bytes through a table": (lambda a: TABLE[a], lambda n: (pixels(n, np.uint8),)),
    "numbers through a table": (lambda a, g: TABLE[np.clip((a * 300).astype(np.int32) - 20, 0, 255)] + g[..., None], lambda n: (pixels(n), GRAY)),
    "a table from its end": (lambda a: TABLE[-1 - a.astype(np.int64)] > 30, lambda n: (pixels(n, np.uint8),)),
    "a row of tables": (lambda a, g: np.stack([TABLE, TABLE // 2])[1, a] * g[..., None], lambda n: (pixels(n, np.uint8), GRAY)),
    "a table of truth, and of itself": (lambda a: (TABLE > 90)[TABLE[a] // 2], lambda n: (pixels(n, np.uint8),)),
    "a table for each channel": (lambda a: np.stack([TABLE // (k + 1) for k in range(a.shape[-1])])[np.arange(a.shape[-1]), a], lambda n: (pixels(n, np.uint8),)),
    "doubles": (lambda a, g: a * g[..., None], lambda n: (pixels(n, np.float64), GRAY)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("channels", [2, 3, 4])
def test_the_numbers_are_numpys(case: str, channels: int) -> None:
    function, args = CASES[case]
    check(function, *args(channels))


def test_lookups_of_channels_are_in_the_order_of_memory() -> None:
    assert not shuffles(lambda a: TABLE[a], pixels(3, np.uint8))
    with pytest.raises(IndexError):
        hjit.pipeline(lambda a: TABLE[a])(pixels(3, np.uint8).astype(np.int16) + 256)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float32", "float64"])
def test_elements_far_apart_are_shuffled_out_of_whole_vectors(dtype: str) -> None:
    a = RNG.integers(0, 200, (5, 1111)).astype(dtype)
    for step in (5, 6, 7, 8, 11, 12, 16, 17):
        check(
            lambda a, step=step: (
                a[:, ::step] | a[:, ::step] if a.dtype == bool else a[:, ::step] * 2,
                a[:, 3::step].copy(),
            ),
            a,
        )
        check(lambda a, step=step: a[:, ::-step].copy(), a)
    for channels in (5, 6, 8):
        pixel = (
            np.repeat(a[:, :133, None], channels, 2) & True
            if dtype == "bool"
            else a[:, :133, None] + np.arange(channels, dtype=dtype)
        )
        check(lambda p: (p[..., 0], p[..., -1] | p[..., 1] if p.dtype == bool else p[..., -1] - p[..., 1]), pixel)
        check(lambda *planes: np.stack(planes, axis=-1), *np.moveaxis(pixel, -1, 0))


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3"])
def test_there_may_be_fewer_lanes_than_channels(target: str) -> None:
    check(lambda a, w: a[..., None] * w, RNG.random((7, 40)), RNG.random(3), target=target)
    check(lambda a: a[:, ::6] + a[:, 3::6], RNG.integers(0, 99, (7, 600)).astype(np.uint8), target=target)
    check(lambda a: a[..., None] * np.array([1.5, 2.5, 3.5, 4.5]), RNG.random((7, 40)), target=target)


@pytest.mark.parametrize("channels", [3, 4])
def test_two_lanes_of_several_channels(channels: int) -> None:
    def gains(a: Any) -> Any:
        result = a[..., None] * np.arange(1, channels + 1)
        return result

    a = RNG.random((7, 40))
    s = hjit.pipeline(gains).schedule(a)
    s["result"].unroll("c").vectorize("x", 2)
    check(gains, a, schedule=s)


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_what_is_alike_is_not_taken_apart(channels: int) -> None:
    for case in ("neighbours", "bytes", "gains of channels", "numbers for channels"):
        function, args = CASES[case]
        assert len(shuffles(function, *args(channels))) <= (channels if "channels" in case else 0), case
    function, args = CASES["a gain"]
    assert len(shuffles(function, *args(channels))) == channels  # the gain, once for each vector
    function, args = CASES["channels mixed"]
    assert len(shuffles(function, *args(channels))) >= channels * (channels - 1)


def test_padded_channels_are_vectors_by_default() -> None:
    def edges(a: Any) -> Any:
        p = np.pad(a, ((0, 0), (2, 2), (0, 0)), mode="reflect")
        return p[:, :-4] + p[:, 1:-3] + p[:, 2:-2] + p[:, 3:-1] + p[:, 4:]

    assert "vector" in str(hjit.pipeline(edges, tune=False).tree(pixels(3)))


@pytest.mark.parametrize("channels", [2, 3])
def test_vectors_from_outside_of_a_loop_are_no_numbers_for_channels(channels: int) -> None:
    def rows(w: Any) -> Any:
        result = w[None] * np.arange(1.0, 6.0)[:, None, None]
        return result

    w = RNG.random((40, channels))
    s = hjit.pipeline(rows).schedule(w)
    s["result"].unroll("c").vectorize("x", 4).reorder("x", "xv", "y", "c")
    assert "%invariant" in str(hjit.pipeline(rows).use(s).loops(w))
    check(rows, w, schedule=s)
