"""What shows warnings, with another function in its place for a time, in one thread.

Filters, and what has been shown already, are as they are, so that other threads see no difference.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

_showing = threading.RLock()  # whose thread has put a function in place of the one that shows warnings


class Intercepted:
    """A block whose warnings are given to a function, and not shown.

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
        (self._take if is_own else self.show)(message)

    def __exit__(self, *exc: object) -> None:
        if self.is_on:
            warnings._showwarnmsg = self.show  # type: ignore[attr-defined]
            self._lock.release()


def of_the_compiler() -> Intercepted:
    """A block that compiles source: of that Python has warned when it compiled it."""
    return Intercepted(lambda message: None)


def after_fork() -> None:
    """A child has none of the parent's threads that hold the lock."""
    global _showing
    _showing = threading.RLock()
