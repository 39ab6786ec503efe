"""Uninitialised elements, as `np.empty` makes them: NumPy's are whatever was in memory, and not compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.call.checks import uninitialised
from hjit.call.checks.first_calls import MAX_DOUBTS
from hjit.kernels.runtime.kernel import Bound
from hjit.trace.ir import interpret
from hjit.trace.ir.graph import Graph
from hjit.trace.passes import canonical
from hjit.verify import work

IMAGE = np.random.default_rng(5).random((9, 12)) + 0.5
BYTES = (IMAGE * 99).astype(np.uint8)


def dirty(a: Any) -> None:
    """Leave other numbers than zero where NumPy makes the next arrays like `a`."""
    for _ in range(3):
        some = [np.full_like(a, 7), np.full_like(a, 5), np.full_like(a, 3)]
        del some


def inner_rows(a: Any) -> Any:
    dirty(a)
    out = np.empty_like(a)
    out[1:-1] = a[1:-1] * 2
    return out


def computed_from(a: Any) -> Any:
    dirty(a)
    out = np.empty(a.shape, a.dtype)
    out[1:-1, 1:-1] = a[1:-1, 1:-1] * 2
    rows = np.where(a > 1, out, 0).sum(1)
    return np.maximum(out, a) + 1, out > 4, rows, out[0].max(), {"whole": a.sum()}


def few_numbers(a: Any) -> Any:
    dirty(np.ones(5))
    found = np.empty(5)
    found[0], found[3] = a.sum(), a.max()
    return found


def complex_rows(a: Any) -> Any:
    dirty(a * 1j)
    out = np.empty(a.shape, complex)
    out[2:] = a[2:] * 1j
    return out


def padded(a: Any) -> Any:
    dirty(np.pad(a, 2))
    return np.pad(a, 2, mode="empty")


def selected(a: Any) -> Any:
    dirty(a)
    return np.multiply(a, 2, where=a > 1)


def into_an_argument(a: Any) -> Any:
    dirty(a)
    part = np.empty_like(a)
    part[3:] = a[3:] + 1
    a[...] = part
    return a * 1


def by_order(a: Any) -> Any:
    part = a[:, ::-1] + 1
    del part  # numbers that differ from each other
    out = np.empty_like(a)
    out[1:-1] = a[1:-1]
    return np.sort(out, 1), np.argmax(out, 1), np.diff(out, axis=1)


def never_written(a: Any) -> Any:
    dirty(a)
    return np.empty_like(a), a * 2


@pytest.mark.filterwarnings("ignore:'where' used without 'out'")
@pytest.mark.parametrize(
    "f",
    [inner_rows, computed_from, few_numbers, complex_rows, padded, selected, into_an_argument, by_order, never_written],
)
def test_what_nothing_has_written_is_not_compared(f: Callable[..., Any]) -> None:
    g = hjit.pipeline(f)
    for _ in range(2):
        g(IMAGE.copy())
    assert (g.stats.verified, g.stats.fallbacks, g.stats.flipped) == (True, 0, 0)


def test_large_ones_are_found_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpret, "BLOCK", 24)
    g = hjit.pipeline(computed_from)
    g(IMAGE)
    assert g.stats.verified is True
    monkeypatch.setattr(uninitialised, "MAX_POINTS", 12)  # a block has two rows
    h = hjit.pipeline(computed_from)
    h(IMAGE)
    assert h.stats.verified is None


def test_of_integers() -> None:
    g = hjit.pipeline(inner_rows)
    g(BYTES)
    assert g.stats.verified is True
    np.testing.assert_array_equal(g(BYTES)[1:-1], BYTES[1:-1] * 2)


def test_the_random_numbers_of_a_call_decide_what_is_written() -> None:
    @hjit.pipeline
    def some(a: Any) -> Any:
        dirty(a)
        out = np.empty_like(a)
        where = np.random.random(a.shape) < 0.5
        out[where] = a[where]
        return out

    some(IMAGE)
    assert some.stats.verified is True


def test_a_part_of_a_function_is_compiled_in_spite_of_them() -> None:
    @hjit.pipeline(on_unsupported="break")
    def twice(a: Any, seen: list[Any]) -> Any:
        dirty(a)
        out = np.empty_like(a)
        b = a * 2
        seen.append(b.tolist())
        out[...] = b + 1
        return out

    for _ in range(2):
        np.testing.assert_array_equal(twice(IMAGE, []), IMAGE * 2 + 1)
    (part, *_), *_ = twice.parts.parts  # type: ignore[union-attr]
    assert part.stats.verified is True


def wholly_written(a: Any) -> Any:
    out = np.empty_like(a)
    out[:4] = a[:4] * 2
    out[4:] = a[4:] + 1
    return out


@pytest.mark.parametrize("f", [inner_rows, wholly_written])
@pytest.mark.parametrize("row", [2, 5])
def test_a_wrong_kernel_is_found_beside_them(f: Callable[..., Any], row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Bound.run

    def without_a_row(self: Bound, arrays: Any, outputs: Any, *more: Any) -> bool:
        done = run(self, arrays, outputs, *more)
        outputs[0][row] = 7
        return done

    monkeypatch.setattr(Bound, "run", without_a_row)
    g = hjit.pipeline(f)
    with pytest.warns(hjit.HjitWarning, match="of 108 elements, the first at"):
        g(IMAGE)
    assert g.stats.verified is False


def test_nothing_is_interpreted_where_all_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions on rounded values make results differ, as uninitialised elements do; here there are none."""
    interpreted = []
    monkeypatch.setattr(uninitialised, "_interpreting", lambda *args: interpreted.append(args))
    found = []
    may_depend = uninitialised.Uninitialised._may_depend
    monkeypatch.setattr(
        uninitialised.Uninitialised, "_may_depend", lambda self: found.append(may_depend(self)) or found[-1]
    )
    run = Bound.run

    def without_a_row(self: Bound, arrays: Any, outputs: Any, *more: Any) -> bool:
        done = run(self, arrays, outputs, *more)
        outputs[0][2] = 7
        return done

    monkeypatch.setattr(Bound, "run", without_a_row)
    with pytest.warns(hjit.HjitWarning, match="of 108 elements, the first at"):
        hjit.pipeline(wholly_written)(IMAGE)
    assert found == [False] and not interpreted


def test_nothing_is_looked_for_where_the_next_call_may_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(a: Any) -> Any:
        out = np.empty_like(a)
        out[:] = np.exp(a)
        return out

    run = Bound.run

    def a_little_off(self: Bound, arrays: Any, outputs: Any, *more: Any) -> bool:
        done = run(self, arrays, outputs, *more)
        outputs[0][2] *= 1 + 1e-9
        return done

    looked: list[Any] = []
    dependent = uninitialised.Uninitialised.dependent
    monkeypatch.setattr(
        uninitialised.Uninitialised, "dependent", lambda self, names: looked.append(names) or dependent(self, names)
    )
    monkeypatch.setattr(Bound, "run", a_little_off)
    monkeypatch.setattr(work, "MAX_WORK", 0)  # bounds are not known
    g = hjit.pipeline(f)
    for _ in range(MAX_DOUBTS):
        g(IMAGE)
        assert g.stats.verified is None and not looked
    with pytest.warns(hjit.HjitWarning, match="of 108 elements, the first at"):
        g(IMAGE)
    assert len(looked) == 1


def test_what_takes_too_long_to_find_is_compared_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uninitialised, "MAX_WORK", 10)
    g = hjit.pipeline(inner_rows)
    g(IMAGE)
    assert g.stats.verified is None  # another call may tell
    g(IMAGE)
    with pytest.warns(hjit.HjitWarning, match="or elements that np.empty has left as they are"):
        g(IMAGE)


def test_it_is_no_other_trace_where_nothing_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uninitialised.Uninitialised, "dependent", lambda *_: pytest.fail("not needed"))
    g = hjit.pipeline(wholly_written)
    g(IMAGE)
    assert g.stats.verified is True


def test_what_a_pass_has_lost_is_not_taken_for_uninitialised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which elements those are is found on the Graph as it was recorded."""

    def last_rows_lost(graph: Graph) -> Graph:
        lost = {s.name for s in graph.stages if len(s.updates) > 1}
        stages = (replace(s, updates=s.updates[:-1]) if s.name in lost else s for s in graph.stages)
        return replace(graph, stages=tuple(stages))

    def f(a: Any) -> Any:
        dirty(a)
        out = np.empty_like(a)
        out[1:-2] = a[1:-2] * 2
        out[-2] = np.sqrt(a[0])
        return out

    monkeypatch.setattr(canonical, "PASSES", (*canonical.PASSES[:2], last_rows_lost, *canonical.PASSES[2:]))
    pipe = hjit.pipeline(f, cache="off", on_unsupported="raise")
    with pytest.warns(hjit.HjitWarning, match="differs"):
        pipe(IMAGE)
    assert pipe.stats.verified is False
