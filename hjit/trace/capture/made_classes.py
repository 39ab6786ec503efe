"""The user's classes: instances that traced code makes, and class attributes that it calls.

Their methods run as they are, which is enough for what asks traced arrays by NumPy's protocols. Where that fails, the
function is traced again with a class in the place of each: one that is derived from it, with clones of its functions.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from hjit.trace.capture.captured import NUMERIC, is_own, watched_class
from hjit.trace.tracing import forward
from hjit.trace.tracing.recording.recorder import Recorder, current

T = typing.TypeVar("T")
_METACLASSES = (type, abc.ABCMeta)
_ABOVE = (object, abc.ABC, typing.Generic)  # classes that may be bases and are not the user's
_HIDDEN = ("__init_subclass__",)  # a class that is derived does not go unnoticed
# what Python calls where a class is made, or an object ends
_LEFT = frozenset(("__class_getitem__", "__del__", "__prepare__"))


def traced_class(cls: Any) -> Any:
    """The stand-in for a class that traced code calls, or whose attributes it calls; the class itself if there is none.

    Args:
        cls: a class, or what traced code already has in the place of one.
    """
    rec = current()
    if type(cls) not in _METACLASSES or not _is_traceable(cls) or _asks_for_subclasses(cls):
        return cls
    if not rec.attempt.traces_methods:
        rec.findings.runs_methods = rec.attempt.traces_methods is None
        return cls
    if cls not in rec.clones.classes:
        made = rec.clones.classes[cls] = _derived(watched_class(cls))
        rec.watched.classes[made] = dict(vars(made))  # what is set there would have been set in the user's class
    return rec.clones.classes[cls]


def forget_classes(rec: Recorder) -> None:
    """A trace has ended: remove the classes made for it from the subclasses of the user's."""
    for made in rec.clones.classes.values():
        for other in (*_ALONE, *_with_slots_of(vars(made)["_hjit_class"])):
            with contextlib.suppress(TypeError):  # CPython takes one that is laid out in memory as the bases are
                made.__bases__ = (other,)
                break


def _with_slots_of(cls: type) -> Iterator[type]:
    """A class of nobody's whose objects are laid out in memory as those of `cls`, if that has slots."""
    slots = vars(cls).get("__slots__")
    if slots is not None:
        names = (slots,) if isinstance(slots, str) else tuple(slots)
        yield type(cls)(cls.__name__, cls.__bases__, {"__slots__": names})


class _Alone: ...


class _AloneAbstract(abc.ABC): ...  # noqa: B024


class _AloneGeneric(typing.Generic[T]): ...


_ALONE: tuple[type, ...] = (_Alone, _AloneAbstract, _AloneGeneric)  # classes of nobody's


def class_of(cls: type) -> type:
    """The user's class that a stand-in represents; any other class itself."""
    return getattr(cls, "_hjit_class", cls) if cls in current().clones.classes.values() else cls


def is_made(x: Any) -> bool:
    """Is this an instance of a stand-in for a user's class?"""
    return type(x) in current().clones.classes.values()


def _is_traceable(cls: type) -> bool:
    """Is this a plain class, all of whose bases are, and can one be derived from it without being noticed?"""
    own = [base for base in cls.__mro__ if base not in _ABOVE]
    return (
        bool(own)
        and all(_is_users(base) and vars(base).keys().isdisjoint(_HIDDEN) for base in own)
        and (len(own) == 1 or not any("__slots__" in vars(base) for base in own))  # see `_with_slots_of`
        and any(True for base in own for _ in _functions(base))
    )


def _asks_for_subclasses(cls: type) -> bool:
    """Does traced code, or a method of the class, ask for the subclasses of one? It would find those made here."""
    functions = (_function_of(value) for base in cls.__mro__ if is_own(base) for _, value in _functions(base))
    codes = (*current().codes, *(f.__code__ for f in functions if f is not None))
    return any("__subclasses__" in code.co_names for code in codes)


def _is_users(cls: type) -> bool:
    top = cls.__module__.partition(".")[0]
    return is_own(cls) and top not in sys.stdlib_module_names and top not in NUMERIC


def _functions(cls: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(cls).items():
        if name not in _LEFT and _function_of(value) is not None:
            yield name, value


def _function_of(value: Any) -> types.FunctionType | None:
    """The function that an attribute of a class is, or is made of."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, functools.cached_property):
        value = value.func
    elif isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    return value if isinstance(value, types.FunctionType) else None


def _derived(cls: type) -> type:
    """A class that is derived from `cls`, and from what stands for its bases, so that `super()` finds that."""
    bases = [b for b in map(traced_class, cls.__bases__) if b not in cls.__bases__]
    names: dict[str, Any] = {"__slots__": (), "_hjit_class": cls, "__class__": property(lambda self: cls)}
    for name in ("__module__", "__qualname__", "__doc__", "__hash__"):
        if name in vars(cls):
            names[name] = vars(cls)[name]
    clones: list[Any] = []
    for name, value in _functions(cls):
        names[name] = _cloned(value, clones)
    made = type(cls)(cls.__name__, (*bases, cls), names)
    for f in clones:
        for variable, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            if variable == "__class__":
                cell.cell_contents = made
    return made


def _cloned(value: Any, clones: list[Any]) -> Any:
    """A class attribute with its functions replaced by clones, which are noted."""

    def clone(f: Any) -> Any:
        if not isinstance(f, types.FunctionType):
            return f
        clones.append(forward.clone(f))
        return clones[-1]

    if isinstance(value, property):
        return property(clone(value.fget), clone(value.fset), clone(value.fdel), value.__doc__)
    if isinstance(value, (staticmethod, classmethod)):
        return type(value)(clone(value.__func__))
    if isinstance(value, functools.cached_property):
        return functools.cached_property(clone(value.func))
    return clone(value)
