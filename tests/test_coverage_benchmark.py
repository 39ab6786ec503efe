"""``python -m benchmarks coverage``: its functions and their arguments, a row, and the table; no look at the times."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import coverage, functions
from hjit.report.equality import difference

ALL = [(path, text) for table in functions.TABLES.values() for path, text in table.items()]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return functions.images(0.01)


def test_there_are_many_functions_of_many_packages() -> None:
    assert len(ALL) >= 150 and len(functions.TABLES) >= 10
    assert len({path for path, _ in ALL}) == len(ALL)


@pytest.mark.parametrize(("path", "text"), [x for x in ALL if x[0].startswith("benchmarks.")], ids=lambda x: x)
def test_functions_of_ours_give_the_same_twice(path: str, text: str, names: dict[str, Any]) -> None:
    f = functions.load(path)
    first, second = (f(*args, **kwargs) for args, kwargs in (functions.arguments(text, names) for _ in range(2)))
    assert difference(first, second) == 0
    assert first is not None


@pytest.mark.parametrize("package", functions.TABLES)
def test_functions_are_there(package: str, names: dict[str, Any]) -> None:
    for path, text in functions.TABLES[package].items():
        assert functions.arguments(text, names)[0]
        if importlib.util.find_spec(path.partition(".")[0]) is None:
            pytest.skip("not installed")
        assert callable(functions.load(path)), path


def test_images_are_of_the_size_that_is_asked_for() -> None:
    found = functions.images(0.1)
    assert abs(found["gray"].size - 1e5) < 2e3 and found["rgb_bytes"].shape == (*found["gray"].shape, 3)
    again = functions.images(0.1)
    for name, a in found.items():
        np.testing.assert_array_equal(a, again[name])
    assert found["labels"].max() > 5 and 0.1 < found["mask"].mean() < 0.9


def test_a_function_that_is_not_there_is_said() -> None:
    with pytest.raises(ImportError, match="has no nothing"):
        functions.load("benchmarks.functions.bands.nothing")


def test_rows_and_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_ON_UNSUPPORTED", "break")
    table = {
        "kinds of code": {
            "benchmarks.functions.bands.savi": "nir, red",
            "benchmarks.functions.tutorials.otsu": "bytes_[:20]",
            "benchmarks.functions.bands.nothing": "nir",
        },
        "no package": {"no_such_package.function": "gray"},
    }
    monkeypatch.setattr(functions, "TABLES", table)
    file, page = tmp_path / "x.json", tmp_path / "docs/x.md"
    command.main(["coverage", "--kinds", "--size", "0.01", "--json", str(file), "--table", str(page)])
    numbers = json.loads(file.read_text())
    savi, otsu, missing = numbers["rows"]
    assert (savi["kind"], savi["results"], savi["verified"]) == ("whole", "equal", True)
    assert otsu["kind"] in ("with breaks", "plain") and otsu["why"] and otsu["results"] == "equal"
    assert "has no nothing" in missing["error"] and not numbers["is_timed"] and "speed" not in savi
    text = page.read_text()
    assert "| kinds of code | 3 |" in text and "`bands.savi` | whole | equal |" in text
    assert "first call, s" not in text
    command.main(
        [
            "coverage",
            "--size",
            "0.01,0.02",
            "--functions",
            "savi",
            "--budget",
            "0.01",
            "--json",
            str(file),
            "--table",
            str(page),
        ]
    )
    numbers = json.loads(file.read_text())
    assert [row["function"] for row in numbers["rows"]] == list(table["kinds of code"])
    speed = numbers["rows"][0]["speed"]
    assert set(speed) == {"0.01", "0.02"} and all(s["times"] > 0 for s in speed.values())
    assert "| first call, s | 0.01 MP | 0.02 MP |" in page.read_text()


def test_a_function_at_its_limit_is_a_row(tmp_path: Path) -> None:
    row = coverage.row_for("x", "time.sleep", "1000", [0.01], 0, 3.0, tmp_path)
    assert row["error"] == "ended at its limit of 3 s"


def test_sizes_are_checked() -> None:
    for wrong in ("0", "-1", "x"):
        with pytest.raises(SystemExit):
            command.main(["coverage", "--size", wrong])
