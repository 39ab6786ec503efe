"""``pytest --hjit NAMES``: a package's own tests, with its functions compiled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hjit
from hjit.report.kinds import BREAKS, NOT_CALLED, PLAIN, WHOLE, Row, merged, rows_of

pytest_plugins = ["pytester"]

PACKAGE = """
import numpy as np

def soft(a):
    return np.exp(a) * 2

def hard(a):
    b = np.sqrt(a) + 1
    return np.unique(np.round(b * 4)).size * b

def text(a):
    return str(a)

def idle(a):
    return a
"""
TESTS = """
import types, warnings
import numpy as np
import pytest
from softening import hard, soft, text

A = np.arange(600.0).reshape(20, 30) / 600

def test_soft():
    np.testing.assert_allclose(soft(A), np.exp(A) * 2, rtol=1e-12)

def test_hard():
    assert hard(A).shape == (20, 30)

def test_text():
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        assert text(A).startswith("[[")
    assert not met

def test_kind():
    assert isinstance(soft, types.FunctionType)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a module and its tests."""
    pytester.makepyfile(softening=PACKAGE, test_softening=TESTS)
    root = str(Path(hjit.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", f"{pytester.path}:{root}")
    monkeypatch.setenv("HJIT_ON_UNSUPPORTED", "break")
    return pytester


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "hjit.pytest_plugin", "-p", "no:cacheprovider", *options)


def test_tests_run_on_compiled_functions(project: pytest.Pytester) -> None:
    done = run(project, "--hjit", "softening", "--hjit-json", "how.json")
    done.assert_outcomes(passed=3, failed=1)  # the last one sees a pipeline
    done.stdout.fnmatch_lines(
        [
            "*= hjit =*",
            "3 of 4 functions called: 1 compiled whole, 1 with breaks, 1 plain",
            "softening.hard: with breaks: line 8: *unique*",
            "softening.text: plain: *",
        ]
    )
    rows = json.loads((project.path / "how.json").read_text())["functions"]
    kinds = {"softening.hard": BREAKS, "softening.idle": NOT_CALLED, "softening.soft": WHOLE, "softening.text": PLAIN}
    assert {row["name"]: row["kind"] for row in rows} == kinds
    assert [row["calls"] for row in rows] == [1, 0, 1, 1]


def test_nothing_happens_without_the_option(project: pytest.Pytester) -> None:
    done = run(project)
    done.assert_outcomes(passed=4)
    done.stdout.no_fnmatch_line("*= hjit =*")
    light = "import sys, hjit.pytest_plugin; print([m for m in ('numba', 'scipy', 'rich', 'hjit.modules') if m in sys.modules])"
    assert project.run("python", "-c", light).outlines == ["[]"]


def test_filters_that_a_package_sets_hold_no_longer_than_without_the_option(project: pytest.Pytester) -> None:
    project.makepyfile(
        silent="import warnings\nwarnings.filterwarnings('ignore', 'careless')\ndef f(a):\n    return a",
        test_silent="import warnings, silent\ndef test_f():\n    warnings.warn('careless')",
    )
    for options in ((), ("--hjit", "silent")):
        run(project, *options, "test_silent.py").assert_outcomes(passed=1, warnings=1)


def test_workers_hand_their_counts_on(project: pytest.Pytester) -> None:
    done = run(project, "--hjit", "softening", "-n", "2", "--hjit-json", "how.json")
    done.assert_outcomes(passed=3, failed=1)
    done.stdout.fnmatch_lines(["3 of 4 functions called: 1 compiled whole, 1 with breaks, 1 plain"])
    assert sum(row["calls"] for row in json.loads((project.path / "how.json").read_text())["functions"]) == 3


def test_an_unknown_module_is_said(project: pytest.Pytester) -> None:
    done = run(project, "--hjit", "no_such_package")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*--hjit no_such_package: No module named 'no_such_package'*"])
    assert run(project, "--hjit", ",").ret == pytest.ExitCode.USAGE_ERROR


def test_rows_of_processes_are_one() -> None:
    def row(kind: str, calls: int, verified: bool | None = None, why: str = "") -> Row:
        return Row("f", kind, calls, 1, 0, verified, 2, why)

    assert merged([row(NOT_CALLED, 0), row(WHOLE, 2, True), row(PLAIN, 1, False, "slow")]) == [
        Row("f", WHOLE, 3, 3, 0, False, 6, "slow")
    ]
    assert merged([row(WHOLE, 1), row(BREAKS, 1)])[0].kind == BREAKS


def test_calls_that_raise_do_not_count() -> None:
    def root(a: np.ndarray) -> np.ndarray:
        if a.ndim != 2:
            raise ValueError("an image is needed")
        return np.sqrt(a) + 1

    p = hjit.pipeline(root, on_unsupported="break")
    with pytest.raises(ValueError, match="an image"):
        p(np.ones(3))
    assert [row.kind for row in rows_of({"f": p})] == [PLAIN]
    p(np.ones((20, 30)))
    (row,) = rows_of({"f": p})
    assert (row.kind, row.why) == (WHOLE, "")


def test_a_function_with_two_names_has_one_row() -> None:
    p = hjit.pipeline(lambda a: a + 1)
    assert [row.name for row in rows_of({"b.f": p, "a.f": p})] == ["b.f"]
