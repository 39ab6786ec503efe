"""``python -m benchmarks skimage``: which tests fail compiled alone, also where a process dies."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import skimage_tests
from benchmarks.skimage_tests import Place, compared, files_of, located, markdown, of_plain, outcomes, run

FAILED = {"outcome": "failed", "message": "other\nlines of /home/me/site-packages/skimage/util/a.py:3"}
TESTS = """
import os, signal
import numpy as np
import pytest
import skimage.metrics

def test_passes():
    a = np.arange(300.0).reshape(15, 20)
    assert skimage.metrics.mean_squared_error(a, a + 1) == 1

def test_knows():
    assert type(skimage.metrics.mean_squared_error).__name__ == "function"

@pytest.mark.skip
def test_skipped(): ...

@pytest.mark.xfail(strict=True)
def test_expected(): assert False

def test_fails(): assert False, "always"

def test_dies():
    if type(skimage.metrics.mean_squared_error).__name__ != "function":
        os.kill(os.getpid(), signal.SIGKILL)

def test_afterwards(): ...
"""


@pytest.fixture
def tests(tmp_path: Path) -> Place:
    """Tests of a module, in place of scikit-image's."""
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics/test_some.py").write_text(TESTS)
    return Place(tmp_path)


def test_what_fails_compiled_alone_is_found(tests: Place, tmp_path: Path) -> None:
    how = tmp_path / "how.json"
    row = of_plain(outcomes(tests, "metrics", None, 100.0, tmp_path), "test_some.py")
    (file,) = files_of(tests, "metrics", ["some"])
    found = compared(row, outcomes(tests, "metrics", how, 100.0, tmp_path, file))
    assert row["plain"] == {"passed": 4, "skipped": 1, "xfailed": 1, "failed": 1}
    assert found["compiled"] == {"passed": 2, "skipped": 1, "xfailed": 1, "failed": 2, "died": 1}
    names = {t["test"]: t["outcome"] for t in found["failed_compiled_only"]}
    assert names == {"test_knows": "failed", "test_dies": "died"}
    assert "AssertionError" in found["failed_compiled_only"][0]["message"]
    assert row["not_passed_plain"]["failed"] == ["test_fails"]
    assert found["ended"] == "" and found["not_run_compiled"] == 0 and how.exists()


def test_a_limit_keeps_what_there_is(tests: Place, tmp_path: Path) -> None:
    (tests.of("metrics") / "test_some.py").write_text(
        "def test_a(): ...\ndef test_b():\n    while True: ...\ndef test_c(): ...\n"
    )
    found = outcomes(tests, "metrics", None, 4.0, tmp_path)
    assert found["ended"] == "at its limit of 4 s"
    assert [t["outcome"] for t in found["tests"].values()] == ["passed", "unfinished"]
    row = {"plain": {"passed": 3}, "not_passed_plain": {}, "passed_plain": None}
    assert compared(row, found)["not_run_compiled"] == 2 and not compared(row, found)["failed_compiled_only"]
    row = of_plain(found, "test_some.py")
    both = {"tests": {f"test_some.py::test_{x}": {**FAILED, "seconds": 1.0} for x in "abc"}, "ended": ""}
    assert [t["test"] for t in compared(row, both)["failed_compiled_only"]] == ["test_a"]
    both["tests"]["test_some.py::test_b"]["seconds"] = 7.0
    assert compared(row, both)["slow"] == {"test_b": 7.0}


def test_tests_that_cannot_be_imported_are_said(tests: Place, tmp_path: Path) -> None:
    (tests.of("metrics") / "test_some.py").write_text("import no_such_package\n")
    found = outcomes(tests, "metrics", None, 100.0, tmp_path)
    (failed,) = found["tests"].values()
    assert failed["outcome"] == "failed" and "no_such_package" in failed["message"]
    assert found["ended"].startswith("with status 2") or not found["ended"]


def test_the_sources_are_found(tmp_path: Path) -> None:
    unpacked = tmp_path / "scikit_image-9.9"
    (unpacked / "tests/skimage/filters").mkdir(parents=True)
    (unpacked / "pyproject.toml").touch()
    assert located(unpacked, tmp_path) == Place(unpacked / "tests/skimage", ".", unpacked / "pyproject.toml")
    with tarfile.open(tmp_path / "sources.tar.gz", "w:gz") as archive:
        archive.add(unpacked, arcname=unpacked.name)
    (tmp_path / "into").mkdir()
    found = located(tmp_path / "sources.tar.gz", tmp_path / "into")
    assert found.of("filters") == tmp_path / "into/scikit_image-9.9/tests/skimage/filters"
    with pytest.raises(ValueError, match="has no tests"):
        located(tmp_path / "into", tmp_path)


def test_unknown_modules_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        command.main(["skimage", "--modules", "nothing"])
    assert command.parser().parse_args(["skimage", "--modules", "filters,color"]).modules == ["filters", "color"]
    assert set(skimage_tests.HOMES) <= set(skimage_tests.MODULES)


def test_runs_in_pieces_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["test_one.py", "deeper/test_two.py"]
    (tmp_path / "src/tests/skimage/filters").mkdir(parents=True)
    for name in files:
        file = tmp_path / "src/tests/skimage/metrics" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    ran: list[str] = []

    def outcome(tests: Place, module: str, compiled: Path | None, limit: float, folder: Path, file: Any = None) -> Any:
        ran.append("plain" if file is None else file.name)
        some = [file.relative_to(tests.of(module))] if file else files
        failed = {**FAILED, "seconds": 1.0}
        good = {"outcome": "passed", "seconds": 1.0, "message": ""}
        return {
            "tests": {f"x/metrics/{f}::{t}": failed if file and t == "b" else good for f in some for t in "ab"},
            "ended": "",
        }

    monkeypatch.setattr(skimage_tests, "outcomes", outcome)
    first = run(["metrics"], words=["one"], source=tmp_path / "src")
    assert first["files_not_run"] == ["metrics/deeper/test_two.py"]
    both = run(["metrics"], source=tmp_path / "src", earlier=first["files"])
    assert both["files_not_run"] == []
    assert ran == ["plain", "test_one.py", "plain", "test_two.py", "test_one.py"]
    (row,) = both["rows"]
    assert row["plain"] == {"passed": 4} and row["compiled"] == {"passed": 2, "failed": 2}
    assert row["failed_compiled_only"] == ["test_one.py::b", "deeper/test_two.py::b"]
    assert "skips whole" not in markdown(both)
    assert "skips whole" in markdown({**both, "files": [{**both["files"][0], "plain": {}, "compiled": {}}]})
    text = markdown(both)
    assert (
        "| skimage.metrics | 4 | 2 | 2 | 0 |" in text
        and "`metrics/deeper/test_two.py::b`: other lines of skimage/util/a.py:3" in text
    )
