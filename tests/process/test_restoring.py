"""Wherever a Ctrl-C ends a block, what the block has changed is as before."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit import cache, modules
from hjit.call.checks import against_numpy
from hjit.call.checks.against_numpy import InterleavedCalls, all_plain
from hjit.options import context_state
from hjit.process import (
    background,
    deadline,
    deep_stack,
    forks,
    garbage_collection,
    progress,
    restoring,
    shown_warnings,
)
from hjit.process.garbage_collection import few_collections
from hjit.process.restoring import Block, Replaced, holding, if_free, surely
from hjit.trace.capture.side_effects import finalisation, library_warnings
from hjit.trace.tracing.recording import recorder
from hjit.trace.tracing.recording.recorder import Recorder, TracingOptions
from hjit.trace.tracing.scalars import size
from tests.interrupts import at_each_place

CONTEXTLIB = contextlib.__file__
PACKAGE = Path(hjit.__file__).parent
WAITED = 30.0  # seconds, in vain
VARIABLE: ContextVar[int] = ContextVar("variable", default=0)
LOCK = threading.RLock()
GATE = forks.Gate()
REPLACED = types.ModuleType("replaced")
vars(REPLACED)["function"] = abs
FUNCTION = Replaced(REPLACED, "function")


def recording() -> Any:
    return Recorder(TracingOptions(lambda rec, names: [])).recording()


def is_free(lock: Any) -> bool:
    """May another thread take it?"""
    found: list[bool] = []

    def take() -> None:
        found.append(lock.acquire(timeout=0.1))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return found[0]


def state() -> tuple[Any, ...]:
    """What blocks change."""
    return (
        gc.get_threshold(),
        garbage_collection._inside,
        warnings._showwarnmsg,  # type: ignore[attr-defined]
        sys.unraisablehook,
        deadline._current.get(),
        deadline._spent.get(),
        progress._current.get(),
        context_state(),
        VARIABLE.get(),
        size._watchers,
        size._watching.__dict__.get("size_guards"),
        set(against_numpy.comparing),
        set(recorder.running),
        recorder.running_trace(),
        vars(REPLACED)["function"],
        sys.getrecursionlimit(),
        deep_stack._deep.entered.get(),
        is_free(LOCK),
        is_free(GATE.inside()),
        is_free(GATE._closing),
    )


BLOCKS: dict[str, tuple[Callable[[], Any], Any]] = {
    "holding": (lambda: holding(VARIABLE, 1), restoring),
    "if_free": (lambda: if_free(LOCK), restoring),
    "replaced": (lambda: FUNCTION.by(lambda block: len), restoring),
    "intercepted": (shown_warnings.of_another_run, shown_warnings),
    "noted": (library_warnings.NotedWarnings, library_warnings),
    "finalised": (finalisation.finalised, finalisation),
    "few_collections": (few_collections, garbage_collection),
    "budget": (lambda: deadline.budget(1.0), deadline),
    "counting": (lambda: deadline.counting(deadline.Spent()), deadline),
    "options": (lambda: hjit.options(num_threads=1), sys.modules["hjit.options"]),
    "size guards": (size.size_guards_noted, size),
    "all plain": (all_plain, against_numpy),
    "recording": (recording, recorder),
    "inside": (lambda: GATE.inside(), forks),
    "outside": (lambda: GATE.outside(), forks),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_that_is_interrupted_anywhere_leaves_all_as_before(name: str) -> None:
    make, module = BLOCKS[name]

    def run() -> None:
        with make():
            pass

    run()
    before, places = state(), 0
    for at in at_each_place(run, {module.__file__, restoring.__file__, CONTEXTLIB, __file__}):
        assert state() == before, f"interrupted at place {at}"
        places += 1
    assert places >= 3


def test_a_progress_line_that_is_interrupted_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(sys, "stderr", types.SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(progress, "PROGRESS_AFTER", 0.02)
    monkeypatch.setattr(progress, "_display", lambda status: shown.append(status) or contextlib.nullcontext())

    def run() -> None:
        with progress.progress("working"):
            pass

    for _ in at_each_place(run, {progress.__file__, restoring.__file__}):
        assert progress.watched() is None
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(WAITED)
    assert not shown


def test_an_inner_block_that_ends_after_the_outer_one_changes_nothing() -> None:
    outer, inner = FUNCTION.by(lambda block: len), FUNCTION.by(lambda block: sum)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert vars(REPLACED)["function"] is abs
    with FUNCTION.by(lambda block: max):
        inner.__exit__(None, None, None)
        assert vars(REPLACED)["function"] is max
    assert vars(REPLACED)["function"] is abs


def test_a_block_beside_one_of_another_thread_changes_nothing() -> None:
    usual: list[Block] = []

    def other() -> None:
        with FUNCTION.by(lambda block: sum) as block:
            usual.append(block)
            assert vars(REPLACED)["function"] is len

    with FUNCTION.by(lambda block: len):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert usual[0].usual is None and vars(REPLACED)["function"] is len
    assert vars(REPLACED)["function"] is abs


def test_what_is_put_back_is_put_back_at_last() -> None:
    done: list[int] = []

    def put_back() -> None:
        for k in range(3):
            if k not in done:
                done.append(k)

    for _ in at_each_place(lambda: surely(put_back), {__file__}):
        assert done == [0, 1, 2]
        done.clear()


# -- forks


def test_a_fork_that_is_interrupted_anywhere_leaves_the_gates_open(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = threading.Event()
    end = threading.Event()

    def other() -> None:
        with forks.builds.inside(), forks.kernels.inside():
            pass
        inside.set()
        end.wait()

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()

    def around() -> None:
        with contextlib.suppress(KeyboardInterrupt):  # Python ignores what is raised in these
            forks._before()
        forks._after_in_parent()

    monkeypatch.setattr(forks, "_wait_for_imports", lambda: None)
    try:
        for at in at_each_place(around, {forks.__file__, CONTEXTLIB}):
            with forks.builds.inside(), forks.kernels.inside():  # opens them if it was interrupted as it began to
                pass
            for gate in (forks.builds, forks.kernels):
                locks = [gate._closing, *gate._locks.values()]
                assert not gate.is_closed and all(map(is_free, locks)), f"interrupted at place {at}"
            lock = forks.compiler_lock()
            assert lock is None or is_free(lock._lock)
    finally:
        end.set()
        thread.join()


def test_a_fork_waits_for_no_thread_that_leaves_meanwhile() -> None:
    gate = forks.Gate()
    inside, is_open = threading.Event(), threading.Event()

    def other() -> None:
        with gate.inside():
            inside.set()
            while not gate.is_closed:
                pass
            with gate.outside():
                is_open.wait(WAITED)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait()
    assert gate.close(WAITED)
    gate.open()
    is_open.set()
    thread.join()
    assert all(map(is_free, gate._locks.values()))


def test_locks_of_threads_that_have_ended_are_dropped() -> None:
    gate = forks.Gate()

    def pass_through() -> None:
        with gate.inside():
            pass

    held = threading.Thread(target=pass_through)
    held.start()
    held.join()
    for thread in range(3 * forks.MANY_THREADS):
        gate._locks[-thread] = threading.RLock()
    pass_through()
    assert list(gate._locks) == [threading.get_ident()]


# -- what a first call does besides


def test_an_entry_whose_writing_is_interrupted_leaves_no_file(tmp_path: Path) -> None:
    def store() -> None:
        cache.store("name", b"payload", {}, tmp_path, "rw")

    for at in at_each_place(store, {cache.__file__}):
        assert {path.name for path in tmp_path.iterdir()} <= {"name.code"}, f"interrupted at place {at}"
    assert cache.load("name", tmp_path, "rw") == b"payload"


def test_work_in_the_background_goes_on_where_its_thread_was_interrupted_as_it_began() -> None:
    owner = threading.Event()
    worker = background._Worker()
    done: list[int] = []
    for at in at_each_place(
        lambda: worker.submit(owner, lambda owner, is_over: None), {background.__file__, threading.__file__}
    ):
        assert worker.submit(owner, lambda owner, is_over, at=at: done.append(at))
        assert worker.wait(WAITED)
        assert done[-1] == at
    assert worker.end()


def test_modules_are_as_before_wherever_accelerating_them_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def f(a):\n    return a\n\ndef g(a):\n    return a\n\nBY_NAME = {'f': f}\nKNOWN = {g: 1}\n"
    module = types.ModuleType("accelerated_here")
    exec(text, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(modules, "_of_packages", lambda modules: [module])  # not all that are loaded are looked at
    before = vars(module).copy()
    tables = module.BY_NAME.copy(), module.KNOWN.copy()

    made: list[Any] = []

    def run() -> None:
        made.clear()
        made.append(hjit.accelerate(module))
        with made[0]:
            assert module.f is not before["f"]

    for at in at_each_place(run, {modules.__file__, restoring.__file__}):
        if made and isinstance(module.f, hjit.Pipeline):  # it was as the block began, or began to end
            made[0].undo()
        assert all(vars(module)[name] is x for name, x in before.items()), f"interrupted at place {at}"
        assert tables == (module.BY_NAME, module.KNOWN)


def test_timing_goes_on_where_a_timed_call_was_interrupted() -> None:
    variant: Any = None
    calls = InterleavedCalls(variant)
    for _ in at_each_place(
        lambda: calls.run(lambda: 1, lambda: 1), {against_numpy.__file__, restoring.__file__, CONTEXTLIB}
    ):
        assert is_free(calls._timed)


def test_a_first_call_that_is_interrupted_anywhere_leaves_all_as_before() -> None:
    files = {
        str(path)
        for part in ("call", "process", "trace/capture/side_effects")
        for path in (PACKAGE / part).rglob("*.py")
    }
    image = np.linspace(0, 9, 30 * 40).reshape(30, 40)
    numbers = iter(range(1, 10_000))
    made: list[Any] = []

    def first_call() -> None:
        made.append(hjit.pipeline(eval(f"lambda img: img[1:] * {next(numbers)} + img[:-1]"), cache="off", tune=False))
        made[-1](image)

    first_call()
    before, places = state(), 0
    for at in at_each_place(first_call, files, step=61):
        assert state() == before, f"interrupted at place {at}"
        assert is_free(made[-1]._state.lock)
        places += 1
    for p in made:
        assert np.array_equal(p(image), p.py_func(image))
    assert places > 5


def test_a_call_that_needs_a_deep_stack_leaves_all_as_before_wherever_it_is_interrupted() -> None:
    def nested(n: int) -> int:
        return n if n == 0 else 1 + nested(n - 1)

    def run() -> None:
        assert deep_stack.with_deep_stack(nested, 1500) == 1500

    run()
    before, places = state(), 0
    for at in at_each_place(run, {deep_stack.__file__, restoring.__file__, CONTEXTLIB}):
        end = time.monotonic() + WAITED
        while deep_stack._deep._threads and time.monotonic() < end:  # one may have begun
            time.sleep(0.001)
        assert state() == before, f"interrupted at place {at}"
        places += 1
    assert places > 5
    run()
