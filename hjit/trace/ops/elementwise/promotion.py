"""Operands of element-wise operations: their dtypes by NumPy's promotion rules (NEP 50), and their elements.

A Python number, or a run-time one from outside, takes part in a promotion by its type alone ("weak").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from hjit.trace.ir.graph import Const, Expr
from hjit.trace.ops.arguments import Casting
from hjit.trace.tracing.arrays.traced import Shape
from hjit.trace.tracing.arrays.tracer import Tracer, as_tracer, call, is_tracer, python_type
from hjit.trace.tracing.recording.recorder import current, supported_dtype
from hjit.trace.tracing.scalars.host import HostScalar, as_cast, is_captured, is_host, number
from hjit.trace.tracing.scalars.size import as_number


def resolve_dtypes(
    ufunc: np.ufunc, dtypes: tuple[Any, ...], signature: tuple[Any, ...] | None, casting: Casting
) -> tuple[np.dtype[Any], ...]:
    """The dtypes of NumPy's loop for arguments of these dtypes, or of these Python types: its inputs and outputs."""
    wanted = dtypes + (None,) * ufunc.nout
    if signature is None:  # which is not the same as a signature of None
        return ufunc.resolve_dtypes(wanted, casting=casting)
    return ufunc.resolve_dtypes(wanted, signature=signature, casting=casting)


_OPERANDS = frozenset((Tracer, HostScalar, int, float, bool))


def operand(x: Any) -> Any:
    """A tracer, a host scalar, or a Python number that takes the other operand's dtype (NEP 50)."""
    if type(x) in _OPERANDS:
        return x
    x = as_number(x)
    if type(x) in _OPERANDS:
        return x
    if isinstance(x, complex) or (isinstance(x, np.generic) and not supported_dtype(x.dtype)):
        raise current().error(f"{type(x).__name__} operand", "hjit handles bool, integers and floats up to 64 bits")
    return as_tracer(x)


def loop_of(ufunc: np.ufunc, operands: tuple[Any, ...], signature: Any, casting: Casting) -> tuple[np.dtype[Any], ...]:
    """The dtypes of NumPy's loop for these operands.

    Raises:
        TraceError: hjit has no such dtype.
        TypeError: NumPy has no such loop.
    """
    compared = ufunc in _COMPARISONS
    kinds = [_type_of(x, compared) if type(x) is Tracer else _weak(x.value if is_host(x) else x) for x in operands]
    return loop_of_kinds(ufunc, tuple(kinds), None if signature is None else tuple(signature), casting, supported_dtype)


@lru_cache(maxsize=4096)
def loop_of_kinds(
    ufunc: np.ufunc,
    kinds: tuple[Any, ...],
    signature: tuple[Any, ...] | None,
    casting: Casting,
    is_supported: Callable[[np.dtype[Any]], bool],
) -> tuple[np.dtype[Any], ...]:
    """As `loop_of`, for the dtypes of operands, or the types of Python numbers."""
    try:
        if all(isinstance(k, type) for k in kinds):
            kinds = tuple(np.dtype(k) for k in kinds)
        loop = resolve_dtypes(ufunc, kinds, signature, casting)
    except TypeError as error:
        if "resolve_dtypes" in str(error):
            raise current().error(f"numpy.{ufunc.__name__}", str(error)) from None
        raise
    for t in loop:
        if not is_supported(t):
            raise current().error(f"numpy.{ufunc.__name__}", f"NumPy computes this as {t}, which hjit does not compile")
    return loop


_COMPARISONS = frozenset((np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal))


def _type_of(x: Tracer, compared: bool) -> Any:
    """The dtype of a traced operand, or the type of a Python number; any int may be compared with any integers."""
    dtype = x.buffer.dtype
    return python_type(x) if x.weak and dtype.kind != "b" and not (compared and dtype.kind == "i") else dtype


def _weak(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.dtype
    return np.dtype(bool) if isinstance(value, bool) else int if isinstance(value, int) else float


def load(x: Any, shape: Shape, dtype: np.dtype[Any]) -> Expr:
    """An operand's element, broadcast to `shape`; a Python number is of `dtype`, or NumPy's OverflowError.

    Raises:
        OverflowError: a Python int is out of the range of `dtype`.
    """
    if type(x) is Tracer:
        if x.weak and dtype.kind in "iu" and x.dtype.kind == "i" and dtype != x.dtype:
            info = np.iinfo(dtype)  # NumPy raises OverflowError
            most = min(int(info.max), np.iinfo(np.int64).max)
            current().check(call(np.logical_or, call(np.less, x, int(info.min)), call(np.greater, x, most)))
        return x.load(shape)
    if is_host(x):
        return current().scalar(x, x.value.dtype if isinstance(x.value, np.generic) else dtype)
    return Const(_checked(x, dtype), dtype)


def _checked(x: Any, dtype: np.dtype[Any]) -> Any:
    """A Python number as `dtype`, or NumPy's OverflowError."""
    if type(x) is int and dtype.kind in "iu":
        return dtype.type(x)
    return x


def common_dtype(operands: Iterable[Any]) -> np.dtype[Any]:
    """`np.result_type` of arrays and numbers, to which Python's numbers adapt."""
    return np.result_type(*((python_type(x)(0) if x.weak else x.dtype) if is_tracer(x) else _kind(x) for x in operands))


def _kind(x: Any) -> Any:
    """A Python number of the type of `x`, which takes part in a promotion by its type alone, or a dtype."""
    x = as_number(x)
    value = x.value if is_host(x) else x
    if type(value) in (int, float, complex):
        return type(value)(0)
    return np.asarray(value).dtype


def element(x: Any, shape: Shape, dtype: np.dtype[Any]) -> Expr:
    """`x` broadcast to `shape` and cast to `dtype` as an array: Python ints out of range wrap around."""
    if is_tracer(x):
        found: Expr = x.element(shape, dtype)
        return found
    if type(x) is float and dtype.kind == "f":
        return Const(x, dtype)
    if is_captured(x) and dtype.kind != "f":
        x = x.make_static()
    value = number(x, dtype, as_cast)
    return current().scalar(value, dtype) if is_host(value) else Const(value, dtype)
