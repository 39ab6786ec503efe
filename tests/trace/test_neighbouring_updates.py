"""Loops over pixels that update several neighbours in each iteration: their order is kept, by any schedule."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit

VALUES = ("{} * 0.5", "{} * 0.3 + {} * 0.2", "abs({}) / 3", "o * 0.25", "np.round({})")


def updates(seed: int) -> tuple[str, Callable[..., Any]]:
    """Two to four updates of neighbours, of one array or two, upwards or downwards."""
    r = random.Random(seed)
    arrays = r.choice(("a", "ab"))

    def place() -> str:
        dy, dx = (r.choice(("", " + 1", " - 1", "")) for _ in range(2))
        return f"{r.choice(arrays)}[y{dy}, x{dx}]"

    def update() -> str:
        value = r.choice(VALUES)
        return f"{place()} {r.choice(('=', '+=', '-=', '*='))} " + value.format(*(place() for _ in range(2)))

    ys, xs = (r.choice((f"range(2, {n} - 2)", f"range({n} - 3, 1, -1)")) for n in "hw")
    lines = [
        "def f(a, b):",
        "    a, b = a.copy(), b.copy()",
        "    h, w = a.shape",
        f"    for y in {ys}:",
        f"        for x in {xs}:",
        f"            o = {place()}",
        *(f"            {update()}" for _ in range(r.randint(2, 4))),
        "    return a, b",
    ]
    text = "\n".join(lines)
    names: dict[str, Any] = {"np": np}
    exec(text, names)
    return text, names["f"]


@pytest.mark.parametrize("seed", range(48))
def test_random_updates_of_neighbours(seed: int) -> None:
    text, f = updates(seed)
    a, b = np.random.default_rng(seed).normal(size=(2, 24, 41))
    compiled = hjit.pipeline(f, on_unsupported="raise", tune=False, verify="off", budget=60.0)
    for ours, numpys in zip(compiled(a, b), f(a, b), strict=True):
        np.testing.assert_array_equal(ours, numpys, err_msg=text)


def diffused(img: Any) -> Any:
    """Floyd and Steinberg's, with a border instead of conditions."""
    a = np.pad(img.astype(float), 1)
    h, w = a.shape
    for y in range(1, h - 1):
        for x in range(1, w - 1):
            old = a[y, x]
            new = np.round(old / 255) * 255
            a[y, x] = new
            error = old - new
            a[y, x + 1] += error * 7 / 16
            a[y + 1, x - 1] += error * 3 / 16
            a[y + 1, x] += error * 5 / 16
            a[y + 1, x + 1] += error * 1 / 16
    return a[1:-1, 1:-1].astype(np.uint8)


def leaned(a: Any) -> Any:
    a = a.copy()
    h, w = a.shape
    for y in range(h):
        for x in range(w - 1):
            old = a[y, x]
            a[y, x] = old * 0.9
            a[y, x + 1] += old * 0.1
    return a


@pytest.mark.parametrize("f", [diffused, leaned])
def test_what_runs_on_to_the_next_pixel_is_not_vectorised(f: Any) -> None:
    img = np.random.default_rng(0).integers(0, 256, (64, 64)).astype(np.uint8)
    img = img if f is diffused else img.astype(np.float64)
    compiled = hjit.pipeline(f, on_unsupported="raise", verify="off", tune=False)
    np.testing.assert_array_equal(compiled(img), f(img))
