"""The applications timed against their peers: a process for each application and number of threads, and the table.

A candidate that ends its process (a compiler that runs out of memory, say) becomes a row with an error; the others are
measured again without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import apps
from benchmarks.rows import HALIDE_SCHEDULES, HJIT_SCHEDULES, PEERS, Request, Row

ROOT = Path(__file__).resolve().parents[1]
THREADS = (
    "HL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "HJIT_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
PACKAGES = {"halide": "halide", "opencv": "opencv-python-headless", "jax": "jax", "scipy": "scipy"}
MAX_DEATHS = 8  # of one application's processes


def environment(threads: int) -> dict[str, str]:
    """Variables of a measuring process: every library with a setting takes this many threads."""
    found = {k: v for k, v in os.environ.items() if not k.startswith("HJIT_")}
    found.update(dict.fromkeys(THREADS, str(threads)))
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), found.get("PYTHONPATH", "")]))
    return found


def process(request: Request) -> tuple[list[dict[str, Any]], str | None]:
    """The records of a fresh process that measures, and how it ended if it did not end well."""
    with tempfile.TemporaryDirectory(prefix="hjit-bench-") as folder:
        file = Path(folder) / "records"
        file.touch()
        command = [sys.executable, "-m", "benchmarks.rows", json.dumps(asdict(request)), str(file)]
        # a compiler may print more than a pipe holds: a file does for all of it
        with (Path(folder) / "errors").open("w+b") as errors:
            done = subprocess.run(
                command,
                env=environment(request.threads),
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                check=False,
            )
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().splitlines()[-1:]
        records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    if done.returncode == 0:
        return records, None
    return records, f"the process ended with status {done.returncode} {' '.join(last)}"[:500].strip()


def rows_of(request: Request) -> list[dict[str, Any]]:
    """The rows of an application, measured without the candidates that end the process."""
    skip = dict(request.skip)
    for _ in range(MAX_DEATHS):
        records, death = process(Request(**{**asdict(request), "skip": dict(skip)}))
        rows = [r["row"] for r in records if "row" in r]
        if death is None:
            return rows
        at = next((r["at"] for r in reversed(records) if "at" in r), None)
        if at is None or at in skip or at.endswith(" timing"):
            break
        skip[at] = death
    return [*rows, _failed(request, death)]


def _failed(request: Request, error: str | None) -> dict[str, Any]:
    return asdict(Row(request.app, "numpy", None, "planar", request.threads, [], "", False, False, error=error))


def run(
    names: Sequence[str] = apps.NAMES,
    peers: Sequence[str] = PEERS,
    threads: Sequence[int] = (),
    *,
    small: bool = False,
    budget: float = 1.0,
    halide: Sequence[str] = HALIDE_SCHEDULES,
    hjit: Sequence[str] = ("default", "manual"),
    keep: Callable[[dict[str, Any]], None] = lambda numbers: None,
) -> dict[str, Any]:
    """All numbers, under the names of the JSON file.

    Args:
        threads: numbers of threads; one process each. All cores if there are none.
        small: the sizes of the tests instead.
        budget: seconds for each candidate.
        halide: the schedules that Halide runs by; searches of Adams2019 take minutes.
        hjit: those that hjit runs by.
        keep: called with what there is after each application.

    Raises:
        ValueError: an unknown application, peer or schedule.
    """
    from rich.console import Console

    lists = (
        ("application", names, apps.NAMES),
        ("peer", peers, PEERS),
        ("schedule of Halide", halide, HALIDE_SCHEDULES),
        ("schedule of hjit", hjit, HJIT_SCHEDULES),
    )
    for kind, given, known in lists:
        check_names(kind, given, known)
    numbers = about()
    console = Console(stderr=True)
    rows: list[dict[str, Any]] = []
    for n in threads or (numbers["machine"]["cores"],):
        for name in names:
            with console.status(f"{name}, {n} thread{'s' if n > 1 else ''}"):
                rows += rows_of(Request(name, tuple(peers), n, small, budget, halide=tuple(halide), hjit=tuple(hjit)))
            keep({**numbers, "rows": rows})
    return {**numbers, "rows": rows}


def check_names(kind: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Are all names known ones?

    Raises:
        ValueError: one is not.
    """
    unknown = [n for n in given if n not in known]
    if unknown:
        raise ValueError(f"unknown {kind} {', '.join(unknown)}; known are {', '.join(known)}")


def about() -> dict[str, Any]:
    """The machine, the versions and the commit."""
    from benchmarks.overhead import about as overhead_about

    found = overhead_about()
    for name, package in PACKAGES.items():
        try:
            found["versions"][name] = version(package)
        except PackageNotFoundError:
            found["versions"][name] = "-"
    found["machine"]["os"] = found["machine"].get("system", sys.platform)
    return found
