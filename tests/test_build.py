"""The way of a new key: each step once."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import HjitWarning
from hjit.call import compiled_function
from hjit.call.segments import TraceSegments
from hjit.sched.language.target import Target
from hjit.trace.passes.rewrites import NO_REWRITES, Rewrites
from hjit.tuning import plans
from tests.sched.test_space import Program, blurred

IMAGE = np.random.default_rng(5).random((41, 53), np.float32)
ONCE = ("default_schedule", "plan_name")


def decided(a: Any) -> Any:
    soft = a[1:] + a[:-1]
    if soft.max() > 0:
        soft = soft * 2 + a[1:]
    return np.sqrt(np.abs(soft[1:] - soft[:-1]))


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_kernels: None) -> Path:
    monkeypatch.setattr(plans, "_plans", {})
    return tmp_path


def counted(f: Any, *args: Any) -> Counter[str]:
    """How often functions of hjit are called, by their names."""
    found: Counter[str] = Counter()

    def look(frame: Any, event: str, _: Any) -> None:
        if event == "call" and f"{hjit.__name__}/" in frame.f_code.co_filename:
            found[frame.f_code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        f(*args)
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize(("tune", "graphs"), [("greedy", 2), (False, 1)])
def test_a_first_call_does_nothing_twice(tune: Any, graphs: int, cold: Path) -> None:
    """A search may find that stages are to be inlined, which is another Graph."""
    f = hjit.pipeline(blurred, tune=tune, verify="off", cache_dir=cold, num_threads=1)
    found = counted(f, IMAGE)
    assert f.stats.compilations >= 1 and f.stats.fallbacks == 0
    assert {n: found[n] for n in ONCE if found[n] > 1} == {} and found["default_schedule"] == 1
    assert 1 <= found["canonicalise"] == found["graph_key"] <= graphs


def test_a_plan_that_is_found_needs_no_default_schedule(cold: Path) -> None:
    options: dict[str, Any] = {"tune": "greedy", "verify": "off", "cache_dir": cold, "num_threads": 1}
    hjit.pipeline(blurred, **options)(IMAGE)
    f = hjit.pipeline(blurred, **options)
    found = counted(f, IMAGE)
    assert f.stats.compilations == 0
    assert found["default_schedule"] == 0 and found["lower"] == 0
    assert found["graph_key"] <= 2  # of the Graph, and of it with what the plan inlines
    assert found["problems"] <= 12, "the tree is checked once"


def test_segments_are_cut_once_for_each_set_of_rewrites() -> None:
    p = Program(blurred)
    segments_of = TraceSegments(p.variant.trace, Target(64))
    (first,) = p.graph.outputs
    assert segments_of(NO_REWRITES) is segments_of(Rewrites(inlined_after=frozenset()))
    assert segments_of(Rewrites(inlined_after=frozenset({first}))) is not segments_of(NO_REWRITES)
    assert segments_of(Rewrites(kept=frozenset({first}))) is not segments_of(NO_REWRITES)
    (segment,) = segments_of(NO_REWRITES)
    assert segment.key is segment.key and segment.default is segment.default


def test_segments_of_a_decision_are_cut_at_it(cold: Path) -> None:
    f = hjit.pipeline(decided, tune=False, verify="off", cache_dir=cold)
    np.testing.assert_allclose(f(IMAGE), decided(IMAGE), rtol=1e-6)
    variant = f.variant_of((IMAGE,), {}, f._state.options.of(()))
    assert len(variant.segments) == 2 and variant.fast is None
    assert [s.graph_break is None for s in variant.segments] == [False, True]


def refused(error: Exception) -> Any:
    def method(*args: Any, **options: Any) -> Any:
        raise error

    return method


def test_where_the_compiler_cannot_be_loaded_now_numpy_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    f = hjit.pipeline(lambda a: a + 1, cache="off")
    with monkeypatch.context() as patch:
        patch.setattr(
            compiled_function, "_load_compiler", functools.lru_cache(refused(OSError(24, "Too many open files")))
        )
        with pytest.warns(HjitWarning, match="Too many open files"):
            assert np.array_equal(f(IMAGE), IMAGE + 1)
    assert np.array_equal(f(IMAGE), IMAGE + 1) and f.stats.fallbacks == 1 and f.stats.traces == 1


def test_where_memory_is_too_little_to_compile_numpy_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"cache": "off", "tune": False, "on_unsupported": "break"}
    f, g = hjit.pipeline(lambda a: a * 1.75, **options), hjit.pipeline(lambda a: a * 1.75 - 1, **options)
    with monkeypatch.context() as patch, pytest.warns(HjitWarning, match="too little memory"):
        patch.setattr("hjit.call.build.compiled", refused(MemoryError("not a byte")))
        assert np.array_equal(f(IMAGE), IMAGE * 1.75)
    monkeypatch.setattr("hjit.kernels.runtime.backend.ROOM_BYTES", 1 << 62)  # else LLVM ends the process
    with pytest.warns(HjitWarning, match="no more memory"):
        assert np.array_equal(g(IMAGE), IMAGE * 1.75 - 1)
    assert f.stats.fallbacks == g.stats.fallbacks == 1


def test_where_memory_was_too_little_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    f = hjit.pipeline(lambda a: a * 1.25 + 2, cache="off", tune=False, on_unsupported="break").quiet()
    with monkeypatch.context() as patch:
        patch.setattr("hjit.call.build.compiled", refused(MemoryError("not a byte")))
        for call in range(1, 6):  # the second and the fourth, fifth and sixth call try nothing
            assert np.array_equal(f(IMAGE), IMAGE * 1.25 + 2) and f.stats.fallbacks == call
    for _ in range(3):
        assert np.array_equal(f(IMAGE), IMAGE * 1.25 + 2)
    assert f.stats.traces == 1 and f.stats.fallbacks == 6


def test_where_memory_is_too_little_to_trace_numpy_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    f = hjit.pipeline(lambda a: a * 1.25 - 2, cache="off", tune=False, on_unsupported="break")
    with monkeypatch.context() as patch, pytest.warns(HjitWarning, match="too little memory"):
        patch.setattr("hjit.call.build.trace", refused(MemoryError("not a byte")))
        assert np.array_equal(f(IMAGE), IMAGE * 1.25 - 2)
    assert np.array_equal(f(IMAGE), IMAGE * 1.25 - 2) and np.array_equal(f(IMAGE), IMAGE * 1.25 - 2)
    assert f.stats.traces == 1 and f.stats.fallbacks == 2


def test_memory_that_the_function_asks_for_in_vain() -> None:
    f = hjit.pipeline(lambda a: a + np.zeros((1 << 44, *a.shape)))
    for _ in range(2):
        with pytest.raises(MemoryError, match="Unable to allocate"):
            f(IMAGE)
