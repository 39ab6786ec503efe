"""Random programs under random GPU schedules, on OpenCL, against NumPy: ``python -m tests.kernels.cuda.pairs --count N``."""

from __future__ import annotations

import math
import random
import sys
from typing import Any

from hjit.errors import ScheduleError
from hjit.kernels.cuda.emit import emit_module
from hjit.kernels.lower.lower import CUDA, lower
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph
from hjit.trace.passes.rewrites import Rewrites
from tests import seeds
from tests.fuzz import random_program
from tests.kernels.cuda.on_opencl import on_opencl
from tests.sched.random_gpu_schedules import random_gpu_schedule


def schedule(graph: Graph, seed: int) -> Root:
    """A schedule that a GPU has the memory for, and that computes nothing too often."""
    rng = random.Random(seed)
    for attempt in range(12):
        tree = random_gpu_schedule(graph, rng, inside=0.8 if attempt < 8 else 0.3)
        try:
            emit_module(graph, lower(graph, tree, passes=CUDA), "hj_test")
        except ScheduleError:
            continue  # more shared memory than there is; a window that does not move steadily
        return tree
    return random_gpu_schedule(graph, rng, inside=0.0)


class RandomSchedule:
    """What decides on a random schedule."""

    longest_block = math.inf

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def rewrites(self) -> Rewrites:
        return Rewrites()

    def tree(self, graph: Graph, target: Any) -> Root:
        return schedule(graph, self.seed)


def failure(seed: int) -> str | None:
    """What is wrong with the program and schedule of a seed, or None."""
    with on_opencl(lambda graph: schedule(graph, seed), must_run=False):
        return random_program(seed).fails(tune=False, blas=False, numpy_if_faster=False)


if __name__ == "__main__":
    sys.exit(seeds.main("tests.kernels.cuda.pairs", __doc__, failure))
