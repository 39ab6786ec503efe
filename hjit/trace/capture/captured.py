"""What a function reads besides its arguments: captured arrays are inputs, all other values are guarded.

An `AccessPath` says where a value was found, so that later calls can look there again. Objects of classes written in
Python are seen through a proxy; lists and dicts are copies that are watched for changes.
"""

from __future__ import annotations

import array
import collections
import contextvars
import copy
import enum
import io
import itertools
import logging
import operator
import os
import pathlib
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hjit.errors import InherentError
from hjit.trace.capture.harmless import is_harmless
from hjit.trace.capture.side_effects import effects
from hjit.trace.capture.side_effects.environment import VARIABLES, traced_path
from hjit.trace.capture.side_effects.impure import GENERATORS, NUMPY_GENERATORS, GeneratorProxy, PythonRandomProxy
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer, any_source
from hjit.trace.tracing.arrays.masked import MaskedRead
from hjit.trace.tracing.arrays.tracer import MAX_KNOWN, Tracer
from hjit.trace.tracing.complex_memory import supported_complex
from hjit.trace.tracing.externs.opaque import Opaque
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.recording.recorder import Recorder, current, supported_dtype
from hjit.trace.tracing.recording.state.watched import keys_of
from hjit.trace.tracing.scalars.host import HostScalar, static_value

MAX_ITEMS = 4096  # items of a captured container that are looked at; of a larger one only its identity is guarded
MAX_BYTES = 4096  # bytes of a captured array of a dtype that kernels do not have, which is compared at every call
NUMERIC = ("numpy", "scipy")
LIBRARY = frozenset(
    "dataclasses typing collections enum functools inspect abc contextlib warnings logging os re".split()
)
_VALUES = frozenset("pathlib fractions decimal datetime uuid ipaddress".split())  # whose objects never change


class AccessPath:
    """Where later calls find a captured value: a dict entry, an item, an attribute, a cell, an array's flag."""

    __slots__ = ("base", "kind", "name")

    def __init__(self, base: Any, name: Any, kind: str = "item") -> None:
        self.base, self.name, self.kind = base, name, kind

    def get(self) -> Any:
        base = self.base.get() if type(self.base) is AccessPath else self.base
        if self.kind == "item":
            return base[self.name]
        if self.kind == "flag":
            return getattr(base.flags, self.name, True)
        return base.cell_contents if self.kind == "cell" else getattr(base, self.name)

    def key(self) -> tuple[Any, ...]:
        """The identity of the path, which compares its first object by identity."""
        return (self.base.key() if type(self.base) is AccessPath else id(self.base), self.kind, self.name)

    def __str__(self) -> str:
        return str(self.name)


# -- captured values


PLAIN = (
    bool,
    int,
    float,
    str,
    bytes,
    type(None),
    np.generic,
    np.dtype,
    range,
    slice,
    complex,
    enum.Enum,
    frozenset,
    type(...),
)
_MUTABLE = (
    set,
    bytearray,
    collections.deque,
    array.array,
    memoryview,
    collections.UserList,
    collections.UserDict,
    collections.ChainMap,
    contextvars.ContextVar,
)
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_CONTAINERS = (list, *_DICTS, *_MUTABLE)


def wrap(value: Any, path: AccessPath) -> Any:
    """The stand-in of a captured value in traced code."""
    if isinstance(value, types.ModuleType):
        if not _is_lasting(value, path):
            guard(current(), path, value, "identity")
        return forward.module_proxy(value)
    if type(value) in (Tracer, ComplexTracer, HostScalar, MaskedRead):
        return value
    rec = current()
    if isinstance(value, np.ndarray):
        return _captured_array(rec, value, path, value)
    if type(value).__module__ == "cupy" and hasattr(value, "strides"):
        return _captured_array(rec, without_memory(value), path, value)
    if type(value) in (list, tuple, types.MappingProxyType, *_DICTS):
        return _captured_container(rec, value, path)
    if isinstance(value, np.void):
        guard(rec, path, value.copy(), "value")
        return captured_object(value, path)
    if isinstance(value, PLAIN):
        guard(rec, path, value, "value")
        return forward.dtype_seen(value) if isinstance(value, np.dtype) else value
    if (
        type(value) is set
        and path.kind != "leaf"
        and len(value) <= MAX_ITEMS
        and all(isinstance(x, PLAIN) for x in value)
    ):
        seen = set(value)
        guard(rec, path, set(value), "value")
        rec.watched.add(seen, str(path))
        return seen
    traced = forward.wrap_callable(value)
    guard(rec, path, value, "identity")
    if traced is not value:
        return traced
    return captured_object(value, path)


_USUAL_NAMES = {"np": "numpy", "sp": "scipy", "nd": "scipy.ndimage", "ndi": "scipy.ndimage"}


def _is_lasting(module: types.ModuleType, path: AccessPath) -> bool:
    """Is a module found by the name that all code has for it, or by NumPy's own code? It is not looked up again then,
    as a name such as `np` is never given to another module."""
    name = _USUAL_NAMES.get(path.name, path.name)
    is_usual = name in (module.__name__, module.__name__.rpartition(".")[2]) and not is_own(module)
    return (is_usual and path.kind != "attr") or _is_of_library(path)


def guard(rec: Recorder, path: AccessPath, value: Any, kind: str) -> None:
    """Guard a captured value: later calls compare its "value", its "identity", or the function of a bound "method"."""
    key = path.key()
    if key not in rec.captured.seen:
        rec.captured.seen[key] = value
        rec.captured.guards.append((path, (kind, value)))


def kept(x: Any) -> Any:
    """A value in a cache of the user's code, as traced code sees it: its arrays may differ at later calls.

    Small ones are constants of the trace, and compared with what they are now; large ones are read at every call.
    """
    if type(x) in (tuple, list) and any(isinstance(y, (np.ndarray, tuple, list)) for y in x):
        return type(x)(map(kept, x))
    if not isinstance(x, np.ndarray) or x.dtype.hasobject:
        return x
    path = AccessPath((x,), 0)
    if x.size > MAX_KNOWN:
        return wrap(x, path)
    guard(current(), path, x.copy(), "value")
    return x


def guard_absent(path: AccessPath) -> None:
    """Guard that a name is absent, except special names, which Python itself looks up."""
    key = ("absent", path.key())
    if key not in current().captured.seen and not str(path).startswith("__"):
        current().captured.seen[key] = None
        current().captured.guards.append((path, ("absent", None)))


def guard_present(path: AccessPath) -> None:
    """Guard that a name is present."""
    key = ("present", path.key())
    if key not in current().captured.seen:
        current().captured.seen[key] = None
        current().captured.guards.append((path, ("present", None)))


@provides
def guard_writeable(name: str, value: bool) -> None:
    """Guard whether the array of an input is writeable."""
    rec = current()
    kind, number = rec.inputs[name].where[:2]
    path = AccessPath(None, number, "leaf") if kind == "arg" else rec.captured.guards[number][0]
    guard(rec, AccessPath(path, "writeable", "flag"), value, "value")


def _captured_array(rec: Recorder, value: np.ndarray[Any, Any], path: AccessPath, original: Any) -> Any:
    """`original`: the array that `value` stands for."""
    key = path.key()
    if key not in rec.captured.seen:
        if id(original) in rec.caller.stand_ins:
            tracer = rec.caller.stand_ins[id(original)][1]
            rec.captured.guards.append((path, ("array", tracer.buffer.argument)))
            rec.captured.seen[key] = tracer
            return tracer
        plain = whole_array(value, str(path))
        if not supported_dtype(plain.dtype) and not supported_complex(plain.dtype):
            return _guarded_contents(rec, path, plain)
        number = len(rec.captured.guards)
        tracer = any_source(value, str(path) if str(path).isidentifier() else "captured", ("captured", number))
        rec.captured.guards.append((path, ("array", tracer.buffer.argument)))
        rec.captured.seen[key] = tracer
        rec.caller.stand_ins[id(original)] = original, tracer
    return rec.captured.seen[key]


def _guarded_contents(rec: Recorder, path: AccessPath, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A small array of a dtype that kernels do not support: a value, compared at later calls."""
    if value.nbytes > MAX_BYTES:
        raise rec.error(
            f"{path}: array of dtype {value.dtype}",
            "hjit handles bool, integers and floats up to 64 bits",
            "convert it first",
        )
    guard(rec, path, value.copy(), "value")
    rec.watched.add_all(value, str(path), is_own)
    return value


def without_memory(x: Any) -> np.ndarray[Any, Any]:
    """A stand-in for a device array: the same shape, dtype and strides, without memory."""
    return np.lib.stride_tricks.as_strided(np.zeros(1, x.dtype), x.shape, x.strides)


def whole_array(x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """`x` as a plain ndarray.

    Raises:
        TraceError: a subclass that computes in its own way, such as a masked array or a matrix.
    """
    if type(x) not in (np.ndarray, np.memmap):
        operation = f"{name}: {type(x).__module__}.{type(x).__name__}"
        advice = "pass x.filled(value), or x.data and x.mask" if np.ma.isMaskedArray(x) else "pass np.asarray(x)"
        raise current().error(operation, "a subclass of ndarray may compute in its own way", advice)
    return x.view(np.ndarray) if type(x) is np.memmap else x


def _captured_container(rec: Recorder, value: Any, path: AccessPath) -> Any:
    if len(value) > MAX_ITEMS:
        guard(rec, path, value, "identity")
        rec.watched.add_all(value, str(path), is_own)
        rec.caller.containers[id(value)] = value, path
        return value
    is_map = isinstance(value, (dict, types.MappingProxyType))
    names: Any = list(value) if is_map else range(len(value))
    held = [value[n] for n in names]
    key = "container", path.key(), id(value), tuple(names) if is_map else len(names)
    known, known_held = rec.captured.seen.get(key, (None, ()))
    if known is not None and all(map(operator.is_, held, known_held)):  # a list that the function changes stays changed
        return known
    _guard_shape(rec, path, container_shape(value))
    items = [wrap(x, AccessPath(path, n)) for n, x in zip(names, held, strict=True)]
    if type(value) is types.MappingProxyType:
        return types.MappingProxyType(dict(zip(names, items, strict=True)))
    seen = _copied_dict(value, items) if isinstance(value, dict) else type(value)(items)
    rec.watched.add(seen, str(path))
    rec.caller.containers[id(seen)] = seen, path
    rec.captured.seen[key] = seen, held
    return seen


def _copied_dict(value: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
    """A dict of the same class and, of a defaultdict, the same default."""
    seen = copy.copy(value)
    for name, item in zip(value, items, strict=True):
        seen[name] = item
    return seen


def _guard_shape(rec: Recorder, path: AccessPath, shape: Any) -> None:
    key = ("shape", path.key())
    if key not in rec.captured.seen:
        rec.captured.seen[key] = shape
        rec.captured.guards.append((path, ("shape", shape)))


def container_shape(value: Any) -> Any:
    """The guarded properties of a captured list, tuple or dict."""
    if isinstance(value, dict):
        keys = tuple(keys_of(value))
        return (type(value), keys, tuple(map(type, keys)))  # 1 and 1.0 are equal
    if type(value) is types.MappingProxyType:
        return (type(value), tuple(value))
    return (type(value), len(value)) if isinstance(value, (list, tuple)) else None


class ObjectProxy:
    """A captured object (`self`, a configuration): its arrays are inputs, its scalars guarded, its methods cloned."""

    __slots__ = ("_hjit_object", "_hjit_path")

    def __init__(self, value: Any, path: AccessPath) -> None:
        object.__setattr__(self, "_hjit_object", value)
        object.__setattr__(self, "_hjit_path", path)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(object.__getattribute__(self, "_hjit_object"))

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, "_hjit_object")
        if name == "__class__":  # `isinstance` asks for it, too
            return watched_class(type(value)) if type(sys._getframe(1).f_globals) is not dict else type(value)
        path = object.__getattribute__(self, "_hjit_path")
        found = class_attribute(type(value), name)
        function = forward.function_of(found)
        is_in_object = name in getattr(value, "__dict__", {})
        if isinstance(function, types.FunctionType) and not is_in_object:
            guard(current(), AccessPath(path, name, "attr"), found, "method")
            return types.MethodType(forward.clone(function), self)
        if isinstance(found, property) and found.fget is not None:
            guard(current(), AccessPath(AccessPath(path, "__class__", "attr"), name, "attr"), found, "identity")
            return forward.clone(found.fget)(self)
        if isinstance(found, classmethod):
            return types.MethodType(forward.wrap_callable(found.__func__), watched_class(type(value)))
        getter = class_attribute(type(found), "__get__")
        if isinstance(getter, types.FunctionType) and is_own(type(found)) and not is_in_object:
            owner = next(base for base in type(value).__mro__ if name in vars(base))
            return forward.clone(getter)(wrap(found, AccessPath(vars(owner), name)), self, watched_class(type(value)))
        asked = class_attribute(type(value), "__getattr__") if found is None and not name.startswith("__") else None
        if isinstance(asked, types.FunctionType) and not is_in_object:
            return forward.clone(asked)(self, name)
        try:
            plain = getattr(value, name)
        except AttributeError:
            guard_absent(AccessPath(path, name, "attr"))
            raise
        return wrap(plain, AccessPath(path, name, "attr"))

    def __setattr__(self, name: str, new: Any) -> None:
        raise outlives(f"self.{name} = ...", "an object")

    def __delattr__(self, name: str) -> None:
        raise outlives(f"del self.{name}", "an object")

    def __setitem__(self, key: Any, new: Any) -> None:
        raise outlives("self[...] = ...", "an object")

    def __delitem__(self, key: Any) -> None:
        raise outlives("del self[...]", "an object")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value = object.__getattribute__(self, "_hjit_object")
        method = forward.function_of(class_attribute(type(value), "__call__"))
        if isinstance(method, types.FunctionType):
            return forward.clone(method)(self, *args, **kwargs)
        if method is None:
            raise TypeError(f"'{type(value).__name__}' object is not callable")
        raise outlives("self(...)", "an object")

    def __getitem__(self, key: Any) -> Any:
        value, path = as_it_is(self), object.__getattribute__(self, "_hjit_path")
        found = class_attribute(type(value), "__getitem__")
        if isinstance(found, types.FunctionType):
            return forward.clone(found)(self, key)
        key = static_value(key)
        return wrap(value[key], AccessPath(path, key))

    def __iter__(self) -> Any:
        value = as_it_is(self)
        found = class_attribute(type(value), "__iter__")
        if isinstance(found, types.FunctionType):
            return forward.clone(found)(self)
        _guard_contents(self)
        if isinstance(value, dict):
            return iter(keys_of(value))
        if isinstance(value, (list, tuple)):
            return iter([self[k] for k in range(len(value))])
        if found is None and class_attribute(type(value), "__getitem__") is not None:
            return _items(self)
        raise (
            outlives("iter(self)", "an object")
            if found is not None
            else TypeError(f"'{type(value).__name__}' object is not iterable")
        )

    def __contains__(self, x: Any) -> bool:
        if class_attribute(type(as_it_is(self)), "__contains__") is not None:
            return bool(_special(self, "__contains__", x))
        return any(x is y or x == y for y in self)

    def __bool__(self) -> bool:
        cls = type(object.__getattribute__(self, "_hjit_object"))
        name = next((n for n in ("__bool__", "__len__") if class_attribute(cls, n) is not None), None)
        return True if name is None else bool(_special(self, name))

    def __eq__(self, other: object) -> Any:
        return _special(self, "__eq__", other)

    def __ne__(self, other: object) -> Any:
        return _special(self, "__ne__", other)

    def __hash__(self) -> int:
        return int(_special(self, "__hash__"))


def outlives(operation: str, what: str) -> Exception:
    reason = f"the function changes {what} that outlives it"
    return current().error(operation, reason, "return the value instead", InherentError)


def as_it_is(x: Any) -> Any:
    """A captured object itself."""
    return object.__getattribute__(x, "_hjit_object") if type(x) in (ObjectProxy, Opaque) else x


def _special(proxy: ObjectProxy, name: str, *args: Any) -> Any:
    """Call a special method of the object; if it is written in Python, it runs on the proxy, so that its reads are
    seen."""
    value = as_it_is(proxy)
    found = class_attribute(type(value), name)
    if isinstance(found, types.FunctionType):
        return forward.clone(found)(proxy, *args)
    if name == "__ne__" and isinstance(class_attribute(type(value), "__eq__"), types.FunctionType):
        equal = _special(proxy, "__eq__", *args)
        return equal if equal is NotImplemented else not equal
    if found is None:
        return NotImplemented if args else _refuse_special(value, name)
    if name in _IN_PLACE or getattr(getattr(found, "__objclass__", None), "__module__", "builtins") != "builtins":
        raise outlives(f"self.{name}", "an object")
    _guard_contents(proxy)
    return found.__get__(value, type(value))(*map(as_it_is, args))  # of a class itself, not of its instances


def _guard_contents(proxy: ObjectProxy) -> None:
    """Guard the length, or the keys, of a list, tuple or dict subclass."""
    shape = container_shape(as_it_is(proxy))
    if shape is not None:
        _guard_shape(current(), object.__getattribute__(proxy, "_hjit_path"), shape)


def _items(x: Any) -> Iterator[Any]:
    """The items of an object that is indexed by 0, 1, 2 ..."""
    for k in itertools.count():
        try:
            item = x[k]
        except IndexError:
            return
        yield item


def _refuse_special(value: Any, name: str) -> Any:
    raise TypeError(f"{type(value).__name__} has no {name}")


def _forward(name: str) -> Callable[..., Any]:
    def method(self: ObjectProxy, *args: Any) -> Any:
        return _special(self, name, *args)

    return method


_SPECIAL = """len str repr format lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv
    mod rmod pow rpow matmul rmatmul and rand or ror neg pos abs invert float int index round enter exit""".split()
_IN_PLACE = [f"__i{n}__" for n in "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()]


for _name in (*(f"__{name}__" for name in _SPECIAL), *_IN_PLACE):
    setattr(ObjectProxy, _name, _forward(_name))


def class_attribute(cls: type, name: str) -> Any:
    """The raw attribute of a class or its bases; None if there is none."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def captured_object(value: Any, path: AccessPath) -> Any:
    """A proxy for an instance of a class written in Python; any other value as it is."""
    cls = type(value)
    name = "argument" if path.kind == "leaf" else str(path)
    if isinstance(value, types.ModuleType):
        return forward.module_proxy(value)
    if cls in (types.MappingProxyType, *_DICTS):
        return _captured_container(current(), value, path)
    if isinstance(value, type):
        watched_class(value)
        if path.kind == "leaf":
            forward.check_output(value)
    if isinstance(value, np.void):  # an element of a structured array, which can be changed
        seen = value.copy()
        current().watched.add(seen, name)
        return seen
    if isinstance(value, NUMPY_GENERATORS):
        return GeneratorProxy(value)
    if isinstance(value, random.Random):
        return PythonRandomProxy(value)
    if isinstance(value, (types.BuiltinMethodType, types.MethodType)) and isinstance(value.__self__, GENERATORS):
        return forward.wrap_callable(value)
    if isinstance(value, (logging.Logger, logging.LoggerAdapter)):
        return effects.LoggerProxy(value)
    if value is os.environ:
        return VARIABLES
    if isinstance(value, pathlib.Path) and _is_library(cls):
        return traced_path(value)
    if isinstance(value, io.IOBase):
        return effects.RefusedFile(str(path))
    if isinstance(value, Iterator):
        raise current().error(
            f"{path}: {cls.__name__}",
            "each call takes items from an iterator that outlives it",
            "pass a list or a tuple",
        )
    if isinstance(value, types.BuiltinMethodType) and isinstance(value.__self__, _CONTAINERS):
        raise current().error(
            f"{path}: {value.__qualname__}",
            f"it may change a {type(value.__self__).__name__} that outlives the function",
            "return the value instead",
        )
    if isinstance(value, _MUTABLE):
        raise current().error(
            f"{name}: {cls.__name__}", "hjit cannot see when its contents change", "use a list, tuple or dict"
        )
    if isinstance(value, np.dtype):
        return forward.dtype_seen(value)
    if cls is types.SimpleNamespace:
        return ObjectProxy(value, path)
    if cls is type or (isinstance(value, type) and is_own(cls)):
        return forward.class_seen(value)
    if is_own(cls) and not isinstance(value, enum.Enum):
        return ObjectProxy(value, path)
    return value if is_harmless(value) or _is_of_library(path) else Opaque(value, name)


def _is_of_library(path: AccessPath) -> bool:
    """Does it belong to NumPy or SciPy, and is used by their code?"""
    base = path.base
    while type(base) is AccessPath:
        base = base.base
    module = base.get("__name__") if isinstance(base, dict) else getattr(base, "__module__", None)
    return (module or "").partition(".")[0] in NUMERIC


def watched_class(cls: type) -> type:
    """The class itself; its attributes, and what its methods reach, are watched for changes."""
    watched = current().watched
    if is_own(cls) and cls not in watched.met:
        watched.met[cls] = None
        watched.add_all(cls, cls.__name__, is_own)
    return cls


def is_own(x: Any) -> bool:
    """Does this class, function or module belong to the user, or to an unknown package?"""
    if not isinstance(x, type):
        top = ((x.__name__ if isinstance(x, types.ModuleType) else x.__module__) or "").partition(".")[0]
        return top not in NUMERIC and top not in sys.stdlib_module_names and top != "hjit"
    if x is np.poly1d or x.__module__.startswith("numpy.polynomial."):  # of Python code that can be traced
        return True
    return bool(x.__flags__ & (1 << 9)) and not _is_library(x) and not x.__module__.startswith("hjit.trace")


def _is_library(cls: type) -> bool:
    """Is this a class of the standard library, NumPy or SciPy?"""
    return cls.__module__.partition(".")[0] in LIBRARY | _VALUES | {"numpy", "scipy", "builtins"}
