"""``python -m benchmarks skimage``: scikit-image's own tests, plain and with its public functions compiled.

Each module's tests run in a process of their own, once plain and once under ``pytest --hjit skimage.MODULE``. A test
that passes plain and fails compiled is a fault, of hjit or of what the test asks. A process that dies, or is ended at
its limit, is started again without the test at which that happened.

The tests come with the installed package, or with its source distribution, which pip downloads if none is given.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from benchmarks.outcomes import FAILED, MESSAGE, read
from benchmarks.suite import ROOT, about, check_names
from hjit.report.kinds import NOT_CALLED

MODULES = (
    "filters", "exposure", "color", "transform", "feature", "restoration", "morphology", "util", "metrics", "measure",
    "segmentation",
)  # fmt: skip
LIMIT = 1200.0  # seconds of one module's tests, plain or compiled
MAX_DEATHS = 5  # of the processes of one module
HOMES = {  # of public functions, by which tests import them instead
    "filters": ("filters.rank", "filters.thresholding"),
    "exposure": ("exposure.exposure",),
    "color": ("color.colorconv", "color.delta_e"),
    "transform": ("transform.radon_transform",),
    "util": ("util.dtype", "util.shape", "util.compare"),
}
STAND_IN = '''"""Stands in for the build back end of scikit-image: pip asks for the metadata of what it downloads."""
import pathlib

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    made = pathlib.Path(folder, "scikit_image-{version}.dist-info")
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\\nName: scikit-image\\nVersion: {version}\\n")
    return made.name
'''


@dataclass(frozen=True)
class Place:
    """Where the tests are.

    Attributes:
        folder: that of the tests of all modules.
        inside: the path from a module's folder to its tests.
        configuration: a file with scikit-image's own settings for pytest.
    """

    folder: Path
    inside: str = "."
    configuration: Path | None = None

    def of(self, module: str) -> Path:
        """The folder of a module's tests."""
        return (self.folder / module / self.inside).resolve()


def downloaded(folder: Path) -> Path:
    """The source distribution of the installed version, downloaded into a folder.

    Raises:
        ValueError: pip cannot.
    """
    installed = version("scikit-image")
    stand_in = folder / "stand-in"
    stand_in.mkdir()
    (stand_in / "mesonpy.py").write_text(STAND_IN.replace("{version}", installed))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--no-binary", "scikit-image", "--dest", str(folder), f"scikit-image=={installed}"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(stand_in)}, capture_output=True, text=True, check=False
    )
    found = sorted(folder.glob("scikit_image-*.tar.gz"))
    if done.returncode or not found:
        raise ValueError(f"pip cannot download scikit-image's sources: {done.stderr.strip()[-300:]}")
    return found[0]


def located(source: Path | None, folder: Path) -> Place:
    """The tests: of a given archive or unpacked folder, of the installed package, or of what pip downloads.

    Raises:
        ValueError: there are none.
    """
    spec = importlib.util.find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError("scikit-image is not installed")
    package = Path(spec.submodule_search_locations[0])
    if source is None and (package / MODULES[0] / "tests").is_dir():
        return Place(package, "tests")
    source = source or downloaded(folder)
    if source.is_file():
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        source = next(p for p in sorted(folder.iterdir()) if (p / "pyproject.toml").is_file())
    configuration = source / "pyproject.toml"
    for tests in (Place(source / "tests/skimage", ".", configuration), Place(source / "skimage", "tests", None)):
        if tests.of(MODULES[0]).is_dir():
            return tests
    raise ValueError(f"{source} has no tests of scikit-image")


def command(tests: Place, module: str, compiled: Path | None) -> list[str]:
    """The command line of a module's tests; `compiled`: they run compiled, and this file is told how."""
    found = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "benchmarks.outcomes", "-p", "no:cacheprovider"]
    found += ["-p", "hjit.pytest_plugin", "-p", "no:xdist", "--confcutdir", str(tests.of(module)), "--tb=short"]
    found += ["--continue-on-collection-errors", "-W", "ignore::pytest.PytestDeprecationWarning"]  # of other versions
    if tests.configuration is not None:
        found += ["-c", str(tests.configuration), "-o", "addopts="]
    if compiled is not None:
        names = (module, *HOMES.get(module, ()))
        found += ["--hjit", ",".join(f"skimage.{name}" for name in names), "--hjit-json", str(compiled)]
    return [*found, str(tests.of(module))]


def outcomes(tests: Place, module: str, compiled: Path | None, limit: float, folder: Path) -> dict[str, Any]:
    """What became of each test of a module."""
    file = folder / f"{module}-{'plain' if compiled is None else 'compiled'}.jsonl"
    environment = {**os.environ, "OUTCOMES": str(file), "MPLBACKEND": "agg"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH", "")]))
    end = time.monotonic() + limit
    said = file.with_suffix(".txt")
    died, status = 0, 0
    for _ in range(MAX_DEATHS):
        with said.open("w") as output:
            try:
                status = subprocess.run(
                    command(tests, module, compiled),
                    env=environment,
                    cwd=folder,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=max(end - time.monotonic(), 1.0),
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                return {"tests": read(file), "ended": f"at its limit of {limit:.0f} s"}
        before, died = died, sum(t["outcome"] == "died" for t in read(file).values())
        if died == before:
            break
    is_over = status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    return {"tests": read(file), "ended": "" if is_over else f"with status {status}: {said.read_text()[-MESSAGE:]}"}


def of_module(tests: Place, module: str, limit: float, folder: Path) -> dict[str, Any]:
    """The counts of a module, and the tests that pass plain and not compiled."""
    how = folder / f"{module}-functions.json"
    plain = outcomes(tests, module, None, limit, folder)
    compiled = outcomes(tests, module, how, limit, folder)
    functions = json.loads(how.read_text())["functions"] if how.exists() else []
    return {"module": f"skimage.{module}", **compared(plain, compiled), "functions": _functions(functions)}


def compared(plain: dict[str, Any], compiled: dict[str, Any]) -> dict[str, Any]:
    """The counts of two runs, and where the second fails and the first does not."""
    theirs, ours = plain["tests"], compiled["tests"]
    passed = [name for name, t in theirs.items() if t["outcome"] == "passed"]
    return {
        "plain": Counter(t["outcome"] for t in theirs.values()),
        "compiled": Counter(t["outcome"] for t in ours.values()),
        "ended": {name: run["ended"] for name, run in (("plain", plain), ("compiled", compiled)) if run["ended"]},
        "failed_plain": [name for name, t in theirs.items() if t["outcome"] in FAILED],
        "not_run_compiled": sum(name not in ours for name in passed),
        "failed_compiled_only": [
            {"test": name, "outcome": ours[name]["outcome"], "message": ours[name]["message"]}
            for name in passed
            if name in ours and ours[name]["outcome"] != "passed"
        ],
        "cpu_seconds": {
            "plain": round(sum(t["seconds"] for t in theirs.values()), 1),
            "compiled": round(sum(t["seconds"] for t in ours.values()), 1),
        },
    }


def _functions(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How the functions ran: counts, calls, and the names of those that did not run whole."""
    called = [row for row in rows if row["kind"] != NOT_CALLED]
    return {
        "counts": Counter(row["kind"] for row in rows),
        "calls": sum(row["calls"] for row in called),
        "calls_by_numpy": sum(row["by_numpy"] for row in called),
        "wrong": [f"{row['name']}: {row['why']}" for row in called if row["verified"] is False],
        "not_whole": {row["name"]: f"{row['kind']}: {row['why']}" for row in called if row["kind"] != "whole"},
    }


def run(
    modules: Sequence[str] = MODULES,
    *,
    source: Path | None = None,
    limit: float = LIMIT,
    earlier: Sequence[dict[str, Any]] = (),
    keep: Callable[[dict[str, Any]], None] = lambda numbers: None,
) -> dict[str, Any]:
    """All counts, under the names of the JSON file.

    Args:
        source: scikit-image's source distribution, as an archive or unpacked.
        limit: seconds of one module's tests, each way.
        earlier: rows of an earlier run; those of other modules stay.
        keep: called with what there is after each module.

    Raises:
        ValueError: an unknown module, or no tests.
    """
    check_names("module", modules, MODULES)
    head = about()
    head["versions"]["scikit-image"] = version("scikit-image")
    rows = {row["module"]: row for row in earlier}
    with tempfile.TemporaryDirectory(prefix="hjit-skimage-") as name:
        folder = Path(name)
        tests = located(source, folder)
        for module in modules:
            row = {**of_module(tests, module, limit, folder)}
            rows[row["module"]] = row
            show([row])
            keep({**head, "rows": list(rows.values())})
    return {**head, "rows": list(rows.values())}


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the counts, and the tests that fail compiled alone."""
    for row in rows:
        counts = row["functions"]["counts"]
        kinds = ", ".join(f"{n} {kind}" for kind, n in counts.items())
        print(f"{row['module']}: plain {_text(row['plain'])}; compiled {_text(row['compiled'])}; functions: {kinds}")
        for which, how in row["ended"].items():
            print(f"    {which}: ended {how}")
        for test in row["failed_compiled_only"]:
            print(
                f"    {test['outcome']}: {test['test']}: {test['message'].splitlines()[0] if test['message'] else ''}"
            )


def _text(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())) or "no tests"
