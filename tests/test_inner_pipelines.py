"""Pipelines that are called while another one is traced become part of it, however they are found."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit

X = np.arange(4.0)


class Base:
    def __init__(self) -> None:
        self.table = X + 1

    @hjit.pipeline
    def m(self, x: Any) -> Any:
        return x + self.table

    @staticmethod
    @hjit.pipeline
    def s(x: Any, by: float = 2.0) -> Any:
        return x + by

    @classmethod
    @hjit.pipeline
    def c(cls, x: Any) -> Any:
        return x + 3


class Derived(Base):
    @hjit.pipeline
    def m(self, x: Any) -> Any:
        return super().m(x) * 2

    @hjit.pipeline
    def of_super(self, x: Any) -> Any:
        return super().m(x) + super().s(x) * super().c(x)

    @hjit.pipeline
    def of_type(self, x: Any) -> Any:
        return type(self).c(x) + self.__class__.s(x, by=3.0) + type(self).m(self, x)

    @hjit.pipeline
    def of_class(self, x: Any) -> Any:
        return Base.m(self, x) * 3 + Derived.s(x) + Base.c(x)

    @hjit.pipeline
    def in_variable(self, x: Any) -> Any:
        m, s = self.m, self.s
        return m(x) * s(x)

    @classmethod
    @hjit.pipeline
    def of_new(cls, x: Any) -> Any:
        return cls().m(x) * 2


METHODS = ("m", "of_super", "of_type", "of_class", "in_variable")


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_call_methods(name: str) -> None:
    one = Derived()
    pipe = getattr(Derived, name)
    fallbacks = pipe.stats.fallbacks
    for k in range(3):
        one.table = one.table * 2 if k else one.table
        np.testing.assert_array_equal(getattr(one, name)(X), pipe.py_func(one, X))
        one.table[1] = k
        np.testing.assert_array_equal(getattr(one, name)(X), pipe.py_func(one, X))
    assert pipe.stats.fallbacks == fallbacks


def test_methods_of_new_objects() -> None:
    np.testing.assert_array_equal(Derived.of_new(X), (X + X + 1) * 4)


@hjit.pipeline
def inner(x: Any, by: float = 5.0) -> Any:
    return x * by


bound = hjit.pipeline(Base().m)
partial = functools.partial(inner, by=2.0)
TABLE = {"inner": [inner]}


@pytest.mark.parametrize(
    "f",
    [
        lambda x: inner(x) + 1,
        lambda x: inner.py_func(x) + 1,
        lambda x: inner.__wrapped__(x, 3.0) + 1,
        lambda x: TABLE["inner"][0](x) + 1,
        lambda x: sum(map(inner, [x, x + 1])),
        lambda x: partial(x) + 1,
        lambda x: bound(x) + 1,
        lambda x: bound.py_func(x) + 1,
    ],
)
def test_functions_that_call_functions(f: Callable[..., Any]) -> None:
    pipe = hjit.pipeline(f)
    for k in range(3):
        np.testing.assert_array_equal(pipe(X + k), f(X + k))
    assert pipe.stats.fallbacks == 0 and pipe.stats.traces == 1


def test_functions_as_arguments() -> None:
    pipe = hjit.pipeline(lambda x, f: f(x) + 1)
    for f in (inner, bound, Derived().m, Derived.c, partial):
        np.testing.assert_array_equal(pipe(X, f), f(X) + 1)


def test_what_a_bound_pipeline_was_made_of() -> None:
    base = Base()
    np.testing.assert_array_equal(hjit.pipeline(base.m).py_func(X), X + base.table)


def test_functions_that_are_called_as_they_are_call_pipelines() -> None:
    """With arrays: these run as always, in the middle of the trace."""
    from scipy import optimize

    @hjit.pipeline
    def error(p: Any, weights: Any) -> Any:
        return (np.zeros(3) + p[0] - weights) ** 2

    def f(x: Any) -> Any:
        return optimize.least_squares(lambda p: error(p, np.arange(3.0)), np.ones(1)).x + x

    np.testing.assert_allclose(hjit.pipeline(f, on_unsupported="break")(X), f(X))


def test_first_results_are_compared_with_numpys_alone() -> None:
    """Not with what inner pipelines compute, whose roundings are others: these neither run nor compile for it."""

    @hjit.pipeline
    def angle(x: Any) -> Any:
        return np.arctan2(x, 2.0)

    pipe = hjit.pipeline(lambda x: np.cos(3 * angle(x)))
    np.testing.assert_allclose(pipe(X), np.cos(3 * np.arctan2(X, 2.0)), rtol=1e-14)
    assert pipe.stats.verified and angle.stats.calls == 0
    np.testing.assert_allclose(angle(X), np.arctan2(X, 2.0), rtol=1e-15)
    assert angle.stats.calls == 1 and angle.stats.fallbacks == 0


@hjit.pipeline
def doubled(x: Any) -> Any:
    return x * 2


METHODS = {"double": doubled}


def test_a_pipeline_is_the_same_one_wherever_it_is_found() -> None:
    def f(x: Any, name: str) -> Any:
        found = METHODS[name]
        return found(x) + (found is doubled), found in (doubled,), METHODS[name] == found

    pipe = hjit.pipeline(f, on_unsupported="raise", verify="off")
    for ours, numpys in zip(pipe(X, "double"), f(X, "double"), strict=True):
        np.testing.assert_array_equal(ours, numpys)


class OneMore:
    """Copies the attributes of what it calls, as ``delayed`` of scikit-learn does."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, x: Any) -> Any:
        return self.function(x) + 1


@functools.wraps(doubled)
def one_more(x: Any) -> Any:
    return doubled(x) + 1


@pytest.mark.parametrize("function", [OneMore(doubled), types.MethodType(one_more, X), functools.partial(one_more)])
def test_what_is_wrapped_around_a_pipeline_computes_in_its_own_way(function: Callable[..., Any]) -> None:
    args = () if isinstance(function, types.MethodType) else (X,)
    np.testing.assert_array_equal(hjit.pipeline(function, verify="off")(*args), X * 2 + 1)
    if args:
        np.testing.assert_array_equal(hjit.pipeline(lambda x: function(x) * 3, verify="off")(X), X * 6 + 3)
