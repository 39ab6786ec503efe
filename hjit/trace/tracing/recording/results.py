"""The outcome of an extern call: the exception that it raised, or the structure of its result and the arrays in that.

The outcome is compared at later calls, as a decision is: the traced function saw an exception, a number of items, a
Python int, and may have acted upon it. Arrays, NumPy's numbers and Python floats are inputs of what follows instead.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hjit.errors import raise_if_signalled
from hjit.trace.tracing.complex_memory import parts_of, supported_complex

MAX_RESULTS = 256  # arrays and numbers that an extern call returns: a trace of thousands, of a list of contours, takes
# a minute, and the next call returns another number of them
_VALUES = (bool, int, str, bytes, complex, slice, range, np.generic, np.dtype, type(None), type(...))


class ExternResult(NamedTuple):
    """The result of one extern call.

    Attributes:
        outcome: compared at later calls by `host.same`; it tells whether there was an exception.
        arrays: the new arrays, each once, and numbers as arrays without axes.
        error: the exception.
    """

    outcome: tuple[Any, ...]
    arrays: tuple[np.ndarray[Any, Any], ...] = ()
    error: Exception | None = None


class Unknown(Exception):
    """The result of an extern call cannot be kept by a trace: it is neither an array nor a value."""


def call_extern(function: Callable[[], Any], given: Sequence[Any], impure: bool) -> ExternResult:
    """Call a function without arguments; `given`: the arrays that it has access to, and may return."""
    try:
        result = function()
    except Exception as error:
        raise_if_signalled(error)
        return ExternResult(("raised", type(error), error.args), (), error)
    arrays: list[np.ndarray[Any, Any]] = []
    outcome = _outcome(result, given, arrays, impure)
    if len(arrays) > MAX_RESULTS:
        return ExternResult(("many", len(arrays)), ())
    return ExternResult(outcome, tuple(arrays))


def _outcome(x: Any, given: Sequence[Any], arrays: list[np.ndarray[Any, Any]], impure: bool) -> tuple[Any, ...]:
    """The outcome of a result, as a tree of tuples; its arrays are appended to `arrays`."""
    t = type(x)
    if isinstance(x, np.ndarray):
        known = as_part_of(x, given)
        if known is not None:
            return known
        if supported_complex(x.dtype):
            arrays.append(parts_of(x))
            return ("complex", len(arrays) - 1, x.dtype, x.shape, x.strides)
        number = next((k for k, a in enumerate(arrays) if a is x), len(arrays))
        if number == len(arrays):
            arrays.append(x)
        return ("array", number, x.dtype, x.shape, x.strides)
    if t is float or (isinstance(x, np.generic) and x.dtype.kind in "biuf") or (t is int and impure):
        arrays.append(np.asarray(x))
        kind = "float" if t is float else "int" if t is int else "scalar"
        return (kind, len(arrays) - 1, arrays[-1].dtype, (), ())
    if isinstance(x, np.generic) and supported_complex(x.dtype):
        arrays.append(parts_of(np.asarray(x)))
        return ("complex scalar", len(arrays) - 1, x.dtype, (), ())
    if isinstance(x, dict) and t in (dict, OrderedDict):
        return ("items", t, tuple(x), *(_outcome(y, given, arrays, impure) for y in x.values()))
    if t in (list, tuple) or (isinstance(x, tuple) and hasattr(t, "_fields")):
        return ("items", t, None, *(_outcome(y, given, arrays, impure) for y in x))
    return ("value", x) if isinstance(x, _VALUES) else ("unknown", t)


def as_part_of(x: Any, given: Sequence[Any]) -> tuple[Any, ...] | None:
    """The outcome of a result that is one of the given arrays, or a view of one; None if it is neither."""
    found = next((k for k, a in enumerate(given) if a is x), None)
    if found is not None:
        return ("given", found)
    starts = ((k, _start(a, x)) for k, a in enumerate(given) if isinstance(x, np.ndarray))
    return next((("part", k, start, x.shape) for k, start in starts if start is not None), None)


def _start(a: Any, x: np.ndarray[Any, Any]) -> int | None:
    """The element of `a` at which `x` starts, if `x` is a contiguous run of its elements (in any shape)."""
    if (
        not isinstance(a, np.ndarray)
        or a.dtype != x.dtype
        or not (a.flags.c_contiguous and x.flags.c_contiguous and x.size)
    ):
        return None
    start, between = divmod(x.__array_interface__["data"][0] - a.__array_interface__["data"][0], a.itemsize)
    return int(start) if not between and 0 <= start <= a.size - x.size else None


def _part(given: Any, start: int, shape: tuple[int, ...]) -> Any:
    """A run of elements of an array's placeholder.

    Raises:
        Unknown: they do not lie in a row.
    """
    sizes = {int(n): n for n in given.shape}
    size = int(np.prod(shape))
    run = given if size == int(given.size) else given.reshape(-1)[start : start + size]
    part = run.reshape(tuple(sizes.get(n, n) for n in shape))
    if not np.shares_memory(part, given):
        raise Unknown("it returns a part of an array that it is given")
    return part


def rebuild(outcome: tuple[Any, ...], given: Sequence[Any], array: Callable[[str, int], Any]) -> Any:
    """The result of a call, from its outcome.

    Args:
        given: what stands for the call's arrays.
        array: gives what stands for a new array, by its kind ("array", "scalar", "float", "int", "complex" or "complex
            scalar") and number.

    Raises:
        Unknown: an object of its type cannot be kept, or it is too many of them.
    """
    match outcome:
        case "given", number:
            return given[number]
        case "part", number, *where:
            return _part(given[number], *where)
        case "value", value:
            return value
        case "unknown", cls, *_:
            raise Unknown(f"it returns a {cls.__name__}, not an array or a number")
        case "many", count, *_:
            raise Unknown(f"it returns {count} arrays and numbers")
        case "items", cls, keys, *parts:
            items = [rebuild(p, given, array) for p in parts]
            if keys is not None:
                return cls(zip(keys, items, strict=True))
            return cls(*items) if hasattr(cls, "_fields") else cls(items)
    kind, number, *_ = outcome
    return array(kind, number)
