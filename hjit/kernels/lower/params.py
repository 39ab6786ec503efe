"""The parameter block of a kernel: which slot holds what.

Every slot is 8 bytes. The driver of the kernel copies the block, replaces array objects and scratch offsets by
addresses, and hands the copy to the nests.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from hjit.sched.language.definitions import is_repeatable
from hjit.trace.ir.graph import Graph, Stage

PARALLEL_FOR, THREADS, SCRATCH, STATUS = range(4)
FIRST = 4
TASKS_PER_THREAD = 4
# Bytes of a result that no cache holds any more when it is read; at 15 MiB reading it again loses more than is gained.
STREAMED = 24 << 20
KEEP, STREAM = -1, 0
SMALL_ARRAY = 1 << 28  # elements; sums of a few indices beyond them stay within 32 bits

K = TypeVar("K", bound=Hashable)  # what has a slot


@dataclass(frozen=True, slots=True)
class Params:
    """Slots of a kernel.

    Attributes:
        arrays: inputs and outputs, given as Python objects: name -> slot.
        scratch: stages in scratch memory, given as offsets in bytes.
        tasks: stages in buffers of tasks: bytes from one task's buffer to the next one's.
        strides: (input, axis) -> slot, in elements.
        symbols: run-time sizes.
        keep: results that are written once and not read again: `KEEP` in the caches or `STREAM`;
            see `hjit.kernels.llvm.memory.streaming_stores`.
        scalars: scalar arguments, as the bits of their dtype.
        times: the address of the processor's clock at the start and after each nest, where a kernel notes them.
    """

    arrays: dict[str, int]
    scratch: dict[str, int]
    tasks: dict[str, int]
    strides: dict[tuple[str, int], int]
    symbols: dict[str, int]
    keep: dict[str, int]
    scalars: dict[str, int]
    count: int
    times: int | None = None

    def slot(self, array: str) -> int:
        """Where the address of an array is."""
        return self.arrays[array] if array in self.arrays else self.scratch[array]


def params_of(graph: Graph, symbols: tuple[str, ...], buffers: Iterable[str], timed: bool = False) -> Params:
    """The slots of a canonical Graph: equal Graphs have equal slots, by position.

    Args:
        buffers: stages of which each task has its own.
        timed: does the kernel note times?
    """
    slots = itertools.count(FIRST)

    def numbered(names: Iterable[K]) -> dict[K, int]:
        return {name: next(slots) for name in names}

    inputs = [i for i in graph.inputs if i.data is None]
    groups = (
        numbered([*(i.name for i in inputs), *graph.outputs]),
        numbered(s.name for s in graph.stages if s.name not in graph.outputs),
        numbered(buffers),
        numbered((i.name, k) for i in inputs for k, step in enumerate(i.layout) if step is None),
        numbered(symbols),
        numbered(written_once(graph)),
        numbered(s.name for s in graph.scalars),
    )
    end = next(slots)
    return Params(*groups, count=end + timed, times=end if timed else None)


def written_once(graph: Graph) -> list[str]:
    """The results of which each element is written once, and none is read again."""
    consumers = graph.consumers()
    return [n for n in graph.outputs if not consumers[n] and _is_written_once(graph.stage(n))]


def _is_written_once(s: Stage) -> bool:
    """Is each element written by one definition, which reads none? Interleaved updates that overlap rarely are."""
    return not s.updates or (s.initial is None and is_repeatable(s, tuple(range(len(s.definitions)))))
