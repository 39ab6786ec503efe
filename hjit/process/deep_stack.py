"""Deep recursion: functions on deep expressions run in a thread with a large stack if the caller's is too small."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from hjit.process import threads
from hjit.process.restoring import holding
from hjit.process.signals import Call, result_of

T = TypeVar("T")
RECURSION_LIMIT = 10_000  # frames: a Graph's expressions are some hundred deep, and take a few frames for each level
STACK_BYTES = 256 << 20  # of address space; memory is taken as it is used


def with_deep_stack(f: Callable[..., T], *args: Any) -> T:
    """Call ``f(*args)``, in a thread with a large stack if the caller's is too small.

    Where that shows in the middle, `f` is called a second time. It has the caller's context there, too. Meanwhile,
    other threads may recurse deeper as well.
    """
    if _deep.entered.get():
        return f(*args)
    if threads.has_small_stack():  # the system ends the process before Python raises
        return _deep.run(f, *args)
    try:
        with holding(_deep.entered, True):
            return f(*args)
    except RecursionError:
        pass
    return _deep.run(f, *args)


class _DeepStacks:
    """Threads with large stacks, and the recursion limit while there are any."""

    def __init__(self) -> None:
        self.entered = ContextVar("hjit_deep_stack", default=False)  # an outer call catches the `RecursionError`
        self._lock = threading.RLock()
        self._threads: set[Call[Any]] = set()
        self._limit = 0

    def run(self, f: Callable[..., T], *args: Any) -> T:
        done: Call[T] = Call()
        context = copy_context()
        context.run(self.entered.set, True)

        def work() -> None:
            try:
                result = context.run(f, *args)
            except BaseException as error:
                self._leave(done)
                done.end(error=error)
            else:
                self._leave(done)
                done.end(result)

        self._enter(done, work)
        return result_of(done)

    def _enter(self, done: Call[Any], work: Callable[[], None]) -> None:
        with self._lock:
            if not self._threads:
                self._limit = sys.getrecursionlimit()
            try:
                self._threads.add(done)
                sys.setrecursionlimit(max(self._limit, RECURSION_LIMIT))  # first: to start a thread takes frames, too
                threads.start("hjit-deep-stack", work, stack_bytes=STACK_BYTES)
            except BaseException as error:  # a signal handler's, too
                self._leave(done)
                if not isinstance(error, RuntimeError):
                    raise
                raise RecursionError("maximum recursion depth exceeded, and no thread can be started") from None

    def after_fork(self) -> None:
        """The child has no such thread, nor the thread that held the lock."""
        if self._threads:
            sys.setrecursionlimit(self._limit)
        self._lock, self._threads = threading.RLock(), set()

    def _leave(self, done: Call[Any]) -> None:
        with self._lock:
            if done in self._threads:
                self._threads.remove(done)
                if not self._threads:
                    sys.setrecursionlimit(self._limit)


_deep = _DeepStacks()


def after_fork() -> None:
    """A child has no such thread."""
    _deep.after_fork()
