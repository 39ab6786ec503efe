"""Kernels of scheduled Graphs, found or compiled, and bound to the sizes of one call: the constant part of their
parameter blocks, and their scratch memory."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import hjit.cache as cache
from hjit.errors import ScheduleError
from hjit.kernels.lower.params import FIRST, KEEP, STREAM, STREAMED, TASKS_PER_THREAD, params_of
from hjit.kernels.runtime import arena, backend, launch
from hjit.kernels.runtime.kernel import Bound, Kernel, Parameters, count, kernel_named
from hjit.kernels.runtime.scheduled import Scheduled
from hjit.kernels.runtime.scratch import live_ranges_of, offsets, staggered
from hjit.kernels.runtime.sizes import are_small, encode, evaluate
from hjit.options import Options
from hjit.process import deadline, debug
from hjit.process.machine import memory
from hjit.process.signals import signal_safe
from hjit.sched.language.memory import LINE
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import sizes_value

if TYPE_CHECKING:
    from hjit.kernels.runtime.lowered import Lowered


def bind(
    scheduled: Scheduled,
    options: Options,
    sizes: Mapping[str, int],
    strides: Mapping[str, Sequence[int]],
    may_be_small: bool = True,
) -> Bound:
    """The kernel of a scheduled Graph, found or compiled, for some sizes.

    Args:
        may_be_small: False: indices need 64 bits although no array of the Graph does: they are of larger ones.

    Raises:
        ScheduleError: the schedule cannot be lowered, or needs more scratch memory than there is.
        OverBudget: there is no time to compile it.
    """
    kernel = kernel_for(scheduled, options, may_be_small and are_small(scheduled.graph, sizes, strides, LINE))
    return Bound(kernel, parameters(scheduled, kernel, options, sizes, strides), options)


def kernel_for(scheduled: Scheduled, options: Options, small: bool = True) -> Kernel:
    """The compiled kernel: from this process, from the disk cache, or newly compiled. `small`: are all arrays small?"""
    name = scheduled.name(options, small)
    found = kernel_named(name, options, lambda: _compile(scheduled, name, options, small))
    assert found is not None
    return found


def _compile(scheduled: Scheduled, name: str, options: Options, small: bool) -> Kernel:
    from hjit.kernels.runtime.lowered import lowered  # a process that only looks kernels up never loads the compiler

    return compiled(lowered(scheduled, options, name, small), scheduled.key.symbols, options, scheduled.quick)


def compiled(found: Lowered, symbols: tuple[str, ...], options: Options, quick: bool = False) -> Kernel:
    """The kernel of loops, which is stored.

    Args:
        quick: see `Scheduled`.

    Raises:
        OverBudget: there is no time to compile it.
    """
    graph, name = found.graph, found.name
    debug.say("asm", name, lambda: backend.assembly(found.llvm, name, options.target))
    expected = backend.expected_seconds(found.llvm)
    deadline.require("compiling with LLVM", expected)
    seconds = deadline.allowance(expected)
    code = backend.compile_within(seconds, found.llvm, name, options.target, quick)
    linked = signal_safe(backend.load_object, code, name)
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
    live_ranges = tuple((position[n], live) for n, live in live_ranges_of(graph, program).items())
    nests = tuple(tuple(position[n] for n in x.writes) for x in program.nests) if found.params.times is not None else ()
    head = json.dumps([buffers, align, live_ranges, nests]).encode() + b"\n"
    cache.store(name, head + code, {"versions": cache.versions()}, options.cache_dir, options.cache)
    return Kernel(name, linked, buffers, align, live_ranges, False, nests)


def parameters(
    scheduled: Scheduled,
    kernel: Kernel,
    options: Options,
    sizes: Mapping[str, int],
    strides: Mapping[str, Sequence[int]],
) -> Parameters:
    """The parameter block of a kernel for some sizes."""
    graph, key = scheduled.graph, scheduled.key
    numbers = [sizes[name] for name in key.symbols]
    buffers = {graph.stages[k].name: [max(evaluate(n, numbers), 1) for n in lengths] for k, lengths in kernel.buffers}
    params = params_of(graph, key.symbols, buffers)
    stages = graph.by_name
    outputs = tuple((n, tuple(sizes_value(p, sizes) for p in stages[n].shape), stages[n].dtype) for n in graph.outputs)
    threads = launch.threads(options.num_threads)
    live_ranges = {graph.stages[k].name: tuple(live) for k, live in kernel.live_ranges}
    needed = {
        name: _scratch_shape(kernel, graph, name, buffers, sizes) for name in params.scratch if name in live_ranges
    }
    needed_bytes = {n: _aligned(math.prod(shape) * stages[n].dtype.itemsize) for n, shape in needed.items()}
    tasks = 1 if threads == 1 else threads * TASKS_PER_THREAD
    taken = {n: staggered(size * tasks if n in buffers else size) for n, size in needed_bytes.items()}
    places, scratch_bytes = offsets(taken, live_ranges)
    if scheduled.tree is not None:
        _check_scratch(scratch_bytes, taken)
    constants = [places.get(name, 0) for name in params.scratch]
    constants += [needed_bytes[name] for name in params.tasks]
    constants += [strides[name][axis] for name, axis in params.strides]
    constants += [sizes[name] for name in params.symbols]
    large = [math.prod(shape) * dtype.itemsize >= STREAMED for name, shape, dtype in outputs if name in params.keep]
    kept, streamed = (
        struct.pack(f"={len(constants) + len(large)}q", *constants, *(STREAM if given and x else KEEP for x in large))
        for given in (False, True)
    )
    return Parameters(
        tuple(i.name for i in graph.inputs if i.data is None),
        outputs,
        tuple((s.name, s.dtype) for s in graph.scalars),
        FIRST + len(params.arrays),
        scratch_bytes,
        (kept, streamed),
        named_nests(kernel, graph),
    )


def _scratch_shape(
    kernel: Kernel, graph: Graph, stage: str, buffers: Mapping[str, list[int]], sizes: Mapping[str, int]
) -> list[int]:
    """The shape of a stage in scratch memory: of a buffer of each task, or of all of it, with its axes aligned."""
    if stage in buffers:
        return buffers[stage]
    s = graph.by_name[stage]
    align = next((numbers for k, numbers in kernel.align if graph.stages[k] is s), [1] * len(s.shape))
    return [-(-sizes_value(p, sizes) // a) * a for p, a in zip(s.shape, align, strict=True)]


def _aligned(size: int) -> int:
    """Bytes, as a multiple of a line of scratch memory."""
    return -(-size // arena.ALIGN) * arena.ALIGN


def named_nests(kernel: Kernel, graph: Graph) -> tuple[tuple[str, ...], ...]:
    """The stages of each nest, of a kernel that notes times; of one that does not, nothing."""
    return tuple(tuple(graph.stages[k].name for k in stages) for stages in kernel.nests)


def _check_scratch(total: int, taken: Mapping[str, int]) -> None:
    """Does the machine have the memory for a schedule's intermediate stages?

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
