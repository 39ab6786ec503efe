"""The interpreter of Graphs: what it makes of an expression, and keeps."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from hjit.trace.ir import interpret
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.graph import identity
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


def shifted(a: Any) -> Any:
    return a[1:-1, 2:] * 2 + a[2:, :-2] - a.T[:-2, 1:-1].T[:, : a.shape[1] - 2]


def onto_itself(a: Any) -> Any:
    out = a.copy()
    out[1:] += out[:-1]
    out[:, :-1] = out[:, 1:]
    return out


@pytest.mark.parametrize("f", [shifted, onto_itself, lambda a: a[::-1, 3] + a[4, 2:3], lambda a: np.diagonal(a) + a[0]])
def test_ranges_of_elements_are_views(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a tenth of the time of indices."""
    found: list[bool] = []
    plain = interpret._view

    def view(array: Any, where: Any) -> Any:
        part = plain(array, where)
        if part is not None:
            assert np.shares_memory(part, array) and np.array_equal(part, array[tuple(where)])
            assert part.shape == array[tuple(where)].shape
        found.append(part is not None)
        return part

    monkeypatch.setattr(interpret, "_view", view)
    check(f, np.random.default_rng(0).random((20, 20)))
    assert any(found)


def test_what_is_evaluated_is_no_view_of_what_was_given() -> None:
    a = np.arange(12.0).reshape(3, 4)
    e = Load("a", identity(2), a.dtype)
    grids = dict(enumerate(np.ogrid[:3, :4]))
    found = interpret.evaluate(e, grids, {"a": a}, {}, {})
    assert np.array_equal(found, a) and not np.shares_memory(found, a)


def test_an_expression_is_evaluated_at_any_indices() -> None:
    array = np.arange(12.0).reshape(3, 4)
    rows, columns = np.array([[2], [0]]), np.array([[3, 0, 1]])
    found = interpret.evaluate(Load("a", identity(2), array.dtype), {0: rows, 1: columns}, {"a": array}, {}, {})
    np.testing.assert_array_equal(found, array[rows, columns])


def test_an_element_that_numbers_alone_index_is_stored() -> None:
    check(lambda x: np.stack([x[::-1], x]), np.random.default_rng(0).random((1, 1)))
