"""Functions of GPU libraries, called through CuPy: FFTs (cuFFT) and products of complex matrices (cuBLAS).

A call is parsed by NumPy's or SciPy's signature, and becomes one or two calls of CuPy. If CuPy lacks the function, or
would compute something else, NumPy runs: `call_of` returns None.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CUFFT, CUBLAS = "cuFFT", "cuBLAS"


class _Lacking(Exception):
    """CuPy has no such form of a function."""


@dataclass(frozen=True, slots=True)
class Step:
    """A function of a package, with keyword arguments."""

    module: str
    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """Functions of CuPy, each of the result of the one before it.

    Attributes:
        library: what computes them.
        operands: of the first one.
    """

    library: str
    operands: tuple[Any, ...]
    steps: tuple[Step, ...]

    def result(self) -> Any:
        """What they give; whatever CuPy raises."""
        operands = self.operands
        for s in self.steps:
            operands = (getattr(importlib.import_module(s.module), s.name)(*operands, **s.kwargs),)
        return operands[0]


def call_of(operation: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> LibraryCall | None:
    """A call of a function of NumPy or SciPy by libraries of the GPU; None where these have none like it.

    Args:
        operation: the function's name, ``numpy.fft.fft2``.
        args, kwargs: arrays, or whatever has their `ndim`, among them.
    """
    reader = _READERS.get(operation)
    if reader is None:
        return None
    try:
        return reader(*args, **kwargs)
    except (_Lacking, TypeError, ValueError, IndexError):  # not arguments that CuPy would take
        return None


# -- Fourier transforms


def _one(module: str, name: str, x: Any, n: Any, axis: Any, norm: Any) -> LibraryCall:
    return LibraryCall(CUFFT, (x,), (Step(module, name, {"n": n, "axis": axis, "norm": norm}),))


def _several(module: str, name: str, x: Any, s: Any, axes: Any, norm: Any) -> LibraryCall:
    """A transform along several axes; `name`: of that along one.

    One to real numbers is, as NumPy has it, the inverse transform along all axes but the last, and then one along that:
    spectra that are not those of real numbers make a difference.
    """
    along, lengths = _axes_of(x, s, axes)
    if name != "irfft":
        return LibraryCall(CUFFT, (x,), (Step(module, f"{name}n", _named(along, lengths, norm)),))
    before = (Step(module, "ifftn", _named(along[:-1], lengths[:-1], norm)),) if along[:-1] else ()
    last = {"n": lengths[-1] if lengths else None, "axis": along[-1], "norm": norm}
    return LibraryCall(CUFFT, (x,), (*before, Step(module, "irfft", last)))


def _axes_of(x: Any, s: Any, axes: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of a transform along several, and their lengths; no lengths: those that they have."""
    lengths = () if s is None else (s,) if isinstance(s, int) else tuple(s)
    if axes is None:
        axes = range(x.ndim - len(lengths), x.ndim) if lengths else range(x.ndim)
    along = tuple(k % x.ndim for k in ((axes,) if isinstance(axes, int) else axes))
    if not along or len(set(along)) < len(along) or (lengths and len(lengths) != len(along)) or s == ():
        raise _Lacking
    if any(n is None or n < 1 for n in lengths):  # None and -1: all of it
        raise _Lacking
    return along, lengths


def _named(axes: Sequence[int], lengths: Sequence[int], norm: Any) -> dict[str, Any]:
    return {"s": tuple(lengths) or None, "axes": tuple(axes), "norm": norm}


def _numpy_one(name: str) -> Callable[..., LibraryCall]:
    def read(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> LibraryCall:
        _need(out is None)
        return _one("cupy.fft", name, a, n, axis, norm)

    return read


def _numpy_several(name: str, usual: Any) -> Callable[..., LibraryCall]:
    def read(a: Any, s: Any = None, axes: Any = usual, norm: Any = None, out: Any = None) -> LibraryCall:
        _need(out is None)
        return _several("cupy.fft", name, a, s, axes, norm)

    return read


def _scipy_one(name: str) -> Callable[..., LibraryCall]:
    def read(
        x: Any,
        n: Any = None,
        axis: Any = -1,
        norm: Any = None,
        overwrite_x: Any = False,
        workers: Any = None,
        *,
        plan: Any = None,
    ) -> LibraryCall:
        _need(plan is None)  # what may be overwritten is not, and workers are threads
        return _one("cupyx.scipy.fft", name, x, n, axis, norm)

    return read


def _scipy_several(name: str, usual: Any) -> Callable[..., LibraryCall]:
    def read(
        x: Any,
        s: Any = None,
        axes: Any = usual,
        norm: Any = None,
        overwrite_x: Any = False,
        workers: Any = None,
        *,
        plan: Any = None,
    ) -> LibraryCall:
        _need(plan is None)
        return _several("cupyx.scipy.fft", name, x, s, axes, norm)

    return read


def _scipy_cosine(name: str) -> Callable[..., LibraryCall]:
    def read(
        x: Any,
        type: Any = 2,
        n: Any = None,
        axis: Any = -1,
        norm: Any = None,
        overwrite_x: Any = False,
        workers: Any = None,
        orthogonalize: Any = None,
    ) -> LibraryCall:
        _need(type in (2, 3) and orthogonalize is None)
        given = {"type": type, "n": n, "axis": axis, "norm": norm}
        return LibraryCall(CUFFT, (x,), (Step("cupyx.scipy.fft", name, given),))

    return read


def _scipy_cosines(name: str) -> Callable[..., LibraryCall]:
    def read(
        x: Any,
        type: Any = 2,
        s: Any = None,
        axes: Any = None,
        norm: Any = None,
        overwrite_x: Any = False,
        workers: Any = None,
        *,
        orthogonalize: Any = None,
    ) -> LibraryCall:
        _need(type in (2, 3) and orthogonalize is None)
        along, lengths = _axes_of(x, s, axes)
        given = {"type": type, **_named(along, lengths, norm)}
        return LibraryCall(CUFFT, (x,), (Step("cupyx.scipy.fft", name, given),))

    return read


def _need(is_there: bool) -> None:
    if not is_there:
        raise _Lacking


def _convolved(in1: Any, in2: Any, mode: Any = "full", axes: Any = None) -> LibraryCall:
    step = Step("cupyx.scipy.signal", "fftconvolve", {"mode": mode, "axes": axes})
    return LibraryCall(CUFFT, (in1, in2), (step,))


def _convolved_somehow(in1: Any, in2: Any, mode: Any = "full", method: Any = "auto") -> LibraryCall:
    _need(method == "fft")
    step = Step("cupyx.scipy.signal", "convolve", {"mode": mode, "method": method})
    return LibraryCall(CUFFT, (in1, in2), (step,))


# -- products of matrices


def _product(name: str) -> Callable[..., LibraryCall]:
    def read(a: Any, b: Any, /) -> LibraryCall:
        return LibraryCall(CUBLAS, (a, b), (Step("cupy", name),))

    return read


_ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
_ALONG_SEVERAL = ("fft", "ifft", "rfft", "irfft")
_COSINES = ("dct", "idct", "dst", "idst")
_FFTS: dict[str, Callable[..., LibraryCall]] = {
    **{f"numpy.fft.{n}": _numpy_one(n) for n in _ONE},
    **{f"numpy.fft.{n}2": _numpy_several(n, (-2, -1)) for n in _ALONG_SEVERAL},
    **{f"numpy.fft.{n}n": _numpy_several(n, None) for n in _ALONG_SEVERAL},
    **{f"scipy.fft.{n}": _scipy_one(n) for n in _ONE},
    **{f"scipy.fft.{n}2": _scipy_several(n, (-2, -1)) for n in _ALONG_SEVERAL},
    **{f"scipy.fft.{n}n": _scipy_several(n, None) for n in _ALONG_SEVERAL},
    **{f"scipy.fft.{n}": _scipy_cosine(n) for n in _COSINES},
    **{f"scipy.fft.{n}n": _scipy_cosines(f"{n}n") for n in _COSINES},
    "scipy.signal.fftconvolve": _convolved,
    "scipy.signal.convolve": _convolved_somehow,
}
_PRODUCTS: dict[str, Callable[..., LibraryCall]] = {f"numpy.{n}": _product(n) for n in ("matmul", "dot", "inner")}
_READERS = {**_FFTS, **_PRODUCTS}
FUNCTIONS = {**dict.fromkeys(_FFTS, CUFFT), **dict.fromkeys(_PRODUCTS, CUBLAS)}  # by name, with what computes them
