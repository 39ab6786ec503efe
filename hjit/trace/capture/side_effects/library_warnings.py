"""Warnings of code that runs as it is while a function is traced: it runs once then, and every call is to give them."""

from __future__ import annotations

from typing import Any

from hjit.process.shown_warnings import Intercepted, forget, names_of
from hjit.trace.capture.side_effects.effects import give_warning, place
from hjit.trace.tracing.dispatch import provides
from hjit.trace.tracing.frames import is_own_file
from hjit.trace.tracing.recording.recorder import running_trace


@provides
class NotedWarnings:
    """A block whose warnings are given at every call of the traced function, and not now.

    Attributes:
        runs_again: does what is in it run once more where it raises an exception?
    """

    def __init__(self, runs_again: bool = False) -> None:
        self.runs_again = runs_again

    def __enter__(self) -> None:
        self.noted: list[tuple[Any, dict[str, Any] | None]] = []  # each with the globals of the code that it points to
        self.block = Intercepted(self.note)
        self.block.__enter__()

    def note(self, message: Any) -> None:
        """In place of the function that shows warnings."""
        trace = running_trace()
        if trace is not None and trace.calls_extern:
            forget(message)
            trace.warned.append(message)
        else:
            self.noted.append((message, names_of(message.filename)))

    def __exit__(self, kind: object, *exc: object) -> None:
        self.block.__exit__(kind, *exc)
        for message, names in self.noted:
            if kind is not None and self.runs_again:
                continue
            if kind is not None or names is None:
                self.block.show(message)
            elif not _is_of_floats(message):
                _give_always(message, names)


def _is_of_floats(message: Any) -> bool:
    """Is it a division by zero and the like, of which compiled code gives no warning either?"""
    return message.category is RuntimeWarning and " encountered in " in str(message.message)


def _give_always(message: Any, names: dict[str, Any]) -> None:
    """Give a warning at every call, as often as its filters say; it has not been shown yet."""
    forget(message, names)
    if is_own_file(message.filename):  # whose frame is in place of the user's
        where = place(1)()
    else:
        where = place(1)()._replace(filename=message.filename, line=message.lineno, names=names)
    give_warning(message.message, message.category, lambda: where, message.source)
