"""The collector of samples: features and times of schedules, each checked; and fitting to what it wrote."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hjit import cache
from hjit.errors import HjitError
from hjit.kernels.runtime.kernel import made
from hjit.model.feature_names import MACHINE, PIPELINE, SCHEDULE
from hjit.options import Options
from hjit.process import machine
from hjit.training import cases
from hjit.training.cases import MeasurementLock, Mismatch, alike, measured
from hjit.training.schedules import candidates, chosen_state, random_state
from tests.sched.test_space import Program, blurred, pyramid

IMAGE = np.random.default_rng(3).standard_normal((70, 96)).astype(np.float32)
OPTIONS = Options(tune=False, cache="off", verify="off", num_threads=1)


def test_samples_have_the_features_of_their_schedules(tmp_path: Path) -> None:
    (found,) = measured(blurred, [[IMAGE]], OPTIONS, 5, 0, MeasurementLock(tmp_path))
    assert found.pipeline.shape[1] == len(PIPELINE) and len(found.machine) == len(MACHINE)
    assert 2 <= len(found.samples) <= 5
    for s in found.samples:
        assert (
            s.features.shape == (len(found.pipeline), len(SCHEDULE)) and s.seconds > 0 and np.isfinite(s.features).all()
        )
    assert len({s.features.tobytes() for s in found.samples}) > 1


def test_the_same_schedules_are_measured_on_images_of_several_sizes(tmp_path: Path) -> None:
    before = made()[0]
    small, large = measured(blurred, [[IMAGE], [IMAGE[:40, :50].copy()]], OPTIONS, 6, 0, MeasurementLock(tmp_path))
    assert len(large.samples) == len(small.samples) > 1
    assert made()[0] - before <= 7  # kernels know no sizes, and one is the default schedule's
    for a, b in zip(large.samples, small.samples, strict=True):
        assert (
            a.features[:, SCHEDULE.index("points_computed_total")].sum()
            > b.features[:, SCHEDULE.index("points_computed_total")].sum()
        )


def test_a_wrong_result_is_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = cases.compiled, []

    class Wrong:
        def __init__(self, bound: Any) -> None:
            self.inputs, self.scalars, self.new_outputs = bound.inputs, bound.scalars, bound.new_outputs
            self._bound = bound

        def nest_seconds(self, inputs: Any, outputs: Any, scalars: Any) -> Any:
            seconds = self._bound.nest_seconds(inputs, outputs, scalars)
            outputs[0][0, 0] += 1
            return seconds

    def compiled(*given: Any, **named: Any) -> Any:
        calls.append(given)
        bound, choice = real(*given, **named)
        return (bound if len(calls) == 1 else Wrong(bound)), choice

    monkeypatch.setattr(cases, "compiled", compiled)
    with pytest.raises(Mismatch):
        measured(blurred, [[IMAGE]], OPTIONS, 6, 0, MeasurementLock(tmp_path))


def test_programs_that_are_not_one_kernel_are_refused(tmp_path: Path) -> None:
    def decided(a: Any) -> Any:
        return a * 2 if a.max() > 0 else a

    with pytest.raises(HjitError, match="one kernel"):
        measured(decided, [[IMAGE]], OPTIONS, 3, 0, MeasurementLock(tmp_path))


def test_equal_seeds_have_equal_schedules() -> None:
    p = Program(pyramid)
    first, second = ([*candidates(p.space, p.graph, 5, 7)] for _ in range(2))
    assert first == second and len(set(first)) > 2
    assert chosen_state(p.space, random.Random(1), 2) == chosen_state(p.space, random.Random(1), 2)
    assert random_state(p.space, random.Random(1)) == random_state(p.space, random.Random(1))


def test_a_measurement_waits_for_others_and_others_for_it(tmp_path: Path) -> None:
    quiet, order = MeasurementLock(tmp_path), []

    def measure() -> None:
        with quiet.measuring():
            order.append("measured")

    with quiet.working():
        thread = threading.Thread(target=measure)
        thread.start()
        time.sleep(0.2)
        order.append("worked")
    thread.join()
    assert order == ["worked", "measured"]


def test_results_are_alike_within_a_tolerance_of_floats() -> None:
    a = np.arange(5, dtype=np.float32)
    assert alike(a, a + np.float32(1e-5)) and not alike(a, a + np.float32(1e-1))
    assert not alike(a, a.astype(np.float64)) and not alike(np.arange(3), np.arange(3) + 1)
    assert alike(np.array([np.nan, 1.0]), np.array([np.nan, 1.0]))


def test_facts_of_the_machine_are_positive_and_kept() -> None:
    facts = machine.facts(1, 64)
    assert len(facts) == len(MACHINE) and all(x > 0 for x in facts)
    assert machine.facts(1, 64) == facts


def test_a_measured_bandwidth_serves_the_processes_that_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    monkeypatch.setattr(machine, "bandwidth", lambda threads: float(measured.append(threads) or 7e9))
    assert [machine.kept_bandwidth(2, tmp_path, "rw") for _ in range(3)] == [7e9] * 3 and measured == [2]
    assert machine.kept_bandwidth(1, tmp_path, "rw") == 7e9 and measured == [2, 1]
    assert machine.kept_bandwidth(2, tmp_path, "off") == 7e9 and measured == [2, 1, 2]


@pytest.mark.parametrize("damaged", [b"", b"nan", b"-1", b"inf", b"much", b"\xff"])
def test_a_damaged_fact_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes) -> None:
    monkeypatch.setattr(machine, "bandwidth", lambda threads: 7e9)
    monkeypatch.setattr(cache, "load", lambda *given: damaged)
    assert machine.kept_bandwidth(2, tmp_path, "rw") == 7e9
