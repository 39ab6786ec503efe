"""Lists of numbers that loops index by what they compute: histograms, tables, sums of columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.capture.loops.rewriting.exits import code_of
from tests.trace.test_carried_variables import compiled
from tests.trace.test_lists_that_loops_fill import identical

Array = np.ndarray[Any, Any]
CODES = [3 * k % 256 for k in range(256)]
WEIGHTS = [[1, 2, 1], [2, 4, 2], [1, 2, 1]]


def image(*shape: int) -> Array:
    return np.random.default_rng(shape).integers(0, 256, shape).astype(np.uint8)


def histogram(a: Array) -> list[int]:
    hist = [0] * 256
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            hist[a[y, x]] += 1
    return hist


def histogram_of_rows(a: Array) -> Any:
    hist = [0] * 256
    for row in a:
        for v in row:
            hist[v] += 1
    best = hist.index(max(hist))
    return np.array(hist), best, sum(hist), min(hist), len(hist), hist.count(0), hist[best]


def equalised(a: Array) -> Array:
    h, w = a.shape
    hist = [0] * 256
    for y in range(h):
        for x in range(w):
            hist[a[y, x]] += 1
    cumulated, total = [0] * 256, 0
    for i in range(256):
        total += hist[i]
        cumulated[i] = total
    table = [round(255 * c / (h * w)) for c in cumulated]
    out = np.zeros_like(a)
    for y in range(h):
        for x in range(w):
            out[y, x] = table[a[y, x]]
    return out


def gamma(a: Array, g: float = 2.2) -> Array:
    table = [int(255 * (i / 255) ** (1 / g)) for i in range(256)]
    out = np.empty_like(a)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = table[a[y, x]]
    return out


def globals_and_parameters(a: Array, shifts: Any = (5, 6)) -> Array:
    out = np.zeros(a.shape, int)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = CODES[a[y, x]] + shifts[a[y, x] % 2]
    return out


def lists_of_lists(a: Array) -> Array:
    out = np.zeros(a.shape, int)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = WEIGHTS[a[y, x] % 3][x % 3]
    return out


def visits(a: Array) -> Any:
    h, w = a.shape
    seen = [[False] * w for _ in range(h)]
    n = 0
    for y in range(h):
        for x in range(w):
            other = (int(a[y, x]) * 7) % w
            if not seen[y][other]:
                seen[y][other] = True
                n += 1
    return n


def columns(a: Array) -> list[int]:
    sums = [0] * a.shape[1]
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            sums[x] += int(a[y, x])
    return sums


def shares(a: Array) -> list[float]:
    found = [0.0] * 64
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            found[a[y, x] >> 2] += 1.0 / a.size
    return found


def from_behind(a: Array) -> list[int]:
    last = [-1] * 8
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            last[-1 - int(a[y, x]) // 32] = y * 1000 + x
    return last


def each_row_its_own(a: Array) -> Array:
    modes = np.zeros(a.shape[0], int)
    for y in range(a.shape[0]):
        hist = [0] * 16
        for x in range(a.shape[1]):
            hist[a[y, x] // 16] += 1
        best = 0
        for k in range(16):
            if hist[k] > hist[best]:
                best = k
        modes[y] = best
    return modes


def otsu(a: Array) -> Any:
    hist = [0] * 256
    h, w = a.shape
    for y in range(h):
        for x in range(w):
            hist[a[y, x]] += 1
    every = sum(i * hist[i] for i in range(256))
    shares = [n / (h * w) for n in hist]
    below, weight, best, at = 0.0, 0, -1.0, 0
    for i in range(256):
        weight += hist[i]
        if weight == 0:
            continue
        if weight == h * w:
            break
        below += i * hist[i]
        means = below / weight, (every - below) / (h * w - weight)
        between = weight * (h * w - weight) * (means[0] - means[1]) ** 2
        if between > best:
            best, at = between, i
    return at, hist, every, max(shares), sum(shares)


FUNCTIONS = (
    otsu,
    histogram,
    histogram_of_rows,
    equalised,
    gamma,
    globals_and_parameters,
    lists_of_lists,
    visits,
    columns,
    shares,
    from_behind,
    each_row_its_own,
)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_lists_of_numbers_are_indexed_by_what_is_computed(f: Callable[..., Any]) -> None:
    pipe = compiled(f)
    for shape in ((40, 33), (40, 33), (37, 41)):
        assert identical(pipe(image(*shape)), f(image(*shape)))
    assert pipe.stats.fallbacks == 0


def written_under_another_name(a: Array) -> Any:
    hist = [0] * 256
    other = hist
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            hist[a[y, x]] += 1
    return other


def of_numpys_numbers(a: Array) -> Any:
    last = [0] * 16
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            last[a[y, x] // 16] = a[y, x]
    return last


def of_two_types(a: Array) -> Any:
    sums = [0] * 16
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            sums[a[y, x] // 16] += 0.5
    return sums


def of_rows_that_are_one(a: Array) -> Any:
    rows = [[0] * 16] * 3
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            rows[y % 3][a[y, x] // 16] += 1
    return rows


def of_a_caller(a: Array, hist: list[int]) -> Any:
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            hist[a[y, x] // 16] += 1
    return len(hist)


def out_of_range(a: Array) -> Any:
    hist = [0] * 16
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            hist[a[y, x] // 15] += 1
    return hist


LEFT = (written_under_another_name, of_numpys_numbers, of_two_types, of_rows_that_are_one)


@pytest.mark.parametrize("f", LEFT, ids=lambda f: f.__name__)
def test_lists_that_are_no_arrays_stay_lists(f: Callable[..., Any]) -> None:
    pipe = hjit.pipeline(f, on_unsupported="break")
    for shape in ((20, 13), (20, 13)):
        assert identical(pipe(image(*shape)), f(image(*shape)))


def test_a_list_of_the_caller_is_changed() -> None:
    pipe = hjit.pipeline(of_a_caller, on_unsupported="break")
    for _ in range(2):
        ours, theirs = [1] * 16, [1] * 16
        assert pipe(image(20, 13), ours) == of_a_caller(image(20, 13), theirs)
        assert ours == theirs


def test_an_index_out_of_range_raises_as_a_list_does() -> None:
    pipe = hjit.pipeline(out_of_range, on_unsupported="break")
    low = np.minimum(image(20, 13), 200)
    assert identical(pipe(low), out_of_range(low))
    high = low.copy()
    high[3, 4] = 255
    with pytest.raises(IndexError, match="list index out of range"):
        pipe(high)
    assert identical(pipe(low), out_of_range(low))


def products(a: Array) -> Any:
    found = [1] * 4
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            found[y % 4] *= int(a[y, x])
    return found


def test_large_ints_are_pythons() -> None:
    pipe = hjit.pipeline(products, on_unsupported="break")
    small, large = np.ones((8, 9), np.uint8), image(16, 9) | 1
    for a in (small, large, small):
        assert identical(pipe(a), products(a))


def test_functions_without_such_lists_are_as_they_were() -> None:
    def f(a: Array, kernel: Array) -> Array:
        out = np.zeros_like(a)
        for y in range(1, a.shape[0] - 1):
            for x in range(1, a.shape[1] - 1):
                out[y, x] = a[y, x] * kernel[1, 1] + a[y][x]
        return out

    assert code_of(f) is f.__code__


def swaps(a: Array) -> list[int]:
    found = list(range(32))
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            i, j = a[y, x] % 32, a[y, x] // 8
            before = found[i]
            found[i] = found[j]
            found[j] = before
    return found


def test_an_item_that_was_read_stays_what_it_was() -> None:
    pipe = compiled(swaps)
    for shape in ((20, 13), (21, 14)):
        assert identical(pipe(image(*shape)), swaps(image(*shape)))


def negative(a: Array) -> Array:
    data = a.tolist()
    h, w = len(data), len(data[0])
    out = [[0] * w for _ in range(h)]
    for y in range(h):
        for x in range(w):
            out[y][x] = 255 - data[y][x]
    return np.array(out, dtype=np.uint8)


def smoothed(a: Array) -> Any:
    profile = (a / 3).mean(axis=0).tolist()
    out = profile.copy()
    for k in range(1, len(profile) - 1):
        out[k] = (profile[k - 1] + profile[k] + profile[k + 1]) / 3
    return np.array(out), max(profile), len(out)


def plain(a: Array) -> Any:
    return a.tolist(), a[0].tolist()


@pytest.mark.parametrize("f", [negative, smoothed], ids=lambda f: f.__name__)
def test_arrays_as_lists(f: Callable[..., Any]) -> None:
    pipe = compiled(f)
    for shape in ((40, 133), (40, 133), (37, 141)):
        ours, theirs = pipe(image(*shape)), f(image(*shape))
        assert identical(ours, theirs) or np.allclose(ours[0], theirs[0], rtol=1e-14)
    assert pipe.stats.fallbacks == 0


@pytest.mark.parametrize("dtype", [np.uint64, np.int64])
def test_lists_of_large_numbers_are_pythons(dtype: Any) -> None:
    def f(a: Array) -> Any:
        data, total = a.tolist(), 0
        for k in range(len(data)):
            total += data[k]
        return total

    pipe = hjit.pipeline(f, on_unsupported="break")
    small = np.arange(200, dtype=dtype)
    large = small + dtype(2**62)
    for a in (small, large, small):
        assert identical(pipe(a), f(a))


def test_lists_of_many_numbers_that_are_returned() -> None:
    pipe = hjit.pipeline(plain, on_unsupported="break")
    for shape in ((30, 133), (30, 133)):
        assert identical(pipe(image(*shape)), plain(image(*shape)))


TABLE = [1, 2, 3, 4]


def changed_under_another_name(a: Array) -> Any:
    table = [1, 2, 3, 4]
    other = table
    out = np.zeros(a.shape, int)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            other[0] += 1
            out[y, x] = table[a[y, x] % 4]
    return out, table


def sorted_between_rows(a: Array) -> Any:
    table = [5, 3, 1, 4]
    out = np.zeros(a.shape, int)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = table[a[y, x] % 4]
        table.sort()
    return out, table


def add_one(table: list[int]) -> None:
    table[0] += 1


def changed_by_a_helper(a: Array) -> Any:
    table = [1, 2, 3, 4]
    out = np.zeros(a.shape, int)
    for y in range(a.shape[0]):
        add_one(table)
        for x in range(a.shape[1]):
            out[y, x] = table[a[y, x] % 4]
    return out, table


def rows_that_are_written(a: Array) -> Any:
    table = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            row = table[a[y, x] % 3]
            row[x % 3] += 1
    return table


def rows_with_names(a: Array) -> Any:
    first, second = [0] * 4, [0] * 4
    rows = [first, second]
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            rows[y % 2][a[y, x] // 64] += 1
    return first, second


def named_after_an_inner_loop(a: Array) -> Any:
    hist, kept = [0] * 4, [0] * 4
    other = kept
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            hist[a[y, x] // 64] += 1
        hist = other
    return hist, kept


def count(hist: list[int], a: Array) -> list[int]:
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            hist[a[y, x] // 64] += 1
    return hist


def counted_by_a_helper(a: Array) -> Any:
    hist = [0] * 4
    other = count(hist, a)
    other[0] += 1000
    return hist, other, hist is other


def as_text(a: Array) -> Any:
    hist = count([0] * 4, a)
    other = [0] * 4
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            other[a[y, x] // 64] += 1
    return f"{other}", str(hist), other.__class__ is list, isinstance(other, list)


def no_items(a: Array) -> Any:
    hist = [0] * 4
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            hist[a[y, x] // 64] += 1
    return hist[5:], hist[1:3]


def emptied(a: Array) -> Any:
    table = [1, 2, 3, 4]
    other = table
    out = np.zeros(a.shape, int)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if table:
                out[y, x] = table[a[y, x] % 4] + len(table[a[y, x] % 4 :])
        other.clear()
    return out, table


CHANGED = (
    emptied,
    changed_under_another_name,
    sorted_between_rows,
    changed_by_a_helper,
    rows_that_are_written,
    rows_with_names,
    named_after_an_inner_loop,
    counted_by_a_helper,
    as_text,
    no_items,
)


@pytest.mark.parametrize("f", CHANGED, ids=lambda f: f.__name__)
def test_lists_that_others_change_or_ask_for_are_lists(f: Callable[..., Any]) -> None:
    pipe = compiled(f, on_unsupported="break")
    for shape in ((20, 23), (20, 23), (5, 9)):
        assert identical(pipe(image(*shape)), f(image(*shape)))


def indexed_by_numpys_bools(a: Array) -> Any:
    counts = [0, 0]
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            counts[a[y, x] > 100] += 1
    return counts


def small_ints(a: Array) -> Any:
    hist = [0] * 4
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            hist[a[y, x] // 64] += 5
    return np.array(hist, np.uint8)


def small_ints_that_a_loop_appends(a: Array) -> Any:
    found = []
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            found.append(int(a[y, x]) * 2 + 1)
    return np.asarray(found, dtype="uint8")


def small_ints_of_floats(a: Array) -> Any:
    sums = [0.0] * 4
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            sums[a[y, x] // 64] += 5.25
    return np.array(sums, dtype=np.uint8)


@pytest.mark.parametrize(
    "f", (indexed_by_numpys_bools, small_ints, small_ints_of_floats, small_ints_that_a_loop_appends)
)
def test_what_lists_and_arrays_refuse_is_refused(f: Callable[..., Any]) -> None:
    pipe = compiled(f, on_unsupported="break")
    for _ in range(2):
        with pytest.raises((TypeError, OverflowError)) as theirs:
            f(image(20, 33))
        with pytest.raises(theirs.type, match=str(theirs.value)):
            pipe(image(20, 33))


@pytest.mark.parametrize("f", (small_ints, small_ints_of_floats, small_ints_that_a_loop_appends))
def test_ints_that_fit_an_arrays_dtype_are_compiled(f: Callable[..., Any]) -> None:
    a = image(5, 9) // 4
    pipe = compiled(f)
    assert identical(pipe(a), f(a))
    assert pipe.stats.fallbacks == 0
