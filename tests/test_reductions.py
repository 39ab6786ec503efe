"""Reductions and scans, compiled: axes, keepdims, where, dtypes, sizes around vectors and tasks, accuracy of float sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import assert_same, check, image, layouts, sample

SIZES = (1, 7, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257, 1000, 5000)
INTS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS = ("float16", "float32", "float64")


@pytest.mark.parametrize("dtype", ["bool", *INTS])
def test_integers(dtype: str) -> None:
    a = sample((21, 35), dtype)
    check(lambda a: (a.sum(), a.max(0), a.min(1), a.argmax(), a.prod(0), a.any(1), a.argmin(0)), a)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64"])
def test_axes(dtype: str) -> None:
    a = sample((21, 35, 4), dtype)
    check(lambda a: [f(a, axis=axis) for f in (np.sum, np.argmin) for axis in (None, 0, 1, 2, -1)], a)
    check(
        lambda a: [
            f(a, axis=axis, keepdims=True)
            for f in (np.prod, np.min, np.all)
            for axis in (None, (0, 1), (1, 2), (0, 2), 1)
        ],
        a,
    )
    check(
        lambda a: (np.argmax(a, axis=2, keepdims=True), np.count_nonzero(a, axis=(0, 1)), a.mean((0, 1))),
        a,
        exact=False,
        ulps=4,
    )


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float64"])
def test_sizes(dtype: str) -> None:
    """One kernel for lengths around the vector's, the block's and the task's."""

    def f(a: Any) -> Any:
        return a.max(), a.min(), (a > 2).sum(), a.argmax(), (a > 1).any(), (a != 0).all()

    def g(a: Any) -> Any:
        return a.max(0), a.min(1), (a > 2).sum(0), a.argmin(1), (a > 1).any(0), np.maximum.reduce(a, 1)

    flat, rows = hjit.pipeline(f, verify="off", cache="off"), hjit.pipeline(g, verify="off", cache="off")
    for n in SIZES:
        a = sample((n,), dtype, special=False)
        assert_same(flat(a), f(a), zeros=False)
        for shape in ((n, 40), (40, n)):
            if shape[0] * shape[1] <= 50_000:
                a = sample(shape, dtype, special=False)
                assert_same(rows(a), g(a), zeros=False)
    assert flat.stats.fallbacks == rows.stats.fallbacks == 0


@pytest.mark.parametrize("shape", [(300, 400), (1200, 64), (17, 9000), (120_001,), (40, 50, 60)])
def test_parallel_integers(shape: tuple[int, ...]) -> None:
    a = image(shape, "uint16")
    check(
        lambda a: (
            a.sum(),
            a.sum(0),
            a.sum(-1),
            a.max(),
            a.min(0),
            a.prod(),
            a.argmax(),
            np.cumsum(a, axis=0),
            np.cumsum(a, axis=-1),
        ),
        a,
    )


@pytest.mark.parametrize("dtype", INTS)
def test_overflow_wraps(dtype: str) -> None:
    a = np.full((33, 70), np.iinfo(dtype).max, dtype)
    check(
        lambda a: (
            a.sum(),
            a.sum(0),
            a.prod(1),
            a.sum(0, dtype=a.dtype),
            a.prod(dtype=a.dtype),
            np.cumsum(a, axis=1, dtype=a.dtype),
            np.cumprod(a, axis=0),
        ),
        a,
    )


def test_dtype_where_initial_out() -> None:
    a = sample((21, 45), "int16")
    m = image((21, 45), "bool")
    check(
        lambda a, m: (
            a.sum(dtype=np.int32),
            a.sum(0, dtype=np.float64),
            a.sum(1, dtype=np.int8),
            a.sum(where=m),
            a.sum(0, where=m, initial=5),
            a.max(0, where=m, initial=-5),
            np.min(a, axis=1, where=a > 0, initial=100),
            a.mean(where=m),
            np.any(a, where=m, axis=0),
            np.prod(a, 0, where=m[:1]),
            np.max(a, initial=30000),
        ),
        a,
        m,
        exact=False,
        ulps=4,
    )

    def f(a: Any) -> Any:
        out = np.zeros(a.shape[1], np.int64)
        np.sum(a, axis=0, out=out)
        return out

    check(f, a)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_placement(dtype: str) -> None:
    for at in (0, 5, 31, 32, 63, 64, 99):
        a = image((3, 100), dtype)
        a[1, at] = np.nan
        a[2, (at + 50) % 100] = -np.inf
        check(
            lambda a: (
                a.max(),
                a.min(),
                a.max(0),
                a.min(1),
                a.argmax(),
                a.argmin(),
                a.argmax(1),
                a.argmin(0),
                np.fmax.reduce(a, 1),
                np.fmin.reduce(a, 0),
                np.nanmax(a, axis=1),
                np.nanmin(a),
                np.isnan(a).any(1),
                a.ptp(1) if hasattr(a, "ptp") else np.ptp(a, 1),
            ),
            a,
        )


@pytest.mark.parametrize("dtype", FLOATS)
def test_infinite_sums(dtype: str) -> None:
    a = (image((6, 70), dtype) + 0.5).astype(dtype)
    a[1, 3], a[2, 4], a[2, 60], a[3, 69], a[4] = np.inf, np.inf, -np.inf, np.nan, -np.inf
    pipe = hjit.pipeline(lambda a: (a.sum(1), a.mean(1), a.sum(0), a.prod(1)), verify="off", cache="off")
    with np.errstate(all="ignore"):
        for got, expected in zip(pipe(a), (a.sum(1), a.mean(1), a.sum(0), a.prod(1)), strict=True):
            special = ~np.isfinite(expected)
            np.testing.assert_array_equal(got[special], expected[special])
            assert np.isfinite(got[~special]).all()


def test_sums_of_what_narrowing_makes_infinite() -> None:
    """It is infinite before it is added, though sums are accumulated in float64."""
    a = np.array([[1e300, -1e300, 1.0] * 5, [1e300, -np.inf, 1.0] * 5, [1e300, 2.0, 1.0] * 5])
    with np.errstate(all="ignore"):
        check(lambda a: a.astype(np.float32).sum(axis=1), a, exact=False)


def test_signs_of_zero() -> None:
    a = np.full((20, 40), -0.0)
    check(lambda a: (a.sum(), a.sum(0), a.sum(1), a[0, :3].sum(), a.prod(1)), a)


def test_empty() -> None:
    for shape in ((0, 40), (40, 0), (0,), (0, 3), (3, 0), (0, 0)):
        a = np.zeros(shape, np.float32)
        check(
            lambda a: (
                a.sum(),
                a.sum(0),
                a.prod(-1),
                a.any(),
                a.all(0),
                np.count_nonzero(a),
                np.cumsum(a, axis=0),
                (a > 0).sum(-1),
            ),
            a,
        )
    check(lambda a: a.max(0), np.zeros((0, 40)))
    check(lambda a: a.max(1), np.zeros((0, 40)))
    check(lambda a: a.min(), np.zeros((40, 0)))
    check(lambda a: a.argmax(), np.zeros(0))


@pytest.mark.parametrize("name", ["C", "F", "step", "reversed", "inside", "rows reversed", "broadcast"])
def test_layouts(name: str) -> None:
    a = layouts(image((33, 57, 3), "int32"))[name]
    check(
        lambda a: (
            a.sum(0),
            a.sum(1),
            a.sum(2),
            a.sum((0, 1)),
            a.max((1, 2)),
            a.T.sum(0),
            a[::-1, ::2].min(1),
            a.argmax(0),
            np.cumsum(a, axis=1),
        ),
        a,
    )


# -- accuracy of floats


def error(got: Any, a: Any) -> float:
    exact = math.fsum(map(float, a))
    return abs(float(got) - exact) / max(math.fsum(map(abs, map(float, a))), 1e-300)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 7, 16, 17, 63, 64, 65, 1000, 5000, 100_003])
def test_sums_are_as_accurate_as_numpys(dtype: str, n: int) -> None:
    rng = np.random.default_rng(n)
    pipe = hjit.pipeline(lambda a: (a.sum(), a.mean() * a.size), verify="off", cache="off")
    for a in (rng.random(n), rng.normal(size=n), rng.normal(size=n) * 10.0 ** rng.uniform(-8, 8, n)):
        a = a.astype(dtype)
        total, mean = pipe(a)
        assert total.dtype == dtype
        unit = float(np.finfo(dtype).eps) / 2
        # one rounding of the result is inevitable
        rounding = unit * abs(math.fsum(map(float, a))) / math.fsum(map(abs, map(float, a)))
        assert error(total, a) <= max(error(a.sum(), a), rounding)
        assert error(mean, a) <= max(error(a.mean() * a.size, a), 3 * rounding)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", range(3, 12))
def test_short_sums_are_as_accurate_as_numpys(dtype: str, n: int) -> None:
    """NumPy adds 8 floats side by side in pairs, and those of half precision in float32."""
    a = np.random.default_rng(n).random((400, 16 * n)).astype(dtype)

    def f(a: Any) -> Any:
        return a.reshape(a.shape[0], a.shape[1] // n, n).sum(axis=-1)

    exact = f(a.astype(np.longdouble))
    ours, theirs = (np.sqrt(np.mean((g(a) - exact) ** 2)) for g in (hjit.pipeline(f, verify="off", cache="off"), f))
    assert ours <= theirs * 1.001


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_along_axes(dtype: str) -> None:
    """Half precision against the exact value: NumPy's own sums of it lose digits."""
    a = image((70, 90, 3), dtype)

    def f(a: Any) -> Any:
        return a.sum(0), a.sum(1), a.sum((0, 1)), a.mean((0, 1)), a.mean(-1, keepdims=True), a.sum()

    got = hjit.pipeline(f, verify="off", cache="off")(a)
    assert_same(got, tuple(x.astype(dtype) for x in f(a.astype(np.float64))), exact=False, ulps=32)
    check(lambda a: (a.sum(2), a[..., :2].sum(-1), a.mean(2)), a, exact=dtype != "float16", ulps=2)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_variance(dtype: str) -> None:
    a = image((40, 53, 3), dtype)
    check(
        lambda a: (
            a.var(),
            a.std(),
            a.var(0),
            a.std((0, 1)),
            a.var(1, ddof=1),
            a.std(-1, keepdims=True),
            a.mean(0),
            np.var(a, axis=(0, 1), dtype=np.float64),
        ),
        a,
        exact=False,
        ulps=16,
    )


def test_half_precision_sums_overflow_where_numpys_do() -> None:
    a = np.full((100, 40), 100, np.float16)
    check(lambda a: (a.mean(), a.mean(0), a.sum()), a)
    check(lambda a: (a.var(), a.std()), a)
    assert np.isinf(hjit.pipeline(lambda a: a.var(), verify="off", cache="off")(a))


# -- scans


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "uint64"])
def test_integer_scans(dtype: str) -> None:
    for shape in ((2, 33), (40, 50)):
        a = sample(shape, dtype)
        check(
            lambda a: (
                np.cumsum(a, axis=0),
                np.cumsum(a, axis=1),
                np.cumsum(a),
                np.cumprod(a, axis=-1),
                np.maximum.accumulate(a, axis=0),
                np.minimum.accumulate(a, axis=1),
                np.cumsum(a[::-1], axis=0)[::-1],
                np.add.accumulate(a, axis=1, dtype=np.int16),
            ),
            a,
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_scans(dtype: str) -> None:
    a = sample((41, 50), dtype, special=False)
    check(
        lambda a: (
            np.maximum.accumulate(a, axis=0),
            np.minimum.accumulate(a, axis=1),
            np.cumsum(np.rint(a), axis=0),
            np.cumsum(np.rint(a), axis=1),
        ),
        a,
    )
    check(
        lambda a: (np.cumsum(a, axis=0), np.cumsum(a, axis=1), np.cumprod(np.sign(a) + 2.5, axis=0)),
        a,
        exact=False,
        ulps=64,
    )


def test_integral_images() -> None:
    def box(a: Any, r: int) -> Any:
        s = np.pad(np.cumsum(np.cumsum(a.astype(np.int64), 0), 1), ((1, 0), (1, 0)))
        k = 2 * r + 1
        return s[k:, k:] - s[:-k, k:] - s[k:, :-k] + s[:-k, :-k]

    check(lambda a: box(a, 2), image((40, 61), "uint8"))


def test_normalisation() -> None:
    def f(a: Any) -> Any:
        low, high = a.min((0, 1), keepdims=True), a.max((0, 1), keepdims=True)
        return (a - low) / (high - low), a / a.max(), a - a.sum(0) // 3

    check(f, image((37, 45, 3), "int32"))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "uint64", "float16", "float32", "float64"])
@pytest.mark.parametrize(
    "name", ["logical_and", "logical_or", "logical_xor", "subtract", "true_divide", "fmod", "bitwise_or", "greater"]
)
def test_dtypes_of_accumulate(name: str, dtype: str) -> None:
    rng = np.random.default_rng(5)
    a = rng.integers(0, 3, (20, 30)).astype(dtype)
    ufunc = getattr(np, name)

    def into(x: Any) -> Any:
        out = np.zeros(x.shape)
        ufunc.accumulate(x, axis=1, out=out)
        return out

    for function in (
        lambda x: ufunc.accumulate(x),
        lambda x: ufunc.accumulate(x, axis=1),
        lambda x: ufunc.accumulate(x, axis=1, dtype=bool),
        lambda x: ufunc.accumulate(x, axis=1, dtype=np.float64),
        into,
    ):
        check(function, a)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("out", ["float32", "float64", "int64"])
@pytest.mark.parametrize("function", [np.mean, np.var, np.std])
def test_means_and_deviations_in_an_output_array(function: Any, out: str, dtype: str) -> None:
    """They are summed and divided in its dtype, and NumPy refuses to cast a sum of floats to integers."""
    a = (image((30, 40), "float64") % 8).astype(dtype)

    def f(x: Any, m: Any) -> Any:
        made, masked = np.zeros(40, out), np.zeros((1, 40), out)
        given = function(x, axis=0, out=made)
        function(x, axis=0, out=masked, where=m, keepdims=True)
        return given is made, made, masked

    narrow = dtype == "float32" and function is not np.mean  # whose centre is a sum of float32
    mask = image((30, 40), "bool") | (np.arange(30) % 7 == 0)[:, None]
    check(f, a, mask, exact=False, ulps=2.0**30 if narrow else 64)


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_deviations_in_a_dtype(dtype: str) -> None:
    """Deviations are of the dtype of the array, and summed in the one that is given."""
    a = (4096 + image((30, 40), "float64") % 8).astype(dtype)
    for f in (
        lambda x: np.var(x, dtype=np.int64),
        lambda x: np.std(x, dtype=np.int64),
        lambda x: np.std(x, axis=0, dtype=np.int64),
        lambda x: np.var(x, axis=1, dtype=np.float32),
        lambda x: np.var(x, axis=1, mean=np.full((30, 1), 4096.0)),
    ):
        check(f, a, exact=False, ulps=32)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, out: np.sum(x, 0, out=out),
        lambda x, out: np.max(x, 0, out=out),
        lambda x, out: np.mean(x, 0, out=out),
        lambda x, out: np.std(x, 0, out=out),
        lambda x, out: np.ptp(x, 0, out=out),
        lambda x, out: np.argmax(x, 0, out=out),
        lambda x, out: np.cumsum(x, 0, out=out),
        lambda x, out: np.round(x, 1, out=out),
        lambda x, out: np.rint(x, out=out),
    ],
)
def test_output_arrays_of_other_shapes(f: Any) -> None:
    a = image((30, 40), "float64")
    for shape in ((2, 30, 40), (1, 40), (40,), (30,), (30, 40)):
        for dtype in ("float64", "int64", "uint8"):
            theirs, ours = np.zeros(shape, dtype), np.zeros(shape, dtype)
            expected, error = None, None
            try:
                expected = f(a, theirs)
            except (ValueError, TypeError) as raised:
                error = raised
            p = hjit.pipeline(f, verify="off", on_unsupported="break")
            if error is None:
                np.testing.assert_allclose(p(a, ours), expected, rtol=1e-12)
            else:
                with pytest.raises(type(error)) as raised_too:
                    p(a, ours)
                assert str(raised_too.value) == str(error)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_an_output_array_widens_sums(dtype: str) -> None:
    rng = np.random.default_rng(6)
    a = (rng.random((300, 400)) * 200).astype(dtype)

    def into(x: Any) -> Any:
        total, running = np.zeros(400), np.zeros(x.shape)
        np.sum(x, axis=0, out=total)
        np.cumsum(x, axis=0, out=running)
        return total, running

    check(into, a)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float32", "float64"])
def test_averages_with_weights(dtype: str) -> None:
    rng = np.random.default_rng(5)
    a = rng.integers(0, 2, (20, 30)).astype(dtype)
    rows, columns = rng.random(20), rng.random(30).astype(np.float32)
    check(lambda x, w: np.average(x, axis=0, weights=w), a, rows, exact=False)
    check(lambda x, w: np.average(x, axis=1, weights=w, returned=True), a, columns, exact=False)
    check(lambda x, w: np.average(x, axis=(1, 0), weights=w.T), a, rng.random((20, 30)), exact=False)
    check(lambda x, k: np.average(x[:2], axis=0, weights=[1, k]), a, 3.0, exact=False)


@pytest.mark.parametrize("dtype", FLOATS)
def test_scans_have_numpys_bits(dtype: str) -> None:
    rng = np.random.default_rng(7)
    a = (rng.random((150, 701)) - 0.3).astype(dtype)
    check(lambda x: (np.cumsum(x, axis=0), np.cumsum(x, axis=1), np.cumprod(x + 1, axis=1)), a)
    check(lambda x: np.cumsum(x), a)


@pytest.mark.parametrize("shape", [(40, 67), (3, 9, 31), (2, 3, 4, 5)])
def test_the_place_of_an_extreme_of_all_axes_is_found_row_by_row(shape: tuple[int, ...]) -> None:
    def places(a: Any) -> Any:
        twice = a * 2
        return twice.argmax(), np.argmin(a), np.argmax(a, keepdims=True), np.unravel_index(np.argmax(twice), a.shape)

    for dtype in ("float32", "uint8", "int64"):
        a = image(shape, dtype)
        check(places, a)
        check(places, a[..., ::-1])
        check(places, np.asfortranarray(a))
        check(places, np.zeros_like(a))
    holes = image(shape, "float32")
    holes.flat[[7, 20]] = np.nan
    check(places, holes)
    graph = hjit.pipeline(lambda a: a.argmax(), cache="off").graph(image(shape, "uint8"))
    assert "//" not in str(graph) and ("minimum_rows" in str(graph)) == (shape[0] > 4)


@pytest.mark.parametrize("name", ["sum", "max", "any", "cumsum", "argmin"])
def test_arrays_without_axes_have_the_axes_0_and_minus_1(name: str) -> None:
    for axis in (0, -1):
        check(lambda x, axis=axis: getattr(np, name)(x + 1, axis=axis), np.array(3.0))
