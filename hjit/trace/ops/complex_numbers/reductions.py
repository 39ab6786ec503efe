"""Sums, means and products of complex arrays, as those of their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ops.arguments import axes_of, check_shape, keeps, outer
from hjit.trace.ops.complex_numbers.arrays import ravel
from hjit.trace.ops.complex_numbers.operands import as_complex, joined
from hjit.trace.ops.complex_numbers.table import for_complex
from hjit.trace.ops.complex_numbers.ufuncs import as_bool, store
from hjit.trace.ops.reductions.contractions import every_product
from hjit.trace.ops.reductions.reduce import counted, divided, mean_of_squares, not_empty, root_of
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer, is_complex, known_complex
from hjit.trace.tracing.arrays.tracer import MAX_KNOWN, as_tracer, call, is_tracer
from hjit.trace.tracing.complex_memory import part_dtype
from hjit.trace.tracing.externs.calls import extern_call
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current

_MISSING = np._NoValue


def _finish(result: Any, out: Any) -> Any:
    if out is None:
        return result
    check_shape(out, result)
    store(out, result)
    return out


def _dtype(z: ComplexTracer, dtype: Any) -> np.dtype[Any]:
    wanted = z.dtype if dtype is None else np.dtype(dtype)
    if wanted.kind != "c":
        raise current().error(f"reduction as {wanted}", "the imaginary part of a complex number is left out")
    return wanted


def _summands(a: Any, dtype: Any) -> ComplexTracer:
    """The array that is summed up; a real one as complex numbers of the dtype asked for."""
    return as_complex(a, None if is_complex(a) else dtype)


@for_complex(np.sum)
def sum_(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = _MISSING,
    initial: Any = _MISSING,
    where: Any = _MISSING,
) -> Any:
    z = _summands(a, dtype)
    wanted = _dtype(z, dtype)
    if z.known is not None and z.size <= MAX_KNOWN and all(x is _MISSING for x in (initial, where)) and out is None:
        known = np.sum(z.known, axis, dtype, keepdims=keeps(keepdims))
        return known_complex(known, not isinstance(known, np.ndarray))
    kept = keeps(keepdims)
    mask = True if where is _MISSING or where is True else as_tracer(where)[..., None]
    axes = axes_of(axis, z.ndim)
    found = (
        call(np.sum, z.parts, axes, part_dtype(wanted), None, kept, where=mask)
        if axes
        else z.parts.astype(part_dtype(wanted))
    )
    made = ComplexTracer(found, is_scalar=found.ndim == 1)
    if initial is not _MISSING and initial is not None:
        made = made + initial
    return _finish(made, out)


@for_complex(np.mean)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = _MISSING, *, where: Any = _MISSING
) -> Any:
    z = _summands(a, dtype)
    not_empty(counted(z, axis, where, keepdims))
    return _finish(_mean(z, axis, dtype, keepdims, where), out)


def _mean(z: Any, axis: Any, dtype: Any, keepdims: Any, where: Any) -> Any:
    """The mean, without a warning."""
    total = sum_(z, axis, dtype, None, keepdims, where=where)
    count = counted(z, axis, where, keepdims)
    count = count.astype(part_dtype(z.dtype)) if is_tracer(count) else count
    return divided(total, count, total.dtype)


@for_complex(np.var)
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = _MISSING,
    *,
    where: Any = _MISSING,
    mean: Any = _MISSING,
    correction: Any = _MISSING,
) -> Any:
    z = as_complex(a)
    if any(x is not _MISSING for x in (where, mean, correction)) or dtype is not None:
        raise current().error("numpy.var", "with such options it is not compiled for complex arrays")
    d = z - _mean(z, axis, None, True, _MISSING)
    squares = d.real * d.real + d.imag * d.imag
    return _finish(mean_of_squares(z, squares, squares.dtype, axis, ddof, keepdims), out)


def _of_truth(function: Any) -> Callable[..., Any]:
    def method(a: Any, *args: Any, **kwargs: Any) -> Any:
        return call(function, as_bool(as_complex(a)), *args, **kwargs)

    return method


for _test in (np.any, np.all, np.count_nonzero, np.nonzero):
    for_complex(_test)(_of_truth(_test))


@for_complex(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    z = _summands(a, dtype)
    part = part_dtype(_dtype(z, dtype))
    if axis is None:
        z, axis = ravel(z), 0
    (k,) = axes_of(axis, z.ndim)
    return _finish(ComplexTracer(call(np.cumsum, z.parts, k, part)), out)


@for_complex(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    return sum_(call(np.diagonal, as_complex(a), offset, axis1, axis2), -1, dtype, out)


@provides
def complex_method(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``np.add.reduce`` and the other methods of ufuncs on complex arrays."""
    if method == "reduce" and ufunc is np.add:
        return _reduced(*inputs, **kwargs)
    if method == "accumulate" and ufunc is np.add:
        return _accumulated(*inputs, **kwargs)
    if method == "outer":
        return outer(ufunc, *map(as_complex, inputs), **kwargs)
    raise current().error(f"numpy.{ufunc.__name__}.{method}", "it is not compiled for complex arrays")


def _reduced(a: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: Any = False, **kwargs: Any) -> Any:
    return sum_(a, axis, dtype, out[0] if isinstance(out, tuple) else out, keepdims, **kwargs)


def _accumulated(a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    return cumsum(a, axis, dtype, out[0] if isinstance(out, tuple) else out)


# -- what is called as it is


def _called(function: Any) -> Callable[..., Any]:
    """A function of one array without a formula, whose result is a new one."""

    def method(a: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            raise current().error(f"numpy.{function.__name__}(out=)", "not compiled for complex numbers", "assign it")
        return extern_call(f"numpy.{function.__name__}", function, (a, *args), kwargs)

    return method


_CALLED = (np.prod, np.cumprod, np.max, np.amax, np.min, np.amin, np.argmax, np.argmin, np.sort, np.argsort, np.clip)
for _each in _CALLED:
    for_complex(_each)(_called(_each))


# -- products


def _bilinear(function: Any) -> Callable[..., Any]:
    """A product of two arrays, by four products of their parts; of a real and a complex one by two."""

    def method(a: Any, b: Any, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        a, b = _factor(a), _factor(b)
        if function in _BY_BLAS and _is_large(a, b):
            return _finish(extern_call(f"numpy.{function.__name__}", function, (a, b, *args), kwargs), out)

        def by(x: Any, y: Any) -> Any:
            return as_tracer(call(function, x, y, *args, **kwargs))

        if not is_complex(a):
            return _finish(_together(by(a, b.real), by(a, b.imag), a, b), out)
        if not is_complex(b):
            return _finish(_together(by(a.real, b), by(a.imag, b), a, b), out)
        re = by(a.real, b.real) - by(a.imag, b.imag)
        im = by(a.real, b.imag) + by(a.imag, b.real)
        return _finish(_together(re, im, a, b), out)

    return method


_BY_BLAS = (np.dot, np.matmul, np.inner)
_LARGE = 1 << 15  # products of numbers, beyond which BLAS is worth a call between kernels


def _is_large(a: Any, b: Any) -> bool:
    """Is it a product of matrices that BLAS computes faster?"""
    if max(a.ndim, b.ndim) < 2 or min(a.ndim, b.ndim) < 1:
        return False
    return int(a.size) * int(b.size) // max(int(a.shape[-1]), 1) >= _LARGE


def _factor(x: Any) -> Any:
    return as_complex(x) if is_complex(x) else as_tracer(x)


def _together(re: Any, im: Any, a: Any, b: Any) -> ComplexTracer:
    part = part_dtype(np.result_type(a.dtype, b.dtype))
    re, im = re.astype(part, copy=False), im.astype(part, copy=False)
    return joined(re, im, is_scalar=bool(re.is_scalar))


for _product in (np.dot, np.matmul, np.inner, np.tensordot, np.convolve):
    for_complex(_product)(_bilinear(_product))


@for_complex(np.outer)
def outer_(a: Any, b: Any, out: Any = None) -> Any:
    """As NumPy has it: `multiply`, with the bits of that."""
    a, b = _factor(a).reshape(-1), _factor(b).reshape(-1)
    return np.multiply(a[:, None], b[None, :], out=out)


@for_complex(np.kron)
def kron(a: Any, b: Any) -> Any:
    """By `multiply`, too."""
    return every_product(_factor(a), _factor(b))


@for_complex(np.vdot)
def vdot(a: Any, b: Any, /) -> Any:
    first = np.conjugate(ravel(as_complex(a)))
    return call(np.dot, first, ravel(as_complex(b)))


@for_complex(np.correlate)
def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    conjugated = np.conjugate(as_complex(v))
    return _bilinear(np.correlate)(a, conjugated, mode)


_METHODS: dict[str, Callable[..., Any]] = {
    "sum": sum_,
    "mean": mean,
    "var": var,
    "std": for_complex(np.std)(root_of(var)),
    "any": _of_truth(np.any),
    "all": _of_truth(np.all),
    "nonzero": _of_truth(np.nonzero),
    "cumsum": cumsum,
    "trace": trace,
    "dot": _bilinear(np.dot),
    **{f.__name__: _called(f) for f in (np.prod, np.cumprod, np.argmax, np.argmin, np.argsort, np.clip)},
    "max": _called(np.max),
    "min": _called(np.min),
}
for _name, _method in _METHODS.items():
    setattr(ComplexTracer, _name, _method)
