"""scipy.ndimage's geometric transforms against SciPy itself: the same bits, for all modes, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.ndimage as ndi
from scipy.ndimage import _nd_image

import hjit
from tests import numpy_check
from tests.trace.helpers import check

MODES = ("reflect", "constant", "nearest", "mirror", "wrap", "grid-mirror", "grid-constant", "grid-wrap")
DTYPES = ("bool", "uint8", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
SHAPES = ((7,), (1,), (1, 5), (2, 3), (19, 23), (4, 3, 5))
MATRIX = np.array([[0.9, -0.3], [0.31, 1.1]])
Array = np.ndarray[Any, Any]


def image(shape: Any, dtype: Any = "float64", seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def coordinates(shape: tuple[int, ...], seed: int = 0, count: int = 60) -> Array:
    """Inside and far outside, on elements, between them, at both ends, NaN and infinite."""
    rng = np.random.default_rng(seed)
    found = rng.uniform(-30, 30, (len(shape), count))
    found[:, ::3] = np.round(found[:, ::3] * 2) / 2
    found[:, 1::3] /= 8
    found[:, 5] = np.subtract(shape, 1)
    found[:, 6] = 0
    found[0, 7], found[-1, 8], found[0, 9] = np.nan, np.nan, -np.inf
    return found


def compiled(f: Callable[..., Any], *args: Any) -> Any:
    """Compiled as a whole, and SciPy's bits."""
    return numpy_check.check(f, *args, on_unsupported="raise", tune=False)


def externs(f: Callable[..., Any], *args: Any) -> str:
    """What runs as it is."""
    pipe = hjit.pipeline(f, on_unsupported="raise", tune=False)
    pipe(*args)
    return str(pipe.explain(*args))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates(mode: str, order: int) -> None:
    for seed, shape in enumerate(SHAPES):
        where = coordinates(shape, seed)
        if mode in ("wrap", "reflect", "mirror", "grid-mirror", "grid-wrap"):
            where = where[:, np.isfinite(where).all(0) | np.isnan(where).any(0)]  # SciPy reads any memory
        check(lambda a, c: ndi.map_coordinates(a, c, order=order, mode=mode, cval=2.5), image(shape, seed=seed), where)


@pytest.mark.parametrize("mode", MODES)
def test_cubic_splines(mode: str) -> None:
    for seed, shape in enumerate(SHAPES[:-1]):
        where = coordinates(shape, seed)
        where = where[:, np.isfinite(where).all(0)]
        for prefilter in (True, False):
            check(
                lambda a, c, p=prefilter: ndi.map_coordinates(a, c, order=3, mode=mode, cval=0.5, prefilter=p),
                image(shape, seed=seed),
                where,
            )
    check(lambda a: ndi.shift(a, (1.3, -2.6), mode=mode, cval=1), image((9, 20), "uint8"))
    check(lambda a: ndi.zoom(a, (1.3, 0.6), mode=mode), image((9, 20), "float32"))
    check(lambda a: ndi.rotate(a, 20, mode=mode), image((9, 20), "float32"))
    check(lambda a: ndi.shift(a, (0.5, 1.3, -2.6), mode=mode), image((4, 5, 6)))


@pytest.mark.parametrize("order", [0, 1])
def test_numbers_that_are_no_numbers(order: int) -> None:
    """An element of weight 0 takes part all the same: which one is read beyond the edges matters."""
    for seed, shape in enumerate(SHAPES):
        a = image(shape, seed=seed)
        a[image(shape, bool, seed + 1)] = np.inf if seed % 2 else np.nan
        where = np.round(coordinates(shape, seed) / 3)
        where = where[:, np.isfinite(where).all(0)]
        for mode in MODES:
            check(lambda a, c, m=mode: ndi.map_coordinates(a, c, order=order, mode=m, cval=np.nan), a, where)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    a = image((9, 20), dtype)
    check(lambda a: ndi.shift(a, (1.25, -2.5), order=1, cval=-3.7), a)
    check(lambda a: ndi.shift(a, (1, -2), order=0, cval=300.5), a)
    check(lambda a: ndi.shift(a, (1, -2), order=0, cval=np.nan, mode="grid-constant"), a)
    check(lambda a: ndi.zoom(a, (2, 1.5), order=1, mode="nearest"), a)
    for output in DTYPES:
        check(lambda a, t=output: ndi.map_coordinates(a, [[0.5, 3.2], [1.5, 7]], order=1, output=np.dtype(t)), a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_conversions(dtype: str) -> None:
    """Half away from zero, and the ends of the range for what is beyond it."""
    numbers = [
        -1e6,
        -300.5,
        -2.5,
        -1.5,
        -0.6,
        -0.5,
        -0.4,
        0,
        0.2,
        0.5,
        1.4,
        1.5,
        2.5,
        127.5,
        254.5,
        255.5,
        256,
        65535.6,
    ]
    numbers += [2.0**31 - 0.6, 2.0**31 + 5, 2.0**32 - 0.6, 2.0**32 + 7.5, 1e18]
    if dtype != "bool":
        numbers += [-3e10, 1e19, 1e25, np.inf, -np.inf, np.nan]
    a, where = np.array(numbers), np.arange(len(numbers))[None]
    check(lambda a, c: ndi.map_coordinates(a, c, order=0, output=np.dtype(dtype)), a, where)
    compiled(lambda a, c: ndi.map_coordinates(a, c, order=0, output=np.dtype(dtype)), a, where)


@pytest.mark.parametrize("mode", MODES)
def test_shift_and_zoom(mode: str) -> None:
    for order in (0, 1):
        for seed, shape in enumerate(SHAPES):
            a = image(shape, "float32", seed)
            check(lambda a, o=order: ndi.shift(a, -2.6, order=o, mode=mode, cval=1), a)
            check(lambda a, o=order: ndi.zoom(a, 2.3, order=o, mode=mode, cval=1), a)
            if mode not in ("constant", "wrap"):
                check(lambda a, o=order: ndi.zoom(a, 1.4, order=o, mode=mode, grid_mode=True), a)


@pytest.mark.parametrize("mode", MODES)
def test_affine_transforms(mode: str) -> None:
    a = image((19, 23), "float32")
    for order in (0, 1):
        check(lambda a, m, o=order: ndi.affine_transform(a, m, (3, -2.5), order=o, mode=mode), a, MATRIX)
        check(lambda a, o=order: ndi.affine_transform(a, [1.5, 0.7], 3, (30, 9), order=o, mode=mode), a)
    homogeneous = np.array([[1.1, 0.2, 3], [-0.2, 0.8, 1], [0, 0, 1]])
    check(lambda a, m: ndi.affine_transform(a, m, order=1, mode=mode, output_shape=(30, 9)), a, homogeneous)
    check(lambda a, m: ndi.affine_transform(a, m[:2], order=1, mode=mode), a, homogeneous)
    cube = image((4, 9, 5))
    check(lambda a: ndi.affine_transform(a, np.eye(3) * 0.7 + 0.1, (1, 2, 3), order=1, mode=mode), cube)


def test_rotations() -> None:
    a, colours = image((19, 33), "uint8"), image((9, 20, 3), "float32")
    for angle in (0, 20, 45.5, 90, -123):
        check(lambda a, t: ndi.rotate(a, t, order=1), a, angle)
        check(lambda a, t: ndi.rotate(a, t, order=0, reshape=False, mode="nearest"), a, angle)
        check(lambda a, t: ndi.rotate(a, t, order=1, cval=2), colours, angle)
        check(lambda a, t: ndi.rotate(a, t, axes=(-1, 0), order=1), image((9, 2, 20)), angle)


def _into(a: Any, out: Any) -> None:
    ndi.shift(a, 1.5, output=out, order=1)
    out *= 2


FORMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "shift": (lambda a, s: ndi.shift(a * 2, (s, -1.25), order=1) + 1, (image((40, 33), "float32"), 2.5)),
    "shift of bytes": (lambda a: ndi.shift(a, (3, -4), order=0, mode="reflect"), (image((40, 33), "uint8"),)),
    "signs of zeros": (lambda a: ndi.shift(a, 2, order=0, cval=-0.0), (-np.zeros((40, 33), "float32"),)),
    "zoom": (lambda a: np.sqrt(np.abs(ndi.zoom(a, 1.7, order=1))), (image((40, 33), "float32"),)),
    "zoom of bytes": (lambda a: ndi.zoom(a, (0.4, 2), order=1, mode="grid-wrap"), (image((40, 33), "uint8"),)),
    "affine": (lambda a, m: ndi.affine_transform(a, m, order=1, mode="mirror"), (image((40, 33)), MATRIX)),
    "computed offset": (
        lambda a, m: ndi.affine_transform(a, m * 2, [a.mean(), m[0, 1]], order=1, mode="wrap"),
        (np.arange(1320.0).reshape(40, 33), MATRIX),
    ),
    "diagonal": (lambda a: ndi.affine_transform(a, [1.5, 0.7], 3, (30, 50), order=1), (image((40, 33), "int16"),)),
    "rotation": (lambda a, t: ndi.rotate(a, t, order=1) * 3, (image((40, 33), "float32"), 33.0)),
    "coordinates": (lambda a, c: ndi.map_coordinates(a, c + 1, order=1), (image((40, 33)), coordinates((40, 33)))),
    "into an array": (_into, (image((40, 33)), np.zeros((40, 33), np.float32))),
    "line": (lambda a: ndi.shift(a, 0.3, order=1, mode="nearest"), (image(100),)),
    "volume": (lambda a: ndi.zoom(a, (1, 1.5, 2), order=1, mode="nearest"), (image((5, 20, 30), "float32"),)),
}


@pytest.mark.parametrize("name", FORMS)
def test_one_kernel(name: str) -> None:
    """With what is before and after it."""
    f, args = FORMS[name]
    compiled(f, *args)
    said = externs(f, *args)
    assert "compiled: 1 kernel" in said and "as it is" not in said


def test_numbers_are_no_part_of_the_kernel() -> None:
    """Angles, factors, distances, matrices and sizes."""
    before: dict[Any, int] = {}
    for f, numbers in (
        (lambda a, t: ndi.rotate(a, t, order=1, reshape=False), (33.0, 40.0)),
        (lambda a, t: ndi.zoom(a, t, order=1), (1.7, 2.3)),
        (lambda a, t: ndi.shift(a, t, order=1), (1.7, 2.3)),
    ):
        pipe = hjit.pipeline(f, on_unsupported="raise", tune=False)
        for x in numbers:
            for shape in ((40, 33), (50, 61)):
                a = image(shape)
                np.testing.assert_array_equal(pipe(a, x), f(a, x))
                before.setdefault(f, pipe.stats.compilations)
        assert pipe.stats.compilations == before[f]


def test_factors_of_a_zoom_are_computed_of_the_callers_numbers() -> None:
    def larger(a: Any, n: int) -> Any:
        return ndi.zoom(a, [1 / x for x in np.divide(a.shape, (a.shape[0] * n, a.shape[1] * n))], order=1)

    def by_an_array(a: Any, n: int) -> Any:
        return ndi.zoom(a, np.array([n, 1.5]))

    a = image((9, 20))
    for function in (larger, by_an_array):
        p = hjit.pipeline(function, cache="off", tune=False)
        for n in (2, 3):
            np.testing.assert_array_equal(p(a, n), function(a, n))
        assert "as it is" not in str(p.explain(a, 2)) and p.stats.fallbacks == 0


FORMS_OF_SCIPY: dict[str, Callable[..., Any]] = {
    "order 2": lambda a: ndi.shift(a, 1.5, order=2),
    "order 5": lambda a: ndi.zoom(a, 1.5, order=5),
    "four axes": lambda a: ndi.shift(a[None, None], 0.5, order=1),
    "by one": lambda a: ndi.zoom(a, 1, order=1),
    "into itself": lambda a: ndi.shift(b := a * 1, 1, order=0, output=b),
    "many planes": lambda a: ndi.rotate(np.stack([a] * 6, -1), 30, order=1),
    "complex output": lambda a: ndi.shift(a, 0.5, order=1, output=np.complex64),
    "complex": lambda a: ndi.shift(a * 1j, 0.5, order=1),
    "nothing left": lambda a: ndi.zoom(a, 0.001, order=1),
}


@pytest.mark.parametrize("name", FORMS_OF_SCIPY)
def test_what_is_left_to_scipy(name: str) -> None:
    numpy_check.check(FORMS_OF_SCIPY[name], image((9, 20)), tune=False)


def _by_matrix(a: Array, order: int) -> Array:
    out = np.zeros((9, 10))
    _nd_image.geometric_transform(a, None, None, MATRIX, np.ones(2), out, order, 4, 0.0, 0, None, None)
    return out


def _by_factors(a: Array, order: int) -> Array:
    out = np.zeros(a.shape)
    _nd_image.zoom_shift(a, None, np.full(a.ndim, 0.5), out, order, 4, 0.0, 0, False)
    return out


@pytest.mark.parametrize("order", range(6))
def test_scipys_c_functions_in_all_orders(order: int) -> None:
    """Which a part of SciPy's own functions calls, where these run in parts."""
    for f in (_by_matrix, _by_factors):
        numpy_check.check(f, image((9, 20)), order, tune=False, verify="off", on_unsupported="break")
    numpy_check.check(_by_factors, image((3, 4, 5, 6)), order, tune=False, verify="off", on_unsupported="break")


def test_errors() -> None:
    a = image((5, 6))
    for f in (
        lambda a: ndi.shift(a, (1, 2, 3), order=1),
        lambda a: ndi.shift(a, 1, order=7),
        lambda a: ndi.zoom(a, 2, order=1, mode="no such mode"),
        lambda a: ndi.affine_transform(a, np.ones((3, 2)), order=1),
        lambda a: ndi.affine_transform(a, np.ones((2, 3, 2)), order=1),
        lambda a: ndi.affine_transform(a, np.ones((3, 3)), order=1),
        lambda a: ndi.map_coordinates(a, np.ones((3, 4)), order=1),
        lambda a: ndi.rotate(a, 20, axes=(0, 2), order=1),
        lambda a: ndi.shift(a, 1, order=1, output=np.zeros((6, 5))),
        lambda a: ndi.shift(a.astype(np.float16), 1, order=1),
    ):
        with pytest.raises((RuntimeError, ValueError)) as theirs:
            f(a)
        with pytest.raises(type(theirs.value)) as ours:
            hjit.pipeline(f, tune=False)(a)
        assert str(ours.value) == str(theirs.value)
