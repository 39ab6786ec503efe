"""Functions that say how many frames above them something happened: warnings and log records with ``stacklevel=``.

A statement that is moved into a function of its own is one frame further from its caller. Nobody sees that but a
function, called in the statement, that counts frames past it.
"""

from __future__ import annotations

import dis
import itertools
import sys
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

MAX_CALLS = 5  # of functions by functions, that are looked through
ANY_LEVEL = sys.maxsize  # one that is computed
NO_PACKAGES = {"numpy", "scipy", "hjit", *sys.stdlib_module_names}  # these are not looked through


def points_above(function: Any) -> bool:
    """May it, or what it calls, say that something happened further up than in its caller?"""
    return _points_above(function, 1, set())


def _points_above(function: Any, depth: int, seen: set[tuple[types.CodeType, int]]) -> bool:
    function = getattr(function, "py_func", function)
    if type(function) is not types.FunctionType or depth > MAX_CALLS:
        return False
    code = function.__code__
    if (code, depth) in seen or (function.__module__ or "").partition(".")[0] in NO_PACKAGES:
        return False
    seen.add((code, depth))
    if any(level > depth + 1 for level in _levels(code)):  # 1 is the function itself
        return True
    return any(_points_above(f, depth + 1, seen) for f in _named(function))


def _named(function: types.FunctionType) -> Iterator[Any]:
    """The values of names that it may call: closure cells, globals, and what modules have by such names."""
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


def _all_code(code: types.CodeType) -> Iterator[types.CodeType]:
    """Its code, and that of the functions in it."""
    yield code
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _all_code(c)


@lru_cache(maxsize=1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for c in _all_code(code) for name in c.co_names))


@lru_cache(maxsize=1024)
def _levels(code: types.CodeType) -> tuple[int, ...]:
    """The numbers that are passed as ``stacklevel=``."""
    return tuple(level for c in _all_code(code) for level in _levels_in(c))


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
