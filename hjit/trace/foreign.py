"""Compiled functions of other packages: extern stages that may write to the arrays they are given.

Such a function is called on copies. What it has changed there is an output of the stage, and becomes a new version of the
traced array; so a later call may find that it changes more than it did when it was traced, and is then traced again.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from hjit.trace.opaque import concrete, opaque_call
from hjit.trace.recorder import current
from hjit.trace.tracer import Tracer, functions, has_tracer, is_tracer, python_float, write

Path = tuple[Any, ...]  # where an array is among the arguments: position or keyword, then indices of containers


class Foreign:
    """A compiled function as traced code sees it: an extern stage where it is given a tracer; Cython's fused ones are indexed by types.

    Attributes:
        writes: the arguments that some call has written to.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.name = ".".join(filter(None, (getattr(function, "__module__", None), getattr(function, "__name__", repr(function)))))
        self.writes: set[Path] = set()
        functools.update_wrapper(self, function, updated=())

    def __getitem__(self, types: Any) -> Foreign:
        return foreign(self.function[types])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not has_tracer(args) and not has_tracer(kwargs):
            return concrete(self.function, args, kwargs)
        traced = functions().get(self.function)
        return traced(*args, **kwargs) if traced else self.extern(args, kwargs)

    def extern(self, args: Any, kwargs: Any) -> Any:
        """The call as a stage whose outputs are the function's results, and the contents of the arrays that it wrote to."""
        call = _Watched(self.function, self.writes)
        results = opaque_call(self.name, call, args, kwargs)
        results = list(results if isinstance(results, tuple) else (results,))
        given = {path: x for path, x in _arrays((args, kwargs)) if is_tracer(x)}
        returned, written = results[: len(call.returned)], results[len(call.returned) : -1]
        for path, contents in zip(call.written, written, strict=True):
            self._write(path, contents, given)
        returned = [given.get(path, x) for path, x in zip(call.returned, returned, strict=True)]
        returned = [python_float(x) if k is float else x for k, x in zip(call.kinds, returned, strict=True)]
        return tuple(returned) if call.many else returned[0] if returned else None

    def _write(self, path: Path, contents: Any, given: dict[Path, Tracer]) -> None:
        x = given.get(path)
        if x is None:
            raise current().error(self.name, "it writes to an array that is not traced", "make that array in the function")
        if any(other.buffer.root is x.buffer.root for at, other in given.items() if at != path):
            raise current().error(self.name, "it writes to memory that two of its arguments share", "give it a copy of the other one")
        write(x, contents)


@functools.lru_cache(maxsize=1024)
def foreign(function: Any) -> Foreign:
    """One for each function, so that it keeps what it learns about it."""
    return Foreign(function)


class _Watched:
    """The function on copies of its arrays; gives its results, what it wrote, and an array that is empty as long as nothing else was written.

    The length of that array is a condition of the trace, as all shapes of an extern stage's outputs are.

    Attributes:
        written: the arguments whose contents are outputs, from the first call on.
        returned: for each result the argument that it is, or ().
        kinds: the types of the results.
        many: is the result a tuple?
    """

    def __init__(self, function: Any, writes: set[Path]) -> None:
        self.function, self.writes = function, writes
        self.written: list[Path] | None = None
        self.returned: list[Path] = []
        self.kinds: list[type] = []
        self.many = False
        self.__name__ = getattr(function, "__name__", "function")

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        before = dict(_arrays((args, kwargs)))
        copies = {path: _copy(x) for path, x in before.items()}
        own_args, own_kwargs = _put((args, kwargs), copies)
        result = self.function(*own_args, **own_kwargs)
        changed = {path for path, x in before.items() if not _same_bits(x, copies[path])}
        self.writes |= changed
        results = result if isinstance(result, tuple) else () if result is None else (result,)
        returned = [next((path for path, x in copies.items() if x is r), ()) for r in results]
        if self.written is None:
            self.written = [path for path in before if path in self.writes]
            self.returned, self.kinds, self.many = returned, [type(r) for r in results], isinstance(result, tuple)
        news = len(changed.difference(self.written)) + (returned != self.returned)
        return (*results, *(copies[path] for path in self.written), np.empty(news, bool))


def _arrays(x: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The arrays among arguments, traced or not, with where they are."""
    if is_tracer(x) or isinstance(x, np.ndarray):
        yield path, x
    elif type(x) in (list, tuple, dict):
        for k, y in x.items() if type(x) is dict else enumerate(x):
            yield from _arrays(y, (*path, k))


def _put(x: Any, copies: dict[Path, Any], path: Path = ()) -> Any:
    """The arguments with `copies` in them."""
    if path in copies:
        return copies[path]
    if type(x) is dict:
        return {k: _put(y, copies, (*path, k)) for k, y in x.items()}
    return type(x)(_put(y, copies, (*path, k)) for k, y in enumerate(x)) if type(x) in (list, tuple) else x


def _copy(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    copy = x.copy()
    copy.flags.writeable = x.flags.writeable
    return copy


def _same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if a.dtype.hasobject or a.dtype.itemsize not in (1, 2, 4, 8):
        return a.tobytes() == b.tobytes()
    word = f"u{a.dtype.itemsize}"
    return np.array_equal(a.view(word), b.view(word))
