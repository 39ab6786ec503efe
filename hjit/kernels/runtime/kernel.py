"""Kernels: a canonical Graph with its schedule, compiled; and a kernel bound to the sizes of one call.

A `Kernel` serves every Graph with its key. A `Bound` has the constant part of the parameter block for one set of sizes
and strides; running it packs addresses and scalars, and enters the compiled code without the GIL. Both are made by
`hjit.kernels.runtime.bind`, which a process that finds all its kernels on disk does not load.
"""

from __future__ import annotations

import json
import logging
import struct
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import hjit.cache as cache
from hjit.errors import CompileError
from hjit.kernels.runtime import arena, launch
from hjit.kernels.runtime.linking import linker
from hjit.kernels.runtime.linking.memory import NotLinked
from hjit.kernels.runtime.machine_code import Compiled, is_busy
from hjit.kernels.runtime.streaming_choice import StreamingChoice
from hjit.options import Options
from hjit.process import deadline
from hjit.process.signals import signal_safe

log = logging.getLogger("hjit")

KEPT = 64  # unreferenced kernels that are kept, because the same function is often decorated again

_kernels: dict[str, Kernel] = {}  # the latest used, the last of them at the end
_others: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()  # as long as a pipeline holds them
_order = threading.RLock()  # of `_kernels` and `_others`; held for an instant only
_lock = threading.RLock()
_made = threading.local()


def made() -> tuple[int, int]:
    """The numbers of kernels that this thread has compiled, and loaded from disk."""
    return getattr(_made, "compiled", 0), getattr(_made, "loaded", 0)


def count(compiled: int = 0, loaded: int = 0) -> None:
    """Add to the numbers of kernels that this thread has made."""
    before = made()
    _made.compiled, _made.loaded = before[0] + compiled, before[1] + loaded


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Kernel:
    """Compiled code for all Graphs of one key.

    Attributes:
        name: the entry's symbol, and the name in the disk cache.
        buffers: stages in buffers of tasks, by position in the Graph, with the lengths of their axes; see `sizes`.
        align: stages whose axes have gaps in memory, by position in the Graph; see `hjit.sched.language.tree.Store`.
        live_ranges: stages that are in memory, by position in the Graph, with their first and last nests; see
            `scratch.live_ranges_of`.
        from_cache: was the object code found on disk?
        nests: of a kernel that notes times, the stages that each nest computes, by position in the Graph.
    """

    name: str
    compiled: Compiled
    buffers: tuple[tuple[int, Any], ...]
    align: tuple[tuple[int, Any], ...]
    live_ranges: tuple[tuple[int, Any], ...]
    from_cache: bool
    nests: tuple[tuple[int, ...], ...] = ()


def kernel_named(name: str, options: Options, make: Callable[[], Kernel] | None = None) -> Kernel | None:
    """The kernel of a name: from this process, from the disk cache, or compiled by `make`.

    Raises:
        OverBudget: LLVM is busy with another one for ever.
    """
    found = _known(name)
    if found is not None:
        return found
    with _lock:
        found = _known(name)
        if found is None:
            if is_busy():
                raise deadline.OverBudget("another compilation with LLVM")
            found = _load(name, options) or (None if make is None else make())
            if found is not None:
                with _order:
                    _keep(found)
        return found


def _known(name: str) -> Kernel | None:
    """The kernel of this process, which becomes the most recently used one."""
    with _order:
        found = _kernels.pop(name, None) or _others.get(name)
        if found is not None:
            _keep(found)
        return found


def _keep(kernel: Kernel) -> None:
    """Keep a kernel; the least recently used one goes with the last pipeline that holds it."""
    _kernels[kernel.name] = kernel
    while len(_kernels) > KEPT:
        oldest = _kernels.pop(next(iter(_kernels)))
        _others[oldest.name] = oldest


def _load(name: str, options: Options) -> Kernel | None:
    code = cache.load(name, options.cache_dir, options.cache)
    if code is None:
        return None
    try:
        head, _, code = code.partition(b"\n")
        *stages, nests = json.loads(head)
        buffers, align, live_ranges = (tuple((int(k), numbers) for k, numbers in part) for part in stages)
        linked = signal_safe(_linked, code, name)
        found = Kernel(name, linked, buffers, align, live_ranges, True, tuple(map(tuple, nests)))
    except (CompileError, RuntimeError, ValueError, TypeError):
        return None
    count(loaded=1)
    return found


def _linked(object_code: bytes, name: str) -> Compiled:
    """The kernel of some object code.

    Raises:
        CompileError: the bytes hold no such kernel.
    """
    try:
        return linker.linked(object_code, name)
    except NotLinked as why:
        log.debug("LLVM loads %s: %s", name, why)
    from hjit.kernels.runtime import backend  # LLVM takes longer to import than all kernels of a warm start to load

    return backend.load_object(object_code, name)


def after_fork() -> None:
    """Locks of the parent's other threads are open in a child."""
    global _lock, _order
    _lock, _order = threading.RLock(), threading.RLock()


@dataclass(frozen=True, slots=True)
class Parameters:
    """The arguments of a kernel for one set of sizes and strides.

    Attributes:
        inputs: names of the arrays to pass, in order.
        outputs: (name, shape, dtype) of the results, in order.
        scalars: (name, dtype) of the numbers, in order.
        head: slots of the parameter block that are new at every run: the first ones, and the arrays.
        scratch_bytes: what a run borrows.
        blocks: the slots behind these, for results that are new arrays, and for arrays of the caller.
        nests: of a kernel that notes times, the stages that each nest computes.
    """

    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
    scalars: tuple[tuple[str, np.dtype[Any]], ...]
    head: int
    scratch_bytes: int
    blocks: tuple[bytes, bytes]
    nests: tuple[tuple[str, ...], ...] = ()


class Bound:
    """A kernel with the sizes, strides and scratch layout of one call's arrays.

    Attributes:
        parameters: what it takes; these are also attributes of the `Bound`.
    """

    def __init__(self, kernel: Kernel, parameters: Parameters, options: Options) -> None:
        self.kernel, self.parameters = kernel, parameters
        self.inputs, self.outputs, self.scalars = parameters.inputs, parameters.outputs, parameters.scalars
        self.scratch_bytes = parameters.scratch_bytes
        self._threads = launch.threads(options.num_threads)
        self._stores = StreamingChoice(*parameters.blocks)
        self._constants = self._stores.blocks[0]
        self._head = struct.Struct(f"={parameters.head}q")
        self._numbers = struct.Struct("=" + "".join(slot_format(dtype) for _, dtype in self.scalars))
        self._entry = launch.entered(kernel.compiled.entry, self._threads)

    def new_outputs(self) -> list[np.ndarray[Any, Any]]:
        """Arrays for the results."""
        return [np.empty(shape, dtype) for _, shape, dtype in self.outputs]

    @property
    def may_stream(self) -> bool:
        """Is there a second way to store results that were there before?"""
        first, second = self._stores.blocks
        return first != second

    def run(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        outputs: Sequence[np.ndarray[Any, Any]],
        scalars: Sequence[Any],
        given: bool = False,
        streamed: bool = False,
    ) -> bool:
        """Compute `outputs`, which are C-contiguous; False if an index, or a Python int, was out of bounds.

        Args:
            given: had they been there before? Of a new array the system clears the pages when they are first written,
                which brings them into the caches: there is nothing to gain from streaming. Whether a given one gains
                by it depends on what else the kernel does, and on the processor: the first calls try.
            streamed: given results are streamed, whatever the first calls have shown.
        """
        block = arena.borrow(self.scratch_bytes)
        try:
            data = self._head.pack(
                launch.parallel_for()[0], self._threads, block[1], 0, *map(id, arrays), *map(id, outputs)
            )
            try:
                bits = self._bits(scalars) if scalars else b""
            except OverflowError:
                return False  # NumPy itself knows where that is an error: a comparison is none
            best = self._constants if not given else self._stores.blocks[1] if streamed else self._stores.best
            if best is not None:
                return self._entry(data + best + bits) == 0
            way, start = self._stores.begin()
            done = self._entry(data + self._stores.blocks[way] + bits) == 0
            if done:
                self._stores.end(way, start)
            return done
        finally:
            if self.scratch_bytes:
                arena.give_back(block)

    def nest_seconds(
        self, arrays: Sequence[np.ndarray[Any, Any]], outputs: Sequence[np.ndarray[Any, Any]], scalars: Sequence[Any]
    ) -> np.ndarray[Any, Any] | None:
        """One run of a kernel that notes times (`Scheduled.timed`): the seconds of each of its nests, float64 [nests].

        None where an index was out of bounds. The clock of the processor is scaled to that of the system.
        """
        ticks = np.zeros(len(self.kernel.nests) + 1, np.int64)
        block = arena.borrow(self.scratch_bytes)
        try:
            data = self._head.pack(
                launch.parallel_for()[0], self._threads, block[1], 0, *map(id, arrays), *map(id, outputs)
            )
            bits = self._bits(scalars) + struct.pack("=q", ticks.ctypes.data)
            start = time.perf_counter()
            if self._entry(data + self._stores.blocks[0] + bits) != 0:
                return None
            seconds = time.perf_counter() - start
        finally:
            if self.scratch_bytes:
                arena.give_back(block)
        passed = np.diff(np.maximum.accumulate(ticks))  # a nest without elements notes none
        return np.asarray(passed * (seconds / max(int(passed.sum()), 1)))

    def _bits(self, scalars: Sequence[Any]) -> bytes:
        """The slots of the scalars."""
        try:
            return self._numbers.pack(*scalars)
        except (struct.error, OverflowError, TypeError):  # a number that `struct` does not convert as NumPy does
            return b"".join(map(slot_bits, scalars, (dtype for _, dtype in self.scalars)))


def slot_format(dtype: np.dtype[Any]) -> str:
    """The format of a slot for `struct`: 8 bytes, the number first."""
    if dtype.char == "e":
        return "8s"  # `struct` raises where NumPy rounds to infinity, and rounds twice elsewhere: left to `slot_bits`
    code = (
        dtype.char if dtype.char in "?fd" else {"i": "bhiq", "u": "BHIQ"}[dtype.kind][dtype.itemsize.bit_length() - 1]
    )
    return f"{code}{8 - dtype.itemsize}x" if dtype.itemsize < 8 else code


def slot_bits(value: Any, dtype: np.dtype[Any]) -> bytes:
    """A number as the 8 bytes of its slot, converted as NumPy converts numbers that are passed together with arrays.

    Raises:
        OverflowError: a Python int that the dtype cannot hold, as NumPy has it.
    """
    with np.errstate(all="ignore"):
        return np.array(value, dtype).tobytes().ljust(8, b"\0")
