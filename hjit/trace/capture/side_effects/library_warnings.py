"""Warnings of code that runs untraced: it runs only once, during tracing, but every call must issue them."""

from __future__ import annotations

import functools
import sys
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from hjit.process.shown_warnings import forget, intercepted, names_of
from hjit.trace.capture.side_effects.effects import SourceLine, give_warning, place, traced_line
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.frames import is_own_file
from hjit.trace.tracing.recording.recorder import running_trace


class _Noted(NamedTuple):
    """A warning.

    Attributes:
        names: the globals of the code that it points to.
        line: the line of the user's in place of one of hjit's that it points to.
    """

    message: Any
    names: dict[str, Any] | None
    line: SourceLine | None


@provides
class NotedWarnings:
    """A block whose warnings are issued at every call of the traced function, rather than now.

    Attributes:
        runs_again: does what is in it run once more where it raises an exception?
    """

    def __init__(self, runs_again: bool = False) -> None:
        self.runs_again = runs_again

    def __enter__(self) -> None:
        self.noted: list[_Noted] = []
        self._intercepted = intercepted(functools.partial(_note, self.noted))
        self._block = self._intercepted.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._intercepted.__exit__(kind, error, trace)
        for noted in self.noted:
            if kind is not None and self.runs_again:
                continue
            if kind is not None or noted.names is None:
                assert self._block.usual is not None, "it has taken warnings"
                self._block.usual(noted.message)
            elif not _is_of_floats(noted.message):
                _give_always(noted.message, noted.names, noted.line)


def _note(noted: list[_Noted], message: Any) -> None:
    """In place of the function that shows warnings."""
    trace = running_trace()
    if trace is not None and trace.externs.is_running:
        forget(message)
        trace.externs.warnings.append(message)
    else:
        noted.append(_Noted(message, names_of(message.filename), _users_line(message)))


def _is_of_floats(message: Any) -> bool:
    """Is it a floating-point warning, such as a division by zero, which compiled code does not issue?"""
    return message.category is RuntimeWarning and " encountered in " in str(message.message)


def _users_line(message: Any) -> SourceLine | None:
    """The line that calls what gives a warning, where that points to a frame of hjit's in place of it; else None."""
    if not is_own_file(message.filename):
        return None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != (message.filename, message.lineno):
        frame = frame.f_back
    return None if frame is None else traced_line(frame)


def _give_always(message: Any, names: dict[str, Any], line: SourceLine | None) -> None:
    """Issue a warning at every call, as often as its filters allow; it has not been shown yet."""
    forget(message, names)
    where = place(1) if line is None else lambda: line  # of the caller, where that calls the library itself
    if not is_own_file(message.filename):
        there = where()._replace(filename=message.filename, line=message.lineno, names=names)
        give_warning(message.message, message.category, lambda: there, message.source)
    else:
        give_warning(message.message, message.category, where, message.source)
