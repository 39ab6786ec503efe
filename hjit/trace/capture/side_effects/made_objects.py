"""Objects that the function makes: their methods run as they are while it is traced, and not again.

What these would print or log is refused where the class is called, or given a name, before any of it is done. Which
methods run is not known then: those whose names stand in code that is traced, or in such a method, and those that
Python calls by itself.
"""

from __future__ import annotations

import functools
import logging
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from hjit.trace.capture.captured import is_own
from hjit.trace.splitting.frames_above import all_code, named
from hjit.trace.tracing.dispatch import provides
from hjit.trace.tracing.recording.recorder import current

MAX_FUNCTIONS = 400  # that are looked through for one class
_PRINTS = (print, input)
_LOGGERS = (logging.Logger, logging.LoggerAdapter)
_LOGS = frozenset("debug info warning warn error critical fatal exception log getLogger".split())
_STREAMS = frozenset("stdin stdout stderr __stdin__ __stdout__ __stderr__".split())
# what Python does not call by itself, where an object is made and its methods are called
_ASKED_FOR = frozenset(
    "__repr__ __str__ __format__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __dir__ __sizeof__".split()
)


@provides
def check_output(cls: type, frame: types.FrameType | None = None) -> None:
    """Nothing, where objects of the class print and log nothing.

    Args:
        frame: of the code that calls the class, or gives it a name; None: it is an argument.

    Raises:
        TraceError: they may.
    """
    if not is_own(cls):
        return
    codes = (*(() if frame is None else (frame.f_code,)), *current().codes)
    writer = _writer(cls, frozenset(name for code in codes for c in all_code(code) for name in c.co_names))
    if writer:
        raise current().error(
            f"{cls.__name__}(...)",
            f"{writer} may print or log while it is traced: it would do so once, not at every call",
            "make the object outside the function",
        )


@functools.lru_cache(maxsize=256)
def _writer(cls: type, names: frozenset[str]) -> str:
    """The first of the functions that may run which prints or logs; empty where none does."""
    known, classes, seen = set(names), [cls], set[types.CodeType]()
    waiting = deque(_methods(classes, known))
    while waiting and len(seen) < MAX_FUNCTIONS:
        f = waiting.popleft()
        if f.__code__ in seen:
            continue
        seen.add(f.__code__)
        values = list(named(f))
        if _prints(f, values):
            return f.__qualname__
        known.update(name for c in all_code(f.__code__) for name in c.co_names)
        classes += [x for x in values if isinstance(x, type) and is_own(x) and x not in classes]
        waiting += [x for x in values if isinstance(x, types.FunctionType) and is_own(x)]
        waiting += _methods(classes, known) if not waiting else ()
    return ""


def _methods(classes: Iterable[type], names: set[str]) -> Iterator[types.FunctionType]:
    """The methods of these names, and those that Python calls by itself."""
    for cls in classes:
        for name, value in [(n, v) for base in cls.__mro__ if is_own(base) for n, v in vars(base).items()]:
            value = value.func if isinstance(value, functools.partialmethod) else value
            f = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            is_implicit = name.startswith("__") and name.endswith("__") and name not in _ASKED_FOR
            if isinstance(f, types.FunctionType) and is_own(f) and (is_implicit or name in names):
                yield f


def _prints(f: types.FunctionType, values: Iterable[Any]) -> bool:
    names = {name for c in all_code(f.__code__) for name in c.co_names}
    if any(p.__name__ in names and p.__name__ not in f.__globals__ for p in _PRINTS):
        return True
    return any(
        (x is sys and names & _STREAMS)
        or ((x is logging or isinstance(x, _LOGGERS)) and names & _LOGS)
        or any(x is p for p in _PRINTS)
        for x in values
    )
