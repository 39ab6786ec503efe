"""Forks: a child must not inherit a kernel, a compilation or an import that another thread is in the middle of.

Threads pass through gates where they build or run kernels. A fork closes the gates, waits for those inside, and opens
them again.

The handler that was registered last runs first. That of `concurrent.futures.thread` takes a lock that a pool's threads
need, so that a thread inside a gate could not go on: that module is imported before the handler here is registered.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

with contextlib.suppress(RuntimeError):  # where hjit itself is imported when the main thread has ended
    importlib.import_module("concurrent.futures.thread")

log = logging.getLogger("hjit")

# How long a fork waits for other threads: those that build a kernel, which may themselves wait for the forking one, and
# those that run a kernel (see `before_fork`). Both are far above what most of them take.
BUILD_SECONDS = 10.0
KERNEL_SECONDS = 1.0
POLL_SECONDS = 1e-4  # between two looks at who is still inside


class Gate:
    """A gate that threads pass through; it costs one check of a flag while there is no fork."""

    def __init__(self) -> None:
        self._inside: dict[int, int] = {}  # by thread, how often it has entered
        self._closed: threading.Event | None = None

    def close(self, seconds: float) -> bool:
        """Keep other threads out, and wait for those inside; have all left?"""
        me, deadline = threading.get_ident(), time.monotonic() + seconds
        self._closed = threading.Event()
        while any(thread != me for thread in tuple(self._inside)):
            if time.monotonic() > deadline:
                log.debug("a fork did not wait for threads inside hjit")
                return False
            time.sleep(POLL_SECONDS)
        return True

    def open(self) -> None:
        """Reopen the gate after the fork, in the parent."""
        closed, self._closed = self._closed, None
        if closed is not None:
            closed.set()

    def reset(self) -> None:
        """Reset the gate after the fork, in the child, which has no other threads."""
        self._inside.clear()
        self._closed = None

    def __enter__(self) -> None:
        me, inside = threading.get_ident(), self._inside
        depth = inside.get(me, 0)
        inside[me] = depth + 1
        while self._closed is not None and not depth:
            closed = self._closed
            inside.pop(me, None)
            closed.wait()
            inside[me] = 1

    def __exit__(self, *exc: object) -> None:
        me, inside = threading.get_ident(), self._inside
        depth = inside.pop(me, 1)
        if depth > 1:
            inside[me] = depth - 1

    @contextlib.contextmanager
    def outside(self) -> Iterator[None]:
        """Leave the gate while the user's own code runs: it may take any time, fork, or wait for another thread."""
        me, inside = threading.get_ident(), self._inside
        depth = inside.pop(me, 0)
        try:
            yield
        finally:
            if depth:
                self.__enter__()
                inside[me] = depth


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
    builds.close(BUILD_SECONDS)
    rested = kernels.close(KERNEL_SECONDS)
    _wait_for_imports()
    for tell in before_fork:
        tell(rested)
    lock = compiler_lock()
    if lock is not None and not unfinished():
        lock.acquire()
        _held.append(lock)


def _after(settle: Callable[[Gate], None]) -> None:
    while _held:
        _held.pop().release()
    for gate in (kernels, builds):
        settle(gate)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(Gate.open), after_in_child=lambda: _after(Gate.reset)
    )
