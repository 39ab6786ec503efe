"""Functions whose sizes or values differ at each call: tracing them anew takes a small share of the time, in the end."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.call.checks import retracing
from hjit.call.checks.retracing import AMONG, BYPASSED, MISSES, SHARE, Retracing


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time that passes where a test says so."""
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr(retracing, "perf_counter", lambda: found.now)
    return found


def taking(clock: SimpleNamespace, seconds: float) -> Callable[[], str]:
    def run() -> str:
        clock.now += seconds
        return "done"

    return run


def calls(r: Retracing, clock: SimpleNamespace, count: int, tracing: float, plain: float, every: int = 1) -> list[str]:
    """What calls come to of which every second, say, finds nothing to run."""
    found = []
    for call in range(count):
        if r.bypass:
            r.bypass -= 1
            found.append("bypass")
        elif call % every == 0:
            found.append(do := r.next(call))
            if do == "trace":
                assert r.traced(taking(clock, tracing)) == "done"
            elif do == "compare":
                assert r.compared(taking(clock, plain)) == "done"
        else:
            found.append("hit")
    return found


def test_where_numpy_is_faster_tracing_takes_a_small_share_of_its_time(clock: SimpleNamespace) -> None:
    found = calls(Retracing(), clock, 20_000, tracing=0.1, plain=0.001)
    assert found[: MISSES - 1] == ["trace"] * (MISSES - 1)
    later = found[MISSES:]
    assert later.count("trace") * 0.1 <= 1.2 * SHARE * 0.001 * len(later)
    assert later.count("bypass") > 0.9 * len(later)
    assert later.count("trace") >= 2, "it may have become steady"


def test_where_tracing_is_faster_all_calls_are_traced(clock: SimpleNamespace) -> None:
    found = calls(Retracing(), clock, 1000, tracing=0.1, plain=0.2)
    assert set(found) == {"trace", "compare"} and found.count("compare") <= 1000 / MISSES + 1


def test_calls_that_mostly_find_what_they_run_are_traced(clock: SimpleNamespace) -> None:
    found = calls(Retracing(), clock, 1000, tracing=0.1, plain=0.001, every=AMONG // MISSES + 1)
    assert set(found) == {"trace", "hit"}


def test_where_some_calls_do_find_something_none_is_passed_by(clock: SimpleNamespace) -> None:
    r = Retracing()
    found = calls(r, clock, 1000, tracing=0.1, plain=0.001, every=AMONG // MISSES)
    assert "bypass" not in found and found.count("trace") < 50 and r.bypasses == BYPASSED[0]


def test_a_value_that_the_code_needs_and_that_differs_each_time() -> None:
    def centred(img: Any) -> Any:
        return img.sum() + np.arange(int(img.max()) + 1)

    f = hjit.pipeline(centred, cache="off", tune=False, numpy_if_faster=True, on_unsupported="break")
    for k in range(100):
        img = np.arange(24.0).reshape(4, 6) % 19 + k
        np.testing.assert_array_equal(f(img), centred(img))
    assert f.stats.traces < 2 * MISSES and f.stats.fallbacks > 50 and f.stats.calls == 100


def test_who_wants_errors_gets_no_plain_calls() -> None:
    def shifted(img: Any) -> Any:
        return img.sum() + np.arange(int(img.max()) + 1)

    f = hjit.pipeline(shifted, cache="off", tune=False, on_unsupported="raise", verify="off")
    for k in range(MISSES + 8):
        f(np.full((2, 3), float(k)))
    assert f.stats.traces == MISSES + 8 and not f.stats.fallbacks
