"""Types whose use changes nothing: traced code gets such objects as they are."""

from __future__ import annotations

import enum
import numbers
import operator
import re
import struct
import types
from typing import Any

import numpy as np

# modules whose objects never change, or are functions
_MODULES = frozenset(
    "dataclasses datetime fractions hjit inspect ipaddress re types typing uarray uuid zoneinfo".split()
)
_CLASSES_OF = ("numpy.ma.core", "scipy._lib")  # likewise
_TYPES: tuple[Any, ...] = (
    type, enum.Enum, numbers.Number, str, bytes, type(None), type(...), type(NotImplemented), range, slice, tuple,
    frozenset, np.generic, np.dtype, np.finfo, np.iinfo, np.ufunc, np.vectorize, type(np._NoValue),
    re.Pattern, re.Match, struct.Struct, types.FunctionType, types.CodeType,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.GenericAlias, types.UnionType,
    operator.itemgetter, operator.attrgetter, operator.methodcaller,
    *{type(x) for x in (np.r_, np.c_, np.s_, np.mgrid, np.ogrid, np.sum)},
)  # fmt: skip
_BOUND = (types.BuiltinMethodType, types.MethodType, types.MethodWrapperType)


def is_harmless(value: Any) -> bool:
    """Is it immutable, or a method of an immutable object?"""
    if isinstance(value, _BOUND):
        owner = value.__self__
        return owner is None or isinstance(owner, types.ModuleType) or is_harmless(owner)
    cls = type(value)
    if isinstance(value, np.void):
        return False
    return (
        isinstance(value, _TYPES)
        or cls.__module__.partition(".")[0] in _MODULES
        or cls.__module__.startswith(_CLASSES_OF)
    )
