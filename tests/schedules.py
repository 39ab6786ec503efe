"""Random programs under random legal schedules against NumPy: ``python -m tests.schedules --count 1000 --seed 0``."""

from __future__ import annotations

import argparse
import random
import sys
import time
import zlib
from dataclasses import dataclass
from typing import Any

from hjit.errors import ScheduleError
from hjit.kernels.lower import lower
from hjit.sched.sample import random_schedule
from hjit.trace.canonical import Inlining
from tests.fuzz import random_program


class _Some:
    """A random half of all names, always the same one."""

    def __init__(self, seed: int, part: float) -> None:
        self.seed, self.part = seed, part

    def __contains__(self, name: object) -> bool:
        return zlib.crc32(f"{self.seed} {name}".encode()) / 2**32 < self.part


@dataclass(frozen=True)
class RandomScheduler:
    """Decides at random, the same for equal graphs."""

    seed: int

    def inlining(self) -> Inlining:
        part = random.Random(self.seed).choice((0.0, 0.3, 0.8))
        return Inlining(_Some(self.seed, part), _Some(self.seed + 1, 0.2))  # type: ignore[arg-type]

    def tree(self, graph: Any, target: Any) -> Any:
        rng = random.Random(self.seed)
        for _ in range(20):
            tree = random_schedule(graph, rng)
            try:
                lower(graph, tree)
            except ScheduleError:
                continue  # a window that does not move steadily: only lowering sees it
            return tree
        return random_schedule(graph, rng, inside=0.0)


def failure(seed: int) -> str | None:
    """What is wrong with the program and schedule of a seed, or None."""
    return random_program(seed).fails(schedule=RandomScheduler(seed))


def main() -> int:
    """Run many pairs; the exit code is 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    start, failed = time.time(), []
    for seed in range(given.seed, given.seed + given.count):
        why = failure(seed)
        if why is not None:
            failed.append(seed)
            print(f"seed {seed}: {why[:600]}", flush=True)
    print(f"{given.count} pairs, {len(failed)} failed, {time.time() - start:.0f} s: {failed}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
