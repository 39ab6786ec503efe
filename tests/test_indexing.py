"""Integer arrays and masks as indices, compiled: gathers, tables, masked and scattered writes, counts, bounds errors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import assert_same, check, image

INDEX_DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "int64", "uint64")


@pytest.mark.parametrize("index", INDEX_DTYPES)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
def test_tables(index: str, dtype: str) -> None:
    table = image((100,), dtype)
    at = (image((21, 67), "uint8") % 100).astype(index)
    check(
        lambda table, at: (
            table[at] + 1,
            np.take(table, at),
            table[at[:, ::-1]],
            table[at[::2]].astype(np.float64) * 2,
            table.take(at, mode="clip"),
        ),
        table,
        at,
    )


@pytest.mark.parametrize("n", [1, 5, 16, 17, 256])
def test_tables_of_any_size(n: int) -> None:
    check(lambda t, a: t[a % n] * 2 + t[0], image((n,), "int32"), image((19, 40), "uint8"))


def test_negative_indices() -> None:
    at = np.random.default_rng(0).integers(-50, 50, (13, 40))
    check(lambda t, a: (t[a], t[a, 0], t[a[:, 0]], t[-1], t[a - 0]), image((50, 3), "uint16"), at)


def test_gathers() -> None:
    a = image((40, 50, 3), "uint8")
    rows, columns = np.arange(40)[::-1] // 2, np.random.default_rng(1).integers(0, 50, 33)
    check(
        lambda a, r, c: (
            a[r] + 1,
            a[:, c] + 1,
            a[r[:, None], c[None]] + 1,
            a[r[:33], c] + 1,
            a[..., [2, 1, 0]] + 1,
            a[3, c] + 1,
            a[r, 5] + 1,
            a[c % 40, :, 1] + 1,
            a[:, c][:, ::2] * 2,
            a[r[:5], :, 2] + 1,
            a[[0, -1]] + 1,
            a[np.arange(40) % 7, 3:9] + 1,
            np.take(a, c, axis=1),
            np.take_along_axis(a, a % 40, 0),
        ),
        a,
        rows,
        columns,
    )


def test_bilinear_remap() -> None:
    def f(a: Any, y: Any, x: Any) -> Any:
        y0, x0 = np.floor(y).astype(np.intp), np.floor(x).astype(np.intp)
        fy, fx = y - y0, x - x0
        h, w = a.shape
        y1, x1 = np.minimum(y0 + 1, h - 1), np.minimum(x0 + 1, w - 1)
        top = a[y0, x0] * (1 - fx) + a[y0, x1] * fx
        return top * (1 - fy) + (a[y1, x0] * (1 - fx) + a[y1, x1] * fx) * fy

    rng = np.random.default_rng(2)
    check(f, image((30, 40), "float32"), rng.uniform(0, 29, (20, 33)), rng.uniform(0, 39, (20, 33)))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64", "bool"])
def test_masks(dtype: str) -> None:
    def f(a: Any, b: Any) -> Any:
        c = a.copy()
        m = a > b
        c[m] = 1
        c[~m] = b[~m]
        d = a.astype(np.float32)
        d[m] *= 2
        d[m & (d > 3)] += 0.5
        d[a == b] = d[a == b] + 1
        a[m] = 0
        return c, d, a[m].sum(), np.count_nonzero(m), b[m].any()

    check(f, image((19, 47), dtype), image((19, 47), dtype, 1))


def test_masks_over_leading_axes() -> None:
    def f(a: Any, m: Any) -> Any:
        b = a.copy()
        b[m] = 7
        b[~m] = [1, 2, 3]
        c = a.astype(np.int64)
        c[m, 1] = -1
        return b, c

    check(f, image((19, 40, 3), "uint8"), image((19, 40), "bool"))


def test_scatter_with_duplicates() -> None:
    def f(a: Any, at: Any, v: Any) -> Any:
        a[at] = v
        b = np.zeros((50, 40), np.float32)
        b[at % 50, 3] = v
        b[at % 50, at % 40] = 5
        b[np.array([1, 1, 2])] = 9
        return b

    rng = np.random.default_rng(3)
    check(f, image((60,), "float32"), rng.integers(-60, 60, 300), image((300,), "float32"))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float64"])
@pytest.mark.parametrize("n", [5, 300, 100_000])
def test_at(dtype: str, n: int) -> None:
    def f(a: Any, at: Any, v: Any) -> Any:
        np.add.at(a, at, 1)
        b = np.zeros(40, np.int64)
        np.add.at(b, at % 40, v)
        np.maximum.at(b, at % 7, 3)
        np.subtract.at(a, at[:5], 2)
        np.add.at(a, [0, 0, -1], 3)
        return b

    rng = np.random.default_rng(4)
    check(f, image((64,), dtype), rng.integers(0, 64, n), rng.integers(0, 9, n))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64"])
def test_counts(dtype: str) -> None:
    a = image((70, 90), dtype) & 255
    check(
        lambda a: (
            np.bincount(a.ravel(), minlength=256),
            np.histogram(a, bins=16, range=(0, 256)),
            np.histogram(a, 256, (0, 256))[0],
            np.bincount(a.ravel().astype(np.int64) // 16, minlength=20),
            np.histogram(a, bins=np.array([0, 10, 50, 300]))[0],
        ),
        a,
    )


def test_equalisation() -> None:
    def f(a: Any) -> Any:
        h = np.bincount(a.ravel(), minlength=256)
        c = np.cumsum(h)
        table = (c * 255 // c[-1]).astype(np.uint8)
        return table[a]

    check(f, image((60, 70), "uint8"))


@pytest.mark.parametrize("bad", [10, -11, 1000, 2**40])
@pytest.mark.parametrize("at", [0, 7, 16, 63, 64, 99])
def test_index_errors(bad: int, at: int) -> None:
    """An index that is out of bounds raises what NumPy raises, and nothing is written."""
    index = np.zeros(100, np.int64)
    index[at] = bad
    table = np.arange(10)

    def gather(t: Any, i: Any) -> Any:
        return t[i]

    def scatter(t: Any, i: Any) -> Any:
        t[i] = 5

    for fn in (gather, scatter):
        pipe = hjit.pipeline(fn, verify="off", cache="off")
        assert_same(pipe(table.copy(), index * 0), fn(table.copy(), index * 0))
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds for axis 0 with size 10"):
            pipe(table, index)
        assert_same(table, np.arange(10))


def test_static_index_errors() -> None:
    for key in (40, -41, (0, 70), (0, 0, 0)):
        check(lambda a, key=key: a[key], image((40, 50), "uint8"))
    check(lambda a: a[[0, 40]], image((40, 50), "uint8"))


def test_nonzero_choose_searchsorted() -> None:
    a = image((20, 37), "uint8")
    check(
        lambda a: (
            np.choose(a % 3, [a, a + 1, 7]),
            np.searchsorted(np.array([10, 50, 200]), a),
            np.digitize(a, np.array([10, 50, 200])),
            np.where(a > 100, a, 0),
        ),
        a,
    )


def test_an_empty_selection_has_no_extreme() -> None:
    def brightest(a: Any) -> Any:
        return a[a > 0.5].max()

    p = hjit.pipeline(brightest)
    image = np.random.default_rng(0).random((30, 40))
    assert p(image) == brightest(image) and p(image * 0.9) == brightest(image * 0.9)
    for _ in range(2):
        with pytest.raises(ValueError, match="zero-size array to reduction operation maximum"):
            p(image * 0.1)
    assert p(image) == brightest(image)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "uint64", "int64", "float32", "float64"])
@pytest.mark.parametrize("value", [7, 300, 0.1, True])
@pytest.mark.parametrize("name", ["add", "maximum", "multiply"])
def test_numbers_given_to_at_have_a_dtype_of_their_own(dtype: str, value: Any, name: str) -> None:
    a = (np.arange(40).reshape(8, 5) * 6.7 + (2**63 if dtype == "uint64" else 0)).astype(dtype)

    def some(a: Any) -> Any:
        b = a.copy()
        getattr(np, name).at(b, [0, 0, -1, 3], value)
        return b

    try:
        with np.errstate(all="ignore"):
            some(a)
    except Exception as error:
        with pytest.raises(type(error)):
            hjit.pipeline(some, verify="off")(a)
    else:
        check(some, a)


@pytest.mark.parametrize("limit", [0, 1 << 28])
def test_gathers_by_32_and_by_64_bits_agree(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from hjit.kernels.runtime import sizes

    monkeypatch.setattr(sizes, "SMALL_ARRAY", limit)

    def warped(a: Any, y: Any, x: Any, curve: Any) -> Any:
        table = curve + curve.dtype.type(1)
        return a[y, x] + a[y - 1, -x - 1] * 2, table[a[:, ::-1]], table[y.astype(np.uint32)]

    a = image((37, 53), "uint8")
    y, x = np.indices(a.shape)
    for dtype in ("int64", "int32", "int16", "uint8"):
        check(warped, a, ((y * 7) % 37).astype(dtype), ((x * 5 + y) % 53).astype(dtype), image((256,), "uint16"))


@pytest.mark.parametrize("wrong", [None, -5, 4])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("columns", [2, 40])
def test_indices_of_axes_that_are_one_element_in_memory_are_checked(wrong: int | None, axis: int, columns: int) -> None:
    """An axis of length 1, or one that is broadcast: its stride is 0, so that the index is no part of the address."""
    where = np.random.default_rng(0).integers(-4, 4, (3, columns))
    if wrong is not None:
        where[-1, -1] = wrong
    shape = [6, 6]
    shape[axis] = 4
    wide = np.broadcast_to(np.arange(6.0) if axis == 0 else np.arange(6.0)[:, None], shape)
    single = np.ones((1, 7) if axis == 0 else (7, 1))

    def f(img: Any, index: Any) -> Any:
        return (img[index, 0] if axis == 0 else img[0, index]) * 2

    for img, index in ((wide, where), (single, where // 4 if wrong is None else where)):
        for threads in (1, 2):
            p = hjit.pipeline(f, num_threads=threads, verify="off")
            if wrong is None:
                np.testing.assert_array_equal(p(img, index), f(img, index))
            else:
                with pytest.raises(IndexError) as expected:
                    f(img, index)
                with pytest.raises(IndexError, match=re.escape(str(expected.value))):
                    p(img, index)


def test_steps_that_lead_out_of_the_axis() -> None:
    check(
        lambda a: (a[:: 2**62], a[1 :: 2**63 - 1], a[:: -(2**63)], a[:, 3 :: 2**40], a[5 : 2 : -(2**35)]),
        np.arange(12.0).reshape(3, 4),
    )


@pytest.mark.parametrize("are_slow", [False, True])
def test_elements_of_four_bytes_are_loaded_one_by_one_where_gathers_are_slow(
    are_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hjit.kernels.runtime import features

    found = features.host_features() - {"slow_gathers"}
    if "avx512" not in found:
        pytest.skip("gathers are for AVX-512")
    monkeypatch.setattr(features, "host_features", lambda: found | ({"slow_gathers"} if are_slow else frozenset()))
    index = np.random.default_rng(0).integers(-900, 900, (20, 70))
    for dtype, is_gathered in (("float32", not are_slow), ("int32", not are_slow), ("float64", True)):
        table = image((900,), dtype)

        def looked_up(t: Any, i: Any, more: int = 3 + are_slow) -> Any:
            return t[i] * t.dtype.type(more)  # another number: other kernels

        p = hjit.pipeline(looked_up, cache="off")
        np.testing.assert_array_equal(p(table, index), looked_up(table, index))
        assert ("masked.gather" in str(p.inspect_llvm(table, index))) is is_gathered


@pytest.mark.parametrize("mask", [[True, False], [[True]], [False] * 40, [[True, False]] * 20])
@pytest.mark.parametrize("at", [lambda m: m, lambda m: (..., m), lambda m: (0, m), lambda m: (None, m), lambda m: (slice(1, 3), m)])  # fmt: skip
def test_known_masks_of_another_shape(mask: Any, at: Any) -> None:
    def read(a: Any) -> Any:
        return a[at(mask)] + 1

    def write(a: Any) -> None:
        a[at(mask)] = 1

    for f in (read, write):
        check(f, image((20, 30), "float32"))
        check(f, image((3, 40), "float32"))
