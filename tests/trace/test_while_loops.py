"""``while`` loops in no other loop, and loops over few things, which decide on computed values in each iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.trace.nesting import seeds, with_source
from tests.trace.test_carried_variables import compiled, identical, outcome

Array = np.ndarray[Any, Any]


def flood_fill(a: Array, y0: int, x0: int, most: int) -> Array:
    h, w = a.shape
    mask, stack = np.zeros((h, w), bool), np.zeros((4 * h * w + 1, 2), np.int64)
    stack[0, 0], stack[0, 1] = y0, x0
    top, seed = 1, int(a[y0, x0])
    while top > 0:
        top -= 1
        y, x = stack[top, 0], stack[top, 1]
        if y < 0 or y >= h or x < 0 or x >= w:
            continue
        if mask[y, x] or abs(int(a[y, x]) - seed) > most:
            continue
        mask[y, x] = True
        for dy, dx in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            stack[top, 0] = y + dy
            stack[top, 1] = x + dx
            top += 1
    return mask


def search(a: Array) -> Any:
    values, key = np.sort(a.ravel()), a[0, 0]
    low, high = 0, len(values) - 1
    while low <= high:
        middle = (low + high) // 2
        if values[middle] == key:
            return values[middle]
        if values[middle] < key:
            low = middle + 1
        else:
            high = middle - 1
    return -1


def largest_rectangle(a: Array) -> Any:
    heights = a.ravel() % 50
    n = len(heights)
    stack = np.zeros(n + 1, np.int64)
    top = i = best = 0
    while i <= n:
        now = heights[i] if i < n else 0
        if top == 0 or now >= heights[stack[top - 1]]:
            stack[top] = i
            top += 1
            i += 1
        else:
            top -= 1
            best = max(best, int(heights[stack[top]]) * (i if top == 0 else i - stack[top - 1] - 1))
    return best


def triangles(a: Array) -> Array:
    corners = a[:4, :6] / 255.0 * 30
    depth = np.full((30, 31), np.inf)
    for i in range(4):
        y0, x0, y1, x1, y2, x2 = corners[i]
        area = (x1 - x0) * (y2 - y0) - (y1 - y0) * (x2 - x0)
        if area == 0:
            continue
        for y in range(int(min(y0, y1, y2)), int(max(y0, y1, y2))):
            for x in range(int(min(x0, x1, x2)), int(max(x0, x1, x2))):
                s = ((x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)) / area
                t = ((x0 - x2) * (y - y2) - (y0 - y2) * (x - x2)) / area
                if s >= 0 and t >= 0 and s + t <= 1 and s + 2 * t < depth[y, x]:
                    depth[y, x] = s + 2 * t
    return depth


def labels(a: Array) -> Any:
    """In two passes, each of which follows parents until it finds a root."""
    h, w = a.shape
    found, parents, n = np.zeros((h, w), np.int32), np.arange(h * w // 2 + 2), 1
    for y in range(h):
        for x in range(w):
            if a[y, x] < 100:
                continue
            above = found[y - 1, x] if y > 0 else 0
            left = found[y, x - 1] if x > 0 else 0
            if above == 0 and left == 0:
                found[y, x] = n
                n += 1
            elif above and left:
                p, q = above, left
                while parents[p] != p:
                    p = parents[p]
                while parents[q] != q:
                    q = parents[q]
                parents[p] = parents[q] = found[y, x] = min(p, q)
            else:
                found[y, x] = max(above, left)
    for y in range(h):
        for x in range(w):
            p = found[y, x]
            while parents[p] != p:
                p = parents[p]
            found[y, x] = p
    return found


def escapes(a: Array) -> Array:
    c = a / 80.0 - 2.0
    out = np.zeros(c.shape, np.int64)
    for y in range(c.shape[0]):
        for x in range(c.shape[1]):
            z, k = 0.0, 0
            while abs(z) <= 2 and k < 90:
                z = z * z + c[y, x]
                k += 1
            out[y, x] = k
    return out


def roots(a: Array) -> Array:
    out = np.zeros(a.shape)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            r = 1.0
            for _ in range(60):
                n = 0.5 * (r + (a[y, x] + 1.0) / r)
                if abs(n - r) < 1e-9:
                    break
                r = n
            out[y, x] = r
    return out


def image(*shape: int) -> Array:
    return np.random.default_rng(shape).integers(0, 256, shape).astype(np.uint8)


LOOPS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (flood_fill, (3, 4, 100)),
    (search, ()),
    (largest_rectangle, ()),
    (triangles, ()),
]


@pytest.mark.parametrize(("f", "more"), LOOPS, ids=lambda x: getattr(x, "__name__", ""))
def test_decisions_on_elements_make_a_program(f: Callable[..., Any], more: tuple[Any, ...]) -> None:
    p = compiled(f, on_unsupported="break")
    for shape in ((20, 23), (31, 44)):
        a = image(*shape)
        for _ in range(2):
            assert identical(outcome(p, a, *more), outcome(f, a, *more))
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)
    assert "loops, compiled" in p.explain(a, *more)


@pytest.mark.parametrize(("f", "count"), [(labels, 2), (escapes, 1), (roots, 1)], ids=["labels", "escapes", "roots"])
def test_loops_inside_of_others_end_where_they_are_left(f: Callable[..., Any], count: int) -> None:
    p = compiled(f, on_unsupported="break")
    for shape in ((20, 23), (31, 44)):
        a = image(*shape)
        assert identical(outcome(p, a), outcome(f, a))
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)
    assert str(p.explain(a)).count("loops, compiled") == count


def until_it_settles(a: Array) -> Any:
    u, n = a / 255.0, 0
    while True:
        v = u.copy()
        v[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4
        n += 1
        if np.abs(v - u).max() < 1e-2:
            return v, n
        u = v


def by_pixels(a: Array) -> Any:
    u, changed, n = a > 200, True, 0
    while changed:
        changed = False
        for y in range(1, a.shape[0] - 1):
            for x in range(1, a.shape[1] - 1):
                if not u[y, x] and a[y, x] > 100 and (u[y - 1, x] or u[y, x - 1] or u[y + 1, x] or u[y, x + 1]):
                    u[y, x] = True
                    changed = True
        n += 1
    return u, n


@pytest.mark.parametrize("f", [until_it_settles, by_pixels], ids=lambda f: f.__name__)
def test_whole_arrays_have_kernels_of_their_own(f: Callable[..., Any]) -> None:
    p, a = compiled(f, on_unsupported="break"), image(30, 37)
    assert identical(outcome(p, a), outcome(f, a))
    assert p.stats.parts > 0


def index_error(a: Array) -> Any:
    k = 0
    while a[k % 7, k] != 256:
        k += 1
    return k


def not_bound(a: Array) -> Any:
    k = 0
    while a[0, k] > 255:
        last = k
        k += 1
    return last


def test_exceptions_are_pythons() -> None:
    for f in (index_error, not_bound):
        p, a = compiled(f, on_unsupported="break"), image(20, 23)
        for _ in range(2):
            assert identical(outcome(p, a), outcome(f, a))


# -- random ones


def walk(seed: int) -> tuple[str, Any]:
    """A walk through an image, with a stack."""
    r = np.random.default_rng(seed)

    def number() -> str:
        return str(r.choice(["y", "x", "top", "n", "int(a[y, x])", "steps", str(r.integers(1, 9))]))

    def condition() -> str:
        return f"{number()} {r.choice(['<', '>', '==', '!=', '<=', '>='])} {number()}"

    def statement() -> str:
        return str(
            r.choice(
                [
                    f"n += {number()}",
                    f"n = ({number()} * {number()}) % 1000",
                    "stack[top % 40] = y\n        top += 1",
                    f"y = (y + {number()}) % h",
                    f"x = (x - {number()}) % w",
                    "if top > 0:\n            top -= 1\n            y = stack[top % 40]",
                    f"a[y, x] = {r.integers(0, 200)}",
                    f"best = max(best, {number()})",
                    f"if {condition()}:\n            continue",
                    f"if {condition()} and {condition()}:\n            break",
                    f"for d in ({r.integers(-3, 0)}, {r.integers(1, 4)}):\n            n = n % 99 + int(a[(y + d) % h, x])",
                ]
            )
        )

    body = "\n        ".join(statement() for _ in range(r.integers(4, 8)))
    text = f"""def f(a):
    h, w = a.shape
    stack = np.zeros(40, np.int64)
    y = x = top = n = best = steps = 0
    while steps < 500 and {condition()}:
        steps += 1
        x = (x + 1 + n) % w
        {body}
    return a, stack, y, x, top, n, best, steps
"""
    return text, with_source(text, f"<walk {seed}>")


@pytest.mark.parametrize("seed", seeds(10, 40))
def test_random_walks(seed: int) -> None:
    text, f = walk(seed)
    p = compiled(f, on_unsupported="break")
    for shape in ((20, 23), (31, 18)):
        assert identical(outcome(p, image(*shape)), outcome(f, image(*shape))), text
