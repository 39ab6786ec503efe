"""Putting back what a block has changed, wherever the exception of a signal handler ends it.

Python calls such handlers in the main thread when a function begins, after a call of a function in C, and where a loop
jumps back. So in hjit

- what a block changes, it changes inside the `try` whose `finally` puts it back,
- the first call there puts it back: another one before it may be the last,
- such blocks are generators of `contextlib`: one that is interrupted before it begins to end is closed, and so ends,
  with the frames of the exception; classes with methods of their own, or locks that are taken by calls, would not.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


def surely(f: Callable[[], T]) -> T:
    """``f()``, which puts things back; where it is interrupted it is called once more, and the exception raised."""
    try:
        return f()
    except BaseException:
        f()
        raise


@contextlib.contextmanager
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """A block in which a variable of the context has another value."""
    before = variable.get()
    try:
        variable.set(value)
        yield
    finally:
        variable.set(before)


@contextlib.contextmanager
def if_free(lock: Any) -> Iterator[bool]:
    """A block that holds a lock if no other thread does; does it?"""
    taken: list[bool] = []
    try:
        taken.extend(map(lock.acquire, (False,)))  # one call in C takes it and says so
        yield taken[0]
    finally:
        if taken and taken[0]:
            lock.release()


class Block:
    """A block in which a function stands in for another one.

    Attributes:
        usual: the other one; None: another thread has such a block, so that this one changes nothing.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.usual: Callable[[Any], Any] | None = None
        self.outer: Block | None = None


class Replaced:
    """A function of a module that has another one in its place in blocks of one thread at a time."""

    def __init__(self, module: ModuleType, name: str) -> None:
        self._names, self._name = vars(module), name
        self._innermost: Block | None = None

    @contextlib.contextmanager
    def by(self, make: Callable[[Block], Callable[[Any], Any]]) -> Iterator[Block]:
        """A block with the function that `make` makes in its place.

        Nothing is called between two changes here: so no thread is between them, and no signal handler.
        """
        block = Block()
        function = make(block)
        try:
            if self._innermost is None or self._innermost.thread == block.thread:
                block.usual, block.outer = self._names[self._name], self._innermost
                self._names[self._name], self._innermost = function, block
            yield block
        finally:
            inner: Block | None = self._innermost
            while inner is not None and inner is not block:  # one that has not ended yet: this one ends it
                inner = inner.outer
            if inner is not None:
                self._names[self._name], self._innermost = block.usual, block.outer

    def after_fork(self) -> None:
        """A child has none of the parent's other threads."""
        while self._innermost is not None and self._innermost.thread != threading.get_ident():
            self._names[self._name], self._innermost = self._innermost.usual, self._innermost.outer
