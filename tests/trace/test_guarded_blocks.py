"""Conditions on computed values on which only a warning or an exception depends are no decisions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit

IMAGE = np.random.default_rng(0).random((40, 60))
BLANK = np.full_like(IMAGE, np.nan)


def checked(x: Any) -> Any:
    if x.ndim != 2 or x.min() < 0:
        raise ValueError(f"a value of {x.min()}")
    if not np.isfinite(x).all():
        message = "not finite"
        raise ValueError(message)
    return np.sqrt(x)


def asserted(x: Any) -> Any:
    if not x.max() < 2:  # as `assert` is compiled, which pytest makes something else of
        raise AssertionError("too large")
    return x * 2


def in_loop(x: Any) -> Any:
    out = np.zeros_like(x)
    for k in range(6):
        part = x[k::6]
        if np.isnan(part).any():
            raise ValueError("no number")
        out[k::6] = part - part.mean()
    return out


BAD = [
    (checked, -IMAGE),
    (checked, np.where(IMAGE > 0.5, np.inf, IMAGE)),
    (asserted, IMAGE + 2),
    (in_loop, BLANK),
]


@pytest.mark.parametrize(("f", "bad"), BAD)
def test_where_only_an_exception_depends_on_a_condition_nothing_is_decided(f: Callable[..., Any], bad: Any) -> None:
    p = hjit.pipeline(f, cache="off")
    for _ in range(2):
        np.testing.assert_allclose(p(IMAGE), f(IMAGE), rtol=1e-12)
        with pytest.raises((ValueError, AssertionError)) as expected:
            f(bad)
        with pytest.raises(expected.type) as got:
            p(bad)
        assert str(got.value) == str(expected.value)
        assert (got.traceback[-1].path, got.traceback[-1].lineno) == (
            expected.traceback[-1].path,
            expected.traceback[-1].lineno,
        )
    assert p.stats.traces == 1
    assert "decision" not in p.explain(IMAGE)


def test_arguments_are_not_changed_before_the_exception() -> None:
    def f(x: Any, out: Any) -> None:
        out[...] = 0
        if x.min() < 0:
            raise ValueError("negative")
        out += x

    p, out, expected = hjit.pipeline(f, cache="off"), np.ones_like(IMAGE), np.ones_like(IMAGE)
    p(IMAGE, out)
    np.testing.assert_array_equal(out, IMAGE)
    for g, array in ((f, expected), (p, out)):
        with pytest.raises(ValueError, match="negative"):
            g(-IMAGE, array)
    np.testing.assert_array_equal(out, 0 * expected)


def test_an_exception_that_the_function_handles_is_a_decision() -> None:
    def scaled(x: Any) -> Any:
        if x.max() > 1:
            raise ValueError("large")
        return x * 2

    def f(x: Any) -> Any:
        try:
            return scaled(x)
        except ValueError:
            return scaled(x / x.max())

    p = hjit.pipeline(f, cache="off")
    for x in (IMAGE, 9 * IMAGE) * 2:
        np.testing.assert_array_equal(p(x), f(x))
    assert p.stats.traces == 2
    assert p.stats.fallbacks == 0


def clipped(x: Any) -> Any:
    sides = 0
    for k in range(9):
        total = np.nanmean(x[k : k + 4], axis=0)
        sides = sides + np.where(np.abs(x[k]) > 3 * np.nanstd(x[k : k + 4], axis=0), 0, total)
    return sides, np.nanmin(x), np.nanmax(x, axis=1), np.nanvar(x, ddof=1), np.nanstd(x.astype(np.float32))


def told(x: Any) -> Any:
    if x.max() > 1:
        warnings.warn("large values", stacklevel=2)
    if not np.isfinite(x).all():
        warnings.warn("not finite", RuntimeWarning)  # noqa: B028
    return x * 2


def quiet(x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=RuntimeWarning)
        return np.nanmean(x, axis=0)


@pytest.mark.parametrize("f", [clipped, told, quiet])
def test_where_only_a_warning_depends_on_a_condition_nothing_is_decided(f: Callable[..., Any]) -> None:
    p = hjit.pipeline(f, cache="off")
    half = IMAGE.copy()
    half[:, :7] = np.nan
    for x in (IMAGE, 3 * IMAGE, half, BLANK) * 2:
        seen = []
        for g in (f, p):
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                warnings.filterwarnings("ignore", " encountered in ")
                result = g(x)
            seen.append((result, [(str(w.message), w.category, w.filename, w.lineno) for w in given]))
        (expected, theirs), (ours, own) = seen
        for a, b in zip(ours, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
            assert np.asarray(a).dtype == np.asarray(b).dtype
        assert own == theirs
    assert p.stats.traces == 1
    assert p.stats.fallbacks == 0
    assert "decision" not in p.explain(IMAGE)


def test_where_warnings_are_errors_the_plain_function_raises() -> None:
    p = hjit.pipeline(told, cache="off")
    p(IMAGE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(p(IMAGE), told(IMAGE))
        with pytest.raises(UserWarning, match="large values"):
            p(3 * IMAGE)


def test_what_depends_on_a_condition_beside_a_warning_is_decided() -> None:
    def f(x: Any) -> Any:
        if x.max() > 1:
            warnings.warn("large values", stacklevel=1)
            x = x / x.max()
        return x * 2

    p = hjit.pipeline(f, cache="off")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in (IMAGE, 3 * IMAGE) * 2:
            np.testing.assert_array_equal(p(x), f(x))
    assert p.stats.traces == 2
