"""FFTs and complex products in functions that run on a GPU: by cuFFT and cuBLAS, through CuPy, without copies to the host."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.signal

import hjit
from hjit.kernels.cuda.runtime import device, library
from tests.kernels.cuda import fake_cupy
from tests.kernels.cuda.launching import needs_device, needs_opencl

pytestmark = needs_device
IMAGE = np.random.default_rng(5).random((40, 51), np.float32)
STACK = np.random.default_rng(6).random((3, 20, 18))


def lowpass(a: Any, k: float) -> Any:
    spectrum = np.fft.rfft2(a * 2)
    y, x = np.mgrid[: spectrum.shape[0], : spectrum.shape[1]]
    return np.fft.irfft2(spectrum * np.exp(-k * (y * y + x * x)), s=a.shape) + 1


def by_scipy(a: Any) -> Any:
    return np.abs(scipy.fft.fft2(a, norm="ortho", workers=2)), scipy.fft.idct(scipy.fft.dct(a, axis=0) * 0.5, axis=0)


def stacked(a: Any) -> Any:
    f = np.fft.fftn(a, axes=(1, 2))
    return np.fft.ifftn(f * 2, axes=(1, 2)).real, np.fft.fft(a, 32, axis=1), np.fft.hfft(f[0], axis=0)


def convolved(a: Any) -> Any:
    kernel = np.exp(-(np.arange(-12.0, 13) ** 2) / 40)[:, None] * np.ones(25)
    return scipy.signal.fftconvolve(a, kernel, mode="same") + 1, scipy.signal.convolve(
        a, kernel * a[:25, :25], "valid", "fft"
    )


def complex_product(a: Any) -> Any:
    f = np.fft.fft(a)
    return np.matmul(f, f.T) * 2


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "lowpass": (lowpass, (IMAGE, 0.01), "numpy.fft.rfft2 by cuFFT, numpy.fft.irfft2 by cuFFT"),
    "scipy": (by_scipy, (IMAGE,), "scipy.fft.fft2 by cuFFT, scipy.fft.dct by cuFFT, scipy.fft.idct by cuFFT"),
    "stack": (stacked, (STACK,), "numpy.fft.hfft by cuFFT"),
    "transposed": (lowpass, (np.asfortranarray(IMAGE), 0.01), "numpy.fft.rfft2 by cuFFT"),
    "bytes": (lowpass, ((IMAGE * 255).astype(np.uint8), 0.01), "numpy.fft.rfft2 by cuFFT"),
    "complex argument": (lambda a: np.fft.ifft2(a) + 1, (IMAGE + 1j * IMAGE[::-1],), "numpy.fft.ifft2 by cuFFT"),
    "convolution": (convolved, (IMAGE,), "scipy.signal.fftconvolve by cuFFT, scipy.signal.convolve by cuFFT"),
    "product": (complex_product, (np.tile(IMAGE, (2, 1)),), "numpy.matmul by cuBLAS"),
}


def close(got: Any, expected: Any) -> None:
    """Are results, on the device, those of NumPy but for roundings to float32 of the largest?"""
    if isinstance(expected, tuple):
        for g, e in zip(got, expected, strict=True):
            close(g, e)
        return
    assert isinstance(got, sys.modules["cupy"].ndarray)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    eps = np.finfo(np.float32).eps
    np.testing.assert_allclose(got.get(), expected, rtol=64 * eps, atol=64 * eps * np.abs(expected).max())


def need_libraries(cp: Any) -> None:
    """Skip where CuPy finds no cuFFT or cuBLAS: all of this runs on the host there."""
    if not fake_cupy.is_installed_as(cp):
        for name in ("cupy.cuda.cufft", "cupy_backends.cuda.libs.cublas"):
            pytest.importorskip(name, reason=f"{name} finds no library", exc_type=ImportError)


@pytest.mark.parametrize("name", CASES)
def test_transforms_and_complex_products_stay_on_the_device(name: str, cp: Any) -> None:
    need_libraries(cp)
    function, args, said = CASES[name]
    f = hjit.pipeline(function, target="cuda")
    given = [cp.asarray(x) if isinstance(x, np.ndarray) else x for x in args]
    close(f(*given), function(*args))  # compares kernels with NumPy
    fake_cupy.log.clear()
    result = f(*given)
    if fake_cupy.is_installed_as(cp):
        assert fake_cupy.log == []  # nothing was copied or waited for
    close(result, function(*args))
    if fake_cupy.is_installed_as(cp):
        assert "library on current" in fake_cupy.log and not any("load" in x for x in fake_cupy.log)
    assert f.stats.fallbacks == 0 and f.stats.verified
    assert said in f.explain(*given) and "on the host" not in f.explain(*given)


def test_numpy_arrays_are_copied_once_each_way(cp: Any) -> None:
    f = hjit.pipeline(lowpass, target="cuda", verify="off")
    for _ in range(2):
        fake_cupy.log.clear()
        result = f(IMAGE, 0.01)
        np.testing.assert_allclose(result, lowpass(IMAGE, 0.01), rtol=1e-4, atol=1e-5)
    if fake_cupy.is_installed_as(cp):
        assert [x.partition(" on ")[0] for x in fake_cupy.log if "load" in x] == ["upload", "download"]


def test_the_table_says_what_runs_between_kernels(cp: Any) -> None:
    f = hjit.pipeline(lowpass, target="cuda")
    text = str(f.kernels(cp.asarray(IMAGE), 0.01, capability=80))
    words = [row.partition(" ")[0].partition("_")[0] for row in text.splitlines()[1:-3]]
    assert words == ["hjit", "numpy.fft.rfft2", "hjit", "numpy.fft.irfft2", "hjit"]


def test_what_cupy_lacks_runs_on_the_host(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def several(a: Any) -> Any:
        return scipy.fft.dct(a, type=1) * 2, np.fft.fftn(a, axes=(0, 0)).real, np.linalg.pinv(a) + 1

    f = hjit.pipeline(several, target="cuda", verify="off")
    for _ in range(2):
        close(f(cp.asarray(IMAGE)), several(IMAGE))
    said = f.explain(cp.asarray(IMAGE))
    assert said.count("as it is, on the host") == 3 and "by cu" not in said

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("of this CuPy")

    fft = importlib.import_module("cupy.fft")
    monkeypatch.setattr(fft, "rfftn", refused)
    monkeypatch.setattr(fft, "irfft", lambda a, **kwargs: a)  # other dtype and shape
    g = hjit.pipeline(lowpass, target="cuda", verify="off")
    for _ in range(3):
        close(g(cp.asarray(IMAGE), 0.01), lowpass(IMAGE, 0.01))
    said = g.explain(cp.asarray(IMAGE), 0.01)
    assert "numpy.fft.rfft2 as it is, on the host" in said and "numpy.fft.irfft2 as it is, on the host" in said


def test_transforms_of_spectra_that_are_no_image_s(cp: Any) -> None:
    need_libraries(cp)
    spectrum = (IMAGE + 1j * IMAGE[::-1]).astype(np.complex64)

    def images(a: Any) -> Any:
        return np.fft.irfft2(a), np.fft.irfft(a, 99, axis=0), np.fft.irfftn(a, (30, 40), (1, 0), "forward")

    f = hjit.pipeline(images, target="cuda")
    for _ in range(2):
        close(f(cp.asarray(spectrum)), images(spectrum))
    assert f.stats.verified and "on the host" not in f.explain(cp.asarray(spectrum))


def test_wrong_transforms_are_found(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fake_cupy.is_installed_as(cp):
        pytest.skip("a library that computes something else")
    fft = importlib.import_module("cupy.fft")
    monkeypatch.setattr(fft, "fftn", fft.ifftn)
    f = hjit.pipeline(lambda a: np.fft.fft2(a) + 1, target="cuda", cache="off")
    with pytest.warns(hjit.HjitWarning, match="differs from NumPy's"):
        f(cp.asarray(IMAGE))
    assert f.stats.verified is False


@needs_opencl
def test_without_cupy_numpy_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(device.VARIABLE, "opencl")
    f = hjit.pipeline(lowpass, target="cuda")
    for _ in range(2):
        np.testing.assert_allclose(f(IMAGE, 0.01), lowpass(IMAGE, 0.01), rtol=1e-5)
    assert "numpy.fft.rfft2 as it is, on the host" in f.explain(IMAGE, 0.01)


def test_the_functions_are_cupy_s() -> None:
    for name in ("cupy", "cupy.fft", "cupyx.scipy.fft", "cupyx.scipy.signal"):
        pytest.importorskip(name, exc_type=ImportError)  # without its libraries there is no cuFFT
    a: Any = np.zeros((4, 6, 8))
    for operation in library.FUNCTIONS:
        has_two = library.FUNCTIONS[operation] == library.CUBLAS or "convolve" in operation
        given = {"method": "fft"} if operation.endswith(".convolve") else {}
        call = library.call_of(operation, (a, a) if has_two else (a,), given)
        assert call is not None, operation
        for s in call.steps:
            function = getattr(importlib.import_module(s.module), s.name)
            assert callable(function)
            if call.library == library.CUFFT:
                inspect.signature(function).bind(*call.operands, **s.kwargs)


def test_calls_are_read_by_numpy_s_signatures() -> None:
    a: Any = np.zeros((4, 6, 8))

    def read(operation: str, *args: Any, **kwargs: Any) -> Any:
        call = library.call_of(operation, (a, *args), kwargs)
        return None if call is None else [(s.name, dict(s.kwargs)) for s in call.steps]

    assert read("numpy.fft.fft", 5, 0) == [("fft", {"n": 5, "axis": 0, "norm": None})]
    assert read("numpy.fft.fft2", norm="ortho") == [("fftn", {"s": None, "axes": (1, 2), "norm": "ortho"})]
    assert read("scipy.fft.irfftn", (3, 4), overwrite_x=True) == [
        ("ifftn", {"s": (3,), "axes": (1,), "norm": None}),
        ("irfft", {"n": 4, "axis": 2, "norm": None}),
    ]
    refused: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("numpy.fft.fft", (), {"out": a}),
        ("numpy.fft.fftn", ((3, -1), (0, 1)), {}),
        ("numpy.fft.fftn", (None, ()), {}),
        ("numpy.fft.fftn", (None, (0, -3)), {}),
        ("scipy.fft.dct", (4,), {}),
        ("scipy.fft.dct", (), {"orthogonalize": True}),
        ("scipy.fft.fft", (), {"plan": a}),
        ("numpy.fft.fft", (), {"unknown": 1}),
        ("numpy.linalg.inv", (), {}),
    ]
    assert [read(name, *args, **kwargs) for name, args, kwargs in refused] == [None] * len(refused)
