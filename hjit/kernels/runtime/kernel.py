"""Kernels: a canonical Graph under its schedule, compiled; and the same bound to the sizes of one call.

A `Kernel` serves every Graph with its key. A `Bound` has the constant part of the parameter block for one set of
sizes and strides; running it packs addresses and scalars, and enters the compiled code without the GIL.
"""

from __future__ import annotations

import json
import math
import struct
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit import cache
from hjit.errors import CompileError, ScheduleError
from hjit.kernels.lower.params import FIRST, KEEP, SMALL_ARRAY, STREAM, STREAMED, TASKS_PER_THREAD, params_of
from hjit.kernels.runtime import arena, backend, launch
from hjit.kernels.runtime.scheduled import Scheduled
from hjit.kernels.runtime.scratch import lifetimes, offsets, staggered
from hjit.kernels.runtime.sizes import encode, evaluate
from hjit.kernels.runtime.trial import Trial
from hjit.options import Options
from hjit.process import deadline, debug
from hjit.process.machine import memory
from hjit.process.signals import signal_safe
from hjit.sched.language.memory import LINE
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import sizes_value

KEPT = 64  # kernels that stay although nobody holds them: the same function is often decorated anew

_kernels: dict[str, Kernel] = {}  # the latest used, the last of them at the end
_others: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()  # as long as a pipeline holds them
_order = threading.RLock()  # of `_kernels` and `_others`; held for an instant only
_lock = threading.RLock()
_made = threading.local()


def made() -> tuple[int, int]:
    """How many kernels this thread has compiled, and loaded from disk."""
    return getattr(_made, "compiled", 0), getattr(_made, "loaded", 0)


def count(compiled: int = 0, loaded: int = 0) -> None:
    """This thread has made more kernels, or another one for it."""
    before = made()
    _made.compiled, _made.loaded = before[0] + compiled, before[1] + loaded


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Kernel:
    """Compiled code for all Graphs of one key.

    Attributes:
        name: the entry's symbol, and the name in the disk cache.
        buffers: stages in buffers of tasks, by position in the Graph, with the lengths of their axes; see `sizes`.
        align: stages whose axes have gaps in memory, by position in the Graph; see `hjit.sched.language.tree.Store`.
        lives: stages that are in memory, by position in the Graph, with their first and last nests; see
            `scratch.lifetimes`.
        from_cache: was the object code found on disk?
    """

    name: str
    compiled: backend.Compiled
    buffers: tuple[tuple[int, Any], ...]
    align: tuple[tuple[int, Any], ...]
    lives: tuple[tuple[int, Any], ...]
    from_cache: bool


def kernel_for(scheduled: Scheduled, options: Options, small: bool = True) -> Kernel:
    """The compiled kernel: of this process, from the disk cache, or new. `small`: are all arrays?"""
    name = scheduled.name(options, small)
    found = _known(name)
    if found is not None:
        return found
    with _lock:
        found = _known(name)
        if found is None:
            if backend.is_busy():
                raise deadline.OverBudget("another compilation with LLVM")
            found = _load(name, options) or _compile(scheduled, name, options, small)
            with _order:
                _keep(found)
        return found


def _known(name: str) -> Kernel | None:
    """The kernel of this process, from now on the latest one."""
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
        buffers, align, lives = (tuple((int(k), numbers) for k, numbers in part) for part in json.loads(head))
        found = Kernel(name, signal_safe(backend.load_object, code, name, options.target), buffers, align, lives, True)
    except (CompileError, RuntimeError, ValueError, TypeError):
        return None
    count(loaded=1)
    return found


def _compile(scheduled: Scheduled, name: str, options: Options, small: bool) -> Kernel:
    from hjit.kernels.runtime.lowered import lowered  # a process that only looks kernels up never loads the compiler

    graph, symbols = scheduled.graph, scheduled.key.symbols
    found = lowered(scheduled, options, name, small)
    debug.say("asm", name, lambda: backend.assembly(found.llvm, name, options.target))
    expected = backend.expected_seconds(found.llvm)
    deadline.require("compiling with LLVM", expected)
    seconds = deadline.allowance(expected)
    code = backend.compile_within(seconds, found.llvm, name, options.target)
    compiled = signal_safe(backend.load_object, code, name, options.target)
    count(compiled=1)
    position = {s.name: k for k, s in enumerate(graph.stages)}
    program = found.program
    buffers = tuple(
        (position[n], [encode(p, symbols) for p in b.layout.lengths(b.lengths)]) for n, b in program.buffers.items()
    )
    align = tuple(
        (position[n], layout.align)
        for n, layout in program.layouts.items()
        if layout.align and n not in program.buffers
    )
    lives = tuple((position[n], life) for n, life in lifetimes(graph, program).items())
    head = json.dumps([buffers, align, lives]).encode() + b"\n"
    cache.store(name, head + code, {"versions": cache.versions()}, options.cache_dir, options.cache)
    return Kernel(name, compiled, buffers, align, lives, False)


def after_fork() -> None:
    """Locks of the parent's other threads are open in a child."""
    global _lock, _order
    _lock, _order = threading.RLock(), threading.RLock()


class Bound:
    """A kernel with the sizes, strides and scratch layout of one call's arrays.

    Attributes:
        inputs: names of the arrays to pass, in order.
        outputs: (name, shape, dtype) of the results, in order.
        scratch_bytes: what a run borrows.
    """

    def __init__(
        self,
        scheduled: Scheduled,
        options: Options,
        sizes: Mapping[str, int],
        strides: Mapping[str, Sequence[int]],
        may_be_small: bool = True,
    ) -> None:
        """`may_be_small`: False: indices need 64 bits although no array of the Graph does: they are of larger ones."""
        graph, key = scheduled.graph, scheduled.key
        self.scheduled = scheduled
        self.kernel = kernel_for(scheduled, options, may_be_small and _are_small(graph, sizes, strides))
        numbers = [sizes[name] for name in key.symbols]
        buffers = {
            graph.stages[k].name: [max(evaluate(n, numbers), 1) for n in lengths] for k, lengths in self.kernel.buffers
        }
        align = {graph.stages[k].name: numbers for k, numbers in self.kernel.align}
        params = params_of(graph, key.symbols, buffers)
        stages = graph.by_name
        self.inputs = tuple(i.name for i in graph.inputs if i.data is None)
        self.outputs = tuple(
            (n, tuple(sizes_value(p, sizes) for p in stages[n].shape), stages[n].dtype) for n in graph.outputs
        )
        self._threads = launch.threads(options.num_threads)
        tasks = 1 if self._threads == 1 else self._threads * TASKS_PER_THREAD
        lives = {graph.stages[k].name: tuple(life) for k, life in self.kernel.lives}
        taken: dict[str, int] = {}  # bytes
        steps: dict[str, int] = {}
        for name in params.scratch:
            if name not in lives:
                continue
            s = stages[name]
            multiples = align.get(name) or [1] * len(s.shape)
            shape = buffers.get(name) or [
                -(-sizes_value(p, sizes) // a) * a for p, a in zip(s.shape, multiples, strict=True)
            ]
            size = -(-math.prod(shape) * s.dtype.itemsize // arena.ALIGN) * arena.ALIGN
            if name in buffers:
                steps[name] = size
                size *= tasks
            taken[name] = staggered(size)
        places, self.scratch_bytes = offsets(taken, lives)
        if scheduled.tree is not None:
            _check_scratch(self.scratch_bytes, taken)
        constants = [places.get(name, 0) for name in params.scratch]
        constants += [steps[name] for name in params.tasks]
        constants += [strides[name][axis] for name, axis in params.strides]
        constants += [sizes[name] for name in params.symbols]
        large = [
            math.prod(shape) * dtype.itemsize >= STREAMED for name, shape, dtype in self.outputs if name in params.keep
        ]
        blocks = (
            struct.pack(
                f"={len(constants) + len(large)}q", *constants, *(STREAM if given and x else KEEP for x in large)
            )
            for given in (False, True)
        )
        self._given = Trial(*blocks)
        self._constants = self._given.blocks[0]
        self._head = struct.Struct(f"={FIRST + len(params.arrays)}q")
        self.scalars = tuple((s.name, s.dtype) for s in graph.scalars)
        self._numbers = struct.Struct("=" + "".join(slot_format(dtype) for _, dtype in self.scalars))
        self._entry = launch.entered(self.kernel.compiled.entry, self._threads)

    def new_outputs(self) -> list[np.ndarray[Any, Any]]:
        """Arrays for the results."""
        return [np.empty(shape, dtype) for _, shape, dtype in self.outputs]

    @property
    def may_stream(self) -> bool:
        """Is there a second way to store results that were there before?"""
        first, second = self._given.blocks
        return first != second

    def run(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        outputs: Sequence[np.ndarray[Any, Any]],
        scalars: Sequence[Any],
        given: bool = False,
        streamed: bool = False,
    ) -> bool:
        """Compute `outputs`, which are C-contiguous; False where an index, or a Python int, was out of bounds.

        Args:
            given: had they been there before? Of a new array the system clears the pages when they are first written,
                which brings them into the caches: there is nothing to gain from streaming. Whether a given one gains
                by it depends on what else the kernel does, and on the processor: the first calls try.
            streamed: no trial, given results are streamed.
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
            best = self._constants if not given else self._given.blocks[1] if streamed else self._given.best
            if best is not None:
                return self._entry(data + best + bits) == 0
            way, start = self._given.begin()
            done = self._entry(data + self._given.blocks[way] + bits) == 0
            if done:
                self._given.end(way, start)
            return done
        finally:
            if self.scratch_bytes:
                arena.give_back(block)

    def _bits(self, scalars: Sequence[Any]) -> bytes:
        """The slots of the scalars."""
        try:
            return self._numbers.pack(*scalars)
        except (struct.error, OverflowError, TypeError):  # a number that `struct` does not convert as NumPy does
            return b"".join(map(slot_bits, scalars, (dtype for _, dtype in self.scalars)))


def _check_scratch(total: int, taken: Mapping[str, int]) -> None:
    """Has the machine the memory that a schedule keeps stages in?

    Raises:
        ScheduleError: it has not.
    """
    if total > memory():
        most = max(taken, key=taken.__getitem__)
        why = f"{total} bytes of scratch memory in all, more than this machine's {memory()}"
        raise ScheduleError(
            f"store {most}: the schedule keeps {taken[most]} bytes of it, {why}; "
            "make tiles, alignments or parts smaller"
        )


def _are_small(graph: Graph, sizes: Mapping[str, int], strides: Mapping[str, Sequence[int]]) -> bool:
    """Are all arrays short enough for 32-bit indices, from the first element in memory to the last?"""
    stages = (
        math.prod(sizes_value(p, sizes) + LINE * (k == len(s.shape) - 1) for k, p in enumerate(s.shape))
        for s in graph.stages
    )  # with gaps
    given = [i for i in graph.inputs if i.data is None]
    inputs = (
        sum(abs(step) * sizes_value(n, sizes) for n, step in zip(i.shape, strides[i.name], strict=True)) for i in given
    )
    return all(n <= SMALL_ARRAY for n in (*stages, *inputs))


def slot_format(dtype: np.dtype[Any]) -> str:
    """The format of a slot for `struct`: 8 bytes, the number first."""
    if dtype.char == "e":
        return "8s"  # `struct` raises where NumPy rounds to infinity, and rounds twice elsewhere: left to `slot_bits`
    code = (
        dtype.char if dtype.char in "?fd" else {"i": "bhiq", "u": "BHIQ"}[dtype.kind][dtype.itemsize.bit_length() - 1]
    )
    return f"{code}{8 - dtype.itemsize}x" if dtype.itemsize < 8 else code


def slot_bits(value: Any, dtype: np.dtype[Any]) -> bytes:
    """A number as the 8 bytes of its slot, converted as NumPy converts numbers that it is given together with arrays.

    Raises:
        OverflowError: a Python int that the dtype cannot hold, as NumPy has it.
    """
    with np.errstate(all="ignore"):
        return np.array(value, dtype).tobytes().ljust(8, b"\0")
