"""Graph breaks: a function that cannot be traced as a whole, run by Python with compiled parts."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hjit.errors import TraceError
from hjit.trace.splitting.source import NoSource
from hjit.trace.splitting.split import Part, place_of
from hjit.trace.splitting.split import split as split_function

MAX_ITEMS = 64  # of a list that a part is given: each is part of its key
UNTIMED = 6  # calls before those that are timed beside NumPy: they trace parts, and split them
MAX_TRACES = 8  # of a part, from which on most of its calls must find what they run


@dataclass(frozen=True, slots=True)
class Parts:
    """A function in parts.

    Attributes:
        run: the function, which calls them.
        parts: the pipelines of the parts, with their first and last lines.
        kept: the statement that made it necessary, as text, and its line; None: it is not known which.
        why: what was said of it.
    """

    run: types.FunctionType
    parts: tuple[tuple[Any, int, int], ...]
    kept: tuple[str, int] | None
    why: str


def split(function: Any, error: Exception, pipeline: Callable[[types.FunctionType], Any]) -> Parts | None:
    """The parts of a function that could not be traced; None where it cannot be taken apart.

    Args:
        error: what tracing raised.
        pipeline: what runs a part.
    """
    if not isinstance(function, types.FunctionType):
        return None
    lines: dict[int, tuple[int, int]] = {}

    def made(part: Part) -> Any:
        found = pipeline(part.function)
        lines[id(found)] = part.first, part.last
        return found

    try:
        place = place_of(error, function.__code__) or (error.operation if isinstance(error, TraceError) else None)
        found = split_function(function, place, made)
    except (NoSource, SyntaxError, RecursionError):
        return None
    if found is None:
        return None
    run, pipelines, kept = found
    parts = tuple((p, *lines[id(p)]) for p in pipelines)
    why = f"{error.operation}: {error.reason}" if isinstance(error, TraceError) else f"{type(error).__name__}: {error}"
    return Parts(run, parts, None if kept is None else (_text(kept), kept.lineno), why)


def _text(s: ast.stmt) -> str:
    """The first line of a statement."""
    return ast.unparse(s).splitlines()[0]
