"""Arrays of Dask as arguments: lazy results with NumPy's numbers, whatever the chunks."""

from __future__ import annotations

import pickle
import random
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.call.arguments import leaves_of
from hjit.chunks import subgraphs, tasks
from hjit.chunks.cut import cut_graph
from hjit.chunks.kernels import SubgraphKernel
from hjit.errors import HjitWarning, TraceError
from hjit.kernels.runtime import kernel
from tests.fuzz import random_program
from tests.numpy_check import watched_scratch

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
ndimage = pytest.importorskip("scipy.ndimage")
Array = np.ndarray[Any, Any]
CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    cut_graph.cache_clear()  # tests change limits
    with dask.config.set(scheduler="sync"):
        yield
    cut_graph.cache_clear()


def image(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return random.normal(size=shape).astype(dtype)
    return random.integers(0, 255, shape).astype(dtype)


GREY, FLOAT, RGB = image((110, 150), "u1"), image((97, 133), "f4"), image((90, 70, 3), "u1")
VOLUME = image((30, 40, 50), "f4")


def case(*args: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(f: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append((f, args))
        return f

    return keep


# -- stencils


@case(GREY)
def unsharp(img: Array) -> Any:
    x = img.astype(np.float32)
    h, w = img.shape
    p = np.pad(x, 2, mode="edge")
    rows = sum(p[i : i + h, 2 : 2 + w] for i in range(5)) / 5
    q = np.pad(rows, ((0, 0), (2, 2)), mode="reflect")
    blurred = sum(q[:, i : i + w] for i in range(5)) / 5
    return np.clip(x + 1.5 * (x - blurred), 0, 255).astype(np.uint8)


@case(FLOAT)
def sizes_as_numbers(img: Array) -> Any:
    h, w = img.shape
    y, x = np.ogrid[:h, :w]
    inside = (y - h / 2) ** 2 + (x - 0.5 * w) ** 2 < (0.4 * min(h, w)) ** 2
    shifted = img[np.clip(np.arange(h) + 2, 0, h - 1)]
    return np.where(inside, img, shifted) * (h / w) + np.linspace(0, w - 1, w) / img.size * np.array(img.shape)[0]


@case(GREY)
def constant_border(x: Array) -> Any:
    return np.pad(x, 3, constant_values=7)


@case(FLOAT)
def symmetric_border(x: Array) -> Any:
    p = np.pad(x, 4, mode="symmetric")
    return p[8:, 4:-4] - p[:-8, 4:-4]


@case(FLOAT)
def wrapped_border(x: Array) -> Any:
    return np.pad(x, ((3, 0), (0, 3)), mode="wrap")[:-3, 3:] + x


@case(FLOAT)
def border_of_a_part(x: Array) -> Any:
    return np.pad(x[1:-1, :-2], (3, 0), mode="wrap")


@case(FLOAT)
def border_wider_than_chunks(x: Array) -> Any:
    return ndimage.uniform_filter(x, 41, mode="mirror")


@case(GREY)
def median(x: Array) -> Any:
    p = np.pad(x, 1, mode="symmetric")
    h, w = x.shape
    return np.median(np.stack([p[i : i + h, j : j + w] for i in range(3) for j in range(3)]), 0)


@case(GREY)
def local_maximum(x: Array) -> Any:
    return ndimage.maximum_filter(x, 5) == x


@case(VOLUME)
def volume(v: Array) -> Any:
    return np.pad(v, 1, mode="edge")[2:, 1:-1, :-2] + v


@case(FLOAT)
def gradient(x: Array) -> Any:
    return np.gradient(x)


@case(FLOAT)
def borders_by_hand(x: Array) -> Any:
    out = np.empty_like(x)
    out[1:-1] = x[2:] - x[:-2]
    out[0], out[-1] = x[0], 2 * x[-1]
    out[:, 0] += 3
    return out


# -- strides, other shapes


@case(GREY)
def pieces(x: Array) -> Any:
    out = np.zeros_like(x)
    out[0::2, 1::2], out[1::2, 0::2] = x[0::2, 1::2], x[1::2, 0::2] // 2
    out[50:70] += 3
    return out


@case(FLOAT)
def pyramid(x: Array) -> Any:
    h, w = x.shape
    x = x[: h // 4 * 4, : w // 4 * 4]
    half = (x[::2, ::2] + x[1::2, ::2] + x[::2, 1::2] + x[1::2, 1::2]) / 4
    p = np.pad(half, 1, mode="edge")
    quarter = (p[:-2:2, 1:-1:2] + p[1:-1:2, 1:-1:2] + p[2::2, 1:-1:2]) / 3
    return x - np.repeat(np.repeat(quarter, 4, 0), 4, 1)


@case(FLOAT)
def resized(x: Array) -> Any:
    i = (np.arange(200) * x.shape[0] / 200).astype(int)
    j = (np.arange(60) * x.shape[1] / 60).astype(int)
    return x[i[:, None], j]


@case(FLOAT)
def transposed(x: Array) -> Any:
    return x.T.copy()[:, ::-1] + 1


@case(FLOAT)
def several_shapes(x: Array) -> Any:
    return {"t": x.T * 2, "f": (x.ravel() * 2, x[::2, 3:]), "j": np.concatenate([x, x[::2] * 2]), "n": 3}


@case(FLOAT)
def blocks(x: Array) -> Any:
    h, w = x.shape
    return x[: h // 10 * 10, : w // 10 * 10].reshape(h // 10, 10, w // 10, 10).max((1, 3))


@case(FLOAT)
def positions(x: Array) -> Any:
    rows, columns = np.mgrid[: x.shape[0], : x.shape[1]]
    return np.where(rows > columns, x * rows.astype(np.float32), x - columns.astype(np.float32))


# -- reductions, then the rest


@case(GREY)
def equalised(img: Array) -> Any:
    counts = np.bincount(img.ravel(), minlength=256)
    total = counts.cumsum()
    return (total * 255 / total[-1]).astype(np.uint8)[img]


@case(FLOAT)
def stretched(x: Array) -> Any:
    low, high = x.min(), x.max()
    return (x - low) / (high - low)


@case(GREY)
def sums(x: Array) -> Any:
    return x.sum(0), x.sum(axis=1), x.max(), x.sum(), (x > 9).any(), np.count_nonzero(x > 1), x.min(1, keepdims=True)


@case(FLOAT)
def positions_of_extremes(x: Array) -> Any:
    return x.argmax(), x.argmin(0), x.argmax(1)


@case(RGB)
def channels(x: Array) -> Any:
    return x - x.max((0, 1)), x[..., 0] * 0.5 + x[..., 1]


@case(GREY)
def scattered(x: Array) -> Any:
    out = np.zeros(40, np.int64)
    np.add.at(out, x % 40, 1)
    return out


# -- what follows along an axis


@case(GREY)
def integral(x: Array) -> Any:
    return x.astype(np.int64).cumsum(0).cumsum(1)


@case(GREY)
def local_contrast(x: Array) -> Any:
    s = np.pad(x.astype(np.int64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    return x[4:-4, 4:-4] * 81 - (s[9:, 9:] - s[:-9, 9:] - s[9:, :-9] + s[:-9, :-9])


@case(FLOAT)
def recursive(x: Array) -> Any:
    y = np.empty_like(x)
    y[0] = x[0]
    for i in range(1, x.shape[0]):
        y[i] = 0.5 * y[i - 1] + x[i]
    return y


@case(FLOAT, 1.5, np.float32(2), FLOAT[0])
def mixed(x: Array, a: float, b: Any, row: Array) -> Any:
    return x * a + b - row


def chunked(a: Array, r: random.Random) -> Any:
    """The array in random chunks."""
    chunks = [n if n <= 3 else r.choice((n, max(n // 3, 1), r.randint(min(5, n), n))) for n in a.shape]
    return da.from_array(a, chunks=tuple(chunks))


def assert_as_numpy(f: Callable[..., Any], args: tuple[Any, ...], given: list[Any]) -> Any:
    """The lazy results, whose dtypes, shapes and numbers are NumPy's."""
    lazy = hjit.pipeline(f)(*given)
    with watched_scratch():
        found = dask.compute(lazy)[0]
    expected = f(*args)
    assert type(lazy) is type(expected) or not isinstance(expected, (tuple, list, dict))
    for x, a, b in zip(*map(leaves_of, (lazy, found, expected)), strict=True):
        if isinstance(x, da.Array):
            assert (x.dtype, x.shape, x._meta.dtype) == (np.asarray(b).dtype, np.shape(b), np.asarray(b).dtype)
        np.testing.assert_array_equal(np.asarray(a), b)
        assert np.asarray(a).dtype == np.asarray(b).dtype
    return lazy


@pytest.mark.parametrize("few", [1, subgraphs.SMALL_WORK])
@pytest.mark.parametrize(("f", "args"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_numbers_are_numpy_s(
    f: Callable[..., Any], args: tuple[Any, ...], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subgraphs, "SMALL_WORK", few)  # 1: what is large here is what in larger images is
    first, *others = args
    assert_as_numpy(f, args, [chunked(first, random.Random(f"{f.__name__} {few}")), *others])


@pytest.mark.parametrize("seed", [114, 116, 117, 213, 302, *range(3)])
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    r = random.Random(seed)
    program = random_program(seed)
    monkeypatch.setattr(subgraphs, "SMALL_WORK", r.choice((1, 200, 1 << 16)))
    args = tuple(program.args.values())
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_as_numpy(
            program.function(), args, [chunked(a.copy(), r) if isinstance(a, np.ndarray) else a for a in args]
        )


def never(*_: Any) -> Any:
    raise AssertionError("a chunk was computed")


def test_nothing_is_computed_at_the_call() -> None:
    img = da.from_delayed(dask.delayed(never)(), (1000, 1200), np.uint8).rechunk((300, 500))
    found = hjit.pipeline(unsharp)(img)
    assert isinstance(found, da.Array)
    assert (found.dtype, found.shape, found.chunks) == (np.uint8, img.shape, img.chunks)
    assert type(found._meta) is np.ndarray and found._meta.dtype == np.uint8
    half = hjit.pipeline(lambda x: x[::2, ::2] + 1)(img)
    assert half.shape == (500, 600) and half.numblocks == (4, 3)
    low, high = hjit.pipeline(lambda x: (x.min(), x.max(0)))(img)
    assert (low.shape, high.chunks) == ((), (img.chunks[1],))
    with pytest.raises(AssertionError, match="a chunk was computed"):
        found.compute()


def test_one_kernel_for_all_chunks_inside_and_one_for_those_at_the_border() -> None:
    img = image((600, 700), "u1")
    p = hjit.pipeline(lambda x: np.pad(x, 1, mode="edge")[2:, 1:-1] // 3 + x, cache="off")
    found = p(da.from_array(img, chunks=(100, 70)))
    before = kernel.made()[0]
    np.testing.assert_array_equal(found, p.py_func(img))
    assert kernel.made()[0] - before == 2
    other = image((460, 900), "u1")
    np.testing.assert_array_equal(p(da.from_array(other, chunks=(92, 300))), p.py_func(other))
    assert kernel.made()[0] - before == 2, "other sizes, the same kernels"


def tasks_of(f: Callable[..., Any], *args: Any) -> Any:
    """What computes a call."""
    from hjit.call.other_arrays.on_dask import traced_call
    from hjit.trace.capture.trace import PyTree, flatten

    leaves: list[Any] = []
    structure = PyTree(tuple, (flatten(args, leaves), flatten({}, leaves)))
    p = hjit.pipeline(f)
    return traced_call(p._others.dask_settings(p), structure, leaves).tasks


def read_of(subgraph: Any, name: str) -> list[int]:
    """The largest window of an array that a task reads."""
    return [int((high - low).max()) + 1 for low, high in subgraph.required[name]]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.zeros(x.shape, np.uint8),
        lambda x: np.indices(x.shape)[0],
        lambda x: np.arange(x.shape[0])[:, None] * np.arange(x.shape[1]),
    ],
)
def test_what_reads_no_array_has_chunks_as_arguments_have(f: Callable[..., Any]) -> None:
    x = da.zeros((200_000, 200_000), chunks=4000, dtype=np.uint8)
    found = hjit.pipeline(f)(x)
    assert found.chunks == x.chunks
    small = np.zeros((50, 40), np.uint8)
    np.testing.assert_array_equal(hjit.pipeline(f)(da.from_array(small, chunks=(20, 30))), f(small))


def test_kernels_of_chunks_are_looked_at_by_arrays_of_numpy() -> None:
    f, x = hjit.pipeline(lambda x: x + 1), da.ones((40, 50), chunks=20)
    for look in (f.graph, f.tree, f.schedule, f.loops, f.inspect_llvm, f.inspect_asm):
        with pytest.raises(hjit.HjitError, match="What to do: look at those of a NumPy array as large as one chunk"):
            look(x)
    with pytest.raises(ValueError, match=r"is needed, not a dask\.array\.core\.Array"):
        f.into(x, np.ones((40, 50)))


def test_a_task_reads_what_it_needs_and_no_more() -> None:
    (subgraph,) = tasks_of(unsharp, da.zeros((4000, 5000), chunks=(500, 1000), dtype="u1")).subgraphs
    assert read_of(subgraph, "img") == [504, 1004]
    (subgraph,) = tasks_of(pyramid, da.zeros((4000, 4000), chunks=400, dtype="f4")).subgraphs
    assert read_of(subgraph, "x") == [402, 400]  # the quarter's rows need one of the half's before, which is two here
    (subgraph,) = tasks_of(resized, da.zeros((4000, 6000), chunks=1000, dtype="f4")).subgraphs
    assert len(subgraph.grid[0]) == 4 and read_of(subgraph, "x") == [981, 901]


def test_reductions_are_trees_of_partial_results() -> None:
    tasks = tasks_of(equalised, da.zeros((4000, 5000), chunks=(500, 1000), dtype="u1"))
    counts, result = tasks.subgraphs
    assert counts.pieces == ((500,) * 8, (1000,) * 5)
    assert read_of(counts, "img") == read_of(result, "img") == [500, 1000]
    low_and_high, _ = tasks_of(stretched, da.zeros((4000, 5000), chunks=500, dtype="f4")).subgraphs
    assert len(low_and_high.outputs) == 2, "an array is read once for both"


def test_float_sums_are_as_near_as_numpy_s() -> None:
    x = image((900, 1100), "f4") + 3
    p = hjit.pipeline(lambda x: (x.sum(), x.mean(0), x.std()))
    for found, exact in zip(
        dask.compute(*p(da.from_array(x, chunks=(170, 210)))), p.py_func(x.astype("f8")), strict=True
    ):
        np.testing.assert_allclose(found, exact, rtol=1e-6)


def test_explain() -> None:
    x = da.zeros((4000, 5000), chunks=1000, dtype="u1")
    text = hjit.pipeline(equalised).explain(x)
    assert "a reduction: partial results of 20 tasks, each reads 1000 x 1000 of img" in text
    text = hjit.pipeline(lambda img: img.cumsum(0)).explain(x)
    assert "20 tasks, each reads 1000 x 1000 of img" in text
    assert "along axis 0 each chunk of add goes on from the last of the one before it" in text
    text = hjit.pipeline(lambda img, at: img.ravel()[at]).explain(x, x)
    assert "one task, as every element may need any element" in text
    text = hjit.pipeline(lambda img: np.unique(img)).explain(x)
    assert "runs as the plain function does" in text and "depends on the image's values" in text


def test_rows_in_any_order_need_all_rows() -> None:
    x, order = image((400, 400), "f4"), np.random.default_rng(0).permutation(400)
    p = hjit.pipeline(lambda x, order: x[order] + 1)
    lazy = da.from_array(x, chunks=(100, 90)), da.from_array(order, chunks=100)
    assert "5 tasks, each reads 400 x 90 of x" in p.explain(*lazy)
    np.testing.assert_array_equal(p(*lazy), p.py_func(x, order))


def test_decisions_are_computed_at_the_call_and_say_so() -> None:
    @hjit.pipeline
    def f(x: Array) -> Any:
        return x / x.max() if x.max() > 1 else x

    x = image((210, 330), "f4")
    with pytest.warns(HjitWarning, match="decides on values of Dask's arrays"):
        found = f(da.from_array(x, chunks=70))
    np.testing.assert_array_equal(found, f.py_func(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(da.from_array(x, chunks=70))  # once
        hjit.pipeline(f.py_func).quiet()(da.from_array(x, chunks=70))


def test_numbers_are_lazy_until_python_needs_them() -> None:
    x = image((210, 330), "f4")
    lazy = da.from_array(x, chunks=70)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = hjit.pipeline(lambda x: (float(x.max()), x.min().item(), x / float(x.max())))(lazy)
    assert [(type(r), r.shape) for r in found] == [(da.Array, ()), (da.Array, ()), (da.Array, x.shape)]
    assert (float(found[0]), float(found[1])) == (float(x.max()), x.min().item())
    for f in (lambda x: bool(x.max() > 3), lambda x: int(x.max() * 10), lambda x: f"{x.max():.2f}"):
        with pytest.warns(
            HjitWarning, match=r"\(if, bool, int, round, or a text of one\): they are computed at the call"
        ):
            number = hjit.pipeline(f)(lazy)
        assert type(number) is type(f(x)) and number == f(x)


def test_what_cannot_be_traced_runs_as_it_does_without_hjit() -> None:
    x = image((60, 70), "f4")
    lazy = da.from_array(x, chunks=(60, 70))
    with pytest.warns(HjitWarning, match="as the plain function does on arrays of Dask"):
        found = hjit.pipeline(lambda x: np.unique(x) * 2, on_unsupported="break")(lazy)
    np.testing.assert_array_equal(found, np.unique(x) * 2)
    with pytest.raises(TraceError):
        hjit.pipeline(lambda x: np.unique(x), on_unsupported="raise")(lazy)
    unknown = lazy[lazy[:, 0] > 0]
    with pytest.raises(TraceError, match="unknown lengths"):
        hjit.pipeline(lambda x: x + 1, on_unsupported="raise")(unknown)


def test_functions_that_are_written_for_arrays_of_dask_run_as_without_hjit() -> None:
    def smooth(a: Any) -> Any:
        return a.map_overlap(lambda x: x * 2, depth=1, boundary="nearest").rechunk(10)

    x = image((60, 70), "f4")
    lazy = da.from_array(x, chunks=(30, 70))
    p = hjit.pipeline(smooth, on_unsupported="break")
    assert "'map_overlap'" in p.explain(lazy)
    with pytest.warns(HjitWarning, match="no attribute 'map_overlap'"):
        np.testing.assert_array_equal(p(lazy), x * 2)
    with pytest.raises(ValueError, match="total size of new array"), warnings.catch_warnings():
        warnings.simplefilter("error")  # not of an exception that is the function's own
        hjit.pipeline(lambda a: a.reshape(7, 9) + 1, on_unsupported="break")(lazy)


def test_what_numpy_refuses() -> None:
    table, index = image((50,), "f4"), image((90, 80), "i4") % 50
    f = hjit.pipeline(lambda table, index: table[index])
    np.testing.assert_array_equal(f(table, da.from_array(index, chunks=30)), table[index])
    index[77, 66] = 50
    with pytest.raises(IndexError):
        f(table, da.from_array(index, chunks=30)).compute()
    g = hjit.pipeline(lambda x, n: x**n)
    x, n = image((40, 50), "i8"), image((40, 50), "i8") % 3
    assert "on whole arrays, in one task" in g.explain(da.from_array(x, chunks=20), da.from_array(n, chunks=20))
    found = g(da.from_array(x, chunks=20), da.from_array(n, chunks=20))
    np.testing.assert_array_equal(found, x**n)
    n[3, 4] = -1
    with pytest.raises(ValueError, match="negative"):
        g(da.from_array(x, chunks=20), da.from_array(n, chunks=20)).compute()


def test_arguments_that_are_changed() -> None:
    @hjit.pipeline
    def f(x: Array) -> Any:
        x[1:-1] *= 2
        x[0] = 3
        return x, x.sum(1)

    x = image((80, 90), "i4")
    given = da.from_array(x.copy(), chunks=30)
    same, sums = f(given)
    assert same is given
    expected = f.py_func(x)
    np.testing.assert_array_equal(given, expected[0])
    np.testing.assert_array_equal(sums, expected[1])


def test_arrays_of_any_layout_in_chunks() -> None:
    x = image((90, 80), "f4")
    f = hjit.pipeline(lambda x: np.pad(x, 1, mode="edge")[2:, 2:] + 1)
    for lazy in (
        da.from_array(x.T, chunks=30),
        da.from_array(np.asfortranarray(x), chunks=(90, 80)),
        da.from_array(x[::-2, ::3], chunks=(90, 80)),
        da.broadcast_to(da.from_array(x[0], chunks=30), (70, 80), chunks=(40, 30)),
    ):
        np.testing.assert_array_equal(f(lazy), f.py_func(np.asarray(lazy)))


def test_an_array_without_axes_and_empty_ones() -> None:
    x = image((90, 80), "f4")
    lazy = da.from_array(x, chunks=40)
    np.testing.assert_array_equal(hjit.pipeline(lambda x, low: x - low)(lazy, lazy.min()), x - x.min())
    empty = hjit.pipeline(lambda x: x + 1)(lazy[:0])
    assert empty.shape == (0, 80) and empty.compute().shape == (0, 80)


EMPTY_CHUNKS = [
    ((0, 10, 14), (36,)),
    ((10, 0, 14), (36,)),
    ((10, 14, 0), (20, 0, 0, 16)),
    ((0, 24, 0), (0, 30, 0, 6, 0)),
]


@pytest.mark.parametrize("chunks", EMPTY_CHUNKS)
@pytest.mark.parametrize("f", [unsharp, positions, sums, integral, recursive, equalised, transposed, several_shapes])
def test_chunks_of_length_zero(f: Callable[..., Any], chunks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = image((24, 36), "u1")
    for few in (1, subgraphs.SMALL_WORK):
        monkeypatch.setattr(subgraphs, "SMALL_WORK", few)
        assert_as_numpy(f, (x,), [da.from_array(x, chunks=chunks)])
        assert_as_numpy(f, (x.T,), [da.from_array(x.T, chunks=chunks[::-1])])


def test_schedules_by_hand_apply_to_the_chunks() -> None:
    x = image((600, 700), "u1")
    p = hjit.pipeline(unsharp)
    s = p.schedule(x)
    s["rows"].root()
    p.use(s)
    np.testing.assert_array_equal(p(da.from_array(x, chunks=200)), unsharp(x))


def test_a_task_runs_on_one_thread_unless_a_number_is_given() -> None:
    x = da.zeros((100, 100), chunks=50)
    for options, threads in (({}, 1), ({"num_threads": 2}, 2)):
        graph = dict(hjit.pipeline(lambda x: x + 1, **options)(x).__dask_graph__())
        (made,) = (v.value for v in graph.values() if type(getattr(v, "value", None)) is SubgraphKernel)
        assert made.options.num_threads == threads


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_schedulers(scheduler: str) -> None:
    x = image((300, 400), "u1")
    for f in (unsharp, equalised):
        found = hjit.pipeline(f)(da.from_array(x, chunks=(70, 90)))
        np.testing.assert_array_equal(found.compute(scheduler=scheduler, num_workers=2), f(x))


def test_positions_beyond_32_bits_in_small_windows() -> None:
    x = da.zeros((70000, 70000), chunks=(1000, 900), dtype="u1")
    found = hjit.pipeline(lambda x: x.ravel()[::7] + np.uint8(1))(x)
    np.testing.assert_array_equal(found[-2:], [1, 1])
    found = hjit.pipeline(lambda x: x + np.arange(x.size).reshape(x.shape))(x)
    np.testing.assert_array_equal(found[-1, -2:], [70000**2 - 2, 70000**2 - 1])


def test_in_map_blocks_a_pipeline_is_a_function() -> None:
    x = image((60, 80), "f4")
    found = da.map_blocks(hjit.pipeline(lambda x: np.sqrt(np.abs(x)) * 2), da.from_array(x, chunks=20), dtype="f4")
    np.testing.assert_array_equal(found, np.sqrt(np.abs(x)) * 2)


def test_graphs_travel() -> None:
    from hjit.chunks.serialisation import deserialise_graph, serialise_graph

    for f, args in CASES[:20]:
        graph = tasks_of(f, *(da.from_array(x) if isinstance(x, np.ndarray) else x for x in args)).graph
        assert deserialise_graph(pickle.loads(pickle.dumps(serialise_graph(graph)))) == graph

    def deep(x: Array) -> Any:
        for k in range(700):
            x = x * x + k % 200
        return x

    graph = tasks_of(deep, da.zeros((20, 20), chunks=20, dtype="u1")).graph
    assert str(deserialise_graph(pickle.loads(pickle.dumps(serialise_graph(graph))))) == str(graph)


def of_the_guide(name: str) -> Any:
    """A function of the guide's page that is shown there, not run."""
    text = (Path(__file__).parents[1] / "docs" / "guide" / "dask.md").read_text()
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if f"def {name}(" in b)
    namespace: dict[str, Any] = {"da": da, "np": np, "sharpened": hjit.pipeline(unsharp)}
    exec(block, namespace)
    return namespace[name]


def test_every_function_that_the_guide_only_shows_is_tested() -> None:
    text = (Path(__file__).parents[1] / "docs" / "guide" / "dask.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert [b.split("(")[0] for b in blocks] == ["def on_a_cluster", "def with_xarray"]


@pytest.mark.slow
def test_a_cluster(tmp_path: Path) -> None:
    """The function of the guide, which starts two workers: from file to file."""
    pytest.importorskip("distributed")
    from benchmarks.mosaic import RawFile

    x = image((900, 1000), "u1")
    run = of_the_guide("on_a_cluster")
    for f in (lambda x: equalised(unsharp(x)), lambda x: np.sort(x, axis=0)):
        target = RawFile(tmp_path / "found.raw", x.shape).create()
        run(hjit.pipeline(f)(da.from_array(x, chunks=(170, 190))), target)
        np.testing.assert_array_equal(target[:], f(x))


class OnDisk:
    """What Dask reads chunks of, which counts them."""

    def __init__(self, array: Array) -> None:
        self.array, self.shape, self.dtype, self.ndim = array, array.shape, array.dtype, array.ndim
        self.count = 0

    def __getitem__(self, index: Any) -> Array:
        self.count += 1
        return self.array[index]


@pytest.mark.parametrize("has_room", [False, True])
def test_chunks_are_loaded_again_after_a_reduction_or_kept(has_room: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = image((300, 400), "u1")
    monkeypatch.setattr(tasks, "kept_bytes", lambda: x.nbytes - (not has_room))
    for f, passes in ((equalised, 2), (unsharp, 1), (lambda x: x - x.sum(0), 2), (lambda x: (x.sum(0), x.sum(1)), 1)):
        file = OnDisk(x)
        lazy = da.from_array(file, chunks=100, asarray=False)
        file.count = 0  # Dask looked at it
        results = dask.compute(hjit.pipeline(f)(lazy))[0]
        for found, expected in zip(leaves_of(results), leaves_of(f(x)), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert file.count == 12 * (1 if has_room else passes)
        computed = lazy.map_blocks(lambda b: b)
        before = file.count
        np.testing.assert_array_equal(leaves_of(dask.compute(hjit.pipeline(f)(computed))[0])[0], leaves_of(f(x))[0])
        assert file.count == before + 12, "what is computed is kept"


def test_xarray_hands_a_pipeline_the_whole_image() -> None:
    xr = pytest.importorskip("xarray")
    x = image((210, 330), "u1")
    data = xr.DataArray(da.from_array(x, chunks=100), dims=("y", "x"), coords={"y": np.arange(210)})
    for f in (unsharp, equalised, integral):
        found = xr.apply_ufunc(hjit.pipeline(f), data, dask="allowed")
        assert isinstance(found.data, da.Array) and found.dims == ("y", "x")
        np.testing.assert_array_equal(found, f(x))
    np.testing.assert_array_equal(of_the_guide("with_xarray")(data), unsharp(x))
    blocks = xr.apply_ufunc(
        hjit.pipeline(lambda x: np.sqrt(x / 255)), data, dask="parallelized", output_dtypes=[np.float64]
    )
    np.testing.assert_array_equal(blocks, np.sqrt(x / 255))


def test_in_map_blocks_and_map_overlap_blocks_are_what_a_pipeline_sees() -> None:
    x = image((120, 90), "f4")
    lazy = da.from_array(x, chunks=(40, 30))

    @hjit.pipeline
    def summed(block: Array) -> Any:
        return block.cumsum(0) + block.sum()

    expected = np.block([[summed.py_func(x[i : i + 40, j : j + 30]) for j in (0, 30, 60)] for i in (0, 40, 80)])
    np.testing.assert_allclose(lazy.map_blocks(summed, dtype="f4"), expected, rtol=1e-5, atol=1e-4)
    found = da.map_overlap(hjit.pipeline(local_maximum), lazy, depth=2, boundary="reflect", dtype=bool)
    np.testing.assert_array_equal(found, local_maximum(np.pad(x, 2, mode="symmetric"))[2:-2, 2:-2])
