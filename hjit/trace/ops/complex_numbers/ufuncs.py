"""ufuncs, operators and `where` on complex numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr, cast, select
from hjit.trace.ops.arguments import Casting, broadcast, concrete_shape
from hjit.trace.ops.complex_numbers.formulas import FORMULAS, MAX_MULTIPLIED_POWER, computed, truth, whole_power
from hjit.trace.ops.complex_numbers.operands import (
    Complex,
    arrays,
    as_complex,
    common_dtype,
    complex_operand,
    is_array,
    is_number,
    is_pythons,
    loop_of,
    pair,
    parts,
)
from hjit.trace.ops.complex_numbers.table import for_complex
from hjit.trace.ops.elementwise.operators import BINARY, COMPARE, UNARY
from hjit.trace.ops.layout import order_of, ordered_stage
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer, any_known, is_complex, is_complex_dtype
from hjit.trace.tracing.arrays.tracer import MAX_KNOWN, Tracer, as_tracer, call
from hjit.trace.tracing.complex_memory import part_dtype
from hjit.trace.tracing.externs.calls import extern_call
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import is_host, static_captured

_NAMES = {"divide": "true_divide", "abs": "absolute", "conj": "conjugate"}


@provides
def complex_operands(inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is one of the operands of a ufunc, its output, or the dtype asked for complex?"""
    out = kwargs.get("out")
    return any(map(is_complex, (*inputs, *(out if isinstance(out, tuple) else (out,))))) or is_complex_dtype(
        kwargs.get("dtype")
    )


@provides
def complex_ufunc(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc that `complex_operands` says is one of complex numbers; one without a formula is called as it is."""
    name = _NAMES.get(ufunc.__name__, ufunc.__name__)
    inputs, kwargs = static_captured(inputs), static_captured(kwargs)
    if name in FORMULAS:
        return _elementwise(ufunc, name, inputs, **kwargs)
    if name == "power" and not kwargs and _is_whole_power(*inputs):
        return _whole_power(*inputs)
    if any(k in kwargs for k in ("out", "where")):
        raise current().error(f"numpy.{ufunc.__name__}(out=)", "not compiled for complex numbers", "assign its result")
    return extern_call(f"numpy.{ufunc.__name__}", ufunc, inputs, kwargs)


def _elementwise(
    ufunc: np.ufunc,
    name: str,
    inputs: tuple[Any, ...],
    out: Any = None,
    where: Any = True,
    dtype: Any = None,
    casting: Casting = "same_kind",
    order: str = "K",
    subok: bool = True,
    is_plain: bool = False,
) -> Any:
    operands = tuple(map(complex_operand, inputs))
    out = out[0] if isinstance(out, tuple) else out
    mask = None if where is True or where is np._NoValue else as_tracer(where)
    if out is None and mask is None:
        known = _known(ufunc, operands, dtype, casting, is_plain)
        if known is not None:
            return known
    loop = loop_of(ufunc, operands, None if dtype is None else (None,) * ufunc.nin + (np.dtype(dtype),), casting)
    if loop[0].kind != "c":  # only the output is complex
        result = ufunc(*inputs, dtype=dtype, casting=casting, order=order)
    else:
        shape = broadcast(*(x.shape for x in operands if is_array(x)), *([] if mask is None else [mask.shape]))
        part = part_dtype(loop[0])
        value = computed(name, [parts(x, shape, part) for x in operands], is_plain)
        laid = order_of(order, arrays(*operands), shape)
        scalar = not shape and all(is_number(x) or not x.shape for x in operands)
        result = _made(value, shape, part, laid, scalar)
    if out is None:
        if mask is not None:
            raise current().error(f"numpy.{ufunc.__name__}(where=)", "what is not selected is undefined", "give out")
        return result
    return _written(ufunc, result, loop[-1], out, mask, casting)


def _is_whole_power(z: Any, n: Any) -> bool:
    """Is it a power that NumPy multiplies out?"""
    return type(z) is ComplexTracer and z.known is None and type(n) is int and 0 < n <= MAX_MULTIPLIED_POWER


def _whole_power(z: ComplexTracer, n: int) -> Any:
    part, order = part_dtype(z.dtype), order_of("K", arrays(z), z.shape)
    return _made(whole_power(parts(z, z.shape, part), n), z.shape, part, order, z.is_scalar)


def _made(value: Any, shape: Any, part: Any, order: Any, is_scalar: bool) -> Any:
    if isinstance(value, Complex):
        return pair(value, shape, part, order, is_scalar)
    assert isinstance(value, Expr)
    return ordered_stage(value, shape, value.dtype, order, is_scalar=is_scalar)


def _written(ufunc: np.ufunc, result: Any, dtype: Any, out: Any, mask: Tracer | None, casting: Casting) -> Any:
    """`result`, written to the output of a ufunc.

    Raises:
        UFuncTypeError: it cannot be cast to that.
        ValueError: it has another shape.
    """
    if not is_array(out):
        reason = "the output array is not an argument of the function, nor made in it"
        raise current().error(f"numpy.{ufunc.__name__}(out=)", reason)
    if not np.can_cast(dtype, out.dtype, casting):
        raise np._core._exceptions._UFuncOutputCastingError(  # type: ignore[attr-defined]
            ufunc, casting, dtype, out.dtype, 0
        )
    if broadcast(result.shape, out.shape) != out.shape:
        narrow, wide = concrete_shape(out.shape), concrete_shape(broadcast(result.shape, out.shape))
        raise ValueError(
            f"non-broadcastable output operand with shape {narrow} doesn't match the broadcast shape {wide}"
        )
    store(out, result, mask)
    return out


def store(out: Any, value: Any, mask: Tracer | None = None) -> None:
    """``out[...] = value`` under a mask, either of them complex.

    Raises:
        TraceError: NumPy would warn that it leaves the imaginary part out.
    """
    if type(out) is not ComplexTracer:
        if is_complex(value):
            raise current().error("assignment", "the imaginary part of a complex number is left out", "assign .real")
        forward.write(out, value, None if mask is None else mask.load(out.shape))
        return
    parts_ = as_complex(value, out.dtype).parts
    where = None if mask is None else mask[..., None].load(out.parts.shape)
    forward.write(out.parts, parts_, where)


def _known(ufunc: np.ufunc, operands: tuple[Any, ...], dtype: Any, casting: Casting, is_plain: bool) -> Any:
    """The result, where NumPy can compute it from known contents."""
    values = []
    for x in operands:
        value = x.known if is_array(x) else x
        if value is None or is_host(x):
            return None
        values.append(value[()] if is_array(x) and x.is_scalar else value)
    if max((v.size for v in values if isinstance(v, np.ndarray)), default=1) > MAX_KNOWN:
        return None
    with np.errstate(all="ignore"):
        if is_plain:
            result = _PYTHONS[ufunc](*values)
        else:
            result = ufunc(*values, dtype=dtype, casting=casting)
    return any_known(result, is_scalar=not isinstance(result, np.ndarray))


_PYTHONS: dict[np.ufunc, Callable[..., Any]] = {np.multiply: operator.mul, np.square: lambda x: x * x}


# -- operators


def _binary(ufunc: np.ufunc) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def method(self: Any, other: Any) -> Any:
        return _applied(ufunc, self, other) if _takes(other) else NotImplemented

    def swapped(self: Any, other: Any) -> Any:
        return _applied(ufunc, other, self) if _takes(other) else NotImplemented

    return method, swapped


# operators of Python's complex numbers that neither raise nor have an algorithm of their own
_PYTHONS_TOO = frozenset((np.add, np.subtract, np.multiply, np.negative, np.positive, np.absolute))


def _applied(ufunc: np.ufunc, *operands: Any) -> Any:
    """An operator."""
    if all(is_pythons(x) for x in operands):
        return _of_pythons(ufunc, operands)
    return _of_numbers(ufunc, operands)


def _of_pythons(ufunc: np.ufunc, operands: tuple[Any, ...]) -> Any:
    """An operator on numbers of Python's."""
    if ufunc not in _PYTHONS_TOO:
        reason = "Python computes it of its own complex numbers in a way of its own"
        raise current().error(f"complex {ufunc.__name__}", reason, "compute with numbers of NumPy's: np.complex128(z)")
    result = _of_numbers(ufunc, operands)
    if ufunc is np.absolute:  # Python raises where NumPy gives infinity
        z = operands[0]
        current().check(np.isinf(result) & np.isfinite(z.real) & np.isfinite(z.imag))
    if is_array(result):
        result.weak = True
    return result


def _of_numbers(ufunc: np.ufunc, operands: tuple[Any, ...]) -> Any:
    if ufunc in _PYTHONS and all(is_number(x) for x in map(complex_operand, operands)):
        return _elementwise(ufunc, ufunc.__name__, operands, is_plain=True)
    return ufunc(*operands)


def _takes(x: Any) -> bool:
    return not isinstance(x, (str, bytes, dict, set, type(None)))


def _power(a: Any, b: Any) -> Any:
    """``a ** b``: NumPy's operator takes shortcuts for a few Python exponents."""
    b = static_captured(b)
    if is_host(b):
        b = b.make_static()
    if type(a) is ComplexTracer and type(b) in (int, float, complex):
        shortcut = {2: np.square, 1: np.positive, 0.5: np.sqrt, -1: np.reciprocal}.get(b)
        if shortcut is not None and not a.is_scalar:
            return shortcut(a)
        if b == 2 or a.weak:
            return _applied(np.square, a)
    return np.power(a, b)


def _in_place(f: Callable[..., Any], is_ufunc: bool) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if self.is_scalar and not self.shape:
            return f(self, other)
        if is_ufunc and (f not in _WITHOUT_FORMULA):
            return f(self, other, out=self)
        store(self, f(self, other))
        return self

    return method


def _compare(name: str, ufunc: np.ufunc) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if _takes(other):
            return ufunc(self, other)
        return np.full(self.shape, name == "ne") if name in ("eq", "ne") else NotImplemented

    return method


_WITHOUT_FORMULA = frozenset(f for f in BINARY.values() if _NAMES.get(f.__name__, f.__name__) not in FORMULAS)


def _install() -> None:
    for name, ufunc in BINARY.items():
        f, swapped = _binary(ufunc)
        setattr(ComplexTracer, f"__{name}__", f)
        setattr(ComplexTracer, f"__r{name}__", swapped)
        setattr(ComplexTracer, f"__i{name}__", _in_place(ufunc, True))
    powers = {"pow": _power, "rpow": lambda self, other: _power(other, self), "ipow": _in_place(_power, False)}
    for name, method in powers.items():
        setattr(ComplexTracer, f"__{name}__", method)
    for name, ufunc in COMPARE.items():
        setattr(ComplexTracer, f"__{name}__", _compare(name, ufunc))
    for name, ufunc in UNARY.items():
        setattr(ComplexTracer, f"__{name}__", lambda self, f=ufunc: _applied(f, self) if self.weak else f(self))
    ComplexTracer.conj = ComplexTracer.conjugate = lambda self: np.conjugate(self)  # type: ignore[attr-defined]


_install()


# -- formulas


@provides
def complex_truth(x: ComplexTracer) -> Any:
    """What `bool` asks: one number."""
    if x.size != 1:
        return bool(as_bool(x).reshape(x.shape))  # raises what NumPy raises
    return as_bool(x).reshape(())


def as_bool(x: ComplexTracer) -> Any:
    """``x.astype(bool)``."""
    part = part_dtype(x.dtype)
    order = order_of("K", arrays(x), x.shape)
    return ordered_stage(truth(parts(x, x.shape, part)), x.shape, np.dtype(bool), order, is_scalar=x.is_scalar)


@for_complex(np.where)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    condition = as_bool(condition) if type(condition) is ComplexTracer else as_tracer(condition)
    if x is None and y is None:
        return np.nonzero(condition)
    x, y = complex_operand(x), complex_operand(y)
    dtype = common_dtype((x, y))
    shape = broadcast(*(v.shape for v in (condition, x, y) if is_array(v)))
    order = order_of("K", arrays(condition, x, y), shape)
    if dtype.kind != "c":
        return forward.numpy_call(np.where, (condition, x, y), {})
    part = part_dtype(dtype)
    holds = cast(condition.load(shape), bool)
    a, b = parts(x, shape, part), parts(y, shape, part)
    return pair(Complex(select(holds, a.re, b.re), select(holds, a.im, b.im)), shape, part, order)


@for_complex(np.select)
def select_(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if len(condlist) == 0:
        raise ValueError("select with an empty condition list is not possible")
    dtype = common_dtype([*map(complex_operand, choicelist), complex_operand(default)])
    found: Any = default
    for k, condition in reversed([*enumerate(condlist)]):
        if condition.dtype != np.dtype(bool):
            raise TypeError(f"invalid entry {k} in condlist: should be boolean ndarray")
        found = call(np.where, condition, choicelist[k], found)
    return as_complex(found, dtype)


@for_complex(np.copyto)
def copyto(dst: Any, src: Any, casting: Casting = "same_kind", where: Any = True) -> None:
    source = complex_operand(src)
    if is_array(source) and not np.can_cast(source.dtype, dst.dtype, casting):
        np.copyto(np.empty((1,) * dst.ndim, dst.dtype), np.empty((1,) * source.ndim, source.dtype), casting)
    store(dst, source, None if where is True else as_tracer(where))
