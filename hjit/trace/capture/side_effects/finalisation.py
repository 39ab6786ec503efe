"""hjit's exceptions in finalisers, which Python would print and ignore."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import Any

from hjit.errors import raise_if_signalled

_taking = threading.RLock()  # whose thread has put a function in place of the one that prints such exceptions


class Finalisation:
    """A block that takes hjit's own exceptions from where a generator is closed, as none of its code can raise them.

    Where the block ends by an exception, generators that the frames in its traceback hold are closed in it.
    """

    def __enter__(self) -> Finalisation:
        self._raised: list[BaseException] = []
        self._lock = _taking
        self._is_on = self._lock.acquire(blocking=False)  # where another thread has such a block, this one takes none
        if self._is_on:
            self._thread, self._print = threading.get_ident(), sys.unraisablehook
            sys.unraisablehook = self._given
        return self

    def _given(self, what: Any) -> None:
        """In place of `sys.unraisablehook`."""
        error = what.exc_value
        if threading.get_ident() == self._thread and type(error).__module__.partition(".")[0] == "hjit":
            self._raised.append(error)
        else:
            self._print(what)

    def check(self) -> None:
        """Raise the first exception that was taken."""
        if self._raised:
            raise self._raised[0]

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        try:
            if error is not None:
                raise_if_signalled(error)  # its frames tell it from others
            while error is not None:
                traceback.clear_frames(error.__traceback__)
                error = error.__context__
        finally:
            self._raised.clear()
            if self._is_on:
                sys.unraisablehook = self._print
                self._lock.release()


def after_fork() -> None:
    """A child has none of the parent's threads that hold the lock."""
    global _taking
    _taking = threading.RLock()
