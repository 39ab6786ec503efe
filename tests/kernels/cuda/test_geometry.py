"""Geometric transforms on a GPU: SciPy's bits, and no extern calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.ndimage as ndi

import hjit
from tests.kernels.cuda.launching import needs_device

pytestmark = [needs_device, pytest.mark.usefixtures("on_device")]
IMAGE = np.random.default_rng(5).standard_normal((40, 51))
MATRIX = np.array([[0.9, -0.3], [0.31, 1.1]])

TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "shift": lambda a: ndi.shift(a * 2, (2.5, -1.25), order=1) + 1,
    "shift of bytes": lambda a: ndi.shift((a * 50 + 128).astype(np.uint8), (3, -4), order=0, mode="reflect"),
    "zoom": lambda a: ndi.zoom(a.astype(np.float32), 1.7, order=1, mode="grid-wrap"),
    "affine": lambda a: ndi.affine_transform(a, MATRIX, (3, -2.5), order=1, mode="mirror"),
    "rotation": lambda a: ndi.rotate((a * 50).astype(np.int16), 33.0, order=1, cval=7),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    f = TRANSFORMS[name]
    pipe = hjit.pipeline(f, on_unsupported="raise", tune=False)
    np.testing.assert_array_equal(pipe(IMAGE), f(IMAGE))
    assert "as it is" not in str(pipe.explain(IMAGE))
