"""What comes of a first call does not depend on how deep the stack of the caller is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.process.deep_stack import RECURSION_LIMIT, with_deep_stack

IMAGE = np.random.default_rng(0).random((20, 30))
LIMIT = 1000
LEFT = 150  # frames: what tracing takes beside the function itself


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(LIMIT)
    yield
    sys.setrecursionlimit(before)


def depth() -> int:
    frame, n = sys._getframe(), 0
    while frame is not None:
        frame, n = frame.f_back, n + 1  # type: ignore[assignment]
    return n


def down(f: Callable[[], Any], frames: int | None = None) -> Any:
    """``f()``, called from so far down that `LEFT` frames are left."""
    frames = LIMIT - LEFT - depth() if frames is None else frames
    return f() if frames <= 0 else down(f, frames - 1)


def long_chain(a: Any) -> Any:
    for k in range(180):
        a = a * 0.5 + k
    return a


def long_decision(a: Any) -> Any:
    return a * 3 + 1 if long_chain(a).max() > 0 else a - 1


@pytest.mark.parametrize("function", [long_chain, long_decision])
def test_deep_expressions_compile_wherever_they_are_called(function: Any) -> None:
    hjit.pipeline(lambda a: a + 1 if a.max() > 0 else a, cache="off")(IMAGE)  # imports take frames, too
    f = hjit.pipeline(function, cache="off")
    np.testing.assert_allclose(down(lambda: f(IMAGE)), function(IMAGE), rtol=1e-12)
    assert f.stats.fallbacks == 0 and f.stats.verified
    assert f.stats.compilations == (1 if function is long_chain else 2)
    assert sys.getrecursionlimit() == LIMIT


def nested(a: Any, n: int = LEFT) -> Any:
    return a if n == 0 else nested(a * 0.5 + n, n - 1)


def test_functions_are_traced_and_printed_wherever_they_are_called() -> None:
    f = hjit.pipeline(nested, cache="off")
    np.testing.assert_allclose(down(lambda: f(IMAGE), LIMIT - depth() - LEFT - 40), nested(IMAGE), rtol=1e-12)
    assert f.stats.fallbacks == 0 and f.stats.verified
    again = hjit.pipeline(long_chain, cache="off")
    for show in (again.graph, again.loops, again.inspect_llvm):
        assert down(lambda show=show: str(show(IMAGE))) == str(show(IMAGE))


def levels(n: int) -> int:
    return 0 if n == 0 else 1 + levels(n - 1)


def test_what_has_no_room_runs_in_the_context_of_the_caller() -> None:
    said: ContextVar[int] = ContextVar("said")
    said.set(3)
    assert with_deep_stack(lambda: (levels(2 * LIMIT), said.get())) == (2 * LIMIT, 3)
    assert sys.getrecursionlimit() == LIMIT and threading.stack_size() == 0


def test_what_recurses_without_an_end_raises() -> None:
    with pytest.raises(RecursionError):
        with_deep_stack(levels, 2 * RECURSION_LIMIT)
    assert sys.getrecursionlimit() == LIMIT


def test_what_is_called_with_a_deep_stack_has_all_of_it() -> None:
    def nested(n: int) -> int:
        return n if n == 0 else with_deep_stack(nested, n - 1)

    threads = threading.active_count()
    assert nested(LIMIT) == 0 and threading.active_count() <= threads + 1
    assert sys.getrecursionlimit() == LIMIT


def test_other_errors_are_raised_and_nothing_is_called_again() -> None:
    calls = []

    def f() -> None:
        calls.append(1)
        raise KeyError("x")

    with pytest.raises(KeyError):
        with_deep_stack(f)
    assert calls == [1]
