"""Recurrences whose iterations read beside what earlier iterations wrote: the loops that they may have, and random ones under random schedules."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.errors import ScheduleError
from tests.numpy_check import check
from tests.sched.test_default import loops
from tests.schedules import RandomScheduler
from tests.trace.test_rerolling import lowest_path

RECURRENCES = int(os.environ.get("HJIT_FUZZ_RECURRENCES", "30"))


def lowest_path_of_planes(cost: Any) -> Any:
    total = cost.copy()
    for y in range(1, total.shape[1]):
        total[:, y, 1:] += total[:, y - 1, :-1]
    return total


def test_a_row_is_in_vectors_and_whole_before_the_next_begins() -> None:
    cost = np.random.default_rng(0).random((40, 75), np.float32)
    own = loops(lowest_path, cost)[-3:]
    assert [(n.dim, n.kind) for n in own] == [(0, "serial"), (1, "serial"), (1, "vector")]
    np.testing.assert_array_equal(hjit.pipeline(lowest_path, tune=False)(cost), lowest_path(cost))


def test_other_dimensions_are_tasks() -> None:
    cost = np.random.default_rng(0).random((9, 40, 75), np.float32)
    own = loops(lowest_path_of_planes, cost)
    assert [n.kind for n in own if n.dim == 0] == ["parallel", "parallel"]
    np.testing.assert_array_equal(hjit.pipeline(lowest_path_of_planes, tune=False)(cost), lowest_path_of_planes(cost))


@pytest.mark.parametrize(
    "directives",
    [
        lambda s: s.vectorize("r0", 8),
        lambda s: s.reorder("r1", "r0"),
        lambda s: s.parallel("r1"),
        lambda s: s.unroll("r0").vectorize("r0", 4),
    ],
)
def test_iterations_keep_their_order(directives: Callable[[Any], Any]) -> None:
    cost = np.random.default_rng(0).random((40, 75), np.float32)
    f = hjit.pipeline(lowest_path, tune=False)
    s = f.schedule(cost)
    with pytest.raises(ScheduleError):
        directives(s["cost_v_2"].update(1))
        f.use(s)(cost)


def random_recurrence(seed: int) -> tuple[Callable[..., Any], np.ndarray]:
    """A function with a recurrence over rows that reads beside earlier rows, and an array for it."""
    r = random.Random(seed)
    dtype = r.choice(["uint8", "int16", "int32", "float32", "float64"])
    planes = r.choice([None, None, 1, 3, 5])
    axis, backwards, before, after = r.randrange(2), r.random() < 0.4, r.random() < 0.5, r.random() < 0.5
    back = [r.choice((1, 1, 2)) for _ in range(2)]
    how = [r.choice(("roll", "edge", "zero", "join", "cut")) for _ in range(2)]
    by = r.choice((1, 2))

    def beside(row: Any, how: str) -> Any:
        match how:
            case "roll":
                return np.roll(row, by, axis=0) + np.roll(row, -1, axis=0)
            case "edge" | "zero":
                widths = ((by, by), *((0, 0),) * (row.ndim - 1))
                padded = np.pad(row, widths, mode="edge") if how == "edge" else np.pad(row, widths)
                return np.maximum(padded[: -2 * by], padded[2 * by :])
            case "join":
                return np.concatenate((row[:1], row[:-1])) - np.concatenate((row[by:], row[:by]))
        return row

    def f(image: Any) -> Any:
        a = np.minimum(image, 3) + 1 if before else image
        out = a.copy()
        rows = out if axis == 0 else out.swapaxes(0, 1)
        rows = rows[::-1] if backwards else rows
        for y in range(2, rows.shape[0]):
            first, second = rows[y - back[0]], rows[y - back[1]]
            if how[1] == "cut":
                rows[y, by:] += beside(first, how[0])[by:] + second[:-by]
            else:
                rows[y] += beside(first, how[0]) + beside(second, how[1])
        return out[::-1] * 2 if after else out

    shape = (r.choice((19, 32, 40, 70)), r.choice((18, 24, 33, 67)))  # shorter loops are traced iteration by iteration
    image = np.random.default_rng(seed).integers(0, 9, shape if planes is None else (*shape, planes)).astype(dtype)
    return f, image


@pytest.mark.parametrize("start", range(0, RECURRENCES, 10))
def test_random_ones_under_random_schedules(start: int) -> None:
    for seed in range(start, min(start + 10, RECURRENCES)):
        f, image = random_recurrence(seed)
        with np.errstate(all="ignore"):
            check(f, image, zeros=False, schedule=RandomScheduler(seed) if seed % 4 else None)
