"""Intercepting warnings in one thread, by replacing the function that shows them.

Filters, and what has been shown already, are as they are, so that other threads see no difference.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

from hjit.errors import HjitWarning

_showing = threading.RLock()  # whose thread has put a function in place of the one that shows warnings


class Intercepted:
    """A block whose warnings, except hjit's own, are passed to a function instead of being shown.

    Attributes:
        show: what shows warnings else.
    """

    def __init__(self, take: Callable[[Any], None]) -> None:
        self._take = take

    def __enter__(self) -> None:
        self._lock = _showing
        self.is_on = self._lock.acquire(blocking=False)  # where another thread has such a block, this one does nothing
        if not self.is_on:
            return
        module: Any = warnings
        self._thread, self.show = threading.get_ident(), module._showwarnmsg
        self._shown_by = module._showwarnmsg_impl, module.showwarning
        module._showwarnmsg = self._given

    def _given(self, message: Any) -> None:
        """In place of the function that shows warnings: code in the block may record its own."""
        module: Any = warnings
        is_own = (
            threading.get_ident() == self._thread and (module._showwarnmsg_impl, module.showwarning) == self._shown_by
        )
        is_taken = is_own and not issubclass(message.category, HjitWarning)
        (self._take if is_taken else self.show)(message)

    def __exit__(self, *exc: object) -> None:
        if self.is_on:
            warnings._showwarnmsg = self.show  # type: ignore[attr-defined]
            self._lock.release()


def of_the_compiler() -> Intercepted:
    """A block that compiles source, about which Python has already warned."""
    return Intercepted(lambda message: None)


def of_another_run() -> Intercepted:
    """A block for an additional run of code, whose warnings are not shown."""
    return Intercepted(forget)


def forget(message: Any, names: dict[str, Any] | None = None) -> None:
    """A warning that was not shown: it is for the first time that it will be.

    Args:
        names: globals of the code that it points to, where they are known.
    """
    text, category, line = str(message.message), message.category, message.lineno
    registry = (names or names_of(message.filename) or {}).get("__warningregistry__", {})
    for key in ((text, category, line), (text, category, 0)):
        registry.pop(key, None)
    warnings.onceregistry.pop((text, category), None)  # type: ignore[attr-defined]


def give(message: Any) -> None:
    """Show a warning that was intercepted and forgotten before, as the filters say."""
    names = names_of(message.filename)
    names = {} if names is None else names
    module, registry = names.get("__name__") or "<string>", names.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        message.message, message.category, message.filename, message.lineno, module, registry, None, message.source
    )


def names_of(filename: str) -> dict[str, Any] | None:
    """The globals of the module in a file, or of running code (a notebook's) of that name; None: there is none."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == filename:
            return vars(module)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != filename:
        frame = frame.f_back
    return None if frame is None else getattr(frame.f_globals, "under", frame.f_globals)


def after_fork() -> None:
    """A child has none of the parent's threads that hold the lock."""
    global _showing
    _showing = threading.RLock()
