"""Progress of long work on a terminal: what is being done, how far it is, the best result so far, and the time left."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from hjit.process.restoring import holding

PROGRESS_AFTER = 1.0  # seconds


@dataclass(slots=True)
class Status:
    """The state of some work in progress; it may change at any time.

    Attributes:
        text: what is done.
        doing: the part of it that is done now.
        candidates: schedules that were compiled and timed.
        best, default: seconds of the fastest of them, and of the default schedule.
        begin, end: when it began, and will end at the latest, by `time.perf_counter`; None: unknown.
    """

    text: str
    doing: str = ""
    candidates: int = 0
    best: float | None = None
    default: float | None = None
    begin: float = 0.0
    end: float | None = None

    def about(self) -> str:
        """All but the text and the time."""
        found = [self.doing] if self.doing else []
        if self.candidates:
            found.append(f"{self.candidates} candidates")
        if self.best is not None:
            found.append(f"best {milliseconds(self.best)}")
        if self.default is not None:
            found.append(f"default {milliseconds(self.default)}")
        return ", ".join(found)

    def left(self, now: float) -> float | None:
        """The seconds that are left at the most."""
        return None if self.end is None else max(self.end - now, 0.0)

    def part(self, now: float) -> float | None:
        """How much of the time has gone, from 0 to 1."""
        if self.end is None:
            return None
        return min(max((now - self.begin) / max(self.end - self.begin, 1e-9), 0.0), 1.0)


_current: ContextVar[Status | None] = ContextVar("hjit_progress", default=None)


def milliseconds(seconds: float) -> str:
    """A time as text."""
    return f"{1e3 * seconds:.3g} ms"


def note(**changes: Any) -> None:
    """Report what has changed about the current work (see `Status`); does nothing if it is not shown."""
    status = _current.get()
    if status is not None:
        for name, value in changes.items():
            setattr(status, name, value)


def ends_in(seconds: float) -> None:
    """Report that the current work takes at most this many seconds more."""
    now = time.perf_counter()
    note(begin=now, end=now + seconds)


def watched() -> Status | None:
    """What is shown about the current work; None: nothing."""
    return _current.get()


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """Show a line on a terminal when the work inside takes longer than a second; nothing elsewhere.

    Where the work says how long it takes at the most (`ends_in`), there is a bar, too. Work inside other such work is
    shown as that is.
    """
    if _current.get() is not None or not (hasattr(sys.stderr, "isatty") and sys.stderr.isatty()):
        yield
        return
    status = Status(text, begin=time.perf_counter())
    shown: list[Any] = []
    lock = threading.Lock()
    done = False

    def show() -> None:
        with lock:
            if not done:
                with contextlib.suppress(ModuleNotFoundError):  # without rich nothing is shown
                    display = _display(status)
                    display.start()
                    shown.append(display)

    timer = threading.Timer(PROGRESS_AFTER, show)
    timer.daemon = True
    try:
        timer.start()
        with holding(_current, status):
            yield
    finally:
        done = True
        with lock:
            timer.cancel()
            for display in shown:
                display.stop()


def _display(status: Status) -> Any:
    """What draws a status some times a second, until it is stopped."""
    from rich.console import Console
    from rich.live import Live

    return Live(get_renderable=_Line(status).render, console=Console(stderr=True), transient=True, refresh_per_second=8)


class _Line:
    """The progress line of a status."""

    def __init__(self, status: Status) -> None:
        from rich.spinner import Spinner

        self._status, self._spinner = status, Spinner("dots")

    def render(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now = time.perf_counter()
        part, left, about = self._status.part(now), self._status.left(now), self._status.about()
        cells: list[Any] = [self._spinner, Text(self._status.text, overflow="ellipsis", no_wrap=True)]
        if part is not None and left is not None:
            cells += [ProgressBar(total=1.0, completed=part, width=24), Text(f"{left:.0f} s left")]
        if about:
            cells.append(Text(about, overflow="ellipsis", no_wrap=True))
        grid = Table.grid(padding=(0, 1))
        for _ in cells:
            grid.add_column(no_wrap=True)
        grid.add_row(*cells)
        return grid
