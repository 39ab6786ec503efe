"""Processes that are killed while they trace, compile, search and write: the cache that they leave must still work.

``python -m tests.campaign.kills SEED FOLDER`` is such a process: it runs some functions with a cache in that folder,
again and again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from tests.campaign import programs, source
from tests.campaign.fresh import forget
from tests.campaign.kinds import OK, Case, Result
from tests.campaign.process import ROOT

FIRST = 2 * 10**7  # of the seeds of its functions: others than those of `programs`
LIMIT = 180.0
KILLS = 3
FUNCTIONS = 3
READY = 60.0  # seconds for a process to start in
LONGEST = 1.5  # seconds until it is killed


def case(seed: int) -> Case:
    """Functions, and when the processes are killed."""
    r = random.Random(seed)
    return {
        "seed": seed,
        "functions": [programs.case(FIRST + FUNCTIONS * seed + k, by_itself=True) for k in range(FUNCTIONS)],
        "after": [r.random() ** 2 * LONGEST for _ in range(KILLS)],
    }


def run(case: Case) -> Result:
    """Kill some processes one after the other, then use the cache in this one."""
    with tempfile.TemporaryDirectory(prefix="hjit-campaign-") as folder:
        for seconds in case["after"]:
            status = killed(case["seed"], folder, seconds)
            if status != -signal.SIGKILL:
                return Result(
                    "failed",
                    f"exit status {status}",
                    f"a process ended before it was killed after {seconds:.2f} s: exit status {status}",
                )
        for k, function in enumerate(case["functions"]):
            for again in (False, True):
                forget()
                result = programs.run(function, cache="rw", cache_dir=folder)
                if result.status == "failed":
                    return Result(
                        "failed",
                        result.sort,
                        f"function {k}{', again' if again else ''}: {result.text}\n{source.described(function)}",
                    )
    return OK


def killed(seed: int, folder: str, seconds: float) -> int:
    """Start a process, kill it so long after it began to work, and answer its exit status."""
    command = [sys.executable, "-m", "tests.campaign.kills", str(seed), folder]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        process.kill()
        return process.wait(READY)


def main() -> None:
    """Until somebody ends it."""
    mine = case(int(sys.argv[1]))["functions"]
    print("ready", flush=True)
    while True:
        for function in mine:
            forget()
            programs.run(function, cache="rw", cache_dir=sys.argv[2])


def smaller(case: Case) -> Iterator[Case]:
    """Fewer functions do not help: what a process does goes by the seed."""
    yield from ()


def described(case: Case) -> str:
    """The functions, and when they were killed."""
    return f"# killed after {', '.join(f'{x:.2f} s' for x in case['after'])}\n" + "\n".join(
        source.described(f) for f in case["functions"]
    )


if __name__ == "__main__":
    main()
