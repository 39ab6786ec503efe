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
    parts: list[tuple[Any, int, int]] = []

    def made(part: Part) -> Any:
        parts.append((pipeline(part.function), part.first, part.last))
        return parts[-1][0]

    try:
        place = place_of(error, function.__code__) or (error.operation if isinstance(error, TraceError) else None)
        found = split_function(function, place, made)
    except (NoSource, SyntaxError, RecursionError):
        return None
    if found is None:
        return None
    run, kept = found
    why = f"{error.operation}: {error.reason}" if isinstance(error, TraceError) else f"{type(error).__name__}: {error}"
    return Parts(run, tuple(parts), None if kept is None else (_text(kept), kept.lineno), why)


def _text(s: ast.stmt) -> str:
    """The first line of a statement."""
    return ast.unparse(s).splitlines()[0]
