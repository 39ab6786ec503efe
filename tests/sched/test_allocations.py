"""The memory that features say a schedule takes is what lowering gives it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hjit.call.segments import TraceSegments
from hjit.errors import HjitError
from hjit.kernels.lower.lower import lower
from hjit.kernels.runtime import features
from hjit.model import generator, network
from hjit.model.names import SCHEDULE
from hjit.options import Options
from hjit.pipeline import Pipeline
from hjit.sched.language.build import parallel_loops
from hjit.sched.language.tree import Loop, Root, Store
from hjit.trace.ir.poly import sizes_value
from hjit.training.cases import segment_of
from hjit.training.schedules import candidates
from hjit.tuning.autoschedule import space_of
from hjit.tuning.decide import by_search

BYTES = SCHEDULE.index("bytes_at_realization")
GIVEN: dict[str, Any] = {"verify": "off", "cache": "off", "tune": False, "num_threads": 2}


@dataclass(frozen=True)
class Allocation:
    """The buffer of a stage: bytes that lowering gives it, as far as the stage is as long, and bytes by its features."""

    program: int
    stage: str
    lowered: float
    expected: float

    @property
    def ratio(self) -> float:
        return self.lowered / self.expected


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
    made = generator.random_program(program, 300 * 300)
    options = Options(on_unsupported="raise", **GIVEN)
    variant = Pipeline(made.function, GIVEN).variant_of(tuple(made.inputs(program)), {}, options)
    if len(variant.graphs) != 1:
        return
    (graph,), sizes, cost = variant.graphs, variant.rec.sizes, network.random(program)
    space = space_of(segment_of(graph, options), sizes, options, cost)
    cut = TraceSegments(variant.trace, features.schedule_target(options.target))
    names = [s.name for s in graph.stages]
    for _, found in candidates(space, graph, schedules, program, cost):
        choice = by_search({graph.outputs: found.tree}, found.inlined)
        (segment,) = cut(choice.rewrites)
        tree = choice.of(segment).tree
        assert tree is not None
        try:
            lowered = lower(segment.graph, tree)
        except HjitError:
            continue
        values = space.features(found.tree, found.inlined)
        shared = of_tasks(found.tree)
        for buffer in lowered.buffers.values():
            stage = segment.graph.stage(buffer.stage)
            if stage.name in names and (stage.name not in shared or buffer.fold is not None):
                lengths = [
                    min(max(sizes_value(p, sizes), 0), _aligned(max(sizes_value(n, sizes), 1), a))
                    for p, n, a in zip(buffer.lengths, stage.shape, buffer.layout.align or (1,) * 9, strict=False)
                ]
                expected = values[names.index(stage.name), BYTES]
                yield Allocation(program, stage.name, stage.dtype.itemsize * math.prod(lengths), max(expected, 1.0))


def _aligned(n: int, by: int) -> int:
    return -(-n // by) * by


def judged(programs: range, schedules: int) -> None:
    """Most are as long, and none is much longer or shorter: lowering rounds pieces of unknown alignment up."""
    found = [x for seed in programs for x in allocations(seed, schedules)]
    assert len(found) > len(programs)
    apart = [x for x in found if not 1 / 1.1 <= x.ratio <= 1.1]
    assert len(apart) <= 0.1 * len(found), apart
    assert all(1 / 3 < x.ratio < 3 for x in apart), apart
    assert abs(np.log([x.ratio for x in found]).mean()) < 0.05, apart


def test_memory_of_random_schedules() -> None:
    judged(range(20, 24), 2)


@pytest.mark.slow
def test_memory_of_two_thousand_schedules() -> None:
    judged(range(1000, 1500), 4)
