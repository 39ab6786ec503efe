"""Streaming stores: large results that are given go to memory past the caches, whatever their alignment, and are what NumPy computes."""

from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels import features, kernel

X86 = "x86" in features.host_features()
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


def at(offset: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """A new array whose address is `offset` bytes past a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 256, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + size].view(dtype).reshape(shape)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a result is."""
    monkeypatch.setattr(kernel, "STREAMED", 0)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("offset", [0, 4, 16, 48, 60])
@pytest.mark.parametrize("width", [5, 64, 70, 1024, 1037])
@pytest.mark.parametrize(("function", "dtype"), [(blur, "u2"), (pixels, "f4"), (mirrored, "i8"), (padded, "f4"), (planes, "f8")])
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
        assert around is not None and np.count_nonzero(around) == np.count_nonzero(np.ascontiguousarray(expected).view(np.uint8)), "something else was written"


@pytest.mark.usefixtures("always")
def test_a_result_that_is_read_again_is_kept() -> None:
    img = RNG.integers(0, 1000, (40, 300))
    expected = two(img)
    out = tuple(np.empty_like(x) for x in expected)
    hjit.pipeline(two, verify="off", tune=False).into(out, img)
    for got, want in zip(out, expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("rows", [1, 2, 4])
def test_rows_that_run_together_are_streamed_together(rows: int) -> None:
    img = RNG.integers(0, 60000, (22, 1030)).astype(np.uint16)
    f = hjit.pipeline(blur, verify="off")
    s = f.schedule(img)
    last = s.stages[-1]
    s["rows"].inline()
    s[last].split("y", "yo", "yi", rows).unroll("yi").vectorize("x", 16).parallel("yo")
    f.use(s)
    for offset in (0, 2, 32, 34):
        out = at(offset, (20, 1028), np.uint16)
        f.into(out, img)
        np.testing.assert_array_equal(out, blur(img))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("offset", [0, 4, 28, 60])
@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("function", [padded, lambda x: padded(padded(x)) + x, lambda x: np.stack([padded(x), x, padded(x) - x])])
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
        assert out.base is not None and np.count_nonzero(out.base) == np.count_nonzero(expected.view(np.uint8)), "something else was written"


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
    assert text.count("call void @llvm.x86.sse.sfence()") == text.count("define internal void @hjit") - text.count(".task(ptr %args")


def test_new_and_small_results_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[bytes] = []
    monkeypatch.setattr(kernel.launch, "entered", lambda entry, threads: lambda data: blocks.append(data) or 0)
    f = hjit.pipeline(pixels, tune=False, verify="off")
    for shape in ((4, 64, 3), (1024, 2048, 3)):
        img = np.ones(shape, np.float32)
        blocks.clear()
        f(img)
        f.into(np.empty_like(img), img)
        says = [np.frombuffer(b, np.int64)[-1] for b in blocks]
        assert says[0] == -1 and says[-1] == (0 if img.nbytes >= kernel.STREAMED else -1)
