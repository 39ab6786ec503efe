"""Checkers of random seeds as commands: many seeds, some in one process after the other, and what failed as JSON."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.suite import about

Failed = list[tuple[int, str]]

BATCH = 50  # seeds that one process runs
WORDS = 600  # characters of a reason


def run(module: str, first: int, count: int) -> Failed:
    """The seeds that fail among `count` from `first` on, and why, found by a process of their own, which one may end."""
    command = [sys.executable, "-m", module, "--seed", str(first), "--count", str(count), "--here"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode in (0, 1):
        return [(int(k), why) for k, why in json.loads(done.stdout.splitlines()[-1])]
    if count == 1:
        return [(first, f"the process ended with status {done.returncode}: {done.stderr[-400:]}")]
    half = count // 2
    return run(module, first, half) + run(module, first + half, count - half)


def main(module: str, about_it: str | None, failure: Callable[[int], str | None]) -> int:
    """Check many seeds; the exit code is 1 where one failed.

    Args:
        module: what is run, as in ``python -m``.
        failure: what is wrong with a seed, or None.
    """
    parser = argparse.ArgumentParser(description=about_it)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--json", help="write what was found to this file")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.count)
    if given.here:
        found = [(k, why[:WORDS]) for k in seeds if (why := failure(k)) is not None]
        print(json.dumps(found))
        return bool(found)
    start, done, known = time.time(), 0, about()
    failed: Failed = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for some in pool.map(lambda k: run(module, k, min(BATCH, seeds.stop - k)), seeds[::BATCH]):
            failed += some
            done = min(done + BATCH, given.count)
            for k, why in some:
                print(f"seed {k}: {why}", flush=True)
            if given.json:  # each time: a run that is ended has said how far it came
                numbers = {
                    "pairs": done,
                    "first_seed": given.seed,
                    "failed": failed,
                    "seconds": round(time.time() - start),
                    "jobs": given.jobs,
                }
                Path(given.json).write_text(json.dumps({**numbers, **known}, indent=1) + "\n")
    print(f"{done} pairs, {len(failed)} failed, {time.time() - start:.0f} s: {[k for k, _ in failed]}")
    return bool(failed)
