"""Regions that nobody reads are not computed, also of stages at the root."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage

from hjit.trace.ir.poly import Poly
from tests.numpy_check import check
from tests.trace.test_canonical import canonical

IMAGE = np.random.default_rng(0).random((90, 130), np.float32)
ROWS = np.arange(90)


def shapes(function: Any, *args: Any) -> dict[str, tuple[Poly, ...]]:
    return {s.name: s.shape for s in canonical(function, *args).stages}


def two_sums(a: Any) -> Any:
    sums = np.sqrt(a).sum(axis=1)
    return sums[3:5]


def window(a: Any) -> Any:
    smooth = ndimage.gaussian_filter(a, 2)
    return np.exp(smooth)[20:30, 5:9]


def far_rows(a: Any) -> Any:
    norms = np.sqrt((a * a).sum(axis=1))
    return norms[40] + norms[60:]


def from_the_end(a: Any) -> Any:
    roots = np.sqrt(ndimage.uniform_filter(a, 5))
    return roots[-3:] * 2 + roots[-4:-1]


def half(a: Any) -> Any:
    greatest = np.maximum.reduce(a, axis=1)
    return greatest[len(a) // 2 :] * 2


CASES = [two_sums, window, far_rows, from_the_end, half]


@pytest.mark.parametrize("function", CASES)
def test_the_numbers_are_numpys(function: Any) -> None:
    check(function, IMAGE, exact=False)
    check(function, IMAGE[:, :40].astype(np.float64), exact=False)
    check(function, np.asfortranarray(IMAGE), exact=False)


def test_two_sums_of_many_are_two() -> None:
    assert [str(n) for n in shapes(two_sums, IMAGE)["sums"]] == ["2"]


def test_a_window_needs_what_lies_around_it() -> None:
    rows = [s[0].const for s in shapes(window, IMAGE).values() if s[0].is_const]
    assert rows and max(rows) <= 10 + 2 * 9


def test_what_results_is_whole() -> None:
    found = shapes(lambda a: ((s := np.sqrt(a).sum(axis=1)), s[:2] * 2), IMAGE)
    assert [str(n) for n in found["add"]] == ["a0.0"]


def test_what_is_read_by_values_is_whole() -> None:
    def looked_up(a: Any, i: Any) -> Any:
        table = a.sum(axis=1)
        return table[i] + table[2]

    check(looked_up, IMAGE, ROWS[::-1].copy() // 2, exact=False)
    assert "90" not in map(str, shapes(looked_up, IMAGE, ROWS)["table"])


def test_a_few_elements_at_the_ends_stay() -> None:
    found = shapes(lambda a: (_p := np.sqrt(a).sum(axis=1))[1:-1] * 2, IMAGE)
    assert [str(n) for n in found["add"]] == ["a0.0"]


def test_empty_parts_of_images_are_empty() -> None:
    check(lambda a: np.sqrt(a).sum(axis=1)[70:30], IMAGE, exact=False)
    check(two_sums, IMAGE[:4], exact=False)
    check(window, IMAGE[:20], exact=False)
