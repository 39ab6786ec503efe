"""A lower bound on the time of a GPU kernel: the roofline model (Williams, Waterman and Patterson, CACM 52(4), 2009).

A kernel moves what it reads and writes between memory and the chip once, and computes all its operations; it takes as
long as the slower of both, and a launch. How many of its threads a multiprocessor holds at once says whether there are
enough of them to hide latency.

Operations are instructions of PTX where there is a compiler: what a thread in the middle runs, times the threads (see
`hjit.kernels.cuda.ptx`). Units for float32, for float64 and for integers work at the same time. Machine code has fewer
integer instructions, as it has more ways to address memory, and more for a division. Without a compiler operations are
those of the loop IR, all in the dtype of the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hjit.kernels.cuda.compilers.machine_code import Resources
from hjit.kernels.cuda.ptx import Instructions
from hjit.kernels.lower.program import Nest, Program
from hjit.kernels.lower.traverse import sources
from hjit.sched.language.limits import WARP
from hjit.sched.language.memory import C_ORDER, Layout
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Poly, sizes_value

LAUNCH_SECONDS = 3e-6  # from one small kernel to the next in a stream; about the same on all
REGISTER_UNIT = 256  # registers of a warp are given out in such portions


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU.

    Attributes:
        capability: compute capability, 90 for 9.0.
        bandwidth: of the memory, bytes a second.
        operations: of float32, a second; a fused multiply-add would count two.
        doubles, integers: the part of them that there are of float64, and of integers of 32 bits.
        threads, blocks, registers, shared: that a multiprocessor holds at once; shared memory in bytes.
    """

    name: str
    capability: int
    bandwidth: float
    operations: float
    doubles: float
    integers: float
    threads: int
    blocks: int
    registers: int
    shared: int


# From NVIDIA's data sheets and the table of compute capabilities in the CUDA C++ Programming Guide; half of the rate
# that data sheets name: products and sums are rounded one by one.
GPUS: Mapping[int, Gpu] = {
    75: Gpu("T4", 75, 320e9, 4.1e12, 1 / 32, 1, 1024, 16, 1 << 16, 64 << 10),
    80: Gpu("A100", 80, 1555e9, 9.7e12, 1 / 2, 1, 2048, 32, 1 << 16, 164 << 10),
    86: Gpu("A10", 86, 600e9, 15.6e12, 1 / 64, 1 / 2, 1536, 16, 1 << 16, 100 << 10),
    89: Gpu("L4", 89, 300e9, 15.1e12, 1 / 64, 1 / 2, 1536, 24, 1 << 16, 100 << 10),
    90: Gpu("H100", 90, 3350e9, 33.5e12, 1 / 2, 1 / 2, 2048, 32, 1 << 16, 228 << 10),
    100: Gpu("B200", 100, 8000e9, 37e12, 1 / 2, 1 / 2, 2048, 32, 1 << 16, 228 << 10),
}


def gpu(capability: int) -> Gpu:
    """The one of a compute capability, or of the nearest lower one."""
    return GPUS[max((k for k in GPUS if k <= capability), default=min(GPUS))]


def occupancy(on: Gpu, threads: int, needs: Resources) -> float:
    """The part of a multiprocessor's threads that are there at once, by the registers and shared memory they need."""
    warps = -(-threads // WARP)
    of_warp = -(-max(needs.registers, 1) * WARP // REGISTER_UNIT) * REGISTER_UNIT
    blocks = min(
        on.blocks,
        on.threads // (warps * WARP),
        on.registers // (of_warp * warps),
        on.shared // needs.shared if needs.shared else on.blocks,
    )
    return blocks * warps * WARP / on.threads


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one launch takes.

    Attributes:
        bytes: that it must move between memory and the chip.
        operations: about; of floats and integers, where PTX is known.
        occupancy: see `occupancy`; None where what it needs is not known.
        seconds: at least, as far as PTX says what machine code has.
        limit: what takes most of them: "launch", "memory" or "arithmetic".
        instructions: of one thread, by its PTX; None where that is not known.
    """

    bytes: int
    operations: int
    occupancy: float | None
    seconds: float
    limit: str
    instructions: Instructions | None = None


def must_move(graph: Graph, nest: Nest, layouts: Mapping[str, Layout], sizes: Mapping[str, int]) -> int:
    """The bytes of the arrays that a nest reads and writes, each once; of what it reads at few places, those alone."""
    arrays = {i.name: i.dtype.itemsize for i in graph.inputs} | {s.name: s.dtype.itemsize for s in graph.stages}
    found = 0
    for name in {*sources(nest.body), nest.stage} - nest.buffers.keys():
        if name in arrays:
            whole = _elements(layouts.get(name, C_ORDER).lengths(graph.shapes[name]), sizes)
            found += arrays[name] * min(whole, _accesses(graph, nest, name, sizes))
    return found


def _accesses(graph: Graph, nest: Nest, name: str, sizes: Mapping[str, int]) -> int:
    """How often a nest reads or writes an element of an array, at most."""
    found = max(sizes_value(nest.points, sizes), 0) if name in nest.writes else 0
    for d in (d for stage in nest.writes for d in graph.stage(stage).definitions):
        found += sum(x.source == name for x in d.loads) * _elements(d.extents, sizes)
    return found


def nest_must_move(graph: Graph, program: Program, number: int, sizes: Mapping[str, int]) -> int:
    """`must_move` of a nest of a program, by its number; its body may be that of an earlier one."""
    nest = program.nests[number]
    body = nest if nest.renaming is None else program.nests[nest.renaming.nest]
    return must_move(graph, body, program.layouts, sizes)


@dataclass(frozen=True, slots=True)
class NestLaunch:
    """The launch of a nest.

    Attributes:
        number: of the nest in the program.
        threads: of a block.
        needs: of its kernel; None: it has not been compiled.
        instructions: of one thread of its kernel; None: those of the loop IR are taken.
        blocks: how many there are, where instructions are known.
    """

    number: int
    threads: int
    needs: Resources | None = None
    instructions: Instructions | None = None
    blocks: int = 0


def estimate(
    graph: Graph,
    program: Program,
    launch: NestLaunch,
    sizes: Mapping[str, int],
    on: Gpu,
) -> Estimate:
    """What a launch takes at least."""
    nest, instructions = program.nests[launch.number], launch.instructions
    size = nest_must_move(graph, program, launch.number, sizes)
    if instructions is None:
        work = max(sizes_value(nest.work, sizes), 0)
        is_double = any(graph.stage(name).dtype == np.float64 for name in nest.writes)
        arithmetic = work / (on.operations * (on.doubles if is_double else 1))
    else:
        x, count = instructions, launch.blocks * launch.threads
        work = count * (x.f32 + x.f64 + x.integers)
        arithmetic = count * max(x.f32, x.f64 / on.doubles, x.integers / on.integers) / on.operations
    parts = {"launch": LAUNCH_SECONDS, "memory": size / on.bandwidth, "arithmetic": arithmetic}
    seconds = LAUNCH_SECONDS + max(parts["memory"], parts["arithmetic"])
    held = None if launch.needs is None else occupancy(on, launch.threads, launch.needs)
    return Estimate(size, work, held, seconds, max(parts, key=lambda k: parts[k]), instructions)


def _elements(shape: Sequence[Poly], sizes: Mapping[str, int]) -> int:
    return math.prod(max(sizes_value(p, sizes), 0) for p in shape)
