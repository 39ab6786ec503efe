"""Scans of arrays of Dask along an axis that is in chunks: each chunk goes on from the one before it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.chunks import subgraphs
from hjit.chunks.cut import cut_graph
from tests.test_dask import assert_as_numpy, chunked, image, tasks_of

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
Array = np.ndarray[Any, Any]
CASES: list[Callable[..., Any]] = []


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(subgraphs, "SMALL_WORK", 1)  # small images as large ones are
    cut_graph.cache_clear()
    with dask.config.set(scheduler="sync"):
        yield
    cut_graph.cache_clear()


def case(f: Callable[..., Any]) -> Callable[..., Any]:
    CASES.append(f)
    return f


@case
def down(x: Array) -> Any:
    return x.cumsum(0)


@case
def right(x: Array) -> Any:
    return x.cumsum(1)


@case
def integral(x: Array) -> Any:
    return x.cumsum(0).cumsum(1)


@case
def flat(x: Array) -> Any:
    return x.cumsum()


@case
def running_extremes(x: Array) -> Any:
    return np.maximum.accumulate(x, axis=1) - np.minimum.accumulate(x, axis=0)


@case
def differences(x: Array) -> Any:
    return np.subtract.accumulate(x, axis=0)


@case
def moments(x: Array) -> Any:
    return np.cumsum(x, 0), np.cumsum(x * x, 0), np.cumsum(x * 2, 1)


@case
def wider_type(x: Array) -> Any:
    return np.cumsum(x > 0, axis=0), x.astype(np.int8).cumsum(1)


@case
def products(x: Array) -> Any:
    return np.multiply.accumulate(1 + x / 100, axis=0)


@case
def of_a_part(x: Array) -> Any:
    return x[3:-2, 5:].cumsum(0) + x[4:-1, :-5]


@case
def of_a_stencil(x: Array) -> Any:
    p = np.pad(x, 2, mode="reflect")
    return (p[4:, 2:-2] + p[:-4, 2:-2] + p[2:-2, 4:] + p[2:-2, :-4]).cumsum(0)


@case
def first_order(x: Array) -> Any:
    y = np.empty_like(x)
    y[0] = x[0]
    for i in range(1, x.shape[0]):
        y[i] = 0.5 * y[i - 1] + x[i]
    return y


@case
def second_order(x: Array) -> Any:
    y = x.copy()
    for k in range(2, x.shape[1]):
        y[:, k] = x[:, k] * 0.5 + y[:, k - 1] * 0.3 + y[:, k - 2] * 0.2
    return y


@case
def backwards(x: Array) -> Any:
    y = x.copy()
    for i in range(x.shape[0] - 2, -1, -1):
        y[i] = 0.5 * y[i + 1] + x[i]
    return y


@case
def there_and_back(x: Array) -> Any:
    y = x.copy()
    for i in range(1, x.shape[0]):
        y[i] = 0.5 * y[i - 1] + 0.5 * y[i]
    for i in range(x.shape[0] - 3, -1, -1):
        y[i] = 0.5 * y[i + 2] + 0.25 * y[i + 1] + 0.25 * y[i]
    return y


@case
def inner_rows(x: Array) -> Any:
    y = x * 2
    for i in range(20, x.shape[0] - 30):
        y[i] = 0.5 * y[i - 3] + x[i + 3]
    return y


@case
def seam(x: Array) -> Any:
    m = x.copy()
    for i in range(1, x.shape[0]):
        left, right = np.roll(m[i - 1], 1), np.roll(m[i - 1], -1)
        m[i] += np.minimum(np.minimum(left, right), m[i - 1])
    return m


@case
def normalised(x: Array) -> Any:
    s = np.abs(x).cumsum(0)
    return s / s.max()


@case
def box_filter(x: Array) -> Any:
    s = np.pad(x.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    return s[7:, 7:] - s[:-7, 7:] - s[7:, :-7] + s[:-7, :-7]


@pytest.mark.parametrize("dtype", ["f4", "i4", "f8"])
@pytest.mark.parametrize("f", CASES, ids=[f.__name__ for f in CASES])
def test_numbers_are_numpy_s(f: Callable[..., Any], dtype: str) -> None:
    x = image((97, 133), dtype)
    for seed in range(2):
        assert_as_numpy(f, (x,), [chunked(x, random.Random(f"{f.__name__} {seed}"))])


@pytest.mark.parametrize("chunks", [((1, 1, 1, 2, 3, 40, 1, 48), 97), (1, 97), (30, (2,) * 48 + (1,))])
def test_chunks_shorter_than_what_follows_from_them(chunks: Any) -> None:
    x = image((97, 97), "f4")
    for f in (right, second_order, there_and_back, inner_rows):
        assert_as_numpy(f, (x,), [da.from_array(x, chunks=chunks)])


def test_chunks_stay_as_they_are_and_rows_move() -> None:
    x = da.zeros((4000, 5000), chunks=(500, 1000), dtype="f4")
    for f in (down, right, first_order, second_order, backwards):
        (subgraph,) = tasks_of(f, x).subgraphs
        assert subgraph.grid == x.chunks
        (carry,) = subgraph.carries.values()
        found = hjit.pipeline(f)(x)
        assert found.chunks == x.chunks
        moved = [v for k, v in dict(found.__dask_graph__()).items() if "excerpts" in str(k)]
        others = 35 if carry.axis == 0 else 32
        assert len(moved) == others, "the last rows of each chunk but those that are last"
    subgraph, _ = tasks_of(moments, x).subgraphs
    assert len(subgraph.outputs) == len(subgraph.carries) == 2, "scans along the same axis are computed together"


def test_what_follows_from_more_than_rows_before_it_is_one_chunk() -> None:
    x = da.zeros((400, 500), chunks=(100, 100), dtype="f4")
    text = hjit.pipeline(seam).explain(x)
    assert "4 tasks, each reads 100 x 500 of x" in text
    assert "along axis 0 each chunk of m_v_2 goes on from the last of the one before it" in text
    assert "one chunk along axis 1, as its elements follow from each other" in text
    text = hjit.pipeline(second_order).explain(x)
    assert "along axis 1 each chunk of y_v_2 goes on from the last 2 of the one before it" in text
    text = hjit.pipeline(backwards).explain(x)
    assert "along axis 0 each chunk of y_v_2 goes on from the first of the one after it" in text


def test_threads() -> None:
    x = image((300, 400), "f4")
    for f in (integral, there_and_back):
        found = hjit.pipeline(f)(da.from_array(x, chunks=(70, 90)))
        np.testing.assert_array_equal(found.compute(scheduler="threads", num_workers=2), f(x))
