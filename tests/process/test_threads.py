"""Threads of the program that are other than usual: with small stacks, and greenlets in place of threads."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from hjit.process import signals, threads
from tests.interrupts import at_each_place
from tests.scripts import run_script

SMALL = """
    import threading
    import numpy as np
    import hjit

    @hjit.pipeline(tune=False, cache="off")
    def f(img):
        return np.sqrt(img) + np.roll(img, 1, 0)

    img = np.ones((20, 20), np.float32)
    threading.stack_size(40 << 10)
    thread = threading.Thread(target=lambda: print(np.array_equal(f(img), f.py_func(img)), f.stats.fallbacks))
    thread.start()
    thread.join()
    assert threading.stack_size() == 40 << 10
"""


def test_a_first_call_on_a_small_stack(tmp_path: Path) -> None:
    assert run_script(tmp_path, SMALL).split() == ["True", "0"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there is a thread asked for its stack")
def test_threads_that_are_started_have_large_stacks() -> None:
    found: list[bool] = []

    def ask() -> None:
        found.append(threads.has_small_stack())

    usual = threading.stack_size(256 << 10)
    try:
        for start in (lambda: threads.start("large", ask), lambda: threading.Thread(target=ask)):
            thread = start()
            if thread.ident is None:
                thread.start()
            thread.join()
    finally:
        threading.stack_size(usual)
    assert found == [False, True] and not threads.has_small_stack()


def test_greenlets_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would find the stack of the caller, whose memory they read, somewhere else."""
    monkeypatch.setattr("_thread.start_new_thread", lambda *args: pytest.fail("a greenlet"))
    here = threading.get_ident()
    asked: signals.Call[Any] = signals.submit("tasks", 7, threading.get_ident)
    assert asked.result() == signals.bounded(1.0, threading.get_ident) == signals.signal_safe(threading.get_ident)
    assert asked.result() == here


@pytest.mark.parametrize("is_called_before", [False, True])
def test_new_calls_while_the_interpreter_ends_run_plain(tmp_path: Path, is_called_before: bool) -> None:
    text = """
        import os, sys
        import numpy as np
        import hjit

        @hjit.pipeline
        def f(a):
            return np.pad(a, 1) * 2

        class Last:
            def __del__(self):
                os.write(1, str(f(np.ones((5, 6))).shape).encode())

        kept = Last()
        if sys.argv[1] == "True":
            f(np.ones((3, 4)))
    """
    assert run_script(tmp_path, text, args=(str(is_called_before),)) == "(7, 8)"


def test_what_ends_the_start_of_a_thread_is_raised_and_no_error_of_its_locks() -> None:
    """Where an interrupt comes inside `threading.Condition.wait`, its lock is not locked when its block ends."""
    usual, places = threading.stack_size(), 0
    try:
        raise LookupError
    except LookupError:  # what is handled already is no interrupt
        for _ in at_each_place(lambda: threads.start("short", int), {threading.__file__}):
            assert threading.stack_size() == usual
            places += 1
    assert places > 10


def test_no_thread_can_be_started_while_an_exception_is_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    try:
        raise LookupError
    except LookupError:
        with pytest.raises(RuntimeError, match="can't start"):
            threads.start("none", int)
