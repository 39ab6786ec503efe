"""A plug-in for pytest: one line of JSON for each test that ends, so that a process that dies says how far it came.

A run with the same file goes on: tests that ended, or that ended the process, are left out. The file is named by the
environment variable `OUTCOMES`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FAILED = ("failed", "died")
MESSAGE = 400  # characters of a failure that are kept


def read(file: Path) -> dict[str, dict[str, Any]]:
    """By the names of tests: outcome, seconds of the processor, and what failed. A test that only began has died."""
    found: dict[str, dict[str, Any]] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        record = json.loads(line)
        found[record.pop("test")] = record
    return found


def _file() -> Path:
    return Path(os.environ["OUTCOMES"])


def _write(test: str, outcome: str, seconds: float, message: str) -> None:
    with _file().open("a", encoding="utf-8") as f:
        f.write(json.dumps({"test": test, "outcome": outcome, "seconds": round(seconds, 3), "message": message}) + "\n")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what has ended before."""
    known = read(_file())
    items[:] = [item for item in items if item.nodeid not in known]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file of tests that cannot be imported."""
    if report.failed:
        _write(report.nodeid, "failed", 0.0, str(report.longrepr)[-MESSAGE:])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Say that a test has begun, and what became of it."""
    _write(item.nodeid, "died", 0.0, "")
    _found.clear()
    start = time.process_time()
    result = yield
    outcome, message = "passed", ""
    for report in _found:
        if report.failed:
            outcome, message = "failed", _message(report)
        elif report.skipped and outcome != "failed":
            outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
    _write(item.nodeid, outcome, time.process_time() - start, message)
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the reports of a test until it has ended."""
    _found.append(report)


def _message(report: pytest.TestReport) -> str:
    """Where it failed, and the exception."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return str(report.longrepr)[-MESSAGE:]
    return f"{Path(crash.path).name}:{crash.lineno}: {crash.message}"[:MESSAGE]


_found: list[pytest.TestReport] = []
