"""Python's garbage collector, where it would mostly look in vain."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

SELDOM = 200_000  # new objects between two collections

_lock = threading.Lock()
_inside = 0  # how many threads, and calls of one thread in each other
_usual = 0  # the threshold outside


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """The garbage collector runs less often: compiling and searching make much that they keep, and little garbage in circles.

    A collector that is off stays off.
    """
    global _inside, _usual
    with _lock:
        if _inside == 0:
            _usual, *others = gc.get_threshold()
            if 0 < _usual < SELDOM:
                gc.set_threshold(SELDOM, *others)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside = max(_inside - 1, 0)  # 0 already where a child was forked in the middle
            if _inside == 0:
                gc.set_threshold(_usual, *gc.get_threshold()[1:])


def after_fork() -> None:
    """A child has one thread only, and it is not inside."""
    global _lock, _inside
    _lock = threading.Lock()
    if _inside:
        _inside = 0
        gc.set_threshold(_usual, *gc.get_threshold()[1:])
