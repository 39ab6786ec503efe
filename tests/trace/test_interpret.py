"""The interpreter of Graphs: what it makes of an expression, and keeps."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from hjit.trace.ir import interpret
from tests.trace.helpers import check, trace_of


def running(a: Any) -> Any:
    """Each row needs the one before it, twice."""
    out = a.copy()
    for i in range(1, a.shape[0]):
        out[i] = out[i - 1] * 0.5 + np.sqrt(np.abs(out[i - 1] * 0.5)) + a[i]
    return out


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The expressions that have become functions."""
    found: list[Any] = []
    plain = interpret._Run._made

    def counted(self: Any, e: Any) -> Any:
        found.append(e)
        return plain(self, e)

    monkeypatch.setattr(interpret._Run, "_made", counted)
    return found


def test_an_expression_becomes_a_function_once_for_all_points(made: list[Any]) -> None:
    counts = []
    for rows in (20, 40):
        made.clear()
        check(running, np.random.default_rng(0).random((rows, 30)))
        counts.append(len(made))
    assert counts[0] == counts[1] > 5


def test_what_is_computed_in_between_is_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    plain = interpret._Run._load

    def watched(self: Any, e: Any) -> Any:
        kept.append(weakref.ref(self))
        return plain(self, e)

    monkeypatch.setattr(interpret._Run, "_load", watched)
    gc.disable()
    try:
        check(running, np.random.default_rng(0).random((20, 30)))
        assert kept and not any(run() for run in kept)
    finally:
        gc.enable()


def test_an_index_beyond_the_end_is_an_error() -> None:
    a, i = np.arange(30.0), np.array([3, 40])
    traced, _ = trace_of(lambda a, i: a[i] * 2, a, i)
    graph = traced.recorder.graph(tuple(traced.recorder.stages))
    with pytest.raises(IndexError, match="out of bounds"):
        interpret.interpret(graph, {n: s.array for n, s in traced.recorder.inputs.items()}, traced.recorder.sizes, {})
