"""What a scan overwrites before anything reads it is not computed: its array starts with the rows that the scan leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hjit.trace.ir.poly import poly
from hjit.trace.passes.canonical import canonicalise
from tests.numpy_check import check
from tests.trace.helpers import trace_of

RNG = np.random.default_rng(0)


def down(img: Any) -> Any:
    out = img.copy()
    for y in range(1, len(img)):
        out[y] = 0.5 * img[y] + 0.25 * out[y - 1]
    return out


def up(img: Any) -> Any:
    out = img * 2
    for y in range(len(img) - 2, -1, -1):
        out[y] = 0.5 * img[y] + 0.25 * out[y + 1]
    return out


def two_back(img: Any) -> Any:
    out = img + 1
    for y in range(2, len(img)):
        out[y] = img[y] + 0.5 * out[y - 1] - 0.25 * out[y - 2]
    return out


def two_back_only(img: Any) -> Any:
    out = img + 1
    for y in range(2, len(img)):
        out[y] = img[y] + 0.5 * out[y - 2]
    return out


def along_columns(img: Any) -> Any:
    out = img.copy()
    for x in range(img.shape[1] - 2, -1, -1):
        out[:, x] = img[:, x] + 0.5 * out[:, x + 1]
    return out


def forth_and_back(img: Any) -> Any:
    out = down(img)
    for y in range(len(img) - 2, -1, -1):
        out[y] = 0.5 * out[y] + 0.25 * out[y + 1]
    return out


def one(img: Any) -> Any:
    out = img[0] * 2
    for x in range(1, img.shape[1]):
        out[x] = img[0, x] + 0.5 * out[x - 1]
    return out


def into_itself(img: Any) -> Any:
    """Reads what it is about to overwrite, which is little work."""
    out = img * 3
    for y in range(1, len(img)):
        out[y] = out[y] + 0.5 * out[y - 1]
    return out


def much_into_itself(img: Any) -> Any:
    out = np.sqrt(img) / 3
    for y in range(1, len(img)):
        out[y] = out[y] * out[y] + 0.5 * out[y - 1]
    return out


def running_sums(img: Any) -> Any:
    return np.cumsum(np.cumsum(img, axis=0), axis=1)


def running_maximum(img: Any) -> Any:
    return np.maximum.accumulate(img[:, ::-1], axis=1)


def first_row_apart(img: Any) -> Any:
    out = np.empty_like(img)
    out[0] = img[0] * 2
    for y in range(1, len(img)):
        out[y] = 0.5 * img[y] + 0.25 * out[y - 1]
    return out


def a_later_row_apart(img: Any) -> Any:
    out = np.zeros_like(img)
    out[-1] = img[0] * 2
    for y in range(1, len(img)):
        out[y] += 0.5 * img[y] + 0.25 * out[y - 1]
    return out


def ahead(img: Any) -> Any:
    out = img * 3
    for y in range(1, len(img) - 1):
        out[y] = out[y + 1] + 0.5 * out[y - 1]
    return out


def not_all(img: Any) -> Any:
    out = img * 3
    for y in range(1, len(img) - 3):
        out[y] = img[y] + 0.5 * out[y - 1]
    return out


def some_columns(img: Any) -> Any:
    out = img * 3
    for y in range(1, len(img)):
        out[y, 2:] = img[y, 2:] + 0.5 * out[y - 1, 2:]
    return out


def other_columns(img: Any) -> Any:
    out = img * 3
    for y in range(1, len(img)):
        out[y, 1:] = img[y, 1:] + 0.5 * out[y - 1, :-1]
    return out


STARTED = {down: 1, up: 1, two_back: 2, two_back_only: 2, along_columns: 1, forth_and_back: 1, one: 1}
STARTED |= {into_itself: 1, running_maximum: 1, first_row_apart: 1}
KEPT = (much_into_itself, ahead, not_all, some_columns, a_later_row_apart)


@pytest.mark.parametrize("height", [1, 2, 3, 5, 40])
@pytest.mark.parametrize("function", [*STARTED, *KEPT, other_columns, running_sums])
def test_results_are_those_of_numpy(function: Any, height: int) -> None:
    check(function, RNG.random((height, 37)))
    if function is not one:
        check(function, (RNG.random((height, 50, 3)) * 50).astype(np.float32))


def scans(function: Any) -> list[Any]:
    traced, _ = trace_of(function, RNG.random((40, 37)))
    graph = canonicalise(traced.recorder.graph((traced.result.name,)))
    return [s for s in graph.stages if any(d.order == "sequential" for d in s.definitions)]


@pytest.mark.parametrize("function", STARTED)
def test_only_the_first_rows_are_computed_before(function: Any) -> None:
    (s,) = scans(function)
    assert s.initial is None
    first = s.definitions[0]
    assert first.order == "pure" and [n for n in first.dims if n.is_const] == [poly(STARTED[function])]


def test_running_sums_read_their_source() -> None:
    (s,) = scans(running_sums)
    first, down_, across = s.definitions
    assert s.initial is None and first.order == "pure"
    assert "a0" in down_.sources and across.sources == {s.name}, "the second one runs over what the first one has made"


@pytest.mark.parametrize("function", KEPT)
def test_what_is_read_is_kept(function: Any) -> None:
    (s,) = scans(function)
    assert s.initial is not None
