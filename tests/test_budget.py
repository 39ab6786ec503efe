"""Tracing and compiling stop when the budget is spent: with NumPy's result or an error, and nothing half done."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import HjitWarning, TraceError
from hjit.errors import BudgetError
from hjit.kernels.runtime import backend, kernel
from hjit.kernels.runtime.features import LEVELS, host_features
from hjit.process import deadline
from hjit.sched.language.groups import groups
from tests.scripts import run_script
from tests.trace.helpers import trace_of

IMAGE = np.linspace(0, 9, 40 * 50).reshape(40, 50)


def ages() -> Callable[[], float]:
    """A wall clock on which so much time passes with each look that the processor's time has to be looked at."""
    return itertools.count(0.0, 1e12).__next__


class Clock:
    """Time that passes by looking at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        monkeypatch.setattr(deadline, "clock", self)
        monkeypatch.setattr(deadline, "wall_clock", ages())

    def __call__(self) -> float:
        self.looks += 1
        return float(self.looks)


def blurred(img: Any) -> Any:
    rows = (img[:-2] + img[1:-1] + img[2:]) / 3
    return np.sqrt(rows[:, :-1] * rows[:, 1:]) + rows.mean()


def unrolled(img: Any, out: Any) -> Any:
    """Its iterations are traced one by one, and it changes an argument."""
    total = img[0] * 0
    for y in range(1, img.shape[0]):
        total = total * 0.5 + img[y]
        out[y] = total * out[y - 1]
    return total


def decides(img: Any) -> Any:
    if img.max() > 5:
        return img * 2
    return img + 1


def test_no_time_at_all() -> None:
    p = hjit.pipeline(blurred, budget=0)
    with pytest.raises(BudgetError) as caught:
        p.graph(IMAGE)
    error = caught.value
    assert isinstance(error, TraceError)
    assert error.operation == "blurred"
    assert error.origin is not None
    assert error.origin.filename == __file__
    assert error.origin.function == "blurred"
    for part in ("tracing", "budget for compiling it is 0 s", "What to do: ", "budget="):
        assert part in str(error)


def test_a_refusal_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    p = hjit.pipeline(blurred, budget=0)
    with pytest.warns(HjitWarning, match="budget"):
        p(IMAGE)
    monkeypatch.setattr(p._state, "build", lambda *a: pytest.fail("it is tried again"))
    np.testing.assert_array_equal(p(IMAGE), blurred(IMAGE))
    monkeypatch.undo()
    q = hjit.pipeline(blurred)
    with hjit.options(budget=0), pytest.warns(HjitWarning, match="budget"):
        q(IMAGE)
    q.stats.fallbacks = 0
    np.testing.assert_allclose(q(IMAGE), blurred(IMAGE), rtol=1e-12)
    assert q.stats.fallbacks == 0


@pytest.mark.parametrize("on_unsupported", ["raise", "numpy"])
def test_numpy_instead(on_unsupported: str) -> None:
    p = hjit.pipeline(blurred, budget=0, on_unsupported=on_unsupported)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            np.testing.assert_array_equal(p(IMAGE), blurred(IMAGE))
    (one,) = seen
    assert one.category is HjitWarning
    assert one.filename == __file__
    assert "budget" in str(one.message)
    assert (p.stats.fallbacks, p.stats.traces, p.stats.compilations) == (3, 0, 0)


def test_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    hjit.pipeline(blurred, budget=None)(IMAGE)
    hjit.pipeline(blurred, budget=float("inf"))(IMAGE)
    assert clock.looks == 0


def fresh(folder: Path) -> dict[str, Any]:
    """Options with an empty cache, and a process without kernels."""
    kernel._kernels.clear()
    return {"cache_dir": str(folder), "verify": "off"}


@pytest.mark.parametrize(("f", "tune"), [(blurred, "greedy"), (unrolled, False), (decides, False)])
def test_wherever_it_ends(f: Any, tune: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any number of looks at the clock: what NumPy gives, arguments and all; and what is left behind serves the next one."""
    clock = Clock(monkeypatch)

    def arguments() -> list[Any]:
        return [IMAGE.copy() for _ in range(f.__code__.co_argcount)]

    def checked(p: Any) -> None:
        ours, theirs = arguments(), arguments()
        np.testing.assert_allclose(p(*ours), f(*theirs), rtol=1e-12)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)

    checked(hjit.pipeline(f, tune=tune, budget=1e9, **fresh(tmp_path / "all")))
    needed = clock.looks
    assert needed > 20
    refused = 0
    for n, looks in enumerate(np.linspace(0, 1.5 * needed, 7)):
        p = hjit.pipeline(f, tune=tune, budget=float(looks), on_unsupported="numpy", **fresh(tmp_path / str(n)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            checked(p)
            checked(p)
        refused += p.stats.fallbacks > 0
        if n % 2:
            checked(hjit.pipeline(f, tune=tune, budget=None, cache_dir=str(tmp_path / str(n)), verify="off"))
    assert 0 < refused < 7


def test_code_that_handles_everything() -> None:
    def f(img: Any) -> Any:
        try:
            return img * 2
        except:  # noqa: E722
            return img + 1

    with pytest.raises(BudgetError):
        hjit.pipeline(f, budget=0).graph(IMAGE)
    p = hjit.pipeline(f, budget=0, on_unsupported="numpy")
    with pytest.warns(HjitWarning):
        np.testing.assert_array_equal(p(IMAGE), IMAGE * 2)


def test_llvm_is_not_begun_without_time_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "expected_seconds", lambda text: 1e6)
    monkeypatch.setattr(backend, "compile_module", lambda *a: pytest.fail("LLVM is called"))
    p = hjit.pipeline(lambda a: a * 3 - 1, budget=60, **fresh(tmp_path))
    with pytest.warns(HjitWarning, match="would take about 1000000 s more"):
        p(IMAGE)


ENDLESS = """
    import ctypes, os, sys, warnings

    library = ctypes.CDLL(None)
    library.__cxa_atexit(library._exit, 7, None)  # called after the destructors of libraries that are loaded later

    import numpy as np
    import hjit
    from hjit.kernels.llvm.builder import code

    code._is_rewritten_for_ever = lambda *a: False
    a = np.arange(77 * 200, dtype=np.uint8).reshape(77, 200)
    options = {"cache": "off", "verify": "off", "tune": False}

    def said(f):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", hjit.HjitWarning)
            assert np.array_equal(f(a), f.py_func(a))
        return "; ".join(str(w.message) for w in found)

    before = hjit.pipeline(lambda a: a * 3 + 1, **options)
    assert not said(before)
    found = said(hjit.pipeline(lambda a: np.repeat(a, 2, axis=1) << 1, target="x86-64-v4", budget=0.5, **options))
    if not found:  # this LLVM ends
        print(7, flush=True)
        os._exit(0)
    assert "LLVM did not end compiling it" in found and "disable=True" in found, found
    assert "every function that this process has not compiled yet, runs as plain NumPy" in found, found
    child = os.fork()
    assert not said(before)  # what is compiled runs
    for budget, target in ((10, "cpu"), (None, "cpu"), (10, "x86-64-v2")):
        found = said(hjit.pipeline(lambda a: a * 5, budget=budget, target=target, **options))
        assert "LLVM is still compiling another function, which was given up" in found, found
        assert "every function that this process has not compiled yet, runs as plain NumPy" in found, found
        assert "start the process anew" in found and "write loops" not in found, found
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not LEVELS["x86-64-v4"] <= host_features(), reason="needs AVX-512")
def test_llvm_does_not_end(tmp_path: Path) -> None:
    """The call goes on with NumPy, and so do later ones, which LLVM has no time for; the process can be forked, and ends.

    It ends before LLVM's destructors run, which would destroy what the compilation uses; the child, where nothing
    compiles, ends as usual.
    """
    assert run_script(tmp_path, ENDLESS).strip() == "7"


COMPILED_TO_THE_END = """
    import ctypes, os, threading, time

    library = ctypes.CDLL(None)
    library.__cxa_atexit(library._exit, 7, None)  # called after the destructors of libraries that are loaded later

    import numpy as np
    import hjit
    from hjit.kernels.llvm.builder import code
    from hjit.kernels.runtime import backend

    code._is_rewritten_for_ever = lambda *a: False
    options = {"cache": "off", "verify": "off", "tune": False}
    p = hjit.pipeline(lambda a: np.repeat(a, 2, axis=1) << 1, target="x86-64-v4", **options)
    thread = threading.Thread(target=p, args=(np.ones((77, 200), np.uint8),), daemon=True)
    thread.start()
    while thread.is_alive() and not backend._lock.locked():
        time.sleep(0.01)
    time.sleep(0.5)
    if not thread.is_alive():  # this LLVM ends
        os._exit(0)
"""


@pytest.mark.skipif(not LEVELS["x86-64-v4"] <= host_features(), reason="needs AVX-512")
def test_the_process_ends_while_a_daemon_thread_compiles(tmp_path: Path) -> None:
    """LLVM's destructors would destroy what it uses, and it would abort the process."""
    run_script(tmp_path, COMPILED_TO_THE_END)


def test_longer_code_takes_longer() -> None:
    body = "  %a = add i64 1, 2\n"
    short, long = (f"define void @f() {{\n{body * n}}}\n" for n in (100, 10_000))
    assert 0 < backend.expected_seconds(short) < backend.expected_seconds(long) / 50


def test_another_schedule_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled already runs, where there is no time for what it was to be compared with; no plan is kept of that."""
    from hjit.tuning import plans

    kept: list[Any] = []
    monkeypatch.setattr(plans, "store_plans", lambda *a: kept.append(a))
    compiled = itertools.count()
    monkeypatch.setattr(backend, "expected_seconds", lambda text: 0.0 if next(compiled) == 0 else 1e6)

    p = hjit.pipeline(blurred, budget=60, tune="greedy", num_threads=1, **fresh(tmp_path))
    np.testing.assert_allclose(p(IMAGE), blurred(IMAGE), rtol=1e-12)
    if next(compiled) > 2:  # the search found more than one schedule
        assert not kept
    assert p.stats.fallbacks == 0


def test_many_updates_of_one_array_are_not_scheduled_without_time_for_it(ticking: list[float]) -> None:
    """Each is compared with those before it."""
    traced, _ = trace_of(lambda a: np.stack([a[k] * 2 for k in range(12)]), np.ones((12, 3)))
    (s,) = [s for s in traced.recorder.graph(traced.goals[-1]).stages if len(s.updates) > 4]
    with pytest.raises(BudgetError, match="scheduling"), deadline.budget(1, "f"):
        ticking[0] = 2
        groups(s)


# -- the deadline itself


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [0.0]
    monkeypatch.setattr(deadline, "clock", lambda: now[0])
    monkeypatch.setattr(deadline, "wall_clock", ages())
    yield now


def test_the_processors_time_is_not_looked_at_before_as_much_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, wall = [0], [0.0]

    def clock() -> float:
        looks[0] += 1
        return float(looks[0])

    monkeypatch.setattr(deadline, "clock", clock)
    monkeypatch.setattr(deadline, "wall_clock", lambda: wall[0])
    with deadline.budget(10, "f"):
        looks[0] = 0
        for wall[0] in (1.0, 5.0, 9.9):
            deadline.check("work")
        assert looks[0] == 0
        wall[0] = 10.0
        deadline.check("work")
        assert looks[0] == 1  # less of the processor's time: there is some left


def test_what_is_paused_does_not_count(ticking: list[float]) -> None:
    with deadline.budget(10, "f"):
        ticking[0] = 9
        deadline.check("work")
        with deadline.paused():
            ticking[0] = 100
            deadline.check("work")
            with deadline.paused():
                ticking[0] = 200
            deadline.require("work", 1e6)
        deadline.check("work")
        deadline.require("work", 0.5)
        with pytest.raises(deadline.OverBudget):
            deadline.require("work", 2)
        ticking[0] = 201
        with pytest.raises(deadline.OverBudget):
            deadline.check("work")


def test_one_inside_another(ticking: list[float]) -> None:
    with deadline.budget(10, "outer"):
        with pytest.raises(BudgetError, match="inner"), deadline.budget(1, "inner"):
            ticking[0] = 2
            deadline.check("work")
        deadline.check("work")
        with deadline.budget(None):
            ticking[0] = 99
            deadline.check("work")
    deadline.check("work")


def test_other_threads(ticking: list[float]) -> None:
    """Each thread has a clock of its own; what runs for us elsewhere counts."""

    def work() -> None:
        ticking[0] += 6

    with deadline.budget(10, "f"):
        t = threading.Thread(target=work)  # of somebody else
        deadline.check("work")
        ticking[0] = 0.0
        t.start()
        t.join()
        ticking[0] = 0.0
        deadline.check("work")
        counted = deadline.counted(work)
        for _ in range(2):
            t = threading.Thread(target=counted)
            t.start()
            t.join()
        with pytest.raises(deadline.OverBudget):
            deadline.check("work")


@pytest.mark.parametrize("given", [-1, float("nan"), "10", True])
def test_wrong_budgets(given: Any) -> None:
    with pytest.raises(hjit.OptionError, match="budget"):
        hjit.pipeline(blurred, budget=given)


@pytest.mark.parametrize(("text", "value"), [("2.5", 2.5), ("0", 0.0), ("none", None), ("", None)])
def test_environment(text: str, value: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from hjit.options import resolve

    monkeypatch.setenv("HJIT_BUDGET", text)
    assert resolve({}).budget == value
    monkeypatch.setenv("HJIT_BUDGET", "soon")
    with pytest.raises(hjit.OptionError, match="HJIT_BUDGET"):
        resolve({})
