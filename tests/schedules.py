"""Random programs under random legal schedules against NumPy: ``python -m tests.schedules --count 1000 --seed 0``.

Each seed is a program of `tests.fuzz`, every tenth also one of the cost model's generator.
"""

from __future__ import annotations

import math
import random
import sys
import zlib
from dataclasses import dataclass
from typing import Any, ClassVar

from hjit.errors import ScheduleError
from hjit.kernels.lower.lower import lower
from hjit.model.feature_names import SCHEDULE
from hjit.sched.analysis.sized import SizedGraph
from hjit.sched.features.featurise import nest_features
from hjit.sched.language.memory import C_ORDER
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph
from hjit.trace.passes.rewrites import Rewrites
from tests import generated, seeds
from tests.fuzz import random_program
from tests.sched.random_schedules import random_schedule

GENERATED_EVERY = 10  # seeds
MOST = 3e8  # evaluations of a pair: seconds
COMPUTED = SCHEDULE.index("points_computed_total")


class _Some:
    """A random half of all names, always the same one."""

    def __init__(self, seed: int, part: float) -> None:
        self.seed, self.part = seed, part

    def __contains__(self, name: object) -> bool:
        return zlib.crc32(f"{self.seed} {name}".encode()) / 2**32 < self.part


class _Parts(dict[str, tuple[int, int]]):
    """Parts for a random third of all reductions, always the same ones."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def get(self, name: str, default: Any = None) -> Any:
        number = zlib.crc32(f"parts {self.seed} {name}".encode())
        return (number // 3 % 2, number // 6 % 5 + 1) if number % 3 == 0 else default


class _Sizes(dict[str, int]):
    """Run-time sizes, all the largest that programs have."""

    def __missing__(self, name: str) -> int:
        return 100


def evaluations(graph: Graph, tree: Root) -> float:
    """About how often the definitions of a Graph are evaluated: what is computed for each reader, all of it each time, may take hours."""
    sized, total = SizedGraph(graph, _Sizes()), 0.0
    layouts = dict.fromkeys(graph.by_name, C_ORDER)
    for node in tree.children:
        total += nest_features(sized, node, None, layouts).values[0][:, COMPUTED].sum()
    return total


@dataclass(frozen=True)
class RandomScheduler:
    """Decides at random, the same for equal graphs."""

    longest_block: ClassVar[float] = math.inf
    seed: int

    def rewrites(self) -> Rewrites:
        part = random.Random(self.seed).choice((0.0, 0.3, 0.8))
        return Rewrites(
            _Some(self.seed, part), _Some(self.seed + 1, 0.2), _Some(self.seed + 2, 0.15), _Parts(self.seed)
        )

    def tree(self, graph: Any, target: Any) -> Any:
        rng = random.Random(self.seed)
        for _ in range(20):
            tree = random_schedule(graph, rng)
            if evaluations(graph, tree) > MOST:
                continue
            try:
                lower(graph, tree)
            except ScheduleError:
                continue  # a window that does not move steadily: only lowering sees it
            return tree
        return random_schedule(graph, rng, inside=0.0)


def failure(seed: int) -> str | None:
    """What is wrong with the program and schedule of a seed, or None."""
    why = random_program(seed).fails(schedule=RandomScheduler(seed))
    if why is None and seed % GENERATED_EVERY == 0:
        why = generated.failure(seed, generated.PIXELS[0], RandomScheduler(seed), num_threads=2)
    return why


if __name__ == "__main__":
    sys.exit(seeds.main("tests.schedules", __doc__, failure))
