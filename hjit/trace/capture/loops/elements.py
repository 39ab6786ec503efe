"""The variables of a running function, and the elements of tuples and lists that they hold, one by one.

What a loop carries in ``best = y, x``, or in ``total[0] += v`` of a list, are the numbers in it: each is a variable of
its own, whose name is no identifier.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Collection, Mapping
from typing import Any

MAX_ELEMENTS = 16  # of one tuple or list


class _Unbound:
    """The value of a variable that has none."""


UNBOUND = _Unbound()


class NotCarried(Exception):
    """What a variable holds cannot be carried from one iteration to the next."""


class Elements:
    """What is carried element by element.

    Attributes:
        tuples: variables that hold tuples, with their lengths.
        lists: lists that iterations change, by a name.
    """

    def __init__(self, frame: types.FrameType) -> None:
        self.frame = frame
        self.tuples: dict[str, int] = {}
        self.lists: dict[str, list[Any]] = {}

    @property
    def names(self) -> set[str]:
        """Those of the elements."""
        sizes = {**self.tuples, **{name: len(x) for name, x in self.lists.items()}}
        return {element for name, n in sizes.items() for element in _names(name, n)}

    def find(self, kept: dict[str, Any]) -> bool:
        """Take the elements of tuples in place of variables that have come to hold these; is there one?

        Raises:
            NotCarried: its length changes, or it is long.
        """
        now = self.frame.f_locals
        found = [n for n, before in kept.items() if type(now.get(n)) is tuple and now[n] is not before]
        for name in found:
            value, before = now[name], kept[name]
            if before is not UNBOUND and (not isinstance(before, tuple) or len(before) != len(value)):
                raise NotCarried(f"{name}, which iterations change, is no tuple of one length")
            if len(value) > MAX_ELEMENTS:
                raise NotCarried(f"{name} is a long tuple")
            del kept[name]
            self.tuples[name] = len(value)
            parts = _names(name, len(value))
            kept.update(zip(parts, before if isinstance(before, tuple) else [UNBOUND] * len(parts), strict=True))
        return bool(found)

    def add(self, changed: list[Any], before: list[Any], kept: dict[str, Any]) -> None:
        """Take the elements of a list that an iteration has changed.

        Raises:
            NotCarried: its length changes, or it is long.
        """
        if len(changed) != len(before) or len(changed) > MAX_ELEMENTS:
            raise NotCarried("a list or a dict is changed")
        name = f"list {len(self.lists)}"
        self.lists[name] = changed
        kept.update(zip(_names(name, len(before)), before, strict=True))

    def has(self, container: Any) -> bool:
        """Is this a list whose elements are taken one by one?"""
        return any(x is container for x in self.lists.values())

    def now(self) -> Mapping[str, Any]:
        """The values of all variables and elements.

        Raises:
            NotCarried: a tuple has not the length that it had.
        """
        known = self.frame.f_locals
        if not self.tuples and not self.lists:
            return known
        found = dict(known)
        for name, n in self.tuples.items():
            value = known.get(name, UNBOUND)
            parts: Any = (UNBOUND,) * n if value is UNBOUND else value
            if type(parts) is not tuple or len(parts) != n:
                raise NotCarried(f"{name}, which iterations change, is no tuple of one length")
            found.update(zip(_names(name, n), parts, strict=True))
        for name, x in self.lists.items():
            found.update(zip(_names(name, len(x)), x, strict=True))
        return found

    def read(self, names: Collection[str]) -> Collection[str]:
        """With variables that an iteration reads as it finds them their elements."""
        found = {element for name, n in self.tuples.items() if name in names for element in _names(name, n)}
        return {*names, *found, *(e for name, x in self.lists.items() for e in _names(name, len(x)))}

    def give(self, values: Mapping[str, Any]) -> None:
        """Give variables and elements other values."""
        own = self.names
        plain = {name: x for name, x in values.items() if name not in own}
        for name, n in self.tuples.items():
            parts = [values[element] for element in _names(name, n)]
            plain[name] = UNBOUND if any(x is UNBOUND for x in parts) else tuple(parts)
        for name, x in self.lists.items():
            x[:] = [values[element] for element in _names(name, len(x))]
        set_locals(self.frame, plain)


def _names(name: str, n: int) -> list[str]:
    return [f"{name}[{k}]" for k in range(n)]


def set_locals(frame: types.FrameType, values: Mapping[str, Any]) -> None:
    """Give local variables of a running function other values, as a debugger does."""
    if not values:
        return
    seen = frame.f_locals
    seen.update(values)
    if sys.version_info < (3, 13):  # from then on `f_locals` writes through (PEP 667)
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
