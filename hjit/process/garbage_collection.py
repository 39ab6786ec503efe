"""Pausing Python's garbage collector while hjit compiles, when there is little garbage to find; weak references."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

FEWEST_REFERENCES = 256  # below this, those of objects that are gone stay

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


class References(Generic[T]):
    """Weak references to objects, which may be gone through.

    Unlike a `weakref.WeakSet` it has no callbacks: Python ignores what a signal handler, as that of Ctrl-C, raises in
    one. Those of objects that are gone are dropped as the number doubles.
    """

    __slots__ = ("_most", "_references")

    def __init__(self) -> None:
        self._references: set[weakref.ref[T]] = set()
        self._most = FEWEST_REFERENCES

    def add(self, x: T) -> None:
        """Refer to an object, too; by its identity."""
        self._references.add(weakref.ref(x))
        if len(self._references) > self._most:
            for reference in list(self._references):  # one by one: another thread may add some meanwhile
                if reference() is None:
                    self._references.discard(reference)
            self._most = max(FEWEST_REFERENCES, 2 * len(self._references))

    def __iter__(self) -> Iterator[T]:
        found = (reference() for reference in list(self._references))
        return iter([x for x in found if x is not None])

    def __len__(self) -> int:
        return len(self._references)
