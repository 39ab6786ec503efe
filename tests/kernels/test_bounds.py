"""Indices beyond an axis: near ones without a division, far ones as NumPy counts them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hjit
from tests.numpy_check import check

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("mode", ["reflect", "symmetric", "wrap", "edge"])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 200])
@pytest.mark.parametrize("far", [1, 2, 7, 45])
def test_pads_of_any_length(mode: str, n: int, far: int) -> None:
    def padded(a: Any) -> Any:
        p = np.pad(a, ((far, far), (far, far)), mode=mode)
        return p[: a.shape[0], : a.shape[1]] + 3 * p[2 * far :, 2 * far :]

    check(padded, RNG.integers(0, 1000, (5, n)).astype(np.int32))


@pytest.mark.parametrize("mode", ["reflect", "symmetric", "wrap"])
def test_only_far_indices_are_divided(mode: str) -> None:
    def padded(a: Any) -> Any:
        p = np.pad(a, ((0, 0), (2, 2)), mode=mode)
        return p[:, :-4] + p[:, 4:]

    label, divided = "", []
    for line in hjit.pipeline(padded, tune=False).inspect_llvm(np.ones((9, 100), np.float32)).splitlines():
        if line.endswith(":"):
            label = line
        elif "srem" in line or "sdiv" in line:
            divided.append(label)
    assert divided and all(x.startswith("far") for x in divided)
