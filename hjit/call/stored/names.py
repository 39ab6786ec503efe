"""Names of entries of the disk cache that are known by a function, or by its code."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

import hjit.cache as cache
from hjit.options import Options


def entry_name(kind: str, function: Any, key: Sequence[Any], options: Options) -> str | None:
    """Of what is known of calls of a function with such a key of arguments; None: a later process could not know them
    again."""
    if options.cache == "off" or type(function) is not FunctionType:
        return None
    texts = [_text(x) for x in key[1:]]  # the first one is the options in force
    if None in texts:
        return None
    code, about, made = function.__code__, _text_of(options), repr(_made_with(function))
    return (
        f"{kind}_"
        + cache.digest(*place_of_code(function), code_digest(code), made, repr(texts), about, cache.versions())[:40]
    )


def _made_with(function: FunctionType) -> list[str]:
    """What tells functions apart that one function makes of the same code: words, truth values and functions that it
    has as closures and defaults. Numbers do not: what can be traced with one can with another."""
    found = [_content(c) for c in function.__closure__ or ()]
    found += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [
        str(_text(x)) if isinstance(x, (str, bytes, bool, type, FunctionType)) else type(x).__qualname__ for x in found
    ]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


@functools.lru_cache(maxsize=64)
def _text_of(options: Options) -> str:
    return repr(replace(options, cache_dir=""))


def place_of_code(function: FunctionType) -> tuple[str, ...]:
    """Where a function is, down to the lines of its instructions."""
    code = function.__code__
    name = function.__module__ or "", function.__qualname__
    return code.co_filename, *name, str(code.co_firstlineno), code.co_linetable.hex()


def _text(x: Any) -> str | None:
    """Of what a key is made of; None where it is an object, which is another one in the next process."""
    match x:
        case tuple():
            parts = [_text(y) for y in x]
            return None if None in parts else f"({','.join(map(str, parts))})"
        case np.dtype():
            return x.str
        case None | bool() | int() | float() | str() | bytes():
            return repr(x)
        case type():
            return f"{x.__module__}.{x.__qualname__}"
        case FunctionType():
            return f"{x.__module__}.{x.__qualname__} {code_digest(x.__code__)}"
        case CodeType():
            return code_digest(x)
    return None


@functools.lru_cache(maxsize=4096)
def code_digest(code: CodeType) -> str:
    """Of what a function does, wherever its source is."""
    return cache.digest(*map(repr, _code_contents(code)))


def _code_contents(code: CodeType) -> Iterator[Any]:
    yield from (code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags)
    yield from (code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_exceptiontable)
    for x in code.co_consts:
        if isinstance(x, CodeType):
            yield from _code_contents(x)
        else:
            yield sorted(map(repr, x)) if isinstance(x, frozenset) else x
