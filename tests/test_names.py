"""Stages are named after the user's variables, always the same: saved schedules refer to them."""

from typing import Any

import numpy as np

import hjit

IMAGE = np.random.default_rng(0).random((30, 40), np.float32)


def many_calls(img: Any) -> Any:
    total = np.zeros_like(img)
    for k in range(12):
        moved = sum([np.exp(img * (k + 1.5)), img])
        shifted = np.sqrt(moved[:, ::-1] + moved)
        total = total + shifted[::-1] * moved
    return total


def test_names_do_not_depend_on_how_often_the_function_has_run() -> None:
    first = str(hjit.pipeline(many_calls, cache="off").graph(IMAGE))
    for _ in range(20):
        many_calls(IMAGE)
    assert str(hjit.pipeline(many_calls, cache="off").graph(IMAGE)) == first
    assert "moved" in first
