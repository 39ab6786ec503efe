"""Callbacks passed to extern calls, which get real arrays: they must not hold traced ones.

What they return would be traced, which the extern function cannot read. Asking it to would not be without effects:
SciPy's C code prints the error of a function that it calls before it gives up.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from hjit.trace.tracing.arrays.traced import Traced
from hjit.trace.tracing.recording.recorder import current

REASON = "it calls a function that holds traced arrays, and takes real arrays only"
ADVICE = "call it before or after the decorated function, or pass the arrays on by the arguments that it has for them"
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


def check_callbacks(name: str, args: Any, kwargs: Any) -> None:
    """Nothing, where no function among the arguments holds a traced array.

    Raises:
        TraceError: one does.
    """
    for function in (*_functions(args), *_functions(kwargs)):
        if _holds_arrays(function, set()):
            raise current().error(name, REASON, ADVICE)


def _functions(x: Any) -> Iterator[Any]:
    """The functions among arguments, and in the lists, tuples and dicts that these are made of."""
    if isinstance(x, _FUNCTIONS):
        yield x
    elif type(x) in (list, tuple, dict):
        for y in x.values() if type(x) is dict else x:
            yield from _functions(y)


def _holds_arrays(x: Any, seen: set[int]) -> bool:
    """Is this a traced array whose numbers are not known, or does it hold one, itself or in functions that it calls?"""
    if issubclass(type(x), Traced):
        return getattr(x, "known", None) is None
    if id(x) in seen:
        return False
    seen.add(id(x))
    return any(_holds_arrays(y, seen) for y in _held(x))


def _held(x: Any) -> Iterator[Any]:
    if type(x) in (list, tuple):
        yield from x
    elif type(x) is dict:
        yield from x.values()
    elif type(x) is types.MethodType:
        yield from (x.__func__, x.__self__)
    elif type(x) is functools.partial:
        yield from (x.func, x.args, x.keywords)
    elif type(x) is types.FunctionType:
        yield from (x.__defaults__, x.__kwdefaults__)
        for cell in x.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # it has none yet
                continue
