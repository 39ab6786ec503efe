"""``python -m benchmarks skimage``: which tests fail compiled alone, also where a process dies."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import skimage_tests
from benchmarks.skimage_tests import Place, compared, located, outcomes

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
    plain, compiled = (outcomes(tests, "metrics", x, 100.0, tmp_path) for x in (None, how))
    found = compared(plain, compiled)
    assert found["plain"] == {"passed": 4, "skipped": 1, "xfailed": 1, "failed": 1}
    assert found["compiled"] == {"passed": 2, "skipped": 1, "xfailed": 1, "failed": 2, "died": 1}
    names = {t["test"].partition("::")[2]: t["outcome"] for t in found["failed_compiled_only"]}
    assert names == {"test_knows": "failed", "test_dies": "died"}
    assert "AssertionError" in found["failed_compiled_only"][0]["message"]
    assert [name.partition("::")[2] for name in found["failed_plain"]] == ["test_fails"]
    assert found["ended"] == {} and found["not_run_compiled"] == 0 and how.exists()


def test_a_limit_keeps_what_there_is(tests: Place, tmp_path: Path) -> None:
    (tests.of("metrics") / "test_some.py").write_text(
        "import time\ndef test_a(): ...\ndef test_b(): time.sleep(1000)\n"
    )
    found = outcomes(tests, "metrics", None, 8.0, tmp_path)
    assert found["ended"] == "at its limit of 8 s"
    assert [t["outcome"] for t in found["tests"].values()] == ["passed", "died"]


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
