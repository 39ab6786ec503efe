"""Intercepting warnings in one thread, by replacing the function that shows them; are errors of floats reported, too?

Filters, and what has been shown already, are as they are, so that other threads see no difference.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import numpy as np
from numpy._core import umath

from hjit.errors import HjitWarning
from hjit.process.restoring import Block, Replaced

_shown = Replaced(warnings, "_showwarnmsg")


@contextlib.contextmanager
def intercepted(take: Callable[[Any], None]) -> Iterator[Block]:
    """A block whose warnings, except hjit's own, are passed to a function instead of being shown.

    `Block.usual` shows them. Where another thread has such a block, this one takes none.
    """
    module: Any = warnings
    thread, shown_by = threading.get_ident(), (module._showwarnmsg_impl, module.showwarning)

    def make(block: Block) -> Callable[[Any], Any]:
        def given(message: Any) -> None:
            """In place of the function that shows warnings: code in the block may record its own."""
            is_own = threading.get_ident() == thread and (module._showwarnmsg_impl, module.showwarning) == shown_by
            is_taken = is_own and not issubclass(message.category, HjitWarning)
            show = take if is_taken else block.usual
            assert show is not None, "it stands in its place"
            show(message)

        return given

    with _shown.by(make) as block:
        yield block


def of_the_compiler() -> AbstractContextManager[Block]:
    """A block that compiles source, about which Python has already warned."""
    return intercepted(lambda message: None)


def of_another_run() -> AbstractContextManager[Block]:
    """A block for an additional run of code, whose warnings are not shown."""
    return intercepted(forget)


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


# -- errors of floats

_settings: Any = getattr(umath, "_extobj_contextvar", None)  # holds another object after each change
_latest: tuple[Any, bool] = (None, False)  # such an object, and the answer


def float_errors_are_reported() -> bool:
    """Do `numpy.errstate` or `numpy.seterr` ask for anything but "ignore" and "warn"?

    For divisions by zero, overflows and invalid values, which compiled code neither raises nor reports.
    """
    global _latest
    now = object() if _settings is None else _settings.get(None)
    known, answer = _latest
    if now is not known:
        answer = not {"ignore", "warn"}.issuperset(np.geterr().values())
        _latest = now, answer
    return answer


def after_fork() -> None:
    """A child has none of the parent's other threads."""
    _shown.after_fork()
