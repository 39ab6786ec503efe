"""scikit-image's transforms of images against scikit-image itself: the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hjit
from tests import numpy_check
from tests.trace.helpers import check

transform = pytest.importorskip("skimage.transform")
warp_fast = pytest.importorskip("skimage.transform._warps_cy")._warp_fast

MODES = ("constant", "edge", "symmetric", "reflect", "wrap")
Array = np.ndarray[Any, Any]
AFFINE = np.array([[0.9, 0.3, -5], [-0.35, 1.2, 3], [0, 0, 1]])
HOMOGRAPHY = np.array([[0.9, 0.3, -5], [-0.35, 1.2, 3], [0.001, 0.002, 1.1]])
SCALE = np.array([[0.5, 0, -5.1], [0, 1.53, 3.3], [0, 0, 1]])
BEHIND = np.array([[1, 0, 0], [0, 1, 0], [-0.1, 0, 1]])  # a column of infinite coordinates


def image(shape: Any, dtype: Any = "float64", seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_homographies(mode: str, dtype: str) -> None:
    fast = warp_fast[f"{dtype}_t"]
    for seed, shape in enumerate([(20, 30), (1, 1), (2, 5), (1, 7)]):
        for matrix in (AFFINE, HOMOGRAPHY, SCALE):
            matrix = matrix.astype(dtype)

            def given(a: Any, m: Any) -> Any:
                return fast(a, m, output_shape=(40, 50), order=1, mode=mode, cval=0.3)

            def known(a: Any, m: Any = matrix) -> Any:
                return fast(a, m, order=1, mode=mode, cval=-1)

            check(given, image(shape, dtype, seed), matrix)
            check(known, image(shape, dtype, seed))
    if mode in ("constant", "edge"):
        check(given, image((20, 30), dtype), BEHIND.astype(dtype))


@pytest.mark.parametrize("mode", MODES)
def test_numbers_that_are_no_numbers(mode: str) -> None:
    a = image((20, 30))
    a[::4, ::3], a[1::5, 2::7] = np.nan, np.inf
    check(lambda a: warp_fast["float64_t"](a, SCALE.astype(float), (40, 50), 1, mode, np.nan), a)


def _warped(x: Any, angle: Any) -> Any:
    at = transform.AffineTransform(scale=(1.1, 1.2), rotation=angle, translation=(5, 2))
    return transform.warp(x * 2, at.inverse, order=1, mode="reflect") + 1


FORMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "warp": (_warped, (image((40, 33), "float32"), 0.3)),
    "matrix": (lambda x, m: transform.warp(x, m, order=1), (image((40, 33)), HOMOGRAPHY)),
    "colours": (lambda x: transform.warp(x, AFFINE, order=1, cval=2), (image((20, 33, 3), "float32"),)),
    "bytes": (
        lambda x: transform.warp(x, SCALE, output_shape=(30, 50), preserve_range=True),
        (np.arange(1200, dtype=np.uint8).reshape(40, 30),),
    ),
    "rotation": (lambda x, t: transform.rotate(x, t, mode="symmetric"), (image((40, 33), "float32"), 30.0)),
    "resized rotation": (lambda x: transform.rotate(x, 30, resize=True), (image((40, 33)),)),
    "smaller": (lambda x: transform.resize(x, (21, 20), order=1) * 2, (image((40, 33), "float32"),)),
    "larger": (lambda x: transform.resize(x, (80, 70), order=1, mode="edge"), (image((40, 33)),)),
    "labels": (
        lambda x: transform.resize(x, (80, 21), order=0, anti_aliasing=False, preserve_range=True),
        (np.arange(1200, dtype=np.uint8).reshape(40, 30),),
    ),
    "rescaled": (lambda x: transform.rescale(x, 0.5), (image((40, 33)),)),
}


@pytest.mark.parametrize("name", FORMS)
def test_nothing_runs_as_it_is(name: str) -> None:
    f, args = FORMS[name]
    numpy_check.check(f, *args, on_unsupported="raise", tune=False)
    pipe = hjit.pipeline(f, on_unsupported="raise", tune=False)
    pipe(*args)
    assert "as it is" not in str(pipe.explain(*args))


def test_what_is_left_to_scikit_image() -> None:
    numpy_check.check(lambda x: transform.warp(x, AFFINE, order=3) + 1, image((20, 33)), tune=False)
    with pytest.raises(ValueError, match="mode"):
        hjit.pipeline(lambda x: warp_fast["float64_t"](x, AFFINE, mode="none"), tune=False)(image((20, 33)))


def test_what_is_decided_on_is_not_warped_again() -> None:
    """A decision on the result, and what follows it, read one array."""

    def f(x: Any, m: Any) -> Any:
        warped = warp_fast["float64_t"](x, m, output_shape=(40, 50), order=1)
        return warped if np.min(warped) <= 0 else warped * 2

    args = image((20, 33)), HOMOGRAPHY
    numpy_check.check(f, *args, on_unsupported="raise", tune=False)
    pipe = hjit.pipeline(f, on_unsupported="raise", tune=False)
    pipe(*args)
    assert "compiled: 1 kernel, decision" in str(pipe.explain(*args))
