"""All applications on a GPU, each in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import apps, peers

ROOT = Path(__file__).resolve().parents[2]
LAYOUTS = ("planar", "channels_last")
CANDIDATE_SECONDS = 0.5
APP_SECONDS = 150.0  # after which its process is ended
BUILD_SECONDS = 90.0  # that a candidate takes to compile; then it is left out
POLL_SECONDS = 0.2
MINUTES = 9.0  # of a run
MAX_DEATHS = 4  # of one application's processes
LATE = tuple(x for x in ("torch",) if importlib.util.find_spec(x))
"""Candidates that take long to compile: with them when all applications have been measured without."""


def run(
    names: Sequence[str] = apps.NAMES,
    earlier: dict[str, Any] | None = None,
    *,
    minutes: float = MINUTES,
    small: bool = False,
    stand_in: bool = False,
    halide: Path | None = None,
    budget: float = CANDIDATE_SECONDS,
    keep: Callable[[dict[str, Any]], None] = lambda numbers: None,
) -> dict[str, Any]:
    """All numbers, under the names of the JSON file.

    Args:
        earlier: what an earlier run has written: its entries of the same GPU and sizes are kept, not measured again.
        minutes: when to stop.
        halide: the folder of Halide's libraries.
        keep: called with what there is after each application.

    Raises:
        RuntimeError: there is no GPU.
    """
    end = time.monotonic() + 60 * minutes
    known, _ = process({"about": True, "stand_in": stand_in}, APP_SECONDS)
    if "error" in known:
        raise RuntimeError(known["error"])
    here = {"gpu": known["gpu"]["name"], "small": small}
    old = (earlier or {}).get("apps", {})
    entries: dict[str, Any] = {k: x for k, x in old.items() if "rows" in x and here.items() <= x.items()}
    numbers = {**known, "apps": entries}
    about = {"small": small, "stand_in": stand_in, "budget": budget, "halide": None if halide is None else str(halide)}
    for late in (LATE, ()):
        for label, app, layout in labels(names):
            without = [x for x in late if layout == "planar" and peers.has(x, app)]
            before = entries.get(label)
            if before is not None and ("error" in before or set(before.get("late", ())) <= set(without)):
                continue
            if end - time.monotonic() <= 5:
                return numbers
            found = measured({**about, "app": app, "layout": layout, "late": without}, end)
            if before is None or "rows" in found:  # else those without them stay
                entries[label] = {**found, "late": without, "commit": known["commit"], **here}
                print(line(label, entries[label]), flush=True)
                keep(numbers)
    return numbers


def labels(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Applications in all layouts that they have: under which name, the application, the layout."""
    for app in names:
        yield app, app, "planar"
        for layout in LAYOUTS[1:]:
            if hasattr(apps.load(app), layout):
                yield f"{app} {layout}", app, layout


def measured(request: dict[str, Any], end: float) -> dict[str, Any]:
    """The entry of an application, without the candidates that end the process; or an error."""
    skip: dict[str, str] = {}
    found: dict[str, Any] = {}
    for _ in range(MAX_DEATHS):
        limit = min(max(end - time.monotonic(), 1.0), APP_SECONDS)
        found, at = process({**request, "skip": skip}, limit)
        if "error" not in found or at in (None, "timing", *skip) or time.monotonic() >= end:
            break
        skip[str(at)] = found["error"]
    return found


def process(request: dict[str, Any], limit: float) -> tuple[dict[str, Any], str | None]:
    """What a process of its own answers to a request: `about`, or an application; and the last candidate at hand.

    Args:
        limit: seconds.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HJIT_")}
    environment |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}
    environment |= {k: os.environ[k] for k in ("HJIT_CACHE_DIR",) if k in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory(prefix="hjit-bench-") as folder:
        file = Path(folder, "answer.json")
        words = [sys.executable, "-m", "benchmarks.gpu.worker", json.dumps(request), str(file)]
        with Path(folder, "errors").open("w+b") as errors:  # a compiler may print more than a pipe holds
            child = subprocess.Popen(words, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors)
            try:
                late = _wait(child, file, limit)
            finally:
                child.kill()
                child.wait()
            errors.seek(0)
            last = " ".join(errors.read().decode(errors="replace").strip().splitlines()[-3:])
        at, last = _note(file, "at"), _note(file, "why") or last
        if late is not None:
            return {"error": late}, at
        if child.returncode == 0:
            answer: dict[str, Any] = json.loads(file.read_text())
            return answer, at
        return {"error": f"the process ended with status {child.returncode}: {last}"[:1500]}, at


def _note(file: Path, kind: str) -> str | None:
    """What a process has noted: the candidate "at" hand; "why" it ended."""
    with contextlib.suppress(FileNotFoundError):
        return file.with_name(f"{file.name}.{kind}").read_text() or None
    return None


def _wait(child: subprocess.Popen[bytes], file: Path, limit: float) -> str | None:
    """Until a process ends, which is None; or why it is not waited for longer."""
    start = since = time.monotonic()
    at = None
    while True:
        try:
            child.wait(POLL_SECONDS)
            return None
        except subprocess.TimeoutExpired:
            now, before, at = time.monotonic(), at, _note(file, "at")
        since = since if at == before else now
        if now - start > limit:
            return f"not done in {limit:.0f} s"
        if at not in (None, "timing") and now - since > BUILD_SECONDS:
            return f"its first call was not done in {BUILD_SECONDS:.0f} s"


def line(label: str, entry: dict[str, Any]) -> str:
    """An entry in a line."""
    if "error" in entry:
        return f"{label}: {entry['error']}"
    rows = entry["rows"]
    times = [f"{name} {r['median_ms']:.3g}" for name, r in rows.items() if "median_ms" in r]
    return f"{label}, ms: {', '.join(times)}"
