"""Signal handlers that raise, or call pipelines themselves, in the middle of hjit's own work."""

from __future__ import annotations

import _imp
import concurrent.futures._base
import ctypes
import dis
import functools
import gc
import importlib
import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.errors import raise_if_signalled
from hjit.kernels.runtime import arena
from hjit.process import garbage_collection, signals, threads
from hjit.process.garbage_collection import few_collections
from hjit.process.signals import Unfinished, bounded
from hjit.process.state import TABLE

IMAGE = np.linspace(0, 1, 20).reshape(4, 5)
WAITED = 30.0  # seconds, in vain


class TimeLimit(TimeoutError):
    pass


@pytest.fixture
def limited() -> Iterator[None]:
    """A handler as of job queues: it raises an `Exception`."""

    def method(signum: int, frame: Any) -> None:
        raise TimeLimit

    usual = signal.signal(signal.SIGUSR1, method)
    yield
    signal.signal(signal.SIGUSR1, usual)


def by_signal(thread: int) -> None:
    signal.raise_signal(signal.SIGUSR1)


def after_a_call(thread: int) -> None:
    """As time limits of services that watch their threads do it: it is raised as soon as Python is back from C."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TimeLimit))


def in_a_loop(thread: int) -> None:
    other = threading.Thread(target=after_a_call, args=(thread,))
    other.start()
    while threading.get_ident() == thread:  # else it is raised where that thread waits for this one
        pass


def at_the_start_of_a_function(thread: int) -> None:
    other = threading.Thread(target=after_a_call, args=(thread,))
    other.start()

    def own() -> int:
        return threading.get_ident()

    for _ in iter(lambda: own() == thread, False):
        pass


HANDLING = {"RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}  # after these operations, signal handlers are called
WAYS = (by_signal, after_a_call, in_a_loop, at_the_start_of_a_function)


def interrupting(f: Callable[..., Any], way: Callable[[int], None] = by_signal) -> Callable[..., Any]:
    """A function that something raises in, the first time that it is called."""
    calls: list[int] = []

    def method(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            way(threading.main_thread().ident or 0)
        return f(*args, **kwargs)

    return method


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("hjit.trace.capture.trace", "_traced"),
        ("hjit.call.build", "compiled"),
        ("hjit.kernels.runtime.backend", "compile_module"),
        ("hjit.cache", "_read"),
        ("hjit.cache", "_user_folder"),
    ],
)
def test_what_a_handler_or_another_thread_raises_is_the_callers(
    module: str, name: str, way: Callable[[int], None], limited: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    where = importlib.import_module(module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(where, name, interrupting(getattr(where, name), way))
    is_stored = module == "hjit.cache"
    options = {"cache": "rw" if is_stored else "off", "tune": False, "cache_dir": ""}
    text = name + "." * 64 * WAYS.index(way)  # of another length each, else the kernel is known
    f = hjit.pipeline(lambda a: a * 1.25 - len(text), **options)
    if name == "_read":
        (tmp_path / "hjit").mkdir(mode=0o700)
    with pytest.raises(TimeLimit):
        f(IMAGE)
    np.testing.assert_array_equal(f(IMAGE), f.py_func(IMAGE))
    assert f.stats.fallbacks == 0


def test_how_a_handler_is_known() -> None:
    def raised(f: Callable[..., Any]) -> Exception:
        try:
            f(sys._getframe())
        except Exception as error:
            return error
        raise AssertionError

    def plain(frame: Any) -> None:
        raise TimeLimit

    class Handler:
        def method(self, signum: int, frame: Any) -> None:
            raise TimeLimit

    for f in (lambda frame: Handler().method(1, frame), lambda frame: (lambda *given: 1 / 0)(1, frame)):
        own = raised(lambda _, f=f: f(sys._getframe()))
        with pytest.raises(type(own)):
            raise_if_signalled(own)
    raise_if_signalled(raised(lambda _: plain(None)))
    of_cython = (lambda _: np.random.default_rng(1).integers("a"), lambda _: np.random.default_rng(1).choice(3, a=1))
    of_c = (lambda _: int("x"), lambda _: {}[1], lambda _: np.linalg.inv(np.zeros((2, 2))), lambda _: [].pop())
    for own in (*of_c, *of_cython):
        raise_if_signalled(raised(own))


def test_a_time_limit_ends_what_never_ends(limited: None) -> None:
    ends = threading.Event()

    def long() -> None:
        while not ends.is_set():
            pass

    sent = threading.Timer(0.1, signal.raise_signal, (signal.SIGUSR1,))
    sent.start()
    with pytest.raises(Unfinished) as found:
        bounded(0.5, long)
    ends.set()
    assert isinstance(found.value.raised, TimeLimit)


def in_time(f: Callable[[], None]) -> None:
    """Run a function in a thread, which may not wait for itself."""
    done: signals.Call[None] = signals.Call()
    threading.Thread(target=signals._call, args=(done, f, ()), daemon=True).start()
    done.wait(WAITED)
    assert done.done
    done.result()


def with_calls_between(f: Callable[[], None], between: Callable[[], None], file: str) -> None:
    """Run a function, with a call before each line in a file, as a signal handler makes it."""

    def trace(frame: Any, event: str, arg: object) -> Any:
        if frame.f_code.co_filename != file:
            return None
        if event == "line":
            sys.settrace(None)
            between()
            sys.settrace(trace)
        return trace

    sys.settrace(trace)
    try:
        f()
    finally:
        sys.settrace(None)


def test_a_handler_may_borrow_scratch_memory_in_the_middle() -> None:
    sizes = (64, 100_000, arena.SMALL_BYTES + 64)
    lent: set[int] = set()
    counts: list[int] = []

    def borrowed(size: int, between: Callable[[], None]) -> None:
        block = arena.borrow(size)
        assert block[1] not in lent and block[2] >= size
        lent.add(block[1])
        between()
        lent.discard(block[1])
        arena.give_back(block)

    def handler() -> None:
        counts.append(1)
        borrowed(sizes[len(counts) % 3], lambda: None)

    def run() -> None:
        for size in sizes * 2:
            with_calls_between(lambda size=size: borrowed(size, handler), handler, arena.__file__)

    in_time(run)
    assert len(counts) > 50 and not lent


def test_the_threshold_is_as_before_wherever_a_handler_compiles() -> None:
    usual = gc.get_threshold()

    def compiles() -> None:
        with few_collections():
            assert gc.get_threshold()[0] == garbage_collection.RARE_THRESHOLD

    def handler() -> None:
        with few_collections():
            pass

    in_time(lambda: with_calls_between(compiles, handler, garbage_collection.__file__))
    assert gc.get_threshold() == usual and garbage_collection._inside == 0


# locks that the thread of signal handlers never holds
ELSEWHERE = {"kernels.runtime.backend", "kernels.cuda.compilers.opencl"}


def test_a_handler_waits_for_no_lock_of_its_own_thread() -> None:
    reentrant = type(threading.RLock())
    rows = [(name, x.name) for name, rows in TABLE.items() for x in rows if x.bound == "a lock"]
    found = {(name, x): getattr(importlib.import_module(f"hjit.{name}"), x) for name, x in rows}
    assert {name for (name, _), lock in found.items() if type(lock) is not reentrant} <= ELSEWHERE
    pool = signals._Pool("none", 1)
    assert type(pool._lock) is reentrant


@pytest.mark.parametrize("wait", [functools.partial(bounded, WAITED), signals.signal_safe])
def test_what_is_raised_anywhere_in_a_wait_leaves_the_other_thread_its_locks(
    wait: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal handler does it: in Python's code of threads, locks and waits, wherever handlers are called there."""
    monkeypatch.setattr(threading, "main_thread", threading.current_thread)
    files = {signals.__file__, threading.__file__, threads.__file__, concurrent.futures._base.__file__}
    places = 0

    def interrupted(at: int) -> bool:
        count = itertools.count()
        before: dict[Any, str] = {}

        def trace(frame: Any, event: str, arg: object) -> Any:
            if frame.f_code.co_filename not in files:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                if before.get(frame) in HANDLING and next(count) == at:
                    raise KeyboardInterrupt
                before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            return trace

        def run() -> None:
            sys.settrace(trace)
            try:
                assert wait(time.sleep, 0.001) is None
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(WAITED)
        assert not thread.is_alive(), f"waits for ever where it was interrupted at place {at}"
        return next(count) > at

    while interrupted(places):
        places += 1
    assert places > 20


def test_a_wait_gives_back_the_lock_of_imports_where_an_import_was_interrupted() -> None:
    sys.modules.pop("colorsys", None)
    _imp.acquire_lock()  # as `importlib._bootstrap._get_module_lock`, which an exception ended there
    call = signals.submit("tasks", 2, importlib.import_module, "colorsys")
    end = time.monotonic() + WAITED
    signals._wait_until(call, lambda: time.monotonic() > end, None)
    done = call.done
    while _imp.lock_held():
        _imp.release_lock()
    assert done and call.result().__name__ == "colorsys"


class Importing:
    """A finder of modules that does something in the middle of an import, in a function of this name and file."""

    def __init__(self, name: str, act: Callable[[], Any], function: str, file: str) -> None:
        namespace = {"wanted": name, "act": act}
        text = f"def {function}(name, path, target=None):\n    if name == wanted:\n        act()\n"
        exec(compile(text, file, "exec"), namespace)
        self.find_spec = namespace[function]


@pytest.mark.usefixtures("limited")
def test_what_a_handler_raises_inside_pythons_import_system_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    act = functools.partial(signal.raise_signal, signal.SIGUSR1)
    finder = Importing("nothing_here", act, "_call_with_frames_removed", "<frozen importlib._bootstrap>")
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    try:
        __import__(
            "nothing_here"
        )  # as an import statement does: it takes frames of the import system out of tracebacks
    except TimeLimit as error:
        with pytest.raises(TimeLimit):
            raise_if_signalled(error)
    else:
        pytest.fail("the handler did not run")


def test_a_pipeline_that_is_called_while_hjit_loads_its_modules_runs_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    p = hjit.pipeline(lambda img: img * 2 + 1)
    found: list[Any] = []
    finder = Importing("hjit.nothing_here", lambda: found.append(p(IMAGE)), "find_spec", "finder.py")
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hjit.nothing_here")
    assert np.array_equal(found[0], IMAGE * 2 + 1)
    assert (p.stats.fallbacks, p.stats.traces) == (1, 0)
    assert np.array_equal(p(IMAGE), IMAGE * 2 + 1)
    assert (p.stats.fallbacks, p.stats.traces) == (1, 1)
