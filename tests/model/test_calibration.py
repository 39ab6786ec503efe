"""Corrections of the cost model for one machine: what is found again, and what is not kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hjit.errors import ModelError
from hjit.model import network
from hjit.model.calibration import (
    FEWEST,
    GROUPS,
    Calibration,
    _Parts,
    corrected,
    fitted,
    from_json,
    to_json,
)
from hjit.model.feature_names import MACHINE
from hjit.model.fit import Program
from hjit.model.terms import COEFFICIENTS
from tests.model.test_fit import truth

NET = network.random(5)
SLOWER = {"computing": 1.0, "loads": 1.0, "reading": 2.5, "writing": 0.5, "memory": 1.0, "threads": 1.0, "tasks": 3.0}
ONES = dict.fromkeys(GROUPS, 1.0)


def measured(factors: dict[str, float], noise: float, count: int = 24, seed: int = 3) -> list[Program]:
    """Programs whose times are those of the network with these factors."""
    rng, model = np.random.default_rng(seed), corrected(NET, factors)
    return [
        replace(p, runtimes=model.stages(p.pipeline, p.schedule, p.machine).sum(-1) * np.exp(rng.normal(0, noise, 12)))
        for p in truth(seed, count, 12)
    ]


def test_every_coefficient_is_in_one_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COEFFICIENTS)


def test_factors_of_one_change_nothing_and_others_their_terms() -> None:
    p = measured(ONES, 0.0, 1)[0]
    np.testing.assert_array_equal(corrected(NET, ONES).arrays["log_unit"], NET.arrays["log_unit"])
    before = NET.prepare(p.pipeline, p.machine).coefficients(p.schedule)
    after = corrected(NET, SLOWER).prepare(p.pipeline, p.machine).coefficients(p.schedule)
    for group, names in GROUPS.items():
        columns = [COEFFICIENTS.index(name) for name in names]
        np.testing.assert_allclose(after[..., columns], before[..., columns] * SLOWER[group], rtol=1e-5)


def test_parts_are_what_the_network_predicts() -> None:
    for slow in (1.0, 1e-4):  # of a memory so slow that stages take as long as it does
        p = measured(ONES, 0.0, 1)[0]
        machine = p.machine.copy()
        machine[MACHINE.index("bandwidth")] *= slow
        machine[MACHINE.index("l3_bytes")] = 1000
        p = replace(p, machine=machine)
        parts = _Parts.of(NET, p)
        total = np.maximum(parts.seconds.sum(-1), parts.floor).sum(-1)
        np.testing.assert_allclose(total, NET.stages(p.pipeline, p.schedule, machine).sum(-1), rtol=1e-5)
        assert (parts.floor > parts.seconds.sum(-1)).any() == (slow < 1)


def test_derivatives_are_those_of_the_errors() -> None:
    p = measured(SLOWER, 0.3, 1)[0]
    parts, at = _Parts.of(NET, p), np.linspace(-0.5, 0.5, len(GROUPS))
    errors, slopes = parts.errors(at)
    for k in range(len(GROUPS)):
        step = 1e-6 * (np.arange(len(GROUPS)) == k)
        np.testing.assert_allclose((parts.errors(at + step)[0] - errors) / 1e-6, slopes[:, k], atol=1e-4)


def test_a_machine_that_differs_is_found_and_predicted_better() -> None:
    found = fitted(NET, measured(SLOWER, 0.05))
    assert found.helps and found.after < 0.7 * found.before
    assert found.factors["reading"] > 1.3 and found.factors["writing"] < 1 < found.factors["tasks"]
    assert (found.programs, found.samples) == (24, 24 * 12)
    unseen = measured(SLOWER, 0.0, 6, seed=9)
    for model, most in ((NET, 10.0), (corrected(NET, found.factors), 0.5)):
        parts = [_Parts.of(model, p).errors(np.zeros(len(GROUPS)))[0] for p in unseen]
        errors = [float((x**2).sum()) for x in parts]
        assert sum(errors) < most * sum(
            float((_Parts.of(NET, p).errors(np.zeros(len(GROUPS)))[0] ** 2).sum()) for p in unseen
        )


@pytest.mark.parametrize("speed", [0.4, 2.5])
def test_a_machine_that_is_faster_in_all_is_found_whole(speed: float) -> None:
    """Noise of 0.3, and no group is pulled back to 1."""
    found = fitted(NET, measured(dict.fromkeys(GROUPS, speed), 0.3))
    assert found.helps
    assert np.mean(np.log(list(found.factors.values()))) == pytest.approx(np.log(speed), abs=0.12)


def test_a_machine_that_does_not_differ_is_left_alone() -> None:
    """What is only noise helps no program that was held out."""
    for seed in range(5):
        assert not fitted(NET, measured(ONES, 0.4, 12, seed)).helps


def test_few_programs_are_too_few() -> None:
    with pytest.raises(ModelError, match=f"{FEWEST - 1} programs are too few"):
        fitted(NET, measured(SLOWER, 0.0, FEWEST - 1))
    one = measured(SLOWER, 0.0, 1)
    with pytest.raises(ModelError, match="1 programs are too few"):
        fitted(NET, one * FEWEST)  # the same at several sizes


def test_json_is_read_again_and_nothing_else() -> None:
    x = Calibration(SLOWER, 0.5, 0.25, 9, 100)
    assert from_json(to_json(x)) == x
    for odd in (
        None,
        [],
        {},
        {**to_json(x), "factors": {}},
        {**to_json(x), "factors": {**SLOWER, "more": 1.0}},
        {**to_json(x), "factors": {**SLOWER, "tasks": -1.0}},
        {**to_json(x), "factors": {**SLOWER, "tasks": float("nan")}},
        {**to_json(x), "programs": "many"},
    ):
        with pytest.raises(ModelError, match="not a calibration"):
            from_json(odd)
