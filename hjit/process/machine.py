"""Facts of the machine that the cost model reads: `hjit.model.feature_names.MACHINE`.

Measurements are kept in the disk cache: they take as long as a short search, and all processes should search with the
same facts.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import sys
import time
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np

import hjit.cache as cache
from hjit.process.signals import submit

CPU = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL_CACHES = {"1": 32 << 10, "2": 1 << 20, "3": 16 << 20}  # bytes by level, where the system does not say
COPIED_BYTES = 1 << 25  # of the arrays whose copy is timed: more than most caches hold
ROUNDS = 4  # of copies; the fastest counts
ADDRESSES = 1 << 46  # bytes: what a process can address, where the system does not say how much memory there is
UNITS = {"K": 10, "M": 20, "G": 30}  # of sizes in sysfs, as powers of two


def facts(
    threads: int, vector_bytes: int, cache_dir: str | os.PathLike[str] = "", mode: str = "off"
) -> tuple[float, ...]:
    """The facts in the order of `MACHINE`: threads, vector bytes, bytes of one core's caches, bytes per second.

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
    """Bytes of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return ADDRESSES


def kept_bandwidth(threads: int, cache_dir: str | os.PathLike[str], mode: str) -> float:
    """The result of `bandwidth`, measured once per type of machine."""
    name = "machine_" + cache.digest(cpu(), str(caches()), str(threads), str(COPIED_BYTES))[:40]
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
    said = {key.strip(): text.strip() for key, _, text in (line.partition(":") for line in lines)}
    if "model name" in said:
        return said["model name"]
    parts = [f"{key} {said[key]}" for key in ("CPU implementer", "CPU part") if key in said]  # as on aarch64
    return ", ".join(parts) or platform.processor()


def kind() -> str:
    """The type of machine for which schedules are valid: the processor and its caches."""
    return f"{cpu()}, caches {', '.join(f'{n >> 10} KiB' for n in caches().values())}"


@functools.lru_cache(maxsize=1)
def processor() -> str:
    """Everything that the system reports about the first processor, except what changes at run time; "" if nothing.

    Which instructions LLVM may use follows from it, and from the system and Python, which are part of the text.
    """
    try:
        lines = CPU.read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return ""
    kept = [line for line in lines if not line.startswith(_CHANGING)]
    return "\n".join([*kept, os.uname().sysname, sys.implementation.cache_tag or "", *EXTENSION_SUFFIXES])


_CHANGING = ("cpu MHz", "bogomips")


@functools.lru_cache(maxsize=1)
def caches() -> dict[str, int]:
    """Bytes of the first core's data caches by level."""
    found = dict(USUAL_CACHES)
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
    """Bytes per second that all threads together copy.

    To the nearest power of the square root of two, so that measurements agree and can be kept.
    """
    size = COPIED_BYTES // max(threads, 1)
    arrays = [(np.ones(size, np.uint8), np.empty(size, np.uint8)) for _ in range(threads)]
    best = math.inf
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for copy in [submit("tasks", threads, np.copyto, new, old) for old, new in arrays]:
            copy.result()
        best = min(best, time.perf_counter() - start)
    return float(2 ** (round(2 * math.log2(size * threads / best)) / 2))
