"""scipy.ndimage and scipy.signal against SciPy itself: shapes, dtypes and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.ndimage as ndi
import scipy.signal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hjit
from tests.trace.helpers import check, interpreted

MODES = ("reflect", "constant", "nearest", "mirror", "wrap", "grid-mirror", "grid-constant", "grid-wrap")
DTYPES = ("uint8", "int16", "int64", "float32", "float64")
quick = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


def image(shape: Any, dtype: Any = "float64", seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if np.dtype(dtype) == bool:
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -1000), min(info.max, 1000), shape, dtype, endpoint=True)


SHAPES = st.sampled_from([(1, 1), (1, 5), (3, 4), (7, 2), (19, 23), (5, 33)])


@quick
@given(
    SHAPES,
    st.sampled_from(DTYPES),
    st.sampled_from(MODES),
    st.integers(1, 7),
    st.integers(0, 2),
    st.floats(-3, 3),
    st.integers(0, 99),
)
def test_correlate1d(shape: Any, dtype: str, mode: str, n: int, kind: int, cval: float, seed: int) -> None:
    w = image(n, seed=seed)
    if kind == 1:
        w = w + w[::-1]
    elif kind == 2:
        w = w - w[::-1]
    origin = seed % n - n // 2
    origin = min(max(origin, -(n // 2)), (n - 1) // 2)
    check(
        lambda a: ndi.correlate1d(a, w, axis=seed % 2, mode=mode, cval=cval, origin=origin), image(shape, dtype, seed)
    )
    check(lambda a: ndi.convolve1d(a, w, axis=seed % 2, mode=mode, cval=cval), image(shape, dtype, seed))


@quick
@given(
    SHAPES,
    st.sampled_from(DTYPES),
    st.sampled_from(MODES),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.integers(0, 99),
)
def test_correlate(shape: Any, dtype: str, mode: str, window: Any, seed: int) -> None:
    w = image(window, seed=seed) * (image(window, seed=seed + 1) > -1)
    check(lambda a: ndi.correlate(a, w, mode=mode, cval=1.5), image(shape, dtype, seed))
    check(lambda a: ndi.convolve(a, w, mode=mode, cval=2, origin=(0, (window[1] - 1) // 2)), image(shape, dtype, seed))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(2, 3), (20, 37)])
def test_separable(dtype: str, mode: str, shape: Any) -> None:
    a = image(shape, dtype)
    check(lambda a: ndi.gaussian_filter(a, 1.3, mode=mode, cval=3), a)
    check(lambda a: ndi.sobel(a, mode=mode), a)
    check(lambda a: ndi.prewitt(a, 0, mode=mode), a)
    check(lambda a: ndi.laplace(a, mode=mode), a)
    check(lambda a: ndi.uniform_filter(a, (3, 4), mode=mode), a, exact=np.dtype(dtype).kind != "f")
    check(lambda a: ndi.minimum_filter(a, 3, mode=mode), a)
    check(lambda a: ndi.maximum_filter(a, (2, 5), mode=mode, origin=(0, 1)), a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gaussian_options(dtype: str) -> None:
    a = image((17, 5, 3), dtype)
    check(lambda a: ndi.gaussian_filter(a, (1, 2, 0)), a)
    check(lambda a: ndi.gaussian_filter(a, 1, order=(1, 0, 2), truncate=2.0), a)
    check(lambda a: ndi.gaussian_filter(a, 1, order=3, axes=(0, 1)), a)
    check(lambda a: ndi.gaussian_filter(a, 1, radius=2, axes=1), a)
    check(lambda a: ndi.gaussian_filter(a, 2, output=np.float32), a)
    check(lambda a: ndi.gaussian_filter1d(a, 1.5, axis=0, mode="wrap"), a)
    check(lambda a: ndi.gaussian_laplace(a, 1.0), a)
    check(lambda a: ndi.gaussian_gradient_magnitude(a, 1.0), a)
    check(lambda a, s: ndi.gaussian_filter(a, s), a, 0.8)
    check(lambda a, s: ndi.gaussian_filter(a, sigma=[s, s, 0]), a, 0.8)


def test_gaussian_of_single_precision() -> None:
    """SciPy squares an element of a float32 array, or a float32 number, in single precision."""
    a, sigmas = image((50, 60), "float32"), np.array([1.6, 2.7], np.float32)
    check(lambda a, s: ndi.gaussian_filter(a, s), a, sigmas)
    check(lambda a, s: ndi.gaussian_filter1d(a, s[1]), a, sigmas)
    check(lambda a, s: ndi.gaussian_filter1d(a, float(s[1])), a, sigmas)
    check(lambda a, s: ndi.gaussian_filter1d(a, s), a, sigmas[0])


def test_kernel_made_in_the_function_is_known() -> None:
    def filtered(a: Any) -> Any:
        point = np.zeros(5)
        point[2] = 1
        return ndi.convolve1d(a, ndi.gaussian_filter1d(point, 1))

    check(filtered, image((20, 20)))


def test_outputs() -> None:
    def into(a: Any) -> Any:
        out = np.empty(a.shape, np.float32)
        same = ndi.convolve(a, np.ones((3, 3)), output=out)
        return out, same is out

    def in_place(a: Any) -> Any:
        ndi.gaussian_filter(a, 1, output=a)
        ndi.convolve(a, np.arange(9).reshape(3, 3), output=a)
        return ndi.median_filter(a, 3, output=a)

    def part(a: Any) -> None:
        ndi.correlate1d(a[3:, 1:], [1, 2, 1], output=a[2:-1, :-1])
        a[1:] = ndi.correlate1d(a[1:], [1, 2, 4], axis=0, mode="constant", cval=7)

    for dtype in ("uint8", "float64"):
        check(in_place, image((20, 18), dtype))
        check(part, image((20, 18), dtype))
    got, expected = interpreted(into, image((5, 20))), into(image((5, 20)))
    np.testing.assert_array_equal(got[0], expected[0])
    with pytest.raises(RuntimeError, match="output shape not correct"):
        interpreted(lambda a: ndi.convolve(a, np.ones((3, 3)), output=np.zeros((2, 2))), image((3, 3)))


def test_large_kernels_and_traced_kernels() -> None:
    a = image((19, 21))
    check(lambda a: ndi.correlate(a, image((9, 8), seed=2), mode="constant"), a)
    check(lambda a: ndi.gaussian_filter(a, 40, mode="mirror"), a)
    check(lambda a: ndi.correlate1d(a, image(200, seed=3), mode="wrap"), a)
    check(lambda a: ndi.maximum_filter(a, 151), a)
    check(lambda a: ndi.uniform_filter(a, 131), image((19, 21), "uint8"))
    check(lambda a, k: ndi.convolve(a, k), a, image((3, 3)))
    check(lambda a, k: ndi.convolve(a, k), a, image((9, 9)))
    check(lambda a, k: ndi.correlate1d(a, k), a, np.array([1.0, 2.0, 1.0]))
    check(lambda a, k: ndi.correlate1d(a, k), a, image(150))


def test_non_finite_values() -> None:
    a = image((20, 20))
    a[3, 4], a[7, 8], a[12, 1] = np.nan, np.inf, -np.inf
    check(lambda a: ndi.correlate(a, [[0, 1, 0], [1, 0, 2], [0, 3, 0]]), a)
    check(lambda a: ndi.gaussian_filter(a, 1), a)
    check(lambda a: ndi.minimum_filter(a, footprint=[[0, 1, 0], [1, 1, 1]]), a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ("reflect", "constant", "nearest"))
def test_ranks(dtype: str, mode: str) -> None:
    a = image((6, 19), dtype)
    cross = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]])
    check(lambda a: ndi.median_filter(a, 3, mode=mode, cval=2.5), a)
    check(lambda a: ndi.median_filter(a, (2, 4), mode=mode), a)
    check(lambda a: ndi.median_filter(a, footprint=cross, mode=mode), a)
    check(lambda a: ndi.percentile_filter(a, 20, size=5, mode=mode), a)
    check(lambda a: ndi.rank_filter(a, -2, footprint=cross, mode=mode, origin=(0, 1)), a)
    check(lambda a: ndi.median_filter(a[0], 5, mode=mode), a)
    check(lambda a: ndi.grey_erosion(a, footprint=cross, mode=mode), a)
    check(lambda a: ndi.grey_dilation(a, size=(3, 2), mode=mode), a)
    check(lambda a: ndi.grey_dilation(a, structure=cross, mode=mode), a)
    check(lambda a: ndi.grey_opening(a, 3, mode=mode), a)
    check(lambda a: ndi.white_tophat(a, 3, mode=mode), a)
    check(lambda a: ndi.morphological_gradient(a, 3, mode=mode), a)


def test_binary_morphology() -> None:
    b, mask = image((20, 9), bool), image((20, 9), bool, 1)
    for f in (ndi.binary_erosion, ndi.binary_dilation, ndi.binary_opening, ndi.binary_closing):
        for n in (1, 3):
            check(lambda a, f=f, n=n: f(a, iterations=n), b)
            check(lambda a, f=f, n=n: f(a, np.ones((2, 3)), iterations=n, origin=(0, 1)), b)
    check(lambda a: ndi.binary_erosion(a, border_value=1, iterations=2), b)
    check(lambda a: ndi.binary_dilation(a, border_value=1), image((4, 5), "uint8"))
    check(lambda a, m: ndi.binary_dilation(a, iterations=3, mask=m), b, mask)
    check(lambda a, m: ndi.binary_erosion(a, np.ones((3, 3)), iterations=2, mask=m, brute_force=True), b, mask)
    check(lambda a: ndi.binary_fill_holes(a), b)


def test_opaque() -> None:
    a = image((20, 9))
    check(lambda a: ndi.zoom(a, 2, order=1) + 1, a)
    check(lambda a: ndi.rotate(a, 30), a)
    check(lambda a: ndi.shift(a, 0.5, output=np.float32), a)

    def labelled(a: Any) -> Any:
        labels, n = ndi.label(a > 0)
        return labels + 1, n * 2

    got = interpreted(labelled, a)
    np.testing.assert_array_equal(got[0], labelled(a)[0])


def test_errors() -> None:
    a = image((5, 6))
    for f in (
        lambda a: ndi.convolve(a, np.ones(3)),
        lambda a: ndi.convolve(a, np.ones((3, 3)), origin=5),
        lambda a: ndi.correlate1d(a, [1, 2], mode="no such mode"),
        lambda a: ndi.uniform_filter1d(a, 0),
        lambda a: ndi.gaussian_filter(a, (1, 2, 3)),
        lambda a: ndi.median_filter(a),
        lambda a: ndi.sobel(a, axis=3),
    ):
        with pytest.raises(Exception) as expected:
            f(a)
        with pytest.raises(type(expected.value), match=None) as got:
            interpreted(f, a)
        assert str(got.value) == str(expected.value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ("full", "same", "valid"))
def test_signal(dtype: str, mode: str) -> None:
    a = image((19, 6), dtype)
    for k in (image((3, 3), dtype, 1), image((4, 1), dtype, 1), image((4, 5), dtype, 1), image((9, 6), dtype, 1)):
        for boundary in ("fill", "wrap", "symm"):
            check(lambda a, k=k, b=boundary: scipy.signal.convolve2d(a, k, mode, b, 3), a)
            check(lambda a, k=k, b=boundary: scipy.signal.correlate2d(a, k, mode, b), a)
        check(lambda a, k=k: scipy.signal.convolve(a, k, mode, "direct"), a)
        check(lambda a, k=k: scipy.signal.correlate(a, k, mode, "direct"), a)
        check(lambda a, k=k: scipy.signal.fftconvolve(a, k, mode), a)
    check(lambda a, k: scipy.signal.convolve2d(a, k, mode), a, image((3, 5), dtype, 1))


@pytest.mark.parametrize("dtype", ("uint8", "float32", "float64", "int16"))
def test_medians_of_scipy_signal(dtype: str) -> None:
    a = image((19, 8), dtype)
    for size in (1, 3, 5, (1, 5), (5, 3), 7):
        check(lambda a, size=size: scipy.signal.medfilt2d(a, size), a)
        check(lambda a, size=size: scipy.signal.medfilt(a, size), a)
    with pytest.raises(ValueError, match="should be odd"):
        interpreted(lambda a: scipy.signal.medfilt2d(a, 4), a)


@pytest.mark.parametrize("mode", ("interp", "mirror", "constant", "nearest", "wrap"))
def test_savitzky_golay(mode: str) -> None:
    for dtype in ("float64", "float32", "uint8"):
        a = image((19, 8), dtype)
        for axis in (0, 1):
            p = hjit.pipeline(lambda a, k=axis: scipy.signal.savgol_filter(a, 5, 2, deriv=k, axis=k, mode=mode))
            for _ in range(2):
                np.testing.assert_array_equal(p(a), p.py_func(a))
            assert "savgol_filter as it is" not in str(p.explain(a)) and p.stats.fallbacks == 0


# Filters whose values leave the range of the output's dtype, and borders that the image's dtype does not hold: C's conversions
OUT_OF_RANGE = {
    "sobel": lambda x: ndi.sobel(x),
    "laplace": lambda x: ndi.laplace(x),
    "correlate1d": lambda x: ndi.correlate1d(x, [0.5, -2, 0.3]),
    "correlate": lambda x: ndi.correlate(x, np.array([[1, -2, 1], [0, -3, 1.5]])),
    "border": lambda x: ndi.correlate1d(x, [1, 2, 3], mode="constant", cval=-1000.5),
    "minimum": lambda x: ndi.minimum_filter(x, footprint=np.array([[0, 1], [1, 1]]), mode="constant", cval=-1.5),
    "rank": lambda x: ndi.rank_filter(x, 1, size=3, mode="constant", cval=300.5),
    "erosion": lambda x: ndi.grey_erosion(x, structure=np.arange(9).reshape(3, 3)),
    "dilation": lambda x: ndi.grey_dilation(x, structure=np.arange(9).reshape(3, 3)),
    "to uint32": lambda x: ndi.sobel(x, output=np.uint32),
    "to uint64": lambda x: ndi.convolve(x, np.array([[3, -2], [4, -9]]), output=np.uint64),
    "to bool": lambda x: ndi.prewitt(x, output=bool),
    "line": lambda x: ndi.median_filter(x[0], 5, mode="constant", cval=-1.5),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32"]
)
def test_numbers_out_of_range_are_converted_as_c_does(name: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    kind = np.dtype(dtype).kind
    if kind == "f":
        a = (rng.standard_normal((20, 30)) * 1e5).astype(dtype)
    elif kind == "b":
        a = rng.integers(0, 2, (20, 30)).astype(bool)
    else:
        a = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (20, 30), dtype=dtype, endpoint=True)
    check(OUT_OF_RANGE[name], a, exact=kind != "f" or name.startswith("to "))


HALF: dict[str, Any] = {
    "uniform": lambda x, out: ndi.uniform_filter(x, 3, output=out),
    "correlate": lambda x, out: ndi.correlate(x, np.ones((2, 3)), output=out),
    "maximum": lambda x, out: ndi.maximum_filter1d(x, 3, output=out),
    "footprint": lambda x, out: ndi.minimum_filter(x, footprint=np.array([[0, 1], [1, 1]]), output=out),
    "median": lambda x, out: ndi.median_filter(x, 3, output=out),
}


@pytest.mark.parametrize("name", HALF)
@pytest.mark.parametrize(("dtype", "output"), [("float16", "float32"), ("float32", "float16")])
def test_float16_is_refused_as_by_scipy(name: str, dtype: str, output: str) -> None:
    a = np.ones((20, 30), dtype)
    for f in (HALF[name], hjit.pipeline(HALF[name], verify="off")):  # whose result NumPy's is not compared with
        with pytest.raises(RuntimeError, match="array type.* not supported"):
            f(a, np.empty((20, 30), output))


def test_special_numbers_are_converted_as_c_does() -> None:
    powers = [s * 2.0**k + e for k in (31, 32, 40, 53, 63, 64) for s in (1, -1) for e in (0, 5)]
    a = np.array([0, 1, 300, -1, -300, np.nan, np.inf, -np.inf, -0.5, -1.5, 1e300, *powers])
    for dtype in (bool, np.uint8, np.int16, np.uint32, np.int32, np.uint64, np.int64):
        check(lambda x, dtype=dtype: ndi.correlate1d(x, [1.0], output=dtype), a)
        check(lambda x, dtype=dtype: ndi.correlate(x, [1.0], output=dtype), a)
