"""The dispatch table: the traced versions of NumPy's and SciPy's functions.

The modules of `hjit.trace.ops` and `hjit.trace.capture` fill it when they are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_FUNCTIONS: dict[Any, Callable[..., Any]] = {}


def implements(*functions: Any) -> Callable[[Function], Function]:
    """Register the traced version of NumPy or SciPy functions. It takes over whenever an argument is traced."""

    def register(traced: Function) -> Function:
        for f in functions:
            _FUNCTIONS[f] = traced
        return traced

    return register


def functions() -> dict[Any, Callable[..., Any]]:
    """The table that `implements` fills."""
    return _FUNCTIONS


def is_dispatched(function: Any) -> bool:
    """Is it a function of NumPy's that asks its arguments for `__array_function__`?"""
    return type(function).__name__ == "_ArrayFunctionDispatcher"


def source_of(function: Any) -> Any:
    """The implementation of a function that `is_dispatched`, which may be no Python; of others the function itself."""
    return getattr(function, "_implementation", function) if is_dispatched(function) else function
