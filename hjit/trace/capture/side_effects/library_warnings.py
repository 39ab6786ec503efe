"""Warnings of code that runs as it is while a function is traced: it runs once then, and every call is to give them."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from hjit.errors import HjitWarning
from hjit.process.shown_warnings import Intercepted
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
        self.noted: list[Any] = []
        self.block = Intercepted(self.note)
        self.block.__enter__()

    def note(self, message: Any) -> None:
        """In place of the function that shows warnings."""
        trace = running_trace()
        is_kept = not (trace is not None and trace.calls_extern)
        (self.noted.append if is_kept else self.block.show)(message)

    def __exit__(self, kind: object, *exc: object) -> None:
        self.block.__exit__(kind, *exc)
        for message in self.noted:
            names = _names_of(message.filename)
            if kind is not None and self.runs_again:
                continue
            if kind is not None or names is None or issubclass(message.category, HjitWarning):
                self.block.show(message)
            elif not _is_of_floats(message):
                _give_always(message, names)


def _is_of_floats(message: Any) -> bool:
    """Is it a division by zero and the like, of which compiled code gives no warning either?"""
    return message.category is RuntimeWarning and " encountered in " in str(message.message)


def _names_of(filename: str) -> dict[str, Any] | None:
    """The globals of the module in a file; None: there is none."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == filename:
            return vars(module)
    return None


def _give_always(message: Any, names: dict[str, Any]) -> None:
    """Give a warning at every call, as often as its filters say; it has not been shown yet."""
    text, category, line = str(message.message), message.category, message.lineno
    registry = names.get("__warningregistry__", {})
    for key in ((text, category, line), (text, category, 0)):
        registry.pop(key, None)
    warnings.onceregistry.pop((text, category), None)  # type: ignore[attr-defined]
    if is_own_file(message.filename):  # whose frame is in place of the user's
        where = place(1)()
    else:
        where = place(1)()._replace(filename=message.filename, line=line, names=names)
    give_warning(message.message, category, lambda: where, message.source)
