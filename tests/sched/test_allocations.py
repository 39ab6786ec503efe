"""The memory that features say a schedule takes is what lowering gives it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from hjit.model.feature_names import SCHEDULE
from hjit.sched.language.build import parallel_loops
from hjit.sched.language.tree import Loop, Root, Store
from hjit.trace.ir.poly import sizes_value
from tests.sched.lowered import lowered

BYTES = SCHEDULE.index("bytes_at_realization")


@dataclass(frozen=True)
class Allocation:
    """The buffer of a stage: bytes that lowering gives it, as far as the stage is as long, and bytes by its features."""

    program: int
    stage: str
    given: float
    expected: float

    @property
    def ratio(self) -> float:
        return self.given / self.expected


def of_tasks(root: Root) -> set[str]:
    """Stages with one buffer for all tasks: unless it is circular, each uses a part of it, and features count that."""
    found: set[str] = set()
    for nest in root.children:
        stores: list[str] = []
        node = nest
        while isinstance(node, Store) and len(node.children) == 1:
            stores.append(node.stage)
            (node,) = node.children
        if isinstance(node, Loop) and parallel_loops(node):
            found.update(stores)
    return found


def allocations(program: int, schedules: int) -> Iterator[Allocation]:
    """Of the buffers of some schedules of a random program."""
    for x in lowered(program, 300 * 300, schedules, threads=2):
        shared = of_tasks(x.tree)
        for buffer in x.nests.buffers.values():
            stage = x.graph.stage(buffer.stage)
            if stage.name in x.features and (stage.name not in shared or buffer.fold is not None):
                lengths = [
                    min(max(sizes_value(p, x.sizes), 0), _aligned(max(sizes_value(n, x.sizes), 1), a))
                    for p, n, a in zip(buffer.lengths, stage.shape, buffer.layout.align or (1,) * 9, strict=False)
                ]
                expected = x.features[stage.name][BYTES]
                yield Allocation(program, stage.name, stage.dtype.itemsize * math.prod(lengths), max(expected, 1.0))


def _aligned(n: int, by: int) -> int:
    return -(-n // by) * by


def judged(programs: Sequence[int], schedules: int) -> None:
    """Most are as long, and hardly one is much longer or shorter: lowering rounds pieces of unknown alignment up."""
    found = [x for seed in programs for x in allocations(seed, schedules)]
    assert len(found) > len(programs)
    apart = [x for x in found if not 1 / 1.1 <= x.ratio <= 1.1]
    assert len(apart) <= 0.1 * len(found) + 0.5, apart
    assert sum(not 1 / 3 < x.ratio < 3 for x in apart) <= 0.02 * len(found) + 0.5, apart
    assert abs(np.median(np.log([x.ratio for x in found]))) < 0.02, apart


def test_memory_of_random_schedules() -> None:
    judged(range(28, 32), 2)


@pytest.mark.slow
def test_memory_of_two_thousand_schedules() -> None:
    judged(range(1000, 1500), 4)
