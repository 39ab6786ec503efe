"""Pausing Python's garbage collector while hjit compiles, when there is little garbage to find."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

# new objects between two collections, a number that nobody else sets; Python's own default is 700 to 2000. Each walks
# over all that is new: at 200,000 that was 3 % of large first calls, for a few MB
RARE_THRESHOLD = 500_009

_lock = threading.RLock()  # a signal handler may come in the middle, and call a pipeline
_inside = 0  # how many threads, and calls of one thread in each other
_usual = 0  # the threshold before


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Run the garbage collector less often: compiling and searching make many objects, few of them garbage in cycles.

    A collector that is off stays off.
    """
    global _inside, _usual
    is_inside = False
    try:
        with _lock:
            usual, *_ = gc.get_threshold()
            is_known = _inside > 0 or usual == RARE_THRESHOLD  # then a handler came while the threshold was put back
            _inside, _usual, is_inside = _inside + 1, _usual if is_known else usual, True
            if 0 < usual < RARE_THRESHOLD and _inside == 1:
                gc.set_threshold(RARE_THRESHOLD)
        yield
    finally:
        with _lock:
            if is_inside and _inside:  # 0 already where a child was forked in the middle
                _inside -= 1
                if _inside == 0:
                    gc.set_threshold(_usual)


def after_fork() -> None:
    """A child has one thread only, and it is not inside."""
    global _lock, _inside
    _lock = threading.RLock()
    if _inside:
        _inside = 0
        gc.set_threshold(_usual)
