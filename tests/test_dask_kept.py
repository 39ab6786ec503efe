"""Stages that several subgraphs need: kept where there is room for them, else computed again."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.chunks import kept_stages, kernels, limits, subgraphs, tasks
from hjit.chunks.cut import cut_graph
from tests.fuzz import random_program
from tests.test_dask import CASES, assert_as_numpy, chunked, equalised, image, stretched, tasks_of
from tests.test_dask_scans import CASES as SCANS

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
ndimage = pytest.importorskip("scipy.ndimage")
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    cut_graph.cache_clear()  # tests change limits
    with dask.config.set(scheduler="sync"):
        yield
    cut_graph.cache_clear()


def set_room(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Bytes of what may be kept; whatever fits is."""
    monkeypatch.setattr(tasks, "kept_bytes", lambda: room)
    monkeypatch.setattr(kept_stages, "KEPT_COST", 0)
    monkeypatch.setattr(kept_stages, "TASK_COST", 0)


def kept_of(f: Callable[..., Any], *args: Any) -> set[str]:
    return set(tasks_of(f, *args).cutter.kept)


def contrast(img: Array) -> Any:
    blurred = ndimage.gaussian_filter(img.astype(np.float32), 1.5)
    found = np.clip(img + 2 * (img - blurred), 0, 255).astype(np.uint8)
    return np.bincount(found.ravel(), minlength=256).cumsum().astype(np.int32)[found]


def normalised_twice(x: Array) -> Any:
    rough = np.sqrt(np.abs(x)) + np.abs(x - x.mean())
    smooth = np.exp(-rough / rough.max())
    return smooth / smooth.max(), rough


def row_by_row(x: Array) -> Any:
    a = np.exp(x / 9)
    return a.cumsum(0) / (a.sum() + a.cumsum(1))


OWN = [(contrast, (image((110, 150), "u1"),)), (normalised_twice, (image((90, 70), "f8"),))]
OWN += [(row_by_row, (image((90, 70), "f8"),))]


@pytest.mark.parametrize(("f", "args"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_numbers_are_numpy_s(f: Callable[..., Any], args: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    set_room(monkeypatch, 1 << 30)
    monkeypatch.setattr(subgraphs, "SMALL_WORK", 1)
    first, *others = args
    assert_as_numpy(f, args, [chunked(first, random.Random(f.__name__)), *others])


@pytest.mark.parametrize("f", SCANS, ids=[f.__name__ for f in SCANS])
def test_numbers_of_scans_are_numpy_s(f: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    set_room(monkeypatch, 1 << 30)
    monkeypatch.setattr(subgraphs, "SMALL_WORK", 1)
    x = image((97, 133), "i2")
    assert_as_numpy(f, (x,), [da.from_array(x, chunks=(20, 31))])


@pytest.mark.parametrize("seed", [114, 213, *range(4)])
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    set_room(monkeypatch, 1 << 30)
    monkeypatch.setattr(subgraphs, "SMALL_WORK", 1)
    r, program = random.Random(seed), random_program(seed)
    args = tuple(program.args.values())
    with np.errstate(all="ignore"):
        assert_as_numpy(
            program.function(), args, [chunked(a.copy(), r) if isinstance(a, np.ndarray) else a for a in args]
        )


@pytest.mark.parametrize(("f", "args"), OWN, ids=[f.__name__ for f, _ in OWN])
def test_bits_do_not_depend_on_what_is_kept(
    f: Callable[..., Any], args: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subgraphs, "SMALL_WORK", 1)
    lazy = [da.from_array(a, chunks=40) for a in args]
    found, names = [], []
    for room in (0, 1 << 30):
        set_room(monkeypatch, room)
        names.append(kept_of(f, *lazy))
        found.append(dask.compute(hjit.pipeline(f)(*lazy)))
    assert not names[0] and names[1]
    for a, b in zip(*map(np.atleast_1d, map(np.array, found)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_each_stage_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = da.zeros((8000, 8000), chunks=1000, dtype="u1")
    made = tasks_of(contrast, x)
    first, counts, result = made.subgraphs
    (name,) = made.cutter.kept
    assert first.outputs == (name,) and made.graph.dtypes[name] == np.uint8
    assert name in counts.reads and name in result.reads, "nobody computes it again"
    assert f"{name}: kept" in "\n".join(made.lines())
    monkeypatch.setattr(tasks, "kept_bytes", lambda: x.nbytes - 1)
    assert not kept_of(contrast, x), "there is no room for it"


def test_the_room_is_for_all_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x = da.zeros((800, 800), chunks=100, dtype="f8")
    monkeypatch.setattr(subgraphs, "SMALL_WORK", 1)
    found = []
    for room in (3 * x.nbytes, x.nbytes, 0):
        set_room(monkeypatch, room)
        made = tasks_of(normalised_twice, x)
        found.append(len(made.cutter.kept))
        assert made.cut.room == room - found[-1] * x.nbytes
    assert found == [2, 1, 0]


def test_what_is_cheap_is_computed_again() -> None:
    x = da.zeros((8000, 8000), chunks=1000, dtype="u1")
    assert not kept_of(lambda x: (x + 1) / (x + 1).max(), x)
    small = da.zeros((800, 800), chunks=100, dtype="u1")
    assert kept_of(contrast, x) and not kept_of(contrast, small), "a task costs more than such a chunk"


def test_the_limit_is_a_share_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory", lambda: 1 << 31)
    assert limits.kept_bytes() == (1 << 31) // limits.KEPT_SHARE
    monkeypatch.setattr(limits, "memory", lambda: 1 << 46)
    assert limits.kept_bytes() == limits.MAX_KEPT_BYTES


def test_kernels_are_known_to_later_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(
        kernels.SubgraphKernel, "_built", lambda *a, f=kernels.SubgraphKernel._built: built.append(1) or f(*a)
    )
    kernels._scheduled.clear()
    x = image((300, 400), "u1")
    for f in (equalised, stretched):
        p = hjit.pipeline(f, tune=False)
        expected = f(x)
        for k in range(3):
            lazy = p(da.from_array(x, chunks=(100, 90)))
            if k == 2:  # as in another process, which gets the kernels by pickle
                lazy = pickle.loads(pickle.dumps(lazy))
            np.testing.assert_array_equal(lazy, expected)
            if k == 0:
                made = len(built)
        assert len(built) == made, "built once"
    assert 0 < len(kernels._scheduled) <= limits.KEPT_KERNELS
    monkeypatch.setattr(kernels, "KEPT_KERNELS", 1)
    np.testing.assert_array_equal(hjit.pipeline(contrast, tune=False)(da.from_array(x, chunks=100)), contrast(x))
    assert len(kernels._scheduled) == 1


def test_a_graph_is_cut_once_for_arrays_with_the_same_chunks() -> None:
    p = hjit.pipeline(lambda x, k: contrast(x) // k, tune=False)
    cut_graph.cache_clear()
    x, other = image((300, 400), "u1"), image((300, 400), "u1", seed=1)
    lazy = [p(da.from_array(a, chunks=(100, 90)), 3) for a in (x, other)]
    assert cut_graph.cache_info().misses == 1 and lazy[0].name != lazy[1].name
    for found, a in zip(lazy, (x, other), strict=True):
        np.testing.assert_array_equal(found, p.py_func(a, 3))
    np.testing.assert_array_equal(p(da.from_array(x, chunks=100), 3), p.py_func(x, 3))
    assert cut_graph.cache_info().misses == 2, "other chunks"
    np.testing.assert_array_equal(p(da.from_array(x, chunks=100), 5), p.py_func(x, 5))


def test_indices_that_follow_from_scalars_are_theirs() -> None:
    @hjit.pipeline
    def shifted(x: Array, by: float) -> Any:
        rows = np.minimum(np.arange(x.shape[0]) * by, x.shape[0] - 1).astype(np.int64)
        return x[rows] + 1

    x = image((300, 400), "f4")
    for by in (1.0, 0.5, 0.0, -0.0, 1.0):
        np.testing.assert_array_equal(shifted(da.from_array(x, chunks=100), by), shifted.py_func(x, by))
