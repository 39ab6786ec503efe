"""What an opaque call came to: the exception that it raised, or the structure of its result and the arrays in that.

The outcome is what later calls are held to, as to a decision: the traced function saw an exception, a number of items, a
Python int, and may have acted upon it. Arrays, NumPy's numbers and Python floats are inputs of what follows instead.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

_VALUES = (bool, int, str, bytes, complex, slice, range, np.generic, np.dtype, type(None), type(...))


class Called(NamedTuple):
    """What one call came to.

    Attributes:
        outcome: compared at later calls by `hjit.trace.tracing.host.same`; it tells whether there was an exception.
        arrays: the new arrays, each once, and numbers as arrays without axes.
        error: the exception.
    """

    outcome: tuple[Any, ...]
    arrays: tuple[np.ndarray[Any, Any], ...] = ()
    error: Exception | None = None


class Unknown(Exception):
    """An object that is neither an array nor a value, which a trace would freeze."""


def called(function: Callable[[], Any], given: Sequence[Any], impure: bool) -> Called:
    """Call a function of nothing; `given`: the arrays that it was given, which it may return."""
    try:
        result = function()
    except Exception as error:
        return Called(("raised", type(error), error.args), (), error)
    arrays: list[np.ndarray[Any, Any]] = []
    return Called(_outcome(result, given, arrays, impure), tuple(arrays))


def _outcome(x: Any, given: Sequence[Any], arrays: list[np.ndarray[Any, Any]], impure: bool) -> tuple[Any, ...]:
    """The outcome that a result is, a tree of tuples; its arrays are appended to `arrays`."""
    t = type(x)
    if isinstance(x, np.ndarray):
        known = next((k for k, a in enumerate(given) if a is x or _is_same(a, x)), None)
        if known is not None:
            return ("given", known)
        number = next((k for k, a in enumerate(arrays) if a is x), len(arrays))
        if number == len(arrays):
            arrays.append(x)
        return ("array", number, x.dtype, x.shape, x.strides)
    if t is float or (isinstance(x, np.generic) and x.dtype.kind in "biuf") or (t is int and impure):
        arrays.append(np.asarray(x))
        kind = "float" if t is float else "array" if t is int else "scalar"
        return (kind, len(arrays) - 1, arrays[-1].dtype, (), ())
    if isinstance(x, dict) and t in (dict, OrderedDict):
        return ("items", t, tuple(x), *(_outcome(y, given, arrays, impure) for y in x.values()))
    if t in (list, tuple) or (isinstance(x, tuple) and hasattr(t, "_fields")):
        return ("items", t, None, *(_outcome(y, given, arrays, impure) for y in x))
    return ("value", x) if isinstance(x, _VALUES) else ("unknown", t)


def _is_same(a: Any, b: np.ndarray[Any, Any]) -> bool:
    """Are two arrays the same one, in two objects?"""
    if not isinstance(a, np.ndarray) or (a.dtype, a.shape, a.strides) != (b.dtype, b.shape, b.strides):
        return False
    return bool(a.__array_interface__["data"] == b.__array_interface__["data"])


def rebuilt(outcome: tuple[Any, ...], given: Sequence[Any], array: Callable[[str, int], Any]) -> Any:
    """The result again.

    Args:
        given: what the call's arrays stand for.
        array: what stands for the new array of a number; told its kind ("array", "scalar" or "float").

    Raises:
        Unknown: an object of its type cannot be kept.
    """
    kind, what, *rest = outcome
    if kind == "given":
        return given[what]
    if kind == "value":
        return what
    if kind == "unknown":
        raise Unknown(what.__name__)
    if kind != "items":
        return array(kind, what)
    keys, *parts = rest
    items = [rebuilt(p, given, array) for p in parts]
    if keys is not None:
        return what(zip(keys, items, strict=True))
    return what(*items) if hasattr(what, "_fields") else what(items)
