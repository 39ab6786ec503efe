"""Element-wise operations, compiled: every ufunc, dtype, layout and size; Python scalars; casts; the formulas made of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hjit
from hjit.trace.ops.elementwise.ufuncs import UFUNCS
from tests.numpy_check import assert_same, check, layouts, sample

INTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")
DTYPES = ("bool", *INTS, *FLOATS)
TRANSCENDENTAL = frozenset(
    """exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 sin cos tan arcsin arccos arctan arctan2 hypot sinh cosh tanh
    arcsinh arccosh arctanh cbrt""".split()
)
POWERS = frozenset(("power", "float_power"))
# of zeros of both signs, NumPy's own code returns one or the other, by position in the array
ANY_ZERO = frozenset(("maximum", "minimum", "fmax", "fmin"))
SIZES = (0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 1001)


def applicable(dtypes: tuple[str, ...], names: frozenset[str]) -> list[np.ufunc]:
    """The ufuncs that NumPy has for arguments of these dtypes."""
    found = []
    for name in sorted(names):
        ufunc: np.ufunc = getattr(np, name)
        if ufunc.nin != len(dtypes):
            continue
        try:
            loop = ufunc.resolve_dtypes((*map(np.dtype, dtypes), *(None,) * ufunc.nout))
        except TypeError:
            continue
        if all(t.itemsize <= 8 for t in loop):
            found.append(ufunc)
    return found


def all_of(ufuncs: list[np.ufunc]) -> Callable[..., Any]:
    return lambda *args: [u(*args) for u in ufuncs]


def check_all(ufuncs: list[np.ufunc], *args: Any) -> None:
    for zeros in (True, False):
        group = [u for u in ufuncs if (u.__name__ in ANY_ZERO) != zeros]
        if group:
            check(all_of(group), *args, zeros=zeros)


EXACT = frozenset(UFUNCS) - TRANSCENDENTAL - POWERS


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2])
def test_exact_ufuncs(dtype: str, count: int) -> None:
    args = [sample((9, 71), dtype, seed) for seed in range(count)]
    check_all(applicable((dtype,) * count, EXACT), *args)


@pytest.mark.parametrize(
    "pair",
    [
        ("uint8", "int8"),
        ("uint16", "float32"),
        ("int64", "uint64"),
        ("bool", "uint8"),
        ("float16", "int16"),
        ("float32", "float64"),
        ("uint8", "int64"),
    ],
)
def test_mixed_dtypes(pair: tuple[str, str]) -> None:
    check_all(applicable(pair, EXACT), sample((5, 67), pair[0]), sample((5, 67), pair[1], 1))


@pytest.mark.parametrize("exponent", ["bool", "int8", "uint8", "int16", "uint32", "int64"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_ldexp(dtype: str, exponent: str) -> None:
    a, n = sample((9, 71), dtype), sample((9, 71), exponent, 1)
    check(lambda a, n: (np.ldexp(a, n), np.ldexp(a, -3), np.ldexp(a, n[0]), np.ldexp(2.5, n)), a, n)


def test_pixels_with_a_common_exponent() -> None:
    """Radiance's RGBE: three bytes of fractions and one of their exponent."""

    def decoded(rgbe: Any) -> Any:
        scale = np.ldexp(np.float32(1), rgbe[..., 3].astype(np.int32) - (128 + 8))
        return np.where(rgbe[..., 3:] > 0, (rgbe[..., :3] + np.float32(0.5)) * scale[..., None], np.float32(0))

    rgbe = sample((9, 71, 4), "uint8")
    pipe = check(decoded, rgbe)
    assert "as it is" not in str(pipe.explain(rgbe))


@pytest.mark.parametrize("dtype", INTS)
@pytest.mark.parametrize("pair", [("int64", "uint64"), ("int32", "uint32"), ("int16", "uint16"), ("uint8", "int8")])
def test_two_casts_of_one_value(dtype: str, pair: tuple[str, str]) -> None:
    """Signed and unsigned integers are one type to LLVM: what is known of the one must not pass for the other."""
    a, (first, second) = sample((7, 67), dtype), pair

    def f(a: Any) -> Any:
        x, y = a.astype(first), a.astype(second)
        return (
            x < y,
            y <= x,
            x >> 1,
            y >> 1,
            x // 3,
            y // 3,
            x.astype(np.float64) + y.astype(np.float64),
            np.maximum(x, 5) + np.maximum(y, 5),
        )

    check(f, a)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int32", "int64", "float32", "float64"])
def test_layouts(dtype: str) -> None:
    ufuncs = applicable(
        (dtype, dtype), frozenset("add subtract multiply logical_and maximum true_divide less bitwise_xor".split())
    )
    a, b = sample((11, 53), dtype), sample((11, 53), dtype, 1)
    pairs = list(zip(layouts(a).values(), layouts(b).values(), strict=True))
    for x, y in [*pairs, (pairs[0][0], pairs[1][1]), (pairs[1][0], pairs[3][1])]:
        check_all(ufuncs, x, y)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float32", "float64"])
@pytest.mark.parametrize("rows", [1, 20])
def test_sizes(dtype: str, rows: int) -> None:
    def f(a: Any, b: Any) -> Any:
        return (a > b), np.where(b < a, a, b), a[:, ::-1], a.astype(np.float32) + 1

    pipe = hjit.pipeline(f, verify="off", cache="off")
    for n in SIZES:
        a, b = sample((rows, n), dtype), sample((rows, n), dtype, 1)
        assert_same(pipe(a, b), f(a, b))
    assert pipe.stats.fallbacks == 0


def test_size_zero_and_zero_dimensions() -> None:
    for shape in ((0,), (0, 5), (5, 0), (0, 0, 3), (40, 0), (0, 40), ()):
        check(lambda a: (a + 1, a > 2, a.astype(np.uint8), np.sqrt(abs(a))), sample(shape, "float32"))


# -- accuracy of what is not exact


def exact_value(ufunc: np.ufunc, *args: Any) -> Any:
    wide = np.float64 if args[0].dtype.itemsize < 8 else np.longdouble
    with np.errstate(all="ignore"):
        return ufunc(*(a.astype(wide) for a in args))


def ulps(got: Any, exact: Any) -> Any:
    """Distance from the exact value, in units of the last place of the rounded one."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        distance = np.abs((got.astype(exact.dtype) - exact) / np.spacing(np.abs(rounded)).astype(exact.dtype))
    return np.where(same, 0, np.where(np.isnan(distance), np.inf, distance))


def arguments(dtype: str, count: int) -> list[Any]:
    rng = np.random.default_rng(3)
    n = 4099
    scale = 10.0 ** rng.uniform(-3, 1.7 if dtype == "float32" else 2.3, n)
    a = (rng.normal(0, 1, n) * scale).astype(dtype)
    return [a, *[(rng.normal(0, 1, n) * scale[::-1]).astype(dtype) for _ in range(count - 1)]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 2])
def test_transcendental(dtype: str, count: int) -> None:
    ufuncs = applicable((dtype,) * count, TRANSCENDENTAL)
    args = arguments(dtype, count)
    pipe = hjit.pipeline(all_of(ufuncs), verify="off", cache="off")
    with np.errstate(all="ignore"):
        for u, got in zip(ufuncs, pipe(*args), strict=True):
            assert got.dtype == dtype
            exact = exact_value(u, *args)
            worst = ulps(got, exact)
            if u.__name__.startswith("logaddexp"):  # near a result of zero the formula, NumPy's own, cancels
                worst = np.minimum(worst, np.abs(got - exact) / np.spacing(np.maximum(*map(np.abs, args))))
            assert worst.max() <= 4, (u.__name__, worst.max(), [a[worst.argmax()] for a in args])
            special = [sample((300,), dtype, k) for k in range(count)]
    with np.errstate(all="ignore"):
        for u, got in zip(ufuncs, pipe(*special), strict=True):
            expected = u(*special)
            at = ~np.isfinite(expected)
            np.testing.assert_array_equal(got[at], expected[at], u.__name__)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_power(dtype: str) -> None:
    rng = np.random.default_rng(5)
    a, b = rng.uniform(0, 20, 3001).astype(dtype), rng.uniform(-6, 6, 3001).astype(dtype)
    b[::3] = np.rint(b[::3])
    pipe = hjit.pipeline(lambda a, b: (a**b, a**2.2, a**-1.5, a**0.5, a**2, a**3), verify="off", cache="off")
    exponents = (b, *(np.asarray(k, dtype) for k in (2.2, -1.5, 0.5, 2, 3)))
    for got, k in zip(pipe(a, b), exponents, strict=True):
        assert got.dtype == dtype
        assert ulps(got, exact_value(np.power, a, k)).max() <= 4, k


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
def test_integer_powers(dtype: str) -> None:
    a = sample((3, 50), dtype)
    check(lambda a, b: (a**2, a**3, a**b, np.square(a)), a, (abs(a) % 5).astype(dtype))


def test_half_precision_rounds_once() -> None:
    a = sample((40, 33), "float16")
    b = sample((40, 33), "float16", 1)
    check(lambda a, b: (a + b, a * b, a / b, a * b + a, np.sqrt(abs(a)), a.astype(np.float32) * b), a, b)


# -- Python scalars


@pytest.mark.parametrize("dtype", DTYPES)
def test_weak_scalars(dtype: str) -> None:
    a = sample((3, 37), dtype)
    check(lambda a: (a + 1, a * 2, 3 - a if a.dtype != bool else a + 2, a + 1.5, 2.5 * a, a > 0.5, a + True, a / 2), a)
    check(lambda a: (a + np.float32(1.5), a * np.float64(2), a + np.uint8(3), a + np.int64(1), a > np.int16(-1)), a)
    check(lambda a, n, t: (a + n, a * t, a > n, a >= t, np.where(a > n, a, n)), a, 3, 0.25)


@pytest.mark.parametrize("dtype", INTS)
def test_comparisons_out_of_range(dtype: str) -> None:
    a = sample((3, 37), dtype)
    high, low = int(np.iinfo(dtype).max) + 1, int(np.iinfo(dtype).min) - 1
    check(lambda a: (a < high, a <= high, a > high, a == high, a != high, high > a, low < a, a >= low, a == low), a)


@pytest.mark.parametrize(
    "operation", [lambda a: a + 300, lambda a: a * -1, lambda a: np.maximum(a, 256), lambda a: a & 1000]
)
def test_overflow_errors(operation: Callable[..., Any]) -> None:
    check(operation, sample((3, 37), "uint8"))
    with pytest.raises(OverflowError):
        hjit.pipeline(operation, verify="off", cache="off")(np.zeros(5, np.uint8))


def test_scalar_arguments() -> None:
    a = sample((20, 37), "uint8")
    pipe = hjit.pipeline(lambda a, n: a + n, verify="off", cache="off")
    assert_same(pipe(a, 3), a + 3)
    assert_same(pipe(a, 7), a + 7)
    for wrong in (256, -1):
        with pytest.raises(OverflowError):
            pipe(a, wrong)
    assert_same(pipe(a, np.int32(-3)), a + np.int32(-3))
    assert_same(pipe(a, 1.5), a + 1.5)
    assert_same(pipe(a, True), a + True)
    assert_same(pipe(a, np.float32(0.5)), a + np.float32(0.5))


def test_scalar_results() -> None:
    check(lambda a, x: (a.max() + x, a[0, 0] * 2, np.float32(3) * a[1, 1], a.sum() / 2), sample((5, 40), "int32"), 2.5)


def test_arrays_of_no_axes_become_scalars_where_numpys_do() -> None:
    check(
        lambda a: (np.clip(a[0, 0, ...], 1, 3), np.clip(np.squeeze(a[:1, :1]), 1, 5), np.squeeze(a[:1, :1]).clip(1, 5)),
        sample((5, 40), "int32"),
    )


# -- casts and formulas


@pytest.mark.parametrize(
    "bounds",
    [
        (0, 100_000),
        (-100_000, 2),
        (-32768, 32767),
        (-100_000, 100_000),
        (None, 100_000),
        (100_000, None),
        (-5, -100_000),
    ],
)
def test_clip_knows_bounds_that_no_value_of_the_dtype_passes(bounds: tuple[Any, Any]) -> None:
    a = sample((5, 40), "int16")
    try:
        expected = np.clip(a, *bounds)
    except OverflowError as error:
        with pytest.raises(OverflowError, match=re.escape(str(error))):
            hjit.pipeline(lambda x: np.clip(x, *bounds))(a)
        return
    assert_same(hjit.pipeline(lambda x: np.clip(x, *bounds))(a), expected)


def test_clip_knows_such_bounds_among_arguments() -> None:
    a = sample((9, 17), "uint8")
    f = hjit.pipeline(np_clip)
    for bounds in ((10, 200), (-5, 300), (20, 300), (-1, 90), (30, 100)):
        assert_same(f(a, *bounds), np_clip(a, *bounds))
    with pytest.raises(OverflowError):
        f(a, 300, 400)


def np_clip(x: Any, low: int, high: int) -> Any:
    return np.clip(x, low, high)


@pytest.mark.parametrize("source", DTYPES)
def test_casts(source: str) -> None:
    a = sample((7, 41), source)
    if np.dtype(source).kind == "f":
        a = np.clip(np.nan_to_num(a), -100, 100).astype(source)
    check(
        lambda a: [
            a.astype(t) for t in DTYPES if not (a.dtype.kind == "f" and t in ("uint8", "uint16", "uint32", "uint64"))
        ],
        a,
    )
    check(lambda a: [abs(a).astype(t) for t in DTYPES], a)


@pytest.mark.parametrize("source", FLOATS)
def test_casts_out_of_range(source: str) -> None:
    """The numbers of NumPy's vector code and of the rest of an array differ; the machine's conversion gives these."""
    a = np.array(
        [300.0, -1.0, -200.0, 65535.0, 1e9, -1e9, 3e9, 1e12, np.nan, np.inf, -np.inf, 127.5, 255.9, 40000.0], "float64"
    ).astype(source)
    with np.errstate(all="ignore"):
        a = np.resize(a, (24, 28))
        check(lambda a: [a.astype(t) for t in ("int8", "uint8", "int16", "uint16", "int32", "int64", "bool")], a)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "float32", "float64"])
def test_formulas(dtype: str) -> None:
    a, b = sample((6, 45), dtype), sample((6, 45), dtype, 1)
    check(
        lambda a, b: (
            np.where(a > b, a, b),
            np.where(a != 0, 1, 0),
            np.where(a > 3, a, 2.5),
            np.select([a > 5, a > 0], [a, b], 7),
            np.clip(a, 1, 9),
            a.clip(0, 5),
            np.clip(a, None, 4),
            np.round(a),
            np.nan_to_num(a),
            np.isclose(a, b),
            np.isfinite(a),
            np.divmod(a, 3),
            np.copysign(1.0, a),
            np.fmax(a, 1),
            np.logical_not(a),
            np.isposinf(a.astype(float)),
            np.sign(a),
            np.heaviside(a.astype(np.float32), 0.5),
        ),
        a,
        b,
        zeros=False,
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding(dtype: str) -> None:
    a = np.arange(-40, 41).astype(dtype) / 8
    check(
        lambda a: (
            np.round(a),
            np.rint(a),
            np.floor(a),
            np.ceil(a),
            np.trunc(a),
            np.round(a, 1),
            np.fix(a),
            np.nan_to_num(a / 0, nan=3, posinf=5, neginf=-5),
        ),
        a,
    )


def test_where_and_out_arguments() -> None:
    def f(a: Any, b: Any) -> Any:
        out = np.zeros(a.shape, a.dtype)
        np.add(a, b, out=out, where=a > 0)
        np.multiply(out, 2, out=out)
        np.subtract(a, 1, out=a)
        b += 2
        b[b > 3] = 0
        return out

    for dtype in ("uint8", "float32"):
        check(f, sample((19, 35), dtype), sample((19, 35), dtype, 1))


def test_broadcasting() -> None:
    row, column, whole = sample((1, 45), "float32"), sample((6, 1), "float32", 1), sample((6, 45), "int16", 2)
    check(
        lambda r, c, w: (r + c, w * r, w - c, (r > c) & (w > 0), c[:, 0] + r[0, 3], np.where(w > 0, r, c)),
        row,
        column,
        whole,
    )
    check(lambda r, w: r[0] + w, row, whole)


def test_same_array_twice() -> None:
    """Two parameters may be one array at one call and two at the next."""
    a, b = sample((20, 40), "float64"), sample((20, 40), "float64", 1)
    pipe = hjit.pipeline(lambda x, y: x * 2 + y, verify="off", cache="off")
    assert_same(pipe(a, a), a * 2 + a)
    assert_same(pipe(a, b), a * 2 + b)

    def shifted(x: Any, y: Any) -> Any:
        x += 1
        return x + y

    ours, theirs = np.zeros((20, 40)), np.zeros((20, 40))
    pipe = hjit.pipeline(shifted, verify="off", cache="off")
    assert_same(pipe(ours, ours), shifted(theirs, theirs))
    assert_same(ours, theirs)


def test_unaligned_and_foreign_memory() -> None:
    raw = np.zeros(20 * 40 * 4 + 1, np.uint8)
    a = raw[1:].view(np.float32).reshape(20, 40)
    a[...] = sample((20, 40), "float32")
    assert not a.flags.aligned
    pipe = hjit.pipeline(lambda a: a[:, ::-1] * 2 + a, verify="off", cache="off")
    assert_same(pipe(a), a[:, ::-1] * 2 + a)
    records = np.zeros((20, 40), [("r", np.uint8), ("v", np.float32)])
    records["v"] = a
    assert_same(pipe(records["v"]), a[:, ::-1] * 2 + a)
    assert_same(pipe(records["v"]), a[:, ::-1] * 2 + a)


BINARY = (
    "add",
    "subtract",
    "multiply",
    "maximum",
    "minimum",
    "less",
    "equal",
    "bitwise_and",
    "floor_divide",
    "remainder",
    "logical_xor",
)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_expressions(data: st.DataObject) -> None:
    """Trees of operations on arrays of mixed dtypes that broadcast."""
    shapes = st.sampled_from([(5, 40), (1, 40), (5, 1), (40,), (5, 1, 1), ()])
    args = [
        sample(
            data.draw(shapes),
            data.draw(st.sampled_from(("uint8", "int16", "int32", "float32", "float64", "bool"))),
            k,
            special=False,
        )
        for k in range(3)
    ]
    plan = [
        (data.draw(st.sampled_from(BINARY)), data.draw(st.integers(0, 2 + k)), data.draw(st.integers(0, 2 + k)))
        for k in range(6)
    ]

    def f(*args: Any) -> Any:
        values = list(args)
        for name, i, j in plan:
            x, y = values[i], values[j]
            if name.startswith("bitwise") and "f" in (x.dtype.kind, y.dtype.kind):
                name = "add"
            if "b" in (x.dtype.kind, y.dtype.kind) and name in ("subtract", "floor_divide", "remainder"):
                name = "logical_or"
            values.append(getattr(np, name)(x, y))
        return values[3:]

    check(f, *args, zeros=False)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int32", "uint64", "int64", "float16", "float32", "float64"]
)
def test_dtypes_of_pairs_and_powers(dtype: str) -> None:
    a = np.arange(40).astype(dtype)
    check(lambda x: np.modf(x), a)
    check(lambda x: np.modf(x / 3), a)
    for k in (0, 1, 2, 3, 0.5, 2.0, True, np.int8(2), np.float32(2)):

        def in_place(x: Any, k: Any) -> Any:
            y = x.copy()
            y **= k
            return y

        check(lambda x, k=k: x**k, a, exact=False)
        check(lambda x, k: x**k, a, k, exact=False)
        check(in_place, a, k, exact=False)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32"])
def test_run_time_numbers_as_choices(dtype: str) -> None:
    a = np.array([0, 1, 2, 3, 1] * 5).astype(dtype)
    for k in (1, 2.5, np.float32(3), np.uint16(7)):
        check(lambda x, k: np.select([x > 1, x < 1], [x, x * k], k), a, k)
        check(lambda x, k: np.select([x > 1, x < 1], [k, x], x), a, k)
        check(lambda x, k: np.choose(x > 1, [x, k]), a, k)
        check(lambda x, k: np.where(x > 1, k, x), a, k)


@pytest.mark.parametrize("decimals", [8, 9, 10, 15, 22, 23, 24, 30, 200, 309, 1000, -8, -23, -400])
def test_rounding_by_numpys_own_powers_of_ten(decimals: int) -> None:
    """It multiplies them up, which rounds at each step from the 23rd on."""
    check(
        lambda a: (np.round(a / 7, decimals), np.round(a.astype(np.float32), decimals)), np.arange(12.0).reshape(3, 4)
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int32"])
def test_clipping_keeps_the_sign_of_zero_as_numpy_does(dtype: str) -> None:
    """Its loop for two numbers keeps an element that equals a bound; the one for arrays of bounds takes the bound."""
    a = np.resize([0.0, -0.0, 1.0, -1.0, 0.5], (7, 33)).astype(dtype)
    for low, high in ((-0.0, 1.0), (0.0, 1.0), (-1.0, -0.0), (-1.0, 0.0), (-0.0, 150.0), (-0.0, 0.0)):
        check(
            lambda a, lows, low, high: (
                np.clip(a, low, high),
                a.T.clip(np.float32(low), high),
                np.clip(a, lows * low, high),
                np.clip(a, lows[:, :1] * low, high),
                np.clip(a, lows[:1, :1] * low, high),
                np.clip(a, low, None),
            ),
            a, np.ones((7, 33)), low, high,
        )  # fmt: skip
