"""Functions of an array that NumPy itself computes: extern calls whose result has a shape that is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ops.arguments import concrete_shape
from hjit.trace.tracing.arrays.tracer import as_tracer, is_tracer
from hjit.trace.tracing.arrays.writing import write
from hjit.trace.tracing.externs.calls import extern_call
from hjit.trace.tracing.scalars.host import is_host, static_value


def by_numpy(function: Callable[..., Any], *args: Any, out: Any = None, rule: str = "", **options: Any) -> Any:
    """``function(*args, **options)`` by the function itself, on real arrays, at every call.

    Args:
        args: arrays and numbers; numbers of the caller become arrays, so that other ones need no new trace.
        out: where NumPy is to write the result.
        rule: how errors of arguments become errors of results, see `hjit.trace.tracing.recording.recorder.GraphBreak`.
    """
    is_python = [is_host(x) and type(x.value) in (bool, int, float) for x in args]
    arrays = [as_tracer(x) if _has_number(x) else x for x in args]
    options = {name: static_value(x) for name, x in options.items()}

    target = None if out is None else (concrete_shape(out.shape), out.dtype)
    real = NumpyCall(function, tuple(is_python), options, target)
    if out is not None and not is_tracer(out):
        raise TypeError("return arrays must be of ArrayType")
    of = getattr(function, "__self__", None)
    name = f"{of.__name__}.{function.__name__}" if isinstance(of, np.ufunc) else function.__name__
    result = extern_call(f"numpy.{name}", real, arrays, {}, rule=rule)
    if out is None:
        return result
    write(out, result)
    return out


@dataclass(frozen=True)
class NumpyCall:
    """A function of NumPy with some of its arguments; it can be pickled.

    Attributes:
        is_python: of each other argument, is it to be a number of Python?
        options: arguments by name.
        target: shape and dtype of the array that NumPy is to write to.
    """

    function: Callable[..., Any]
    is_python: tuple[bool, ...]
    options: dict[str, Any]
    target: tuple[tuple[int, ...], Any] | None

    def __call__(self, *given: Any) -> Any:
        target = {} if self.target is None else {"out": np.empty(*self.target)}
        numbers = (x.item() if python else x for x, python in zip(given, self.is_python, strict=True))
        result = self.function(*numbers, **self.options, **target)
        return target.get("out", result)


def _has_number(x: Any) -> bool:
    """Is it a number of the caller, or a list with some in it?"""
    return is_host(x) or (type(x) in (list, tuple) and any(map(_has_number, x)))
