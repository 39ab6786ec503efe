"""Code for older levels of x86-64 computes the same; fast_math stays close."""

import platform
from typing import Any

import numpy as np
import pytest

import hjit
from hjit.kernels.runtime.features import LEVELS, host_features

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="levels of x86-64")
RNG = np.random.default_rng(3)
A = RNG.random((37, 131), np.float32) * 300 - 100
U = RNG.integers(0, 256, (37, 131)).astype(np.uint8)


def exact(a: Any, u: Any) -> Any:
    grown = np.clip(u.astype(np.int16) * 3 + 5, 0, 255).astype(np.uint8)
    edges = np.pad(a, 1, mode="reflect")
    return (
        np.sqrt(np.abs(a)) / 3,
        a.astype(np.int32),
        a.astype(np.uint8),
        grown,
        edges[:-2, 1:-1] - edges[2:, 1:-1],
        u // 7,
        u % 5,
        a.max(axis=0),
        u[:, ::-2],
    )


def inexact(a: Any) -> Any:
    return np.exp(a / 100), np.sin(a), a.sum(), a.mean(axis=1)


@pytest.mark.parametrize("target", sorted(LEVELS))
def test_levels_compute_what_numpy_does(target: str) -> None:
    if not LEVELS[target] <= host_features():
        with pytest.raises(hjit.OptionError):
            hjit.pipeline(exact, target=target, verify="off")(A, U)
        return
    for got, expected in zip(hjit.pipeline(exact, target=target, verify="off")(A, U), exact(A, U), strict=True):
        np.testing.assert_array_equal(got, expected)
    for got, expected in zip(hjit.pipeline(inexact, target=target, verify="off")(A), inexact(A), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def test_targets_use_their_instructions() -> None:
    if not LEVELS["x86-64-v4"] <= host_features():
        pytest.skip("needs AVX-512")
    wide, narrow = (hjit.pipeline(exact, target=t, verify="off").inspect_asm(A, U) for t in ("x86-64-v4", "x86-64-v2"))
    assert "zmm" in wide and "zmm" not in narrow and "ymm" not in narrow


def test_floats_are_contracted_only_under_fast_math() -> None:
    def f(a: Any) -> Any:
        return a * a + 1.5

    if "fma" not in host_features():
        pytest.skip("needs FMA")
    strict, fast = hjit.pipeline(f, verify="off"), hjit.pipeline(f, verify="off", fast_math=True)
    assert "vfmadd" not in strict.inspect_asm(A) and "vfmadd" in fast.inspect_asm(A)
    np.testing.assert_array_equal(strict(A), f(A))
    np.testing.assert_allclose(fast(A), f(A), rtol=1e-6)
