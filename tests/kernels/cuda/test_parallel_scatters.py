"""Scatters that many threads run at once: stores, sums and extremes of floats, narrow integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from tests.kernels.cuda.launching import needs_device, needs_opencl

RNG = np.random.default_rng(3)
U = RNG.integers(0, 200, (60, 81)).astype(np.uint8)
SIGNED = RNG.integers(-200, 200, (4860,))


def stored(u: Any, x: Any) -> Any:
    out = np.zeros(200, x.dtype)
    out[u] = x
    return out


def stored_over(u: Any, x: Any) -> Any:
    """On what there is, twice, with a slice between them."""
    out = np.arange(300).astype(x.dtype)
    out[u] = x * 2
    out[10:20] = 7
    out[u[1:, 3:]] = x[:-1, 3:]
    return out[5:]


def stored_planes(u: Any, x: Any) -> Any:
    out = np.ones((200, 3), x.dtype)
    out[u] = np.stack([x, x + 1, -x], axis=-1)
    return out


def stored_pairs(u: Any, x: Any) -> Any:
    out = np.zeros((200, 90), x.dtype)
    out[u, np.arange(81)] = x
    return out


def stored_looked_up(u: Any, x: Any) -> Any:
    out = np.zeros(200, x.dtype)
    out[u] = x.ravel()[u]
    return out


STORES = (stored, stored_over, stored_planes, stored_pairs, stored_looked_up)


@needs_device
@pytest.mark.parametrize("function", STORES)
@pytest.mark.parametrize("dtype", ["f4", "u1", "i8", "c8"])
def test_the_last_store_wins(function: Callable[..., Any], dtype: str, on_device: None) -> None:
    f = hjit.pipeline(function, target="cuda", verify="off", on_unsupported="raise")
    for u in (U, U[::-1], np.zeros_like(U)):
        x = (100 * RNG.random(u.shape)).astype(dtype)
        np.testing.assert_array_equal(f(u, x), function(u, x))


def added(u: Any, x: Any) -> Any:
    out = np.zeros(200, x.dtype)
    np.add.at(out, u, x)
    return out


def subtracted(u: Any, x: Any) -> Any:
    out = np.full((200, 2), 3, x.dtype)
    np.subtract.at(out, (u, 1), np.sqrt(np.abs(x)))
    return out


def counted(u: Any, x: Any) -> Any:
    out = np.zeros(200, x.dtype)
    np.add.at(out, u, 1.5)
    return out


def weighed(u: Any, x: Any) -> Any:
    return np.bincount(u.ravel(), weights=x.ravel(), minlength=200)


SUMS = (added, subtracted, counted, weighed)


def exact(function: Callable[..., Any], u: Any, x: Any) -> Any:
    return function(u, x.astype(np.longdouble)) if function is not weighed else added(u, x.astype(np.longdouble))


@needs_device
@pytest.mark.parametrize("function", SUMS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_sums_of_floats_are_nearly_exact_and_the_same_at_every_run(
    function: Callable[..., Any], dtype: str, on_device: None
) -> None:
    f = hjit.pipeline(function, target="cuda", verify="off", on_unsupported="raise")
    for scale in (1.0, 1e-3, 40.0):
        x = (scale * RNG.standard_normal(U.shape)).astype(dtype)
        got, expected = f(U, x), exact(function, U, x)
        assert got.dtype == function(U, x).dtype
        if function is not subtracted:  # whose terms are rounded before
            roundings = np.bincount(U.ravel(), minlength=200) * float(max(np.abs(x).max(), 1.5))
            unit = 2.0 ** -(56 if got.dtype == np.float64 else 28)
            bound = (
                2 * np.finfo(got.dtype).eps * np.abs(expected)
                + roundings * unit
                + np.finfo(got.dtype).smallest_subnormal
            )
            assert (np.abs(got - expected) <= bound).all()
        np.testing.assert_allclose(got, function(U, x).astype("f8"), rtol=200 * np.finfo(dtype).eps, atol=1e-2 * scale)
        np.testing.assert_array_equal(f(U, x), got)


@needs_device
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_large_numbers_in_one_place_do_not_swallow_small_ones_in_another(dtype: str, on_device: None) -> None:
    x = np.where(U < 100, 1e30, 1e-30).astype(dtype) * RNG.random(U.shape).astype(dtype)
    f = hjit.pipeline(added, target="cuda", verify="off", on_unsupported="raise")
    np.testing.assert_allclose(f(U, x), added(U, x), rtol=100 * np.finfo(dtype).eps)
    tiny = np.full(U.shape, np.finfo(dtype).smallest_subnormal, dtype)
    np.testing.assert_array_equal(f(U, tiny), added(U, tiny))
    large = np.full(U.shape, np.finfo(dtype).max / 100, dtype)
    np.testing.assert_allclose(f(U, large), added(U, large), rtol=1e-5)


@needs_device
@pytest.mark.parametrize("function", SUMS[:1] + SUMS[3:])
def test_infinities_nan_and_zeros_are_numpys(function: Callable[..., Any], on_device: None) -> None:
    x = RNG.standard_normal(U.shape)
    for k, values in enumerate(([np.inf], [-np.inf], [np.nan], [np.inf, -np.inf], [np.inf, np.nan], [-0.0, -0.0])):
        places = np.argwhere(np.equal(U, 20 * k))[: 2 if len(values) > 1 else 1]
        for (y, column), value in zip(places, itertools.cycle(values), strict=False):
            x[y, column] = value
    f = hjit.pipeline(function, target="cuda", verify="off", on_unsupported="raise")
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(f(U, x), function(U, x), rtol=1e-9, atol=1e-12)


def minus_zero(u: Any, x: Any) -> Any:
    out = -np.zeros(200)
    np.add.at(out, u, x)
    return out


@needs_device
def test_signs_of_zeros_stay(on_device: None) -> None:
    f = hjit.pipeline(minus_zero, target="cuda", verify="off", on_unsupported="raise")
    few = np.minimum(U, 150)
    for x in (np.zeros(few.shape), -np.zeros(few.shape)):
        got, expected = f(few, x), minus_zero(few, x)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


def extremes(u: Any, x: Any) -> Any:
    low, high = np.full(200, 0.25, x.dtype), np.full(200, -0.25, x.dtype)
    np.minimum.at(low, u, x)
    np.maximum.at(high, u, x)
    return low, high


@needs_device
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_extremes_of_floats_are_numpys(dtype: str, on_device: None) -> None:
    f = hjit.pipeline(extremes, target="cuda", verify="off", on_unsupported="raise")
    x = RNG.standard_normal(U.shape).astype(dtype)
    x[U == 7], x[U == 8] = np.inf, -np.inf
    x[tuple(np.argwhere(U == 9)[0])] = np.nan
    few = np.minimum(U, 150)
    for ours, numpys in zip(f(few, x), extremes(few, x), strict=True):
        np.testing.assert_array_equal(ours, numpys)


@needs_device
@pytest.mark.parametrize("dtype", ["u1", "i2", "?"])
@pytest.mark.parametrize("name", ["add", "maximum", "minimum", "logical_or", "logical_and"])
def test_narrow_integers_are_numpys(name: str, dtype: str, on_device: None) -> None:
    def function(u: Any, x: Any) -> Any:
        out = np.ones(200, x.dtype)
        getattr(np, name).at(out, u, x)
        return out

    x = RNG.integers(0, 100, U.shape).astype(dtype)
    f = hjit.pipeline(function, target="cuda", verify="off")
    np.testing.assert_array_equal(f(U, x), function(U, x))


@needs_device
@pytest.mark.parametrize("function", [stored, added, extremes])
def test_indices_out_of_bounds_raise_and_negative_ones_count_from_the_end(
    function: Callable[..., Any], on_device: None
) -> None:
    f = hjit.pipeline(function, target="cuda", verify="off", on_unsupported="raise")
    x = RNG.standard_normal(SIGNED.shape)
    for ours, numpys in zip(np.atleast_2d(f(SIGNED, x)), np.atleast_2d(function(SIGNED, x)), strict=True):
        np.testing.assert_allclose(ours, numpys, rtol=1e-12, atol=1e-12)
    wrong = SIGNED.copy()
    wrong[77] = 200
    with pytest.raises(IndexError):
        f(wrong, x)


@needs_device
@pytest.mark.parametrize("function", [added, weighed, subtracted])
def test_they_are_not_taken_for_wrong(function: Callable[..., Any], on_device: None) -> None:
    """NumPy adds up one after the other."""
    f = hjit.pipeline(function, target="cuda", verify="first", on_unsupported="raise")
    f(np.repeat(U, 30, axis=1), RNG.standard_normal((60, 2430)).astype(np.float32))
    assert f.stats.fallbacks == 0


@needs_device
@pytest.mark.parametrize("function", SUMS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_fast_math_adds_floats_by_atomic_operations(function: Callable[..., Any], dtype: str, on_device: None) -> None:
    f = hjit.pipeline(function, target="cuda", verify="off", on_unsupported="raise", fast_math=True)
    x = RNG.standard_normal(U.shape).astype(dtype)
    got = f(U, x)
    np.testing.assert_allclose(got, function(U, x), rtol=1e-4, atol=1e-4)
    if function is not counted:  # whose sums are in double precision, rounded each time
        assert f"hj_atomic_add_global_f{8 * got.dtype.itemsize}" in str(f.inspect_cuda(U, x))


def summed_up(u: Any) -> Any:
    return np.cumsum(np.bincount(u.ravel(), minlength=256))


@needs_opencl
@pytest.mark.parametrize("function", [stored, added, counted, extremes])
def test_no_kernel_has_one_thread(function: Callable[..., Any], on_device: None) -> None:
    f = hjit.pipeline(function, target="cuda", verify="off")
    x = RNG.standard_normal(U.shape).astype(np.float32)
    assert min(k.threads for k in f.kernels(U, x).rows) > 1


@needs_opencl
def test_a_scan_of_what_a_stage_has_is_no_loop_of_one_thread(on_device: None) -> None:
    f = hjit.pipeline(summed_up, target="cuda", verify="off")
    np.testing.assert_array_equal(f(U), summed_up(U))
    assert min(k.threads for k in f.kernels(U).rows) > 1


def ordered(x: Any) -> Any:
    return np.median(x), np.percentile(x, (2, 98)), np.nanmedian(x)


@needs_opencl
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_order_statistics_are_found_by_counting_digits(dtype: str, on_device: None) -> None:
    f = hjit.pipeline(ordered, target="cuda", verify="off", on_unsupported="raise", tune=False)
    x = (1000 * np.random.default_rng(4).standard_normal((256, 257))).astype(dtype)
    for ours, numpys in zip(f(x), ordered(x), strict=True):
        np.testing.assert_array_equal(ours, numpys)
