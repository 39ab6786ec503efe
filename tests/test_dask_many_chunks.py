"""Small arrays of Dask in very many chunks: the graph stays linear in their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.chunks import reads
from tests.test_dask import CASES, assert_as_numpy, equalised, image, one_thread  # noqa: F401 (the fixture)

da = pytest.importorskip("dask.array")
Array = np.ndarray[Any, Any]


def extremes(x: Array) -> Any:
    return x.argmax(), x.argmin(0), x.argmax(1)


def without_the_mean(x: Array) -> Any:
    return (x[::-1].astype(np.float32) - x.max(0)) / (x.min() + 1)


def rows_anywhere(x: Array) -> Any:
    return x[x[:, 0].astype(np.intp) % x.shape[0]] + 1


def of_running_sums(x: Array) -> Any:
    s = x.cumsum(0)
    return s[x[:, 0].astype(np.intp) % x.shape[0]] // 3 + x.sum(0)


FUNCTIONS = [extremes, without_the_mean, rows_anywhere, of_running_sums, equalised]


@pytest.mark.parametrize("f", FUNCTIONS, ids=[f.__name__ for f in FUNCTIONS])
def test_tasks_need_few_others_each(f: Callable[..., Any]) -> None:
    for n in (160, 640):
        found = hjit.pipeline(f)(da.zeros((n, 40), chunks=(1, 40), dtype="u1"))
        graph: dict[Any, Any] = {}
        for y in found if isinstance(found, tuple) else (found,):
            graph |= da.optimize(y.__dask_graph__(), y.__dask_keys__())
        assert sum(len(v.dependencies) for v in graph.values()) < 5 * len(graph)


@pytest.mark.parametrize("f", FUNCTIONS, ids=[f.__name__ for f in FUNCTIONS])
def test_numbers_are_numpy_s(f: Callable[..., Any]) -> None:
    x = image((90, 17), "u1")
    assert_as_numpy(f, (x,), [da.from_array(x, chunks=(1, 17))])


@pytest.mark.parametrize(("f", "args"), [c for c in CASES if len(c[1]) == 1], ids=lambda x: getattr(x, "__name__", ""))
def test_numbers_where_any_array_is_put_together(
    f: Callable[..., Any], args: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "FEW_READS", 0)
    monkeypatch.setattr(reads, "READS", 1)
    (x,) = args
    assert_as_numpy(f, (x,), [da.from_array(x, chunks=tuple(max(n // 3, 1) for n in x.shape))])


def test_explain_says_so() -> None:
    p = hjit.pipeline(rows_anywhere)
    said = "the chunks of x, which is small, are put together first"
    assert said in p.explain(da.zeros((300, 40), chunks=(1, 40)))
    assert said not in p.explain(da.zeros((300, 40), chunks=(100, 40)))
    assert said not in p.explain(da.zeros((30000, 40), chunks=(100, 40)))
