"""Forks: a child must not inherit a kernel, a compilation or an import that another thread is in the middle of.

Threads pass through gates where they build or run kernels. A fork closes the gates, waits for those inside, and opens
them again.

The handler that was registered last runs first. That of `concurrent.futures.thread` takes a lock that a pool's threads
need, so that a thread inside a gate could not go on: that module is imported before the handler here is registered.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

with contextlib.suppress(RuntimeError):  # where hjit itself is imported when the main thread has ended
    importlib.import_module("concurrent.futures.thread")

log = logging.getLogger("hjit")

# How long a fork waits for other threads: those that build a kernel, which may themselves wait for the forking one, and
# those that run a kernel (see `before_fork`). Both are far above what most of them take.
BUILD_SECONDS = 10.0
KERNEL_SECONDS = 1.0
TAKE_SECONDS = 1e-3  # between two looks at which lock is that of a thread
TRIES = 5  # of what is done before a fork and is interrupted
POLL_SECONDS = 1e-4  # between two looks at what is half imported
MANY_THREADS = 64  # whose locks are kept before those of threads that have ended are dropped

Lock = Any  # of `threading.RLock`, whose type has no name


class Gate:
    """A gate that threads pass through: each holds a lock of its own inside, and a fork takes the locks of all others.

    The locks are Python's own in C: what a signal handler raises comes before such a lock is taken by a ``with``
    statement, or when it will be released by it, while a function in Python may end before it has released anything.
    """

    def __init__(self) -> None:
        self._locks: dict[int, Lock] = {}  # by thread
        self._closing = threading.RLock()  # held by the thread that has closed the gate
        self._taken: list[Lock] = []  # by that thread
        self.is_closed = False

    def inside(self) -> Lock:
        """The lock to hold inside, ``with gate.inside():``; while there is no fork, that is free."""
        lock = self._locks.get(threading.get_ident())
        if lock is None:
            lock = self._new()
        elif self.is_closed and not lock._is_owned():
            if self._closing._is_owned():  # type: ignore[attr-defined]
                _after_in_parent()  # a fork of this thread is over, and was interrupted before it opened the gates
            with self._closing:  # until it is open again
                pass
        return lock

    def _new(self) -> Lock:
        with self._closing:
            if len(self._locks) >= MANY_THREADS:
                alive = sys._current_frames()
                for thread in [t for t, lock in self._locks.items() if t not in alive and not _is_held(lock)]:
                    self._locks.pop(thread, None)
            return self._locks.setdefault(threading.get_ident(), threading.RLock())

    def close(self, seconds: float) -> bool:
        """Keep other threads out, and wait for those inside; have all left? Called again where it was interrupted."""
        me, deadline = threading.get_ident(), time.monotonic() + seconds
        own = self._locks.get(me)
        is_inside = own is not None and own._is_owned()  # then another thread that forks may wait for this one
        is_closing = self._closing._is_owned()  # type: ignore[attr-defined]
        if not is_closing and not self._closing.acquire(timeout=0 if is_inside else seconds):
            return False
        self.is_closed = True
        return all(self._take(thread, deadline) for thread in [*self._locks] if thread != me)

    def _take(self, thread: int, deadline: float) -> bool:
        """Take the lock of another thread, which has another one while it is outside; is it taken in time?"""
        while True:
            lock = self._locks[thread]
            if lock._is_owned():
                return True
            self._taken.append(lock)  # first: one that has not been taken is not released
            if lock.acquire(timeout=TAKE_SECONDS):
                return True
            self._taken.pop()
            if time.monotonic() > deadline:
                log.debug("a fork did not wait for threads inside hjit")
                return False

    def open(self) -> None:
        """Reopen the gate after the fork, in the parent; it may be called again where it was interrupted."""
        if not self._closing._is_owned():  # type: ignore[attr-defined]  # another thread has closed it
            return
        while self._taken:
            _release(self._taken[-1])
            self._taken.pop()
        self.is_closed = False
        self._closing.release()

    def reset(self) -> None:
        """Reset the gate after the fork, in the child, which has no other threads."""
        self._taken.clear()
        self._locks, self._closing, self.is_closed = {}, threading.RLock(), False

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Leave the gate while the user's own code runs: it may take any time, fork, or wait for another thread."""
        me, lock = threading.get_ident(), self.inside()
        locks = self._locks
        try:
            locks[me] = threading.RLock()
            yield
        finally:
            with self._closing:
                locks[me] = lock


def _is_held(lock: Lock) -> bool:
    """Is a thread inside, which is another one or none?"""
    if not lock.acquire(blocking=False):
        return True
    lock.release()
    return False


def _release(lock: Lock) -> None:
    with contextlib.suppress(RuntimeError):  # this thread does not hold it: it gave up waiting
        lock.release()


builds = Gate()
kernels = Gate()
before_fork: list[Callable[[bool], None]] = []  # called before a fork, gates closed: is no other thread in `kernels`?


def compiler_lock() -> Any:
    """numba's global compiler lock, if numba is loaded."""
    module = sys.modules.get("numba.core.compiler_lock")
    return getattr(module, "global_compiler_lock", None)


_held: list[Any] = []


def _never() -> bool:
    return False


unfinished: Callable[[], bool] = _never  # does an abandoned compilation hold the lock?


def _wait_for_imports() -> None:
    """Wait until no thread is importing hjit's modules: in the child, a half-finished import never ends.

    Threads that tune in the background import some outside the gates.
    """
    deadline = time.monotonic() + BUILD_SECONDS
    while any(map(_is_half_imported, [*sys.modules.items()])) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _is_half_imported(item: tuple[str, Any]) -> bool:
    name, module = item
    return name.partition(".")[0] in _PACKAGES and getattr(getattr(module, "__spec__", None), "_initializing", False)


_PACKAGES = {"hjit", "numba", "llvmlite"}


def _before() -> None:
    rested: list[bool] = []
    steps: list[Callable[[], object]] = [
        lambda: builds.close(BUILD_SECONDS),
        lambda: rested.append(kernels.close(KERNEL_SECONDS)),
        _wait_for_imports,
        *(functools.partial(_tell, tell, rested) for tell in before_fork),
        _hold_compiler_lock,
    ]
    _all(steps)


def _tell(tell: Callable[[bool], None], rested: list[bool]) -> None:
    tell(bool(rested and rested[-1]))


def _hold_compiler_lock() -> None:
    lock = compiler_lock()
    if lock is not None and not unfinished():
        _held.append(lock)
        lock.acquire()


def _release_compiler_lock() -> None:
    while _held:
        _release(_held[-1])
        _held.pop()


def _after_in_parent() -> None:
    try:
        _settle(Gate.open)
    except BaseException:  # Python ignores it: nobody else would
        _settle(Gate.open)
        raise


def _after_in_child() -> None:
    try:
        _settle(Gate.reset)
    except BaseException:
        _settle(Gate.reset)
        raise


def _settle(settle: Callable[[Gate], None]) -> None:
    """Let other threads go on; what an interrupted call of it has done already does not matter."""
    _release_compiler_lock()
    settle(kernels)
    settle(builds)


def _all(steps: Sequence[Callable[[], object]]) -> None:
    """Do all of this, and a step again that was interrupted: Python ignores what a signal handler raises, and forks."""
    raised: BaseException | None = None
    for step in steps:
        for _ in range(TRIES):
            try:
                step()
                break
            except BaseException as error:
                raised = error
    if raised is not None:
        raise raised


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
