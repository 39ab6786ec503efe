"""``python -m benchmarks skimage``: scikit-image's own tests, plain and with its public functions compiled.

A module's tests run plain in one process, which a later run does not repeat, and each of its test files in a process of
its own under ``pytest --hjit skimage.MODULE``. A test that passes plain and fails compiled is a fault, of hjit or of
what the test asks. A process that dies is started again without the test at which that happened. Files that a run
leaves out keep what an earlier one found, so a run may be made in pieces.

The tests come with the installed package, or with its source distribution, which pip downloads if none is given.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from benchmarks.outcomes import MESSAGE, read
from benchmarks.suite import ROOT, about, check_names
from hjit.report.kinds import BREAKS, NOT_CALLED, WHOLE
from hjit.report.kinds import PLAIN as PLAIN_NUMPY

MODULES = (
    "filters", "exposure", "color", "transform", "feature", "restoration", "morphology", "util", "metrics", "measure",
    "segmentation",
)  # fmt: skip
LIMIT = 1200.0  # seconds of the processor for one file's tests compiled, or a module's plain
SLOW = 5.0  # seconds of the processor: tests that take longer are listed
PATIENCE = 6  # times as many seconds by the clock
UNFINISHED = "unfinished"  # a test that was running when its process came to its limit
MAX_DEATHS = 5  # of the processes of one module
HOMES = {  # of public functions, by which tests import them instead
    "filters": ("filters.rank", "filters.thresholding"),
    "exposure": ("exposure.exposure",),
    "color": ("color.colorconv", "color.delta_e"),
    "transform": ("transform.radon_transform",),
    "util": ("util.dtype", "util.shape", "util.compare"),
}
KNOWN = {  # why tests fail that are right to pass plain
    "measure/test_blur_effect.py::test_blur_effect_channel_axis": "asks two sums of floats to have the same bits, "
    "one over a grey image that the same call computes; NumPy leaves the order of sums open, hjit too",
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


def command(tests: Place, module: str, compiled: Path | None, file: Path | None = None) -> list[str]:
    """The command line of a module's tests, or of one file's; `compiled`: they run so, and this file is told how."""
    found = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "benchmarks.outcomes", "-p", "no:cacheprovider"]
    found += ["-p", "hjit.pytest_plugin", "-p", "no:xdist", "--confcutdir", str(tests.of(module)), "--tb=short"]
    found += ["--continue-on-collection-errors", "-W", "ignore::pytest.PytestDeprecationWarning"]  # of other versions
    if tests.configuration is not None:
        found += ["-c", str(tests.configuration), "-o", "addopts="]
    if compiled is not None:
        names = (module, *HOMES.get(module, ()))
        found += ["--hjit", ",".join(f"skimage.{name}" for name in names), "--hjit-json", str(compiled)]
    return [*found, str(file or tests.of(module))]


def files_of(tests: Place, module: str, words: Sequence[str] = ()) -> list[Path]:
    """The test files of a module; of `words`, if there are any, each has one in its name."""
    found = sorted(tests.of(module).rglob("test_*.py"))
    return [file for file in found if not words or any(word in file.stem for word in words)]


def outcomes(
    tests: Place, module: str, compiled: Path | None, limit: float, folder: Path, file: Path | None = None
) -> dict[str, Any]:
    """What became of each test of a module, or of one file."""
    kept = folder / f"{module}-{file.stem if file else 'all'}-{'plain' if compiled is None else 'compiled'}.jsonl"
    environment = {**os.environ, "OUTCOMES": str(kept), "MPLBACKEND": "agg"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH", "")]))
    end = time.monotonic() + PATIENCE * limit
    said = kept.with_suffix(".txt")
    died, status = 0, 0
    for _ in range(MAX_DEATHS):
        with said.open("w") as output, contextlib.suppress(subprocess.TimeoutExpired):
            status = -signal.SIGXCPU  # which a process gets at its limit
            status = subprocess.run(
                command(tests, module, compiled, file),
                env=environment,
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=max(end - time.monotonic(), 1.0),
                check=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(limit) or 1, resource.RLIM_INFINITY)),
            ).returncode
        if status == -signal.SIGXCPU:
            return {"tests": _interrupted(read(kept)), "ended": f"at its limit of {limit:.0f} s"}
        before, died = died, sum(t["outcome"] == "died" for t in read(kept).values())
        if died == before:
            break
    is_over = status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    return {"tests": read(kept), "ended": "" if is_over else f"with status {status}: {said.read_text()[-MESSAGE:]}"}


def _interrupted(tests: dict[str, Any]) -> dict[str, Any]:
    """The outcomes, where the last test was running at the end."""
    name = next(reversed(tests), None)
    if name is not None and tests[name]["outcome"] == "died":
        tests[name]["outcome"] = UNFINISHED
    return tests


def of_module(
    tests: Place, module: str, limit: float, folder: Path, words: Sequence[str], earlier: dict[str, dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """A row for each file of a module's tests; the plain outcomes are those of `earlier`, where it has them."""
    files = {str(file.relative_to(tests.of(module))): file for file in files_of(tests, module, words)}
    plain: dict[str, Any] | None = None
    for name, file in files.items():
        known = earlier.get(f"{module}/{name}")
        known = None if known is None or known["ended_plain"] else known
        if known is None and plain is None:
            plain = outcomes(tests, module, None, limit * len(files_of(tests, module)), folder)
        how = folder / f"{module}-{file.stem}-functions.json"
        compiled = outcomes(tests, module, how, limit, folder, file)
        row: dict[str, Any] = {"module": f"skimage.{module}", "file": name}
        row |= {key: known[key] for key in PLAIN} if known else of_plain(plain, name)
        functions = json.loads(how.read_text())["functions"] if how.exists() else []
        yield {**row, **compared(row, compiled), "functions": _functions(functions)}


PLAIN = ("plain", "not_passed_plain", "passed_plain", "ended_plain", "cpu_seconds_plain")  # what a row says of them


def of_plain(run: dict[str, Any] | None, name: str) -> dict[str, Any]:
    """What a file's row says of the plain tests of its module."""
    assert run is not None
    tests = {test: t for test, t in run["tests"].items() if test.partition("::")[0].endswith(f"/{name}")}
    outcome = {test.partition("::")[2]: t["outcome"] for test, t in tests.items()}
    others = sorted(set(outcome.values()) - {"passed"})
    return {
        "plain": dict(Counter(outcome.values())),
        "not_passed_plain": {kind: [test for test, o in outcome.items() if o == kind] for kind in others},
        "passed_plain": [test for test, o in outcome.items() if o == "passed"] if run["ended"] else None,
        "ended_plain": run["ended"],
        "cpu_seconds_plain": round(sum(t["seconds"] for t in tests.values()), 1),
    }


def compared(row: dict[str, Any], compiled: dict[str, Any]) -> dict[str, Any]:
    """The counts of a compiled run, and where it fails and the plain one does not."""
    tests = {test.partition("::")[2]: t for test, t in compiled["tests"].items()}
    others = {test for names in row["not_passed_plain"].values() for test in names}
    known = row["passed_plain"]  # None: all that are not in `others`
    passed = {test: t for test, t in tests.items() if test not in others and (known is None or test in known)}
    done = [t for t in passed.values() if t["outcome"] != UNFINISHED]
    return {
        "compiled": dict(Counter(t["outcome"] for t in tests.values())),
        "ended": compiled["ended"],
        "not_run_compiled": row["plain"].get("passed", 0) - len(done),
        "failed_compiled_only": [
            {"test": test, "outcome": t["outcome"], "message": _without_folders(t["message"])}
            for test, t in passed.items()
            if t["outcome"] not in ("passed", UNFINISHED)
        ],
        "slow": {test: t["seconds"] for test, t in tests.items() if t["seconds"] > SLOW},
        "cpu_seconds": round(sum(t["seconds"] for t in tests.values()), 1),
    }


def _functions(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How the functions that were called ran, and why not whole."""
    keys = ("kind", "calls", "by_numpy", "verified")
    called = [row for row in rows if row["kind"] != NOT_CALLED]
    return {row["name"]: {**{key: row[key] for key in keys}, "why": _without_folders(row["why"])} for row in called}


def _without_folders(text: str) -> str:
    """A message without the folders of this machine: paths begin at the package, or at its tests."""
    return re.sub(r"[^\s'\"]*/(site-packages|tests(?=/skimage))/", "", text)


def summed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row for a module, of those of its files."""
    plain, compiled = Counter[str](), Counter[str]()
    kinds: dict[str, set[str]] = {}
    for row in rows:
        plain.update(row["plain"])
        compiled.update(row["compiled"])
        for name, f in row["functions"].items():
            kinds.setdefault(name, set()).add(f["kind"])
    functions = Counter(next(k for k in (BREAKS, WHOLE, PLAIN_NUMPY) if k in found) for found in kinds.values())
    wrong = {name for row in rows for name, f in row["functions"].items() if f["verified"] is False}
    return {
        "module": rows[0]["module"],
        "plain": dict(plain),
        "compiled": dict(compiled),
        "not_run_compiled": sum(row["not_run_compiled"] for row in rows),
        "failed_compiled_only": [f"{row['file']}::{t['test']}" for row in rows for t in row["failed_compiled_only"]],
        "cpu_seconds": round(sum(row["cpu_seconds"] for row in rows), 1),
        "cpu_seconds_plain": round(sum(row["cpu_seconds_plain"] for row in rows), 1),
        "calls": sum(f["calls"] for row in rows for f in row["functions"].values()),
        "functions": dict(functions),
        "wrong": sorted(wrong),
    }


def totals(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each module that there are rows of."""
    modules = dict.fromkeys(f"skimage.{module}" for module in MODULES)
    return [summed(of) for module in modules if (of := [row for row in rows if row["module"] == module])]


def run(
    modules: Sequence[str] = MODULES,
    *,
    words: Sequence[str] = (),
    source: Path | None = None,
    limit: float = LIMIT,
    earlier: Sequence[dict[str, Any]] = (),
    keep: Callable[[dict[str, Any]], None] = lambda numbers: None,
) -> dict[str, Any]:
    """All counts, under the names of the JSON file: of modules, and of their test files with the commit of each run.

    Args:
        words: of names of test files; none: all of them.
        source: scikit-image's source distribution, as an archive or unpacked.
        limit: seconds of the processor for one file's tests.
        earlier: rows of an earlier run of the same version of scikit-image.
        keep: called with what there is after each file.

    Raises:
        ValueError: an unknown module, or no tests.
    """
    check_names("module", modules, MODULES)
    head = about()
    head["versions"]["scikit-image"] = version("scikit-image")
    rows = {_name(row): row for row in earlier}
    with tempfile.TemporaryDirectory(prefix="hjit-skimage-") as name:
        folder = Path(name)
        tests = located(source, folder)
        known = [f"{m}/{file.relative_to(tests.of(m))}" for m in MODULES for file in files_of(tests, m)]

        def numbers() -> dict[str, Any]:
            left = [name for name in known if name not in rows]
            return {**head, "rows": totals([*rows.values()]), "files": [*rows.values()], "files_not_run": left}

        for module in modules:
            for found in of_module(tests, module, limit, folder, words, dict(rows)):
                row = {"commit": head["commit"], **found}
                rows[_name(row)] = row
                show([row])
                keep(numbers())
        return numbers()


def _name(row: dict[str, Any]) -> str:
    return f"{row['module'].removeprefix('skimage.')}/{row['file']}"


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the counts of files, and the tests that fail compiled alone."""
    for row in rows:
        print(
            f"{_name(row)}: plain {_text(row['plain'])}; compiled {_text(row['compiled'])}, {row['cpu_seconds']:.0f} s",
            flush=True,
        )
        if row["ended"]:
            print(f"    ended {row['ended']}")
        for test in row["failed_compiled_only"]:
            message = test["message"].splitlines()
            print(f"    {test['outcome']}: {test['test']}: {message[0] if message else ''}")
        for name, seconds in row["slow"].items():
            print(f"    {seconds:.0f} s: {name}")


def _text(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())) or "no tests"


def markdown(numbers: dict[str, Any]) -> str:
    """The page of the documents: counts by module, and each test that fails compiled alone."""
    versions = numbers["versions"]
    lines = [
        "# scikit-image's own tests",
        "",
        "`python -m benchmarks skimage` runs scikit-image's tests plain and with its public functions compiled",
        "(`pytest --hjit`). Calls with new dtypes or shapes compile kernels that are called once or twice: this is a",
        "test, and no benchmark. **Only compiled**: tests that pass plain and fail compiled. **Not run**: those that",
        "were left when a file reached its limit of the processor's time.",
        "",
        f"scikit-image {versions['scikit-image']}, NumPy {versions['numpy']}, Python {versions['python']}.",
        "",
        "| module | passed plain | passed compiled | only compiled | not run "
        "| functions called | whole | with breaks | plain | calls |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows = numbers["rows"]
    for row in rows:
        f = row["functions"]
        cells = [row["plain"].get("passed", 0), row["compiled"].get("passed", 0), len(row["failed_compiled_only"])]
        cells += [row["not_run_compiled"], sum(f.values()), *(f.get(k, 0) for k in (WHOLE, BREAKS, PLAIN_NUMPY))]
        lines.append(f"| {' | '.join(map(str, [row['module'], *cells, row['calls']]))} |")
    failed = [(row, t) for row in numbers["files"] for t in row["failed_compiled_only"]]
    if failed:
        lines += ["", "Tests that fail compiled alone:", ""]
        found = {f"{_name(row)}::{t['test']}": t["message"] for row, t in failed}
        lines += [f"- `{name}`: {KNOWN.get(name) or _one_line(message)}" for name, message in found.items()]
    wrong = sorted({name for row in rows for name in row["wrong"]})
    if wrong:
        lines += [
            "",
            "Functions that have a kernel whose first result was not NumPy's, so that NumPy runs instead:",
            "",
        ]
        lines += [f"- `{name}`" for name in wrong]
    skipped = [_name(row) for row in numbers["files"] if not row["plain"] and not row["compiled"]]
    if skipped:
        lines += [
            "",
            "Test files that pytest skips whole, plain too: they need data or packages that are not there:",
            "",
        ]
        lines += [f"- {', '.join(f'`{name}`' for name in skipped)}"]
    if numbers["files_not_run"]:
        lines += ["", "Test files that were not run, and are not counted:", ""]
        lines += [f"- {', '.join(f'`{name}`' for name in numbers['files_not_run'])}"]
    return "\n".join(lines) + "\n"


def _one_line(message: str) -> str:
    return " ".join(message.split())[:200].replace("|", "/")
