"""Functions, modules and built-in names that a program replaces while it runs: compiled calls follow."""

from __future__ import annotations

import functools
import math
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

import hjit

IMAGE = np.random.default_rng(0).random((20, 30)) + 1
Function = Callable[..., Any]


def module(name: str, **names: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(names)
    return made


FIRST = module(
    "first",
    ufunc=np.sqrt,
    number=2.0,
    of_python=math.sqrt,
    of_numpy=np.clip,
    builtin=max,
    reduces=functools.reduce,
    dtype=np.float32,
    own=lambda a: a + 1,
    np=np,
)
SECOND = module(
    "second",
    ufunc=np.square,
    number=5.0,
    of_python=math.exp,
    of_numpy=lambda a, low, high: a * low,
    builtin=min,
    reduces=lambda f, values: 3.0,
    dtype=np.float64,
    own=lambda a: a + 100,
    np=module("other_numpy", exp=np.log),
)


def uses() -> dict[str, Function]:
    """Functions that read one attribute of `backend` each."""
    return {
        "ufunc": lambda a: backend.ufunc(a),
        "number": lambda a: a * backend.number,
        "of_python": lambda a: a * backend.of_python(2),
        "of_numpy": lambda a: backend.of_numpy(a, 1.25, 1.5),
        "builtin": lambda a: a * backend.builtin(2, 3),
        "reduces": lambda a: a * backend.reduces(operator.add, [1, 2, 4]),
        "dtype": lambda a: a.astype(backend.dtype),
        "own": lambda a: backend.own(a),
        "np": lambda a: backend.np.exp(a),
    }


backend = FIRST


@pytest.fixture(params=uses())
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """An attribute of `backend`, which is `FIRST` before and afterwards."""
    before = dict(vars(FIRST))
    yield request.param
    vars(FIRST).update(before)
    globals()["backend"] = FIRST


def agree(p: Function, f: Function) -> None:
    for _ in range(2):
        found, expected = p(IMAGE), f(IMAGE)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_another_module_under_a_global_name(name: str) -> None:
    f = uses()[name]
    p = hjit.pipeline(f, verify="off")
    for now in (FIRST, SECOND, FIRST):
        globals()["backend"] = now
        agree(p, f)


def test_another_value_of_an_attribute_of_a_module(name: str) -> None:
    f = uses()[name]
    p = hjit.pipeline(f, verify="off")
    agree(p, f)
    setattr(FIRST, name, getattr(SECOND, name))
    agree(p, f)
    agree(hjit.pipeline(f, verify="off"), f)


def test_an_attribute_of_a_module_that_is_deleted(name: str) -> None:
    f = uses()[name]
    p = hjit.pipeline(f, verify="off")
    agree(p, f)
    delattr(FIRST, name)
    with pytest.raises(AttributeError, match=f"module 'first' has no attribute '{name}'"):
        p(IMAGE)


def test_another_module_in_a_closure() -> None:
    xp: Any = np

    def f(img: Any) -> Any:
        return xp.sqrt(img)

    p = hjit.pipeline(f, verify="off")
    agree(p, f)
    xp = module("squares", sqrt=np.square)
    agree(p, f)


@pytest.mark.parametrize("target", ["numpy.sqrt", "numpy.clip", "math.sqrt"])
def test_functions_traced_while_a_library_is_mocked_notice_its_end(target: str) -> None:
    def f(img: Any) -> Any:
        return np.clip(np.sqrt(img), 0, 1.25) * math.sqrt(3)

    p = hjit.pipeline(f, verify="off")
    with mock.patch(target, lambda a, *args: a * 2 if isinstance(a, float) else a * 3):
        agree(p, f)
    agree(p, f)
    agree(hjit.pipeline(f, verify="off"), f)


def test_a_global_in_place_of_a_built_in_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(img: Any) -> Any:
        return sum([abs(img - 2) * max(2, 3), img]) * float(img.shape[0] / 7) * len(img)

    p = hjit.pipeline(f, verify="off")
    agree(p, f)
    for name, new in {"abs": np.negative, "max": min, "len": lambda x: 7, "float": int, "sum": lambda x: x[0]}.items():
        with monkeypatch.context() as patch:
            patch.setitem(globals(), name, new)
            agree(p, f)
        agree(p, f)


def helper(img: Any, k: float = 1) -> Any:
    return img + k


class Scaler:
    def scaled(self, img: Any) -> Any:
        return img * 3

    @hjit.pipeline(verify="off")
    def __call__(self, img: Any) -> Any:
        return self.scaled(img) + 1


def with_code(monkeypatch: pytest.MonkeyPatch, function: Any, new: Any) -> None:
    """As IPython's `%autoreload` does it."""
    monkeypatch.setattr(function, "__code__", new.__code__)


def test_new_code_of_a_function_that_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(img: Any) -> Any:
        return helper(img) * 2

    p = hjit.pipeline(f, verify="off")
    agree(p, f)
    with_code(monkeypatch, helper, lambda img, k=1: img - 10 * k)
    agree(p, f)
    monkeypatch.setattr(helper, "__defaults__", (5,))
    agree(p, f)


def test_new_code_of_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    scaler = Scaler()
    assert np.array_equal(scaler(IMAGE), IMAGE * 3 + 1)
    with_code(monkeypatch, Scaler.scaled, lambda self, img: img * 50)
    assert np.array_equal(scaler(IMAGE), IMAGE * 50 + 1)


def test_new_code_of_the_function_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(img: Any) -> Any:
        return img * 2

    p = hjit.pipeline(f, verify="off")
    agree(p, f)
    with_code(monkeypatch, f, lambda img: img * 4)
    agree(p, f)


def test_new_code_of_a_split_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(img: Any) -> Any:
        found = np.unique(np.round(img, 2))
        return img * found[0]

    def other(img: Any) -> Any:
        found = np.unique(np.round(img, 2))
        return img * found[1] - 1

    p = hjit.pipeline(f, verify="off", on_unsupported="break")
    agree(p, f)
    assert p.parts is not None
    with_code(monkeypatch, f, other)
    agree(p, f)
    assert p.parts is not None


def test_calls_with_helpers_and_settings_have_a_hot_path() -> None:
    def f(img: Any) -> Any:
        return helper(img) * backend.number

    p = hjit.pipeline(f, verify="off")
    p(IMAGE)
    (entry,) = p.entries
    assert entry.fast is not None
    traces = p.stats.traces
    agree(p, f)
    assert p.stats.traces == traces
