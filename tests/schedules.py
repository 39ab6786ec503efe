"""Random programs under random legal schedules against NumPy: ``python -m tests.schedules --count 1000 --seed 0``."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.suite import about
from hjit.errors import ScheduleError
from hjit.kernels.lower import lower
from hjit.sched.sample import random_schedule
from hjit.trace.rewrites import Rewrites
from tests.fuzz import random_program

BATCH = 50  # pairs that one process runs


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


@dataclass(frozen=True)
class RandomScheduler:
    """Decides at random, the same for equal graphs."""

    seed: int

    def rewrites(self) -> Rewrites:
        part = random.Random(self.seed).choice((0.0, 0.3, 0.8))
        return Rewrites(_Some(self.seed, part), _Some(self.seed + 1, 0.2), _Some(self.seed + 2, 0.15), _Parts(self.seed))

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


def run(first: int, count: int) -> list[tuple[int, str]]:
    """The seeds that fail among `count` from `first` on, and why, found by a process of their own, which one may end."""
    command = [sys.executable, "-m", "tests.schedules", "--seed", str(first), "--count", str(count), "--here"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode in (0, 1):
        return [(int(k), why) for k, why in json.loads(done.stdout.splitlines()[-1])]
    if count == 1:
        return [(first, f"the process ended with status {done.returncode}: {done.stderr[-400:]}")]
    half = count // 2
    return run(first, half) + run(first + half, count - half)


def main() -> int:
    """Run many pairs; the exit code is 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--json", help="write what was found to this file")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.count)
    if given.here:
        found = [(k, why[:600]) for k in seeds if (why := failure(k)) is not None]
        print(json.dumps(found))
        return bool(found)
    start, failed = time.time(), []
    with ThreadPoolExecutor(given.jobs) as pool:
        for some in pool.map(lambda k: run(k, min(BATCH, seeds.stop - k)), seeds[::BATCH]):
            failed += some
            for k, why in some:
                print(f"seed {k}: {why}", flush=True)
    seconds = round(time.time() - start)
    print(f"{given.count} pairs, {len(failed)} failed, {seconds} s: {[k for k, _ in failed]}")
    if given.json:
        found = {"pairs": given.count, "first_seed": given.seed, "failed": failed, "seconds": seconds, "jobs": given.jobs}
        Path(given.json).write_text(json.dumps({**found, **about()}, indent=1) + "\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
