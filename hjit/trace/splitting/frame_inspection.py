"""Functions that depend on the frames of their callers.

These say how many frames above them something happened (warnings and log records with ``stacklevel=``), or look at
frames themselves, as for the module of their caller. A statement that is moved into a function of its own is one frame
further from its caller, and so is a function that a pipeline runs. No other function can tell.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import sys
import traceback
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from hjit.trace.splitting.decorated import python_original

MAX_CALLS = 5  # of functions by functions, that are looked through
ANY_LEVEL = sys.maxsize  # one that is computed
NO_PACKAGES = {"numpy", "scipy", "hjit", *sys.stdlib_module_names}  # these are not looked through
_READERS = {
    sys: ("_getframe", "_getframemodulename"),
    inspect: ("currentframe", "stack"),
    traceback: ("extract_stack", "format_stack", "print_stack", "walk_stack"),
}
# functions that give the frames of their callers, by their names
FRAME_READERS = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module, names in _READERS.items()
    for name in names
    if hasattr(module, name)
}


def points_above(function: Any) -> bool:
    """May it, or a function that it calls, use a ``stacklevel`` above its caller, or inspect frames?"""
    return any(
        _is_reader(f) or any(level > depth + 1 for level in _levels(f.__code__))  # 1 is the function itself
        for f, depth in _reached(function, 1, set())
    )


def looks_at_frames(function: Any) -> bool:
    """May it, or a function that it calls, inspect frames of its callers? It would also see a pipeline's."""
    return any(_is_reader(f) for f, _ in _reached(function, 1, set()))


def _is_reader(function: Any) -> bool:
    return any(function is reader for reader in FRAME_READERS.values())


def _reached(function: Any, depth: int, seen: set[tuple[Any, int]]) -> Iterator[tuple[Any, int]]:
    """A Python function and those that it may call, with the depth of the calls, including `FRAME_READERS`."""
    function = python_original(function)
    if depth > MAX_CALLS:
        return
    if _is_reader(function):
        yield function, depth
    if type(function) is not types.FunctionType or (function.__code__, depth) in seen:
        return
    if (function.__module__ or "").partition(".")[0] in NO_PACKAGES:
        return
    seen.add((function.__code__, depth))
    yield function, depth
    for f in named(function):
        yield from _reached(f, depth + 1, seen)


def named(function: types.FunctionType) -> Iterator[Any]:
    """The values of names that it may call: closure cells, globals, and attributes of modules."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it has none yet
            continue
    names = _names(function.__code__)
    for name in names:
        found = function.__globals__.get(name)
        yield found
        if isinstance(found, types.ModuleType):
            yield from (vars(found)[n] for n in names if n in vars(found))


def all_code(code: types.CodeType) -> Iterator[types.CodeType]:
    """Its code object, and those of the functions in it."""
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from all_code(c)


@lru_cache(maxsize=1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for c in all_code(code) for name in c.co_names))


@lru_cache(maxsize=1024)
def _levels(code: types.CodeType) -> tuple[int, ...]:
    """The values passed as ``stacklevel=``."""
    return tuple(level for c in all_code(code) for level in _levels_in(c))


def _levels_in(code: types.CodeType) -> Iterator[int]:
    if not any(isinstance(c, tuple) and "stacklevel" in c for c in code.co_consts):
        return
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "EXTENDED_ARG")]
    for before, step in itertools.pairwise(steps):
        # of the keywords of a call: the last one's value was loaded just before. CPython 3.11 and 3.12 do not show them
        names = code.co_consts[step.arg or 0] if step.opname == "KW_NAMES" else step.argval
        if isinstance(names, tuple) and "stacklevel" in names:
            is_known = names[-1] == "stacklevel" and before.opname.startswith("LOAD_") and type(before.argval) is int
            yield before.argval if is_known else ANY_LEVEL
