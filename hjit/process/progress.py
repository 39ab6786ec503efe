"""Work that takes long is shown on a terminal."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

PROGRESS_AFTER = 1.0  # seconds


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """Show a spinner on a terminal when the work inside takes longer than a second."""
    if not (hasattr(sys.stderr, "isatty") and sys.stderr.isatty()):
        yield
        return
    shown: list[Any] = []
    lock = threading.Lock()
    done = False

    def show() -> None:
        from rich.console import Console

        with lock:
            if not done:
                status = Console(stderr=True).status(text)
                status.start()
                shown.append(status)

    timer = threading.Timer(PROGRESS_AFTER, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            done = True
            timer.cancel()
            for status in shown:
                status.stop()
