"""Arrays that are not in the machine's byte order: copied at entry, written back, and results as NumPy's are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import TraceError

Array = np.ndarray[Any, Any]
DTYPES = [np.dtype(t).newbyteorder("S") for t in ("f4", "f8", "f2", "u2", "i4", "c8")]


def scaled(img: Array) -> Any:
    return img * 2 + 1


def like(img: Array) -> Any:
    out = np.zeros_like(img)
    out[1:] = img[1:] + img[:-1]
    return out, img.real.max(), {"copy": img.copy()}


def changes(img: Array) -> None:
    img[3:] *= 2
    img += 1


def changes_and_returns(img: Array) -> Any:
    img[img.real > 2] = 0
    return img


def decides(img: Array) -> Any:
    if img.real.max() > 1:
        img[0] = 0
    return img - 1


def refused(img: Array) -> None:
    img[0] = 1


FUNCTIONS: list[Callable[[Array], Any]] = [scaled, like, changes, changes_and_returns, decides]


def same(ours: Any, expected: Any) -> None:
    assert type(ours) is type(expected)
    if isinstance(expected, (tuple, dict)):
        assert len(ours) == len(expected)
        values = expected.values() if isinstance(expected, dict) else expected
        for a, b in zip(ours.values() if isinstance(ours, dict) else ours, values, strict=True):
            same(a, b)
    elif expected is not None:
        assert ours.dtype.str == expected.dtype.str and ours.strides == expected.strides
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_they_are_converted_and_written_back(function: Callable[[Array], Any], dtype: np.dtype[Any]) -> None:
    pipe = hjit.pipeline(function, numpy_if_faster=False, on_unsupported="raise")
    for seed in range(3):
        ours: Array = (np.random.default_rng(seed).random((30, 40)) * 4).astype(dtype)[::-1]
        plain = ours[::-1].copy()[::-1]
        result, expected = pipe(ours), function(plain)
        assert (result is ours) == (expected is plain)
        same(result, expected)
        same(ours, plain)
    assert pipe.stats.traces >= 1 and pipe.stats.verified
    assert "byte order" in pipe.explain(ours) and "runs compiled" in pipe.explain(ours)
    assert pipe.graph(ours)


def test_views_of_them_are_left_to_numpy() -> None:
    img = np.arange(12.0).astype(np.dtype("f8").newbyteorder("S")).reshape(3, 4)
    pipe = hjit.pipeline(lambda a: a[::2], on_unsupported="break").quiet()
    for _ in range(2):
        assert np.shares_memory(pipe(img), img) and pipe(img).dtype == img.dtype
    assert "view" in pipe.explain(img)
    with pytest.raises(TraceError, match="byte order"):
        hjit.pipeline(lambda a: a[::2], on_unsupported="raise")(img)


def test_arrays_that_share_memory() -> None:
    def moved(a: Array, b: Array) -> Any:
        a += 1
        return b * 2

    pipe = hjit.pipeline(moved, numpy_if_faster=False)
    for shift in (20, 20, 3, 20):
        ours = np.arange(40.0).astype(np.dtype("f8").newbyteorder("S"))
        plain = ours.copy()
        same(pipe(ours[:20], ours[shift : shift + 20]), moved(plain[:20], plain[shift : shift + 20]))
        same(ours, plain)


def test_read_only_arrays_are_refused_as_numpy_does() -> None:
    img = np.ones(5, np.dtype("f4").newbyteorder("S"))
    img.flags.writeable = False
    pipe = hjit.pipeline(refused)
    for _ in range(3):
        with pytest.raises(ValueError, match="read-only"):
            pipe(img)


def test_results_that_are_read_only_stay_so() -> None:
    f = hjit.pipeline(lambda a: (a.imag, a + 1))
    for _ in range(3):
        zeros, _ = f(np.ones((4, 5), ">f8"))
        assert zeros.dtype == ">f8" and not zeros.flags.writeable


def test_functions_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(a: Array) -> Any:
        b = a * 2
        print("greatest", b.max())
        return np.sqrt(b) - a, a.copy()

    img = np.random.default_rng(0).random((30, 40)).astype(np.dtype("f4").newbyteorder("S"))
    pipe = hjit.pipeline(printed, on_unsupported="break", numpy_if_faster=False)
    for _ in range(3):
        same(pipe(img), printed(img))
    assert pipe.stats.parts and capsys.readouterr().out.count("greatest") == 6
