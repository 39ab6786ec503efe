"""Iterations with more conditions than there can be paths: their sides are traced one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.trace.carrying import image
from tests.trace.nesting import seeds, with_source
from tests.trace.test_carried_variables import compiled, identical, outcome

Array = np.ndarray[Any, Any]


def suppressed(a: Array) -> Array:
    """Canny's non-maximum suppression: chained comparisons, elements of which a path reads two."""
    out = np.zeros(a.shape, a.dtype)
    angle = a * 180.0 % 180
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            q = r = 255
            if (0 <= angle[i, j] < 22.5) or (157.5 <= angle[i, j] <= 180):
                q, r = a[i, j + 1], a[i, j - 1]
            elif 22.5 <= angle[i, j] < 67.5:
                q, r = a[i + 1, j - 1], a[i - 1, j + 1]
            elif 67.5 <= angle[i, j] < 112.5:
                q = a[i + 1, j]
                r = a[i - 1, j]
            elif 112.5 <= angle[i, j] < 157.5:
                q = a[i - 1, j - 1]
                r = a[i + 1, j + 1]
            if a[i, j] >= q and a[i, j] >= r:
                out[i, j] = a[i, j]
            else:
                out[i, j] = 0
    return out


def spread(a: Array) -> Array:
    """Labels spread to the neighbour that is least: tables of offsets, ``continue``, two kinds of numbers."""
    h, w = a.shape
    labels = np.where(a > 0.9 * a.max(), np.arange(h * w).reshape(h, w), 0)
    for _ in range(200):
        changed = 0
        for y in range(h):
            for x in range(w):
                if labels[y, x] != 0:
                    continue
                best, label = 1 << 30, 0
                for dy, dx in [(-1, 0), (1, 0), (0, -1), (0, 1)]:
                    v, u = y + dy, x + dx
                    if v < 0 or v >= h or u < 0 or u >= w:
                        continue
                    if labels[v, u] > 0 and a[v, u] < best:
                        best = a[v, u]
                        label = labels[v, u]
                if label > 0:
                    labels[y, x] = label
                    changed += 1
        if changed == 0:
            break
    return labels


def find(parent: Array, k: Any) -> Any:
    while parent[k] != k:
        parent[k] = parent[parent[k]]
        k = parent[k]
    return k


def union(parent: Array, a: Any, b: Any) -> None:
    ra, rb = find(parent, a), find(parent, b)
    if ra != rb:
        if ra < rb:
            parent[rb] = ra
        else:
            parent[ra] = rb


def components(a: Array) -> Array:
    h, w = a.shape
    is_set = a > a.mean()
    parent = np.arange(h * w)
    for y in range(h):
        for x in range(w):
            if is_set[y, x]:
                if x > 0 and is_set[y, x - 1]:
                    union(parent, y * w + x, y * w + x - 1)
                if y > 0 and is_set[y - 1, x]:
                    union(parent, y * w + x, (y - 1) * w + x)
    return parent


def distances(a: Array) -> Array:
    h, w = a.shape
    found = np.full((h, w), -1)
    ys, xs = np.zeros(h * w, np.int64), np.zeros(h * w, np.int64)
    head, tail = 0, 1
    found[0, 0] = 0
    while head < tail:
        y, x = ys[head], xs[head]
        head += 1
        for dy, dx in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            v, u = y + dy, x + dx
            if 0 <= v < h and 0 <= u < w and a[v, u] > a[0, 0] / 2 and found[v, u] == -1:
                found[v, u] = found[y, x] + 1
                ys[tail], xs[tail] = v, u
                tail += 1
    return found


def patterns(a: Array) -> Array:
    out = np.zeros(a.shape, np.uint8)
    offsets = [(-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1)]
    for y in range(1, a.shape[0] - 1):
        for x in range(1, a.shape[1] - 1):
            code = 0
            for k, (dy, dx) in enumerate(offsets):
                if a[y + dy, x + dx] >= a[y, x]:
                    code |= 1 << k
            out[y, x] = code
    return out


LOOPS: list[Callable[..., Any]] = [suppressed, components, distances, patterns]


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_loops_of_many_conditions_are_compiled(f: Callable[..., Any], dtype: Any) -> None:
    assert_compiled(f, dtype)


@pytest.mark.slow
def test_conditions_on_numbers_of_two_kinds() -> None:
    assert_compiled(spread, np.uint8)


def assert_compiled(f: Callable[..., Any], dtype: Any) -> None:
    p, a = compiled(f, on_unsupported="break", budget=None), image(np.random.default_rng(0), (20, 23), dtype)
    for _ in range(2):
        assert identical(outcome(p, a), outcome(f, a))
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)


def of_elements(a: Array) -> Any:
    """Conditions that are elements of one array of bools."""
    m, n, k = a > 0.5, 0, 0
    for y in range(1, a.shape[0] - 1):
        for x in range(1, a.shape[1] - 1):
            if m[y, x]:
                n += 1
                m[y, x] = False
            if m[y, x]:
                n += 100
            elif m[y, x - 1] or m[y - 1, x]:
                m[y, x - 1] = a[y, x] > 0.25
            if m[y, x - 1] and not m[y, x]:
                k = k + n % 5
                m[y, x] = True
            if m[y, x] and m[y, x + 1] and m[y + 1, x] and m[y - 1, x] and a[y, x] < 0.75:
                k -= 1
            if m[y - 1, x - 1] or (m[y + 1, x + 1] and n > k):
                n = n * 3 % 1001
            else:
                m[y + 1, x + 1] = n < 500
            if n > 990 or m[y, x] or k < -50:
                k += 2
    return m, n, k


def test_elements_are_conditions_of_their_own() -> None:
    p = compiled(of_elements, on_unsupported="break", budget=None)
    a = np.random.default_rng(0).random((30, 41))
    assert identical(outcome(p, a), outcome(of_elements, a))
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)


# -- random ones


class Author:
    """Writes loops with many conditions."""

    def __init__(self, seed: int) -> None:
        self.r = np.random.default_rng(seed)
        self.temporaries = 0

    def pick(self, *of: str) -> str:
        return str(self.r.choice(of))

    def number(self) -> str:
        near = f"int(a[y + {self.r.integers(-1, 2)}, x + {self.r.integers(-1, 2)}])"
        return self.pick(
            "n", "k", "best", "int(a[y, x])", near, near, "int(out[y, x])", "m", f"{self.r.integers(0, 100)}"
        )

    def condition(self, depth: int = 2) -> str:
        if depth and self.r.random() < 0.5:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return self.pick(f"({a} and {b})", f"({a} or {b})", f"not {a}", f"({a}) and ({b})")
        a, b, c = self.number(), self.number(), self.number()
        return self.pick(
            f"{a} < {b}", f"{a} >= {b}", f"{a} == {b}", f"{a} <= {b} < {c}", f"{a} != {b} <= {c}", "y > 0", "x == y",
            "is_set[y, x]", "is_set[y - 1, x]", f"y % 2 == {self.r.integers(0, 2)}", "first",
        )  # fmt: skip

    def statement(self) -> str:
        return self.pick(
            "n += 1", "n = (n * 3 + k) % 101", f"k = {self.r.integers(0, 50)}", f"best = {self.number()}",
            f"out[y, x] = {self.number()} % 50", f"out[y, x - 1] += {self.r.integers(1, 9)}",
            f"is_set[y, x] = {self.condition(0)}", f"m = {self.number()}", "first = False", "first = y > x",
            "best, m = m, best", f"best = max(best, {self.number()}) if {self.condition(1)} else {self.number()}",
            "for d in (-1, 1):\n    if a[y + d, x] > best and d > n - 50:\n        n -= 1",
        )  # fmt: skip

    def block(self, depth: int, indent: str) -> list[str]:
        lines: list[str] = []
        for _ in range(self.r.integers(1, 4)):
            if depth and self.r.random() < 0.6:
                lines += self.branch(depth, indent)
            else:
                lines += [indent + line for line in self.statement().split("\n")]
        return lines

    def branch(self, depth: int, indent: str) -> list[str]:
        self.temporaries += 1
        t, inner = f"t{self.temporaries}", indent + "    "
        new = self.r.random() < 0.3
        lines = [f"{indent}if {self.condition()}:", *self.block(depth - 1, inner)]
        if new:
            lines += [f"{inner}{t} = {self.number()}"]
        if self.r.random() < 0.3:
            lines += [f"{indent}elif {self.condition()}:", *self.block(depth - 1, inner)]
            lines += [f"{inner}{t} = {self.number()}"] if new else []
        if new or self.r.random() < 0.5:
            lines += [f"{indent}else:", *self.block(depth - 1, inner)]
            lines += [f"{inner}{t} = {self.number()}"] if new else []
        if new:
            lines += [f"{indent}n = int({t}) % 7 + n % 90"]
        elif self.r.random() < 0.15:
            lines += [f"{indent}if {self.condition(1)}:", f"{inner}continue"]
        return lines

    def source(self) -> str:
        lines = ["def f(a):", "    h, w = a.shape", "    out = np.zeros(a.shape, np.int64)", "    is_set = a > 40"]
        lines += ["    n, k, best, m, first = 0, 3, int(a[0, 0]), int(a[1, 1]), True"]
        lines += ["    for y in range(1, h - 1):", "        for x in range(1, w - 1):"]
        for _ in range(3):
            lines += self.branch(2, " " * 12)
        return "\n".join([*lines, "    return out, is_set, n, k, best, m, first"])


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_random_conditions(seed: int) -> None:
    text = Author(seed).source()
    f = with_source(text, f"<conditions {seed}>")
    p = compiled(f, on_unsupported="break", budget=None)
    a = np.random.default_rng(seed).integers(0, 100, (18, 19)).astype((np.int64, np.float64, np.uint8)[seed % 3])
    for _ in range(2):
        assert identical(outcome(p, a), outcome(f, a)), text
