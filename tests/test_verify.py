"""The first call is compared with NumPy's own result."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import HjitWarning
from hjit.variant import Variant
from hjit.verify import DOUBTS, EXACT, Tolerance, difference, is_exact

IMAGE = np.linspace(0, 9, 40 * 50).reshape(40, 50)
SINGLE = np.random.default_rng(0).random((300, 200), dtype=np.float32)
CLOSE = Tolerance(2.0**-52)


def plus_one(img: Any) -> Any:
    return img + 1


def spoil(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels compute something else."""
    run = Variant.run

    def wrong(self: Variant, *args: Any, **kwargs: Any) -> Any:
        return run(self, *args, **kwargs) + 1

    monkeypatch.setattr(Variant, "run", wrong)
    monkeypatch.setattr(Variant, "run_flat", lambda self, leaves: wrong(self, leaves, ([], {})))


def test_the_first_result_is_numpys() -> None:
    calls = []

    def f(img: Any) -> Any:
        return img + 1

    p = hjit.pipeline(f)
    assert p.stats.verified is None
    p.py_func = lambda img: calls.append(1) or f(img)
    p.py_func = f
    result = p(IMAGE)
    assert p.stats.verified is True
    np.testing.assert_array_equal(result, f(IMAGE))
    assert not calls


def test_a_wrong_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    p = hjit.pipeline(plus_one)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            np.testing.assert_array_equal(p(IMAGE), IMAGE + 1)
    assert len(seen) == 1
    assert seen[0].category is HjitWarning
    assert seen[0].filename == __file__
    text = str(seen[0].message)
    assert "plus_one" in text
    assert "[0, 0]" in text
    assert p.stats.verified is False
    assert p.stats.fallbacks == 3


def test_a_blank_image_decides_nothing_where_values_cancel() -> None:
    def centred(img: Any) -> Any:
        return img - img.mean(0)

    p = hjit.pipeline(centred)
    blank = np.full((500, 40), 0.1, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert centred(blank).any()  # NumPy's roundings
        np.testing.assert_array_equal(p(blank), centred(blank))
        assert p.stats.verified is None and p.stats.fallbacks == 1
        np.testing.assert_array_equal(p(SINGLE), centred(SINGLE))
        assert p.stats.verified is True
        p(SINGLE)
    assert p.stats.fallbacks == 1


def test_a_kernel_that_is_wrong_by_more_than_roundings_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    p = hjit.pipeline(lambda img: np.exp(img))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(DOUBTS):
            np.testing.assert_array_equal(p(SINGLE), np.exp(SINGLE))
            assert p.stats.verified is None and not seen
        for _ in range(2):
            np.testing.assert_array_equal(p(SINGLE), np.exp(SINGLE))
    assert len(seen) == 1 and p.stats.verified is False
    assert p.stats.fallbacks == DOUBTS + 2


def test_verify_off_trusts_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch)
    p = hjit.pipeline(plus_one, verify="off")
    for _ in range(2):
        np.testing.assert_array_equal(p(IMAGE), IMAGE + 1 + 1)
    assert p.stats.verified is None


def test_the_function_runs_once_in_python_when_verifying() -> None:
    ran = []

    class Watched:
        def __call__(self, img: Any) -> Any:
            ran.append(type(img))
            return img + 1

    watched = Watched()

    def f(img: Any) -> Any:
        return img * 2

    p = hjit.pipeline(f)
    p(IMAGE)
    p(IMAGE)
    assert p.stats.calls == 2
    assert not ran
    np.testing.assert_array_equal(watched(IMAGE), IMAGE + 1)


def test_arguments_are_changed_once() -> None:
    def f(a: Any) -> Any:
        a += 1
        return a

    p = hjit.pipeline(f)
    for make in (np.zeros((20, 30)), np.zeros((20, 60))[:, ::2], np.zeros((30, 20)).T, np.zeros((20, 30))[::-1]):
        a = make.copy(order="K") if make.base is None else make
        for k in range(1, 4):
            assert p(a) is a
            assert (a == k).all()
    assert p.stats.verified is True
    assert p.stats.fallbacks == 0


def test_only_the_first_key_is_verified() -> None:
    p = hjit.pipeline(plus_one)
    p(IMAGE)
    p(IMAGE.astype(np.float32))
    assert p.stats.verified is True
    assert p.stats.traces == 2


@pytest.mark.parametrize("f", [
    lambda a: np.exp(a).astype(np.float64),
    lambda a: np.exp(a).astype(np.float64) * 2,
    lambda a: np.exp(a.astype(np.float64)).astype(np.float32).astype(np.float64),
    lambda a: a.mean(axis=0).astype(np.float64),
    lambda a: (np.power(a, np.float32(0.45)) * 255).astype(np.uint8),
    lambda a: np.rint(np.power(a, np.float32(0.45)) * 255).astype(np.float64) / 255,
    lambda a: {"small": a, "wide": [np.sin(a).astype(np.float64), a > 0.5]},
    lambda a: float(a.mean()),
    lambda a: np.histogram(np.exp(a), bins=8, range=(1.0, 2.0))[0],
], ids=range(9))
def test_results_may_differ_by_the_precision_that_they_have_passed(f: Any) -> None:
    p = hjit.pipeline(f, cache="off")
    with warnings.catch_warnings():
        warnings.simplefilter("error", HjitWarning)
        p(SINGLE)
    assert p.stats.verified is True
    assert p.stats.fallbacks == 0


def test_arguments_changed_in_place_may_differ_by_their_precision() -> None:
    def f(a: Any, out: Any) -> None:
        out[...] = np.exp(a)

    p = hjit.pipeline(f, cache="off")
    p(SINGLE, np.zeros(SINGLE.shape))
    assert p.stats.verified is True


def test_fast_maths_may_differ_by_a_rounding() -> None:
    p = hjit.pipeline(lambda a, b: a * b + a, cache="off", fast_math=True)
    p(SINGLE, SINGLE[::-1])
    assert p.stats.verified is True


@pytest.mark.parametrize(("f", "eps", "decided"), [
    (lambda a: a * 2 + np.sqrt(a), 0, False),
    (lambda a: np.exp(a), 2.0**-23, False),
    (lambda a: np.exp(a).astype(np.float64), 2.0**-23, False),
    (lambda a: np.exp(a.astype(np.float64)), 2.0**-52, False),
    (lambda a: np.exp(a.astype(np.float64)).astype(np.float32).astype(np.float64), 2.0**-23, False),
    (lambda a: np.exp(a.astype(np.float64)) + a, 2.0**-52, False),
    (lambda a: a.astype(np.float64) + a.sum(), 2.0**-23, False),
    (lambda a: a.astype(np.float64).cumsum(axis=0), 2.0**-52, False),
    (lambda a: np.floor(np.exp(a)), 2.0**-23, True),
    (lambda a: np.where(np.exp(a) > 1.5, 1, 0), 2.0**-23, True),
    (lambda a: np.arange(300.0)[(np.exp(a) * 9).astype(np.int64)], 2.0**-23, True),
    (lambda a: (a * 255).astype(np.int64) ** 2, 0, False),
], ids=range(12))
def test_the_tolerance_is_of_the_coarsest_float_since_an_operation_was_inexact(f: Any, eps: float, decided: bool) -> None:
    p = hjit.pipeline(f, cache="off", verify="off")
    p(SINGLE)
    ((variant,),) = p._variants.values()
    assert variant.tolerances()[0] == Tolerance(eps, decided)


def test_results_are_exact_where_all_are() -> None:
    assert is_exact(({"a": EXACT}, [EXACT, EXACT]))
    assert not is_exact(({"a": EXACT}, [EXACT, CLOSE]))


def test_one_result_may_differ_and_another_not() -> None:
    p = hjit.pipeline(lambda a: (a + 1, np.exp(a)), cache="off", verify="off")
    p(SINGLE)
    ((variant,),) = p._variants.values()
    exact, inexact = variant.tolerances()[0]
    assert exact == EXACT
    assert inexact.eps


@pytest.mark.parametrize(("ours", "expected", "allowed", "why"), [
    (np.ones(3), np.ones(3), EXACT, None),
    (np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), EXACT, None),
    (np.ones(3), np.ones(4), EXACT, "shape"),
    (np.ones(3), np.ones(3, np.float32), EXACT, "float64"),
    (np.ones(3), [1.0] * 3, EXACT, "instead of a list"),
    (np.ones(3), np.ones(3) * (1 + 1e-15), EXACT, "3 of 3"),
    (np.ones(3), np.ones(3) * (1 + 1e-15), CLOSE, None),
    (np.ones(3), np.ones(3) * 1.01, CLOSE, "3 of 3"),
    (np.array([1.0, np.nan]), np.array([1.0, 2.0]), CLOSE, "1 of 2"),
    (np.array([1.0, np.inf]), np.array([1.0, -np.inf]), CLOSE, "1 of 2"),
    (np.float64(1), 1.0, EXACT, "float64"),
    ((1, 2), (1, 3), EXACT, "2 instead of 3"),
    ((1,), (1, 3), EXACT, "tuple"),
    ({"a": 1}, {"b": 1}, EXACT, "no item"),
    ({"a": np.ones(2)}, {"a": np.zeros(2)}, EXACT, "2 of 2"),
    (np.array([200], np.uint8), np.array([201], np.uint8), CLOSE, None),
    (np.array([200], np.uint8), np.array([201], np.uint8), EXACT, "200 instead of 201"),
    (np.array([True]), np.array([False]), CLOSE, "1 of 1"),
    (np.zeros((0, 3)), np.zeros((0, 3)), CLOSE, None),
    (np.ones(9), np.ones(9) * (1 + 1e-6), CLOSE, "9 of 9"),
    (np.ones(9), np.ones(9) * (1 + 1e-6), Tolerance(2.0**-23), None),
    (np.arange(2e4), np.where(np.arange(2e4) == 9, 5, np.arange(2e4)), Tolerance(2.0**-23), "1 of 20000"),
    (np.arange(2e4), np.where(np.arange(2e4) == 9, 5, np.arange(2e4)), Tolerance(2.0**-23, True), None),
    (1.0, 1.0 + 1e-15, EXACT, "instead of"),
    (1.0, 1.0 + 1e-15, CLOSE, None),
    ("a", "b", EXACT, "'a' instead of 'b'"),
    (float("nan"), float("nan"), EXACT, None),
    (None, 3, EXACT, "NoneType"),
])
def test_differences(ours: Any, expected: Any, allowed: Tolerance, why: str | None) -> None:
    found = difference(ours, expected, allowed)
    assert (found is None) if why is None else (found is not None and why in found)
