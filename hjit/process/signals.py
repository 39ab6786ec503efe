"""Signal-safe execution: in a thread that is not the main one, no signal handler can raise in the middle of the work.

A Ctrl-C between two Python statements of LLVM's bindings leaves a module with two owners; one inside a callback of
compiled code leaves tasks undone. Python runs signal handlers in the main thread only.

The threads are not those of `ThreadPoolExecutor`: that accepts no work once the main thread has ended, `atexit`
functions included, and takes a process-wide lock for each item of work, which a fork may hold.
"""

from __future__ import annotations

import _imp
import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from hjit.process import threads

T = TypeVar("T")
POLL_SECONDS = 0.25  # between two looks at the time that a call has taken, and at whether it has ended


class Call(Generic[T]):
    """A call in another thread, and what becomes of it.

    Not a `concurrent.futures.Future`: its lock is taken by functions in Python, and one that a signal handler's
    exception ends there keeps it, so that the other thread would wait for ever. Here that thread waits for no lock.

    Attributes:
        done: has it returned or raised, or been cancelled?
    """

    def __init__(self) -> None:
        self.done = False
        self._claimed = threading.Lock()  # by who runs it, or by who cancels it
        self._running = threading.Lock()
        self._running.acquire()
        self._result: T | None = None
        self._error: BaseException | None = None

    def cancel(self) -> bool:
        """Keep it from beginning; False if it has begun."""
        if not self._claimed.acquire(blocking=False):
            return False
        self.end(error=RuntimeError("the call was cancelled"))
        return True

    def begins(self) -> bool:
        """Claim it for this thread, which is to call `end`; False if it is cancelled."""
        return self._claimed.acquire(blocking=False)

    def end(self, result: T | None = None, error: BaseException | None = None) -> None:
        """Say what has become of it: once."""
        self._result, self._error = result, error
        self.done = True
        self._running.release()

    def wait(self, seconds: float = POLL_SECONDS) -> None:
        """Wait until it is done, but not longer than that."""
        if not self.done and self._running.acquire(timeout=seconds):
            self._running.release()  # for the next who waits; one that does not come here looks at `done` again

    def result(self) -> T:
        """What it has returned, once it is done.

        Raises:
            BaseException: what it has raised.
        """
        while not self.done:
            self.wait()
        try:
            if self._error is not None:
                raise self._error
            return cast(T, self._result)
        finally:
            del self  # the traceback holds this frame


class _Pool:
    """At most `n` worker threads, which end with the process."""

    def __init__(self, purpose: str, n: int) -> None:
        self._purpose, self._n = purpose, n
        self._work: queue.SimpleQueue[tuple[Call[Any], Callable[..., Any], tuple[Any, ...]]] = queue.SimpleQueue()
        self._threads = 0
        self._lock = threading.RLock()  # a signal handler may come here in the middle, and call a pipeline

    def run(self, done: Call[T], f: Callable[..., T], *args: Any) -> None:
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


def _call(done: Call[T], f: Callable[..., T], args: tuple[Any, ...]) -> None:
    if not done.begins():
        return
    try:
        result = f(*args)
    except BaseException as error:
        done.end(error=error)
        del done  # the traceback holds this frame
    else:
        done.end(result)


_pools: dict[tuple[str, int], _Pool] = {}


def submit(purpose: str, n: int, f: Callable[..., T], *args: Any) -> Call[T]:
    """Run a function in a pool of `n` threads; in this one if the interpreter is shutting down."""
    done: Call[T] = Call()
    _pool(purpose, n).run(done, f, *args)
    return done


def _pool(purpose: str, n: int) -> _Pool:
    pool = _pools.get((purpose, n))
    return pool if pool is not None else _pools.setdefault((purpose, n), _Pool(purpose, n))


def signal_safe(f: Callable[..., T], *args: Any) -> T:
    """``f(*args)``, uninterrupted: an exception from a signal handler is raised afterwards."""
    if threading.current_thread() is not threading.main_thread():
        return f(*args)
    call: Call[T] = Call()
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


def result_of(call: Call[T], raised: BaseException | None = None) -> T:
    """The result of a call in another thread.

    What a signal handler raises meanwhile, or has `raised` before, is raised afterwards.
    """
    raised = _wait_until(call, lambda: False, raised)
    try:
        if raised is not None:
            raise raised
        return call.result()
    finally:
        del call, raised  # the traceback holds this frame


def _wait_until(call: Call[Any], is_over: Callable[[], bool], raised: BaseException | None) -> BaseException | None:
    """Wait until a call is done or its time over; the latest exception of a signal handler, `raised` before or now."""
    while True:
        try:  # the inner loop's jumps are places, too, where signal handlers are called
            while not (call.done or is_over()):
                _release_import_lock()
                call.wait()
        except BaseException as signal:
            raised = signal
        else:
            return raised


def _release_import_lock() -> None:
    """Release Python's lock of all imports if this thread was interrupted where it held it: others may import.

    ``importlib._bootstrap._get_module_lock`` takes it before the `try` that releases it.
    """
    if not _imp.lock_held() or _is_importing():
        return
    with contextlib.suppress(RuntimeError):  # another thread holds it
        _imp.release_lock()


def _is_importing() -> bool:
    """Is a function of the import system among the callers that hold its lock for a moment?"""
    frame = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name in _LOCKING and code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


_LOCKING = {"_get_module_lock", "cb"}


def after_fork() -> None:
    """A child has none of its parent's threads."""
    _pools.clear()


class Unfinished(Exception):
    """A call has used up its time, and continues.

    Attributes:
        call: what becomes of it.
        raised: what a signal handler has raised meanwhile, if any.
    """

    def __init__(self, call: Call[Any], raised: BaseException | None = None) -> None:
        super().__init__()
        self.call, self.raised = call, raised


def bounded(seconds: float | None, f: Callable[..., T], *args: Any) -> T:
    """``f(*args)`` in a thread of its own, for `seconds` of the processor's time (None: any); else as `signal_safe`.

    Raises:
        Unfinished: it takes longer.
    """
    if threads.are_greenlets() or not hasattr(time, "pthread_getcpuclockid"):
        return signal_safe(f, *args)
    call: Call[T] = Call()
    try:
        thread = threads.start("hjit-bounded", _call, call, f, args)
    except RuntimeError:
        return f(*args)
    raised = _wait_until(call, lambda: _is_over(thread, seconds), None)
    if not call.done:
        raise Unfinished(call, raised)
    return result_of(call, raised)


def _is_over(thread: threading.Thread, seconds: float | None) -> bool:
    """Has a thread used up its time?"""
    return seconds is not None and thread.ident is not None and _spent(thread.ident) > seconds


def _spent(thread: int) -> float:
    """Seconds of the processor's time that a running thread has taken."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:  # it has just ended
        return 0.0
