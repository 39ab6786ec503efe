"""What a first call does is bounded: loops do not fill a trace, little work is not searched, known indices are texts once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hjit
from hjit.call import build
from hjit.call.breaks.limits import FEW_TRACES
from hjit.options import Options
from hjit.trace.capture import trace
from hjit.trace.tracing.recording.loops import iterations
from hjit.tuning import autoschedule
from hjit.tuning.choice import Segment
from hjit.tuning.plans import Plan

IMAGE = np.random.default_rng(4).random((60, 70))


@pytest.fixture(autouse=True)
def breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_ON_UNSUPPORTED", "break")
    monkeypatch.setattr(trace, "MAX_OPERATIONS", 300)  # in these tests traces are soon full


def diffused(a: Any) -> Any:
    for _ in range(120):
        a = 0.5 * (np.roll(a, 1, 0) + np.roll(a, -1, 1)) + 0.1 * np.sin(a)
    return np.sqrt(np.abs(a) + 1)


def smoothed(a: Any) -> Any:
    return diffused(a * 2) + 1


def until_flat(a: Any) -> Any:
    while np.abs(a - a.mean()).max() > 0.05:
        a = 0.25 * (np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) + np.roll(a, -1, 1))
    return a


def columns(a: Any) -> Any:
    a = a.copy()
    for j in list(range(1, 70)):
        a[1:-1, j] = (
            np.sqrt(a[2:, j] * a[:-2, j - 1]) + 0.5 * np.exp(-a[1:-1, j]) + a[1:-1, j - 1] / 3 + np.tanh(a[2:, j])
        )
    return a


@pytest.mark.parametrize("f", [diffused, smoothed, until_flat, columns])
def test_results_are_numpys(f: Callable[..., Any]) -> None:
    g = hjit.pipeline(f)
    for _ in range(3):
        np.testing.assert_allclose(g(IMAGE), f(IMAGE), rtol=1e-12)


def window(a: Any, r: int = 3) -> Any:
    padded = np.pad(a, r, mode="edge")
    total, weight = np.zeros_like(a), np.zeros_like(a)
    for dy in range(2 * r + 1):
        for dx in range(2 * r + 1):
            shifted = padded[dy : dy + a.shape[0], dx : dx + a.shape[1]]
            w = 1 / (1 + (shifted - a) ** 2 + 0.1 * (dy - r) ** 2 + 0.1 * (dx - r) ** 2)
            total += w * shifted
            weight += w
    return total / weight


def test_a_loop_over_a_window_is_compiled_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_OPERATIONS", iterations.MAX_OPERATIONS)
    g = hjit.pipeline(window)
    np.testing.assert_allclose(g(IMAGE), window(IMAGE), rtol=1e-12)
    assert g.parts is None and g.stats.fallbacks == 0


def test_a_loop_that_fills_a_trace_is_left_to_python_and_its_body_compiled_once() -> None:
    g = hjit.pipeline(diffused)
    g(IMAGE)
    assert g.parts is not None and "loop" in g.parts.why and "for _ in range(120):" in g.parts.kept[0]
    assert [p.stats.traces for p, *_ in g.parts.parts] == [1, 1]
    assert all(p.stats.compilations + p.stats.cache_hits <= 1 for p, *_ in g.parts.parts)


def test_a_function_that_is_called_where_tracing_ends_runs_in_parts_as_well() -> None:
    g = hjit.pipeline(smoothed)
    g(IMAGE)
    assert g.parts is not None and g.parts.kept[0].endswith("diffused(a * 2) + 1")
    ((function, called),) = g.parts.callees.made.values()
    assert function is diffused and len(called.parts.parts) == 2
    assert "diffused, which is called there" in g.explain(IMAGE)


def test_a_loop_until_convergence_compiles_few_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(build, "evaluate", lambda *args, f=build.evaluate: found.append(args[1]) or f(*args))
    g = hjit.pipeline(until_flat)
    g(IMAGE)
    assert g.parts is not None and len(found) <= 3


def test_a_part_that_is_traced_for_each_iteration_is_soon_given_up() -> None:
    g = hjit.pipeline(columns)
    g(IMAGE)
    assert g.parts is not None
    traced = [p for p, *_ in g.parts.parts if p.stats.traces > 1]
    assert [p.stats.traces for p in traced] == [FEW_TRACES] and "for each whole number" in traced[0].plain


def test_a_part_that_takes_long_to_compile_is_given_up_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hjit.graph_breaks.LOOP_SECONDS", 0.0)
    g = hjit.pipeline(columns)
    g(IMAGE)
    assert g.parts is not None
    assert [p.stats.traces for p, *_ in g.parts.parts if "for each whole number" in p.plain] == [1]


def test_all_searches_of_a_call_share_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def used(segment: Segment, sizes: Any, options: Options, effort: autoschedule.Effort) -> Plan:
        given.append(effort.seconds)
        return Plan(None, frozenset(), 1.0, effort.seconds)

    monkeypatch.setattr(autoschedule, "_found", used)
    monkeypatch.setattr("hjit.tuning.decide.LITTLE_WORK", 0)

    def filtered(a: Any) -> Any:
        for _ in range(3):
            a = np.fft.ifft(np.fft.fft(np.sqrt(a + 1))).real
        return a * 2

    g = hjit.pipeline(filtered, cache="off", tune="greedy")
    effort = autoschedule.EFFORTS["greedy"]
    for dtype in (np.float64, np.float32):  # the second call has time of its own
        given.clear()
        g(IMAGE.astype(dtype))
        assert len(given) > 2 and sum(given) < effort.together
        assert given == sorted(given, reverse=True) and given[0] == effort.seconds


def test_parts_share_the_budget_of_the_function() -> None:
    g = hjit.pipeline(diffused)
    g(IMAGE)
    assert g.parts is not None
    (part, *_), *_ = g.parts.parts
    part._state.spent.building = 1e6
    traces = part.stats.traces
    g.parts.run(IMAGE[:50])  # another size, for which nothing is left
    assert part.stats.traces == traces


def test_loops_fill_traces_where_breaks_are_not_wanted() -> None:
    g = hjit.pipeline(diffused, on_unsupported="raise", budget=None)
    g(IMAGE[:20, :30])
    assert g.parts is None and g.stats.traces == 1


@pytest.mark.parametrize(("shape", "count"), [((20, 30), 0), ((700, 800), 1)])
def test_little_work_is_not_searched(shape: tuple[int, int], count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    searched = autoschedule.searched
    monkeypatch.setattr(autoschedule, "searched", lambda *args: found.append(args) or searched(*args))
    monkeypatch.setattr("hjit.tuning.decide.LITTLE_WORK", 1 << 19)
    hjit.pipeline(lambda a: np.sqrt(a[1:] + a[:-1]) * 3, tune="greedy", cache="off")(np.ones(shape))
    assert len(found) == count


def test_taps_after_many_others_are_a_loop_of_the_same_numbers() -> None:
    def octaves(a: Any) -> Any:
        return [ndimage.gaussian_filter1d(a, s, 0) for s in (8, 9, 10, 11)]  # 65 to 89 taps

    g = hjit.pipeline(octaves)
    for found, expected in zip(g(IMAGE), octaves(IMAGE), strict=True):
        np.testing.assert_array_equal(found, expected)
    loops = [bool(s.updates) for s in g.graph(IMAGE)[0].stages]
    assert any(loops) and not all(loops)
