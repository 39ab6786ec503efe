"""`Parts`: a function with graph breaks, split: Python runs it, and calls the pipelines of its parts."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hjit.call.breaks.limits import MAX_CALLEES
from hjit.call.stored import splits
from hjit.call.stored.refusals import Refusal
from hjit.options import Options
from hjit.trace.splitting.frame_inspection import looks_at_frames
from hjit.trace.splitting.source import NoSource
from hjit.trace.splitting.split import Fragment

AS_THEY_ARE = ("numpy", "hjit")  # packages whose functions are called as they are
NO_FUNCTION = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(frozen=True, slots=True)
class Parts:
    """A split function.

    Attributes:
        run: the function that Python runs; it calls the parts.
        parts: the pipelines of the parts, with their first and last lines.
        kept: the statement that cannot be traced, as text, and its line; None if that is not known.
        why: why it cannot be traced.
        callees: the functions that this statement calls; they are compiled, too.
        advice: what to do about it; empty if there is none.
    """

    run: types.FunctionType
    parts: tuple[tuple[Any, int, int], ...]
    kept: tuple[str, int] | None
    why: str
    callees: Callees
    advice: str = ""

    @property
    def are_plain(self) -> bool:
        """Has every part been replaced by its plain statements?"""
        return all(part.cell is None for part, _, _ in self.parts) and not self.callees.are_compiled


class Callees:
    """Replaces the functions that an untraceable statement calls by pipelines.

    Functions that inspect the frames of their callers, or call functions that do, are not replaced: they would see
    hjit's frames.

    Attributes:
        made: by code, the function and its pipeline.
    """

    def __init__(self, pipeline: Callable[[types.FunctionType], Any]) -> None:
        self._pipeline = pipeline
        self.made: dict[types.CodeType, tuple[types.FunctionType, Any]] = {}

    def __call__(self, function: Any) -> Any:
        """The replacement of a function; itself if it is not Python code, or is a new closure at each call."""
        if type(function) is not types.FunctionType:
            return function
        found = self.made.get(function.__code__)
        if found is None:
            found = function, self._made(function)
            if len(self.made) < MAX_CALLEES:
                self.made[function.__code__] = found
        return found[1] if found[0] is function else function

    @property
    def are_compiled(self) -> bool:
        """Is any of them replaced?"""
        return any(pipeline is not function for function, pipeline in self.made.values())

    def _made(self, function: types.FunctionType) -> Any:
        is_foreign = (function.__module__ or "").partition(".")[0] in AS_THEY_ARE
        if is_foreign or function.__code__.co_flags & NO_FUNCTION or len(self.made) >= MAX_CALLEES:
            return function
        return function if looks_at_frames(function) else self._pipeline(function)


def split(
    function: Any,
    refusal: Refusal,
    pipeline: Callable[[types.FunctionType], Any],
    callee: Callable[[types.FunctionType], Any] | None,
    options: Options,
) -> Parts | None:
    """Split a function that could not be traced; None if that is not possible.

    Args:
        refusal: why it cannot be traced, and where.
        pipeline: makes the pipeline of a part.
        callee: makes the pipeline of a function that it calls; None: these run uncompiled.
        options: of the disk cache, which keeps how functions are split.
    """
    if not isinstance(function, types.FunctionType):
        return None
    parts: list[tuple[Any, int, int]] = []

    def made(part: Fragment) -> Any:
        parts.append((pipeline(part.function), part.first, part.last))
        return parts[-1][0]

    callees = Callees(pipeline if callee is None else callee)
    try:
        found = splits.load_or_make(function, refusal, callee is not None, options)
    except (NoSource, SyntaxError, RecursionError):
        return None
    if found is None:
        return None
    run = found.assembled(function, made, callees)
    cells = dict(zip(run.__code__.co_freevars, run.__closure__ or (), strict=True))
    for part, _, _ in parts:
        part.cell = next((cell for cell in cells.values() if cell.cell_contents is part), None)
    return Parts(run, tuple(parts), found.kept, refusal.why, callees, refusal.advice)
