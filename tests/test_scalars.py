"""Run-time numbers as NumPy has them: what it refuses to store, how it casts, and what they compare as when they are out of range."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import check

DTYPES = (np.uint8, np.int8, np.int32, np.uint64, np.int64, bool, np.float16, np.float32)
NUMBERS: list[Any] = [
    5, -1, 300, 2**63, 2**70, True, 2.5, 300.7, -1.5, 1e300, float("nan"), float("inf"),
    np.uint64(2**63), np.int64(-1), np.int64(300), np.float64(300.7), np.float64("nan"), np.float32(1e20),
]  # fmt: skip


def item(a: Any, k: Any) -> None:
    a[0] = k


def whole(a: Any, k: Any) -> None:
    a[...] = k


def masked(a: Any, k: Any) -> None:
    a[a > 1] = k


def scattered(a: Any, k: Any) -> None:
    a[[0, 2]] = k


def listed(a: Any, k: Any) -> None:
    a[0:2] = [k, 1]


def filled(a: Any, k: Any) -> None:
    a.fill(k)


def flat(a: Any, k: Any) -> None:
    a.flat = k


def put(a: Any, k: Any) -> None:
    np.put(a, [0, 2], k)


def putmask(a: Any, k: Any) -> None:
    np.putmask(a, a > 1, k)


def place(a: Any, k: Any) -> None:
    np.place(a, a > 1, [k])


def along(a: Any, k: Any) -> None:
    np.put_along_axis(a, np.array([0, 2]), k, 0)


def copied(a: Any, k: Any) -> None:
    np.copyto(a, k)


def copied_unsafe(a: Any, k: Any) -> None:
    np.copyto(a, k, casting="unsafe")


def inserted(a: Any, k: Any) -> Any:
    return np.insert(a, 1, k)


def full(a: Any, k: Any) -> Any:
    return np.full(3, k, a.dtype)


def full_like(a: Any, k: Any) -> Any:
    return np.full_like(a, k)


def converted(a: Any, k: Any) -> Any:
    return a + np.asarray(k, a.dtype)


def converted_list(a: Any, k: Any) -> Any:
    return a + np.array([k, 1, 0, 1], a.dtype)


def initial_sum(a: Any, k: Any) -> Any:
    return np.sum(a, initial=k)


def initial_max(a: Any, k: Any) -> Any:
    return np.max(a, initial=k)


def padded(a: Any, k: Any) -> Any:
    return np.pad(a, 1, constant_values=k)


def where(a: Any, k: Any) -> Any:
    return np.where(a > 1, a, k)


def choose(a: Any, k: Any) -> Any:
    return np.choose(a > 1, [a, k])


def select_default(a: Any, k: Any) -> Any:
    return np.select([a > 1], [a], k)


def select(a: Any, k: Any) -> Any:
    return np.select([a > 1, a < 1], [k, a], a)


WAYS = (item, whole, masked, scattered, listed, filled, flat, put, putmask, place, along, copied, copied_unsafe, inserted, full, full_like,
        converted, converted_list, initial_sum, initial_max, padded, where, choose, select_default, select)  # fmt: skip


def outcome(f: Any, a: Any, k: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            result = f(a, k)
    except Exception as error:
        return type(error), str(error)
    result = a if result is None else result
    return repr(np.asarray(result).tolist()), np.asarray(result).dtype


@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: np.dtype(t).name)
def test_what_numpy_refuses_raises_and_writes_nothing(way: Any, dtype: Any) -> None:
    pipe = hjit.pipeline(way, verify="off", cache="off", on_unsupported="raise")
    start = np.array([0, 1, 2, 1], dtype)
    outcome(pipe, start.copy(), 1)
    for k in NUMBERS:
        theirs, ours = start.copy(), start.copy()
        expected = outcome(way, theirs, k)
        assert outcome(pipe, ours, k) == expected, repr(k)
        if isinstance(expected[0], type):
            np.testing.assert_array_equal(ours, start)
        else:
            ran = pipe.stats.fallbacks  # the first call after some that raise the plain function tries
            assert outcome(pipe, start.copy(), k) == expected, repr(k)
            assert pipe.stats.fallbacks == ran, f"the plain function ran for {k!r}"


def test_refused_after_a_verified_call() -> None:
    pipe = hjit.pipeline(item, cache="off")
    a = np.zeros(4, np.uint8)
    pipe(a, 7)
    assert pipe.stats.verified and a[0] == 7
    for k in (float("nan"), 300.7, -1, 300):
        with pytest.raises((ValueError, OverflowError)):
            pipe(a, k)
    pipe(a, 9)
    assert a.tolist() == [9, 0, 0, 0]


def test_a_refusal_that_the_function_catches_is_no_constant() -> None:
    def saturated(a: Any, k: Any) -> Any:
        try:
            a[0] = k
        except OverflowError:
            a[0] = 255
        return a * 1

    pipe = hjit.pipeline(saturated, verify="off", cache="off")
    for k in (300, 5, 300, -1, 6):
        ours, theirs = np.zeros(3, np.uint8), np.zeros(3, np.uint8)
        np.testing.assert_array_equal(pipe(ours, k), saturated(theirs, k))
        np.testing.assert_array_equal(ours, theirs)


def test_constants_are_refused_alike() -> None:
    def negative(a: Any) -> None:
        a[[0, 2]] = -1

    def fraction(a: Any) -> Any:
        return np.full_like(a, 300.7) + a

    check(negative, np.zeros(4, np.uint8))
    check(fraction, np.arange(20, dtype=np.uint8))


def test_computed_python_floats_must_fit() -> None:
    def peak(a: Any, out: Any) -> Any:
        out[0] = float(a.max())
        return out * 2

    pipe = hjit.pipeline(peak, verify="off", cache="off")
    for high in (3.5, 254.9, 300.7, float("nan"), 12.0):
        a = np.array([1.0, high])
        ours, theirs = np.zeros(3, np.uint8), np.zeros(3, np.uint8)
        assert outcome(lambda x, out: pipe(x, out), a, ours) == outcome(peak, a, theirs)


def test_powers_of_ints_change_their_type() -> None:
    def scaled(a: Any, k: Any, m: Any) -> Any:
        return a + k**m

    pipe = hjit.pipeline(scaled, verify="off", cache="off")
    a = np.arange(4)
    for m in (3, -1, 2):
        expected = scaled(a, 2, m)
        got = pipe(a, 2, m)
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


COMPARISONS = {
    "gt": lambda a, k: a > k, "ge": lambda a, k: a >= k, "lt": lambda a, k: a < k, "le": lambda a, k: a <= k,
    "eq": lambda a, k: a == k, "ne": lambda a, k: a != k, "swapped": lambda a, k: np.less(k, a),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: np.dtype(t).name)
def test_comparisons_with_ints_out_of_range_run_compiled(name: str, dtype: Any) -> None:
    compare = COMPARISONS[name]
    pipe = hjit.pipeline(compare, verify="off", cache="off")
    a = np.array([0, 1, 2, 100, 1] * 5).astype(dtype)
    for k in (1, -2, 300, 70000, -(2**40), 2**63, 2**70, 1):
        expected, ran = outcome(compare, a, k), pipe.stats.fallbacks
        assert outcome(pipe, a, k) == expected
        assert pipe.stats.fallbacks == ran or isinstance(expected[0], type)
    traces = pipe.stats.traces
    for k in (2, -3, 301):
        pipe(a, k)
    assert pipe.stats.traces == traces


@pytest.mark.parametrize("k", [300, -1, 2**40])
def test_constants_out_of_range_wrap_in_where(k: int) -> None:
    check(lambda a: np.where(a > 1, a, k), np.arange(30, dtype=np.uint8))
    check(lambda a: np.choose(a > 1, [a, k]), np.arange(30, dtype=np.uint8))


def test_nothing_is_warned_about_that_compiled_code_does_not_warn_about() -> None:
    pipe = hjit.pipeline(full, verify="off", cache="off")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe(np.zeros(3, np.uint8), 2.5)
        assert pipe(np.zeros(3, np.uint8), float("nan")).tolist() == [0, 0, 0]


def test_numbers_computed_from_numbers_warn_no_more_than_compiled_code() -> None:
    @hjit.pipeline(verify="off", cache="off")
    def f(x: Any, t: Any) -> Any:
        with np.errstate(all="ignore"):
            return x * np.log(t), x / (t / np.float64(0)), x + np.float32(t * 1e300), x * np.log(x.shape[0] - 20)

    x = np.ones((20, 5))
    with warnings.catch_warnings(record=True, action="always") as given:
        for t in (1.0, 0.0, 3.0, 0.0):
            np.testing.assert_array_equal(f(x, t), f.py_func(x, t))
    assert not given


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.int64, np.uint16], ids=lambda t: np.dtype(t).name)
def test_integers_to_negative_powers_are_refused(dtype: Any) -> None:
    a, b = np.arange(20).astype(dtype), np.arange(20) % 4
    for function in (lambda x, k: x**k, lambda x, k: np.power(x, k)):
        pipe = hjit.pipeline(function, verify="off", cache="off")
        for k in (3, -1, 2, -2, 1, np.int16(2), np.int16(-1), b, -b, b.astype(np.int8), b.astype(np.uint8)):
            assert outcome(pipe, a, k) == outcome(function, a, k), k


def test_exponents_that_cannot_be_negative_need_no_decision() -> None:
    pipe = check(lambda x, b: x ** (b % 3), np.arange(20), np.arange(20) - 10)
    variants = next(iter(pipe._entries.values())).variants
    assert len(variants[0].segments) == 1


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float32], ids=lambda t: np.dtype(t).name)
def test_products_with_a_number_are_not_of_the_arrays_dtype(dtype: Any) -> None:
    a = np.arange(1, 20).astype(dtype)
    for k in (2, 2.5, True, np.int16(3)):
        check(
            lambda x, k: (np.dot(x, k), np.dot(k, x), np.inner(x, k), np.outer(x, k), np.kron(x, k), np.vdot(x[:1], k)),
            a,
            k,
        )
        check(lambda x, k: (np.multiply.outer(x, k), np.tensordot(x, k, 0), np.cross(x[:3], [k, 1, 2])), a, k)


def test_large_ints_are_rounded_as_numpy_rounds_them_also_beside_halves() -> None:
    halves, singles = np.linspace(0, 1, 40).astype(np.float16), np.linspace(0, 1, 40).astype(np.float32)
    for k in (2**60 + 2**36 + 1, 2**24 + 1, 7):
        check(lambda x, y, k, m: (x * m, y * k), halves, singles, k, 3)


COMPUTED = {np.int64: (5, -1, 300, 2**40), np.uint64: (7, 2**63), np.float64: (2.5, 300.7, -1.5, 1e300, float("nan"))}


@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.int8, np.uint64], ids=lambda t: np.dtype(t).name)
def test_numbers_that_are_computed_are_stored_as_numpy_stores_its_own(way: Any, dtype: Any) -> None:
    def function(a: Any, b: Any) -> Any:
        return way(a, b.max())

    for given, values in COMPUTED.items():
        pipe = hjit.pipeline(function, verify="off", cache="off")
        for k in (*values, values[0]):
            a, b, most = np.array([0, 1, 2, 1], dtype), np.array([0, 1, 2, 1], dtype), np.full(2, k, given)
            assert outcome(pipe, a, most) == outcome(function, b, most), k
            np.testing.assert_array_equal(a, b)


def rounded(a: Any) -> Any:
    a[0] = round(a.max() * 1.5) * 2**61
    return a


def truncated(a: Any) -> Any:
    a[0] = int(a.max()) * 2**62
    return a


def counted(a: Any) -> Any:
    a[0] = np.count_nonzero(a > 1) * 2**29
    return a


def rolled(a: Any) -> Any:
    out = np.zeros(a.shape[0], np.int32)
    for i in range(a.shape[0]):
        out[i] = a[i] * 1e9
    return out


def recurrent(a: Any) -> Any:
    out = np.zeros(a.shape[0], np.int16)
    for i in range(1, a.shape[0]):
        out[i] = out[i - 1] + a[i] * 500
    return out


def recurrent_downwards(a: Any) -> Any:
    out = np.zeros((a.shape[0], a.shape[0]), np.int16)
    for i in range(a.shape[0] - 2, -1, -1):
        for j in range(1, a.shape[0]):
            out[i, j] = out[i + 1, j] + out[i, j - 1] - out[i + 1, j - 1] + a[i] * 5
    return out


def in_place(a: Any) -> Any:
    out = a.astype(np.int16)
    for i in range(a.shape[0] - 1):
        out[i] = out[i] * 500 + out[i + 1] * a[i] * 5000
    return out


@pytest.mark.parametrize("f", [rounded, truncated, counted, rolled, recurrent, recurrent_downwards, in_place])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint64], ids=lambda t: np.dtype(t).name)
def test_products_that_leave_the_dtype_raise_and_write_nothing(f: Any, dtype: Any) -> None:
    for order in ((1, 4, 1), (4, 1)):
        pipe = hjit.pipeline(f, verify="off", cache="off")
        for most in order:
            ours, expected = (np.arange(40).astype(dtype) % (most + 1) for _ in range(2))
            assert outcome(lambda a, _: pipe(a), ours, 0) == outcome(lambda a, _: f(a), expected, 0)
            np.testing.assert_array_equal(ours, expected)


def test_round_gives_ints_as_numpys_scalars_do() -> None:
    check(
        lambda a: (a * round(a.mean()), round(a.max()), round(a.mean(), 1), round(float(a.mean()), 1)),
        np.arange(20, dtype=np.uint8),
    )


@pytest.mark.parametrize(
    "f",
    [
        lambda a: round(a),
        lambda a: round(a, 1),
        lambda a: round(np.asarray(a.max())),
        lambda a: round(a[3, ...], 1),
        lambda a: round(a[3] > 1),
        lambda a: 2 in a[3],
        lambda a: 2 in a[3].item(),
    ],
)
def test_what_numbers_have_and_arrays_have_not_or_the_other_way(f: Any) -> None:
    with pytest.raises(TypeError) as theirs:
        f(np.arange(20.0))
    with pytest.raises(TypeError) as ours:
        hjit.pipeline(f, on_unsupported="numpy")(np.arange(20.0))
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("f", [
    lambda a, k: np.full(3, k * 2**61), lambda a, k: np.array([k * 2**61, 1]), lambda a, k: a + np.asarray(k * 2**61),
    lambda a, k: np.append(a, k * 2**61), lambda a, k: a.astype(np.result_type(k * 2**61)), lambda a, k: np.dot(a, k * 2**61),
], ids=range(6))  # fmt: skip
def test_the_dtype_of_an_array_of_a_run_time_int_follows_its_size(f: Any) -> None:
    a = np.arange(20)
    pipe = hjit.pipeline(f, verify="off", cache="off")
    for k in (1, 3, 4, -1, 7, 1):
        assert outcome(pipe, a, k) == outcome(f, a, k), k
    with pytest.raises(hjit.TraceError, match="object"):
        pipe(a, 2**10)


def test_what_numpy_makes_of_its_scalars_are_scalars() -> None:
    def f(a: Any) -> Any:
        s, z = a.sum(), (a * 1j).sum()
        real = s.copy(), s.T, s.transpose(), np.transpose(s), s.reshape(()), s.view(s.dtype), np.kron(s, s)
        return *real, np.einsum("->", s), z.copy(), z.T, z.reshape(()), z.view(z.dtype), np.copy(s), s.ravel()

    def of_one_element(a: Any) -> Any:
        s, k = np.array(a.sum()), np.array(a.argmax())
        return (
            np.nan_to_num(s),
            np.nan_to_num(s, copy=False),
            np.nan_to_num(k),
            np.choose(k, [s, s, s]),
            s[...],
            s.copy(),
        )

    a = np.array([1.5, -2.25, 3.0])
    ours, numpys = (p(a) for p in (hjit.pipeline(of_one_element, verify="off"), of_one_element))
    assert list(map(type, ours)) == list(map(type, numpys))
    for x, y in zip(hjit.pipeline(f, verify="off")(a), f(a), strict=True):
        assert type(x) is type(y) and x == y


def test_classes_that_code_reads_of_numbers() -> None:
    @functools.singledispatch
    def kind(x: Any) -> str:
        return "other"

    kind.register(np.ndarray, lambda x: "array")
    kind.register(np.floating, lambda x: "number of NumPy")
    kind.register(float, lambda x: "float")
    kind.register(complex, lambda x: "complex")

    def f(a: Any) -> Any:
        values = a, a[:1, :1], a.mean(), a[0, 0] * 2, float(a[0, 0]), int(a[0, 0]), a > 0, (a > 0).any(), a * 1j
        more = *values, (a * 1j)[0, 0], complex(a[0, 0]), len(a), 3
        return [(kind(x), x.__class__, getattr(x, "__class__")) for x in more]  # noqa: B009

    a = np.arange(12.0).reshape(3, 4)
    for dtype in (np.float64, np.float32, np.uint8):
        p = hjit.pipeline(f, verify="off")
        for _ in range(2):
            assert p(a.astype(dtype)) == f(a.astype(dtype))


def test_classes_that_code_matches_numbers_with() -> None:
    def kind(x: Any) -> Any:
        match x:
            case np.ndarray():
                return "array"
            case float(y) if y > 1e9:
                return y
            case int() | float():
                return "number"
            case np.generic() as y:
                return y
        return "other"

    def f(a: Any) -> Any:
        return [kind(x) for x in (a, a.mean(), a[0, 0] * 1e12, a.any(), int(a[0, 1]), (a * 1j)[0, 0], a * 1j)]

    p = hjit.pipeline(f, verify="off")
    for dtype in (np.float64, np.float32, np.uint8):
        a = np.arange(1, 13).reshape(3, 4).astype(dtype)
        for _ in range(2):
            assert p(a) == f(a)


def test_classes_that_are_mapped_over_numbers() -> None:
    def f(a: Any) -> Any:
        low = a.min()
        return list(map(type, (low, low + 1, float(low), a > 0, 3))), [*map(float, a[0])], sum(map(int, a[1])), low * 2

    p = hjit.pipeline(f, verify="off")
    for dtype in (np.float64, np.float32, np.uint8):
        a = np.arange(1, 13).reshape(3, 4).astype(dtype)
        for _ in range(2):
            assert p(a) == f(a)
            assert [*map(type, p(a)[1])] == [float] * 4
