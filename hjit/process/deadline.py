"""The budget of a first call: tracing and compiling end when it is spent, and NumPy runs or an error says so.

Long work calls `check` now and then; what cannot be interrupted calls `require` with its expected time. CPU time of the
threads that do this work is counted, so that a busy machine refuses no more than an idle one. The user's own code in
between, such as calls of other libraries, and the search of a schedule, which has limits of its own, are not counted.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from hjit.errors import BudgetError, Origin
from hjit.process.restoring import holding

T = TypeVar("T")


@dataclass(slots=True)
class Spent:
    """The time spent on building a function, and its parts, for some arguments.

    Attributes:
        building: seconds of the processor's time, those of searches among them.
        searching: seconds of searches, of which all kernels of a function together have a share.
        comparing: seconds of the processor's time for compiling schedules to compare with the default ones; likewise.
    """

    building: float = 0.0
    searching: float = 0.0
    comparing: float = 0.0


clock, wall_clock = time.thread_time, time.perf_counter
MISJUDGED = 20.0  # times as long as expected; LLVM was never seen to take more than its estimate unless it did not end


class OverBudget(BaseException):
    """The budget is spent; not an `Exception`, so that neither the traced code nor a pass handles it.

    Attributes:
        doing: what was being done.
        origin: the source line that was being traced, or None.
        more: further seconds that it would have taken, where that is known.
    """

    def __init__(self, doing: str, origin: Origin | None = None, more: float = 0.0) -> None:
        super().__init__(doing)
        self.doing, self.origin, self.more = doing, origin, more


class _Deadline:
    """The remaining budget.

    Attributes:
        seconds: the whole budget.
        paused: depth of nested `paused` blocks; time counts at 0.
        origin: the source line that most of the work comes from.
    """

    __slots__ = ("_at", "_left", "_looked", "_thread", "origin", "paused", "seconds")

    def __init__(self, seconds: float, origin: Origin | None) -> None:
        self.seconds, self._left, self.origin, self.paused = seconds, seconds, origin, 0
        self._thread, self._at, self._looked = threading.get_ident(), clock(), wall_clock()

    def left(self) -> float:
        """The seconds that are left, less those since the last look in this thread."""
        thread, at = threading.get_ident(), clock()
        if thread == self._thread and not self.paused:
            self._left -= at - self._at
        self._thread, self._at, self._looked = thread, at, wall_clock()
        return self._left

    def is_over(self) -> bool:
        """Is the budget spent? A thread's time is asked of the system, and takes long: only if it can be."""
        return wall_clock() - self._looked >= self._left and self.left() <= 0


_current: ContextVar[_Deadline | None] = ContextVar("hjit_deadline", default=None)
_spent: ContextVar[Spent | None] = ContextVar("hjit_spent", default=None)


@contextlib.contextmanager
def budget(seconds: float | None, function: str = "", origin: Origin | None = None) -> Iterator[None]:
    """Limit the CPU time of a block; None: no limit.

    Args:
        function: what is compiled, and where it is: for the error.

    Raises:
        BudgetError: it takes longer.
    """
    now = None if seconds is None or seconds == math.inf else _Deadline(seconds, origin)
    try:
        with holding(_current, now):
            yield
    except OverBudget as over:
        if seconds is None:  # another call's was spent
            raise BudgetError(function, f"{over.doing} is not done yet", "call it in a new process", origin) from None
        took = f"would take about {math.ceil(over.more)} s more" if over.more else "is not done yet"
        raise BudgetError(
            function,
            f"{over.doing} {took}, and the budget for compiling it is {seconds:g} s",
            "write loops as operations on whole arrays, or allow more time (budget=60, or None for any)",
            over.origin or (now.origin if now is not None else origin),
        ) from None


@contextlib.contextmanager
def counting(total: Spent) -> Iterator[None]:
    """Count the time of a block for a function, whichever of its parts is built."""
    start = time.process_time()
    try:
        with holding(_spent, total):
            yield
    finally:
        total.building += time.process_time() - start


def spent() -> Spent:
    """What the function that is being built here has spent; nothing where none is."""
    return _spent.get() or Spent()


def blame(origin: Origin | None) -> None:
    """Set the source line that most of what is to be compiled comes from, for the error."""
    now = _current.get()
    if now is not None and origin is not None:
        now.origin = origin


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Do not count the time of a block."""
    now = _current.get()
    if now is None:
        yield
        return
    now.left()
    now.paused += 1
    try:
        yield
    finally:
        now.left()
        now.paused -= 1


def check(doing: str, origin: Origin | None = None) -> None:
    """Raise `OverBudget` if there is no time left.

    Raises:
        OverBudget: there is not.
    """
    now = _current.get()
    if now is not None and not now.paused and now.is_over():
        raise OverBudget(doing, origin)


def within(doing: str, some: Iterable[T]) -> Iterator[T]:
    """The same items, with a `check` before each."""
    for x in some:
        check(doing)
        yield x


def require(doing: str, seconds: float) -> None:
    """Raise `OverBudget` unless at least this many seconds are left, before work that cannot be interrupted.

    Raises:
        OverBudget: there is not.
    """
    now = _current.get()
    if now is not None and not now.paused and seconds > now.left():
        raise OverBudget(doing, more=seconds)


def allowance(expected: float) -> float | None:
    """The seconds after which to give up what cannot be interrupted and was expected to take `expected`; None: never.

    As it was begun it may take longer than expected, and the whole budget once more: beyond that it may well take for
    ever.
    """
    now = _current.get()
    return None if now is None else max(now.seconds, MISJUDGED * expected)


def counted(f: Callable[..., T]) -> Callable[..., T]:
    """The same function, whose time counts in any thread."""
    now = _current.get()
    if now is None:
        return f

    def method(*args: object) -> T:
        now.left()
        try:
            return f(*args)
        finally:
            now.left()

    return method
