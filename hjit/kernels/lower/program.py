"""The nests of a kernel: the top of the loop IR, whose statements are in `hjit.kernels.lower.loopir`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hjit.kernels.lower.loopir import Stmt
from hjit.kernels.lower.nest_merging import Renaming
from hjit.kernels.lower.printing import lines
from hjit.sched.language.memory import Layout
from hjit.trace.ir.poly import ONE, ZERO, Poly, Var

ITERATION = Var("iteration of blocks")  # of the outermost loop over blocks, in `Rows`


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that a task has for itself; on a GPU a thread, or where it is shared the threads of a block.

    Attributes:
        origin: per axis, the index of its first element.
        lengths: per axis, over run-time sizes only.
        fold: the axis that is circular, its length a power of two, or None.
        shared: is it that of a block?
        dtype: of its elements, where it is no stage of the Graph; made by coalesce_accesses, privatise_scatters and
            stage_operands.
        memory: the earlier buffer in whose memory it is, which has the same dtype; made by share_memory.
    """

    stage: str
    origin: tuple[Poly, ...]
    lengths: tuple[Poly, ...]
    layout: Layout
    fold: int | None = None
    shared: bool = False
    dtype: np.dtype[Any] | None = None
    memory: str | None = None


def shared_bytes(buffers: Iterable[Buffer], dtypes: Mapping[str, np.dtype[Any]]) -> int | None:
    """Shared memory of a block that buffers take; None: how much depends on run-time sizes.

    Args:
        dtypes: of stages.
    """
    taken = 0
    for b in buffers:
        if b.shared:
            elements = math.prod(b.layout.lengths(b.lengths), start=ONE)
            if not elements.is_const:
                return None
            taken += elements.const * (dtypes[b.stage] if b.dtype is None else b.dtype).itemsize
    return taken


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows, along the first axes of arrays, an iteration of the outermost loop over blocks touches: `ITERATION`.

    A nest without such a loop has one iteration.

    Attributes:
        stage: that is written.
        count: of these iterations.
        ends: rows that must be there before it: of what it reads, and of its own stage those that it updates. Of arrays
            that are not in it: all.
        begin: the first row that it writes.
    """

    stage: str
    count: Poly
    ends: Mapping[str, Poly] = field(default_factory=dict)
    begin: Poly = ZERO


@dataclass(frozen=True, slots=True)
class Nest:
    """One root of the schedule tree.

    Attributes:
        writes: the stages that it computes.
        count: iterations of its parallel loops, from which tasks take `BEGIN` .. `END`; None: the body runs once.
        work: estimated operations of one of them.
        buffers: of the stages computed inside.
        points: elements that it computes, over all its stages; where there are none, it is not entered.
        renaming: the earlier nest whose body it shares, where it has none itself; see
            `hjit.kernels.lower.nest_merging`.
        blocks: does a block of threads run each iteration, `BEGIN`, of which there are `count`?
        threads: of a block; known when they have their work, else 0.
        rows: what its iterations touch.
    """

    stage: str
    body: tuple[Stmt, ...]
    count: Poly | None
    work: Poly
    writes: tuple[str, ...] = ()
    buffers: dict[str, Buffer] = field(default_factory=dict)
    points: Poly = ONE
    renaming: Renaming | None = None
    blocks: bool = False
    threads: int = 0
    rows: Rows | None = None


@dataclass(frozen=True)  # not slotted: `buffers` is cached
class Program:
    """The nests of a kernel, in order.

    Attributes:
        layouts: of stages that are not in plain C order in memory.
    """

    nests: tuple[Nest, ...]
    layouts: dict[str, Layout] = field(default_factory=dict)

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """All buffers of tasks."""
        return {name: b for nest in self.nests for name, b in nest.buffers.items()}

    def __str__(self) -> str:
        return "\n".join(line for nest in self.nests for line in self._nest_lines(nest))

    def _nest_lines(self, nest: Nest) -> Iterator[str]:
        if nest.renaming is None:
            yield from _nest_lines(nest)
            return
        changes = {**nest.renaming.arrays, **nest.renaming.sizes}
        named = ", ".join(f"{new} for {old}" for old, new in changes.items() if old != new)
        yield f"nest {nest.stage}: as nest {self.nests[nest.renaming.nest].stage}" + (
            f", with {named}" if named else ""
        )


def _nest_lines(nest: Nest) -> Iterator[str]:
    yield f"nest {nest.stage}:"
    for b in nest.buffers.values():
        axes = enumerate(zip(b.lengths, b.origin, strict=True))
        sizes = " x ".join(f"{n}" + (" circular" if k == b.fold else f" from {o}") for k, (n, o) in axes)
        of = f" of {b.dtype}" if b.dtype is not None else ""
        where = "" if b.memory is None else f" in the memory of {b.memory}"
        yield f"  {'shared ' if b.shared else ''}buffer {b.stage}: {sizes or 'one element'}{of}{b.layout}{where}"
    depth = 1
    if nest.count is not None:
        threads = f" of {nest.threads} threads" if nest.threads else ""
        yield f"  {nest.count} blocks{threads}:" if nest.blocks else f"  parallel {nest.count} iterations:"
        depth = 2
    for s in nest.body:
        yield from lines(s, depth)
