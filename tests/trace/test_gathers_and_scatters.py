"""Gathers, scatters, searches and counts against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hjit
from hjit.errors import TraceError
from hjit.training.cases import leaves
from tests.trace.helpers import check, interpreted

DTYPES = ("uint8", "int16", "int64", "float32", "float64")
quick = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


def data(shape: Any, dtype: Any = "float64", seed: int = 0) -> np.ndarray[Any, Any]:
    a = np.random.default_rng(seed).standard_normal(shape)
    return a.astype(dtype) if np.dtype(dtype).kind == "f" else np.abs(a * 20).astype(dtype)


def places(n: int, shape: Any, seed: int = 0, negative: bool = True) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-n if negative else 0, n, shape)


@quick
@given(
    st.sampled_from([(1,), (5, 3), (20, 18), (3, 4, 17)]),
    st.sampled_from(DTYPES),
    st.sampled_from(["raise", "wrap", "clip"]),
    st.integers(0, 99),
)
def test_take_and_put(shape: Any, dtype: str, mode: str, seed: int) -> None:
    a, axis = data(shape, dtype), seed % len(shape)
    index = places(shape[axis], (2, 3), seed) * (1 if mode == "raise" else 3)
    flat = places(a.size, 7, seed) * (1 if mode == "raise" else 3)
    check(lambda a, i: np.take(a, i, axis=axis, mode=mode), a, index)
    check(lambda a, i: a.take(i, mode=mode), a, flat)
    check(lambda a: np.take(a, 0, axis=axis), a)
    check(lambda a, i, v: np.put(a, i, v, mode=mode), a, flat, data(3, dtype, 1))
    check(lambda a, i: np.put(a[..., ::2], i // 2, [1, 2], mode=mode), a, flat)
    along = places(shape[axis], tuple(4 if k == axis else n for k, n in enumerate(shape)), seed)
    check(lambda a, i: np.take_along_axis(a, i, axis), a, along)
    check(lambda a: np.take(a, [0.5]), a)
    check(lambda a, i: np.take_along_axis(a, np.argsort(i, axis), axis), a, data(shape, "float64", seed))
    check(lambda a, i, v: np.put_along_axis(a, i, v, axis), a, along, data(along.shape, dtype, 2))
    check(lambda a, i: np.put_along_axis(a, i, 3, axis), a, along)


@pytest.mark.parametrize("dtype", ["f4", "f8", "u8"])
def test_choose_takes_no_indices_that_int64_does_not_hold(dtype: str) -> None:
    function = lambda i, a: np.choose(i, [a, 7])  # noqa: E731
    i, a = np.ones((3, 4), dtype), np.ones((3, 4))
    for f in (function, hjit.pipeline(function, verify="off")):
        with pytest.raises(TypeError, match="according to the rule 'safe'"):
            f(i, a)


def test_what_choose_refuses_is_no_decision() -> None:
    def cheapest(costs: Any) -> Any:
        total, way = costs.copy(), np.zeros(costs.shape, int)
        for y in range(1, len(costs)):
            ways = np.array([np.roll(total[y - 1], k) for k in (1, 0, -1)])
            way[y] = np.argmin(ways, axis=0)
            total[y] += np.choose(way[y], ways)
        return total, way

    costs = data((30, 40), "f8")
    p = hjit.pipeline(cheapest, verify="off", on_unsupported="raise")
    for x in (costs, costs[::-1].copy()):
        assert all(map(np.array_equal, p(x), cheapest(x)))
    assert p.stats.traces == 1
    p = hjit.pipeline(lambda i, a: np.choose(i, [a, 7]), verify="off", on_unsupported="raise")
    for i in (0, 1, 2, -1, 1):
        if i in (0, 1):
            assert np.array_equal(p(np.full(9, i), np.ones(9)), np.full(9, 7.0 if i else 1.0))
        else:
            with pytest.raises(ValueError, match="invalid entry in choice array"):
                p(np.full(9, i), np.ones(9))


@pytest.mark.parametrize("dtype", DTYPES)
def test_choose_and_select(dtype: str) -> None:
    a, b, i = data((20, 3), dtype), data(3, dtype, 1), places(3, (20, 3), negative=False)
    check(lambda i, a, b: np.choose(i, [a, b, 7]), i, a, b)
    check(lambda i, a: np.choose(i, [2, a, 7.5]), i, a)
    check(lambda i, a: np.choose(i - 5, [a, 1], mode="wrap"), i, a)
    check(lambda i, a: np.choose(i * 2, (a, 1), mode="clip"), i, a)
    check(lambda i, a: np.choose(a > 3, (a, 1)), i, a)
    check(lambda i, a: i.choose([a, 7, a]), i, a)
    check(lambda a: a.compress([True, False, True], axis=1), a)
    check(lambda a: np.compress([True, False, True], a, axis=1), a)
    check(lambda a: np.extract(np.arange(60).reshape(20, 3) % 2, a), a)
    check(lambda a: np.extract(a > 1, a).sum(), np.round(a))
    check(lambda a: np.place(a, a > 2, 5), a)


def test_indices() -> None:
    a = data((20, 18))
    check(lambda a: np.unravel_index(np.argmax(a), a.shape), a)
    check(lambda a: np.unravel_index(np.argsort(a[0]), (6, 3), "F"), a)
    check(lambda i: np.ravel_multi_index((i, i[::-1]), (20, 18)), places(18, 19, negative=False))
    check(lambda i: np.ravel_multi_index((i, i), (20, 3), mode=("wrap", "clip"), order="F"), places(40, 19))
    check(lambda a: a[np.ix_([0, 2, 5], [True, False] * 9)], a)
    check(lambda a: [np.nonzero(np.eye(3)), np.argwhere(np.eye(3)), np.flatnonzero(np.eye(3))], a)
    check(lambda a: a[np.unique(np.array([3, 1, 3]))], a)
    check(lambda a: np.isin(a, [0, 2, 3]), data((20, 18), "uint8"))
    check(lambda a: np.isin(a, np.arange(60), invert=True), data((20, 18), "int16"))


def test_a_search_does_not_repeat_a_gather_at_every_step() -> None:
    def f(r: Any, order: Any) -> Any:
        ordered = r.ravel()[order.ravel()]
        return np.searchsorted(ordered, np.arange(1, 61)), ordered[np.searchsorted(ordered, 20.5)]

    r = np.random.default_rng(0).random((130, 190)) * 90
    order = np.argsort(r, axis=None).reshape(r.shape)
    pipeline = hjit.pipeline(f)
    for found, expected in zip(pipeline(r, order), f(r, order), strict=True):
        assert np.array_equal(found, expected)
    assert len(str(pipeline.graph(r, order))) < 60_000  # it grew by a factor of two at each step


@quick
@given(
    st.sampled_from([1, 5, 8, 9, 64]),
    st.sampled_from(DTYPES),
    st.sampled_from(DTYPES),
    st.sampled_from(["left", "right"]),
    st.integers(0, 9),
)
def test_searchsorted(n: int, first: str, second: str, side: Any, seed: int) -> None:
    table, v = np.sort(data(n, first, seed)), data((19, 2), second, seed + 1)
    v.flat[: min(n, 10)] = table[:10]
    if table.dtype.kind == "f":
        table[n // 2 + 1 :] = np.nan
    if v.dtype.kind == "f":
        v[3] = np.nan
    check(lambda a, v: np.searchsorted(a, v, side), table, v)
    check(lambda v: np.searchsorted(np.linspace(0, 9, 5), v, side), v)
    check(lambda a: np.searchsorted(a, 3, side), table)
    check(lambda a, v: np.searchsorted(a, v, sorter=np.arange(len(a))), table, v)
    check(lambda v: np.digitize(v, [0, 1, 5.5], right=side == "left"), v)
    check(lambda v: np.digitize(v, np.arange(20)[::-1]), v)
    bins = np.sort(data(n, first))
    check(lambda b, v: np.digitize(v, b), bins, v)


AT = [np.add, np.subtract, np.multiply, np.maximum, np.minimum]


@pytest.mark.parametrize("ufunc", AT)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ufunc_at(ufunc: Any, dtype: str) -> None:
    a, i = data((20, 3), dtype), places(20, 30)
    check(lambda a, i, v: ufunc.at(a, i, v), a, i, data((30, 3), dtype, 1))
    check(lambda a, i: ufunc.at(a, (i, i % 3), 2), a, i)
    check(lambda a, i, v: ufunc.at(a[::2, 1], i // 2, v), a, i, data(30, dtype))
    check(lambda a, i: ufunc.at(a, (slice(None), i % 3), 2), a, i)
    check(lambda a: ufunc.at(a, a > 2, 2), a)
    check(lambda a: ufunc.at(a, slice(2, 5), 2), a)


def test_ufunc_at_of_other_kinds() -> None:
    i = places(20, 30)
    check(lambda a, i: np.negative.at(a, i), data(20), i)
    check(lambda a, i: np.bitwise_or.at(a, i, np.uint8(8)), data(20, "uint8"), i)
    check(lambda a, i: np.logical_or.at(a, i, True), data(20) > 0, i)
    check(lambda a, i: np.add.at(a, i, np.float32(0.1)), data(20), i)
    check(lambda a, i: np.power.at(a, i, 2.0), data(20), i)

    def counted(i: Any) -> Any:
        out = np.zeros((5, 4))
        np.add.at(out, (i % 5, i % 4), 1)
        return out

    check(counted, i)
    check(lambda a, i: np.add.at(a, i, 1.5), data(20, "int64"), i)
    for f in (lambda a, i: np.add.at(a, i + 100, 1), lambda a, i: np.add.at(a, i, np.ones(3, int))):
        with pytest.raises(Exception) as expected:
            f(data(20, "int64"), i)
        with pytest.raises(type(expected.value)):
            interpreted(f, data(20, "int64"), i)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64"])
def test_bincount(dtype: str) -> None:
    x = data(50, dtype)
    check(lambda x: np.bincount(x), x)
    check(lambda x: np.bincount(x, minlength=30), x)
    check(lambda x: np.bincount(x, minlength=300), x)
    check(lambda x, w: np.bincount(x, w), x, data(50))
    check(lambda x, w: np.bincount(x, weights=w, minlength=70), x, data(50, "int16"))
    check(lambda x: np.bincount(x.reshape(5, 10).ravel()[:0], minlength=3), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 400])
def test_histogram(dtype: str, n: int) -> None:
    a = data(n, dtype)
    for kwargs in (
        {},
        {"bins": 5},
        {"bins": 16, "range": (0, 16)},
        {"bins": 7, "range": (-0.3, 12.7)},
        {"bins": 4, "density": True, "range": (0, 9)},
        {"bins": [0, 1, 1.5, 8]},
        {"bins": np.array([0, 2, 2, 5, 30])},
        {"bins": 256, "range": (0, 256)},
    ):
        check(lambda a, kwargs=kwargs: np.histogram(a, **kwargs), a)
    check(lambda a, w: np.histogram(a, 9, (0, 9), weights=w), a, data(n, "float64", 1))
    check(lambda a, w: np.histogram(a, [0, 1, 9], weights=w), a, data(n, "int64", 1))
    check(lambda a, e: np.histogram(a, e), a, np.array([-1.0, 0.5, 3.0]))
    check(lambda a, n: np.histogram(a, n), a, 6)
    check(lambda a: np.histogram_bin_edges(a, 6), a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_range_of_a_histogram_is_computed_at_each_call(dtype: str) -> None:
    functions: list[Any] = [
        lambda a: np.histogram(a, bins=9),
        lambda a: np.histogram(a, 9, (a.min(), a.max())),
        lambda a: np.histogram_bin_edges(a, 4),
        lambda a: np.histogram(a, 30, density=True)[0],
    ]
    for f in functions:
        pipe = hjit.pipeline(f, verify="off", cache="off", tune=False)
        for k in range(6):
            a = (np.arange(60.0) * (k + 1) % 101 + 3 * k).astype(dtype)
            for got, expected in zip(leaves(pipe(a)), leaves(f(a)), strict=True):
                np.testing.assert_array_equal(got, expected, strict=True)
        assert pipe.stats.traces == 1, "other extremes"


def test_ranges_that_numpy_takes_otherwise() -> None:
    pipe = hjit.pipeline(lambda a: np.histogram(a, 8), verify="off", cache="off", tune=False)
    for a in (np.full(50, 3.5), np.arange(50.0), np.full(50, -1.0)):
        for got, expected in zip(pipe(a), np.histogram(a, 8), strict=True):
            np.testing.assert_array_equal(got, expected, strict=True)
    for a in (np.where(np.arange(50) == 7, np.nan, 1.0), np.nextafter(np.ones(50), np.arange(50) % 2 * 2.0)):
        with pytest.raises(ValueError, match="finite"):
            np.histogram(a, 8)
        with pytest.raises(ValueError, match="finite"):
            pipe(a)


@quick
@given(
    st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=40),
    st.integers(1, 12),
    st.sampled_from(["float32", "float64"]),
)
def test_histogram_at_the_edges(values: list[float], bins: int, dtype: str) -> None:
    edges = np.linspace(-5, 5, bins + 1)
    a = np.concatenate(
        [np.array(values, dtype), edges.astype(dtype), np.nextafter(edges, 0).astype(dtype), [np.nan]]
    ).astype(dtype)
    check(lambda a: np.histogram(a, bins, (-5, 5)), a)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_weights_in_bins_of_any_widths_have_numpys_errors(dtype: str) -> None:
    """NumPy takes differences of a cumulative sum, which are no sums of what is in a bin."""
    distances = np.round(np.random.default_rng(0).random(40000) ** 0.5 * 20) / 2.5
    edges, weights = np.arange(0, 8.1, 0.1), (1 / (2 * np.pi * distances + 0.01)).astype(dtype)

    def f(d: Any, e: Any, w: Any) -> Any:
        return np.histogram(d, e, weights=w)[0] / 3

    pipe = hjit.pipeline(f, verify="first", on_unsupported="raise")
    for _ in range(2):
        np.testing.assert_array_equal(pipe(distances, edges, weights), f(distances, edges, weights))


def test_histogram2d() -> None:
    check(lambda x, y: np.histogram2d(x, y, 5, range=((-2, 2), (-1, 1)))[0], data(100), data(100, seed=1))
    check(lambda x, y: np.histogram2d(x, y, [[-3, 0, 3], [-3, 1, 3]])[0], data(100), data(100, seed=1))


ERRORS: list[Callable[[Any], Any]] = [
    lambda a: np.take(a, [9], axis=1),
    lambda a: np.take(a, a * 0.5),
    lambda a: np.take(a, [1], axis=5),
    lambda a: np.take(a, 1, mode="no"),
    lambda a: np.bincount(a.ravel() - 50),
    lambda a: np.bincount(a),
    lambda a: np.bincount(a[0], a[0][:1]),
    lambda a: np.bincount(a[0], minlength=-1),
    lambda a: np.histogram(a, 0),
    lambda a: np.histogram(a, [2, 1]),
    lambda a: np.histogram(a, 3, (2, 1)),
    lambda a: np.digitize(a, [1, 3, 2]),
    lambda a: np.unravel_index([99], (3, 4)),
    lambda a: np.take_along_axis(a, a[0], 0),
    lambda a: np.ravel_multi_index((a, a), (2, 2)),
    lambda a: np.searchsorted(a, 1),
    lambda a: np.searchsorted(a[0], 1, side="up"),
]


@pytest.mark.parametrize("k", range(len(ERRORS)))
def test_errors(k: int) -> None:
    a = data((5, 4), "int64")
    with pytest.raises(Exception) as expected:
        ERRORS[k](a)
    with pytest.raises(type(expected.value)):
        interpreted(ERRORS[k], a)


@pytest.mark.parametrize(
    "f",
    [
        np.unique,
        lambda a: np.compress(a, a[1:]),
        lambda a: np.sort(a[a > 3]),
        lambda a: np.histogram(a, "auto"),
    ],
)
def test_lengths_that_depend_on_values(f: Any) -> None:
    with pytest.raises(TraceError, match="depends on the image's values|by the image's values"):
        interpreted(lambda a: f(a), data(20))


@pytest.mark.parametrize(
    "f",
    [
        lambda a: np.full(3, float(a[0, 0]))[a // 64],
        lambda a: np.array([a[0, 0]])[a // 64],
        lambda a: np.array([int(a[0, 0])])[a // 64] * 2,
        lambda a: np.broadcast_to(a[0, 0] * 1.5, (3,))[a // 64],
        lambda a: (a[0, :1] * 0 + 3)[a // 64],
    ],
)
def test_indices_of_what_is_the_same_everywhere_are_checked(f: Callable[..., Any]) -> None:
    pipe = hjit.pipeline(f, verify="off")
    low, high = np.full((20, 30), 3, np.uint8), np.full((20, 30), 255, np.uint8)
    for _ in range(2):
        np.testing.assert_array_equal(pipe(low), f(low), strict=True)
        with pytest.raises(IndexError, match="out of bounds for axis 0"):
            pipe(high)
