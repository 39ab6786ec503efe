"""A short campaign finds nothing; a fault that is planted is found, told apart, made smaller, and found again by its seed."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from tests.campaign import __main__ as command
from tests.campaign import arguments, minimise, programs, source
from tests.campaign.campaign import Campaign, Failure
from tests.campaign.kinds import SHARES, Case, Result, kind
from tests.campaign.plants import VARIABLE
from tests.numpy_check import guarded

COUNTS = {
    "programs": 40,
    "schedules": 4,
    "mutated_schedules": 24,
    "mutated_caches": 4,
    "kills": 1,
    "threads": 3,
    "forks": 2,
}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded on Linux")


def campaign(name: str, seed: int, count: int, **environment: str) -> tuple[list[Failure], dict[str, Any]]:
    """The failures of so many cases of a kind, and the counts."""
    made = Campaign([name], seed, lambda line: None, minimising=20.0, **environment)
    made.run(lambda counts: counts[name].cases < count)
    return made.failures, made.data()["kinds"][name]


# -- nothing fails


def test_there_is_a_number_of_cases_for_each_kind() -> None:
    assert set(COUNTS) == set(SHARES)


@pytest.mark.parametrize("name", COUNTS)
def test_nothing_fails(name: str) -> None:
    failures, counts = campaign(name, 0, COUNTS[name])
    assert not failures, "\n".join(f"{f.line()}\n{f.described}" for f in failures)
    assert counts["cases"] == COUNTS[name]
    assert counts.get("ok", 0) >= COUNTS[name] // (6 if name == "mutated_schedules" else 2), (
        "cases run: they are not just refused or invalid"
    )


# -- what is planted is found


def first_failure() -> Failure:
    """The first one with a wrong emitter, made as small as it gets."""
    made = Campaign(["programs"], 0, lambda line: None, minimising=600.0, **{VARIABLE: "emitter"})
    made.run(lambda counts: not made.failures and counts["programs"].cases < 40)
    return made.failures[0]


@pytest.mark.slow
def test_a_wrong_emitter_is_found_and_made_small() -> None:
    found = first_failure()
    is_seen = found.sort in ("wrong numbers", "wrong arguments") or "differs from NumPy's" in found.text
    assert is_seen and found.after == 0
    assert found.case is not None and len(found.case["blocks"]) <= 3, found.described
    assert f"--only programs --seed {found.seed}" in found.line() and "\n" not in found.line()
    assert programs.run(found.case).status == "ok", "without the plant it is right"


@pytest.mark.parametrize(("planted", "sort"), [("dies", "dies SIGSEGV"), ("hangs", "hangs")])
def test_a_process_that_dies_or_hangs_is_a_failure(planted: str, sort: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before and after it are counted, too."""
    monkeypatch.setattr(minimise, "minimised", lambda kind, case, *more: (case, None))
    seed = next(
        s
        for s in range(100)
        if any("np.pad" in b for b in programs.case(s)["blocks"])
        and not any("np.pad" in b for b in programs.case(s + 1)["blocks"])
        and len(programs.case(s + 1)["blocks"]) <= 3  # which does not take long
    )
    failures, counts = campaign("programs", seed, 2, **{VARIABLE: planted})
    assert [(f.seed, f.sort) for f in failures] == [(seed, sort)]
    assert counts["cases"] == 2
    assert "plants.py" in failures[0].text, "where it was"


def test_memory_beside_arguments_may_not_be_touched() -> None:
    """In a forked process, which it ends."""
    for at_end, offset in ((True, 800), (False, -8)):
        a = guarded(np.arange(100.0), at_end)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            ctypes.string_at(a.ctypes.data + offset, 8)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV


# -- the parts


@pytest.mark.parametrize("name", [n for n in SHARES if n != "mutated_schedules"])
def test_a_seed_is_a_case(name: str) -> None:
    module = kind(name)
    for seed in range(3):
        case = module.case(seed)
        assert case == module.case(seed) == json.loads(json.dumps(case))
        assert module.described(case)
    assert module.case(0) != module.case(1)


def test_smaller_cases_still_are_cases() -> None:
    case = programs.case(5)
    found = list(programs.smaller(case))
    assert len(found) > 5 and all(c != case for c in found)
    for c in found:
        compile(source.source(c), "smaller", "exec")


def test_results_that_may_round_are_told_from_others() -> None:
    ours, theirs = [np.float64(1 + 2**-51)], [np.float64(1)]
    assert programs.same(ours[0], theirs[0], [], [], ["s1"]).status == "ok"
    assert programs.same(ours[0], theirs[0], [], [], ["v1"]).sort == "wrong numbers"
    assert programs.same(np.float32(1), theirs[0], [], [], ["s1"]).sort == "wrong type"


def test_results_that_may_round_are_as_far_apart_as_roundings_explain() -> None:
    ours, theirs = np.float64(1 + 2**-20), np.float64(1)
    assert programs.same(ours, theirs, [], [], ["s1"], lambda: False).sort == "wrong numbers"
    assert programs.same(ours, theirs, [], [], ["s1"], lambda: True).status == "ok"
    assert programs.same(ours, theirs, [], [], ["v1"], lambda: True).sort == "wrong numbers"
    assert programs.same(np.float32(1), theirs, [], [], ["s1"], lambda: True).sort == "wrong type"


@pytest.mark.parametrize(
    ("block", "dtype", "numbers"),
    [
        ("s1 = np.sum(np.maximum(a, a[::-1]) * 0.5, axis=0)", "float64", "sample"),  # the largest numbers cancel
        ("s1 = np.sum(a, axis=0) - np.float64(0.125)", "float32", "image"),  # another dtype, after the sum
        ("s1 = np.trapezoid(a * 1.0)", "float32", "sample"),  # a partial sum overflows
    ],
)
def test_what_roundings_explain_is_no_failure(block: str, dtype: str, numbers: str) -> None:
    spec = arguments.array(dtype, (100, 70), arguments.WHOLE, 80015283, numbers)
    case = {"blocks": [block], "returned": ["s1"], "args": [{"a": spec}] * 2, "options": {"tune": False}}
    assert programs.run(case).status == "ok"
    a, plain = arguments.made(spec), source.function(case)
    with np.errstate(all="ignore"):
        theirs, ours = plain(a), hjit.pipeline(plain, verify="off", cache="off", tune=False)(a)
        differs = programs.same(ours, theirs, [], [], ["s1"])
    assert differs.sort == "wrong numbers", "otherwise there is nothing to explain"


class Digits:
    """A stand-in for a kind: a case is a list of digits."""

    LIMIT = 1.0

    def smaller(self, case: Case) -> Iterator[Case]:
        for k in range(len(case["digits"])):
            yield {"digits": case["digits"][:k] + case["digits"][k + 1 :]}


def test_what_is_made_smaller_fails_in_the_same_way() -> None:
    def run(case: Case) -> Result:
        if 7 in case["digits"] and 3 in case["digits"]:
            return Result("failed", "both")
        return Result("failed", "seven") if 7 in case["digits"] else Result("ok")

    start = {"digits": [1, 7, 2, 3, 4]}
    assert minimise.minimised(Digits(), start, "both", run, 10.0)[0] == {"digits": [7, 3]}  # type: ignore[arg-type]
    assert minimise.minimised(Digits(), start, "other", run, 10.0) == (start, None)  # type: ignore[arg-type]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    assert command.main(["--only", "programs", "--seed", "0", "--count", "3", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert (found["seed"], found["failures"]) == (0, [])
    assert found["kinds"]["programs"]["cases"] == 3 and found["kinds"]["programs"]["first_seed"] == 0
    assert "3 cases from seed 0, 0 failures" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        command.main([])


def test_a_seed_fails_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(minimise, "minimised", lambda kind, case, *more: (case, None))
    found = first_failure()
    monkeypatch.setenv(VARIABLE, "emitter")
    assert command.main(["--only", "programs", "--seed", str(found.seed)]) == 1
    assert f"programs seed {found.seed}: {found.sort}" in capsys.readouterr().out
