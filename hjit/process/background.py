"""A background thread for low-priority work, one item at a time, first in, first out.

The thread is a daemon that starts with the first item and ends when none is left. At the interpreter's exit, no further
item is started, and the current one is asked to end and waited for. A forked child has neither the thread nor its work.
An item belongs to an object: once that is gone, the item is asked to end, or is not started.
"""

from __future__ import annotations

import atexit
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

log = logging.getLogger("hjit")

MAX_WAITING = 16  # pieces, each with copies of the arrays of a call; what is more is not done
LAST_SECONDS = 10.0  # that the interpreter's exit waits: a compilation cannot be interrupted

Work = Callable[[Any, Callable[[], bool]], None]  # given what gives the owner, and what says whether to end


class _Worker:
    """The background thread and its queue."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may come here in the middle, and call a pipeline
        self._waiting: deque[tuple[weakref.ref[Any], Work]] = deque()
        self._thread: threading.Thread | None = None
        self._ends = False
        self._is_registered = False

    def submit(self, owner: Any, work: Work) -> bool:
        """Queue some work; False if there is too much already, or the interpreter is shutting down."""
        with self._lock:
            if self._ends or len(self._waiting) >= MAX_WAITING:
                return False
            self._waiting.append((weakref.ref(owner), work))
            if not self._is_registered:  # after those of what the work uses, so that it runs before them
                self._is_registered = True
                atexit.register(self.end)
            if self._thread is None:
                try:
                    self._thread = threading.Thread(target=self._serve, name="hjit-background", daemon=True)
                    self._thread.start()
                except BaseException as error:  # it may have started: it ends where it is not the one
                    self._thread = None
                    self._waiting.clear()
                    if not isinstance(error, RuntimeError):  # "can't start new thread", at shutdown or without memory
                        raise
                    return False
        return True

    def _serve(self) -> None:
        while True:
            with self._lock:
                if self._thread is not threading.current_thread():
                    return
                if self._ends or not self._waiting:
                    self._thread = None
                    return
                owner, work = self._waiting.popleft()
            if owner() is None:
                continue

            def is_over(owner: weakref.ref[Any] = owner) -> bool:
                return self._ends or owner() is None

            try:
                work(owner, is_over)
            except Exception as error:  # there is no caller to raise it to
                log.debug("work in the background has failed: %s: %s", type(error).__name__, error)
            del owner, work, is_over

    def end(self, seconds: float = LAST_SECONDS) -> bool:
        """Ask the current work to end, and start no other. Has it ended in time?"""
        with self._lock:
            self._ends = True
            self._waiting.clear()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)
            return not thread.is_alive()
        return True

    def wait(self, seconds: float) -> bool:
        """Wait until all is done; is it?"""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return self._thread is None


_worker = _Worker()


def submit(owner: Any, work: Work) -> bool:
    """Do some work for an object in the background; False where it will not be done.

    Args:
        work: takes what gives the object, or None once it is gone, and what says whether to end.
    """
    return _worker.submit(owner, work)


def wait(seconds: float) -> bool:
    """Wait until all work is done; is it?"""
    return _worker.wait(seconds)


def after_fork() -> None:
    """A child has neither the thread nor its work."""
    global _worker
    atexit.unregister(_worker.end)
    _worker = _Worker()
