"""`ndarray.view` to a dtype of the same size: the bits as they are, and the memory shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from hjit import TraceError
from tests.numpy_check import check, sample

PAIRS = [
    ("float64", "int64"),
    ("float64", "uint64"),
    ("float32", "uint32"),
    ("float32", "int32"),
    ("float16", "uint16"),
    ("float16", "int16"),
    ("uint32", "float32"),
    ("int64", "float64"),
    ("uint16", "float16"),
    ("uint8", "int8"),
    ("int32", "uint32"),
    ("bool", "uint8"),
]


@pytest.mark.parametrize(("dtype", "other"), PAIRS)
@pytest.mark.parametrize("shape", [(9, 37), (3, 4)])
def test_the_bits_are_read(dtype: str, other: str, shape: Any) -> None:
    a = np.abs(sample(shape, dtype, special=False)) if dtype != "bool" else sample(shape, dtype)
    check(lambda a: (a.view(other) // np.dtype(other).type(3), a.copy().view(other)[1:, ::2]), a)


def test_bytes_seen_as_truth() -> None:
    a = np.random.default_rng(1).integers(0, 2, (13, 21)).astype(np.uint8)
    check(lambda a: ~(a.view(bool)) | a[::-1].view(np.bool_), a)


def test_of_a_view_and_of_a_scalar() -> None:
    a = sample((9, 37), "float32", special=False)
    check(lambda a: a[1::2, ::-3].T.view(np.int32) >> 3, a)
    check(lambda a: a.max().view(np.int32) + a.view(np.int32), a)


def test_known_contents() -> None:
    def f(a: Any) -> Any:
        table = np.arange(4, dtype=np.float32)
        table.view(np.uint32)[1] = 0x40400000
        return table + a

    check(f, np.float32([1, 2, 3, 4]))


def absolute(a: Any) -> Any:
    bits = a.view(np.uint32)
    bits &= np.uint32(0x7FFFFFFF)
    bits[0] = a[1].view(np.uint32)
    return a + 1


def test_what_is_written_to_the_view_is_in_the_array() -> None:
    a = sample((9, 37), "float32", special=False)
    check(absolute, a)  # an argument, which is changed
    check(lambda a: absolute(a * 2), a)


def test_what_is_written_to_the_array_is_in_the_view() -> None:
    def f(a: Any) -> Any:
        b = a * 2
        bits = b.view(np.int64)
        before = bits + 0
        b[2:5] += 1.5
        return bits ^ before, bits

    check(f, sample((9, 37), "float64", special=False))


def test_in_a_loop_over_rows() -> None:
    def f(a: Any) -> Any:
        b = a.copy()
        bits = b.view(np.uint32)
        for y in range(1, a.shape[0]):
            bits[y] ^= b[y - 1].view(np.uint32) >> np.uint32(9)
        return b

    check(f, np.random.default_rng(3).random((40, 23)).astype(np.float32))


@pytest.mark.parametrize("part", [slice(None), slice(1, None, 2)])
def test_a_result_is_a_view_of_the_argument_or_of_another_result(part: slice) -> None:
    def f(a: Any) -> Any:
        b = a + 1
        return a.view(np.int64)[part], b, b.view(np.uint64)[:, part]

    a = sample((9, 37), "float64", special=False)
    check(f, a)
    seen, b, other = hjit.pipeline(f, cache="off", verify="off")(a)
    assert np.shares_memory(seen, a)
    assert np.shares_memory(b, other)


def test_bytes_of_truth_stay_as_they_were_written() -> None:
    def f(m: Any) -> Any:
        n = m.copy()
        n.view(np.uint8)[...] = 3
        return n.view(np.uint8), n.view(np.int8) * 2, n & m

    check(f, sample((9, 37), "bool"))


def test_the_dtype_is_assigned() -> None:
    def f(a: Any) -> Any:
        b = a.copy()
        c = b.view()
        c.dtype = np.int32
        c >>= 1
        return b, c

    a = sample((9, 37), "float32", special=False)
    check(f, a)
    with pytest.raises(TraceError, match="it changes an array that outlives the function"):
        hjit.pipeline(lambda a: setattr(a, "dtype", "i4"))(a)


def test_subclasses_are_refused() -> None:
    for f in (lambda a: a.view(np.matrix), lambda a: a.view(type=np.matrix), lambda a: np.matrix(a)):
        with pytest.raises(TraceError, match="a subclass of ndarray may compute in its own way"):
            hjit.pipeline(f)(sample((9, 37), "float32"))


def test_another_size_is_refused() -> None:
    with pytest.raises(TraceError, match=r"float32 seen as uint8, which is not of the same size.*shifts and masks"):
        hjit.pipeline(lambda a: a.view(np.uint8) + 1)(np.zeros((3, 4), np.float32))
