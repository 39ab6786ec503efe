"""``python -m benchmarks coverage``: its functions and their arguments, a row, and the table; no look at the times."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import coverage, functions, overhead
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
            "benchmarks.functions.hashing.average_hash": "gray",
            "benchmarks.functions.bands.nothing": "nir",
        },
        "no package": {"no_such_package.function": "gray"},
    }
    monkeypatch.setattr(functions, "TABLES", table)
    file, page = tmp_path / "x.json", tmp_path / "docs/x.md"
    command.main(["coverage", "--kinds", "--size", "0.01", "--json", str(file), "--table", str(page)])
    numbers = json.loads(file.read_text())
    savi, hashed, missing = numbers["rows"]
    assert (savi["kind"], savi["results"], savi["verified"]) == ("whole", "equal", True)
    assert hashed["kind"] in ("with breaks", "plain") and hashed["why"] and hashed["results"] == "equal"
    assert "has no nothing" in missing["error"] and not numbers["is_timed"] and "speed" not in savi
    text = page.read_text()
    assert "| kinds of code | 3 |" in text and "`bands.savi` | whole | equal |" in text
    assert "first call, s" not in text
    timed = ["coverage", "--size", "0.01,0.02", "--functions", "savi", "--budget", "0.01"]
    command.main([*timed, "--json", str(file), "--table", str(page)])
    numbers = json.loads(file.read_text())
    assert [row["function"] for row in numbers["rows"]] == list(table["kinds of code"])
    speed = numbers["rows"][0]["speed"]
    assert set(speed) == {"0.01", "0.02"} and all(s["times"] > 0 for s in speed.values())
    text = page.read_text()
    row = numbers["rows"][0]
    assert row["first_call"] > 0 and row["second_process"] > 0 and 0 <= speed["0.01"]["in_kernels"] <= 1
    assert (
        "| first call, s | second process, s | 0.01 MP | 0.02 MP | in kernels |" in text
        and "| kinds of code | 3 |" in text
    )
    assert "Functions with times: 1 at" in text and "Functions without times: 2 at" in text


def _row(function: str, commit: str = "old", *, timed: bool = True) -> dict[str, Any]:
    speed = {"speed": {"0.1": {"times": 2.0, "pairs": 3}}} if timed else {}
    return {"package": "p", "function": function, "commit": commit, "date": "2026-01-02", "kind": "whole", **speed}


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with two rows of three functions, and what is run of them."""
    monkeypatch.setattr(functions, "TABLES", {"p": {"math.sin": "x", "math.cos": "x", "math.tan": "x"}})
    monkeypatch.setattr(coverage, "commit_named", lambda name: {"HEAD": "1234567890"}[name])
    monkeypatch.setattr(
        coverage,
        "heading",
        lambda: {"machine": {"cpu": "c", "cores": 2}, "versions": {}, "commit": "1234567890+changes"},
    )

    def row_for(package: str, path: str, *given: Any) -> dict[str, Any] | None:
        return {**_row(path), "speed": {"1": {"times": 3.0}}} if given[-1] > time.monotonic() else None

    monkeypatch.setattr(coverage, "row_for", row_for)
    file = tmp_path / "rows.json"
    rows = [_row("math.sin", "1234567"), _row("math.tan", timed=False)]
    head = {"machine": {"cpu": "c", "cores": 2}, "versions": dict.fromkeys(("python", "numpy", "hjit"), "1.0")}
    file.write_text(json.dumps({**head, "rows": rows}))
    return file


@pytest.mark.parametrize(
    ("options", "ran"),
    [
        (["--functions", "tan"], {"math.tan"}),
        (["--missing"], {"math.cos", "math.tan"}),
        (["--missing", "--functions", "cos"], {"math.cos"}),
        (["--older-than", "HEAD"], {"math.cos", "math.tan"}),
        (["--minutes", "0"], set()),
        ([], {"math.sin", "math.cos", "math.tan"}),
    ],
)  # fmt: skip
def test_rows_that_ran_replace_those_of_their_names(options: list[str], ran: set[str], stored: Path) -> None:
    before = {row["function"]: row for row in json.loads(stored.read_text())["rows"]}
    command.main(["coverage", "--json", str(stored), *options])
    numbers = json.loads(stored.read_text())
    rows = {row["function"]: row for row in numbers["rows"]}
    assert list(rows) == [f for f in ("math.sin", "math.cos", "math.tan") if f in before or f in ran]
    for name, row in rows.items():
        assert (row["commit"] == "1234567+changes") == (name in ran) and (name in ran or row == before[name])
        assert (row["date"] > "2026-01-02") == (name in ran)
    sizes = {float(size) for row in rows.values() for size in row.get("speed", {})}
    assert numbers["sizes"] == sorted(sizes) and numbers["is_timed"]


def test_a_run_that_is_out_of_time_keeps_what_it_has(
    stored: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = iter([{}, _row("math.sin"), None])  # the first is the machine's facts
    monkeypatch.setattr(coverage, "row_for", lambda *_: next(measured))
    command.main(["coverage", "--json", str(stored), "--minutes", "5"])
    sin, tan = json.loads(stored.read_text())["rows"]
    assert sin["commit"] == "1234567+changes" and tan["commit"] == "old"
    assert "2 of 3 functions are left" in capsys.readouterr().err


def test_rows_of_another_machine_are_not_mixed(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored.write_text(stored.read_text().replace('"cores": 2', '"cores": 64'))
    before = stored.read_text()
    with pytest.raises(SystemExit):
        command.main(["coverage", "--json", str(stored)])
    assert "another machine (cores: 64, here 2)" in capsys.readouterr().err and stored.read_text() == before


def test_a_commit_that_is_not_there_is_said() -> None:
    with pytest.raises(ValueError, match="git knows no commit 'no such thing'"):
        overhead.commit_named("no such thing")


def test_a_page_is_of_the_file_that_it_is_about(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "TABLE", stored.parent / "page.md")
    command.main(["coverage", "--json", str(stored), "--minutes", "0"])
    assert not coverage.TABLE.exists(), "rows of another file"
    monkeypatch.setattr(coverage, "RESULTS", stored)
    command.main(["coverage", "--minutes", "0"])
    assert "times: 1 at 1234567 (2026-01-02).\nFunctions without times: 1 at old" in coverage.TABLE.read_text()


def test_the_page_of_the_documents_is_of_all_results() -> None:
    numbers = json.loads(coverage.RESULTS.read_text())
    assert coverage.markdown(numbers) == coverage.TABLE.read_text()
    assert all(row["commit"] and row["date"] for row in numbers["rows"])


def test_a_function_that_is_not_ready_in_time_has_no_row(tmp_path: Path) -> None:
    end = time.monotonic() + 1.0
    assert coverage.row_for("x", "time.sleep", "1000", [0.01], 0, 60.0, tmp_path, end) is None


def test_a_function_at_its_limit_is_a_row(tmp_path: Path) -> None:
    row = coverage.row_for("x", "time.sleep", "1000", [0.01], 0, 3.0, tmp_path)
    assert row is not None and row["error"] == "ended at its limit of 3 s"


def test_sizes_are_checked() -> None:
    for wrong in ("0", "-1", "x"):
        with pytest.raises(SystemExit):
            command.main(["coverage", "--size", wrong])
