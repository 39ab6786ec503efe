"""Whose memory results have, and what a function asks about that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit


def pipeline(function: Callable[..., Any]) -> hjit.Pipeline:
    return hjit.pipeline(function, verify="off", on_unsupported="break")


def images() -> list[Any]:
    """An array, a view of rows, and one of reversed columns."""
    big = np.random.default_rng(0).random((9, 9))
    return [big[:7].copy(), big[1:8], big[1:8, ::-1]]


@pytest.mark.parametrize(
    "function",
    [
        lambda a: a + 1j,
        lambda a: np.sqrt(a.T),
        lambda a: np.asfortranarray(a) + 1j,
        lambda a: np.fft.fft2(a) * 2,
        lambda a: np.transpose(a[..., None] * np.ones(3), (2, 0, 1)) + 1,
        lambda a: np.exp(a @ a.T + 1j),
        lambda a: a * np.unique(a)[0] + 1j,
    ],
)
def test_results_own_their_memory(function: Callable[..., Any]) -> None:
    f = pipeline(function)
    for a in images():
        for _ in range(2):
            result, expected = f(a), function(a)
            np.testing.assert_allclose(result, expected, rtol=1e-12)
            assert result.strides == expected.strides
            assert result.flags.owndata
            assert result.base is None


def resized(a: Any) -> Any:
    z = a + 1j
    z.resize((2, a.shape[1]))
    return z


def test_what_a_part_has_computed_is_resized() -> None:
    f = pipeline(resized)
    for a in images():
        np.testing.assert_array_equal(f(a), resized(a))


@pytest.mark.parametrize(
    "function",
    [
        lambda a: (a.base is None, a + 1),
        lambda a: (a[1:].base is a, a.flags.owndata, (a + 1).flags["O"], a[:, 1:].flags.owndata),
        lambda a: ((a * 2).base is None, (a + 1j).real.base is None),
        lambda a: (np.arange(9.0).reshape(3, 3).base is None, a + 1),
    ],
)
def test_whose_memory_it_is(function: Callable[..., Any]) -> None:
    f = pipeline(function)
    for a in images():
        for _ in range(2):
            np.testing.assert_equal(f(a), function(a))


def views_of_a_root(a: Any) -> Any:
    b = np.sqrt(a)
    c = b[1:]
    return c.base is b, b.T.base is b, c


def test_a_view_that_a_part_returns_has_the_array_as_its_base() -> None:
    f = pipeline(views_of_a_root)
    for a in images():
        np.testing.assert_equal(f(a), views_of_a_root(a))


def test_an_array_beside_views_of_it_is_their_base() -> None:
    def f(a: Any) -> Any:
        b = np.sqrt(a)
        return b, b[1:], b.T

    for run in (f, pipeline(f)):
        b, rows, turned = run(images()[0])
        assert b.flags.owndata
        assert rows.base is b
        assert turned.base is b


def test_a_complex_array_beside_its_parts_is_their_base() -> None:
    def f(a: Any) -> Any:
        b = a + 1j
        return b.real, b, b[1:]

    for run in (f, pipeline(f)):
        for image in images():
            real, b, rows = run(image)
            assert b.flags.owndata
            assert real.base is b
            assert rows.base is b
            np.testing.assert_equal((real, b, rows), f(image))


def frozen(a: Any) -> Any:
    b = a * 2
    b.flags.writeable = False
    return b


def test_a_flag_that_is_set() -> None:
    f = pipeline(frozen)
    for a in images():
        assert not f(a).flags.writeable


def asked(a: Any) -> Any:
    s = a.flags
    return s["C"], s["F"], s["A"], s["B"], s["CA"], s["FA"], s.carray, s.farray, s.behaved, s.fnc, s.forc


def test_flags_that_are_known() -> None:
    f = hjit.pipeline(asked)
    read_only = images()[0]
    read_only.flags.writeable = False
    for a in (*images(), images()[0].T, read_only):
        assert f(a) == asked(a)


def of_bytes(data: bytes, width: int) -> Any:
    a = np.frombuffer(data, np.uint8).reshape(-1, width)
    return a * 2, a, np.broadcast_to(np.arange(3.0), (2, 3)), np.frombuffer(data[:16], complex)


def test_read_only_arrays_that_are_known_stay_read_only() -> None:
    f = pipeline(of_bytes)
    for seed in (0, 0, 1, 2, 1):
        data = np.random.default_rng(seed).integers(0, 256, 48, np.uint8).tobytes()
        ours, theirs = f(data, 6), of_bytes(data, 6)
        np.testing.assert_equal(ours, theirs)
        assert [x.flags.writeable for x in ours] == [x.flags.writeable for x in theirs]


def test_a_read_only_array_that_is_known_is_not_written() -> None:
    def f(data: bytes) -> Any:
        a = np.frombuffer(data, np.uint8)
        a[0] = 3
        return a

    with pytest.raises(ValueError, match="read-only"):
        pipeline(f)(b"abc")


def accumulated(a: Any) -> Any:
    total = np.zeros((), complex)
    total += a.sum()
    return total


@pytest.mark.parametrize(
    "function", [accumulated, lambda a: np.asarray(complex(a[0, 0], 2)), lambda a: (a + 1j)[0, 1, ...]]
)
def test_complex_arrays_without_axes(function: Callable[..., Any]) -> None:
    f = pipeline(function)
    for a in images():
        result, expected = f(a), function(a)
        assert (type(result), result.dtype, result.shape) == (np.ndarray, expected.dtype, ())
        np.testing.assert_allclose(result, expected, rtol=1e-12)
