"""Loops that are left, that run while something holds, or over ranges that move: NumPy's results, compiled whole."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from hjit.trace.capture.loops.rewriting.exits import code_of
from tests.trace.carrying import image, leaving_function
from tests.trace.helpers import interpreted
from tests.trace.nesting import Rows, Triangles, seeds, with_source
from tests.trace.test_carried_variables import DTYPES, check, compiled, definitions, identical, outcome

# -- break and return


def first_above(a: Any) -> Any:
    found = np.full(a.shape[0], -1)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 0.75:
                found[y] = x
                break
    return found


def where_it_stopped(a: Any) -> Any:
    at = np.zeros(a.shape[0], np.int64)
    for y in range(a.shape[0]):
        s = 0.0
        for x in range(a.shape[1]):
            s += a[y, x]
            if s > 4.0:
                break
        at[y] = x
    return at, x, s


def otherwise(a: Any) -> Any:
    out = np.zeros_like(a)
    for y in range(a.shape[0]):
        for x in range(1, a.shape[1]):
            if a[y, x] < a[y, x - 1] / 8:
                out[y, 0] = a[y, x]
                break
            if a[y, x] == 1:
                continue
            out[y, x] = a[y, x - 1]
        else:
            out[y, 0] = 3
    return out


def two_ends(a: Any) -> Any:
    count = 0
    last = a[0, 0]
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 0.95:
                last = a[y, x]
                break
            if a[y, x] < 0.05:
                count += 1
                break
            count += 2
    return count, last


def all_rows(a: Any) -> Any:
    """Left in the loop outside."""
    total = 0.0
    for y in range(a.shape[0]):
        row = 0.0
        for x in range(a.shape[1]):
            row += a[y, x]
        total += row
        if row > 16:
            break
    return total, y


def escaped(v: Any, c: Any) -> Any:
    z = 0.0
    for i in range(40):
        if z > 4.0:
            return i
        z = z * z + v + c
    return 40


def escapes(a: Any) -> Any:
    out = np.zeros(a.shape, np.int32)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = escaped(a[y, x] * 0.5, 0.1)
    return out


def nearest(a: Any, y: int, x: int) -> Any:
    for r in range(1, 6):
        for k in range(4):
            if a[(y + r) % a.shape[0], (x + k) % a.shape[1]] > 0.9:
                return r, k
    return 0, -1


def searches(a: Any) -> Any:
    out = np.zeros((*a.shape, 2), np.int64)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            r, k = nearest(a, y, x)
            out[y, x, 0] = r
            out[y, x, 1] = k
    return out


def maxima(a: Any) -> Any:
    out = np.zeros(a.shape, np.uint8)
    for y in range(2, a.shape[0] - 2):
        for x in range(2, a.shape[1] - 2):
            is_most = True
            for dy in range(-2, 3):
                for dx in range(-2, 3):
                    if a[y + dy, x + dx] > a[y, x]:
                        is_most = False
                        break
                if not is_most:
                    break
            if is_most:
                out[y, x] = 255
    return out


def roots(a: Any) -> Any:
    out = np.zeros(a.shape)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            v = a[y, x] + 1.0
            g = v
            for _ in range(30):
                n = 0.5 * (g + v / g)
                if abs(n - g) < 1e-12:
                    break
                g = n
            out[y, x] = g
    return out


# -- while


def levels(a: Any) -> Any:
    edges = np.linspace(0, 1, 20)
    out = np.zeros(a.shape, np.int64)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            low = 0
            high = len(edges)
            while low < high:
                middle = (low + high) // 2
                if edges[middle] <= a[y, x]:
                    low = middle + 1
                else:
                    high = middle
            out[y, x] = low
    return out


def iterations(a: Any) -> Any:
    most = 70
    out = np.zeros(a.shape, np.int32)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            z = c = a[y, x] * 0.5
            n = 0
            while z <= 4.0 and n < most:
                z = z * z + c
                n += 1
            out[y, x] = n
    return out


def halved(v: Any) -> Any:
    n = 0
    while True:
        v = v / 2
        n += 1
        if v < 0.01 or n > 50:
            return n


def halvings(a: Any) -> Any:
    out = np.zeros(a.shape, np.int32)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = halved(a[y, x] + 0.0)
    return out


# -- ranges that move


def below_the_diagonal(a: Any) -> Any:
    out = np.zeros_like(a)
    n = min(a.shape[0], a.shape[1])
    for y in range(n):
        for x in range(y + 1):
            out[y, x] = a[y, x] * 2
    return out


def pairs(a: Any) -> Any:
    count = 0
    least = np.inf
    row = a[0]
    for i in range(row.shape[0]):
        for j in range(i + 1, row.shape[0]):
            d = abs(row[i] * 1.0 - row[j])
            if d < least:
                least = d
                count += 1
    return count, least


def backwards(a: Any) -> Any:
    out = a.copy()
    for y in range(a.shape[0] - 1, -1, -1):
        for x in range(a.shape[1] - 1, 2, -1):
            out[y, x] = out[y, x - 1] + a[y, x]
    n = min(a.shape[0], a.shape[1])
    for y in range(n):
        for x in range(n - 1, y, -1):
            out[y, x] = out[y, x] + out[y, x - 1]
    return out


def nussinov(a: Any) -> Any:
    n = a.shape[1]
    table = np.zeros((n, n), np.int32)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            if j - 1 >= 0:
                table[i, j] = max(table[i, j], table[i, j - 1])
            if i + 1 < n:
                table[i, j] = max(table[i, j], table[i + 1, j])
            if j - 1 >= 0 and i + 1 < n:
                if i < j - 1:
                    match = 1 if a[0, i] > a[0, j] else 0
                    table[i, j] = max(table[i, j], table[i + 1, j - 1] + match)
                else:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])
    return table


def two_sweeps(a: Any) -> Any:
    """As alternating directions do: of two arrays, each from what the other has."""
    p, q = np.zeros(a.shape), np.zeros(a.shape)
    for x in range(1, a.shape[1]):
        p[1:-1, x] = 1 / (2 + p[1:-1, x - 1])
        q[1:-1, x] = (a[1:-1, x] + a[:-2, x] - q[1:-1, x - 1]) / (p[1:-1, x - 1] + 3)
    return p, q


# -- small vectors


def moments(a: Any) -> Any:
    found = np.zeros(3)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            v = a[y, x] * 1.0
            found[0] += v
            found[1] += v * x
            found[2] += v * y
    return found


def in_a_list(a: Any) -> Any:
    found = [0.0, a[0, 0], 0]
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            found[0] += a[y, x]
            if a[y, x] > found[1]:
                found[1] = a[y, x]
                found[2] += 1
    return found[0], found[1], found[2]


def in_a_tuple(a: Any) -> Any:
    best, at = a[0, 0], (0, 0)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > best:
                best = a[y, x]
                at = (y, x)
    return best, at


def fibonacci(a: Any) -> Any:
    state = (0.0, 1.0)
    for y in range(a.shape[0]):
        state = (state[1], 0.5 * state[0] + 0.25 * state[1] + a[y, 0])
    return state


LOOPS = [
    first_above, where_it_stopped, otherwise, two_ends, all_rows, escapes, searches, maxima, roots,
    levels, iterations, halvings,
    below_the_diagonal, pairs, backwards, nussinov, two_sweeps,
    moments, in_a_list, in_a_tuple, fibonacci,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_whole_loops_are_compiled(f: Callable[..., Any], dtype: Any) -> None:
    p = check(f, dtype)
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)


@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_pixels_may_be_nan(f: Callable[..., Any]) -> None:
    p, r = compiled(f), np.random.default_rng(3)
    a = r.random((22, 29))
    a[r.random(a.shape) < 0.1] = np.nan
    a[5, :] = np.nan
    a[7, 3] = np.inf
    assert identical(outcome(p, a), outcome(f, a))


@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_a_trace_does_not_grow(f: Callable[..., Any]) -> None:
    r = np.random.default_rng(1)
    assert definitions(f, r.random((36, 28))) == definitions(f, r.random((72, 56)))


@pytest.mark.parametrize("f", [first_above, otherwise, two_ends, levels, below_the_diagonal, moments, in_a_tuple])
def test_there_may_be_few_pixels_or_none(f: Callable[..., Any]) -> None:
    for shape in ((0, 20), (20, 0), (1, 20), (20, 1), (2, 30), (17, 17)):
        check(f, np.float64, (shape,))


# -- return from the function itself: a decision


def position(a: Any) -> Any:
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 0.97:
                return y, x
            if a[y, x] < 0.01:
                return None
    return "none"


def test_the_function_itself_may_return_from_its_loops() -> None:
    p, r = compiled(position), np.random.default_rng(0)
    images = [r.random((20, 30)), np.full((20, 30), 0.5), np.full((20, 30), 0.001)]
    images.append(np.where(np.arange(600).reshape(20, 30) == 411, 1.0, 0.5))
    for a in [*images, *images]:
        assert identical(outcome(p, a), outcome(position, a))
    assert p.stats.parts == 0


# -- indices that are in range where a path is taken


def looked_up(a: Any) -> Any:
    table = np.arange(12) * 2
    out = np.zeros(a.shape, np.int64)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            k = a[y, x]
            if k < 12:
                out[y, x] = table[k] + out[y, 0]
    return out


def looked_up_always(a: Any) -> Any:
    table = np.arange(12) * 2
    out = np.zeros(a.shape, np.int64)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            k = a[y, x]
            if a[y, x] > 300:
                break
            out[y, x] = table[k] + out[y, 0]
    return out


def test_an_index_is_looked_at_where_the_way_is_taken() -> None:
    a = np.random.default_rng(0).integers(0, 40, (20, 30))
    p = compiled(looked_up)
    assert identical(outcome(p, a), outcome(looked_up, a))
    assert p.stats.fallbacks == 0


def test_an_index_out_of_range_is_refused_before_the_loop_is_left_and_not_after() -> None:
    a = np.random.default_rng(0).integers(0, 12, (20, 30))
    p = compiled(looked_up_always)
    assert identical(outcome(p, a), outcome(looked_up_always, a))
    a[4, 7], a[4, 9] = 400, 12
    assert identical(outcome(p, a), outcome(looked_up_always, a))
    assert p.stats.fallbacks == 0
    a[4, 7], a[4, 9] = 12, 400
    assert outcome(p, a)[0] is outcome(looked_up_always, a)[0] is IndexError


# -- what is as before


def too_many(a: Any) -> Any:
    out = np.zeros(a.shape)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            v = 0.0
            while v < a[y, x]:
                v += 0.005
            out[y, x] = v
    return out


def under_try(a: Any) -> Any:
    n = 0
    for y in range(a.shape[0]):
        try:
            if a[y, 0] > 0.9:
                break
        finally:
            n += 1
    return n


def until_it_settles(a: Any) -> Any:
    n = 0
    while np.abs(a).max() > 1e-3:
        a = a / 2
        n += 1
    return a, n


def of_a_list(a: Any) -> Any:
    for k, part in enumerate([a, a * 2, a * 3]):
        if part.max() > 1.5:
            return k, part
    return None


def without_end(a: Any) -> Any:
    n = 0
    for y in range(a.shape[0]):
        while True:
            n += 1
            if n % 3 == 0:
                break
        n += y
    return n


@pytest.mark.parametrize("f", [too_many, under_try, until_it_settles, of_a_list, without_end], ids=lambda f: f.__name__)
def test_other_loops_are_as_before(f: Callable[..., Any]) -> None:
    check(f, np.float64, ((18, 23),), on_unsupported="numpy")


def test_a_source_that_has_changed_is_not_taken() -> None:
    text = "def f(a):\n    for y in range(a.shape[0]):\n        if a[y] > 2:\n            break\n    return y\n"
    for shown, is_taken in ((text, True), (text.replace("2", "3"), False), ("", False)):
        names: dict[str, Any] = {}
        linecache.cache["<loop>"] = len(shown), None, shown.splitlines(True), "<loop>"
        exec(compile(text, "<loop>", "exec"), names)
        f = names["f"]
        f.__code__ = f.__code__.replace(co_firstlineno=1, co_filename="<loop>", co_name="f")
        assert (code_of(f) is not f.__code__) is is_taken or not is_taken
        assert [f(np.arange(n)) for n in (3, 9)] == [2, 3]


def test_the_code_of_other_functions_is_their_own() -> None:
    for f in (two_sweeps, moments, fibonacci, in_a_list):
        assert isinstance(f, FunctionType)
        assert code_of(f) is f.__code__


# -- many conditions


def patterns(a: Any) -> Any:
    """Local binary patterns: as many conditions as neighbours, and more."""
    out = np.zeros(a.shape, np.uint8)
    for y in range(1, a.shape[0] - 1):
        for x in range(1, a.shape[1] - 1):
            c, code = a[y, x], 0
            if a[y - 1, x - 1] >= c:
                code += 1
            if a[y - 1, x] >= c:
                code += 2
            if a[y - 1, x + 1] >= c:
                code += 4
            if a[y, x + 1] >= c:
                code += 8
            if a[y + 1, x + 1] >= c:
                code += 16
            if a[y + 1, x] >= c:
                code += 32
            if a[y + 1, x - 1] >= c:
                code += 64
            if a[y, x - 1] >= c:
                code += 128
            if code > 200:
                code = 200
            elif code < 3:
                code, c = 3, c + 1
            out[y, x] = code
    return out


def ranked(a: Any) -> Any:
    """Carries what conditions choose."""
    low, high, some, n = 0, 0, 1.0, 0
    for y in range(a.shape[0]):
        for x in range(2, a.shape[1] - 2):
            v, u, w, z = a[y, x] * 1.0, a[y, x - 1] * 1.0, a[y, x + 1] * 1.0, a[y, x - 2] * 1.0
            if v > u and v > w:
                high += 1
            if v < u and v < w:
                low += 1
            if v > z or u > z:
                some = max(some, v)
            if u > w:
                n += x
            else:
                n -= y
            if w > z:
                n = n + 2
            if v + w > u + z:
                n, low = n - 1, low + 1
            if v == w:
                n += 3
            if v > 0.75:
                m = 1
            else:
                m = 2
            if z > 0.5:
                n += m
            if n > 1000:
                n = 0
    return low, high, some, n


def rows_in_place(a: Any) -> Any:
    """What looks like numbers is an array, that is added to in place."""
    total = np.zeros(a.shape[1])
    kept, n = total, 0
    for y in range(a.shape[0]):
        row = a[y] * 1.0
        t = a[y, 0]
        if t > 0.5:
            total += row
        if t > 0.6:
            n += 1
        if t > 0.7:
            n += 2
        if t > 0.8:
            n += 3
        if t > 0.9:
            n += 4
        if t > 0.3:
            n += 5
        if t > 0.2:
            n += 6
        if t > 0.1:
            n += 7
        if t > 0.15:
            n += 8
    return kept, n


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("f", [patterns, ranked], ids=lambda f: f.__name__)
def test_conditions_that_choose_numbers_are_no_paths(f: Callable[..., Any], dtype: Any) -> None:
    p = check(f, dtype)
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)
    a = image(np.random.default_rng(5), (20, 31), dtype)
    assert identical(outcome(p, a), outcome(f, a))


def test_arrays_are_not_chosen() -> None:
    check(rows_in_place, np.float64, on_unsupported="numpy")


# -- random loops


@pytest.mark.parametrize("seed", seeds(16, 32))
def test_random_loops_that_are_left(seed: int) -> None:
    text, f = leaving_function(seed)
    r = np.random.default_rng(seed)
    p = compiled(f, on_unsupported="numpy")
    for shape in ((19, 23), (20, 31)):
        a = image(r, shape, (*DTYPES, np.int64)[seed % 5])
        assert identical(outcome(p, a, 0.25), outcome(f, a, 0.25)), text


@pytest.mark.parametrize("seed", seeds(4, 16))
@pytest.mark.parametrize("kind", [Triangles, Rows])
def test_random_loops_in_loops(kind: Any, seed: int) -> None:
    text = kind(seed).source()
    f, a = with_source(text, f"<{kind.__name__} {seed}>"), np.random.default_rng(seed).random((19, 19))
    with np.errstate(all="ignore"):
        expected = f(a.copy())
        np.testing.assert_equal(interpreted(f, a.copy()), expected, err_msg=text)


def element_set_twice(a: Any) -> Any:
    """Before, and at the end of, the loop inside: in each iteration one of both is stored."""
    n = a.shape[1]
    t, s = np.zeros((n, n)), 0.0
    for i in range(n):
        t[i, i] -= t[n - 1, i] * 0.5 + a[0, i]
        for j in range(i, n):
            for k in range(n):
                t[n - 1, 0] -= t[j, k] * 0.5
            t[i, i] = t[j, i] * 0.5 + a[1, j]
        s = s * 0.5 + t[n - 1, n - 1]
    return t, s


def test_an_element_may_be_set_before_and_after_a_loop_inside() -> None:
    a = np.random.default_rng(0).random((2, 19))
    np.testing.assert_equal(interpreted(element_set_twice, a), element_set_twice(a))
