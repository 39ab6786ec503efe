"""Threads: one ``parallel_for`` that a kernel's driver calls through its address.

numba's tbb layer where its library is found: cheap to enter, alive after ``os.fork()``, callable from many threads at
once. Elsewhere, or with ``HJIT_THREADING_LAYER=python``, a pool of Python threads that enter the compiled code without
the GIL; it survives the same three.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import logging
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hjit import forks
from hjit.errors import OptionError
from hjit.kernels.runtime.signals import submit, undisturbed

log = logging.getLogger("hjit")

_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_FOR = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p, ctypes.c_void_p,
    ctypes.c_int64, ctypes.c_int64, ctypes.c_int32,
)


@functools.lru_cache(maxsize=1)
def cores() -> int:
    """Cores that this process may use."""
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
        address = _tbb() if wanted == "tbb" else 0
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


def entered(entry: Callable[[Any], int], n: int) -> Callable[[Any], int]:
    """How Python calls compiled code that may use `n` threads."""
    if n == 1:
        return entry
    return functools.partial(_gated if parallel_for()[1] == "tbb" else undisturbed, entry)


def _gated(entry: Callable[[Any], int], data: Any) -> int:
    """tbb's threads must be at rest in a fork."""
    with forks.kernels:
        return entry(data)


def after_fork() -> None:
    """Locks of the parent's other threads are open in a child."""
    global _start_lock
    _start_lock = threading.Lock()


# -- without tbb


def _run(address: int, first: int, count: int, data: int) -> None:
    args, dims, steps = ctypes.c_int64(first), ctypes.c_int64(count), ctypes.c_int64(1)
    _TASK(address)(ctypes.addressof(args), ctypes.addressof(dims), ctypes.addressof(steps), data)


@_FOR
def _python_for(fn: Any, args: Any, dims: Any, steps: Any, data: Any, inner: int, arrays: int, n: int) -> None:
    total = dims[0]
    edges = [total * k // n for k in range(n + 1)]
    pending = [submit("tasks", n, _run, fn, a, b - a, data) for a, b in itertools.pairwise(edges[1:]) if b > a]
    _run(fn, 0, edges[1], data)
    for p in pending:
        p.result()
