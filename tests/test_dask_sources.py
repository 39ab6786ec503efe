"""Tasks read their windows from where chunks are loaded from, if any window of that is read as well as a chunk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.chunks import limits, tasks
from hjit.chunks.cut import cut_graph
from tests.test_dask import OnDisk, equalised, image, one_thread, unsharp  # noqa: F401 (the fixture)

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
native = pytest.importorskip("hjit.chunks.native")
Array = np.ndarray[Any, Any]


class Contiguous(OnDisk):
    """A file that is not stored in chunks: it says so as data sets of HDF5 do."""

    chunks = None


def loads(array: Any) -> int:
    """The tasks that load chunks."""
    graph = dict(da.optimize(array.__dask_graph__(), array.__dask_keys__()))
    return sum(str(k).startswith(("('array-", "('original-")) for k in graph)


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_graph.cache_clear()
    monkeypatch.setattr(tasks, "kept_bytes", lambda: 0)


def strided(x: Array) -> Any:
    return x[1::2, ::3] + x[:-1:2, ::3]


def mirrored(x: Array) -> Any:
    return np.pad(x, ((7, 3), (2, 0)), mode="reflect") * 2


FUNCTIONS = (unsharp, equalised, strided, mirrored, lambda x: x.cumsum(0), lambda x: x - x.sum(0), lambda x: x.max(1))


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("chunks", [64, (100, 37), ((1, 149, 3, 47), (100, 1, 99))])
def test_numbers_are_numpy_s(f: Callable[..., Any], chunks: Any, no_room: None) -> None:
    x = image((200, 200), "u1")
    for asarray in (False, True):
        found = hjit.pipeline(f)(da.from_array(Contiguous(x), chunks=chunks, asarray=asarray))
        np.testing.assert_array_equal(found, f(x))


def test_no_task_loads_chunks_where_windows_are_read(no_room: None) -> None:
    x = image((300, 400), "u1")
    for f, passes in ((unsharp, 1), (equalised, 2)):
        file = Contiguous(x)
        lazy = da.from_array(file, chunks=100, asarray=False)
        found = hjit.pipeline(f)(lazy)
        assert loads(found) == 0
        file.count = 0
        np.testing.assert_array_equal(found, f(x))
        assert file.count == 12 * passes
        np.testing.assert_array_equal(found[130:140, :5], f(x)[130:140, :5])
        assert dask.compute(found - lazy, lazy)[1].shape == x.shape
        assert loads(hjit.pipeline(f)(da.from_array(OnDisk(x), chunks=100, asarray=False))) >= 12
        assert loads(hjit.pipeline(f)(lazy.map_blocks(np.negative))) <= 12


def test_a_mapped_file_and_one_with_a_lock(tmp_path: Path, no_room: None) -> None:
    x = image((300, 400), "u1")
    mapped = np.memmap(tmp_path / "x.raw", np.uint8, "w+", shape=x.shape)
    mapped[:] = x
    lock = threading.Lock()
    for lazy in (da.from_array(mapped, chunks=70), da.from_array(Contiguous(x), chunks=90, lock=lock)):
        found = hjit.pipeline(equalised)(lazy)
        assert loads(found) == 0
        np.testing.assert_array_equal(found, equalised(x))
    assert not lock.locked()


def test_chunks_are_loaded_once_where_several_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where two subgraphs read an array in one pass, or there is room to keep its chunks, or windows overlap much."""
    x = image((300, 400), "u1")
    cut_graph.cache_clear()
    monkeypatch.setattr(tasks, "kept_bytes", lambda: x.nbytes)
    for f, chunks in ((lambda x: (x.sum(0), x.sum(1)), 100), (equalised, 100), (unsharp, 20)):
        file = Contiguous(x)
        lazy = da.from_array(file, chunks=chunks, asarray=False)
        found = hjit.pipeline(f)(lazy)
        file.count = 0
        for one, expected in zip(dask.compute(found), [f(x)], strict=True):
            np.testing.assert_array_equal(one[0], expected[0])
        assert file.count == lazy.npartitions
    assert limits.READ_AGAIN < 2


def test_the_source_is_that_of_the_chunks() -> None:
    x = image((30, 40), "u1")
    lazy = da.from_array(Contiguous(x), chunks=10)
    source = native.source_of(lazy, "first-a")
    assert (
        source is not None and isinstance(source.value, Contiguous) and source.graph.keys() == {source.key, "first-a"}
    )
    np.testing.assert_array_equal(source.get(source.value, (slice(3, 9), slice(0, 2)), **source.settings), x[3:9, :2])
    for other in (lazy[1:], lazy.rechunk(15), lazy + 1, da.from_array(x, chunks=10), da.zeros((3, 3), chunks=2)):
        assert native.source_of(other, "first-a") is None
