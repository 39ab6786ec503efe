"""The tests of the CUDA back end on a GPU, through CuPy, against NumPy: ``python -m tests.gpu [--json FILE]``.

It needs CuPy and a device, and of other packages what the tests of a part import: a part that lacks one is left out, and
that is said. A line for each failure; what was run is in the file, and a run with the same file goes on where the last
one ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.gpu import words

CASE_SECONDS = 120  # after which a case hangs
START_SECONDS = 120  # more, for the first case of a process
STOP_SECONDS = 10
SAVE_SECONDS = 5  # between writes of the file
SPOILED = ("cudaError", "CUDA_ERROR", "CUDADriverError")  # no kernel runs in a process afterwards


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    from tests.gpu.parts import PARTS

    p = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    p.add_argument("--json", metavar="FILE", type=Path, help="write what was found here, and go on from it")
    p.add_argument("--minutes", type=float, default=8.5, help="stop then (8.5)")
    p.add_argument("--only", metavar="PART,PART", help=f"of {', '.join(PARTS)}")
    p.add_argument("--cases", metavar="TEXT", default="", help="those alone whose names have this in them")
    p.add_argument("--jobs", type=int, help="processes at once (half of the cores, 8 at most)")
    p.add_argument(
        "--stand-in",
        action="store_true",
        help="on a small CuPy of the tests in place of a GPU, by PoCL: tries this command",
    )
    return p


def main() -> int:
    """Run the tests; the exit code is 1 where one failed, and 2 where there is no GPU."""
    words.install()
    given = arguments().parse_args()
    try:
        known = about(given.stand_in)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    wanted, missing = listed(given)
    for part, why in missing.items():
        print(f"{part}: left out: {why}", flush=True)
    run = Run(given, known, wanted, missing)
    run.go()
    return run.report()


def about(stand_in: bool) -> dict[str, Any]:
    """The device, its driver, versions, and the commit.

    Raises:
        DeviceError: there is no device.
    """
    from benchmarks.gpu import worker

    with worker.package(stand_in) as cupy:
        return worker.machine(cupy, stand_in)


def listed(given: argparse.Namespace) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Cases as (part, name), parts interleaved; and why parts are left out."""
    from tests.gpu.parts import PARTS

    parts = list(PARTS) if given.only is None else given.only.split(",")
    lists, missing = [], {}
    for part in parts:
        if part not in PARTS:
            raise SystemExit(f"unknown part {part}; known are {', '.join(PARTS)}")
        try:
            lists.append([(part, name) for name in PARTS[part]() if given.cases in name])
        except ModuleNotFoundError as error:
            missing[part] = f"it needs the package {error.name}"
        except BaseException as error:
            if type(error).__name__ != "Skipped":
                raise
            missing[part] = str(error)
    # random programs last: they are as many as there is time for
    fixed = [x for cases in lists for x in cases if x[0] not in ("programs", "pairs")]
    drawn = [x for cases in lists for x in cases if x[0] in ("programs", "pairs")]
    return fixed + sorted(drawn, key=lambda x: int(x[1])), missing


class Run:
    """Cases, what became of them, and the processes that run them."""

    def __init__(
        self, given: argparse.Namespace, known: dict[str, Any], wanted: list[tuple[str, str]], missing: dict[str, str]
    ) -> None:
        self.given, self.known, self.wanted, self.missing = given, known, wanted, missing
        self.start = self.saved = time.monotonic()
        self.end = self.start + 60 * given.minutes
        self.results: dict[str, dict[str, Any]] = self._earlier()
        self.lock = threading.Lock()

    def _earlier(self) -> dict[str, dict[str, Any]]:
        """What passed in an earlier run of the same commit on the same device."""
        try:
            old = json.loads(self.given.json.read_text())
        except (AttributeError, OSError, ValueError):
            return {}
        same = all(old.get(k) == self.known[k] for k in ("commit", "gpu", "versions"))
        return {k: x for k, x in old["results"].items() if x["result"] != "failed"} if same else {}

    def go(self) -> None:
        """Run what has no result, in several processes."""
        left: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        for part, name in self.wanted:
            if f"{part}: {name}" not in self.results:
                left.put((part, name))
        jobs = self.given.jobs or min(max((os.cpu_count() or 2) // 2, 1), 8)
        threads = [threading.Thread(target=self._work, args=(left,)) for _ in range(jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.save()

    def _work(self, left: queue.SimpleQueue[tuple[str, str]]) -> None:
        worker = None
        while time.monotonic() < self.end:
            try:
                case = left.get_nowait()
            except queue.Empty:
                break
            worker = worker or Worker(self.given.stand_in)
            found = worker.run(case, self.end)
            if found is None:  # out of time
                break
            if worker.is_ended or any(w in found.get("why", "") for w in SPOILED):
                worker.stop()
                worker = None
            self.keep(f"{case[0]}: {case[1]}", found)
        if worker is not None:
            worker.stop()

    def keep(self, name: str, found: dict[str, Any]) -> None:
        """Note a result, print it if it is a failure, write the file now and then."""
        with self.lock:
            self.results[name] = found
            if found["result"] == "failed":
                print(f"{name}: {' '.join(found['why'].split())[:400]} ({found.get('at', '-')})", flush=True)
            if time.monotonic() - self.saved > SAVE_SECONDS:
                self.save()

    def counts(self) -> dict[str, dict[str, int]]:
        """How many cases of each part passed, failed, were skipped, and are left."""
        found: dict[str, Counter[str]] = {}
        for part, name in self.wanted:
            result = self.results.get(f"{part}: {name}", {"result": "left"})["result"]
            found.setdefault(part, Counter())[result] += 1
        return {part: dict(c) for part, c in found.items()}

    def save(self) -> None:
        self.saved = time.monotonic()
        if self.given.json is None:
            return
        failed = [k for k, x in self.results.items() if x["result"] == "failed"]
        numbers: dict[str, Any] = {
            "counts": self.counts(),
            "failed": failed,
            "left_out": self.missing,
            "results": self.results,
        }
        numbers = {**self.known, "seconds": round(self.saved - self.start), **numbers}
        self.given.json.parent.mkdir(parents=True, exist_ok=True)
        new = self.given.json.with_name(self.given.json.name + ".new")
        new.write_text(json.dumps(numbers, indent=1) + "\n")
        new.replace(self.given.json)

    def report(self) -> int:
        """Print the counts; the exit code."""
        counts = self.counts()
        for part, c in counts.items():
            print(f"{part}: {', '.join(f'{n} {word}' for word, n in sorted(c.items()))}")
        gpu = self.known["gpu"]
        print(f"{gpu['name']}, driver for CUDA {gpu['driver']}, {time.monotonic() - self.start:.0f} s")
        return int(any(c.get("failed") for c in counts.values()))


class Worker:
    """A process that runs cases one after the other."""

    def __init__(self, stand_in: bool) -> None:
        command = [sys.executable, "-m", "tests.gpu.worker", *(["--stand-in"] if stand_in else [])]
        # as in `tests.conftest`
        usual = {"HJIT_TUNE": "0", "HJIT_NUMPY_IF_FASTER": "0", "HJIT_BUDGET": "10", "HJIT_ON_UNSUPPORTED": "raise"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **usual}
        )
        self.begun = self.is_ended = False
        self.last: list[bytes] = []
        self.drain = threading.Thread(target=self._drain, daemon=True)
        self.drain.start()

    def _drain(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.last = [*self.last[-4:], line]

    def run(self, case: tuple[str, str], end: float) -> dict[str, Any] | None:
        """What became of a case; None if there was no time for it."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        limit = CASE_SECONDS + (0 if self.begun else START_SECONDS)
        self.begun = True
        try:
            stdin.write(json.dumps(case).encode() + b"\n")
            stdin.flush()
        except OSError:
            return self._died()
        ready, _, _ = select.select([stdout], [], [], min(limit, max(end - time.monotonic(), 0.1)))
        if not ready:
            if time.monotonic() >= end:
                return None
            self.stop()
            return {"result": "failed", "why": f"no result after {limit} s"}
        line = stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else self._died()

    def _died(self) -> dict[str, Any]:
        self.stop()
        self.drain.join(1.0)
        status = self.process.returncode
        last = b"".join(self.last).decode(errors="replace").strip()[-400:]
        return {"result": "failed", "why": f"the process ended with status {status}: {last}"}

    def stop(self) -> None:
        """End it; where a kernel never ends that may take the driver a while, which nobody waits for."""
        self.is_ended = True
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
