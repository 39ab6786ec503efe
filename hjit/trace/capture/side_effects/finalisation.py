"""hjit's exceptions in finalisers, which Python would print and ignore."""

from __future__ import annotations

import contextlib
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from hjit.errors import raise_if_signalled
from hjit.process.restoring import Block, Replaced

_printed = Replaced(sys, "unraisablehook")


class Finalisation:
    """hjit's own exceptions from where generators were closed."""

    def __init__(self) -> None:
        self.raised: list[BaseException] = []

    def in_place_of_printing(self, block: Block) -> Callable[[Any], Any]:
        """A function in place of `sys.unraisablehook`."""

        def given(what: Any) -> None:
            error = what.exc_value
            if threading.get_ident() == block.thread and type(error).__module__.partition(".")[0] == "hjit":
                self.raised.append(error)
            elif block.usual is not None:
                block.usual(what)

        return given

    def check(self) -> None:
        """Raise the first exception that was taken."""
        if self.raised:
            raise self.raised[0]


@contextlib.contextmanager
def finalised() -> Iterator[Finalisation]:
    """A block that takes hjit's own exceptions from where a generator is closed, as none of its code can raise them.

    Where the block ends by an exception, generators that the frames in its traceback hold are closed in it. Where
    another thread has such a block, this one takes none.
    """
    found = Finalisation()
    with _printed.by(found.in_place_of_printing):
        try:
            yield found
        except BaseException as error:
            raise_if_signalled(error)  # its frames tell it from others
            _clear_frames(error)
            raise
        finally:
            found.raised.clear()


def _clear_frames(error: BaseException | None) -> None:
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def after_fork() -> None:
    """A child has none of the parent's other threads."""
    _printed.after_fork()
