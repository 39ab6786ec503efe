"""``hjit calibrate``: what is measured, kept, taken into account and removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hjit import cache, cli
from hjit.call.stored import kernels
from hjit.model.calibration import GROUPS, Calibration, corrected
from hjit.model.fit import Program
from hjit.training import calibrate, programs
from hjit.training.calibrate import collect, measured, seeds
from hjit.tuning import calibrated
from hjit.tuning.weights import file_digest, uncorrected, weights, weights_digest
from tests.model.test_fit import truth

SLOWER = {name: 0.3 if name == "writing" else 2.0 + k for k, name in enumerate(GROUPS)}
KNOWN = (weights, weights_digest, kernels._weights, calibrated.kept_text)


def forget() -> None:
    for f in KNOWN:
        f.cache_clear()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, in which nothing is kept."""
    monkeypatch.setenv("HJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HJIT_CACHE", "rw")
    forget()
    yield tmp_path / "cache"
    monkeypatch.undo()
    forget()


def machine_of(factors: dict[str, float]) -> list[Program]:
    """What a machine measures on which the terms take so many times as long."""
    model, rng = corrected(uncorrected(), factors), np.random.default_rng(0)
    found = []
    for p in truth(3, 20, 12):
        seconds = model.stages(p.pipeline, p.schedule, p.machine).sum(-1)
        found.append(Program(p.pipeline, p.schedule, seconds * np.exp(rng.normal(0, 0.05, 12)), p.machine))
    return found


def measures(monkeypatch: pytest.MonkeyPatch, found: list[Program]) -> list[Path]:
    """Let a calibration find these; where it looks for them."""
    looked: list[Path] = []

    def load(folders: list[Path]) -> list[Program]:
        looked.extend(folders)
        return found

    monkeypatch.setattr(programs, "load", load)
    monkeypatch.setattr(calibrate, "measured", lambda seed, folder, is_over: None)
    return looked


def run(*args: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """The exit status, and what the command says as JSON."""
    status = cli.main([*args, "--json", "-"])
    return status, json.loads(capsys.readouterr().out or "null")


def test_corrections_that_help_are_kept_and_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    before, bound = weights_digest(), kernels._weights()
    looked = measures(monkeypatch, machine_of(SLOWER))
    status, said = run("calibrate", "--minutes", "0.01", capsys=capsys)
    assert status == 0 and said["kept"] and said["after"] < said["before"] and said["programs"] == 20
    assert [x.suffix for x in folder.iterdir()] == [".facts"] and not looked[0].exists()
    forget()  # another process
    found: Any = weights()
    np.testing.assert_array_equal(
        found.arrays["log_unit"], corrected(uncorrected(), said["factors"]).arrays["log_unit"]
    )
    assert weights_digest() != before and kernels._weights() != bound, "plans are those of the corrected model"
    assert run("info", capsys=capsys)[1]["calibrated"].startswith("yes, by 20 programs")
    assert run("calibrate", "--remove", capsys=capsys) == (0, {"removed": True})
    forget()
    assert weights_digest() == before and kernels._weights() == bound
    assert run("info", capsys=capsys)[1]["calibrated"] == "no (hjit calibrate)"
    assert run("calibrate", "--remove", capsys=capsys) == (0, {"removed": False})


@pytest.mark.parametrize("count", [20, 3])
def test_others_are_not_kept(
    count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    before = weights_digest()
    measures(monkeypatch, machine_of(dict.fromkeys(GROUPS, 1.0))[:count])
    status, said = run("calibrate", "--minutes", "0.01", capsys=capsys)
    assert status == 0 and not said["kept"]
    assert ("as well without" if count == 20 else "3 programs are too few") in said["why"]
    assert not [*folder.glob("*.facts")] and weights_digest() == before


def test_nothing_is_kept_of_one_that_is_interrupted(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    looked: list[Path] = []

    def interrupted(seed: int, where: Path, is_over: Callable[[], bool]) -> None:
        looked.append(where)
        raise KeyboardInterrupt

    monkeypatch.setattr(calibrate, "measured", interrupted)
    assert cli.main(["calibrate", "--minutes", "1"]) == 130
    assert looked and not looked[0].exists() and not [*folder.glob("*")]


@pytest.mark.parametrize("kept", ["other weights", "damaged", "no groups", "not JSON"])
def test_what_is_not_for_these_weights_is_not_taken(kept: str) -> None:
    digest = file_digest()
    assert calibrated.keep(Calibration(SLOWER, 1.0, 0.5, 9, 90), "others" if kept == "other weights" else digest)
    if kept != "other weights":
        data = json.loads(calibrated.kept_text())
        data["calibration"]["factors"] = {} if kept == "no groups" else SLOWER
        text = "[" * 10_000 if kept == "damaged" else "half" if kept == "not JSON" else json.dumps(data)
        cache.store(calibrated.entry(), text.encode(), {}, calibrated.resolve({}).cache_dir, "rw", "facts")
    forget()
    assert calibrated.kept(digest) is None
    found: Any = weights()
    np.testing.assert_array_equal(found.arrays["log_unit"], uncorrected().arrays["log_unit"])


def test_a_cache_that_is_off_keeps_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HJIT_CACHE", "off")
    measures(monkeypatch, machine_of(SLOWER))
    status, said = run("calibrate", "--minutes", "0.01", capsys=capsys)
    assert status == 0 and not said["kept"] and "cannot be written" in said["why"]


def test_programs_are_always_the_same_and_short() -> None:
    found = [seed for seed, _ in zip(seeds(), range(12), strict=False)]
    assert found == [seed for seed, _ in zip(seeds(), range(12), strict=False)]
    assert len(set(found)) == 12


def test_time_ends_a_process_that_measures(tmp_path: Path) -> None:
    calls = iter(range(100))
    measured(calibrate.FIRST_SEED, tmp_path, lambda: next(calls) > 1)
    assert not [*tmp_path.glob("*.json")]


def test_a_program_is_measured_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "PIXELS", 100**2)
    monkeypatch.setattr(calibrate, "SCHEDULES", 3)
    monkeypatch.setattr(calibrate, "MOST", 1)
    collect(tmp_path, 500.0, measured)
    (program, *_) = programs.load([tmp_path])
    assert 1 < len(program.runtimes) <= 3
