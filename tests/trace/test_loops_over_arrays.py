"""Loops over the elements and rows of arrays, with ``enumerate`` and ``zip``: traced as one iteration, as over a range."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from benchmarks.functions.kernels import crc16
from tests.trace.helpers import assert_same
from tests.trace.test_rerolling import definitions

RNG = np.random.default_rng(0)
IMAGE = RNG.random((40, 30))
LINE = RNG.random(300)
BYTES = (LINE * 255).astype(np.uint8)


def doubled(v: Any) -> Any:
    out = np.empty_like(v)
    for i, x in enumerate(v):
        out[i] = 2 * x
    return out


def from_one(v: Any) -> Any:
    out = np.zeros(v.size + 1)
    for i, x in enumerate(v, 1):
        out[i] = out[i - 1] + x
    return out


def decides(v: Any) -> Any:
    out = np.zeros_like(v)
    for i, x in enumerate(v):
        if x > 0.5:
            out[i] = x
        elif x > 0.2:
            out[i] = -x
    return out


def total(v: Any) -> Any:
    highest, n = -1.0, 0
    for x in v:
        if x > highest:
            highest = x
            n += 1
    return highest, n, x


def rows_in_place(img: Any) -> Any:
    img = img.copy()
    for row in img:
        row *= row[0]
    return img


def columns(img: Any) -> Any:
    out = np.empty(img.shape[::-1])
    for k, column in enumerate(img.T):
        out[k] = column / column.max()
    return out


def together(a: Any) -> Any:
    out = np.empty_like(a)
    for i, (x, y) in enumerate(zip(a, a[::-1], strict=True)):
        out[i] = x - y if x > y else 0
    return out


def pixel_by_pixel(img: Any) -> Any:
    out = np.zeros_like(img)
    for y, row in enumerate(img):
        for x, v in enumerate(row):
            if y and x:
                out[y, x] = v + max(out[y - 1, x], out[y, x - 1])
    return out


def left_early(v: Any) -> Any:
    n = 0
    for x in v:
        if x > 0.99:
            break
        n += 1
    return n


def returned(v: Any) -> Any:
    for k, x in enumerate(v):
        if x > 0.9:
            return k
    return -1


def places(img: Any) -> Any:
    out = np.zeros_like(img)
    for i, j in np.ndindex(*img.shape):
        out[i, j] = img[i, j] * 2 if img[i, j] > 0.5 else -img[i, j - 1]
    return out


def one_place(img: Any) -> Any:
    out = img.copy()
    for place in np.ndindex(img.shape):
        if out[place] > 0.5:
            out[place] -= 0.5
    return out


def places_and_elements(img: Any) -> Any:
    out = np.zeros(img.T.shape)
    for (i, j), v in np.ndenumerate(img):
        out[j, i] = v + (i - j)
    return out


def product(img: Any) -> Any:
    out = np.zeros_like(img)
    for i, j in itertools.product(range(1, img.shape[0]), range(img.shape[1] - 1, 0, -1)):
        out[i, j] = max(img[i, j], img[i - 1, j])
    return out


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (places, IMAGE),
        (one_place, IMAGE),
        (places_and_elements, IMAGE),
        (product, IMAGE),
        (doubled, LINE),
        (from_one, LINE),
        (decides, LINE),
        (total, LINE),
        (rows_in_place, IMAGE),
        (columns, IMAGE),
        (together, LINE),
        (pixel_by_pixel, IMAGE),
        (left_early, LINE),
        (returned, LINE),
        (crc16, BYTES),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_iterations_are_traced_as_one(function: Callable[[Any], Any], given: Any) -> None:
    p = hjit.pipeline(function, cache="off", tune=False)
    for a in (given, given[3:]):
        assert_same(p(a), function(a))
    assert p.stats.fallbacks == 0 and p.stats.parts == 0


def test_the_trace_does_not_grow_with_the_image() -> None:
    for function in (doubled, decides, columns):
        a = IMAGE if function is columns else LINE
        assert definitions(function, a) == definitions(function, np.concatenate([a, a]))


def test_few_elements_are_unrolled() -> None:
    def channels(img: Any) -> Any:
        return sum(weight * plane for weight, plane in zip((0.2, 0.7, 0.1), img, strict=True))

    planes = RNG.random((3, 20, 30))
    p = hjit.pipeline(channels, cache="off", tune=False)
    assert_same(p(planes), channels(planes))


@pytest.mark.parametrize(
    "function",
    [
        lambda a: list(a[:3]),
        lambda a: next(enumerate(a[:3])),
        lambda a: [(i, x + 1) for i, x in enumerate(a[:4], 2)],
        lambda a: dict(enumerate(a[:3])),
        lambda a: [x + y for x, y in zip(a[:4], a[6:10], strict=True)],
        lambda a: [x + y for x, y in zip(a[:4], range(3), strict=False)],
        lambda a: [x for x, _ in zip(a[:4], a[:2], strict=False)],
        lambda a: list(zip(*[a[:2], a[2:4]], strict=True)),
        lambda a: sum(i * x for i, x in enumerate(a[:5])),
        lambda a: max(enumerate(a[:5].tolist()))[0],
    ],
    ids=range(10),
)
def test_what_asks_for_elements_one_by_one_gets_them(function: Callable[[Any], Any]) -> None:
    p = hjit.pipeline(function, cache="off", tune=False)
    for _ in range(2):
        assert_same(p(LINE), function(LINE))


def test_lengths_that_differ_raise_what_python_raises() -> None:
    def strict(a: Any) -> Any:
        return [x for x, _ in zip(a[:4], a[:3], strict=True)]

    with pytest.raises(ValueError, match="zip"):
        hjit.pipeline(strict, cache="off")(LINE)


def test_an_iterator_goes_on_where_it_stopped() -> None:
    def rest(a: Any) -> Any:
        pairs = enumerate(a[:6])
        first = next(pairs)
        return first, list(zip(pairs, a[:9], strict=False))

    p = hjit.pipeline(rest, cache="off", tune=False)
    assert_same(p(LINE), rest(LINE))


def test_a_function_in_a_cell_shares_an_array_with_an_argument() -> None:
    def labels(a: Any) -> Any:
        parent = np.arange(a.size)

        def find(i: Any) -> Any:
            while parent[i] != i:
                i = parent[i]
            return i

        for k in range(1, a.size):
            if a[k] > 0.5:
                parent[find(k)] = find(k - 1)
        return parent

    p = hjit.pipeline(labels, cache="off", numpy_if_faster=False, on_unsupported="break")
    for _ in range(3):
        assert_same(p(LINE), labels(LINE))

    q = hjit.pipeline(lambda function, a: function(2.0) + a, cache="off")
    for n in (5, 7):
        array = np.arange(float(n))

        def of_cell(x: float, array: Any = array) -> Any:
            return array * x

        assert_same(q(of_cell, array), array * 3)
        assert_same(q(of_cell, array + 1), array * 2 + array + 1)


def test_places_one_by_one() -> None:
    def f(img: Any) -> Any:
        taps = [(i, j) for i, j in itertools.product(range(-1, 2), repeat=2) if (i, j) != (0, 0)]
        around = sum(np.roll(img, tap, (0, 1)) for tap in taps)
        rest = [img[place] for place in np.ndindex(2, 3)], list(np.ndindex(2, 0)), next(np.ndindex(3, 3))
        return around, rest, list(np.ndenumerate(img[:2, :2])), list(itertools.product("ab", repeat=2))

    p = hjit.pipeline(f, on_unsupported="raise")
    for img in (IMAGE, IMAGE * 2):
        assert_same(p(img), f(img))
