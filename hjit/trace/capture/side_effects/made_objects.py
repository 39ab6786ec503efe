"""Objects that the function creates: their methods run untraced, during tracing only.

If a method would print or log, draw random numbers or read the clock, the class is refused where traced code loads it,
before anything happens, and so is one whose methods test the type of an argument: a traced array has another type.
Which methods run is not known at that point: assumed are those whose names occur in traced code or in such a method,
and those that Python calls implicitly.
"""

from __future__ import annotations

import collections.abc
import datetime
import functools
import logging
import os
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hjit.trace.capture.captured import as_it_is, is_own
from hjit.trace.capture.side_effects.impure import CLOCKS, GENERATORS, IMPURE, NUMPY_GENERATORS, TODAY
from hjit.trace.splitting.frame_inspection import all_code, named
from hjit.trace.tracing import forward
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.frames import Instruction, instructions, is_marked
from hjit.trace.tracing.recording.recorder import current

MAX_FUNCTIONS = 400  # that are looked through for one class
_PRINTS = (print, input)
_LOGGERS = (logging.Logger, logging.LoggerAdapter)
_LOGS = frozenset("debug info warning warn error critical fatal exception log getLogger".split())
_STREAMS = frozenset("stdin stdout stderr __stdin__ __stdout__ __stderr__".split())
_ENVIRONMENT = frozenset(("environ", "getenv", "getcwd"))
# what Python does not call by itself, where an object is made and its methods are called
_ASKED_FOR = frozenset(
    "__repr__ __str__ __format__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __dir__ __sizeof__".split()
)


@provides
def check_output(cls: type, frame: types.FrameType | None = None) -> None:
    """Nothing, where objects of the class do and are at every call what they are while it is traced.

    Args:
        frame: of the code that calls the class, or gives it a name; None: it is an argument.

    Raises:
        TraceError: they may.
    """
    cls = as_it_is(cls)
    if not is_own(cls):
        return
    if any(value is type for base in cls.__mro__ if is_own(base) for value in vars(base).values()):
        forward.class_seen(type)
    codes = (*(() if frame is None else (frame.f_code,)), *current().codes)
    found = _effect(cls, frozenset(name for code in codes for c in all_code(code) for name in c.co_names))
    if found:
        raise current().error(
            f"{cls.__name__}(...)",
            f"{found} while it is traced, and not at every call",
            "make the object outside the function",
        )


@functools.lru_cache(maxsize=256)
def _effect(cls: type, names: frozenset[str]) -> str:
    """The first of the functions that may run which has an effect, and what it may do; empty where none has."""
    known, classes, seen = set(names), [cls], set[types.CodeType]()
    waiting = deque(_methods(classes, known))
    while waiting and len(seen) < MAX_FUNCTIONS:
        f = waiting.popleft()
        if f.__code__ in seen:
            continue
        seen.add(f.__code__)
        values = list(named(f))
        reached = {name for c in all_code(f.__code__) for name in c.co_names}
        does = next((what for what, test in _EFFECTS.items() if test(f, values, reached)), None)
        if does is not None:
            return f"{f.__qualname__} may {does}"
        known.update(reached)
        classes += [x for x in values if isinstance(x, type) and is_own(x) and x not in classes]
        waiting += [x for x in values if isinstance(x, types.FunctionType) and is_own(x)]
        waiting += _methods(classes, known) if not waiting else ()
    return ""


def _methods(classes: Iterable[type], names: set[str]) -> Iterator[types.FunctionType]:
    """The methods of these names, and those that Python calls implicitly."""
    for cls in classes:
        for name, value in [(n, v) for base in cls.__mro__ if is_own(base) for n, v in vars(base).items()]:
            value = value.func if isinstance(value, functools.partialmethod) else value
            f = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            is_implicit = name.startswith("__") and name.endswith("__") and name not in _ASKED_FOR
            if isinstance(f, types.FunctionType) and is_own(f) and (is_implicit or name in names):
                yield f


def _prints(f: types.FunctionType, values: Iterable[Any], names: set[str]) -> bool:
    if any(p.__name__ in names and p.__name__ not in f.__globals__ for p in _PRINTS):
        return True
    return any(
        (x is sys and names & _STREAMS)
        or ((x is logging or isinstance(x, _LOGGERS)) and names & _LOGS)
        or any(x is p for p in _PRINTS)
        for x in values
    )


def _draws(f: types.FunctionType, values: Iterable[Any], names: set[str]) -> bool:
    return any(
        (x is np and "random" in names)
        or x is np.random
        or isinstance(getattr(x, "__self__", x), GENERATORS)
        or any(
            x is y for y in (np.random.default_rng, random.Random, random.SystemRandom, os.urandom, *NUMPY_GENERATORS)
        )
        or (isinstance(x, types.ModuleType) and bool(names.intersection(IMPURE.get(x.__name__, ()))))
        for x in values
    )


def _reads_clock(f: types.FunctionType, values: Iterable[Any], names: set[str]) -> bool:
    return any(
        (x in (datetime.date, datetime.datetime) and names & TODAY)
        or (isinstance(x, types.BuiltinFunctionType) and x.__module__ == "time" and x.__name__ in CLOCKS)
        for x in values
        if isinstance(x, type | types.BuiltinFunctionType)
    )


def _reads_environment(f: types.FunctionType, values: Iterable[Any], names: set[str]) -> bool:
    return any((x is os and bool(names & _ENVIRONMENT)) or x is os.environ or x is os.getenv for x in values)


_TYPES = frozenset(("type", "hasattr", "getattr"))
# what arrays are, and numbers are not: a traced number has the methods of an array
_OF_ARRAYS = {name: getattr(collections.abc, name) for name in ("Iterable", "Sized", "Container", "Collection")}
_OWN = frozenset(("self", "cls"))
_GO_ON = ("CALL", "LOAD_CONST", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF")  # behind an argument


def _asks_types(f: types.FunctionType, values: Iterable[Any], names: set[str]) -> bool:
    if "isinstance" in names and (_OF_ARRAYS.keys() & names or any(_is_of_arrays(x) for x in values)):
        return True
    return bool(_TYPES & names) and any(
        name not in f.__globals__ and not _is_own_class(f.__globals__.get(other))
        for code in all_code(f.__code__)
        for name, other in _asks_in(code)
    )


def _is_own_class(x: Any) -> bool:
    """Is this a user's class, which is not that of an array?"""
    return isinstance(x, type) and is_own(x) and not issubclass(x, np.ndarray | np.generic)


def _is_of_arrays(x: Any) -> bool:
    """Is this one of `_OF_ARRAYS`, by itself or as `typing` has it, under whatever name?"""
    cls = getattr(x, "__origin__", x)
    return any(cls is other for other in _OF_ARRAYS.values())


@functools.lru_cache(maxsize=1024)
def _asks_in(code: types.CodeType) -> frozenset[tuple[str, str]]:
    """The functions of `_TYPES` that the code has a use for other than ``type(self)``, alone or compared with another
    type, ``getattr(self, ...)`` and ``hasattr(self, ...)``; each with the global that its result is compared with, or
    an empty text."""
    steps = [s for s in instructions(code) if s.opname not in ("PUSH_NULL", "PRECALL")]
    asked = {k: s.name for k, s in enumerate(steps) if s.opname == "LOAD_GLOBAL" and s.name in _TYPES}
    if code.co_varnames[:1] in (("self",), ("cls",)) or not _OWN.isdisjoint(code.co_freevars):
        own = {k for k in asked if is_marked(steps[k]) and (_of_first(steps, k) or _of_outer(code, steps, k))}
        compared = {n for k in asked if _compares_types(steps, k) for n in (k, k + 3)}
        asked = {k: name for k, name in asked.items() if k not in own | compared}
    return frozenset((name, _compared_with(steps, k)) for k, name in asked.items())


def _compared_with(steps: Sequence[Instruction], k: int) -> str:
    """The global in ``type(x) is Name``, or an empty text."""
    code = steps[k : k + 5]
    is_this = [s.opname for s in code[:4]] == ["LOAD_GLOBAL", "LOAD_FAST", "CALL", "LOAD_GLOBAL"]
    is_compared = is_this and code[0].name == "type" and code[4].opname in ("COMPARE_OP", "IS_OP")
    return code[3].name if is_compared else ""


def _of_first(steps: Sequence[Instruction], k: int) -> bool:
    """Is the first argument of the call, whose function instruction `k` loads, the first local variable itself?"""
    given, after = steps[k + 1 : k + 3]
    if given.opname == "LOAD_FAST_LOAD_FAST":
        return given.arg < 1 << 4
    return (given.opname, given.arg) == ("LOAD_FAST", 0) and after.opname in _GO_ON


def _of_outer(code: types.CodeType, steps: Sequence[Instruction], k: int) -> bool:
    """In a comprehension: is it the first one of the method around it?"""
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    variables = [*code.co_varnames, *cells, *code.co_freevars]
    given, after = steps[k + 1 : k + 3]
    return given.opname == "LOAD_DEREF" and variables[given.arg] in _OWN and after.opname in _GO_ON


def _compares_types(steps: Sequence[Instruction], k: int) -> bool:
    """Does this begin ``type(self) == type(x)``, or ``type(x) == type(self)``?"""
    code = steps[k : k + 7]
    return (
        [s.opname for s in code[:6]] == ["LOAD_GLOBAL", "LOAD_FAST", "CALL"] * 2
        and code[0].name == code[3].name == "type"
        and 0 in (code[1].arg, code[4].arg)
        and code[6].opname in ("COMPARE_OP", "IS_OP")
    )


_EFFECTS: Mapping[str, Callable[[types.FunctionType, Iterable[Any], set[str]], bool]] = {
    "print or log": _prints,
    "draw random numbers": _draws,
    "read the clock": _reads_clock,
    "read the environment": _reads_environment,
    "ask for the type of a traced array": _asks_types,
}
