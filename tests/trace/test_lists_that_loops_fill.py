"""``found.append(x)`` in loops over pixels: how many items there are depends on the image's values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.errors import HjitError
from tests.trace.nesting import with_source
from tests.trace.test_carried_variables import compiled, outcome

Array = np.ndarray[Any, Any]


def image(*shape: int) -> Array:
    return np.random.default_rng(shape).integers(0, 256, shape).astype(np.uint8)


def identical(ours: Any, theirs: Any) -> bool:
    """Are two results of the same types, and bit for bit the same?"""
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(identical(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, (tuple, list)):
        return len(ours) == len(theirs) and all(map(identical, ours, theirs))
    if isinstance(theirs, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs) and ours.strides == theirs.strides
    return bool(ours == theirs)


def tuples(a: Array) -> list[Any]:
    found = []
    for y in range(1, a.shape[0] - 1):
        for x in range(1, a.shape[1] - 1):
            if a[y, x] > 200 and a[y, x] == a[y - 1 : y + 2, x - 1 : x + 2].max():
                found.append((x, y, a[y, x], float(a[y, x]) / 2, a[y, x] > 240))
    return found


def lists(a: Array) -> Any:
    found = list()  # noqa: C408
    for y, row in enumerate(a):
        for x, v in enumerate(row):
            if v > 220:
                found.append([y, x])
    return {"found": found, "count": len(found)}


def numbers(a: Array) -> list[Any]:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] % 5 == 0:
                found.append(a[y, x])
    return found


def python_numbers(a: Array) -> list[Any]:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] % 5 == 0:
                found.append(int(a[y, x]) - 100)
    return found


def on_two_sides(a: Array) -> list[Any]:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 220:
                found.append((y, x, 1))
            elif a[y, x] < 30:
                found.append((y, x, 0))
    return found


def in_the_outer_loop(a: Array) -> list[Any]:
    found = []
    for y in range(a.shape[0] - 1, -1, -1):
        n = 0
        for x in range(a.shape[1]):
            if a[y, x] > 150:
                n += 1
        if n > 8:
            found.append((y, n))
    return found


def first_of_each_row(a: Array) -> list[Any]:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 200:
                found.append(x)
                break
    return found


def below_the_diagonal(a: Array) -> list[Any]:
    found = []
    for y in range(a.shape[0]):
        for x in range(y, a.shape[1]):
            if a[y, x] > 200:
                found.append((y, x))
    return found


def all_below_the_diagonal(a: Array) -> Any:
    found = []
    for y in range(a.shape[0]):
        for x in range(y, a.shape[1]):
            found.append(a[y, x])
    return np.array(found), len(found)


def of_blocks(a: Array, n: int = 3) -> list[Any]:
    found = []
    for y in range(0, a.shape[0] - n, n):
        for x in range(0, a.shape[1] - n, n):
            b = a[y : y + n, x : x + n]
            if b.max() - b.min() > 200:
                found.append((y, x, b.max()))
    return found


def arrays(a: Array) -> Any:
    ys, xs = [], []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 240:
                ys.append(y)
                xs.append(x)
    return np.array(ys), np.asarray(xs, np.float32), len(ys)


def array_of_tuples(a: Array) -> Any:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 240:
                found.append((y, x, a[y, x] / 2))
    return np.array(found)


def reduced(a: Array) -> Any:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 100:
                found.append(a[y, x])
    if not found:
        return 0
    return np.max(found), np.sum(found)


def of_all_pixels(a: Array) -> Any:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            found.append(a[y, x] // 2)
    return np.array(found).reshape(a.shape), isinstance(found, list), len(found)


def by_a_comprehension(a: Array) -> Any:
    h, w = a.shape
    places = [(y, x, a[y, x]) for y in range(h) for x in range(w) if a[y, x] > 200]
    return places, [int(a[y, 3]) for y in range(1, h) if a[y, 3] > a[y - 1, 3]]


def items_of_each_row(a: Array) -> Any:
    found = []
    for y in range(20):
        found.append(a[y].max())
    return sum(found[:3]) + found[-1]


LOOPS: list[Callable[..., Any]] = [
    tuples, lists, numbers, python_numbers, on_two_sides, in_the_outer_loop, first_of_each_row, below_the_diagonal,
    all_below_the_diagonal, of_blocks, arrays, array_of_tuples, reduced, of_all_pixels, by_a_comprehension, items_of_each_row,
]  # fmt: skip


@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_loops_that_fill_lists_are_compiled(f: Callable[..., Any]) -> None:
    p = compiled(f, on_unsupported="raise")
    for a in (image(40, 47), image(31, 64), np.zeros((40, 47), np.uint8), np.full((40, 47), 255, np.uint8)):
        for _ in range(2):
            assert identical(outcome(p, a), outcome(f, a))
    assert p.stats.fallbacks == 0


def looped_over(a: Array) -> Array:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 240:
                found.append((y, x))
    out = a.copy()
    for y, x in found:
        out[y, x] = 0
    return out


def sorted_then(a: Array) -> Any:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 240:
                found.append((a[y, x], y, x))
    found.sort(reverse=True)
    return found[:3], found[-1]


def changes_kind(a: Array) -> Any:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 240:
                found.append(y)
            elif a[y, x] > 200:
                found.append(0.5)
    return found


def twice(a: Array) -> Any:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 240:
                found.append(y)
                found.append(x)
    return found


def read_inside(a: Array) -> Any:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 240 and len(found) < 5:
                found.append((y, x))
    return found


def has_another_name(a: Array) -> Any:
    found = []
    same = {"same": found}
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 240:
                found.append((y, x))
    return same


def of_arrays(a: Array) -> Any:
    found = []
    for y in range(a.shape[0]):
        if a[y, 0] > 100:
            found.append(a[y])
    return found


def decided_by_roundings(a: Array) -> Any:
    found = []
    for y in range(1, a.shape[0] - 1):
        for x in range(1, a.shape[1] - 1):
            if np.std(a[y - 1 : y + 2, x - 1 : x + 2]) > 90:
                found.append((y, x))
    return found


OTHERS = [
    looped_over, sorted_then, changes_kind, twice, read_inside, has_another_name, of_arrays, decided_by_roundings
]  # fmt: skip


@pytest.mark.parametrize("f", OTHERS, ids=lambda f: f.__name__)
def test_where_items_are_needed_or_are_of_another_sort_results_are_pythons(f: Callable[..., Any]) -> None:
    p = compiled(f, on_unsupported="break")
    for a in (image(20, 23), image(31, 24)):
        for _ in range(2):
            assert identical(outcome(p, a), outcome(f, a))


@pytest.mark.parametrize("f", [looped_over, sorted_then], ids=lambda f: f.__name__)
def test_what_fills_a_list_is_compiled_where_python_goes_over_it(f: Callable[..., Any]) -> None:
    p, a = compiled(f, on_unsupported="break"), image(40, 47)
    assert identical(outcome(p, a), outcome(f, a))
    assert p.stats.parts > 0


def test_the_list_is_a_new_one_at_each_call() -> None:
    p, a = compiled(tuples), image(40, 47)
    first, second = p(a), p(a)
    assert first == second and first is not second and type(first) is list and type(first[0]) is tuple


def test_such_results_are_not_exported(tmp_path: Path) -> None:
    p, a = hjit.pipeline(numbers), image(40, 47)
    with pytest.raises(HjitError, match="length of a result depends"):
        p.export(tmp_path / "numbers.so", a)


SOURCE = """
def f(a):
    found = []
    for y in range({y}, a.shape[0]{ends}):
        for x in range({x}, a.shape[1]):
            v = int(a[y, x]) {op} {n}
            if v {compare} {m}{more}:
                found.append({item})
    return found, {after}
"""


@pytest.mark.parametrize("seed", range(12))
def test_random_items(seed: int) -> None:
    r = np.random.default_rng(seed)

    def pick(x: list[str]) -> str:
        return x[r.integers(len(x))]

    numbers = [pick(["y", "x", "v", "a[y, x]", "a[y - 1, x]", "v / 3", "v > 7", "a[y, x] * 2", "1"]) for _ in range(3)]
    item = pick([numbers[0], f"({', '.join(numbers)})", f"[{', '.join(numbers[:2])}]"])
    source = SOURCE.format(
        y=r.integers(1, 3), x=r.integers(0, 3), ends=pick(["", " - 1"]), op=pick(["*", "+", "%"]), n=r.integers(2, 9),
        compare=pick(["<", ">", "=="]), m=r.integers(1, 300), more=pick(["", " and a[y, x] > a[y - 1, x]"]), item=item,
        after=pick(["0", "len(found)", "np.array(found)", "bool(found)", "np.sum(found)"]),
    )  # fmt: skip
    f = with_source(source, f"<list {seed}>")
    p = compiled(f, on_unsupported="break")
    for shape in ((20, 23), (9, 41)):
        a = image(*shape)
        assert identical(outcome(p, a), outcome(f, a)), source


def runs(a: Array) -> Any:
    row = a.ravel() > 128
    lengths, count = [], 1
    for k in range(1, len(row)):
        if row[k] == row[k - 1]:
            count += 1
        else:
            lengths.append(count)
            count = 1
    lengths.append(count)
    return lengths, len(lengths)


def pairs_of_runs(a: Array) -> Any:
    flat = a.ravel() // 64
    found = []
    before, n = flat[0], 1
    for v in flat[1:]:
        if v == before:
            n += 1
        else:
            found.append((before, n))
            before, n = v, 1
    found.append((before, n))
    return np.array(found)


def middle(a: Array) -> Any:
    values = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            values.append(int(a[y, x]))
    values.sort()
    return values[len(values) // 2], values[-1]


@pytest.mark.parametrize("f", [runs, pairs_of_runs, middle], ids=lambda f: f.__name__)
def test_lists_are_appended_to_and_sorted_after_the_loop(f: Callable[..., Any]) -> None:
    pipe = compiled(f)
    for shape in ((40, 33), (40, 33), (17, 21)):
        assert identical(pipe(image(*shape)), f(image(*shape)))
    assert pipe.stats.fallbacks == 0
