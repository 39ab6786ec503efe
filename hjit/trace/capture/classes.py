"""Attributes of the user's classes: traced code has the classes themselves, so what it may read of them is guarded.

An attribute may be read where its name is one in the traced code, or in a method of the class, which runs as it is.
"""

from __future__ import annotations

import copy
import enum
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from hjit.trace.capture.captured import MAX_BYTES, PLAIN, AccessPath, class_attribute, guard, guard_absent, is_own
from hjit.trace.tracing.frames import instructions
from hjit.trace.tracing.recording.recorder import Recorder

_FUNCTIONS = (types.FunctionType, classmethod, staticmethod, property, type)


def guard_class_attributes(rec: Recorder) -> None:
    """Guard the attributes of classes that traced code has received."""
    classes = [cls for cls in rec.watched.met if not issubclass(cls, enum.Enum)]
    if not classes:
        return
    names, texts = _names([*rec.codes, *(code for cls in classes for code in _codes_of(cls))])
    for name in _counters(classes) - {n for code in rec.codes for n in code.co_names}:
        names.pop(name, None)
    for cls in classes:
        for name in (*names, *(t for t in texts if t not in names)):
            value = class_attribute(cls, name)
            if value is not None and not name.startswith("__") and not isinstance(value, _FUNCTIONS):
                _guard_attribute(rec, AccessPath(cls, name, "attr"), value)
            elif name in texts and not hasattr(cls, name):  # as of `getattr(cls, "name", 0)`
                guard_absent(AccessPath(cls, name, "attr"))


def _guard_attribute(rec: Recorder, path: AccessPath, value: Any) -> None:
    if hasattr(type(value), "__get__"):
        return
    if isinstance(value, np.ndarray):
        is_known = not value.dtype.hasobject and value.nbytes <= MAX_BYTES
    else:
        is_known = _is_plain(value)
    guard(rec, path, copy.deepcopy(value) if is_known else value, "value" if is_known else "identity")


def _is_plain(x: Any) -> bool:
    """Is it a plain value, or a built-in container of these?"""
    if type(x) in (list, tuple, set, dict):
        return len(x) <= MAX_BYTES and all(map(_is_plain, (*x, *x.values()) if type(x) is dict else x))
    return isinstance(x, PLAIN)


def _codes_of(cls: type) -> Iterator[types.CodeType]:
    for base in filter(is_own, cls.__mro__):
        for f in vars(base).values():
            f = f.fget if isinstance(f, property) else getattr(f, "__func__", f)
            if isinstance(f, types.FunctionType):
                yield f.__code__


def _counters(classes: Iterable[type]) -> set[str]:
    """What constructors change by ``+=``: a trace that had run one was refused, and objects are made between calls."""
    codes = {f.__code__ for cls in classes if isinstance(f := class_attribute(cls, "__init__"), types.FunctionType)}
    return {name for code in codes for name in _augmented(code)}


def _augmented(code: types.CodeType) -> Iterator[str]:
    before = ""
    for step in instructions(code):
        if step.opname == "STORE_ATTR" and before == "SWAP":
            yield code.co_names[step.arg]
        before = step.opname


def _names(codes: Iterable[types.CodeType]) -> tuple[dict[str, None], dict[str, None]]:
    """The names of attributes in code and in all that is defined in it, and the texts that could be such names."""
    names: dict[str, None] = {}
    texts: dict[str, None] = {}
    waiting, seen = list(codes), set()
    while waiting:
        code = waiting.pop()
        if id(code) in seen:
            continue
        seen.add(id(code))
        names |= dict.fromkeys(code.co_names)
        for x in code.co_consts:
            if isinstance(x, types.CodeType):
                waiting.append(x)
            elif isinstance(x, str) and x.isidentifier() and not x.startswith("__"):
                texts[x] = None
    return names, texts
