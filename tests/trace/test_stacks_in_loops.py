"""Stacks and queues of loops: flood fills, components, distances, growing regions."""

from __future__ import annotations

import collections
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from tests.trace.test_carried_variables import compiled
from tests.trace.test_lists_that_loops_fill import identical

Array = np.ndarray[Any, Any]
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))


def image(*shape: int) -> Array:
    rng = np.random.default_rng(shape)
    coarse = rng.integers(0, 256, (shape[0] // 4 + 1, shape[1] // 4 + 1))
    return np.kron(coarse, np.ones((4, 4)))[: shape[0], : shape[1]].astype(np.uint8)


def flood(a: Array, tolerance: int = 90) -> Array:
    h, w = a.shape
    out = np.zeros((h, w), np.uint8)
    seed = int(a[h // 2, w // 2])
    stack = [(h // 2, w // 2)]
    out[h // 2, w // 2] = 1
    while stack:
        y, x = stack.pop()
        for dy, dx in STEPS:
            ny, nx = y + dy, x + dx
            if 0 <= ny < h and 0 <= nx < w and out[ny, nx] == 0 and abs(int(a[ny, nx]) - seed) <= tolerance:
                out[ny, nx] = 1
                stack.append((ny, nx))
    return out


def components(a: Array) -> Any:
    mask = a > 128
    h, w = mask.shape
    labels = np.zeros((h, w), np.int32)
    n, largest = 0, 0
    for y in range(h):
        for x in range(w):
            if mask[y, x] and labels[y, x] == 0:
                n += 1
                labels[y, x] = n
                stack, size = [(y, x)], 0
                while len(stack) > 0:
                    cy, cx = stack.pop()
                    size += 1
                    for dy, dx in STEPS:
                        ny, nx = cy + dy, cx + dx
                        if 0 <= ny < h and 0 <= nx < w and mask[ny, nx] and labels[ny, nx] == 0:
                            labels[ny, nx] = n
                            stack.append((ny, nx))
                largest = max(largest, size)
    return labels, n, largest


def distances(a: Array) -> Array:
    h, w = a.shape
    found = np.full((h, w), -1, np.int32)
    queue: deque[Any] = collections.deque()
    for y in range(h):
        for x in range(w):
            if a[y, x] < 40:
                found[y, x] = 0
                queue.append((y, x))
    while queue:
        y, x = queue.popleft()
        for dy, dx in STEPS:
            ny, nx = y + dy, x + dx
            if 0 <= ny < h and 0 <= nx < w and found[ny, nx] < 0:
                found[ny, nx] = found[y, x] + 1
                queue.append((ny, nx))
    return found


def region(a: Array) -> int:
    h, w = a.shape
    seen = [[False] * w for _ in range(h)]
    queue = [[h // 2, w // 2]]
    seen[h // 2][w // 2] = True
    n = 0
    while len(queue) > 0:
        y, x = queue.pop(0)
        n += 1
        for ny, nx in [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]:
            if 0 <= ny < h and 0 <= nx < w and not seen[ny][nx] and abs(int(a[ny, nx]) - int(a[y, x])) < 60:
                seen[ny][nx] = True
                queue.append([ny, nx])
    return n


def numbers(a: Array) -> Any:
    flat = a.ravel()
    stack = [0]
    total, deepest = 0.0, 0
    while stack:
        k = stack.pop()
        total += float(flat[k])
        if 2 * k + 1 < flat.size and flat[k] > 20:
            stack.append(2 * k + 1)
        if 2 * k + 2 < flat.size and flat[k] > 90:
            stack.append(2 * k + 2)
        deepest = max(deepest, len(stack))
    return total, deepest


def extended(a: Array, seed: Any = (5, 6)) -> Any:
    h, w = a.shape
    limit = a.std() * 1.2
    seen = np.zeros((h, w), bool)
    reference = float(a[seed])
    stack = [seed]
    last = -1
    while stack:
        last = stack[-1][0]
        y, x = stack.pop()
        if y < 0 or x < 0 or y >= h or x >= w or seen[y, x]:
            continue
        if abs(float(a[y, x]) - reference) > limit:
            continue
        seen[y, x] = True
        stack.extend([(y + 1, x), (y - 1, x)])
        stack += [(y, x + 1), (y, x - 1)]
    return seen, last


def groups(a: Array) -> Any:
    row = a.ravel()
    parent = [0]
    for k in range(1, row.size):
        parent.append(k if row[k] != row[k - 1] else parent[k - 1])
    for k in range(row.size - 1, 0, -1):
        if row[k] % 3 == 0:
            parent[int(row[k]) % 50] = parent[k]
    return parent, len(parent)


def kept(a: Array) -> Any:
    best = [0]
    for v in a.ravel():
        if int(v) > best[-1]:
            best.append(int(v))
        elif len(best) > 3 and int(v) < best[len(best) // 2]:
            best.pop()
    return best


def as_an_array(a: Array) -> Any:
    todo = [(3, 4)]
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 200:
                todo.append((y, x))
            elif a[y, x] < 10 and len(todo) > 1:
                todo.pop(0)
    return np.array(todo), len(todo)


FUNCTIONS = (flood, components, distances, region, numbers, extended, groups, kept, as_an_array)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_loops_that_take_items_from_a_list(f: Callable[..., Any]) -> None:
    pipe = compiled(f)
    for shape in ((40, 33), (40, 33), (37, 41)):
        assert identical(pipe(image(*shape)), f(image(*shape)))
    assert pipe.stats.fallbacks == 0


def too_many(a: Array) -> int:
    stack, n = [1], 0
    while stack:
        k = stack.pop()
        n += 1
        if n <= 2:
            for _ in range(a.size * 5):
                stack.append(k)
    return n


def too_few(a: Array) -> int:
    stack = [int(a[0, 0]), 1]
    total = 0
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 100:
                total += stack.pop()
    return total


def large_ints(a: Array) -> Any:
    stack, n = [1], 0
    while stack:
        k = stack.pop()
        n += 1
        if k < 10**15:
            stack.append(k * int(a[n % a.shape[0], 0] + 2))
    return n, k


def returned(a: Array) -> Any:
    stack = [(1, 2)]
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 100:
                stack.append((y, x))
            elif len(stack) > 2:
                stack.pop()
    return stack


def of_two_kinds(a: Array) -> Any:
    stack: list[Any] = [1]
    n = 0
    while stack and n < 50:
        n += int(stack.pop())
        stack.append(1 if a[n % 7, 0] > 100 else 1.5)
        stack.append(2.5)
    return n


def left_of_a_row(a: Array, y: int) -> Any:
    stack = [0]
    for x in range(a.shape[1]):
        if a[y, x] > 100:
            stack.append(x)
        elif len(stack) > 1:
            stack.pop()
    return stack


def two_at_once(a: Array) -> int:
    n = 0
    for y in range(1, a.shape[0]):
        s, t = left_of_a_row(a, y), left_of_a_row(a, y - 1)
        n += len(s) * 1000 + s[-1] * 7 + t[-1]
    return n


@pytest.mark.parametrize("f", [too_many, large_ints, returned, of_two_kinds, two_at_once], ids=lambda f: f.__name__)
def test_what_arrays_cannot_hold_stays_a_list(f: Callable[..., Any]) -> None:
    pipe = hjit.pipeline(f, on_unsupported="break")
    for shape in ((20, 13), (20, 13)):
        assert identical(pipe(image(*shape)), f(image(*shape)))


def test_an_empty_list_raises_as_python_does() -> None:
    pipe = hjit.pipeline(too_few, on_unsupported="break")
    with pytest.raises(IndexError, match="pop from empty list"):
        pipe(np.full((9, 8), 200, np.uint8))
    low = np.zeros((9, 8), np.uint8)
    low[4, 5] = 200
    assert pipe(low) == too_few(low)
    with pytest.raises(IndexError, match="pop from empty list"):
        pipe(np.full((9, 8), 200, np.uint8))


def matched(a: Array) -> Any:
    out = np.zeros(a.shape, int)
    stack = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 128:
                stack.append(x)
            elif stack:
                out[y, x] = stack.pop()
    return out, len(stack)


def test_a_stack_that_is_left_to_python_is_no_list_that_a_loop_only_fills() -> None:
    pipe = hjit.pipeline(matched, on_unsupported="break", verify="off")
    for seed in (0, 1):
        a = np.random.default_rng(seed).integers(0, 256, (20, 23)).astype(np.uint8)
        ours, theirs = pipe(a), matched(a)
        assert np.array_equal(ours[0], theirs[0]) and ours[1] == theirs[1]
