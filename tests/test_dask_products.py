"""Products of matrices on arrays of Dask: chunks of the outer axes, pieces of what is summed up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.chunks import cut, subgraphs
from tests.test_dask import image, never, one_thread  # noqa: F401 (the fixture)

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
Array = np.ndarray[Any, Any]


def gram(x: Array) -> Any:
    return x @ x.T


def gram_of_columns(x: Array) -> Any:
    return np.einsum("ki,kj->ij", x, x)


def covariance(x: Array) -> Any:
    c = x - x.mean(0).astype(x.dtype)
    return np.dot(c.T, c) // 3 + 1


def with_its_first_rows(x: Array) -> Any:
    return x @ x[0], x[3:50] @ x[:7].T


def squared_distances(x: Array) -> Any:
    s = (x * x).sum(1)
    return s[:, None] + s - 2 * (x @ x.T)


def three(x: Array) -> Any:
    return x @ x.T @ x


def least_sums(x: Array) -> Any:
    return (x[:, :, None] + x.T[None]).min(1)


FUNCTIONS = [gram, gram_of_columns, covariance, with_its_first_rows, squared_distances, three, least_sums]


@pytest.fixture
def as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are cut as large ones are."""
    monkeypatch.setattr(subgraphs, "SMALL_WORK", 1)
    monkeypatch.setattr(cut, "SMALL_WORK", 1)


@pytest.mark.usefixtures("as_large")
@pytest.mark.parametrize("dtype", ["i4", "u1", "f4", "f8"])
@pytest.mark.parametrize("f", FUNCTIONS, ids=[f.__name__ for f in FUNCTIONS])
def test_numbers_are_numpy_s(f: Callable[..., Any], dtype: str) -> None:
    x = image((90, 61), dtype)
    for chunks in ((40, 20), (25, 61), ((0, 90), 30)):
        found, expected = hjit.pipeline(f)(da.from_array(x, chunks=chunks)), f(x)
        several = isinstance(expected, tuple)
        for a, b in zip(found if several else (found,), expected if several else (expected,), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            if a.dtype.kind == "f":
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)
            else:
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["i4", "f4"])
@pytest.mark.parametrize("chunks", [(500, 500), (500, 4000)])
def test_no_task_has_more_than_some_chunks(dtype: str, chunks: tuple[int, int]) -> None:
    x, y = da.zeros((3000, 4000), chunks=chunks, dtype=dtype), da.zeros((4000, 2000), chunks=500, dtype=dtype)
    for f, args, blocks in (
        (gram, (x,), (6, 6)),
        (lambda x, y: x @ y, (x, y), (6, 4)),
        (lambda x: x @ x[0], (x,), (6,)),
    ):
        found = hjit.pipeline(f)(*args)
        assert found.numblocks == blocks and max(map(max, found.chunks)) == 500
        graph = da.optimize(found.__dask_graph__(), found.__dask_keys__())
        assert max(len(v.dependencies) for v in graph.values()) <= 17, "of a task, and of one that combines"


def test_both_operands_have_a_region_of_their_own() -> None:
    x = da.zeros((3000, 4000), chunks=500, dtype="i4")
    text = hjit.pipeline(gram).explain(x)
    assert (
        "partial results of 288 tasks, each reads 500 x 500 of x, 500 x 500 of x; they are combined in a tree" in text
    )
    text = hjit.pipeline(lambda x: (x // 3) @ (x // 3).T).explain(x)
    assert "288 tasks, each reads 500 x 500 of" in text
    assert "a product by Dask and BLAS, in 36 chunks" in hjit.pipeline(gram).explain(x.astype("f4"))


def test_nothing_is_computed_at_the_call() -> None:
    for dtype in ("i4", "f4"):
        x = da.from_delayed(dask.delayed(never)(), (1000, 1200), np.dtype(dtype)).rechunk((300, 500))
        found = hjit.pipeline(gram)(x)
        assert found.shape == (1000, 1000) and found.numblocks == (4, 4)
        with pytest.raises(AssertionError, match="a chunk was computed"):
            found.compute()
