"""A child process that measures, and writes its row bit by bit: what it has written stays where it ends early."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.suite import ROOT, environment


def row_of_child(
    module: str, request: list[Any], file: Path, variables: Mapping[str, str], limit: float, *paths: str
) -> tuple[dict[str, Any], str | None]:
    """What ``python -m module``, which calls `answer`, writes, and how it fails; None: it has taken `limit` seconds.

    Args:
        file: for what it writes.
        variables: all those of its environment.
        paths: for its imports, after the repository and those of this process.
    """
    where = os.pathsep.join(filter(None, [str(ROOT), variables.get("PYTHONPATH", ""), *paths]))
    file.write_text("")
    command = [sys.executable, "-m", module, json.dumps(request), str(file)]
    error: str | None = ""
    try:
        done = subprocess.run(
            command,
            env={**variables, "PYTHONPATH": where},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit,
        )
        if done.returncode:
            error = f"status {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}"[:400]
    except subprocess.TimeoutExpired:
        error = None
    found: dict[str, Any] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        found |= json.loads(line)
    return found, error


def reported(module: str, request: list[Any], threads: int, limit: float) -> dict[str, Any]:
    """What ``python -m module`` writes, where every library takes so many threads; or how it fails, as an "error"."""
    with tempfile.TemporaryDirectory(prefix="hjit-child-") as folder:
        found, error = row_of_child(module, request, Path(folder, "row.jsonl"), environment(threads), limit)
    error = f"more than {limit:.0f} s" if error is None else error
    return {"error": error} if error else found


def answer(measure: Callable[..., None]) -> None:
    """In the child: call a function with what was asked, and with what writes a part of the row.

    The request and the file are the arguments of the process.
    """
    with open(sys.argv[2], "a", encoding="utf-8") as f:

        def write(found: Any) -> None:
            f.write(json.dumps(found) + "\n")
            f.flush()

        measure(*json.loads(sys.argv[1]), write=write)


def answer_whole(measure: Callable[..., Any]) -> None:
    """As `answer`, with a function that returns the row."""
    answer(lambda *request, write: write(measure(*request)))
