"""Order statistics and sorting of many elements: one Graph, with NumPy's own function in it or by counting."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.trace.ops.limits import MAX_SELECTED, MAX_SORTED, MIN_COUNTED, MIN_DIGITS_COUNTED, MIN_PLACES
from hjit.trace.ops.reductions import selection
from hjit.trace.ops.reductions.counting import CHOOSING, METHODS
from tests.numpy_check import assert_same, check, layouts, sample
from tests.trace.helpers import check as interpreted

RNG = np.random.default_rng(3)
DTYPES = ("bool", "uint8", "int8", "uint16", "int16", "int32", "uint64", "float16", "float32", "float64")
SMALL_INTEGERS = ("bool", "uint8", "int8", "uint16", "int16")
QUANTILES: list[Any] = [0, 100, 50, 2.5, np.float64(30), np.float32(97.5), (2, 98), [0.0, 12.5, 100.0], [[1], [99]]]


def compiled(function: Any, *args: Any, **options: Any) -> Any:
    """As `check`, and the function is one Graph."""
    return check(function, *args, on_unsupported="raise", tune=False, **options)


def pixels(dtype: str, shape: tuple[int, ...] = (31, 40)) -> np.ndarray[Any, Any]:
    return sample(shape, dtype, special=np.dtype(dtype).kind != "f")


# -- statistics of all elements


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_images(dtype: str) -> None:
    a = pixels(dtype)
    compiled(lambda x: (np.median(x), np.median(x, keepdims=True), np.nanmedian(x), np.median(x, axis=(0, 1))), a)
    if dtype != "bool":
        compiled(lambda x: (np.percentile(x, (2, 98)), np.quantile(x, 0.5, keepdims=True), np.nanpercentile(x, 5)), a)


@pytest.mark.parametrize("method", METHODS)
def test_methods(method: Any) -> None:
    q = np.array([0, 1, 2.5, 30, 50, 77.7, 99, 100])
    dtypes = ["uint8", "int8"] if method not in ("linear", "nearest") else ["uint8", "int8", "uint16", "int16"]
    for dtype in [*dtypes, "bool"] if method in CHOOSING else dtypes:
        a = pixels(dtype, (31, 40) if np.dtype(dtype).itemsize == 1 else (130, 131))
        compiled(lambda x, q: np.percentile(x, q, method=method), a, q)


@pytest.mark.parametrize("method", METHODS)
def test_forms_of_quantiles(method: Any) -> None:
    a = pixels("uint8", (5, 8))
    for q in QUANTILES:
        interpreted(lambda x, q=q: np.percentile(x, q, method=method), a)
    for q in (0, 1, [0, 1]):
        interpreted(lambda x, q=q: np.quantile(x, q, method=method), a)


@pytest.mark.parametrize("dtype", SMALL_INTEGERS)
def test_extremes_ties_and_sizes(dtype: str) -> None:
    info = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    q = np.array([0, 0.5, 1])
    f = hjit.pipeline(
        lambda x: (np.median(x), np.quantile(x, q, method="nearest")), on_unsupported="raise", cache="off"
    )
    for n in (MAX_SORTED + 1, 100, MIN_COUNTED, MIN_COUNTED + 1):
        for a in (np.full(n, info[0]), np.full(n, info[1]), np.arange(n) % 2 * info[1], np.linspace(*info, n)):
            assert_same(f(a.astype(dtype)), f.py_func(a.astype(dtype)))
    assert f.stats.fallbacks == 0


def test_layouts() -> None:
    def f(x: Any) -> Any:
        return np.percentile(x[::2, 3:], (2, 98))

    for a in layouts(pixels("uint8", (35, 40))).values():
        compiled(f, a)
    for a in (pixels("int16", (130, 140)).T, pixels("int16", (270, 140))[::-2]):
        compiled(f, a)
    compiled(f, pixels("uint8", (5, 3, 20)).transpose(2, 0, 1))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "float64"])
def test_another_quantile_and_another_size_need_no_new_kernel(dtype: str) -> None:
    def f(x: Any, q: Any) -> Any:
        return np.clip(x, np.percentile(x, q), np.quantile(x, 1 - q / 100))

    p = hjit.pipeline(f, on_unsupported="raise", cache="off", verify="off", tune=False)
    a = pixels(dtype, (140, 150))
    for q in (2.0, 5.0, 0.0):
        np.testing.assert_array_equal(p(a, q), f(a, q))
    assert (p.stats.traces, p.stats.fallbacks) == (1, 0)
    before = p.stats.compilations
    for b in (a[:131, :149].copy(), a[:139]):
        np.testing.assert_array_equal(p(b, 3.0), f(b, 3.0))
    assert p.stats.compilations == before


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("kind", [int, float, np.float32, np.float64])
def test_quantiles_of_the_call(dtype: str, kind: Any) -> None:
    def f(x: Any, q: Any) -> Any:
        return np.percentile(x, q), np.percentile(x, [q, 98]), np.quantile(x, q - 6), np.percentile(x, np.asarray([q]))

    compiled(f, pixels(dtype), kind(7))


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_quantiles_that_are_computed(dtype: str) -> None:
    a = pixels(dtype)
    compiled(lambda x: np.percentile(x, np.minimum(x.max(), 90)), a)
    compiled(lambda x, q: np.percentile(x, q * 2), a, np.array([1.0, 40.0]))
    compiled(lambda x: np.quantile(x, (x > 3).mean()), a)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float64"])
def test_refusals_are_numpys(dtype: str) -> None:
    a = pixels(dtype, (140, 150))
    check(lambda x: np.percentile(x, 101), a)
    check(lambda x: np.quantile(x, (0.5, -0.1)), a)
    check(lambda x, q: np.percentile(x, q), a, 100.5)
    check(lambda x, q: np.percentile(x, q), a, np.nan)
    check(lambda x: np.percentile(x, 5, method="best"), a)
    check(lambda x: np.percentile(x, 5, axis=2), a)
    check(lambda x: np.median(x, axis=(1, 1)), a)
    check(lambda x: np.partition(x, 150), a)
    check(lambda x: np.median(x, out=np.zeros(3)), a)


def test_a_later_call_is_refused_as_numpy_refuses_it() -> None:
    for dtype in ("uint8", "float32"):
        p = hjit.pipeline(lambda x, q: np.percentile(x, q), cache="off", verify="off", tune=False)
        a = pixels(dtype)
        assert p(a, 30.0) == np.percentile(a, 30.0)
        with pytest.raises(ValueError, match=r"Percentiles must be in the range \[0, 100\]"):
            p(a, -1.0)
        assert p(a, 31.0) == np.percentile(a, 31.0)


def test_bools_are_not_interpolated() -> None:
    a = pixels("bool")
    check(lambda x: np.percentile(x, 30), a)
    compiled(lambda x: np.percentile(x, 30, method="nearest"), a)


# -- by the digits of numbers of more bits


def breaks(p: Any) -> list[Any]:
    """The extern calls and decisions of the latest trace of a pipeline."""
    return p.entries[-1].variants[0].rec.breaks


def statistics(x: Any) -> Any:
    return (
        (np.median(x), np.nanmedian(x, keepdims=True), np.percentile(x, 30)),
        (np.quantile(x, (0, 0.999)), np.nanpercentile(x, [[2.5], [98]]), np.nanquantile(x, 1)),
        (np.percentile(x, 50, method="lower"), np.nanquantile(x, 0.7, method="hazen", keepdims=True)),
    )


WIDE = ("int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
WIDE_SHAPE = (256, 257)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("dtype", WIDE)
def test_images_of_more_bits(dtype: str, long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LONG_DIGITS", 1 if long else 1 << 18)
    for a in (sample(WIDE_SHAPE, dtype, special=True), pixels(dtype, WIDE_SHAPE)):
        p = compiled(statistics, a)
        assert not breaks(p)


@pytest.mark.parametrize("dtype", WIDE)
def test_ties_extremes_and_sizes_of_more_bits(dtype: str) -> None:
    info: Any = np.iinfo(dtype) if np.dtype(dtype).kind != "f" else np.finfo(dtype)
    p = hjit.pipeline(statistics, cache="off", verify="off", tune=False, on_unsupported="raise")
    with np.errstate(all="ignore"):
        for n in (MIN_DIGITS_COUNTED, MIN_DIGITS_COUNTED + 1):
            k = np.arange(n)
            for a in (k % 2, k % 3 * (info.max // 2), np.where(k % 5 == 0, info.max, info.min), k * 0):
                assert_same(p(a.astype(dtype)), statistics(a.astype(dtype)))
            if np.dtype(dtype).kind == "f":
                for x in (np.inf, -np.inf, np.nan, -np.nan):
                    a = np.where(k % 7 == 3, x, k).astype(dtype)
                    assert_same(p(a), statistics(a))
    assert p.stats.fallbacks == 0 and not breaks(p)


def test_channels() -> None:
    def f(x: Any) -> Any:
        return (
            np.percentile(x, (2, 98), axis=(0, 1)),
            np.median(x, axis=(0, 1), keepdims=True),
            np.nanmedian(x, (0, 1)),
        )

    for dtype in ("uint8", "uint16", "int32", "float32"):
        p = compiled(f, pixels(dtype, (*WIDE_SHAPE, 3)))
        assert not breaks(p)
        p = compiled(
            lambda x: np.percentile(x, [1.0, 50.0], axis=(1, 2), keepdims=True), pixels(dtype, (2, *WIDE_SHAPE))
        )
        assert not breaks(p)
    assert breaks(compiled(f, pixels("float32", (*WIDE_SHAPE, 5))))


def test_digits_of_roundings_are_not_counted() -> None:
    a = pixels("float32", WIDE_SHAPE)
    assert breaks(compiled(lambda x: np.median(np.exp(-x * x)), a, exact=False))
    assert breaks(compiled(lambda x: np.median(x - x.mean()), a, exact=False))
    assert not breaks(compiled(lambda x: np.median(np.abs(x - np.median(x))), a))


def test_where_all_is_nan_numpy_warns() -> None:
    p = hjit.pipeline(lambda x: np.nanmedian(x), cache="off", tune=False, on_unsupported="raise")
    a = pixels("float32", WIDE_SHAPE)
    for _ in range(2):
        p(a)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="All-NaN"):
            assert np.isnan(p(np.full_like(a, np.nan)))
        assert p(a) == np.nanmedian(a)


# -- of arrays read under a mask


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "uint64", "float32", "float64"])
def test_reads_under_a_mask(dtype: str) -> None:
    def f(x: Any, m: Any) -> Any:
        return (
            (np.median(x[m]), np.nanmedian(x[m], axis=0), np.percentile(x[~m], 10)),
            (np.nanpercentile(x[m], (5, 95.0)), np.quantile(x[m], 0.25, method="higher"), np.median(x[m] + x[m])),
        )

    for a in (pixels(dtype, WIDE_SHAPE), sample(WIDE_SHAPE, dtype, special=True)):
        for share in (0.5, 1e-3, 1.0):
            mask = RNG.random(WIDE_SHAPE) < share
            mask[0, :3], mask[1, :3] = True, False
            p = check(f, a, mask, on_unsupported="raise", tune=False, zeros=False)
            assert not breaks(p)


def test_a_clipped_median_is_one_graph() -> None:
    def clipped(x: Any) -> Any:
        kept = np.ones(x.shape, bool)
        for _ in range(3):
            centre, spread = np.median(x[kept]), x[kept].std()
            kept = np.abs(x - centre) < 2 * spread
        return x[kept].mean(), kept

    a = RNG.standard_normal((300, 301)) ** 3
    p = hjit.pipeline(clipped, cache="off", tune=False, on_unsupported="raise")
    for x in (a, a[:-5], a):
        (mean, kept), (expected, numpys) = p(x), clipped(x)
        np.testing.assert_allclose(mean, expected, rtol=1e-12)
        np.testing.assert_array_equal(kept, numpys)
    assert p.stats.verified is True and p.stats.flipped == 0 and not breaks(p)


def test_under_an_empty_mask_numpy_says_what_it_does() -> None:
    a = pixels("float32", WIDE_SHAPE)
    p = hjit.pipeline(lambda x, t: np.median(x[x > t]), cache="off", tune=False, on_unsupported="raise")
    for _ in range(2):
        assert p(a, np.float32(0)) == np.median(a[a > 0])
    for _ in range(2):
        with pytest.warns(RuntimeWarning):
            assert np.isnan(p(a, np.float32(np.inf)))
    q = hjit.pipeline(lambda x, t: np.percentile(x[x > t], 5), cache="off", tune=False, on_unsupported="raise")
    assert q(a, np.float32(0)) == np.percentile(a[a > 0], 5)
    with pytest.raises(IndexError):
        q(a, np.float32(np.inf))


# -- along axes


@pytest.mark.parametrize("dtype", DTYPES)
def test_axes(dtype: str) -> None:
    a = pixels(dtype, (40, 7, 41))
    for axis in (0, -1, (0, 2), (1, 2)):
        compiled(lambda x, axis=axis: np.median(x, axis, keepdims=True), a)
        compiled(lambda x, axis=axis: np.quantile(x, (0.3, 1), axis, method="higher"), a)
    if dtype != "bool":
        compiled(lambda x: x - np.percentile(x, 10, axis=0), a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sorting(dtype: str) -> None:
    a = pixels(dtype)
    for axis in (0, -1, None):
        compiled(lambda x, axis=axis: (np.sort(x, axis=axis), np.argsort(x, axis=axis, kind="stable")), a)
    compiled(lambda x: (np.argsort(x.ravel()), x.argpartition(35, axis=1), np.partition(x, (2, -3), axis=1)), a)
    compiled(lambda x: np.sort(x, axis=1)[:, ::-1] | True if dtype == "bool" else -np.sort(x)[:, ::-1], a)
    compiled(lambda x: np.lexsort((x[0], x[1])), a)


def test_sorting_in_place() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.sort(axis=0)
        x.partition(20)
        return y + x[:, 20:21]

    for dtype in ("uint8", "float32"):
        compiled(f, pixels(dtype, (50, 40)))

    def stable(x: Any) -> None:
        x.sort(kind="stable")

    compiled(stable, pixels("int32"))


def test_nan_and_infinities() -> None:
    a = sample((60, 70), "float32")
    assert np.isnan(a).any() and np.isinf(a).any()

    def f(x: Any) -> Any:
        return (
            np.median(x),
            np.median(x, 0),
            np.percentile(x, (5, 50), axis=1),
            np.sort(x),
            np.argsort(x, kind="stable"),
        )

    def without(x: Any) -> Any:
        return np.nanmedian(x), np.nanmedian(x, 0), np.nanpercentile(x, (5, 50), axis=1), np.nanquantile(x, 0.25)

    for x in (a, np.where(np.isnan(a), 0, a), np.full((40, 40), np.nan, "float32")):
        with np.errstate(all="ignore"), pytest.warns(RuntimeWarning) if np.isnan(x).all() else np.errstate():
            compiled(f, x.astype(np.float32))
            compiled(without, x.astype(np.float32))


def test_empty_arrays() -> None:
    for function in (np.median, np.nanmedian):
        with pytest.warns(RuntimeWarning):
            check(lambda x, function=function: function(x), np.zeros((0, 40), np.float32))
    check(lambda x: np.percentile(x, 5, axis=1), np.zeros((0, 40), np.uint8))
    check(lambda x: np.percentile(x, 5), np.zeros((0, 40), np.uint8))
    check(lambda x: np.sort(x), np.zeros((0, 40)))


def test_out() -> None:
    def f(x: Any, out: Any, two: Any) -> Any:
        low = np.zeros((), np.float64)
        np.median(x, out=low)
        return np.median(x, axis=0, out=out) is out, np.percentile(x, (5, 95), axis=0, out=two), low

    for dtype in ("uint8", "float32"):
        compiled(f, pixels(dtype), np.zeros(40), np.zeros((2, 40)))
    check(lambda x: np.median(x, axis=0, out=np.zeros(40, np.int64)), pixels("float64"))


def test_weights() -> None:
    a = pixels("float64")
    compiled(lambda x, w: np.percentile(x, 30, weights=w * 2, method="inverted_cdf"), a, np.abs(a))
    compiled(lambda x, w: np.nanquantile(x, [0.1, 0.5], 0, weights=w, method="inverted_cdf"), a, np.abs(a))


def test_an_argument_that_may_be_overwritten_is_left_alone() -> None:
    a = pixels("float32")
    p = hjit.pipeline(lambda x: np.median(x, overwrite_input=True), cache="off", tune=False, verify="off")
    before = a.copy()
    assert p(a) == np.median(before)
    np.testing.assert_array_equal(a, before)


# -- whole functions


def contrast_stretch(img: Any, low: Any = 2, high: Any = 98) -> Any:
    lo, hi = np.percentile(img, (low, high))
    return np.clip((img - lo) / (hi - lo), 0, 1)


def contrast_stretch_of_channels(img: Any) -> Any:
    out = np.empty(img.shape, np.uint8)
    for c in range(img.shape[-1]):
        lo, hi = np.percentile(img[..., c], 1), np.percentile(img[..., c], 99)
        out[..., c] = np.clip((img[..., c] - lo) * (255.0 / (hi - lo)), 0, 255)
    return out


def otsu(img: Any) -> Any:
    counts, edges = np.histogram(img, bins=256, range=(0, 256))
    centres = (edges[:-1] + edges[1:]) / 2
    below, above = np.cumsum(counts), np.cumsum(counts[::-1])[::-1]
    low = np.cumsum(counts * centres) / np.maximum(below, 1)
    high = (np.cumsum((counts * centres)[::-1]) / np.maximum(above[::-1], 1))[::-1]
    between = below[:-1] * above[1:] * (low[:-1] - high[1:]) ** 2
    return img > centres[np.argmax(between)]


def adaptive_threshold(img: Any, offset: Any) -> Any:
    return img > np.median(img) + offset


def without_background(stack: Any) -> Any:
    return stack - np.median(stack, axis=0)


def robust_scale(img: Any) -> Any:
    centre = np.median(img)
    spread = np.median(np.abs(img - centre)) * 1.4826
    return (img - centre) / (spread + 1e-6)


def match_histograms(img: Any, template: Any) -> Any:
    order = np.argsort(img.ravel(), kind="stable")
    out = np.empty_like(template.ravel())
    out[order] = np.sort(template.ravel())
    return out.reshape(img.shape) * 2


def brightest(stack: Any) -> Any:
    return np.sort(stack, axis=0)[-5:].mean(axis=0)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32"])
@pytest.mark.parametrize("f", [contrast_stretch, robust_scale, contrast_stretch_of_channels])
def test_functions_of_images(f: Any, dtype: str) -> None:
    img = (np.random.default_rng(0).random((130, 140, 3)) * 200).astype(dtype)
    compiled(f, img)
    if f is contrast_stretch:
        compiled(f, img, 5.0, 90.0)


def test_functions_of_several_kinds() -> None:
    rng = np.random.default_rng(0)
    img = (rng.random((60, 70)) * 255).astype(np.uint8)
    compiled(otsu, img)
    compiled(adaptive_threshold, img, 4.5)
    compiled(match_histograms, img, img[::-1] // 2)
    for dtype in ("uint8", "uint16", "float32"):
        stack = (rng.random((40, 21, 33)) * 250).astype(dtype)
        compiled(without_background, stack)
        compiled(brightest, stack, exact=False)


@pytest.mark.parametrize(("n", "dtype", "q"), [(MAX_SORTED + 1, "float32", None), (MAX_SELECTED, "uint8", (10, 97.5))])
def test_order_statistics_of_long_stacks_are_networks(n: int, dtype: str, q: Any) -> None:
    def f(stack: Any) -> Any:
        return np.median(stack, axis=0) if q is None else np.percentile(stack, q, axis=0, keepdims=True)

    a = sample((n, 33, 34), dtype)
    a[: n // 2, 3] = a[0, 3]  # ties
    p = hjit.pipeline(f, on_unsupported="raise", tune=False)
    assert_same(p(a), f(a))
    assert "runs compiled: 1 kernel" in p.explain(a) and p.stats.fallbacks == 0
    small = a[:, : MIN_PLACES // 34 - 1]
    assert_same(p(small), f(small))
    assert "as it is" in p.explain(small)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_order_statistics_of_stacks_without_nan(n: int, dtype: str) -> None:
    def f(x: Any) -> Any:
        return (
            (np.nanmedian(x, axis=0), np.nanpercentile(x, 30, axis=0), np.nanquantile(x, (0, 0.5, 1), axis=0)),
            (np.nanpercentile(x, [[5], [84]], axis=0, keepdims=True), np.nanquantile(x, 0.4, axis=0, method="lower")),
            (
                np.nanpercentile(x, 70, axis=0, method="hazen"),
                np.nanpercentile(x, 50.0, axis=(0, 1), method="midpoint"),
            ),
        )

    a = sample((n, 2, 50), dtype)
    a[:, 0, 0] = 1.5  # a slice with numbers first: another dtype of results otherwise, see below
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning) if np.isnan(a).all(axis=0).any() else np.errstate():
        p = compiled(f, a, zeros=False)  # which zero comes first among equal ones is left open
        assert not breaks(p)


def test_where_the_first_slice_is_nan_results_have_numpys_dtype() -> None:
    p = hjit.pipeline(lambda x: np.nanpercentile(x, (5, 95), axis=0), cache="off", tune=False, verify="off")
    a = sample((7, 40), "float32", special=False)
    for x in (
        a,
        np.where(np.arange(40) < 1, np.float32(np.nan), a),
        np.where(np.arange(40) == 9, np.float32(np.nan), a),
    ):
        with pytest.warns(RuntimeWarning) if np.isnan(x[:, 0]).all() else np.errstate():
            ours = p(x)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.testing.assert_array_equal(ours, p.py_func(x), strict=True)
    assert p.stats.traces == 1


@pytest.mark.parametrize("n", [MAX_SORTED + 1, MAX_SELECTED])
def test_order_statistics_of_long_stacks_without_nan_are_networks(n: int) -> None:
    a = sample((n, 33, 34), "float32", special=False)
    a[RNG.random(a.shape) < 0.3] = np.nan
    p = compiled(lambda x: (np.nanmedian(x, axis=0), np.nanpercentile(x, 16.0, axis=0)), a)
    assert not breaks(p)
    assert breaks(compiled(lambda x: np.nanpercentile(x, np.linspace(0, 100, 101), axis=0), a[:9]))
