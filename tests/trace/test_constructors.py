"""NumPy's classes called by traced code, and attributes that code merely asks for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy import float32, uint8

import hjit
from hjit.call.arguments import leaves_of
from tests.numpy_check import check, image, sample

IMAGE = np.random.default_rng(6).random((24, 31))
KIND: Any = np.float32
HELD = SimpleNamespace(kind=np.float32)
SCALARS = "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 intp float16 float32 float64".split()


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "float64"])
def test_scalar_types_convert_arrays_and_scalars(name: str, dtype: str) -> None:
    a = np.abs(sample((9, 17), dtype, special=False) % 2) if dtype != "bool" else sample((9, 17), dtype)
    convert: Any = eval(
        f"lambda a: (np.{name}(a), np.{name}(a.max()), np.{name}([a[0, 0], a[1, 1]]), np.{name}(3))", {"np": np}
    )
    check(convert, a)


def test_a_type_that_is_imported_by_name_or_called_of_a_dtype() -> None:
    check(lambda a: (float32(a) * 2, uint8(a * 255), a.dtype.type(a.mean()) * a, a.dtype.type(3)), IMAGE)


def test_a_type_stays_itself_where_it_is_not_called() -> None:
    def f(a: Any) -> Any:
        by_type = {np.float64: 3, np.uint8: 4}
        same = (
            a.dtype.type is np.float64,
            a.dtype == np.float64,
            isinstance(a[0, 0], np.float64),
            np.issubdtype(a.dtype, np.floating),
        )
        return same, by_type[a.dtype.type], a.astype(np.float32)

    check(f, IMAGE)


def by_default(a: Any, kind: Any = np.float32) -> Any:
    return kind(a) + kind(1)


def as_a_dtype_too(a: Any) -> Any:
    kind = a.dtype.type
    zeros = np.zeros(a.shape, kind)
    zeros += kind(a.max()) * np.ones_like(a, dtype=kind)
    return kind(a * 2) + zeros.astype(kind), np.array([1, 2], dtype=kind), np.asarray(a, kind), np.full(3, 2, kind)


def one_of_two(a: Any) -> Any:
    kind = np.float32 if a.dtype == np.float64 else np.float64
    found = [convert(a * 3) for convert in (np.uint8, kind, float32)]
    return found, {"u": np.uint8, "f": kind}["f"](a[0]), HELD.kind(a.min())


def compared(a: Any) -> Any:
    kind = np.float32
    tests = (
        kind == np.float32,
        np.float32 == kind,
        kind == np.float64,
        kind != np.float32,
        kind in (np.uint8, np.float32),
        {np.float32: 3}.get(kind),
        issubclass(kind, np.floating),
        issubclass(kind, np.integer),
        issubclass(np.float32, kind),
        np.issubdtype(kind, np.floating),
        np.issubdtype(np.float32, kind),
        isinstance(np.float32(2), kind),
        isinstance(a, kind),
        isinstance(kind, type),
        kind.__name__,
        str(kind),
        repr(kind),
        np.dtype(kind),
        kind(3),
        np.finfo(kind).max,
        np.result_type(kind, np.float64),
        np.can_cast(kind, np.float64),
    )
    return kind(a), tests, kind


def helped(a: Any) -> Any:
    def converted(x: Any, kind: Any) -> Any:
        return kind(x)

    return converted(a, np.float32) * converted(a.max(), np.uint8)


def over_rows(a: Any) -> Any:
    kind, out = np.float32, np.empty(a.shape, np.float32)
    for y in range(a.shape[0]):
        out[y] = kind(a[y]) * kind(2)
    return out


def of_a_dtype_in_a_variable(a: Any) -> Any:
    d = a.dtype
    b = a.astype(np.float32)
    e = b.dtype
    told = (
        d.kind,
        d.name,
        str(d),
        f"{d}",
        repr(d),
        d == np.float64,
        e == "float32",
        d in (np.uint8, np.dtype(e)),
    )
    asked = (
        isinstance(d, np.dtype),
        {np.dtype("f8"): 1, np.dtype("f4"): 2}[d],
        np.issubdtype(e, np.floating),
        np.finfo(d).max,
    )
    made = np.zeros(a.shape, d) + np.array([1], dtype=d), np.result_type(d, e), np.full(3, 2, d), b.sum(dtype=d).dtype
    return d.type(b * 2), e.type(a), d.type(a.max()), d.type(2), d, told, asked, made, a.astype(e), d.type(a[0])


SINGLE = np.dtype("f4")


def of_dtypes_from_elsewhere(a: Any) -> Any:
    d, wide, common = np.dtype("f4"), np.result_type(a, np.float32), np.result_type("f4", "i2")
    same = d == SINGLE, isinstance(d, np.dtype), wide.kind, np.dtype(d).itemsize, np.dtype(common).name
    made = np.zeros(3, d), a.astype(wide), np.ones(3, dtype=SINGLE), np.dtype("i4,f8").names
    typed = d.type(a), wide.type(a * 3), common.type(a), SINGLE.type(a[0, 0])
    return typed, _converted(a, a.dtype, SINGLE), same, made


def _converted(a: Any, d: Any, e: Any = SINGLE) -> Any:
    return d.type(a + 1), e.type(a)


def of_scalars_alone(a: Any) -> Any:
    kind = a.dtype.type
    return kind(a.max()) * a, kind(a[0, 0])


@pytest.mark.parametrize(
    "f",
    [
        by_default,
        as_a_dtype_too,
        one_of_two,
        compared,
        helped,
        over_rows,
        of_a_dtype_in_a_variable,
        of_scalars_alone,
        of_dtypes_from_elsewhere,
    ],
)
def test_a_type_in_a_variable(f: Any) -> None:
    p = check(f, IMAGE)
    check(f, IMAGE.astype(np.float32))
    other = IMAGE * 2
    for x, y in zip(leaves_of(p(other)), leaves_of(f(other)), strict=True):
        np.testing.assert_array_equal(x, y)
    assert p.stats.traces == 1  # the values are no condition of the trace


def test_a_type_in_a_variable_and_run_time_numbers() -> None:
    def f(a: Any, k: Any) -> Any:
        kind = a.dtype.type
        return a * kind(k), kind(k)

    p = check(f, IMAGE, 3.5)
    np.testing.assert_array_equal(p(IMAGE, 2.25)[0], IMAGE * 2.25)
    assert p.stats.traces == 1
    check(f, np.ones((20, 30), np.uint8), 200)
    check(f, np.ones((20, 30), np.uint8), 300)


@pytest.mark.parametrize("name", SCALARS)
def test_each_type_in_a_variable(name: str) -> None:
    cls = getattr(np, name)

    def f(a: Any, k: Any) -> Any:
        kind = cls
        return kind(a), kind(a[0, 0]), kind(k), a * kind(k)

    p = check(f, IMAGE, 3)
    for x, y in zip(p(IMAGE * 7, 5), f(IMAGE * 7, 5), strict=True):
        np.testing.assert_array_equal(x, y)
    assert p.stats.traces == 1


def test_a_type_that_is_an_argument() -> None:
    def f(a: Any, kind: Any) -> Any:
        return kind(a)

    p = check(f, IMAGE, np.float32)
    assert p(IMAGE, np.uint8).dtype == np.uint8


def test_the_identity_of_a_type_in_a_variable() -> None:
    def f(a: Any) -> Any:
        kind = np.float32
        return kind(a.max()) + 1 if kind is np.float32 else a

    p = hjit.pipeline(f)  # the value is a condition of the trace
    for a in (IMAGE, IMAGE * 2, IMAGE):
        assert p(a) == f(a) and type(p(a)) is np.float32
    with pytest.raises(hjit.TraceError, match=r"kind\(a\): numpy.float32 reached the call in a variable"):
        hjit.pipeline(lambda a, kind=np.float32: kind(a) if kind is np.float32 else a)(IMAGE)


def test_a_type_that_is_bound_anew() -> None:
    f = hjit.pipeline(lambda a: (KIND(a), HELD.kind(a.max())), verify="off", cache="off")
    for kind in (np.float32, np.uint8, np.float32):
        globals()["KIND"] = HELD.kind = kind
        for x, y in zip(f(IMAGE), (kind(IMAGE), kind(IMAGE.max())), strict=True):
            assert x.dtype == kind
            np.testing.assert_array_equal(x, y)


def test_ufuncs_of_lists_of_arrays() -> None:
    check(lambda a: (np.abs([a, a - 1]), np.add([a.max(), 2.0], 1), np.multiply(a, [a, a])), IMAGE)
    check(lambda a: np.sqrt(np.abs(np.gradient(a))), IMAGE, exact=False)


def test_methods_of_ufuncs_take_lists_of_arrays() -> None:
    def whole(a: Any) -> Any:
        parts = [a[1:], a[:-1], 1 - a[1:]]
        out = np.empty_like(parts[0])
        np.maximum.reduce(parts, out=out)
        running = np.add.accumulate(tuple(parts))
        masks = np.logical_and.reduce([p > 0.1 for p in parts]), np.logical_or.reduce([parts[0] > 0.9, parts[1] > 0.9])
        return np.minimum.reduce(parts), out, running, masks, np.add.identity, np.multiply.reduce([1, 2, 3])

    f = hjit.pipeline(whole, on_unsupported="raise")
    for _ in range(2):
        for ours, theirs in zip(f(IMAGE), whole(IMAGE), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    check(lambda a: np.add.reduce([a, a[1:]]), IMAGE)  # of other shapes


def test_reduceat() -> None:
    def blocks(a: Any, places: Any) -> Any:
        rows = np.add.reduceat(a, np.arange(0, a.shape[0], 4), axis=0)
        out = np.empty((len(places), a.shape[1]))
        counts = np.add.reduceat(a > 0.5, places, axis=1), np.logical_or.reduceat(a > 0.9, [0, 3, 1], dtype=bool)
        return np.add.reduceat(rows, (0, 5), axis=-1), np.maximum.reduceat(a * 2, places, out=out), out, *counts

    f = hjit.pipeline(blocks, on_unsupported="raise")
    for shape in ((40, 50), (23, 70)):
        args = np.random.default_rng(0).random(shape), np.array([0, 4, 9, 3])
        for ours, theirs in zip(f(*args), blocks(*args), strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    for places in ([0, 1000], [0.5]):
        check(lambda a, p=places: np.add.reduceat(a, p) + 1, IMAGE)
    check(lambda a: np.add.reduceat(a, [0], axis=5), IMAGE)
    check(lambda a: np.add.reduceat(a.max(), [0]), IMAGE)


def test_reductions_by_ufuncs_without_a_table_are_calls() -> None:
    def whole(a: Any) -> Any:
        out = np.empty(a.shape[1])
        found = np.logaddexp.reduce(a, axis=1), np.hypot.reduce(a[:4], keepdims=True)
        return *found, np.logaddexp.reduce(a * 2, out=out) + 1, out

    f = hjit.pipeline(whole, on_unsupported="raise")
    for _ in range(2):
        for ours, theirs in zip(f(IMAGE), whole(IMAGE), strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    check(lambda a: np.logaddexp.reduce(a, axis=5), IMAGE)


def test_interpolation_with_a_period() -> None:
    def whole(a: Any, xp: Any, fp: Any, period: float) -> Any:
        known = np.interp(a * 720, [350.0, 10, 100, 200], [1, 2, 5, 3], period=360)
        return known, np.interp(a * 9, xp, fp, left=7, period=period), np.interp(a[0, 3], xp, fp, period=-period)

    f = hjit.pipeline(whole, on_unsupported="raise")
    r = np.random.default_rng(1)
    for period in (2.0, 3.5):
        args = IMAGE, r.random(9) * 5, r.random(9), period
        for ours, theirs in zip(f(*args), whole(*args), strict=True):
            assert type(ours) is type(theirs)
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    check(lambda a: np.interp(a, a[0], a[1], period=0), IMAGE)
    check(lambda a: np.interp(a, a, a, period=1), IMAGE)
    check(lambda a: np.interp(a, a[0], a[1, 1:], period=1), IMAGE)


def test_an_array_of_its_own_dtype_is_not_copied() -> None:
    def f(a: Any) -> Any:
        b = a.copy()
        np.float64(b)[0] = 7
        zero = b[1, 1, ...]
        scalar = np.float64(zero)
        b[1, 1] = 9
        return b, scalar

    check(f, IMAGE)


def test_run_time_numbers() -> None:
    f = check(lambda a, k: (a * np.float32(k), np.uint8(k), np.float32(a * k)), IMAGE, 3)
    np.testing.assert_array_equal(f(IMAGE, 5)[2], np.float32(IMAGE * 5))
    assert f.stats.traces == 1  # the number is no condition of the trace


def test_what_a_type_refuses() -> None:
    check(lambda a: a + np.uint8(300), IMAGE)
    check(lambda a, k: a + np.uint8(k), IMAGE, 300)


def test_new_arrays() -> None:
    def f(a: Any) -> Any:
        b = np.ndarray(a.shape, a.dtype)
        b[:] = a * 2
        c = np.ndarray(shape=(3, *a.shape), dtype=np.float32, order="F")
        c[...] = a
        d = np.ndarray(4)
        d.fill(1)
        return b, c, c.flags.f_contiguous, d

    check(f, IMAGE)
    with pytest.raises(hjit.TraceError, match="a traced array has no memory"):
        hjit.pipeline(lambda a: np.ndarray(a.shape, a.dtype, a))(IMAGE)


def test_attributes_that_are_asked_for() -> None:
    def f(a: Any, k: float) -> Any:
        names = "__array_interface__", "__array_struct__", "ctypes", "dtype", "mask"
        return [[hasattr(x, name) for name in names] for x in (a, a.max(), float(a.max()), k)]

    check(f, IMAGE, 2.5)
    check(f, IMAGE, np.float32(2.5))
    check(lambda a: a * 3 if hasattr(a, "__array_interface__") else a * 2, IMAGE)


def test_the_array_interface() -> None:
    def f(a: Any) -> Any:
        whole, turned = a.__array_interface__, getattr(a[::2].T, "__array_interface__", None)
        return [(x["shape"], x["strides"], x["typestr"], x["descr"], x["version"]) for x in (whole, turned)]

    check(f, IMAGE)
    with pytest.raises(hjit.TraceError, match="no memory while the function is traced"):
        hjit.pipeline(lambda a: a.__array_interface__["data"][0])(IMAGE)


@pytest.mark.parametrize("n", [17, -17, np.int32(17), 7.25, np.float32(7.25)])
def test_divmod_of_run_time_numbers(n: Any) -> None:
    f = check(lambda a, n: (divmod(n, 5), divmod(100, n), a + divmod(n, 3)[1], np.divmod(n, 2), np.modf(n)), IMAGE, n)
    other = n + 1
    assert f(IMAGE, other)[0] == divmod(other, 5)
    assert f.stats.traces == 1


def test_divmod_by_zero() -> None:
    check(lambda a, n: a + divmod(5, n)[0], IMAGE, 0)


def test_grids_of_a_list_of_slices() -> None:
    check(lambda a: np.mgrid[[slice(0, n) for n in a.shape]] * a, IMAGE)
    check(lambda a: [g + a for g in np.ogrid[[slice(0, n) for n in a.shape]]], IMAGE)
    check(lambda a: np.mgrid[[slice(1, 4)]] + a[0, 0], IMAGE)
    check(lambda a: np.mgrid[1:4] + a[0, 0], IMAGE)


def test_grids_step_from_their_starts() -> None:
    def f(a: Any, low: float) -> Any:
        h, w = a.shape
        fixed = (
            np.mgrid[-1:1:390j, 3:-7:28j],
            np.ogrid[-1:1:390j, :2:0.1],
            np.mgrid[-1:1:61j],
            np.ogrid[0.1:7:0.3, 5:6:1j],
        )
        sized = (
            np.mgrid[-1 : 1 : h * 1j, low : 1 : w * 1j],
            np.ogrid[low : h / 3 : 0.3, : w / 2 : 0.7],
            np.mgrid[2:9:1j],
        )
        return fixed, sized, np.mgrid[0 : h / 3 : 0.3], np.mgrid[np.float32(0.1) : np.float32(9) : np.float32(0.3), :4]

    check(f, IMAGE, -0.3)
    check(f, np.ones((390, 41)), -1.7)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float32"])
def test_clip_into_an_array(dtype: str) -> None:
    a = sample((9, 17), dtype, special=False)

    def f(a: Any) -> Any:
        out = a.copy()
        np.clip(out[::2], a.min(), a.max(), out=out[::2])
        return out

    check(f, a)


def test_items_by_their_place() -> None:
    check(lambda a: (a.item(3), a.item((1, 2)), a.item(1, 2), a[0].item(-1), a[::2].T.item(7)), IMAGE)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize(
    "kwargs",
    [
        *({"num": num} for num in (-1, 0, 1, 5, 40)),
        {"num": 5, "endpoint": False},
        {"num": 5, "axis": -1},
        {"num": 1, "retstep": True},
        {"num": 5, "retstep": True},
        {"num": 5, "dtype": np.int32},
        {"num": 5, "dtype": np.float32},
    ],
)
def test_lines_between_elements(kwargs: Any, dtype: str) -> None:
    a = image((20, 30), dtype)
    check(lambda a: np.linspace(0, a, **kwargs), a)
    check(lambda a, k: np.linspace(a[:1], k, **kwargs), a, 2.5)
    check(lambda a: np.linspace([a[0, 0], a[0, 1]], a[:, :2], **kwargs), a)
    check(lambda a: np.linspace(a, a.copy(), **kwargs), a)


def test_lines_between_elements_whose_steps_are_too_small() -> None:
    tiny = np.array([5e-324, 0, 1, 5e-323] * 10)
    check(lambda a: (np.linspace(0, a, 5), np.linspace(a, 2, len(a))), tiny)


def test_lines_of_one_point() -> None:
    check(
        lambda a, k: (
            np.linspace(a[0, 0], a[1, 1], 1),
            np.linspace(k, a.max(), 1, endpoint=False),
            np.linspace(a.max(), 2, 5, retstep=True),
        ),
        IMAGE,
        3,
    )
