"""What is shown of work that takes long: on a terminal only, and what the work says of itself."""

from __future__ import annotations

import io
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.process import progress
from hjit.process.progress import Status, ends_in, note, watched
from hjit.tuning import autotune, plans
from tests.sched.test_space import blurred


class Terminal(io.StringIO):
    """A terminal that keeps what is written, and says when that is something."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words, self.seen = words, threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.words in self.getvalue():
            self.seen.set()
        return written


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PROGRESS_AFTER", 0.0)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_shows_candidates_the_best_and_the_time_left(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal("12 candidates, best 1.5 ms, default 2 ms")
    monkeypatch.setattr("sys.stderr", terminal)
    with progress.progress("hjit: tuning f"):
        ends_in(100.0)
        note(candidates=12, best=1.5e-3, default=2e-3)
        assert terminal.seen.wait(60.0)
    assert "hjit: tuning f" in terminal.getvalue() and "s left" in terminal.getvalue()
    assert watched() is None


def test_without_rich_nothing_is_shown(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    asked, failed, terminal = threading.Event(), list[Any](), Terminal("")
    display = progress._display
    monkeypatch.setattr(progress, "_display", lambda status: (asked.set(), display(status)))
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(threading, "excepthook", failed.append)
    with progress.progress("hjit: tuning f"):
        assert asked.wait(60.0)
    assert not failed and not terminal.getvalue()


def test_tuning_says_how_far_it_is(at_once: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(plans, "_plans", {})
    monkeypatch.setattr(autotune, "BATCH", 3)
    monkeypatch.setattr(autotune, "PLATEAU", 1)
    said: list[dict[str, Any]] = []
    monkeypatch.setattr("sys.stderr", Terminal(""))
    monkeypatch.setattr(autotune, "note", lambda **changes: said.append(changes))
    f = hjit.pipeline(blurred, tune="greedy", cache_dir=tmp_path)
    f.tune(np.ones((70, 96), np.float32), budget=3.0)
    assert any(x.get("candidates", 0) > 1 for x in said) and any("best" in x for x in said)
    assert said[0]["end"] - said[0]["begin"] == pytest.approx(3.0)


def test_searches_say_it_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(plans, "_plans", {})
    monkeypatch.setattr("sys.stderr", Terminal(""))
    last: list[Status] = []
    real = progress.note

    def noted(**changes: Any) -> None:
        real(**changes)
        if (status := watched()) is not None:
            last.append(status)

    monkeypatch.setattr("hjit.tuning.candidates.note", noted)
    hjit.pipeline(blurred, tune="greedy", cache_dir=tmp_path)(np.ones((70, 96), np.float32))
    assert last and last[-1].candidates > 1 and last[-1].best is not None and last[-1].end is not None


def test_what_is_no_terminal_shows_nothing(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr("sys.stderr", text)
    with progress.progress("hjit: tuning f"):
        assert watched() is None
        note(candidates=3)
        time.sleep(0.1)
    assert text.getvalue() == ""


def test_work_inside_other_work_is_shown_as_that(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal(""))
    with progress.progress("outer"):
        outer = watched()
        with progress.progress("inner"):
            assert watched() is outer is not None and outer.text == "outer"


def test_the_part_of_the_time_that_has_gone() -> None:
    status = Status("work", begin=10.0, end=20.0)
    assert [status.part(now) for now in (9.0, 10.0, 15.0, 30.0)] == [0.0, 0.0, 0.5, 1.0]
    assert [status.left(now) for now in (10.0, 15.0, 30.0)] == [10.0, 5.0, 0.0]
    assert Status("work").part(5.0) is None and Status("work").left(5.0) is None and Status("work").about() == ""
