"""Tuning in the background: calls go on meanwhile, later ones find what it came to, and it ends with what it is for."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.process import background
from hjit.tuning import autotune, plans
from hjit.tuning.autotune import Tuned
from tests.sched.test_space import blurred, pyramid
from tests.scripts import run_script

Array = np.ndarray[Any, Any]
IMAGE = np.random.default_rng(3).standard_normal((70, 96)).astype(np.float32)
LONG = 60.0  # seconds: a test that waits for so long has failed


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(plans, "_plans", {})
    for name, value in (("BATCH", 3), ("PLATEAU", 1), ("BATCH_SECONDS", 0.001), ("CONFIRMED_SECONDS", 0.001)):
        monkeypatch.setattr(autotune, name, value)
    monkeypatch.setattr(autotune, "can_fit", lambda: False)
    with hjit.options(cache_dir=tmp_path):
        yield tmp_path
        assert background.wait(LONG)


def test_later_calls_run_by_what_a_thread_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    real = autotune.autotune

    def counted(*given: Any) -> Tuned:
        threads.append(threading.current_thread().name)
        return real(*given)

    monkeypatch.setattr(autotune, "autotune", counted)
    monkeypatch.setattr(autotune, "CLEARLY_FASTER", 1e9)  # whatever was found runs
    f = hjit.pipeline(blurred, tune="greedy", tune_in_background=True, tune_budget=LONG)
    np.testing.assert_allclose(f(IMAGE), blurred(IMAGE), rtol=1e-5)
    assert background.wait(LONG)
    assert threads == ["hjit-background"] and f.tuned is not None and f.tuned.candidates > 1
    traces = f.stats.traces
    np.testing.assert_allclose(f(IMAGE), blurred(IMAGE), rtol=1e-5)
    assert f.stats.traces == traces + 1, "one call builds what was found"
    for _ in range(3):
        f(IMAGE)
    assert f.stats.traces == traces + 1 and f.stats.verified and threads == ["hjit-background"]
    again = hjit.pipeline(blurred, tune="greedy", tune_in_background=True)
    again(IMAGE)
    assert background.wait(LONG) and len(threads) == 1, "what was tuned is not tuned again"
    assert str(again.tree(IMAGE)) == str(f.tree(IMAGE)) != str(hjit.pipeline(blurred, tune=False).tree(IMAGE))


def test_with_autotune_the_first_call_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go = threading.Event()
    real = autotune.autotune

    def waiting(*given: Any) -> Tuned:
        assert may_go.wait(LONG)
        return real(*given)

    monkeypatch.setattr(autotune, "autotune", waiting)
    f = hjit.pipeline(pyramid, tune="autotune", tune_in_background=True)
    np.testing.assert_allclose(f(IMAGE), pyramid(IMAGE), rtol=1e-5)
    f(IMAGE)
    assert f.tuned is None
    may_go.set()
    assert background.wait(LONG) and f.tuned is not None


def test_the_arrays_of_the_call_may_change() -> None:
    def doubled(a: Array) -> Array:
        a *= 2
        return a[1:] + a[:-1]

    f = hjit.pipeline(doubled, tune="greedy", tune_in_background=True)
    image = IMAGE.copy()
    result = f(image)
    np.testing.assert_array_equal(image, 2 * IMAGE)
    np.testing.assert_array_equal(result, (2 * IMAGE)[1:] + (2 * IMAGE)[:-1])
    assert background.wait(LONG)
    np.testing.assert_array_equal(image, 2 * IMAGE)


def test_it_ends_with_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stopped = threading.Event(), threading.Event()

    def endless(*given: Any) -> Tuned:
        begun.set()
        is_stopped = given[-1].is_stopped
        while not is_stopped():
            stopped.wait(0.01)
        stopped.set()
        return autotune.not_tuned("it was stopped")

    monkeypatch.setattr(autotune, "autotune", endless)
    f = hjit.pipeline(lambda a: np.sqrt(a[1:] ** 2 + a[:-1] ** 2), tune="greedy", tune_in_background=True)
    f(IMAGE)
    assert begun.wait(LONG)
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None and stopped.wait(LONG)


def test_a_failure_is_nobody_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*given: Any) -> Tuned:
        raise RuntimeError("a fault")

    monkeypatch.setattr(autotune, "autotune", failing)
    f = hjit.pipeline(blurred, tune="greedy", tune_in_background=True)
    f(IMAGE)
    assert background.wait(LONG)
    np.testing.assert_allclose(f(IMAGE), blurred(IMAGE), rtol=1e-5)


def test_what_runs_as_numpy_or_by_hand_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(background, "submit", lambda *given: asked.append(given))
    f = hjit.pipeline(blurred, tune="greedy", tune_in_background=True)
    f.use(hjit.pipeline(blurred).schedule(IMAGE))
    f(IMAGE)
    hjit.pipeline(blurred, tune=False, tune_in_background=True)(IMAGE)
    hjit.pipeline(blurred, tune="stored", tune_in_background=True)(IMAGE)
    hjit.pipeline(blurred, disable=True, tune_in_background=True)(IMAGE)
    assert asked == []


def test_too_much_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MAX_WAITING", 2)
    worker, may_go = background._Worker(), threading.Event()

    class Owner:
        pass

    done: list[int] = []
    owner = Owner()

    def work(number: int) -> Any:
        def run(owner: Any, is_over: Any) -> None:
            assert may_go.wait(LONG)
            done.append(number)

        return run

    assert worker.submit(owner, work(0))
    while worker._waiting:
        pass
    assert [worker.submit(owner, work(k)) for k in (1, 2, 3)] == [True, True, False]
    may_go.set()
    assert worker.wait(LONG) and done == [0, 1, 2]
    assert worker.submit(owner, work(4)) and worker.wait(LONG) and done == [0, 1, 2, 4], "the thread begins anew"
    assert worker.end() and not worker.submit(owner, work(5))


SCRIPT = """
import os, sys, threading, time
import numpy as np
import hjit
from hjit.process import background

@hjit.pipeline(tune="greedy", tune_in_background=True, tune_budget=600.0)
def f(a):
    soft = (a[:-2] + a[1:-1] + a[2:]) / 3
    return np.sqrt(np.abs(soft[:, :-2] + soft[:, 1:-1] + soft[:, 2:]))

image = np.ones((600, 800), np.float32)
expected = f.py_func(image)
np.testing.assert_allclose(f(image), expected, rtol=1e-5)
while not any(t.name == "hjit-background" for t in threading.enumerate()):
    time.sleep(0.01)
"""


def test_the_interpreter_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HJIT_BUDGET", "60")
    assert run_script(tmp_path, f"{SCRIPT}\ntime.sleep(2)\nprint('end')") == "end\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_forked_child_has_no_thread_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HJIT_BUDGET", "60")
    text = run_script(
        tmp_path,
        SCRIPT
        + """
for k in range(5):
    time.sleep(0.3)
    child = os.fork()
    if not child:
        assert threading.active_count() == 1
        np.testing.assert_allclose(f(image), expected, rtol=1e-5)
        np.testing.assert_allclose(f(image[:-k - 1]), f.py_func(image[:-k - 1]), rtol=1e-5)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    np.testing.assert_allclose(f(image), expected, rtol=1e-5)
print("end")
""",
    )
    assert text == "end\n"
