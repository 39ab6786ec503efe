"""Threads: one ``parallel_for`` that a kernel's driver calls through its address.

numba's tbb layer where its library is found: cheap to enter, alive after ``os.fork()``, callable from many threads at
once. Elsewhere a pool of Python threads that enter the compiled code without the GIL; it survives the same three.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

log = logging.getLogger("hjit")

_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_FOR = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p, ctypes.c_void_p,
    ctypes.c_int64, ctypes.c_int64, ctypes.c_int32,
)


@lru_cache(maxsize=1)
def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads(wanted: int) -> int:
    """The number of threads for the option `num_threads`."""
    return cores() if wanted == 0 else min(wanted, cores())


@lru_cache(maxsize=1)
def parallel_for() -> tuple[int, str]:
    """The address of ``parallel_for`` and the layer that it belongs to, "tbb" or "python"."""
    with _start_lock:
        address = _tbb() if os.environ.get("HJIT_THREADING_LAYER", "tbb") == "tbb" else 0
        if address:
            return address, "tbb"
        log.debug("no tbb: using Python threads")
        return ctypes.cast(_python_for, ctypes.c_void_p).value or 0, "python"


_start_lock = threading.Lock()


def _tbb() -> int:
    for path in _tbb_libraries():
        try:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
            break
        except OSError:
            continue
    try:
        pool = importlib.import_module("numba.np.ufunc.tbbpool")
    except ImportError:
        return 0
    ctypes.CFUNCTYPE(None, ctypes.c_int)(pool.launch_threads)(cores())
    return int(pool.parallel_for)


def _tbb_libraries() -> Iterator[str | Path]:
    """Where the wheel `tbb` puts its library, then what the system has."""
    roots = [Path(sys.prefix), Path(sysconfig.get_path("purelib")).parents[2], Path(sys.base_prefix)]
    for root in dict.fromkeys(roots):
        for folder in ("lib", "Library/bin", "lib64"):
            yield from sorted((root / folder).glob("libtbb.so.12*")) or sorted((root / folder).glob("*tbb12.d*"))
    yield "libtbb.so.12"


# -- without tbb

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_inside = threading.local()


def _pool(n: int) -> ThreadPoolExecutor:
    """The pool of this process; after a fork the child makes its own."""
    key = (os.getpid(), n)
    found = _pools.get(key)
    if found is None:
        found = _pools.setdefault(key, ThreadPoolExecutor(n, thread_name_prefix="hjit"))
    return found


def _run(address: int, first: int, count: int, data: int) -> None:
    args, dims, steps = ctypes.c_int64(first), ctypes.c_int64(count), ctypes.c_int64(1)
    _TASK(address)(ctypes.addressof(args), ctypes.addressof(dims), ctypes.addressof(steps), data)


@_FOR
def _python_for(fn: Any, args: Any, dims: Any, steps: Any, data: Any, inner: int, arrays: int, n: int) -> None:
    total = dims[0]
    if getattr(_inside, "task", False) or n <= 1:
        _run(fn, 0, total, data)
        return

    def task(first: int, count: int) -> None:
        _inside.task = True
        try:
            _run(fn, first, count, data)
        finally:
            _inside.task = False

    edges = [total * k // n for k in range(n + 1)]
    pending = [_pool(n).submit(task, a, b - a) for a, b in zip(edges[1:], edges[2:], strict=False) if b > a]
    task(0, edges[1])
    for p in pending:
        p.result()
