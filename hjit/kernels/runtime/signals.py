"""Work aside of the main thread, where no signal handler can raise in the middle of it.

A Ctrl-C between two Python statements of LLVM's bindings leaves a module with two owners; one inside a callback of compiled
code leaves tasks undone. Python runs signal handlers in the main thread only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
_pools: dict[tuple[str, int], ThreadPoolExecutor] = {}


def submit(purpose: str, n: int, f: Callable[..., T], *args: Any) -> Future[T]:
    """Run a function in a pool of `n` threads; here where the interpreter is shutting down."""
    pool = _pools.get((purpose, n))
    if pool is None:
        pool = _pools.setdefault((purpose, n), ThreadPoolExecutor(n, thread_name_prefix=f"hjit-{purpose}"))
    try:
        return pool.submit(f, *args)
    except RuntimeError:
        done: Future[T] = Future()
        done.set_result(f(*args))
        return done


def undisturbed(f: Callable[..., T], *args: Any) -> T:
    """``f(*args)``; what a signal handler raises meanwhile is raised after it."""
    if threading.current_thread() is not threading.main_thread():
        return f(*args)
    call = submit("calls", 1, f, *args)
    raised: BaseException | None = None
    while not call.done():
        try:
            call.exception()
        except BaseException as signal:
            raised = signal
    if raised is not None:
        raise raised
    return call.result()


def after_fork() -> None:
    """A child has none of its parent's threads."""
    _pools.clear()
