"""scipy.ndimage.spline_filter and spline_filter1d: SciPy's bits, for every order, mode and axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.ndimage as ndi

import hjit
from tests.trace.helpers import check, interpreted

MODES = ("reflect", "grid-mirror", "constant", "grid-constant", "nearest", "mirror", "wrap", "grid-wrap")


def image(shape: Any, dtype: str = "float64") -> Any:
    return (np.random.default_rng(3).random(shape) * 100).astype(dtype)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_coefficients_have_scipys_bits(order: int, mode: str) -> None:
    for shape in ((2,), (3,), (11,), (1, 5), (7, 4), (2, 3, 4)):
        check(lambda a: ndi.spline_filter(a, order, mode=mode), image(shape))
        for axis in range(len(shape)):
            check(lambda a, k=axis: ndi.spline_filter1d(a, order, k, mode=mode), image(shape))


@pytest.mark.parametrize("mode", ("mirror", "reflect", "grid-wrap"))
def test_long_lines_in_which_powers_of_a_pole_become_zero(mode: str) -> None:
    a = image((1200, 3))
    check(lambda a: ndi.spline_filter(a, mode=mode), a)
    a[1100, 1] = np.inf  # times zero, in the first element of its line
    with np.errstate(invalid="ignore"):
        check(lambda a: ndi.spline_filter1d(a, axis=0, mode=mode), a)


@pytest.mark.parametrize("dtype", ("bool", "uint8", "int16", "int64", "float32"))
def test_dtypes_of_images_and_outputs(dtype: str) -> None:
    for output in (np.float64, np.float32, np.int16, np.uint8):
        check(lambda a, t=output: ndi.spline_filter1d(a, output=t), image((9, 8), dtype))

    def written(a: Any) -> Any:
        out = np.zeros(a.shape, np.float32)
        ndi.spline_filter(a, output=out)
        return out

    check(written, image((9, 8), dtype))


def test_an_image_is_filtered_in_place() -> None:
    def f(a: Any) -> Any:
        b = a + 1
        ndi.spline_filter1d(b, axis=0, output=b)
        return b

    check(f, image((9, 8)))


def test_what_scipy_refuses_is_refused() -> None:
    for order in (1, 6):
        with pytest.raises(RuntimeError, match="spline order not supported"):
            interpreted(lambda a, k=order: ndi.spline_filter(a, k), image((9, 8)))


def test_complex_images_are_left_to_scipy() -> None:
    a = image((9, 8)) + 1j * image((9, 8))[::-1]
    p = hjit.pipeline(lambda a: ndi.spline_filter(a, output=np.complex128), cache="off")
    for _ in range(2):
        np.testing.assert_array_equal(p(a), ndi.spline_filter(a, output=np.complex128))
    assert "as it is" in str(p.explain(a))


def test_other_sizes_take_the_same_kernel() -> None:
    p = hjit.pipeline(lambda a: ndi.spline_filter(a), cache="off", tune=False)
    for shape in ((40, 50), (41, 33), (900, 20)):
        a = image(shape)
        np.testing.assert_array_equal(p(a), ndi.spline_filter(a))
    assert p.stats.compilations == 1 and p.stats.fallbacks == 0
