"""Complex arrays on the target cuda: kernels of their parts, on PoCL, and by arrays of a small CuPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from tests.kernels.cuda.launching import needs_device

pytestmark = needs_device
RANDOM = np.random.default_rng(3)
FIELD = RANDOM.standard_normal((20, 37)) + 1j * RANDOM.standard_normal((20, 37))
KERNEL = FIELD[:1].copy()


def arithmetic(z: Any) -> Any:
    return z * z.conj() + 2j, z / (z + 3), np.abs(z), z.sum(axis=0)


def written(z: Any) -> Any:
    z[1:3] *= 2j
    z.real[:, 0] = 1
    return z.T * 1j


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "arithmetic": arithmetic,
    "written": written,
    "made": lambda z: np.exp(1j * z.real),
    "captured": lambda z: z * KERNEL,
    "transformed": lambda z: np.abs(np.fft.ifft2(np.fft.fft2(z) * 0.5)),
    "itself": lambda z: (z, z.real + 1),
}


def near(got: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        for g, e in zip(got, expected, strict=True):
            near(g, e)
        return
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_of_the_host(name: str, dtype: str, on_device: None) -> None:
    f = hjit.pipeline(FUNCTIONS[name], target="cuda", on_unsupported="raise", cache="off")
    for z in (FIELD.astype(dtype), FIELD.astype(dtype).T[:, ::2]):
        if name == "captured" and z.shape != FIELD.shape:
            continue
        for _ in range(2):
            ours, numpys = z.copy("K"), z.copy("K")
            near(f(ours), FUNCTIONS[name](numpys))
            near(ours, numpys)
    assert f.stats.verified


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_of_the_device(name: str, cp: Any) -> None:
    f = hjit.pipeline(FUNCTIONS[name], on_unsupported="raise", cache="off", verify="off")
    for _ in range(2):
        ours, numpys = cp.asarray(FIELD), FIELD.copy()
        got, expected = f(ours), FUNCTIONS[name](numpys)
        for g, e in zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]:
            assert isinstance(g, cp.ndarray)
            near(g.get(), e)
        near(ours.get(), numpys)
