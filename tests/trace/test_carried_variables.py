"""Loops that carry variables, write several places, and read behind conditions: NumPy's results, compiled whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.capture.loops.nests import RerolledNest, Write
from hjit.trace.capture.loops.packing import packed_dtype
from hjit.trace.ir.expressions import Const, Load, Op
from hjit.trace.ir.graph import Definition, Graph, Input, Stage, identity
from hjit.trace.ir.interpret import interpret
from hjit.trace.ir.key import graph_key
from hjit.trace.ir.poly import Dim, Sym, poly
from tests.trace.carrying import function, image
from tests.trace.helpers import trace_of

DTYPES = (np.float64, np.float32, np.uint8, np.int32)


def identical(ours: Any, theirs: Any) -> bool:
    """Are two results of one type, and bit for bit the same?"""
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, tuple):
        return len(ours) == len(theirs) and all(map(identical, ours, theirs))
    a, b = np.asarray(ours), np.asarray(theirs)
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def outcome(f: Callable[..., Any], *args: Any) -> Any:
    """What a call returns, and what it leaves in its arguments; or the type of what it raises."""
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with np.errstate(all="ignore"):
        try:
            return f(*given), tuple(given)
        except (ZeroDivisionError, UnboundLocalError, IndexError, OverflowError, ValueError) as error:
            return type(error), ()


def compiled(f: Callable[..., Any], **options: Any) -> Any:
    return hjit.pipeline(f, tune=False, verify="off", **options).quiet()


def definitions(f: Callable[..., Any], *args: Any) -> int:
    traced, _ = trace_of(f, *args)
    return sum(len(s.definitions) for s in traced.recorder.stages.values())


# -- variables


def total(a: Any) -> Any:
    s = 0.0
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            s += a[y, x]
    return s


def total_of_ints(a: Any) -> Any:
    s = 0
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            s += int(a[y, x]) % 7
    return s


def above(a: Any) -> Any:
    count = 0
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > a[y, 0]:
                count += 1
    return count


def greatest(a: Any) -> Any:
    best = a[0, 0]
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            best = max(best, a[y, x])
    return best


def place_of_greatest(a: Any) -> Any:
    best = -1.0
    by = bx = 0
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > best:
                best = a[y, x]
                by, bx = y, x
    return best, by, bx


def of_neither_type(a: Any) -> Any:  # nothing is above infinity: a float of Python is left
    best = np.inf
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > best:
                best = a[y, x]
    return best


def none_at_first(a: Any) -> Any:
    least = None
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if least is None or a[y, x] < least:
                least = a[y, x]
    return least


def differences(a: Any) -> Any:
    out = np.zeros_like(a)
    before = 0
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            out[y, x] = a[y, x] - before
            before = a[y, x]
    return out, before


def running_total(a: Any) -> Any:
    out = np.zeros_like(a)
    s = 0
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            s = s + a[y, x]
            out[y, x] = s
    return out


def means_of_rows(a: Any) -> Any:
    out = np.zeros(a.shape[0])
    for y in range(a.shape[0]):
        s, n = 0.0, 0
        for x in range(a.shape[1]):
            if a[y, x] > 0.5:
                s += a[y, x]
                n += 1
        out[y] = s / n if n > 0 else -1.0
    return out


def filtered_rows(a: Any) -> Any:
    out = np.zeros(a.shape)
    for y in range(a.shape[0]):
        one = two = 0.0
        for x in range(a.shape[1]):
            v = a[y, x] + 0.5 * one - 0.25 * two
            out[y, x] = v
            two, one = one, v
    return out


def of_rows_so_far(a: Any) -> Any:
    level = 0.0
    out = np.zeros(a.shape)
    for y in range(a.shape[0]):
        level = 0.75 * level + a[y, 0]
        for x in range(a.shape[1]):
            out[y, x] = a[y, x] - level
    return out, level


def last_values(a: Any) -> Any:
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            v = a[y, x] * 2
    return v, y, x


def found(a: Any) -> Any:
    is_found = False
    at = -1
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if not is_found and a[y, x] > 0.75:
                is_found = True
                at = y * a.shape[1] + x
    return is_found, at


def first_index_of_rows(a: Any) -> Any:
    out = np.zeros(a.shape[0], np.int64)
    for y in range(a.shape[0]):
        best = 0
        for x in range(1, a.shape[1]):
            if a[y, x] > a[y, best]:
                best = x
        out[y] = best
    return out


def starts_anew(a: Any) -> Any:
    longest = length = 0
    for y in range(a.shape[0]):
        length = 0
        for x in range(a.shape[1]):
            if a[y, x] > 0.25:
                length += 1
                longest = max(longest, length)
            else:
                length = 0
    return longest


VARIABLES = [
    total, total_of_ints, above, greatest, place_of_greatest, of_neither_type, none_at_first, differences,
    running_total, means_of_rows, filtered_rows, of_rows_so_far, last_values, found, first_index_of_rows, starts_anew,
]  # fmt: skip

# -- several places, and what is in range behind a condition alone


def error_diffusion(a: Any) -> Any:
    img = a.astype(np.float32)
    h, w = img.shape
    for y in range(h):
        for x in range(w):
            old = img[y, x]
            new = 1.0 if old > 0.5 else 0.0
            img[y, x] = new
            err = old - new
            if x + 1 < w:
                img[y, x + 1] += err * 7 / 16
            if y + 1 < h:
                if x > 0:
                    img[y + 1, x - 1] += err * 3 / 16
                img[y + 1, x] += err * 5 / 16
                if x + 1 < w:
                    img[y + 1, x + 1] += err * 1 / 16
    return img


def to_bytes(a: Any) -> Any:
    img = a * 255.0
    out = np.zeros(a.shape, np.uint8)
    h, w = a.shape
    for y in range(h):
        for x in range(w):
            old = img[y, x]
            new = 255 if old > 127 else 0
            out[y, x] = new
            err = old - new
            if x < w - 1:
                img[y, x + 1] += err * 0.5
            if y < h - 1:
                img[y + 1, x] += err * 0.5
    return out


def serpentine(a: Any) -> Any:
    img = a.astype(np.float64)
    h, w = img.shape
    for y in range(h):
        if y % 2 == 0:
            for x in range(w):
                old = img[y, x]
                img[y, x] = 1.0 if old > 0.5 else 0.0
                if x + 1 < w:
                    img[y, x + 1] += (old - img[y, x]) * 0.5
        else:
            for x in range(w - 1, -1, -1):
                old = img[y, x]
                img[y, x] = 1.0 if old > 0.5 else 0.0
                if x > 0:
                    img[y, x - 1] += (old - img[y, x]) * 0.5
    return img


def integral(a: Any) -> Any:
    out = np.zeros_like(a)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            s = a[y, x]
            if x > 0:
                s = s + out[y, x - 1]
            if y > 0:
                s = s + out[y - 1, x]
            if x > 0 and y > 0:
                s = s - out[y - 1, x - 1]
            out[y, x] = s
    return out


def neighbours(a: Any) -> Any:
    out = np.zeros_like(a)
    h, w = a.shape
    for y in range(h):
        for x in range(w):
            s = a[y, x]
            if y > 0:
                s = s + a[y - 1, x]
            if x != w - 1:
                s = s + a[y, x + 1]
            if y == 0:
                s = s - a[h - 1, x]
            out[y, x] = s
    return out


def where_an_earlier_pixel_says(a: Any) -> Any:
    out = a * 2
    k = 5
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if k <= x:
                if y + 1 < a.shape[0] and x + 1 < a.shape[1]:
                    out[y + 1, x + 1] += a[y, 0]
            k = x
    return out, k


def rows_from_a_new_row(a: Any) -> Any:
    out = np.zeros(a.shape)
    state = a[0] * 1.0
    for y in range(a.shape[0]):
        state = 0.5 * state + 0.5 * a[y]
        out[y] = state
    return out


def greatest_rows(a: Any) -> Any:
    most, count = a[0].copy(), 0
    for y in range(1, a.shape[0]):
        most = np.maximum(most, a[y])
        count += 1
    return most, count


def two_images(a: Any) -> Any:
    low, high = np.zeros_like(a), np.zeros_like(a)
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            if a[y, x] > 0.5:
                high[y, x] = a[y, x]
            else:
                low[y, x] = a[y, x]
    return low, high


def in_place(a: Any) -> Any:
    changed = 0
    for y in range(1, a.shape[0] - 1):
        for x in range(1, a.shape[1] - 1):
            v = a[y - 1, x] / 2 + a[y, x - 1] / 4
            if v > a[y, x]:
                a[y, x] = v
                changed += 1
    return changed


PLACES = [
    error_diffusion, to_bytes, serpentine, integral, neighbours, two_images, in_place, where_an_earlier_pixel_says,
    rows_from_a_new_row, greatest_rows,
]  # fmt: skip


def check(f: Callable[..., Any], dtype: Any, shapes: Any = ((20, 31), (33, 24)), **options: Any) -> Any:
    p = compiled(f, **options)
    r = np.random.default_rng(0)
    for shape in shapes:
        a = (r.random(shape) * (1 if np.dtype(dtype).kind == "f" else 200)).astype(dtype)
        assert identical(outcome(p, a), outcome(f, a)), (f.__name__, dtype, shape)
    return p


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("f", [*VARIABLES, *PLACES], ids=lambda f: f.__name__)
def test_whole_loops_are_compiled_for_all_sizes(f: Callable[..., Any], dtype: Any) -> None:
    p = check(f, dtype)
    assert (p.stats.fallbacks, p.stats.parts) == (0, 0)
    made = p.stats.compilations
    a = np.ones((45, 52), dtype)
    assert identical(outcome(p, a), outcome(f, a))
    assert p.stats.compilations == made


@pytest.mark.parametrize("f", [*VARIABLES, *PLACES], ids=lambda f: f.__name__)
def test_a_trace_does_not_grow(f: Callable[..., Any]) -> None:
    r = np.random.default_rng(1)
    assert definitions(f, r.random((36, 28))) == definitions(f, r.random((72, 56)))


@pytest.mark.parametrize("f", [total, above, differences, error_diffusion, integral, neighbours, two_images])
def test_there_may_be_few_pixels_or_none(f: Callable[..., Any]) -> None:
    for shape in ((0, 20), (20, 0), (1, 20), (20, 1), (2, 30), (17, 17), (1, 1)):
        check(f, np.float64, (shape,))


def test_what_does_not_depend_on_each_other_is_apart() -> None:
    traced, _ = trace_of(two_images, np.random.default_rng(0).random((20, 30)))
    assert all(d.order == "pure" for s in traced.recorder.stages.values() for d in s.definitions)


# -- what is none


def grows_without_end(a: Any) -> Any:
    n = 1
    for _ in range(a.shape[0]):
        n = n * 3
    return n


def divides(a: Any) -> Any:
    s, n = 1.0, 0
    for y in range(a.shape[0]):
        if a[y, 0] > 0.9:
            n += 1
        s = s + 1 / n
    return s


def has_no_value(a: Any) -> Any:
    for y in range(a.shape[0]):
        if a[y, 0] > 2:
            v = a[y, 0]
    return v


def read_before_it_is_set(a: Any) -> Any:
    s = 0.0
    for y in range(a.shape[0]):
        if y > 0:
            s += v  # noqa: F821
        v = a[y, 0]  # noqa: F841
    return s


def of_three_types(a: Any) -> Any:
    m = 0
    for y in range(a.shape[0]):
        m = a[y, 0] if y % 3 == 0 else 1.5 if y % 3 == 1 else m
    return m


def keeps_rows(a: Any) -> Any:
    rows = []
    for y in range(a.shape[0]):
        rows.append(a[y, 0])
    return np.array(rows)


def out_of_range(a: Any) -> Any:
    k = 0
    s = 0.0
    for _ in range(a.shape[0]):
        k += 2
        s += a[k, 0]
    return s


def two_names_of_an_array(a: Any) -> Any:
    state = np.zeros(a.shape[1])
    before = state
    for y in range(a.shape[0]):
        before = state
        state = state + a[y]
        before[0] = 5
    return state, before


def loops_that_depend_on_each_other(a: Any) -> Any:
    out, b, s = np.zeros_like(a), a.copy(), 0.0
    for y in range(a.shape[0]):
        for x in range(1, a.shape[1]):
            out[y, x] = b[y, x - 1] + s
        for x in range(1, a.shape[1]):
            b[y, x] = b[y, x] * 0.5 + s
        s = s * 0.5 + b[y, 0]
    return out, b, s


def text(a: Any) -> Any:
    name = ""
    for _ in range(a.shape[0]):
        name = name + "x"
    return len(name)


@pytest.mark.parametrize(
    "f",
    [
        grows_without_end, divides, has_no_value, read_before_it_is_set, of_three_types, keeps_rows, out_of_range, text,
        two_names_of_an_array, loops_that_depend_on_each_other,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_what_cannot_be_carried_is_as_before(f: Callable[..., Any]) -> None:
    check(f, np.float64, ((20, 21), (41, 2)), on_unsupported="numpy")


# -- random loops


@pytest.mark.parametrize("seed", range(30))
def test_random_loops(seed: int) -> None:
    text, f = function(seed)
    r = np.random.default_rng(seed)
    p = compiled(f, on_unsupported="numpy")
    for shape in ((19, 23), (20, 31)):
        a = image(r, shape, (*DTYPES, np.int64)[seed % 5])
        assert identical(outcome(p, a, 0.25), outcome(f, a, 0.25)), text


# -- the Graph


N = poly(Sym("n"))
A = Load("a", (poly(Dim(0)),), np.float64)


def joined(is_joined: bool = True) -> Graph:
    """Two numbers that change places at each iteration."""
    own = [Load("s", (poly(k),), np.float64) for k in (0, 1)]
    updates = tuple(
        Definition(
            (), (N,), (poly(k),), Op("add", (own[1 - k], A), np.float64), "sequential", joined=is_joined and k == 1
        )
        for k in (0, 1)
    )
    s = Stage("s", np.dtype(np.float64), (poly(2),), Const(1, np.float64), updates)
    return Graph((Input("a", np.dtype(np.float64), (N,), (1,)),), (), (s,), ("s",))


def test_joined_updates_are_evaluated_before_they_are_stored() -> None:
    a = np.arange(5.0)
    x = y = 1.0
    for v in a:
        x, y = y + v, x + v
    (found,) = interpret(joined(), {"a": a}, {"n": 5}, {})
    np.testing.assert_array_equal(found, [x, y])
    assert graph_key(joined()).text != graph_key(joined(False)).text
    assert "together with the one before" in str(joined())
    assert [len(step) for step in joined().stage("s").steps] == [1, 2]


@pytest.mark.parametrize(
    ("dtypes", "ints", "wanted"),
    [
        (("f4", "f4"), (), "f4"),
        (("f4", "f8"), (), "f8"),
        (("f4", "u1"), (), "f8"),
        (("f8", "i8"), (), "i8"),
        (("f8", "i8"), ("x1",), "f8"),
        (("u1", "?"), (), "i8"),
    ],
)
def test_packed_arrays_hold_all_numbers(dtypes: tuple[str, ...], ints: tuple[str, ...], wanted: str) -> None:
    arrays = {f"x{k}": Stage(f"x{k}", np.dtype(t), (), Const(0, t)) for k, t in enumerate(dtypes)}
    writes = tuple(Write(name, (), Const(1, s.dtype)) for name, s in arrays.items())
    assert packed_dtype(RerolledNest(arrays, (), (N,), writes), set(ints)) == np.dtype(wanted)


def test_a_nest_is_printed_with_its_updates_together() -> None:
    p = compiled(error_diffusion)
    shown = str(p.graph(np.random.default_rng(0).random((20, 30))))
    assert shown.count("together with the one before") == 4
    assert identity(1)
