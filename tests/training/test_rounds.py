"""``hjit train``: rounds of measured programs and of weights, which go on where they were ended."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hjit import cli
from hjit.errors import HjitError, ModelError
from hjit.model import network
from hjit.model.feature_names import PIPELINE, SCHEDULE
from hjit.training import cases, programs, rounds
from hjit.training.cases import MeasurementLock, measured
from hjit.training.rounds import Settings, Training
from tests.test_tune import IMAGE, OPTIONS, blurred, pyramid
from tests.training.conftest import measure_here

SETTINGS = Settings(programs=2, schedules=3, seed=4)  # programs of few stages


def test_a_round_measures_programs_and_fits_weights_that_the_next_one_has(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(tmp_path, SETTINGS)
    training.run(1, None, 1, print)
    (found,) = training.rounds
    assert found["programs"] + found["refused"] == SETTINGS.programs and found["samples"] > 1 and found["wrong"] == ()
    weights = tmp_path / "0" / "weights.npz"
    assert np.isfinite(network.load(weights).arrays["log_unit"]).all()
    assert all("default" in np.load(f)["origins"] for f in (tmp_path / "0").glob("*-*.npz"))
    assert str(training).count("\n") == 1

    def ended(command: list[str]) -> Any:
        assert command[command.index("--weights") + 1] == str(weights) and command[3] == "6"
        assert command[command.index("--stages") + 1] == "25"
        raise KeyboardInterrupt

    monkeypatch.setattr(rounds, "process", ended)
    with pytest.raises(KeyboardInterrupt):
        training.run(2, None, 1, print)


def test_weights_to_start_from_pick_in_the_first_round_and_are_fitted_further(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = tmp_path / "start.npz"
    network.random(8).save(start)
    asked: list[str] = []
    real = measure_here

    def measured_here(command: list[str]) -> Any:
        asked.append(command[command.index("--weights") + 1])
        return real(command)

    monkeypatch.setattr(rounds, "process", measured_here)
    monkeypatch.setattr(rounds, "PASSES", 1)
    monkeypatch.setattr(rounds, "START_RATE", 1e-9)
    training = Training(tmp_path / "a", SETTINGS, start)
    training.run(1, None, 1, print)
    assert set(asked) == {str(start)} and training.weights == tmp_path / "a" / "0" / "weights.npz"
    before, after = network.load(start).arrays, network.load(training.weights).arrays
    matrices = [name for name, x in before.items() if x.ndim == 2]
    assert matrices and all(np.allclose(before[n], after[n], atol=1e-5) for n in matrices)


def test_what_is_measured_is_kept_as_a_whole(small: None, tmp_path: Path) -> None:
    summary = programs.measure(5, tmp_path, 3, None, "cpu")
    with np.load(tmp_path / "5-0.npz") as x:
        n = summary["samples"]
        assert x["pipeline"].shape == (summary["stages"], len(PIPELINE))
        assert x["schedule"].shape == (n, summary["stages"], len(SCHEDULE))
        assert x["times"].shape == (n, cases.ROUNDS) and (np.nanmin(x["times"], 1) == x["runtimes"]).all()
        assert len(json.loads(str(x["trees"][0]))) == 2
    assert json.loads((tmp_path / "5.json").read_text()) == summary
    assert [p.runtimes.shape for p in programs.load([tmp_path])] == [(n,)]
    (tmp_path / "5.json").unlink()
    assert programs.load([tmp_path]) == [], "a program that was ended in the middle"


def test_a_training_that_was_ended_goes_on(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ended(command: list[str]) -> Any:
        asked.append(command[3])
        if len(asked) == 2:
            raise KeyboardInterrupt
        return measure_here(command)

    monkeypatch.setattr(rounds, "process", ended)
    with pytest.raises(KeyboardInterrupt):
        Training(tmp_path, SETTINGS).run(1, None, 1, print)
    training = Training(tmp_path)
    assert training.settings == SETTINGS and not training.rounds
    training.run(1, None, 1, print)
    assert asked == ["4", "5", "5"] and len(training.rounds) == 1
    Training(tmp_path, SETTINGS).run(1, None, 1, print)
    assert len(asked) == 3, "nothing is left to do"
    with pytest.raises(ModelError, match="another folder"):
        Training(tmp_path, Settings(programs=3))


def test_no_time_is_no_round(small: None, tmp_path: Path) -> None:
    training = Training(tmp_path, SETTINGS)
    training.run(1, 0.0, 1, print)
    assert not training.rounds and training.weights is None


def test_programs_that_end_badly_and_schedules_that_are_lost_are_counted(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = cases.compiled
    tried: list[Any] = []

    def compiled(*given: Any, **named: Any) -> Any:
        tried.append(given)
        if len(tried) % 3 == 2:
            raise HjitError("no memory\nat all")
        return real(*given, **named)

    def dies(command: list[str]) -> Any:
        return subprocess.CompletedProcess(command, -11, "", "gone") if command[3] == "5" else measure_here(command)

    monkeypatch.setattr(cases, "compiled", compiled)
    monkeypatch.setattr(rounds, "process", dies)
    shown: list[str] = []
    training = Training(tmp_path, replace(SETTINGS, schedules=7))
    training.run(1, None, 1, shown.append)
    (found,) = training.rounds
    assert found["ended"] == {"ended with status -11": 1} and any("gone" in line for line in shown)
    assert sum(found["lost"].values()) > 0 and all("HjitError: no memory" in why for why in found["lost"])


def test_samples_of_all_schedules_are_timed_in_each_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[int] = []
    real = cases.timed
    monkeypatch.setattr(cases, "timed", lambda bound, *given: (order.append(id(bound)), real(bound, *given))[1])
    (found,) = measured(blurred, [[IMAGE]], OPTIONS, 4, 0, MeasurementLock(tmp_path))
    n = len(found.samples)
    assert n > 1 and order[:n] == order[n : 2 * n] and len(set(order[:n])) == n
    assert all(len(s.times) == cases.ROUNDS and s.seconds == min(s.times) for s in found.samples)
    assert found.samples[0].origin == "default"


def test_picks_of_weights_are_among_the_candidates(tmp_path: Path) -> None:
    (found,) = measured(pyramid, [[IMAGE]], OPTIONS, 8, 0, MeasurementLock(tmp_path), network.random(1))
    assert {"default", "greedy"} <= {s.origin for s in found.samples}


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Training(tmp_path, SETTINGS)
    assert cli.main(["train", str(tmp_path)]) == 1
    assert "another folder" in capsys.readouterr().err
    assert (
        cli.main(["train", str(tmp_path), "--programs", "2", "--schedules", "3", "--seed", "4", "--minutes", "0"]) == 0
    )
    assert "log R2" in capsys.readouterr().out


def test_choices_are_compared_with_the_best_of_all() -> None:
    found = rounds.choices([{"default": 2.0, "greedy": 1.0}, {"default": 2.0, "beam": 4.0, "random": 9.0}])
    assert found == {"beam": 2.0, "default": 1.4142, "greedy": 1.0, "random": 4.5}


def test_what_is_slow_on_small_images_is_not_timed_on_larger_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    slow: list[Any] = []

    def timed(bound: Any, inputs: Any, outputs: Any, scalars: Any) -> Any:
        nests = bound.nest_seconds(inputs, outputs, ())
        counts.append(inputs[0].size)
        if inputs[0].size == IMAGE.size and not slow:
            slow.append(bound)
        return np.full(nests.shape, (1.0 if bound in slow else 1e-3) / nests.size)

    monkeypatch.setattr(cases, "timed", timed)
    larger = np.tile(IMAGE, (2, 3))
    first, second = measured(blurred, [[larger], [IMAGE]], OPTIONS, 5, 0, MeasurementLock(tmp_path))
    assert len(second.samples) == len(first.samples) - 1
    assert counts == sorted(counts), "the smaller image comes first"
    monkeypatch.setattr(cases, "MEASURED_SECONDS", 0.0)
    assert len(measured(blurred, [[larger], [IMAGE]], OPTIONS, 3, 0, MeasurementLock(tmp_path))) == 1


def test_numbers_among_the_arguments_are_no_hindrance(tmp_path: Path) -> None:
    def scaled(a: Any, k: float) -> Any:
        return np.sqrt(a[1:] * k) + a[:-1]

    (found,) = measured(scaled, [[np.abs(IMAGE), 1.5]], OPTIONS, 3, 0, MeasurementLock(tmp_path))
    assert len(found.samples) > 1


def test_the_first_run_of_a_slow_schedule_does_not_count() -> None:
    class Cold:
        seconds = iter((2.0, 0.2))  # of memory that is touched for the first time, and of the kernel

        def nest_seconds(self, inputs: Any, outputs: Any, scalars: Any) -> Any:
            return np.array([next(self.seconds)])

    assert cases.timed(Cold(), [], []) == pytest.approx(0.2)  # type: ignore[arg-type]
