"""Threads: one ``parallel_for`` that a kernel's driver calls through its address.

numba's TBB layer where its library is found: cheap to enter, callable from many threads at once, usable after
``os.fork()`` if its threads could be ended before. Elsewhere, or with ``HJIT_THREADING_LAYER=python``, a pool of Python
threads that enter the compiled code without the GIL; it survives forks, too.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import itertools
import logging
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from pathlib import Path
from typing import Any

from hjit.errors import OptionError
from hjit.process import forks
from hjit.process.signals import signal_safe, submit

log = logging.getLogger("hjit")

# How long a fork waits for ended threads to leave TBB, and between two looks: most have left after 0.3 ms, on a busy
# machine some took 20 ms. It waits in vain for threads that live on.
END_SECONDS = 0.02
POLL_SECONDS = 1e-4

_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_FOR = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int32,
)


@functools.lru_cache(maxsize=1)
def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads(wanted: int) -> int:
    """The number of threads for the option `num_threads`."""
    return cores() if wanted == 0 else min(wanted, cores())


@functools.lru_cache(maxsize=1)
def parallel_for() -> tuple[int, str]:
    """The address of ``parallel_for`` and the layer that it belongs to, "tbb" or "python".

    Raises:
        OptionError: ``HJIT_THREADING_LAYER`` names another layer.
    """
    wanted = os.environ.get("HJIT_THREADING_LAYER", "tbb")
    if wanted not in ("tbb", "python"):
        raise OptionError(f"HJIT_THREADING_LAYER={wanted!r}: choose one of 'tbb', 'python'")
    with _start_lock:
        address = _tbb() if wanted == "tbb" and not _lost else 0
        if address:
            return address, "tbb"
        log.debug("no tbb: using Python threads")
        return ctypes.cast(_python_for, ctypes.c_void_p).value or 0, "python"


_start_lock = threading.RLock()
_finalize: Callable[[], bool] | None = None  # ends TBB's threads unless they are in use; None if TBB is not loaded
_lost = False  # is this a child whose copy of TBB waits for its parent's threads?


def _tbb() -> int:
    global _finalize
    for path in _tbb_libraries():
        try:
            library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            break
        except OSError:
            continue
    else:
        return 0
    address = tbb_parallel_for()
    if address:
        _finalize = functools.partial(_ended, library)
    return address


def tbb_parallel_for() -> int:
    """The address of numba's ``parallel_for`` of TBB, whose library must be loaded; 0 if numba was built without it.

    `launch_threads` of that module is for numba's own use: its fork handler prints to stdout wherever another thread
    has used TBB.
    """
    name = "numba.np.ufunc.tbbpool"
    module = sys.modules.get(name)
    try:
        return int((module or _extension(name)).parallel_for)
    except (ImportError, AttributeError):
        return 0


def _extension(name: str) -> Any:
    """An extension module of numba without numba itself, whose import takes longer than loading kernels.

    Raises:
        ImportError: there is none.
    """
    package, *folders, _ = name.split(".")
    found = importlib.util.find_spec(package)
    root = found.submodule_search_locations[0] if found is not None and found.submodule_search_locations else ""
    loaders = (ExtensionFileLoader, EXTENSION_SUFFIXES)
    spec = FileFinder(os.path.join(root, *folders), loaders).find_spec(name) if root else None
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _ended(library: Any) -> bool:
    """Wait for TBB's threads to end (they start again when needed); False if another thread still holds them.

    This is ``tbb::finalize(task_scheduler_handle{tbb::attach{}}, std::nothrow)``.
    """
    try:
        get, finalize = (
            library[f"_ZN3tbb6detail2r1{name}"]
            for name in ("3getERNS0_2d121task_scheduler_handleE", "8finalizeERNS0_2d121task_scheduler_handleEl")
        )
    except AttributeError:  # of another version, or another compiler
        return False
    handle = ctypes.c_void_p()
    get.restype, get.argtypes = None, [ctypes.POINTER(ctypes.c_void_p)]
    finalize.restype, finalize.argtypes = ctypes.c_bool, [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ssize_t]
    get(handle)
    return bool(finalize(handle, _WITHOUT_EXCEPTIONS))


_WITHOUT_EXCEPTIONS = 1
_ends = True  # did TBB's threads end before the latest fork?


def _before_fork(rested: bool) -> None:
    """A child has none of its parent's threads: it can use TBB only if that has none either."""
    global _ends
    _ends = _finalize is None  # first: what follows may be interrupted
    if _finalize is not None and rested:
        _ends = _finalized(_finalize)


def _finalized(finalize: Callable[[], bool]) -> bool:
    """Did TBB's threads end, within `END_SECONDS`? A thread that Python has joined may still be leaving TBB."""
    deadline = time.monotonic() + END_SECONDS
    while not finalize():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


forks.before_fork.append(_before_fork)


def _tbb_libraries() -> Iterator[str | Path]:
    """Where the wheel `tbb` puts its library, then the system's own."""
    roots = [Path(sys.prefix), Path(sysconfig.get_path("purelib")).parents[2], Path(sys.base_prefix)]
    for root in dict.fromkeys(roots):
        for folder in ("lib", "Library/bin", "lib64"):
            yield from sorted((root / folder).glob("libtbb.so.12*")) or sorted((root / folder).glob("*tbb12.d*"))
    yield "libtbb.so.12"


def entered(entry: Callable[[Any], int], n: int) -> Callable[[Any], int]:
    """How Python calls compiled code that may use `n` threads."""
    if n == 1:
        return entry
    return functools.partial(_gated if parallel_for()[1] == "tbb" else signal_safe, entry)


def _gated(entry: Callable[[Any], int], data: Any) -> int:
    """Enter compiled code so that a fork waits for it: TBB's threads should be at rest then."""
    if _lost:
        return signal_safe(entry, data)
    with forks.kernels.inside():
        return entry(data)


def after_fork() -> None:
    """Renew the locks, which the parent's other threads may have held; do not use TBB if it has lost its threads."""
    global _start_lock, _lost, _ends
    _start_lock = threading.RLock()
    if not _ends:
        log.debug("a child of a process in which other threads use tbb: using Python threads")
        _lost, _ends = True, True
        parallel_for.cache_clear()


# -- without tbb


def _run(address: int, first: int, count: int, data: int) -> None:
    args, dims, steps = ctypes.c_int64(first), ctypes.c_int64(count), ctypes.c_int64(1)
    _TASK(address)(ctypes.addressof(args), ctypes.addressof(dims), ctypes.addressof(steps), data)


def _run_tasks(fn: int, args: Any, dims: Any, steps: Any, data: int, inner: int, arrays: int, n: int) -> None:
    total = dims[0]
    edges = [total * k // n for k in range(n + 1)]
    pending = [submit("tasks", n, _run, fn, a, b - a, data) for a, b in itertools.pairwise(edges[1:]) if b > a]
    _run(fn, 0, edges[1], data)
    for p in pending:
        p.result()


_python_for = _FOR(_run_tasks)
