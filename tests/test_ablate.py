"""Rules switched off, one at a time: each switch works, and is on again; what is told of the times."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from benchmarks import __main__ as command
from benchmarks import ablate
from hjit.sched.default import schedules
from hjit.sched.default.schedules import default_schedule
from hjit.sched.nests import root_nests
from hjit.sched.search import space
from hjit.sched.search.pruning import Rules
from hjit.tuning import plans
from tests.sched.test_space import Program, blurred

IMAGE = np.random.default_rng(3).standard_normal((70, 96)).astype(np.float32)


def stencil(a: Any) -> Any:
    return sum(np.sqrt(np.abs(a[y : y + a.shape[0] - 4, x : x + a.shape[1] - 4])) for y in range(5) for x in range(5))


def product(a: Any) -> Any:
    return np.maximum(a @ a.T, 0)


@pytest.mark.parametrize(("rule", "function"), [("line buffers", blurred), ("blocks of accumulators", product)])
def test_a_rule_of_the_default_schedule_is_off_inside_and_on_again_after(rule: str, function: Any) -> None:
    (found,) = [r for r in ablate.RULES if r.name == rule]
    p = Program(function)
    before = default_schedule(p.graph, p.segment.target)
    with found.off():
        assert default_schedule(p.graph, p.segment.target) != before
    assert default_schedule(p.graph, p.segment.target) == before


BOTH_WAYS = {"optimistic", "producer_tiles", "plane_loops", "share_choices"}


def test_each_rule_is_one_that_there_is() -> None:
    names = [f.name for f in fields(Rules)]
    of_search = [r.name.partition(": ")[2] for r in ablate.RULES if r.kind == "pruning"]
    assert set(of_search) == set(names) - BOTH_WAYS, "searches have these both ways"
    before = dict(vars(schedules)), dict(vars(root_nests)), dict(vars(space))
    for rule in ablate.RULES:
        with rule.off():
            changed = [
                (n, old, vars(m)[n])
                for m, known in zip((schedules, root_nests, space), before, strict=True)
                for n, old in known.items()
                if vars(m)[n] is not old
            ]
            assert len(changed) == 1
            (_, old, new) = changed[0]
            if rule.kind == "default":
                inspect.signature(new).bind(*inspect.signature(old).parameters)  # it takes what the rule takes
            else:
                assert new() != Rules()
    assert (vars(schedules), vars(root_nests), vars(space)) == before


def test_the_third_set_has_functions_of_packages_and_random_programs() -> None:
    assert len(ablate.programs("third")) >= 30
    function, args, kwargs = ablate.program("third", f"random {ablate.SEEDS[0]}", small=True)
    assert not kwargs and all(isinstance(a, np.ndarray) for a in args) and callable(function)
    function, args, kwargs = ablate.program("third", "benchmarks.functions.kernels.jacobi_2d", small=True)
    assert callable(function) and len(args) >= 1


@pytest.fixture
def one_program(monkeypatch: pytest.MonkeyPatch, no_kernels: None) -> None:
    monkeypatch.setattr(plans, "_plans", {})
    monkeypatch.setattr(ablate, "program", lambda kind, name, small: (blurred, (IMAGE,), {}))


def test_a_program_is_timed_where_its_schedule_changes(one_program: None) -> None:
    rows: list[dict[str, Any]] = []
    names = ["line buffers", "strips of scans", "pruning: together"]
    ablate.measure("third", "blurred", names, 1, True, 0.001, rows.append)
    assert [r["rule"] for r in rows] == names
    changed, same, searched = rows
    assert changed["ratio"] > 0 and not changed["same"] and changed["pairs"] >= 5
    assert same == {"rule": "strips of scans", "ratio": 1.0, "same": True}
    assert "ratio" in searched


def test_what_is_not_compiled_is_skipped(one_program: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = []
    monkeypatch.setattr(ablate, "program", lambda *_: (lambda a: sorted(a.ravel().tolist()), (IMAGE,), {}))
    ablate.measure("third", "listed", ["line buffers"], 1, True, 0.001, rows.append)
    assert len(rows) == 1 and rows[0]["skipped"].startswith("TraceError")


def test_a_wrong_result_is_an_error(one_program: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = []
    real = ablate.build

    def build(function: Any, *more: Any) -> Any:
        p, tree = real(function, *more)
        wrong = len(rows_of) > 0
        rows_of.append(tree)
        return (lambda a: p(a) + 1 if wrong else p(a)), tree

    rows_of: list[str] = []
    monkeypatch.setattr(ablate, "build", build)
    ablate.measure("third", "blurred", ["line buffers"], 1, True, 0.001, rows.append)
    assert rows == [{"rule": "line buffers", "error": "the results are not the same"}]


ROWS = [
    {"set": "apps", "program": "iir_blur", "rule": "strips of scans", "ratio": 4.0, "same": False},
    {"set": "apps", "program": "blur", "rule": "strips of scans", "ratio": 1.0, "same": True},
    {"set": "third", "program": "adi", "rule": "strips of scans", "ratio": 0.5, "same": False},
    {"set": "third", "program": "gemm", "skipped": "TraceError: why"},
]


def test_a_rule_is_judged_without_the_apps_it_was_found_on(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = ablate.summary(ROWS)
    assert line["sets"]["apps"]["geomean"] == pytest.approx(2.0) and line["sets"]["apps"]["changed"] == 1
    assert line["sets"]["apps"]["geomean_of_others"] == 1.0
    assert line["sets"]["third"]["least"] == ["adi", 0.5] and "idioms" not in line["sets"]
    ablate.show(ROWS)
    out = capsys.readouterr().out
    assert "2.000 [1.000] (1 of 2)" in out and "iir_blur 4.00" in out and "third gemm: TraceError: why" in out


def test_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def in_a_process(kind: str, name: str, rules: Any, *more: Any) -> list[dict[str, Any]]:
        asked.append((kind, name, rules))
        return [{"set": kind, "program": name, "rule": r, "ratio": 1.0, "same": True} for r in rules]

    monkeypatch.setattr(ablate, "_in_a_process", in_a_process)
    file = tmp_path / "rows.json"
    given = ["ablate", "--sets", "apps", "--functions", "iir,hist", "--rules", "scan", "--json", str(file)]
    command.main(given)
    assert sorted(n for _, n, _ in asked) == ["hist", "iir_blur"]
    command.main(given)
    assert len(asked) == 2, "what the file has is not measured again"
    with pytest.raises(SystemExit):
        command.main(["ablate", "--sets", "nothing"])
    assert hjit.__version__
