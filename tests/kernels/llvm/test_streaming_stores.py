"""Streaming stores: large results that are given go to memory past the caches, whatever their alignment, and are what NumPy computes."""

import re
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.lower import params
from hjit.kernels.runtime import bind, features, kernel, streaming_choice
from hjit.kernels.runtime.streaming_choice import StreamingChoice
from hjit.options import resolve
from hjit.sched.language.target import native_width

X86 = "x86" in features.host_features()
LANES = native_width(features.target_features(resolve({}).target)) // 2  # of two bytes
RNG = np.random.default_rng(7)


def blur(img: Any) -> Any:
    rows = (img[:, :-2] + img[:, 1:-1] + img[:, 2:]) // 3
    return (rows[:-2] + rows[1:-1] + rows[2:]) // 3


def pixels(img: Any) -> Any:
    return img[..., ::-1] * np.float32(2)


def planes(img: Any) -> Any:
    return np.stack([img + 1, img * 2, img - img[:, ::-1]])


def two(img: Any) -> Any:
    less = img - 1
    return less, img + less.sum(axis=1, keepdims=True)


def mirrored(img: Any) -> Any:
    return (img * 3)[:, ::-1]


def padded(img: Any) -> Any:
    p = np.pad(img, 2, mode="edge")
    return p[:-4, 2:-2] + p[4:, 2:-2] + p[2:-2, :-4] - p[2:-2, 4:]


def stacked(img: Any) -> Any:
    return np.stack([img * 2 + 1, img + 1, 3 - img], axis=-1)


def pieces(img: Any) -> Any:
    out = np.empty((*img.shape, 3), img.dtype)
    out[..., 0] = img * 2 + 1
    out[..., 1] = img + 1
    out[..., 2] = 3 - img
    return out


def patched(img: Any) -> Any:
    out = img * 2 + 1
    out[2:-2] = 3 - img[2:-2]
    return out


def at(offset: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """A new array whose address is `offset` bytes past a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 256, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + size].view(dtype).reshape(shape)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a result is, and whatever is faster."""
    monkeypatch.setattr(bind, "STREAMED", 0)
    monkeypatch.setattr(kernel, "StreamingChoice", lambda kept, streamed: StreamingChoice(streamed, streamed))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("offset", [0, 4, 16, 48, 60])
@pytest.mark.parametrize("width", [5, 64, 70, 1024, 1037])
@pytest.mark.parametrize(
    ("function", "dtype"), [(blur, "u2"), (pixels, "f4"), (mirrored, "i8"), (padded, "f4"), (planes, "f8")]
)
def test_results_at_any_address_are_numpys(function: Any, dtype: str, width: int, offset: int) -> None:
    shape = (9, width, 3) if function is pixels else (9, width)
    img = RNG.integers(0, 60000, shape).astype(dtype)
    expected = function(img)
    f = hjit.pipeline(function, verify="off", tune=False)
    for _ in range(2):
        out = at(offset, expected.shape, expected.dtype)
        around = out.base
        f.into(out, img)
        np.testing.assert_array_equal(out, expected)
        assert around is not None and np.count_nonzero(around) == np.count_nonzero(
            np.ascontiguousarray(expected).view(np.uint8)
        ), "something else was written"


@pytest.mark.usefixtures("always")
def test_a_result_that_is_read_again_is_kept() -> None:
    img = RNG.integers(0, 1000, (40, 300))
    expected = two(img)
    out = tuple(np.empty_like(x) for x in expected)
    hjit.pipeline(two, verify="off", tune=False).into(out, img)
    for got, want in zip(out, expected, strict=True):
        np.testing.assert_array_equal(got, want)


def by_rows(function: Any, img: Any, rows: int, inside: bool) -> Any:
    """A pipeline that computes so many rows at once, in loops inside or around those over columns."""
    f = hjit.pipeline(function, verify="off")
    s = f.schedule(img)
    if "rows" in s.stages:
        s["rows"].inline()
    last = s[s.stages[-1]].split("y", "yo", "yi", rows).unroll("yi").vectorize("x", LANES).parallel("yo")
    if inside:
        last.reorder("yo", "x", "yi", "xv")
    return f.use(s)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("function", [blur, padded])
def test_rows_that_run_together_are_streamed_together(function: Any, rows: int, inside: bool) -> None:
    img = RNG.integers(0, 60000, (22, 1030)).astype(np.uint16)
    expected = function(img)
    f = by_rows(function, img, rows, inside)
    for offset in (0, 2, 32, 34):
        out = at(offset, expected.shape, np.uint16)
        f.into(out, img)
        np.testing.assert_array_equal(out, expected)
        assert out.base is not None and np.count_nonzero(out.base) == np.count_nonzero(expected.view(np.uint8)), (
            "something else was written"
        )


@pytest.mark.skipif(not X86, reason="streaming is for x86")
@pytest.mark.usefixtures("always")
def test_streamed_rows_begin_and_end_with_vectors_wherever_their_loop_is() -> None:
    """A search puts the loop over rows inside that over columns: what is left of rows is a loop over them, too."""
    img = np.zeros((22, 1030), np.uint16)
    around, inside = (by_rows(blur, img, 4, x).inspect_llvm(img) for x in (False, True))
    places = rf"and i64 %\w+, {LANES - 1}\b"  # of addresses among those of whole vectors
    assert len(re.findall(places, inside)) == len(re.findall(places, around)) > 0


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("offset", [0, 4, 28, 60])
@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize(
    "function", [padded, lambda x: padded(padded(x)) + x, lambda x: np.stack([padded(x), x, padded(x) - x])]
)
def test_borders_of_streamed_rows_are_numpys(function: Any, copies: int, offset: int) -> None:
    f = hjit.pipeline(function, verify="off", tune=False)
    s = f.schedule(np.zeros((9, 24), np.float32))
    s[s.stages[-1]].vectorize("x", 16).unroll("x", copies)
    f.use(s)
    for width in (24, 700, 1024, 1031):
        img = RNG.random((9, width)).astype(np.float32)
        expected = function(img)
        out = at(offset, expected.shape, np.float32)
        f.into(out, img)
        np.testing.assert_array_equal(out, expected)
        assert out.base is not None and np.count_nonzero(out.base) == np.count_nonzero(expected.view(np.uint8)), (
            "something else was written"
        )


@pytest.mark.skipif(not X86, reason="streaming is for x86")
def test_streamed_rows_have_borders_in_vectors() -> None:
    """Single elements at the ends of a row would store parts of lines whose other parts are streamed."""
    text = hjit.pipeline(padded, tune=False).inspect_llvm(np.zeros((64, 512), np.float32))
    assert "llvm.masked.gather" in text or "llvm.masked.store" in text


@pytest.mark.skipif(not X86, reason="streaming is for x86")
def test_only_results_that_are_not_read_again_have_streaming_stores() -> None:
    img = RNG.random((40, 300)).astype(np.float32)
    assert "nontemporal" in hjit.pipeline(pixels, tune=False).inspect_llvm(np.zeros((9, 64, 3), np.float32))
    assert "nontemporal" not in hjit.pipeline(lambda x: np.cumsum(x, axis=0), tune=False).inspect_llvm(img)


@pytest.mark.skipif(not X86, reason="streaming is for x86")
def test_streamed_stores_are_fenced() -> None:
    text = hjit.pipeline(pixels, tune=False).inspect_llvm(np.zeros((9, 64, 3), np.float32))
    assert text.count("call void @llvm.x86.sse.sfence()") == text.count("define internal void @hjit") - text.count(
        ".task(ptr %args"
    )


def test_new_and_small_results_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[bytes] = []
    monkeypatch.setattr(kernel.launch, "entered", lambda entry, threads: lambda data: blocks.append(data) or 0)
    f = hjit.pipeline(pixels, tune=False, verify="off")
    for shape in ((4, 64, 3), (1024, 2048, 3)):
        img = np.ones(shape, np.float32)
        blocks.clear()
        for _ in range(4):
            f(img)
        assert {int(np.frombuffer(b, np.int64)[-1]) for b in blocks} == {params.KEEP}
        for _ in range(4):
            f.into(np.empty_like(img), img)
        assert {int(np.frombuffer(b, np.int64)[-1]) for b in blocks[4:]} == (
            {params.KEEP, params.STREAM} if img.nbytes >= params.STREAMED else {params.KEEP}
        )


@pytest.mark.skipif(not X86, reason="streaming is for x86")
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("function", [stacked, pieces, patched])
def test_pieces_are_streamed_where_none_writes_what_another_wrote(function: Any) -> None:
    img = RNG.random((9, 1031)).astype(np.float32)
    expected = function(img)
    f = hjit.pipeline(function, verify="off", tune=False)
    assert ("nontemporal" in f.inspect_llvm(img)) is (function is not patched)
    for offset in (0, 4, 16, 32):
        out = at(offset, expected.shape, np.float32)
        f.into(out, img)
        np.testing.assert_array_equal(out, expected)
        assert out.base is not None and np.count_nonzero(out.base) == np.count_nonzero(expected.view(np.uint8)), (
            "something else was written"
        )


def test_the_faster_of_two_ways_is_taken_after_some_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(streaming_choice, "perf_counter", lambda: now)
    for seconds, best in (((3.0, 2.0), b"second"), ((3.0, 2.99), b"first"), ((2.0, 3.0), b"first")):
        t = StreamingChoice(b"first", b"second")
        tried = []
        while t.best is None:
            way, start = t.begin()
            now += seconds[way] + (5.0 if len(tried) % 3 == 0 else 0.0)  # something else ran
            t.end(way, start)
            tried.append(way)
        assert t.best == best
        assert tried.count(0) == tried.count(1) == streaming_choice.TRIES
    assert StreamingChoice(b"same", b"same").best == b"same"
