"""Random loops over pixels with conditions: whatever is compiled of them gives NumPy's results."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit

READS = (
    "a[y, x]", "a[y - 1, x]", "a[y, x + 1]", "b[x, y]", "a[y, 0]", "out[y, x]", "out[y - 1, x]", "v", "0.5", "k", "x0",
    "a[y // 2, x]", "a[min(y + 3, h - 1), max(x - 2, 0)]", "x / 7", "(y - h / 2)", "(x + y) % 3", "(x * y - w)",
)  # fmt: skip
CONDITIONS = ("{} > {}", "{} <= {}", "{} > {} and {} < {}", "not {} < {}", "{} > {} or {} > {}", "abs({}) > {}")
VALUES = ("{}", "{} * 2 - {}", "max({}, {})", "{} + {} / 4", "{} if {} > {} else {}", "np.sqrt(abs({}))")


class Bodies:
    """Random statements, deterministic by the seed."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)

    def filled(self, templates: tuple[str, ...]) -> str:
        text = self.r.choice(templates)
        return text.format(*(self.r.choice(READS) for _ in range(text.count("{}"))))

    def block(self, depth: int, indent: str) -> list[str]:
        lines = []
        for _ in range(self.r.randint(1, 2)):
            kind = self.r.random()
            if kind < 0.5 and depth:
                lines.append(f"{indent}if {self.filled(CONDITIONS)}:")
                lines += self.block(depth - 1, indent + "    ")
                if self.r.random() < 0.6:
                    lines.append(f"{indent}else:")
                    lines += self.block(depth - 1, indent + "    ")
            elif kind < 0.6:
                lines.append(f"{indent}v = {self.filled(VALUES)}")
            elif kind < 0.65 and depth < 2:
                lines.append(f"{indent}continue")
                break
            else:
                lines.append(f"{indent}out[y, x] {self.r.choice(('=', '=', '+='))} {self.filled(VALUES)}")
        return lines

    def function(self) -> tuple[str, Callable[..., Any]]:
        lines = [
            "def f(a, b, k):",
            "    h, w = a.shape",
            "    out = " + self.r.choice(("np.zeros_like(a)", "a.copy()", "np.ones(a.shape)")),
            "    for y in range(1, a.shape[0]):",
            "        x0 = a[y, 0] * 2",
            "        for x in range(a.shape[1] - 1):",
            "            v = a[y, x] + k",
            *self.block(2, " " * 12),
            "    return out",
        ]
        text = "\n".join(lines)
        names: dict[str, Any] = {"np": np}
        exec(text, names)
        return text, names["f"]


@pytest.mark.parametrize("seed", range(60))
def test_random_conditions_in_loops_over_pixels(seed: int) -> None:
    text, f = Bodies(seed).function()
    r = np.random.default_rng(seed)
    compiled = hjit.pipeline(f, on_unsupported="numpy", tune=False, verify="off").quiet()
    for h, w in ((20, 31), (33, 18)):
        a, b = r.random((h, w)), r.random((w, h))
        with np.errstate(all="ignore"):
            expected = f(a, b, 0.25)
        np.testing.assert_array_equal(compiled(a, b, 0.25), expected, err_msg=text)


def test_most_of_them_are_compiled() -> None:
    compiled = 0
    for seed in range(12):
        _, f = Bodies(seed).function()
        p = hjit.pipeline(f, on_unsupported="numpy", tune=False, verify="off").quiet()
        p(np.ones((20, 31)), np.ones((31, 20)), 0.25)
        compiled += p.stats.fallbacks == 0
    assert compiled >= 6


def best_shift(img: Any) -> Any:
    best, arg = 0.0, 0
    for k in range(1, 8):
        score = float(np.abs(img[k:] - img[:-k]).max())
        if score > best:
            best, arg = score, k
    return best, arg


def counted_shifts(img: Any) -> Any:
    n, least = 0, np.float64(1e9)
    for k in (1, 2, 4, 8):
        apart = np.abs(np.roll(img, k, 0) - img).max()
        n += 1 if apart > 0.9 else 0
        if apart < least:
            least = apart
    return img * n, least


def aligned(stack: Any) -> Any:
    total, shifts = stack[0].copy(), []
    for frame in stack[1:]:
        y, x = np.unravel_index(np.argmax(frame), frame.shape)
        if y > frame.shape[0] // 2:
            y -= frame.shape[0]
        shifts.append((int(y), int(x)))
        total += np.roll(frame, (-y, x), axis=(0, 1))
    return total, shifts


@pytest.mark.parametrize("f", [best_shift, counted_shifts, aligned])
def test_conditions_of_few_iterations_that_choose_numbers_are_computed(f: Callable[..., Any]) -> None:
    p = hjit.pipeline(f, cache="off", on_unsupported="break")
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.random((5, 30, 41)) if f is aligned else rng.random((30, 41)) * rng.random((30, 1))
        ours, theirs = p(x), f(x)
        for a, b in zip(ours, theirs, strict=True):
            assert type(a) is type(b)
            np.testing.assert_array_equal(a, b)
    assert p.stats.traces == 1
    assert "decision" not in p.explain(x)
