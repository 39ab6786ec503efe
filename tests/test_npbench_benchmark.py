"""``python -m benchmarks npbench``: the kernels of a checkout, as npbench arranges them, each with its row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import npbench
from benchmarks.npbench import Beside, faults, kernels_of

INITIALISE = """
import numpy as np

def initialize(n, datatype=np.float64):
    from numpy.random import default_rng
    return default_rng(42).random((n, n)).astype(datatype)
"""
BLUR = """
import numpy as np

def kernel(a, steps):
    for _ in range(steps):
        a[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3
    return a.max()
"""
FAILS = """
def kernel(a, steps):
    raise RuntimeError("as it always does")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkout of two kernels, in place of npbench's."""
    for name, code in (("blur", BLUR), ("fails", FAILS)):
        folder = tmp_path / "npbench/benchmarks/small" / name
        folder.mkdir(parents=True)
        (folder / f"{name}_module.py").write_text(INITIALISE)
        (folder / f"{name}_module_numpy.py").write_text(code)
        info = {
            "relative_path": f"small/{name}",
            "module_name": f"{name}_module",
            "func_name": "kernel",
            "parameters": {"S": {"steps": 3, "n": 30}, "M": {"steps": 3, "n": 40}},
            "init": {"func_name": "initialize", "input_args": ["n"], "output_args": ["a"]},
            "input_args": ["a", "steps"],
        }
        (tmp_path / "bench_info").mkdir(exist_ok=True)
        (tmp_path / f"bench_info/{name}.json").write_text(json.dumps({"benchmark": info}))
    return tmp_path


def test_rows_of_kernels(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HJIT_ON_UNSUPPORTED", "break")
    file = tmp_path / "x.json"
    command.main(["npbench", "--source", str(source), "--kinds", "--json", str(file)])
    blur, fails = json.loads(file.read_text())["rows"]
    assert (blur["kernel"], blur["size"], blur["kind"], blur["results"]) == ("blur", "S", "whole", "equal")
    assert blur["verified"] and blur["equal"] and blur["beside"] == [] and blur["first_call_cpu"] > 0
    assert "speed" not in blur and "as it always does" in fails["error"] and faults(fails)
    chosen = ["--kernels", "blur", "--sizes", "M", "--budget", "0.01"]
    command.main(["npbench", "--source", str(source), *chosen, "--json", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert [(row["kernel"], row["size"]) for row in rows] == [("blur", "S"), ("fails", "S"), ("blur", "M")]
    assert rows[2]["speed"]["times"] > 0 and rows[2]["speed"]["pairs"] >= 5


def test_every_call_has_arguments_of_its_own(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(source))
    kernel = kernels_of(source)["blur"]
    a, steps = kernel.arguments("S")
    before = a.copy()
    found: list[dict[str, Any]] = []
    npbench.compared(kernel.function(), kernel.function(), [a, steps], found.append)
    npbench.speed(kernel.function(), kernel.function(), [a, steps], 0.001)
    assert (a == before).all() and found[1] == {"apart": 0.0, "results": "equal"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "needs --source"),
        (["--source", "{}/npbench"], "is no checkout of npbench"),
        (["--source", "{}", "--kernels", "nothing"], "unknown kernel nothing; known are blur, fails"),
        (["--source", "{}", "--sizes", "XL"], "unknown size XL"),
    ],
)
def test_wrong_options_are_said(
    arguments: list[str], message: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(["npbench", *(word.format(source) for word in arguments)])
    assert message in capsys.readouterr().err


def test_what_is_done_beside_the_result() -> None:
    theirs = Beside("a", {("RuntimeWarning", "x")})
    ours = Beside("ab", {("RuntimeWarning", "x"), ("UserWarning", "y")}, drew=True)
    assert theirs.more_than(theirs) == [] and theirs.more_than(ours) == ["prints something else"]
    assert ours.more_than(theirs) == ["warns: UserWarning: y", "prints something else", "changes the random state"]
    assert faults({"beside": ["prints something else"], "equal": False, "first_call_cpu": 9.0}) == [
        "NOT EQUAL", "BESIDE: prints something else", "SLOW FIRST CALL",
    ]  # fmt: skip
