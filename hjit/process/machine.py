"""Facts of the machine that the cost model reads: `hjit.model.names.MACHINE`.

What is measured of it is kept in the disk cache: it takes as long as many a search, and searches in several processes find the same.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import time
from pathlib import Path

import numpy as np

from hjit import cache
from hjit.process.signals import submit

CPU = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL = {"1": 32 << 10, "2": 1 << 20, "3": 16 << 20}  # bytes of the caches where the system does not say
COPIED = 1 << 25  # bytes of the array whose copy is timed
UNITS = {"K": 10, "M": 20, "G": 30}


def facts(
    threads: int, vector_bytes: int, cache_dir: str | os.PathLike[str] = "", mode: str = "off"
) -> tuple[float, ...]:
    """The facts in the order of `MACHINE`: threads, bytes of a vector, bytes of the caches of one core, bytes a second of a copy.

    Args:
        cache_dir, mode: of the disk cache, as in `hjit.cache`.
    """
    sizes = caches()
    return (
        float(threads),
        float(vector_bytes),
        *(float(sizes[level]) for level in "123"),
        kept_bandwidth(threads, cache_dir, mode),
    )


@functools.lru_cache(maxsize=1)
def memory() -> int:
    """Bytes of the machine's memory; where the system does not say, as many as addresses are good for."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 46


def kept_bandwidth(threads: int, cache_dir: str | os.PathLike[str], mode: str) -> float:
    """What `bandwidth` measured once on such a machine."""
    name = "machine_" + cache.digest(cpu(), str(caches()), str(threads), str(COPIED))[:40]
    text = cache.load(name, cache_dir, mode, "facts")
    try:
        found = float(text or b"")
        if 0 < found < math.inf:
            return found
    except ValueError:  # none, or damaged
        pass
    found = bandwidth(threads)
    cache.store(name, repr(found).encode(), {}, cache_dir, mode, "facts")
    return found


@functools.lru_cache(maxsize=1)
def cpu() -> str:
    """The processor's name."""
    try:
        lines = CPU.read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


@functools.lru_cache(maxsize=1)
def caches() -> dict[str, int]:
    """Bytes of the first core's data caches by level."""
    found = dict(USUAL)
    for folder in sorted(CACHES.glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction" and level in found:
                found[level] = int(size[:-1]) << UNITS[size[-1]]
        except (OSError, ValueError, KeyError):
            continue
    return found


@functools.lru_cache(maxsize=8)
def bandwidth(threads: int) -> float:
    """Bytes per second that all threads together copy, to the nearest power of the square root of two: a measurement that can be kept."""
    size = COPIED // max(threads, 1)
    arrays = [(np.ones(size, np.uint8), np.empty(size, np.uint8)) for _ in range(threads)]
    best = math.inf
    for _ in range(4):
        start = time.perf_counter()
        for copy in [submit("tasks", threads, np.copyto, new, old) for old, new in arrays]:
            copy.result()
        best = min(best, time.perf_counter() - start)
    return float(2 ** (round(2 * math.log2(size * threads / best)) / 2))
