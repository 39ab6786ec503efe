"""Operands of element-wise operations on complex numbers: their dtypes, and the two parts of their elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, cast, substitute
from hjit.trace.ir.poly import Dim, poly
from hjit.trace.ops.arguments import Casting
from hjit.trace.ops.arrays.joining import Region, assemble
from hjit.trace.ops.elementwise.promotion import loop_of_kinds, operand
from hjit.trace.ops.layout import Order, copy_order, order_of, places
from hjit.trace.tracing.arrays.complex_tracer import (
    ComplexTracer,
    checked_complex,
    is_complex,
    known_complex,
    scalar_parts,
)
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import Tracer, from_stage, is_tracer
from hjit.trace.tracing.complex_memory import part_dtype, supported_complex
from hjit.trace.tracing.recording.recorder import current, supported_dtype
from hjit.trace.tracing.scalars.host import as_cast, is_host, number


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex number as expressions of its parts."""

    re: Expr
    im: Expr


# -- operands


def complex_operand(x: Any) -> Any:
    """A tracer, complex or not, a host scalar, or a Python number (NEP 50)."""
    if type(x) is ComplexTracer or (is_host(x) and is_complex(x)) or type(x) is complex:
        return x
    if is_complex(x):
        return known_complex(x, is_scalar=not isinstance(x, np.ndarray))
    return operand(x)


def is_array(x: Any) -> bool:
    """Is this operand a traced array, complex or not?"""
    return is_tracer(x) or type(x) is ComplexTracer


def is_number(x: Any) -> bool:
    """Is this a number of Python's or NumPy's, rather than an array?"""
    return bool(x.is_scalar) if is_array(x) else True


def is_pythons(x: Any) -> bool:
    """Is this a number of Python's, or a traced one?"""
    if is_array(x):
        return bool(x.weak)
    return type(x.value if is_host(x) else x) in (bool, int, float, complex)


def kind_of(x: Any) -> Any:
    """What of an operand decides on the dtype of a result: its dtype, or the type of a Python number."""
    if type(x) is ComplexTracer:
        return complex if x.weak else x.dtype
    if is_tracer(x):
        return float if x.weak else x.dtype
    value = x.value if is_host(x) else x
    if isinstance(value, np.generic):
        return value.dtype
    return np.dtype(bool) if isinstance(value, bool) else type(value)


def _is_supported(dtype: np.dtype[Any]) -> bool:
    return supported_dtype(dtype) or supported_complex(dtype)


def loop_of(ufunc: np.ufunc, operands: Sequence[Any], signature: Any, casting: Casting) -> tuple[np.dtype[Any], ...]:
    """The dtypes of NumPy's loop for these operands.

    Raises:
        TraceError: hjit has no such dtype.
        TypeError: NumPy has no such loop.
    """
    kinds = tuple(map(kind_of, operands))
    return loop_of_kinds(ufunc, kinds, None if signature is None else tuple(signature), casting, _is_supported)


def common_dtype(operands: Sequence[Any]) -> np.dtype[Any]:
    """`np.result_type` of arrays and numbers, to which Python's numbers adapt."""
    kinds = map(kind_of, operands)
    return np.result_type(*(k(0) if isinstance(k, type) else k for k in kinds))


def parts(x: Any, shape: Shape, part: np.dtype[Any]) -> Complex:
    """An operand's element, broadcast to `shape`, with parts of a dtype."""
    if type(x) is ComplexTracer:
        return Complex(cast(x.real.load(shape), part), cast(x.imag.load(shape), part))
    zero = Const(0, part)
    if is_tracer(x):
        return Complex(cast(x.load(shape), part), zero)
    if not is_complex(x):
        return Complex(_number(x, part), zero)
    return Complex(*(_number(v, part) for v in scalar_parts(x)))


def _number(x: Any, part: np.dtype[Any]) -> Expr:
    value = number(x, part, as_cast)
    return current().scalar(value, part) if is_host(value) else Const(value, part)


def arrays(*operands: Any) -> list[Tracer]:
    """The traced arrays among some operands, each with the layout that the complex one has."""
    return [x.real if type(x) is ComplexTracer else x for x in operands if is_array(x)]


# -- results


def pair(value: Complex, shape: Shape, part: Any, order: Order | None = None, is_scalar: bool = False) -> ComplexTracer:
    """A new complex array of `shape`, whose axes are laid out in an order."""
    part, n = np.dtype(part), len(shape)
    straight = tuple(range(n))
    order = straight if order is None else order
    numbers = (value.re, value.im)
    if order != straight:
        moved = places(order)

        def change(a: Any) -> Any:
            return moved[a.k] if isinstance(a, Dim) else None

        numbers = (substitute(value.re, change), substitute(value.im, change))
    axes = tuple(shape[k] for k in order)
    regions = [Region((*(0,) * n, k), (*axes, 1), e) for k, e in enumerate(numbers)]
    if value.re == value.im:
        made = from_stage(numbers[0], (*axes, 2), part)
    else:
        made = assemble((*axes, 2), part, regions)
    if order == straight:
        return ComplexTracer(made, is_scalar)
    index = (*(poly(Dim(k)) for k in order), poly(Dim(n)))
    return ComplexTracer(Tracer(made.buffer, (*shape, 2), index), is_scalar)


def joined(re: Tracer, im: Tracer, is_scalar: bool = False) -> ComplexTracer:
    """A complex array of arrays of its parts, which have one shape and one dtype."""
    if re.known is not None and im.known is not None:
        both = np.empty(re.known.shape, np.result_type(re.dtype, np.complex64))
        both.real, both.imag = re.known, im.known
        return known_complex(both, is_scalar)
    return pair(Complex(re.load(), im.load()), re.shape, re.dtype, copy_order(re), is_scalar)


def as_complex(x: Any, dtype: Any = None) -> ComplexTracer:
    """What `numpy.asarray` makes of `x` with a complex dtype; of complex numbers their own where none is given."""
    x = complex_operand(x)
    if type(x) is ComplexTracer and (dtype is None or x.dtype == dtype):
        return x
    wanted = checked_complex(np.dtype(dtype) if dtype is not None else common_dtype([x]))
    known = x.known if is_array(x) else None if is_host(x) else np.asarray(x)
    if known is not None and known.size <= 4096:
        with np.errstate(all="ignore"):
            return known_complex(known.astype(wanted), is_number(x))
    part = part_dtype(wanted)
    shape: Shape = x.shape if is_array(x) else ()
    order = order_of("K", arrays(x), shape)
    return pair(parts(x, shape, part), shape, part, order, is_number(x))
