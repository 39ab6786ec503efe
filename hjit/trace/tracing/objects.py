"""Objects of the user's classes that a function makes and returns: their fields, and new ones with other values."""

from __future__ import annotations

import abc
import sys
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_METACLASSES = (type, abc.ABCMeta)
_ABOVE = (object, abc.ABC, typing.Generic, typing.Protocol)  # classes that may be bases and are not the user's
_NOT_USERS = frozenset(("numpy", "scipy", "hjit", "builtins"))
# what sees how objects are made, or end, or hides what they hold
_HIDING = frozenset("__new__ __del__ __getattribute__ __reduce__ __reduce_ex__ __getstate__".split())


def is_record(cls: type) -> bool:
    """Is all that an object of this class holds in its `__dict__` and its slots?"""
    own = [base for base in cls.__mro__ if base not in _ABOVE]
    return type(cls) in _METACLASSES and bool(own) and all(map(_is_users, own))


def _is_users(cls: type) -> bool:
    if "_hjit_class" in vars(cls):
        return True  # it stands for a class of the user's, which is among those that it is derived from
    top = cls.__module__.partition(".")[0]
    is_python = bool(cls.__flags__ & (1 << 9))  # made by a statement
    is_others = top in _NOT_USERS or (top in sys.stdlib_module_names and top != "__main__")
    return is_python and not is_others and vars(cls).keys().isdisjoint(_HIDING - _of_dataclasses(cls))


def _of_dataclasses(cls: type) -> frozenset[str]:
    """What `dataclasses` adds to a frozen class with slots, for copies."""
    return frozenset(("__getstate__",)) if "__dataclass_fields__" in vars(cls) else frozenset()


def fields_of(x: Any) -> dict[str, Any] | None:
    """What an object holds, by name; None where it is not one of a user's class."""
    cls = type(x)
    if not is_record(cls):
        return None
    found = dict(getattr(x, "__dict__", {}))
    return found | {n: object.__getattribute__(x, n) for n in _slots(cls) if n not in found and _has(x, n)}


def _has(x: Any, name: str) -> bool:
    try:
        object.__getattribute__(x, name)
    except AttributeError:
        return False
    return True


def _slots(cls: type) -> tuple[str, ...]:
    found: list[str] = []
    for base in reversed(cls.__mro__):
        names = vars(base).get("__slots__", ())
        owner = base.__name__.lstrip("_")
        for n in (names,) if isinstance(names, str) else names:
            is_private = n.startswith("__") and not n.endswith("__") and owner
            found.append(f"_{owner}{n}" if is_private else n)
    return tuple(n for n in found if not n.startswith("__"))


@dataclass(frozen=True, slots=True)
class MakeObject:
    """Makes an object of a class from its fields. Its `__init__` has run while the function was traced."""

    cls: type
    slots: frozenset[str]

    @classmethod
    def of(cls, made: type) -> MakeObject:
        return cls(made, frozenset(_slots(made)))

    @property
    def __name__(self) -> str:
        return self.cls.__name__

    def __call__(self, fields: Iterable[tuple[str, Any]]) -> Any:
        made: Any = object.__new__(self.cls)
        for name, value in fields:
            if name in self.slots:
                object.__setattr__(made, name, value)
            else:
                made.__dict__[name] = value
        return made
