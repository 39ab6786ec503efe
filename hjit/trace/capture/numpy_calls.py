"""Calls of NumPy's and SciPy's functions by traced code: by the dispatch table, from their source, or as extern calls.

`hjit.trace.capture.overlay` hands out `dispatched` for functions of the table, and `numpy_function` for others. Each
calls the plain function where no argument is traced.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.capture.array_protocol import arrays_of
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.masked import has_masked_read
from hjit.trace.tracing.arrays.number_lists import arrays_of_lists
from hjit.trace.tracing.arrays.tracer import has_tracer, is_simple_call
from hjit.trace.tracing.dispatch import functions, source_of
from hjit.trace.tracing.externs.calls import concrete, extern_call
from hjit.trace.tracing.externs.foreign import foreign
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_captured

_OF_ELEMENTS = (np.where, np.clip)  # functions that treat numbers as ufuncs do
_MAKING = (np.array, np.asarray, np.asanyarray, np.ascontiguousarray)  # of an object, with a dtype
_PUBLIC = {  # modules that functions say they are of -> those that they are documented in
    "numpy._core.fromnumeric": "numpy",
    "scipy.fft._basic": "scipy.fft",
    "scipy.fft._realtransforms": "scipy.fft",
}
_EXTERNS = (  # modules whose functions are called as they are, between kernels
    "numpy.fft",
    "numpy.linalg",
    "scipy._lib.array_api_compat.numpy.linalg",
    "scipy.fft",
    "scipy.linalg",
    "scipy.special",
    "scipy.interpolate",
    "scipy.spatial",
    "scipy.optimize",
)


@functools.lru_cache(maxsize=4096)
def dispatched(function: Any) -> Callable[..., Any]:
    """A function of the dispatch table, which is traced if an argument is, or if it makes an array."""
    traced = functions()[function]
    makes = getattr(traced, "makes_arrays", False)

    def method(*args: Any, **kwargs: Any) -> Any:
        if is_simple_call(args, kwargs):
            return traced(*args, **kwargs)
        if function not in _OF_ELEMENTS:
            args, kwargs = static_captured(args), static_captured(kwargs)
        dtype = kwargs.get("dtype", args[1] if function in _MAKING and len(args) > 1 else None)
        args, kwargs = arrays_of(arrays_of_lists(args, dtype)), arrays_of(kwargs)
        if has_masked_read(args, kwargs):
            return forward.masked_call(function, args, kwargs)
        if makes or has_tracer(args) or has_tracer(kwargs):
            if forward.wants_complex(function, args, kwargs):
                return forward.complex_call(function, args, kwargs)
            return traced(*args, **kwargs)
        return concrete(function, args, kwargs)

    return functools.wraps(function, updated=())(method) if hasattr(function, "__name__") else method


@functools.lru_cache(maxsize=4096)
def numpy_function(function: Any) -> Callable[..., Any]:
    """A NumPy or SciPy function that is not in the table: its own Python source is traced."""

    def method(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = arrays_of_lists(static_captured(args)), static_captured(kwargs)
        if has_tracer(args) or has_tracer(kwargs):
            return numpy_call(function, args, kwargs)
        return concrete(function, args, kwargs)

    return functools.wraps(function, updated=())(method)


@provides
def numpy_call(function: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy or SciPy function on tracers: by the table, else by tracing its source, else as an extern call.

    Raises:
        TraceError: none of these is possible.
    """
    traced = functions().get(function)
    if traced is not None and is_simple_call(args, kwargs):
        return traced(*args, **kwargs)
    source = source_of(function)
    is_python = isinstance(source, types.FunctionType)
    if has_masked_read(args, kwargs) and not isinstance(function, np.ufunc):
        if traced is not None or not is_python or forward.knows_masked(function):
            return forward.masked_call(function, args, kwargs)
        return forward.clone(source)(*args, **kwargs)  # perhaps it does no more than reads under a mask can take
    if forward.wants_complex(function, args, kwargs):
        return forward.complex_call(function, args, kwargs)
    if traced is not None:
        return traced(*args, **kwargs)
    if isinstance(function, np.ufunc):
        return function(*args, **kwargs)
    module = getattr(function, "__module__", "") or ""
    name = f"{_PUBLIC.get(module, module)}.{getattr(function, '__name__', function)}"
    if module.startswith(_EXTERNS) and not (
        isinstance(function, types.FunctionType) and function.__name__.startswith("_")
    ):
        if _writes(function, args, kwargs):
            return foreign(function).extern(args, kwargs, name)
        return extern_call(name, function, args, kwargs)
    if not is_python:
        raise current().error(name, "hjit does not know this function")
    return forward.clone(source)(*args, **kwargs)


@functools.lru_cache(maxsize=1024)
def _writing_parameters(function: Any) -> tuple[inspect.Signature | None, frozenset[str]]:
    """A function's signature, and the parameters that make it write to an argument."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None, frozenset()
    names = (n for n in signature.parameters if n in ("out", "output") or n.startswith("overwrite_"))
    return signature, frozenset(names)


def _writes(function: Any, args: Any, kwargs: Any) -> bool:
    """Does a call allow the function to write to its arguments?"""
    signature, names = _writing_parameters(function)
    if signature is None or not names:
        return False
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return False
    return any(given.get(n) is not None and given[n] is not False for n in names)
