"""Kernels over bands of rows of NumPy's arrays, while other rows are on their way: numbers, and the order of copies and launches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.cuda.runtime import bands, bound, transfers
from hjit.kernels.cuda.runtime.bands import Band, BlockRange, Reader, RowRange, RowTable, plan
from hjit.kernels.cuda.runtime.device import OpenCL
from tests.fuzz import random_program
from tests.kernels.cuda import fake_cupy
from tests.kernels.cuda.launching import needs_device, needs_opencl
from tests.kernels.cuda.pairs import RandomSchedule

RNG = np.random.default_rng(8)
IMAGE = RNG.random((300, 64), np.float32)
BYTES = 8 << 10  # of a band: 32 rows


def blurred(a: Any) -> Any:
    p = np.pad(a, 2, mode="reflect")
    d = p[:-4] + p[1:-3] + p[2:-2] + p[3:-1] + p[4:]
    return np.exp(d[:, :-4] - d[:, 4:])


def in_place(a: Any) -> Any:
    a[1:-1] = (a[:-2] + a[2:]) / 2
    return a[::2] * 3


def filtered(a: Any) -> Any:
    out = a.copy()
    for k in range(1, a.shape[0]):
        out[k] = out[k - 1] * np.float32(0.5) + a[k]
    return out


def two_stages(a: Any) -> Any:
    down = np.cumsum(a, axis=1)
    return down[:-3] - down[3:], (a > 0.5).sum(axis=1)


SPLIT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "point-wise": (lambda a: a * 2 + 1, (IMAGE,)),
    "a stencil with a border": (blurred, (IMAGE,)),
    "two images": (lambda a, b: a[1:] - b[:-1] * a[:-1], (IMAGE, IMAGE[::-1].copy())),
    "channels": (lambda a: a[..., ::-1] // 2, (RNG.integers(0, 255, (300, 41, 3)).astype(np.uint8),)),
    "rows of a larger image": (lambda a: a + a[:, :1], (RNG.random((300, 100))[:, 5:60],)),
    "every other row": (lambda a: a[::2] + a[1::2], (IMAGE,)),
    "planes": (lambda a: a.transpose(0, 2, 1) + 1, (RNG.random((30, 20, 25)),)),
    "a small argument": (lambda a, b: a * b + b[:1], (IMAGE, IMAGE[0])),
    "sums of rows, and scans": (two_stages, (RNG.integers(-9, 9, (300, 64)),)),
    "the whole and its sum": (lambda a: (a + 1, a.sum(dtype=np.int64)), (RNG.integers(0, 9, (300, 64)),)),
    "changed in place": (in_place, (IMAGE,)),
    "transposed": (lambda a: a.T + 1, (IMAGE,)),
}
WHOLE: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "upside down": (lambda a: a[::-1] * 2, (IMAGE,)),
    "an index of its own": (lambda a, k: a[k], (IMAGE, np.repeat(np.arange(300), 2)[::3].copy())),
    "in Fortran's order": (lambda a: a + 1, (np.asfortranarray(IMAGE),)),
    "a filter down columns": (filtered, (IMAGE,)),
}


class Strict(transfers.HostMemory):
    """Copies on a device whose memory is the host's, to memory of their own: what was not sent is not there."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def place(self, a: Any) -> Any:
        low, high = np.lib.array_utils.byte_bounds(a)
        memory = np.full(high - low, 0xA5, np.uint8)
        return np.ndarray(a.shape, a.dtype, memory.data, 0, a.strides)

    def send(self, a: Any, there: Any, begin: int, end: int) -> None:
        there[begin:end] = a[begin:end]
        self.log.append("send")

    def fetch(self, there: Any, a: Any, begin: int, end: int) -> None:
        np.atleast_1d(a)[begin:end] = np.atleast_1d(there)[begin:end]
        self.log.append("fetch")


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch, on_device: None) -> Strict:
    found = Strict()
    monkeypatch.setattr(bands, "BAND_BYTES", BYTES)
    monkeypatch.setattr(OpenCL, "moves", lambda device: contextlib.nullcontext(found))
    run = bound._Call.run

    def launch(call: Any, values: Any) -> None:
        found.log.append("launch")
        run(call, values)

    monkeypatch.setattr(bound._Call, "run", launch)
    return found


def copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.copy("K") if a.flags.owndata else a for a in args)


def same(f: Any, args: tuple[Any, ...]) -> None:
    ours, theirs = copied(args), copied(args)
    got, expected = f(*ours), f.py_func(*theirs)
    for g, e in zip(
        (*(got if type(got) is tuple else (got,)), *ours),
        (*(expected if type(expected) is tuple else (expected,)), *theirs),
        strict=True,
    ):
        np.testing.assert_allclose(g, e, rtol=1e-6)
        assert g.dtype == e.dtype and type(g) is type(e)


@needs_opencl
@pytest.mark.parametrize("case", SPLIT)
def test_each_band_reads_what_has_come(case: str, moves: Strict) -> None:
    function, args = SPLIT[case]
    f = hjit.pipeline(function, target="cuda", verify="off", on_unsupported="raise")
    for _ in range(2):
        moves.log.clear()
        same(f, args)
        log = moves.log
        assert log.index("launch") < len(log) - 1 - log[::-1].index("send"), "kernels wait for all"
        assert log.index("fetch") < len(log) - 1 - log[::-1].index("launch"), "results wait for all"
    assert f.stats.fallbacks == 0
    assert "bands of rows, while kernels run over others" in f.explain(*args)


@needs_opencl
@pytest.mark.parametrize("case", WHOLE)
def test_what_needs_all_of_an_image_is_copied_as_a_whole(case: str, moves: Strict) -> None:
    function, args = WHOLE[case]
    f = hjit.pipeline(function, target="cuda", verify="off", on_unsupported="raise")
    same(f, args)
    assert set(moves.log) == {"launch"}
    assert "bands" not in f.explain(*args)


@needs_opencl
def test_parts_of_columns_are_summed_as_they_come(moves: Strict) -> None:
    f = hjit.pipeline(lambda a: np.cumsum(a, axis=0), target="cuda", verify="off")
    same(f, (RNG.integers(-9, 9, (300, 64)),))
    log = moves.log
    assert log.index("launch") < len(log) - 1 - log[::-1].index("send")


@needs_opencl
def test_small_images_are_copied_as_a_whole(moves: Strict) -> None:
    f = hjit.pipeline(blurred, target="cuda", verify="off")
    same(f, (IMAGE[:60],))
    assert set(moves.log) == {"launch"}


@needs_opencl
def test_indices_out_of_bounds_raise(moves: Strict) -> None:
    f = hjit.pipeline(lambda a, k: a[np.arange(300)[:, None], k] + 1, target="cuda", verify="off")
    k = np.stack([np.arange(300) % 64] * 20, axis=1)
    same(f, (IMAGE, k))
    assert "send" in moves.log
    k[200] = 64
    with pytest.raises(IndexError):
        f(IMAGE, k)


@needs_opencl
def test_other_processes_know_the_rows(moves: Strict, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept on disk with the kernels."""
    from hjit.kernels.cuda.runtime import kernels, lowered

    same(hjit.pipeline(blurred, target="cuda", verify="off"), (IMAGE,))
    kernels.after_fork()
    monkeypatch.setattr(lowered, "lowered", None)
    moves.log.clear()
    f = hjit.pipeline(blurred, target="cuda", verify="off")
    same(f, (IMAGE[:-7],))
    assert f.stats.cache_hits == 1 and "send" in moves.log


@needs_opencl
@pytest.mark.parametrize("seed", [3, 5, 12, 24])
@pytest.mark.parametrize("by_default", [True, False])
def test_random_programs(seed: int, by_default: bool, moves: Strict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "BAND_BYTES", 64)
    options: Any = {"target": "cuda", "verify": "off", "cache": "off", "blas": False}
    schedule = None if by_default else RandomSchedule(seed)
    assert random_program(seed).fails(schedule=schedule, **options) is None
    assert "send" in moves.log or not by_default


# -- through CuPy


@needs_device
@pytest.mark.parametrize("case", [*SPLIT, *WHOLE])
def test_arrays_of_numpy_through_cupy(case: str, cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "BAND_BYTES", BYTES)
    monkeypatch.setattr(transfers, "STRIP_BYTES", 3000)
    function, args = (SPLIT | WHOLE)[case]
    f = hjit.pipeline(function, target="cuda", verify="off", on_unsupported="raise")
    for _ in range(2):
        same(f, args)
    assert f.stats.fallbacks == 0


@needs_device
def test_kernels_run_while_rows_come_and_go(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch has to wait for its rows alone: all that it waits for is done at once, and nothing else."""
    monkeypatch.setattr(bands, "BAND_BYTES", BYTES)
    monkeypatch.setattr(transfers, "STRIP_BYTES", 3000)
    if fake_cupy.is_installed_as(cp):
        put = fake_cupy.Stream.put

        def put_and_run(stream: Any, what: str, work: Callable[[], None]) -> None:
            put(stream, what, work)
            if what in ("kernel", "download"):
                stream.synchronize()

        monkeypatch.setattr(fake_cupy.Stream, "put", put_and_run)
    f = hjit.pipeline(blurred, target="cuda", verify="off", cache="off")
    same(f, (IMAGE,))
    fake_cupy.log.clear()
    same(f, (IMAGE,))
    if fake_cupy.is_installed_as(cp):
        words = [x.split(" on ")[0] for x in fake_cupy.log]
        order = [w for w in words if w in ("upload", "kernel", "download")]
        assert order.index("kernel") < len(order) - 1 - order[::-1].index("upload")
        assert order.index("download") < len(order) - 1 - order[::-1].index("kernel")
        streams = {x for x in fake_cupy.log if x.startswith(("upload", "kernel", "download"))}
        assert len(streams) == 3, "uploads, kernels and downloads have a stream each"


# -- plans


def reader(stage: str, arrays: str, ends: dict[str, list[int]], begin: list[int]) -> Reader:
    table = RowTable(stage, len(begin), {a: np.array(n) for a, n in ends.items()}, np.array(begin))
    return Reader(frozenset(arrays.split()), table)


ROWS = {"a": 8, "s": 8, "t": 8}


def test_launches_wait_for_the_rows_of_stages() -> None:
    first = reader("s", "a", {"a": [2, 4, 6, 8]}, [0, 2, 4, 6])
    second = reader("t", "s", {"s": [3, 5, 7, 8]}, [0, 2, 4, 6])
    assert plan([first, second], ROWS, ["a"], ["t"], 2) == (
        Band((RowRange("a", 0, 4),), (BlockRange(0, 0, 2), BlockRange(1, 0, 1)), (RowRange("t", 0, 2),)),
        Band((RowRange("a", 4, 8),), (BlockRange(0, 2, 4), BlockRange(1, 1, 4)), (RowRange("t", 2, 8),)),
    )


def test_what_reads_all_waits_for_all() -> None:
    first = reader("s", "a", {"a": [2, 4, 6, 8]}, [0, 2, 4, 6])
    total = reader("t", "s", {}, [0])
    (one, two) = plan([first, total], ROWS, ["a"], ["s", "t"], 2)
    assert one.parts == (BlockRange(0, 0, 2),) and two.parts == (BlockRange(0, 2, 4), BlockRange(1, 0, 1))
    assert (
        plan([total], ROWS, ["a"], ["t"], 2) == () and plan([reader("t", "a", {}, [0, 0])], ROWS, ["a"], ["t"], 4) == ()
    )


def test_updates_follow_what_they_update_row_by_row() -> None:
    initial = reader("s", "a", {"a": [4, 8], "s": [4, 8]}, [0, 4])
    update = reader("s", "", {"s": [5, 8]}, [1, 5])
    later = reader("s", "", {"s": [8, 8]}, [1, 5])
    (one, two) = plan([initial, update], ROWS, ["a"], ["s"], 2)
    assert one.parts == (BlockRange(0, 0, 1),) and one.leaving == (RowRange("s", 0, 1),)
    assert two.parts == (BlockRange(0, 1, 2), BlockRange(1, 0, 2)) and two.leaving == (RowRange("s", 1, 8),)
    assert plan([initial, later], ROWS, ["a"], ["s"], 4)[-1].parts[-1] == BlockRange(1, 0, 2)


def test_updates_without_blocks_follow_all_of_it() -> None:
    initial = reader("s", "a", {"a": [4, 8], "s": [4, 8]}, [0, 4])
    update = reader("s", "", {}, [0])
    (one, two) = plan([initial, update], ROWS, ["a"], ["s"], 2)
    assert one.parts == (BlockRange(0, 0, 1),) and one.leaving == ()
    assert two.parts == (BlockRange(0, 1, 2), BlockRange(1, 0, 1)) and two.leaving == (RowRange("s", 0, 8),)


def test_iterations_that_need_less_than_one_before_wait_for_that() -> None:
    upside_down = reader("t", "a", {"a": [8, 6, 4, 2]}, [0, 2, 4, 6])
    assert plan([upside_down], ROWS, ["a"], ["t"], 4) == ()
