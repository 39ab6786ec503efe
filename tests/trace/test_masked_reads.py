"""Arrays read under a mask, and what nonzero and unique find: reductions of them are part of one Graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.errors import TraceError
from tests.numpy_check import assert_same, check, layouts, sample

pytestmark = pytest.mark.filterwarnings(
    "ignore:Mean of empty slice", "ignore:invalid value", "ignore:Degrees of freedom"
)
RNG = np.random.default_rng(0)
IMAGE = RNG.random((31, 40)).astype(np.float32)
BYTES = RNG.integers(0, 200, (31, 40)).astype(np.uint8)
COLOURS = RNG.random((21, 30, 3)).astype(np.float32)
Function = Callable[[Any], Any]


def compiled(f: Function, *args: Any, **options: Any) -> Any:
    return check(f, *args, on_unsupported="raise", tune=False, **options)


REDUCTIONS: list[Function] = [
    lambda v: (v.sum(), v.mean(), v.std(), v.var(ddof=1), v.prod(dtype=np.float64)),
    lambda v: (np.sum(v), np.mean(v), np.std(v), np.var(v, ddof=1), np.mean(v, dtype=np.float64)),
    lambda v: (v.min(), v.max(), np.min(v), np.max(v), np.ptp(v), (v > 1).any(), (v > 0).all(), np.count_nonzero(v)),
    lambda v: (np.median(v), np.percentile(v, (2, 98)), np.quantile(v, 0.3), np.nanmedian(v), v.argmax()),
    lambda v: (
        np.sqrt(v).mean(),
        (v**2).mean(),
        np.abs(v - v.mean()).max(),
        np.clip(v, 3, 9).sum(),
        v.clip(3, 9).sum(),
    ),
    lambda v: (np.histogram(v, 8, (0, 200)), np.dot(v, v), np.average(v, weights=v + 1)),
    lambda v: (v.size, len(v), v.shape[0], v.shape, v.ndim),
]


@pytest.mark.parametrize("f", REDUCTIONS, ids=range(len(REDUCTIONS)))
def test_reductions(f: Function) -> None:
    compiled(lambda x: f(x[x > 0.5]), IMAGE, exact=False)
    compiled(lambda x: f(x[x > 50]), BYTES, exact=False)


def test_reductions_of_an_axis_of_colours() -> None:
    def f(x: Any) -> Any:
        v = x[x[..., 0] > 0.5]
        return (
            v.mean(axis=0),
            v.mean(),
            v.max(axis=0, keepdims=True),
            v.sum(keepdims=True),
            v.mean(axis=1).max(),
            v.shape,
        )

    compiled(f, COLOURS, exact=False)
    compiled(
        lambda x: (x[x[..., 0] > 0.5].std(axis=0, ddof=1), np.median(x[x[..., 1] > 0.5], axis=0)), COLOURS, exact=False
    )
    compiled(lambda x: x[x[..., 0] > 0.5, 1].mean(), COLOURS, exact=False)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float32", "float64"])
def test_dtypes_and_layouts(dtype: str) -> None:
    a = sample((13, 17), dtype, special=np.dtype(dtype).kind != "f")
    for name, x in layouts(a).items():
        if name in ("C", "F", "step"):
            compiled(lambda x: (x[x > 0].sum(), x[x > 0].max(), x[x > 0].mean()), x, exact=False)


def test_nothing_under_the_mask() -> None:
    compiled(lambda x: (x[x > 9].sum(), x[x > 9].mean(), x[x > 9].size, x[x > 9].std(), x[x > 9].any()), IMAGE)
    for f in (np.min, np.max, np.ptp, np.argmax):
        check(lambda x, f=f: f(x[x > 9]), IMAGE)
    p = hjit.pipeline(lambda x: x[x > 0.5].max(), cache="off", verify="off")
    assert p(IMAGE) == IMAGE.max()
    with pytest.raises(ValueError, match="zero-size array to reduction operation maximum which has no identity"):
        p(IMAGE * 0)


def test_other_values_need_no_new_trace() -> None:
    def f(x: Any) -> Any:
        v, (rows, columns) = x[x > 0.5], np.nonzero(x > 0.7)
        share = v.size / x.size
        if len(v) > 9 and v.size:
            return x * share + v.mean() * len(v), rows.min(), columns.max()
        return x

    p = hjit.pipeline(f, on_unsupported="raise", cache="off", verify="off", tune=False)
    for seed in range(5):
        x = np.random.default_rng(seed).random((31, 40)).astype(np.float32)
        assert_same(p(x), f(x), exact=False)
    assert (p.stats.traces, p.stats.fallbacks) == (1, 0)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "uint64"])
def test_lengths_are_pythons_ints(dtype: str) -> None:
    """They take the dtype of arrays, and are refused where that does not hold them."""
    a = (RNG.random((13, 17)) * 100).astype(dtype)

    def f(x: Any) -> Any:
        n = x[x > 90].size
        m = len(x[x > 50])
        return (
            x + n,
            n * 2,
            n / 3,
            n // 2,
            n - m,
            x > m,
            x * (m / x.size),
            isinstance(n, int),
            type(n) is int,
            -n,
            max(n, 1),
        )

    compiled(f, a)
    compiled(lambda x: (np.full(3, x[x > 50].size), np.zeros(x[x > 95].size), [*range(x[x > 98].size)]), a)
    check(lambda x: x + len(x[x > -1]) * 200, (a % 7).astype(dtype))


def test_a_length_is_stored_as_numpy_stores_it() -> None:
    def f(x: Any, out: Any) -> Any:
        out[0] = x[x > 0.5].size
        out[1:3] = len(x[x > 0.99])

    compiled(f, IMAGE, np.zeros(4))
    compiled(f, IMAGE, np.zeros(4, np.int32))
    check(f, IMAGE, np.zeros(4, np.uint8))


def test_a_decision_on_a_number_is_on_whether_it_is_zero() -> None:
    p = hjit.pipeline(lambda x: x + 1 if np.count_nonzero(x > 0.5) else x, cache="off", verify="off", tune=False)
    for seed in range(4):
        x = np.random.default_rng(seed).random((31, 40))
        np.testing.assert_array_equal(p(x), x + 1)
    assert p.stats.traces == 1
    np.testing.assert_array_equal(p(IMAGE * 0), IMAGE * 0)


# -- nonzero


def test_places() -> None:
    def box(x: Any) -> Any:
        rows, columns = np.nonzero(x > 0.9)
        return rows.min(), rows.max(), columns.min(), columns.max(), rows.mean(), len(rows), columns.size

    compiled(box, IMAGE)
    compiled(lambda x: (np.flatnonzero(x > 0.5).size, len(np.flatnonzero(x)), np.flatnonzero(x > 0.5).max()), IMAGE)
    compiled(
        lambda x: (np.argwhere(x > 0.5).min(axis=0), np.argwhere(x > 0.5).mean(axis=0), len(np.argwhere(x))), IMAGE
    )
    compiled(lambda x: ((x > 0.5).nonzero()[1].sum(), np.where(x > 0.5)[0].max()), IMAGE)
    check(lambda x: np.nonzero(x > 9)[0].min(), IMAGE)


def test_places_are_read_and_written_as_their_mask_is() -> None:
    def f(x: Any) -> Any:
        y, k = x.copy(), np.nonzero(x > 0.5)
        y[k] = 7
        y[np.flatnonzero(x[:, 0] > 0.5)] += 1
        return y, x[k].mean(), x[np.where(x > 0.7)].size

    compiled(f, IMAGE, exact=False)


def test_elements_at_known_places() -> None:
    def box(x: Any) -> Any:
        inside = x > 0.9
        (top, bottom), columns = np.where(inside.any(axis=1))[0][[0, -1]], np.flatnonzero(inside.any(axis=0))
        return top, bottom, columns[0], columns[-1], columns[2], x[inside][-3], np.argwhere(inside)[0]

    compiled(box, IMAGE)
    compiled(lambda x: (np.argwhere(x > 50)[-1, 1], np.argwhere(x > 50)[[0, -1], 0]), BYTES)
    compiled(lambda x: (x[x[..., 0] > 0.5][0], x[x[..., 0] > 0.5][-1, 2], x[x[..., 1] > 0.5][[1, 0]]), COLOURS)
    compiled(lambda x: (x[x > 0.5][x[x > 0.5] > 0.9].mean(), x[x > 0.5][x[x > 0.5] < 0.9].size), IMAGE, exact=False)
    compiled(lambda x: (lambda h: np.where(np.cumsum(h) >= 100)[0][0] * 2.5)(np.bincount(x.ravel())), BYTES)


def test_elements_that_are_not_there() -> None:
    for f in (lambda x: np.where(x > 9)[0][0], lambda x: x[x > 9][-2], lambda x: x[:0][x[:0] > 1][0]):
        p = hjit.pipeline(f)
        for x in (IMAGE, IMAGE[1:]):
            with pytest.raises(IndexError) as theirs:
                f(x)
            with pytest.raises(IndexError) as ours:
                p(x)
            assert str(ours.value) == str(theirs.value)
    p = hjit.pipeline(lambda x: np.flatnonzero(x > 0.5)[0], on_unsupported="raise")
    assert p(np.array([0.0, 1, 0])) == 1
    with pytest.raises(IndexError, match="index 0 is out of bounds for axis 0 with size 0"):
        p(np.zeros(3))
    assert p(np.array([0.0, 0, 1])) == 2


def test_counts_under_a_mask() -> None:
    labels = RNG.integers(-1, 6, (31, 40))

    def confusion(a: Any, b: Any) -> Any:
        known = (a >= 0) & (a < 5)
        return np.bincount(5 * a[known].astype(int) + b[known], minlength=25).reshape(5, 5)

    compiled(confusion, labels, np.abs(labels[::-1]) % 5)
    compiled(lambda a: np.bincount(a[a >= 0]), labels)
    compiled(lambda a: np.bincount(a[a >= 0], minlength=3), labels)
    compiled(lambda a: np.bincount(a[a > 9], minlength=3), labels)
    compiled(lambda a: np.bincount(a[a > 9]), labels)
    compiled(lambda a, w: np.bincount(a[a > 0], w[a > 0], 9), labels, IMAGE)
    compiled(lambda x: np.bincount(np.nonzero(x > 0.5)[1] + 3, minlength=50), IMAGE)
    for f in (lambda a: np.bincount(a[a < 2]), lambda a: np.bincount(a[a[:, 0] > 2])):
        with pytest.raises(ValueError) as theirs:
            f(labels)
        with pytest.raises(ValueError, match=str(theirs.value)):
            hjit.pipeline(f)(labels)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.flatnonzero(x > 0.5)[3:],
        lambda x: np.ravel(np.argwhere(x > 0.5)),
        lambda x: x[np.nonzero(x > 0.5)][::2].sum(),
        lambda x: np.concatenate([x[x > 0.5], x[0]]).sum(),
        lambda x: np.argwhere(x > 0.5)[::2].sum(),
        lambda x: np.unique(x).size,
        lambda x: [v + 1 for v in np.unique((x * 9).astype(np.uint8))],
    ],
    ids=range(7),
)
def test_what_needs_the_elements_runs_in_parts(f: Function) -> None:
    with pytest.raises(TraceError, match="depends on the image's values"):
        hjit.pipeline(f, on_unsupported="raise", cache="off")(IMAGE)
    p = hjit.pipeline(f, on_unsupported="break", cache="off", verify="off", tune=False)
    for x in (IMAGE, IMAGE[::-1].copy()):
        assert_same(p(x), f(x), exact=False)


# -- unique


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "uint16"])
def test_values_that_occur(dtype: str) -> None:
    a = sample((31, 40), dtype)

    def f(x: Any) -> Any:
        values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
        return values.size, len(values), values.max(), values.min(), inverse, counts.max(), counts.sum()

    compiled(f, a)
    compiled(lambda x: (len(np.unique(x)) > 2, np.unique(x).size == 2, np.unique(x, return_counts=True)[1].mean()), a)


@pytest.mark.parametrize(
    "f", [lambda x: np.i0(x), lambda x: np.i0(x[3]), lambda x: np.piecewise(x, [x < 0.3], [np.sinc, 2])]
)
def test_functions_of_numpys_own_source(f: Function) -> None:
    """What NumPy writes in Python is traced with what is read under a mask, too."""
    compiled(f, np.linspace(0, 20, 50)[RNG.permutation(50)], exact=False)


def binned(x: Any, k: Any) -> Any:
    keep = (k >= 0) & (k < 12)
    k, x = k[keep], x[keep]
    total, most = np.zeros(12, x.dtype), np.full(12, -np.inf)
    np.add.at(total, k, x)
    np.maximum.at(most, k, x)
    return total, most


def counted(x: Any, k: Any) -> Any:
    keep = (k >= 0) & (k < 12)
    n, pairs, product = np.zeros(12, int), np.zeros((12, 12), np.float32), np.ones((12, 3))
    np.add.at(n, k[keep], 1)
    np.subtract.at(pairs, (k[keep], 11 - k[keep]), 0.5 * x[keep])
    np.multiply.at(product, k[keep], 2)
    np.minimum.at(n, k[keep], n.max() - k[keep])
    return n, pairs, product


@pytest.mark.parametrize("f", [binned, counted])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_ufuncs_at_places_under_a_mask(f: Callable[..., Any], dtype: str) -> None:
    k = RNG.integers(-4, 18, 900)
    x = RNG.integers(-50, 50, 900).astype(dtype)
    for places in (k, k * 0 - 1):
        compiled(f, x, places)
        compiled(f, x.reshape(30, 30), places.reshape(30, 30))


def test_ufuncs_at_places_that_are_not_there() -> None:
    def f(k: Any) -> Any:
        out = np.zeros(5, int)
        np.add.at(out, k[k > 0], 1)
        return out

    p = hjit.pipeline(f, cache="off")
    np.testing.assert_array_equal(p(np.array([3, -9, 4, 4])), f(np.array([3, -9, 4, 4])))
    with pytest.raises(IndexError):
        p(np.array([3, -9, 4, 5]))


def test_ufuncs_at_places_under_different_masks_are_refused() -> None:
    def f(x: Any, k: Any) -> Any:
        out = np.zeros(5)
        np.add.at(out, k[k > 0], x[x > 0])
        return out

    with pytest.raises(TraceError, match="different masks"):
        hjit.pipeline(f, cache="off")(IMAGE[0, :9], np.arange(9) % 5)


def test_rows_at_places_under_a_mask() -> None:
    def f(x: Any, k: Any) -> Any:
        keep = (k >= 0) & (k < 12)
        one, rows = np.zeros((12, 5)), np.zeros((12, 3))
        one[k[keep]] = 3.0
        rows[k[keep]] = x[keep]
        np.add.at(rows, k[keep], x[keep])
        return one, rows

    compiled(f, RNG.random((30, 3)), RNG.integers(-4, 18, 30))


def test_what_is_solved_for_masked_reads_says_why_it_breaks() -> None:
    def f(a: Any, b: Any) -> Any:
        keep = b > 0.5
        return np.linalg.lstsq(a[keep], b[keep], rcond=None)[0]

    with pytest.raises(TraceError, match="depends on the image's values"):  # it was an AttributeError: __array_wrap__
        hjit.pipeline(f, cache="off", on_unsupported="raise")(RNG.random((30, 3)), RNG.random(30))
