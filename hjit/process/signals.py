"""Signal-safe execution: in a thread that is not the main one, no signal handler can raise in the middle of the work.

A Ctrl-C between two Python statements of LLVM's bindings leaves a module with two owners; one inside a callback of
compiled code leaves tasks undone. Python runs signal handlers in the main thread only.

The threads are not those of `ThreadPoolExecutor`: that accepts no work once the main thread has ended, `atexit`
functions included, and takes a process-wide lock for each item of work, which a fork may hold.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from hjit.process import threads

T = TypeVar("T")
POLL_SECONDS = 0.25  # between two looks at the time that a call has taken


class _Pool:
    """At most `n` worker threads, which end with the process."""

    def __init__(self, purpose: str, n: int) -> None:
        self._purpose, self._n = purpose, n
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = queue.SimpleQueue()
        self._threads = 0
        self._lock = threading.RLock()  # a signal handler may come here in the middle, and call a pipeline

    def run(self, done: Future[T], f: Callable[..., T], *args: Any) -> None:
        """Call a function in one of the threads, or in this one where there is no other."""
        if threads.are_greenlets():
            _call(done, f, args)
            return
        if self._threads < self._n:
            with self._lock:
                self._start()
        if self._threads and not sys.is_finalizing():
            self._work.put((done, f, args))
        else:
            _call(done, f, args)

    def _start(self) -> None:
        if self._threads == self._n:
            return
        try:
            threads.start(f"hjit-{self._purpose}", self._serve)
        except RuntimeError:
            return
        self._threads += 1

    def _serve(self) -> None:
        while True:
            _call(*self._work.get())


def _call(done: Future[T], f: Callable[..., T], args: tuple[Any, ...]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = f(*args)
    except BaseException as error:
        done.set_exception(error)
        del done  # the traceback holds this frame
    else:
        done.set_result(result)


_pools: dict[tuple[str, int], _Pool] = {}


def submit(purpose: str, n: int, f: Callable[..., T], *args: Any) -> Future[T]:
    """Run a function in a pool of `n` threads; in this one if the interpreter is shutting down."""
    done: Future[T] = Future()
    _pool(purpose, n).run(done, f, *args)
    return done


def _pool(purpose: str, n: int) -> _Pool:
    pool = _pools.get((purpose, n))
    return pool if pool is not None else _pools.setdefault((purpose, n), _Pool(purpose, n))


def signal_safe(f: Callable[..., T], *args: Any) -> T:
    """``f(*args)``, uninterrupted: an exception from a signal handler is raised afterwards."""
    if threading.current_thread() is not threading.main_thread():
        return f(*args)
    call: Future[T] = Future()
    raised: BaseException | None = None
    try:
        _pool("calls", 1).run(call, f, *args)
    except BaseException as signal:
        if call.cancel():  # before it began
            raise
        raised = signal
    try:
        return result_of(call, raised)
    finally:
        del call, raised  # the traceback holds this frame


def result_of(call: Future[T], raised: BaseException | None = None) -> T:
    """The result of a call in another thread.

    What a signal handler raises meanwhile, or has `raised` before, is raised afterwards.
    """
    while not call.done():
        try:
            call.exception()
        except BaseException as signal:
            raised = signal
    try:
        if raised is not None:
            raise raised
        return call.result()
    finally:
        del call, raised  # the traceback holds this frame


def after_fork() -> None:
    """A child has none of its parent's threads."""
    _pools.clear()


class Unfinished(Exception):
    """A call has used up its time, and continues.

    Attributes:
        call: what becomes of it.
        raised: what a signal handler has raised meanwhile, if any.
    """

    def __init__(self, call: Future[Any], raised: BaseException | None = None) -> None:
        super().__init__()
        self.call, self.raised = call, raised


def bounded(seconds: float | None, f: Callable[..., T], *args: Any) -> T:
    """``f(*args)`` in a thread of its own, for `seconds` of the processor's time (None: any); else as `signal_safe`.

    Raises:
        Unfinished: it takes longer.
    """
    if threads.are_greenlets() or not hasattr(time, "pthread_getcpuclockid"):
        return signal_safe(f, *args)
    call: Future[T] = Future()
    try:
        thread = threads.start("hjit-bounded", _call, call, f, args)
    except RuntimeError:
        return f(*args)
    raised: BaseException | None = None
    is_over = False
    while not call.done() and not is_over:
        try:
            wait((call,), POLL_SECONDS)  # raises nothing: a `TimeoutError` is a signal handler's
            if not call.done() and seconds is not None and thread.ident is not None:
                is_over = _spent(thread.ident) > seconds
        except BaseException as signal:
            raised = signal
    if is_over:
        raise Unfinished(call, raised)
    return result_of(call, raised)


def _spent(thread: int) -> float:
    """Seconds of the processor's time that a running thread has taken."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:  # it has just ended
        return 0.0
