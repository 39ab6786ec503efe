"""The dispatch table of complex arrays: what functions do where an argument, or the dtype asked for, is complex.

A function of the table of real arrays never sees a complex one: it has a version here, or is NumPy's own Python source
that is traced, or is called as it is between kernels.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.complex_tracer import has_complex, is_complex_dtype
from hjit.trace.tracing.arrays.tracer import has_tracer
from hjit.trace.tracing.dispatch import Function, functions, source_of
from hjit.trace.tracing.externs.calls import concrete
from hjit.trace.tracing.externs.foreign import foreign
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.scalars.host import static_captured

_VERSIONS: dict[Any, Callable[..., Any]] = {}


def for_complex(*given: Any) -> Callable[[Function], Function]:
    """Register the version of NumPy's functions for complex arguments."""

    def register(traced: Function) -> Function:
        for f in given:
            _VERSIONS[f] = traced
        return traced

    return register


@provides
def wants_complex(function: Any, args: Any, kwargs: Any) -> bool:
    """Is this call one of a function of the tables whose arguments, or whose dtype, are complex?"""
    if function not in _VERSIONS and function not in functions():
        return False
    return (
        has_complex(args)
        or has_complex(kwargs)
        or is_complex_dtype(kwargs.get("dtype"))
        or any(is_complex_dtype(x) for x in args if isinstance(x, (type, np.dtype)) or _is_word(x))
    )


def _is_word(x: Any) -> bool:
    """A string longer than those that name an order of axes."""
    return type(x) is str and len(x) > 1


@provides
def complex_call(function: Any, args: Any, kwargs: Any) -> Any:
    """A function of the tables on complex arguments.

    Raises:
        TraceError: it is not compiled for these.
    """
    traced = _VERSIONS.get(function)
    if traced is not None:
        return traced(*args, **kwargs)
    if not has_tracer(args) and not has_tracer(kwargs):
        return concrete(function, args, kwargs)
    source = source_of(function)
    module = (getattr(function, "__module__", None) or "").partition(".")[0]
    if module == "numpy" and isinstance(source, types.FunctionType):
        return forward.clone(source)(*args, **kwargs)
    return as_it_is(function)(*args, **kwargs)


def as_it_is(function: Any) -> Callable[..., Any]:
    """A function that is called between kernels, on copies, as it may write to its arguments."""

    def method(*args: Any, **kwargs: Any) -> Any:
        return foreign(function).extern(static_captured(args), static_captured(kwargs))

    return method


for _function in (np.put, np.choose, np.compress, np.round, np.around):
    for_complex(_function)(as_it_is(_function))
