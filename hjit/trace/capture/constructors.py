"""NumPy's classes called by traced code: ``np.uint8(x)``, ``x.dtype.type(y)``, ``np.ndarray(shape, dtype)``.

A class is also compared, looked up and given as a dtype, and is left alone there: the bytecode tells whether it is
loaded to be called. Where it reaches a call by way of a variable, NumPy asks for the numbers of the array: then the
function is traced again, with a `ScalarClass` wherever it gets a class from. Ufuncs that are called take lists of
traced arrays, too, and so do their methods.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.capture.array_protocol import arrays_of
from hjit.trace.capture.made_classes import traced_class
from hjit.trace.capture.side_effects.impure import GENERATOR_CLASSES
from hjit.trace.capture.side_effects.made_objects import check_output
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.scalar_class import ArrayDtype, ScalarClass, notice_call, plain_class
from hjit.trace.tracing.arrays.traced import Traced
from hjit.trace.tracing.arrays.tracer import (
    Tracer,
    as_tracer,
    call,
    from_known,
    from_stage,
    has_tracer,
    is_tracer,
)
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.frames import callees, compared, holders, identities, reads
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import HostScalar, is_host, record
from hjit.trace.tracing.scalars.size import as_number


def called(value: Any, frame: types.FrameType) -> Any:
    """The traced version of a class or a ufunc if the frame loads it in order to call it, else itself."""
    if isinstance(value, np.ufunc):
        if frame.f_lasti in callees(frame.f_code):
            return of_lists(value)
        return MethodsOfLists(value) if frame.f_lasti in holders(frame.f_code) else value
    if value is np.dtype:
        return _dtype if frame.f_lasti in callees(frame.f_code) else value
    traced = CONSTRUCTORS.get(value) if type(value) in (type, ScalarClass) else None
    is_called = frame.f_lasti in callees(frame.f_code)
    if traced is None:
        if frame.f_lasti in compared(frame.f_code):
            return value
        seen = traced_class(value) if is_called or frame.f_lasti in holders(frame.f_code) else value
        if seen is value:  # its methods may be called, as they are
            check_output(value, frame)
        return seen
    if is_called:
        return traced
    seen = class_seen(value)
    if seen is not plain_class(value) and frame.f_lasti in identities(frame.f_code):
        raise current().error(f"is {value.__name__}", "the class is also called in a variable", "compare it by ==")
    return seen


@provides
def class_seen(value: Any) -> Any:
    """A NumPy scalar type, or a `ScalarClass` if the function calls one through a variable.

    Raises:
        TraceError: it is `type`, which says of a traced array what it is itself.
    """
    if value is type:
        reason = "where it is called in a variable, it would say what stands for an array"
        raise current().error("type as a value", reason, "call it where it is named: type(x)")
    if type(value) is not type or value not in STAND_INS:
        return value
    rec = current()
    rec.findings.reads_scalar_types = True
    return STAND_INS[value] if rec.attempt.classes else value


_OUT = frozenset({"out"})
_REAL = frozenset((Tracer, HostScalar, bool, int, float))


def _are_real(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Are these traced real arrays and numbers?"""
    kinds = set(map(type, (*args, *kwargs.values())))
    return Tracer in kinds and kinds <= _REAL


@functools.lru_cache(maxsize=1024)
def of_lists(ufunc: np.ufunc) -> Callable[..., Any]:
    """A ufunc that accepts lists of traced arrays, which NumPy would convert."""
    nin = ufunc.nin

    def method(*args: Any, **kwargs: Any) -> Any:
        # NumPy, which would ask the traced array what to do, takes longer
        if len(args) == nin and kwargs.keys() <= _OUT and _are_real(args, kwargs):
            return forward.ufunc_call(ufunc, "__call__", args, kwargs)
        args, kwargs = arrays_of(args), arrays_of(kwargs)
        args = tuple(as_tracer(x) if type(x) in (list, tuple) and has_tracer(x) else x for x in args)
        if kwargs.get("out", ufunc) is None and len(args) == nin and any(issubclass(type(x), Traced) for x in args):
            return forward.ufunc_call(ufunc, "__call__", args, kwargs)  # NumPy would not tell it from no `out` at all
        return ufunc(*args, **kwargs)

    return functools.wraps(ufunc, updated=())(method)


class MethodsOfLists:
    """A ufunc whose attribute is read: ``reduce`` and ``accumulate`` take lists of traced arrays, too."""

    __slots__ = ("_ufunc",)

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc

    def __getattr__(self, name: str) -> Any:
        return _of_list(self._ufunc, name) if name in _OF_ONE else getattr(self._ufunc, name)


_OF_ONE = ("reduce", "accumulate")  # methods of one array


@functools.lru_cache(maxsize=1024)
def _of_list(ufunc: np.ufunc, name: str) -> Callable[..., Any]:
    function = getattr(ufunc, name)

    def method(array: Any, *args: Any, **kwargs: Any) -> Any:
        if type(array) in (list, tuple):
            array = arrays_of(array)
            array = as_tracer(array) if has_tracer(array) else array
        return function(array, *args, **kwargs)

    return functools.wraps(function, updated=())(method)


def scalar_type(cls: Any) -> Callable[..., Any]:
    """``cls(x)``: an array or a scalar, converted as `astype` does; a Python number is checked as NumPy does."""

    def construct(*args: Any, **kwargs: Any) -> Any:
        args = tuple(map(as_number, args))
        if len(args) != 1 or kwargs or not has_tracer(args):
            return cls(*args, **kwargs)
        x = args[0]
        if is_host(x):
            return record(cls, x)
        if type(x) is MaskedRead:
            return x.astype(cls)
        array = (x if type(x) is ComplexTracer or is_tracer(x) else as_tracer(x)).astype(cls, copy=False)
        return array if array.ndim else as_scalar(array)

    return construct


def as_scalar(x: Any) -> Any:
    """A 0-d array as a scalar, which keeps its value."""
    if type(x) is ComplexTracer:
        return ComplexTracer(x.parts.copy(), is_scalar=True)
    return (
        from_stage(x.load(), (), x.dtype, is_scalar=True)
        if x.known is None
        else from_known(x.known.copy(), is_scalar=True, of=x)
    )


def _ndarray(
    shape: Any, dtype: Any = float, buffer: Any = None, offset: Any = 0, strides: Any = None, order: Any = None
) -> Any:
    if has_tracer(buffer):
        raise current().error(
            "numpy.ndarray(buffer=...)", "a traced array has no memory", "use slices, reshape and view"
        )
    if buffer is not None or strides is not None:
        return np.ndarray(shape, dtype, buffer, offset, strides, order)
    return call(np.empty, shape, float if dtype is None else dtype, order or "C")


_NAMES = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 longlong ulonglong float16 float32 float64
    complex64 complex128"""
_SCALARS = [getattr(np, name) for name in _NAMES.split()]
CONSTRUCTORS: dict[Any, Callable[..., Any]] = {
    **{cls: scalar_type(cls) for cls in _SCALARS},
    np.ndarray: _ndarray,
    **GENERATOR_CLASSES,
}


STAND_INS: dict[Any, ScalarClass] = {cls: ScalarClass(cls, CONSTRUCTORS[cls]) for cls in _SCALARS}
_DTYPES = {np.dtype(cls): ArrayDtype(np.dtype(cls), STAND_INS[cls]) for cls in _SCALARS}


@provides
def dtype_of_type(dtype: np.dtype[Any], frame: types.FrameType) -> Any:
    """The dtype of a traced array, where the frame reads the ``type`` of a dtype: of this one at once, or later."""
    if frame.f_lasti in reads(frame.f_code, "dtype", "type", called=True):
        return types.SimpleNamespace(type=CONSTRUCTORS[dtype.type])
    if frame.f_lasti in reads(frame.f_code, "dtype", "type"):
        return types.SimpleNamespace(type=class_seen(dtype.type))
    seen = dtype_seen(dtype)
    if seen is not dtype and frame.f_lasti in identities(frame.f_code):
        raise current().error(f"is {dtype}", "its type is also called in a variable", "compare it by ==")
    return seen


@provides
def dtype_seen(dtype: np.dtype[Any]) -> Any:
    """A dtype, or an `ArrayDtype` if the function calls a scalar type through a variable."""
    found = _DTYPES.get(dtype)
    return dtype if found is None or class_seen(dtype.type) is dtype.type else found


def _dtype(*args: Any, **kwargs: Any) -> Any:
    """``np.dtype(x)``."""
    return dtype_seen(np.dtype(*map(plain_class, args), **kwargs))


provides(notice_call)
