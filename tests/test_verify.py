"""The first call is compared with NumPy's own result."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import HjitWarning
from hjit.report import difference
from hjit.variant import Variant

IMAGE = np.linspace(0, 9, 40 * 50).reshape(40, 50)


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
    assert p.stats.fallbacks == 2


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


@pytest.mark.parametrize(("ours", "expected", "exact", "why"), [
    (np.ones(3), np.ones(3), True, None),
    (np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), True, None),
    (np.ones(3), np.ones(4), True, "shape"),
    (np.ones(3), np.ones(3, np.float32), True, "float64"),
    (np.ones(3), [1.0] * 3, True, "instead of a list"),
    (np.ones(3), np.ones(3) * (1 + 1e-15), True, "3 of 3"),
    (np.ones(3), np.ones(3) * (1 + 1e-15), False, None),
    (np.ones(3), np.ones(3) * 1.01, False, "3 of 3"),
    (np.array([1.0, np.nan]), np.array([1.0, 2.0]), False, "1 of 2"),
    (np.array([1.0, np.inf]), np.array([1.0, -np.inf]), False, "1 of 2"),
    (np.float64(1), 1.0, True, "float64"),
    ((1, 2), (1, 3), True, "2 instead of 3"),
    ((1,), (1, 3), True, "tuple"),
    ({"a": 1}, {"b": 1}, True, "no item"),
    ({"a": np.ones(2)}, {"a": np.zeros(2)}, True, "2 of 2"),
    (np.array([200], np.uint8), np.array([201], np.uint8), False, None),
    (np.array([200], np.uint8), np.array([201], np.uint8), True, "200 instead of 201"),
    (np.array([True]), np.array([False]), False, "1 of 1"),
    (np.zeros((0, 3)), np.zeros((0, 3)), False, None),
    ("a", "b", True, "'a' instead of 'b'"),
    (float("nan"), float("nan"), True, None),
    (None, 3, True, "NoneType"),
])
def test_differences(ours: Any, expected: Any, exact: bool, why: str | None) -> None:
    found = difference(ours, expected, exact)
    assert (found is None) if why is None else (found is not None and why in found)
