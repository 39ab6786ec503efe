"""What generated programs have beside the applications: `benchmarks.ranges`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from benchmarks import apps, ranges
from benchmarks.ranges import FEATURES, SMALL, Outside, compared, outside, table
from hjit.model.feature_names import PIPELINE, SCHEDULE
from hjit.model.generator import Program, _source, is_large, random_program
from hjit.model.generator_gathers import batch_layer
from hjit.model.generator_sketch import Sketch
from hjit.training.programs import IMAGES, LARGEST, PIXELS, SHORT, sizes


def test_what_is_outside_is_named_with_how_far() -> None:
    values = {"in": np.array([1.0, 5.0]), "above": np.array([4.0, 9.0, 6.0]), "below": np.array([-2.0])}
    assert outside(0, 5, values) == [Outside("above", 9.0, 2), Outside("below", -2.0, 1)]
    assert outside(0, 9 - 1e-7, {"above": np.array([9.0])}) == []
    assert outside(0, 5, {"none": np.zeros(0)}) == []


def test_rows_have_every_feature_and_the_table_those_outside() -> None:
    programs = np.zeros((1000, len(FEATURES)))
    programs[:, 1] = np.arange(1000)
    app = np.zeros((2, len(FEATURES)))
    app[:, 1] = 998.9, 3
    app[0, 2] = 7
    rows = compared(programs, {"blur": app})
    assert [r["feature"] for r in rows] == [*SCHEDULE, *PIPELINE]
    assert rows[1]["outside"] == [] and rows[1]["limited"] == [{"app": "blur", "most": 998.9, "stages": 1}]
    assert rows[2]["outside"] == rows[2]["limited"] == [{"app": "blur", "most": 7.0, "stages": 1}]
    text = table({"rows": rows, "programs": 3, "stages": 1000})
    assert f"{FEATURES[2]:<40}" in text and "blur 7 (1 stages)" in text and FEATURES[1] not in text
    assert f"{len(SCHEDULE) - 1} of {len(SCHEDULE)} features of schedules" in text


def test_few_stages_may_have_the_largest_images() -> None:
    seeds = range(40)
    short = [s for s in seeds if len(random_program(s, PIXELS[0]).stages) <= SHORT]
    assert short and len(short) < len(seeds)
    for s in seeds:
        found = sizes(s)
        assert sizes(s) == found and len(found) == IMAGES
        assert all(PIXELS[0] <= n <= PIXELS[1] for n in found[:-1])
        assert (PIXELS[1] <= found[-1] <= LARGEST) == (s in short)


@functools.cache
def definitions_of_programs() -> Any:
    """The features of definitions of the programs below, which no size of an image changes, [stages, features]."""
    programs = ((random_program(seed, SMALL), seed) for seed in SEEDS)
    return np.concatenate([ranges.features(p.function, p.inputs(seed))[:, len(SCHEDULE) :] for p, seed in programs])


SEEDS = (288, 183, 14, 21, 33, 53, 56, 9, 16, 140, 145, 192)  # few that are enough


@pytest.mark.slow
@pytest.mark.parametrize("app", apps.NAMES)
def test_definitions_of_applications_are_within_those_of_a_few_programs(app: str) -> None:
    assert all(map(is_large, SEEDS))
    programs = definitions_of_programs()
    ours = ranges.of_application(app, small=True)[:, len(SCHEDULE) :]
    high, most = programs.max(0), ours.max(0)
    assert {name: (most[k], high[k]) for k, name in enumerate(PIPELINE) if most[k] > high[k] * (1 + ranges.SLACK)} == {}


def drawn_alone(stage: Any, ok: Any, image: tuple[int, int], limit: int) -> Any:
    """The features of a program of one stage, the first one that is as it should be, on a large image."""
    for seed in range(200):
        s = Sketch(seed)
        s.limit = limit
        s.keep(s.parameter("image", image, "float32", 0, 1, "hw"))
        s.keep(stage(s))
        if ok(s):
            program = Program(seed, _source(s), tuple(s.parameters), ("one",))
            return ranges.features(program.function, program.inputs(seed)).max(0)
    raise AssertionError("there is no such program")


def test_layers_of_large_programs_run_as_often_as_those_of_applications() -> None:
    """The convolutional layer of the applications is computed in 13,600 parts, of which 10 run at the same time."""
    found = drawn_alone(
        batch_layer, lambda s: "concatenate" in s.lines[-1] and s.parameters[1].shape[0] == 5, (64, 64), 1 << 24
    )
    assert found[FEATURES.index("num_realizations")] >= 13_600
    assert found[FEATURES.index("outer_parallelism")] >= 10
