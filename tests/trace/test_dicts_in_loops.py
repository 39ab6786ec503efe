"""Dicts and sets that loops fill or ask: counts, labels, colours, visited pixels, boxes, tables."""

from __future__ import annotations

import collections
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from tests.trace.test_carried_variables import compiled

Array = np.ndarray[Any, Any]
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))


def alike(ours: Any, theirs: Any) -> bool:
    """Are two results of the same types, in the same order, and bit for bit the same?"""
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, dict):
        is_same = getattr(ours, "default_factory", None) is getattr(theirs, "default_factory", None)
        return is_same and alike([*ours.items()], [*theirs.items()])
    if isinstance(theirs, (tuple, list, set)):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(theirs, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs) and ours.strides == theirs.strides
    return bool(ours == theirs) or (ours != ours and theirs != theirs)


def image(*shape: int, most: int = 256) -> Array:
    return np.random.default_rng(shape).integers(0, most, shape).astype(np.uint8)


# -- dicts and sets that loops fill


def counted(a: Array) -> Any:
    sizes = {}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            k = int(a[y, x])
            sizes[k] = sizes.get(k, 0) + 1
    return sizes


def counted_by_numpy_ints(a: Array) -> Any:
    sizes = {}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            k = a[y, x]
            if k in sizes:
                sizes[k] += 1
            else:
                sizes[k] = 1
    return sizes, len(sizes)


def counted_by_default(a: Array) -> Any:
    d, c = defaultdict(int), collections.Counter()
    for row in a:
        for v in row:
            d[int(v)] += 1
            c[v // 16] += 2
    return d, c


def counted_in_a_full_dict(a: Array) -> Any:
    d, e = dict.fromkeys(range(256), 0), dict.fromkeys(range(0, 256, 2), 0.0)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            k = int(a[y, x])
            d[k] += 1
            if k not in e:
                e[k] = 1.5
            e[k] += 0.5
    return d, e


def visited(a: Array) -> Any:
    h, w = a.shape
    seen = {(h // 2, w // 2)}
    stack = [(h // 2, w // 2)]
    while stack:
        y, x = stack.pop()
        for dy, dx in STEPS:
            ny, nx = y + dy, x + dx
            if 0 <= ny < h and 0 <= nx < w and (ny, nx) not in seen and a[ny, nx] < 200:
                seen.add((ny, nx))
                stack.append((ny, nx))
    return seen


def distances(a: Array) -> Any:
    h, w = a.shape
    distance = {(0, 0): 0}
    queue = deque([(0, 0)])
    while queue:
        y, x = queue.popleft()
        for dy, dx in STEPS:
            ny, nx = y + dy, x + dx
            if 0 <= ny < h and 0 <= nx < w and a[ny, nx] < 200 and (ny, nx) not in distance:
                distance[ny, nx] = distance[(y, x)] + 1
                queue.append((ny, nx))
    return distance


def colours(a: Array) -> Any:
    rgb = np.stack([a, a[::-1], a[:, ::-1]], -1) // 64
    seen, numbers = set(), {}
    out = np.zeros(a.shape, np.int32)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            seen.add(tuple(rgb[y, x]))
            key = (int(rgb[y, x, 0]), int(rgb[y, x, 1]), x % 3)
            if key not in numbers:
                numbers[key] = len(numbers)
            out[y, x] = numbers[key]
    return out, seen, len(seen)


def relabelled(a: Array) -> Any:
    out = np.zeros(a.shape, np.int32)
    remap = {0: 0}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            root = int(a[y, x]) * 1_000_003 - 17 * (a[y, x] > 100)
            if root not in remap:
                remap[root] = len(remap) + 1
            out[y, x] = remap[root]
    return out, remap


def keys_of_two_kinds(a: Array) -> Any:
    ids = {3: 0, 5: 1}
    out = np.zeros(a.shape, np.int32)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = ids.setdefault(a[y, x] // 8, len(ids))
            ids[x] = ids.get(x, 0) + 1
    return out, ids


def found(parent: Any, k: Any) -> Any:
    while parent[k] != k:
        k = parent[k]
    return k


def joined(a: Array) -> Any:
    labels, parent = np.zeros(a.shape, np.int32), {}
    count = 1
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] < 110:
                continue
            up = int(labels[y - 1, x]) if y > 0 else 0
            left = int(labels[y, x - 1]) if x > 0 else 0
            if up == 0 and left == 0:
                parent[count] = count
                labels[y, x] = count
                count += 1
            elif up and left:
                p, q = found(parent, up), found(parent, left)
                parent[max(p, q)] = min(p, q)
                labels[y, x] = min(p, q)
            else:
                labels[y, x] = up + left
    return labels, parent


def boxes(a: Array) -> Any:
    box, sums = {}, {}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            v = int(a[y, x]) // 8
            if v in box:
                y0, x0, y1, x1 = box[v]
                box[v] = (min(y0, y), min(x0, x), max(y1, y), max(x1, x))
            else:
                box[v] = (y, x, y, x)
            sy, total, n = sums.get(a[y, x], (0, 0.0, 0))
            sums[a[y, x]] = (sy + y, total + float(a[y, x]) * 0.1, n + 1)
    return box, sums


def summed(a: Array) -> Any:
    fine = a * 0.3
    sums, totals, floats = {}, defaultdict(float), defaultdict(float)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            sums[a[y, x] // 8] = sums.get(a[y, x] // 8, 0) + fine[y, x]
            totals[int(a[y, x]) % 7, y % 2] += fine[y, x]
            floats[x] += float(a[y, x])
    return sums, totals, floats


def modes(a: Array) -> Any:
    out = np.zeros_like(a)
    for y in range(1, a.shape[0] - 1):
        for x in range(1, a.shape[1] - 1):
            counts, best = {}, 0
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    v = a[y + dy, x + dx] // 64
                    counts[v] = counts.get(v, 0) + 1
                    if counts[v] > best:
                        best = counts[v]
                        out[y, x] = v
    return out


def first_twice(a: Array) -> Any:
    seen = set()
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            v = int(a[y, x])
            if v in seen:
                return y, x, v
            seen.add(v)
    return None


def with_numbers_of_the_call(a: Array, start: int = 5, step: int = 2) -> Any:
    h, w = a.shape
    d, s = {start: step, w: h}, set([(h // 2, w)])  # noqa: C405
    for y in range(h):
        for x in range(w):
            k = int(a[y, x])
            if k not in d:
                d[k] = step
            d[start] += x
            if (y, x) not in s:
                s.add((x, y))
            d[w] = y
    return d, s


FILLED = (
    counted,
    counted_by_numpy_ints,
    counted_by_default,
    counted_in_a_full_dict,
    visited,
    distances,
    colours,
    relabelled,
    keys_of_two_kinds,
    joined,
    boxes,
    summed,
    modes,
    first_twice,
    with_numbers_of_the_call,
)


@pytest.mark.parametrize("f", FILLED, ids=lambda f: f.__name__)
def test_loops_that_fill_dicts_and_sets(f: Callable[..., Any]) -> None:
    pipe = compiled(f)
    for a in (image(40, 33), image(40, 33, most=9), image(37, 41), np.zeros((25, 20), np.uint8)):
        assert alike(pipe(a), f(a))
    assert pipe.stats.fallbacks == 0


# -- those that loops only read

DENSE = {k: 255 - k for k in range(256)}
SPARSE = {-5: 0.5, 3_000_000: 1.5, 77: -0.0, 10**12: 2.5}
PAIRS = {(0, 0): 1, (1, 2): 5, (200, 3): 7, (2, 1): 11}
NUMPYS = {np.uint8(3): np.float32(2.5), np.uint8(7): np.float32(3.5)}
NAMED = {1: "a", 2: "b"}
EDGES = {3, 7, 900}
THIRDS = frozenset(range(0, 256, 3))
COUNTS = Counter({3: 4, 5: 6})


def by_dense(a: Array) -> Any:
    out = np.zeros(a.shape, np.int64)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = DENSE[a[y, x]]
    return out


def by_sparse(a: Array) -> Any:
    out, lut = np.zeros(a.shape), {0: 10, 1: 20}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = SPARSE.get(int(a[y, x]) * 1_000_000, 0.25) + lut.get(a[y, x], -1)
            if int(a[y, x]) - 10 in SPARSE:
                out[y, x] += 1
    return out


def by_pairs(a: Array) -> Any:
    out, n = np.zeros(a.shape), 0
    for y in range(a.shape[0]):
        for x in range(1, a.shape[1]):
            out[y, x] = PAIRS.get((a[y, x], int(a[y, x - 1])), 9)
            n += COUNTS[a[y, x]]
    return out, n


def by_sets(a: Array) -> Any:
    out, last = np.zeros(a.shape, bool), np.float32(0)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] in EDGES or a[y, x] in THIRDS or int(a[y, x]) in NAMED:
                out[y, x] = True
            if a[y, x] in NUMPYS:
                last = NUMPYS[a[y, x]]
    return out, last


def by_lists(a: Array) -> Any:
    some, out, n = [3, 5, 7], np.zeros(a.shape, np.int64), 0
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = some[x % 3]
            if a[y, x] in some or a[y, x] in (1, 9):
                n += 1
    return out, n


def by_what_a_loop_filled(a: Array) -> Any:
    lut, out = {}, np.zeros(a.shape, np.int64)
    for k in range(256):
        lut[k] = k ^ 3
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = lut[a[y, x]]
    return out


READ = (by_dense, by_sparse, by_pairs, by_sets, by_lists, by_what_a_loop_filled)


@pytest.mark.parametrize("f", READ, ids=lambda f: f.__name__)
def test_loops_that_read_dicts_and_sets(f: Callable[..., Any]) -> None:
    pipe = compiled(f)
    for a in (image(40, 33), image(40, 33, most=9), image(37, 41).astype(np.int32)):
        assert alike(pipe(a), f(a))
    assert pipe.stats.fallbacks == 0


def test_a_table_that_the_caller_changes_is_read_again() -> None:
    table = {0: 1, 1: 2}

    def f(a: Array) -> Any:
        total = 0
        for y in range(a.shape[0]):
            for x in range(a.shape[1]):
                total += table.get(a[y, x], 0)
        return total

    pipe = compiled(f)
    a = image(30, 20, most=4)
    assert pipe(a) == f(a)
    table[1] = 5
    assert pipe(a) == f(a)
    table[2] = 7
    assert pipe(a) == f(a)
    del table[0]
    assert pipe(a) == f(a)


# -- what Python does


def used_afterwards(a: Array) -> Any:
    sizes = {}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            k = int(a[y, x])
            sizes[k] = sizes.get(k, 0) + 1
    best = max(sizes, key=sizes.get)
    total = 0
    for k, n in sizes.items():
        total += k * n
    return best, total, sorted(sizes.items())[:3], [*sizes.values()]


def sorted_afterwards(a: Array) -> Any:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 200:
                found.append((int(a[y, x]), x))
    return sorted(found)[:3]


@pytest.mark.parametrize("f", [used_afterwards, sorted_afterwards], ids=lambda f: f.__name__)
def test_what_python_uses_afterwards_is_filled_by_a_compiled_loop(f: Callable[..., Any]) -> None:
    pipe = compiled(f, on_unsupported="break")
    for a in (image(70, 63), image(70, 63), image(71, 63)):
        assert alike(pipe(a), f(a))
    lines = str(pipe.explain(image(70, 63))).splitlines()
    assert not any("for y in" in line for line in lines)


def missing(a: Array) -> Any:
    d, total = {300: 1}, 0
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 9:
                total += d[int(a[y, x])]
            d[int(a[y, x])] = 1
    return total


def missing_of_a_table(a: Array) -> Any:
    out = np.zeros(a.shape, np.int64)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = PAIRS[a[y, x], 2] if a[y, x] > 9 else 0
            out[y, x] += SPARSE[77] + COUNTS[a[y, x]]
            if a[y, x] > 100:
                out[y, x] = NUMPYS[a[y, x]]
    return out


@pytest.mark.parametrize("f", [missing, missing_of_a_table], ids=lambda f: f.__name__)
def test_a_missing_key_raises_as_python_does(f: Callable[..., Any]) -> None:
    pipe = compiled(f, on_unsupported="break")
    low, high = image(20, 23, most=9), image(20, 23)
    for a in (low, high, low, high):
        try:
            expected = f(a)
        except KeyError as error:
            with pytest.raises(KeyError) as caught:
                pipe(a)
            assert alike(caught.value.args, error.args)
        else:
            assert alike(pipe(a), expected)


def too_many(a: Array) -> Any:
    d = {}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            for k in range(30):
                d[y, x, k] = k
    return d


def of_two_kinds(a: Array) -> Any:
    d = {}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            d[int(a[y, x])] = 1 if a[y, x] > 100 else 1.5
    return d


def of_two_kinds_by_default(a: Array) -> Any:
    d = defaultdict(int)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 100:
                d[int(a[y, x]) % 50] += 1
            else:
                d[int(a[y, x]) % 50] += np.int64(a[y, x])
    return d


def removed(a: Array) -> Any:
    s = set()
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            s.add(int(a[y, x]))
            if x % 3 == 0:
                s.discard(int(a[y, 0]))
    return s


def of_lists(a: Array) -> Any:
    d = {}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            d.setdefault(int(a[y, x]), []).append(x)
    return d


def large_ints(a: Array) -> Any:
    d = {0: 1}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            d[0] = d[0] * 3 + int(a[y, x])
            d[int(a[y, x]) + (1 << 70)] = x
    return d


def of_floats(a: Array) -> Any:
    d = {}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            d[float(a[y, x]) / 2] = x
    return d


def histogram(a: Array, y: int) -> Any:
    d = {}
    for x in range(a.shape[1]):
        k = int(a[y, x]) // 16
        d[k] = d.get(k, 0) + 1
    return d


def two_at_once(a: Array) -> Any:
    total = 0
    for y in range(1, a.shape[0]):
        h, g = histogram(a, y), histogram(a, y - 1)
        for k in range(16):
            if k in h and k in g:
                total += h[k] * 100 + g[k]
    return total


def of_one_that_was_before(a: Array, d: Any = None) -> Any:
    given: dict[int, int] = {} if d is None else d
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            given[int(a[y, x])] = x
    return dict(given)


OTHERS = (
    too_many,
    of_two_kinds,
    of_two_kinds_by_default,
    removed,
    of_lists,
    large_ints,
    of_floats,
    two_at_once,
    of_one_that_was_before,
)


@pytest.mark.parametrize("f", OTHERS, ids=lambda f: f.__name__)
def test_what_arrays_cannot_hold_stays_a_dict(f: Callable[..., Any]) -> None:
    pipe = hjit.pipeline(f, on_unsupported="break", verify="off").quiet()
    for a in (image(20, 13), image(20, 13), image(50, 33)):
        assert alike(pipe(a), f(a))


def test_the_dict_of_the_caller_is_filled() -> None:
    pipe = hjit.pipeline(of_one_that_was_before, on_unsupported="break", verify="off").quiet()
    ours: dict[int, int] = {7: -1}
    theirs: dict[int, int] = {7: -1}
    for seed in (20, 21):
        pipe(image(seed, 13), ours)
        of_one_that_was_before(image(seed, 13), theirs)
    assert alike(ours, theirs)
