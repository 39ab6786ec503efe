"""Work aside of the main thread, where no signal handler can raise in the middle of it.

A Ctrl-C between two Python statements of LLVM's bindings leaves a module with two owners; one inside a callback of compiled
code leaves tasks undone. Python runs signal handlers in the main thread only.

The threads are not those of `ThreadPoolExecutor`, which takes no work any more once the main thread has ended, `atexit` functions included,
and takes a lock of the process for each piece of work, which a fork may hold.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, TimeoutError
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
DEEPEST = 10_000  # frames: a graph's expressions are some hundred deep, and take a few frames for each level
LOOK = 0.25  # seconds between two looks at the time that a call has taken
STACK = 256 << 20  # bytes; of address space, memory is taken as it is used


class _Pool:
    """At most `n` threads that wait for work; they end with the process."""

    def __init__(self, purpose: str, n: int) -> None:
        self._purpose, self._n = purpose, n
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = queue.SimpleQueue()
        self._threads = 0
        self._lock = threading.Lock()

    def run(self, done: Future[T], f: Callable[..., T], *args: Any) -> None:
        """Call a function in one of the threads, or here where the interpreter starts none any more."""
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
            threading.Thread(target=self._serve, name=f"hjit-{self._purpose}", daemon=True).start()
        except RuntimeError:  # "can't start new thread", at shutdown or for want of memory
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
    """Run a function in a pool of `n` threads; here where the interpreter is shutting down."""
    done: Future[T] = Future()
    _pool(purpose, n).run(done, f, *args)
    return done


def _pool(purpose: str, n: int) -> _Pool:
    pool = _pools.get((purpose, n))
    return pool if pool is not None else _pools.setdefault((purpose, n), _Pool(purpose, n))


def undisturbed(f: Callable[..., T], *args: Any) -> T:
    """``f(*args)``; what a signal handler raises meanwhile is raised after it."""
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
    """What comes of a call in another thread; what a signal handler raises meanwhile, or has `raised` before, is raised after it."""
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


class Unfinished(Exception):
    """A call has taken its time, and goes on.

    Attributes:
        call: what becomes of it.
    """

    def __init__(self, call: Future[Any]) -> None:
        super().__init__()
        self.call = call


def bounded(seconds: float | None, f: Callable[..., T], *args: Any) -> T:
    """``f(*args)`` in a thread of its own, for `seconds` of the processor's time; else as `undisturbed`.

    Raises:
        Unfinished: it takes longer.
    """
    if seconds is None or not hasattr(time, "pthread_getcpuclockid"):
        return undisturbed(f, *args)
    call: Future[T] = Future()
    thread = threading.Thread(target=_call, args=(call, f, args), name="hjit-bounded", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # "can't start new thread"
        return f(*args)
    raised: BaseException | None = None
    while not call.done():
        try:
            call.exception(timeout=LOOK)
        except TimeoutError:
            if not call.done() and thread.ident is not None and _spent(thread.ident) > seconds:
                raise raised or Unfinished(call) from None
        except BaseException as signal:
            raised = signal
    return result_of(call, raised)


def _spent(thread: int) -> float:
    """Seconds of the processor's time that a running thread has taken."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except OSError:  # it has just ended
        return 0.0


def with_room(f: Callable[..., T], *args: Any) -> T:
    """``f(*args)``, also where the caller's stack leaves too little of it: then once more, in a thread with a stack of its own.

    `f` may be called twice. The caller's context holds there, too. While it runs, other threads may recurse deeper as well.
    """
    if _room.taken.get():
        return f(*args)
    token = _room.taken.set(True)
    try:
        return f(*args)
    except RecursionError:
        pass
    finally:
        _room.taken.reset(token)
    return _room.run(f, *args)


class _Room:
    """Threads with large stacks, and the recursion limit while there are any."""

    def __init__(self) -> None:
        self.taken = ContextVar("taken", default=False)  # who catches what is too deep is known already
        self._lock = threading.Lock()
        self._threads, self._limit = 0, 0

    def run(self, f: Callable[..., T], *args: Any) -> T:
        done: Future[T] = Future()
        context = copy_context()
        context.run(self.taken.set, True)

        def work() -> None:
            try:
                result = context.run(f, *args)
            except BaseException as error:
                self._leave()
                done.set_exception(error)
            else:
                self._leave()
                done.set_result(result)

        self._enter(work)
        return result_of(done)

    def _enter(self, work: Callable[[], None]) -> None:
        with self._lock:
            if not self._threads:  # first of all: to start a thread takes frames, too
                self._limit = sys.getrecursionlimit()
                sys.setrecursionlimit(max(self._limit, DEEPEST))
            self._threads += 1
            size = threading.stack_size(STACK)
            try:
                threading.Thread(target=work, name="hjit-room", daemon=True).start()
            except RuntimeError:  # the interpreter is shutting down, or there is no memory for a thread
                self._threads -= 1
                if not self._threads:
                    sys.setrecursionlimit(self._limit)
                raise RecursionError("maximum recursion depth exceeded, and no thread can be started") from None
            finally:
                threading.stack_size(size)

    def after_fork(self) -> None:
        """The child has no such thread; nor whoever held the lock."""
        if self._threads:
            sys.setrecursionlimit(self._limit)
        self._lock, self._threads = threading.Lock(), 0

    def _leave(self) -> None:
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                sys.setrecursionlimit(self._limit)


_room = _Room()


def after_fork() -> None:
    """A child has none of its parent's threads."""
    _pools.clear()
    _room.after_fork()
