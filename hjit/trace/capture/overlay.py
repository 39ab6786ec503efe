"""Running a function under observation: clones of Python functions whose globals hand out tracing versions.

CPython looks globals up with ``__getitem__`` when they are a subclass of dict. A clone of the user's function with such
globals sees a tracing ``numpy``, tracing SciPy functions, clones of the Python functions it calls, and tracers for
the arrays it captures; nothing of the user's is changed, so tracing is thread-safe.
"""

from __future__ import annotations

import array
import builtins
import collections
import copy
import enum
import functools
import importlib
import io
import logging
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hjit.trace.capture import builtin_calls, effects
from hjit.trace.capture.constructors import called
from hjit.trace.capture.impure import STREAMS, Stream, draw, is_stream_method, of_opencv, replaced
from hjit.trace.tracing.dispatch import functions, provides
from hjit.trace.tracing.externs import concrete, opaque_call
from hjit.trace.tracing.foreign import foreign
from hjit.trace.tracing.host import HostScalar, is_host, is_run_time, settled, unpin
from hjit.trace.tracing.recorder import Recorder, current, supported_dtype
from hjit.trace.tracing.tracer import Selected, Tracer, from_source, has_tracer

_SAFE_BUILTINS = ("builtins", "_operator", "math", "time")  # they ask a tracer through Python's own protocols
_PACKAGES = ("numpy", "scipy")
_LIBRARY = frozenset(
    "dataclasses typing collections enum functools inspect abc contextlib warnings logging os re".split()
)
_VALUES = frozenset("pathlib fractions decimal datetime uuid ipaddress".split())  # whose objects never change
_OWN = ("hjit.trace", "hjit.kernels", "hjit.sched", "hjit.model", "hjit.pipeline", "hjit.variant", "hjit.options")


class Overlay(dict[str, Any]):
    """Globals of clones: the module's own, seen through `wrap`."""

    __slots__ = ("under",)

    def __init__(self, under: dict[str, Any]) -> None:
        super().__init__(__builtins__=_BUILTINS, __name__=under.get("__name__"))
        self.under = under

    def __getitem__(self, name: str) -> Any:
        if dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        if name in _CALLED and name not in self.under:
            return _called_or_class(name)
        value = self.under[name]
        seen = wrap(value, Path(self.under, name))
        return called(seen, sys._getframe(1)) if isinstance(value, (np.ufunc, type)) else seen

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or name in self.under

    def assigned(self) -> list[str]:
        """Globals that the function has set: CPython stores them without asking `__setitem__`."""
        return [name for name in self if name not in ("__builtins__", "__name__", "__warningregistry__")]


def _called_or_class(name: str) -> Any:
    """``float(x)`` is traced, ``dtype=float`` is the class: the bytecode that asks tells which."""
    frame = sys._getframe(2)
    is_call = frame.f_code.co_code[frame.f_lasti + 1] & 1
    return _CALLED[name] if is_call else getattr(builtins, name)


class Path:
    """Where a captured value is found at later calls: a dict entry, an attribute, a cell or an item."""

    __slots__ = ("base", "kind", "name")

    def __init__(self, base: Any, name: Any, kind: str = "item") -> None:
        self.base, self.name, self.kind = base, name, kind

    def get(self) -> Any:
        base = self.base.get() if type(self.base) is Path else self.base
        if self.kind == "item":
            return base[self.name]
        return base.cell_contents if self.kind == "cell" else getattr(base, self.name)

    def key(self) -> tuple[Any, ...]:
        return (self.base.key() if type(self.base) is Path else id(self.base), self.kind, self.name)

    def __str__(self) -> str:
        return str(self.name)


# -- captured values

_PLAIN = (
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
_MUTABLE = (set, bytearray, collections.deque, array.array, memoryview)
_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


def wrap(value: Any, path: Path) -> Any:
    """What traced code sees in place of a value that it captures."""
    if isinstance(value, types.ModuleType):
        return module_proxy(value)
    if type(value) in (Tracer, HostScalar, Selected):
        return value
    rec = current()
    if isinstance(value, np.ndarray):
        return _captured_array(rec, value, path)
    if type(value) in (list, tuple, *_DICTS):
        return _captured_container(rec, value, path)
    if isinstance(value, _PLAIN):
        _guard(rec, path, value, "value")
        return value
    if type(value) is set and path.kind != "leaf" and len(value) <= 4096 and all(isinstance(x, _PLAIN) for x in value):
        seen = set(value)
        _guard(rec, path, set(value), "value")
        rec.watch(seen, str(path))
        return seen
    traced = wrap_callable(value)
    if isinstance(value, type) and value not in rec.classes and value.__flags__ & (1 << 9) and not _is_library(value):
        rec.classes[value] = dict(vars(value))
    _guard(rec, path, value, "identity")
    if traced is not value:
        return traced
    return captured_object(value, path)


def _guard(rec: Recorder, path: Path, value: Any, kind: str) -> None:
    """Later calls compare what is found there: its "value", its "identity", or the function of a bound "method"."""
    key = path.key()
    if key not in rec.captured:
        rec.captured[key] = value
        rec.captures.append((path, (kind, value)))


def _captured_array(rec: Recorder, value: np.ndarray[Any, Any], path: Path) -> Any:
    key = path.key()
    if key not in rec.captured:
        for other, tracer in rec.captured.items():
            if type(tracer) is Tracer and rec.inputs[tracer.buffer.argument].array is value and other[0] != "array":
                rec.captured[key] = tracer
                rec.captures.append((path, ("array", tracer.buffer.argument)))
                return tracer
        plain = whole_array(value, str(path))
        if not supported_dtype(plain.dtype):
            return _guarded_contents(rec, path, plain)
        number = len(rec.captures)
        tracer = from_source(value, str(path) if str(path).isidentifier() else "captured", ("captured", number))
        rec.captures.append((path, ("array", tracer.buffer.argument)))
        rec.captured[key] = tracer
    return rec.captured[key]


def _guarded_contents(rec: Recorder, path: Path, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A small array of a dtype that kernels do not have: a value, compared at later calls."""
    if value.nbytes > 4096:
        raise rec.error(
            f"{path}: array of dtype {value.dtype}",
            "hjit handles bool, integers and floats up to 64 bits",
            "convert it first",
        )
    _guard(rec, path, value.copy(), "value")
    return value


def whole_array(x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """`x` without its class.

    Raises:
        TraceError: a subclass that computes in its own way, such as a masked array or a matrix.
    """
    if type(x) not in (np.ndarray, np.memmap):
        operation = f"{name}: {type(x).__module__}.{type(x).__name__}"
        raise current().error(operation, "a subclass of ndarray may compute in its own way", "pass np.asarray(x)")
    return x.view(np.ndarray) if type(x) is np.memmap else x


def _captured_container(rec: Recorder, value: Any, path: Path) -> Any:
    if len(value) > 4096:
        _guard(rec, path, value, "identity")
        return value
    names: Any = list(value) if isinstance(value, dict) else range(len(value))
    shape = (type(value), tuple(names) if isinstance(value, dict) else len(value))
    _guard_shape(rec, path, shape)
    items = [wrap(value[n], Path(path, n)) for n in names]
    seen = _copied_dict(value, items) if isinstance(value, dict) else type(value)(items)
    rec.watch(seen, str(path))
    return seen


def _copied_dict(value: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
    """A dict of the same class and, of a defaultdict, the same default."""
    seen = copy.copy(value)
    for name, item in zip(value, items, strict=True):
        seen[name] = item
    return seen


def _guard_shape(rec: Recorder, path: Path, shape: Any) -> None:
    key = ("shape", path.key())
    if key not in rec.captured:
        rec.captured[key] = shape
        rec.captures.append((path, ("shape", shape)))


def container_shape(value: Any) -> Any:
    """What is guarded of a captured list, tuple or dict."""
    if type(value) in _DICTS:
        return (type(value), tuple(value))
    return (type(value), len(value)) if type(value) in (list, tuple) else None


class ObjectProxy:
    """A captured object (`self`, a configuration): its arrays are inputs, its scalars guarded, its methods cloned."""

    __slots__ = ("_hjit_object", "_hjit_path")

    def __init__(self, value: Any, path: Path) -> None:
        object.__setattr__(self, "_hjit_object", value)
        object.__setattr__(self, "_hjit_path", path)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(object.__getattribute__(self, "_hjit_object"))

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, "_hjit_object")
        if name in ("__class__", "__dict__"):
            return getattr(value, name)
        path = object.__getattribute__(self, "_hjit_path")
        found = _class_attribute(type(value), name)
        if isinstance(found, types.FunctionType) and name not in getattr(value, "__dict__", {}):
            _guard(current(), Path(path, name, "attr"), found, "method")
            return types.MethodType(clone(found), self)
        if isinstance(found, property) and found.fget is not None:
            _guard(current(), Path(Path(path, "__class__", "attr"), name, "attr"), found, "identity")
            return clone(found.fget)(self)
        if isinstance(found, classmethod):
            return types.MethodType(clone(found.__func__), type(value))
        return wrap(getattr(value, name), Path(path, name, "attr"))

    def __setattr__(self, name: str, new: Any) -> None:
        raise current().error(
            f"self.{name} = ...", "the function changes an object that outlives it", "return the value instead"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value = object.__getattribute__(self, "_hjit_object")
        method = _class_attribute(type(value), "__call__")
        if isinstance(method, types.FunctionType):
            return clone(method)(self, *args, **kwargs)
        return value(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        value = object.__getattribute__(self, "_hjit_object")
        return wrap(value[unpin(key)], Path(object.__getattribute__(self, "_hjit_path"), unpin(key)))

    def __iter__(self) -> Any:
        return iter(object.__getattribute__(self, "_hjit_object"))

    def __contains__(self, x: Any) -> bool:
        if _class_attribute(type(_bare(self)), "__contains__") is not None:
            return bool(_special(self, "__contains__", x))
        return any(x is y or x == y for y in self)

    def __bool__(self) -> bool:
        cls = type(object.__getattribute__(self, "_hjit_object"))
        name = next((n for n in ("__bool__", "__len__") if _class_attribute(cls, n) is not None), None)
        return True if name is None else bool(_special(self, name))

    def __eq__(self, other: object) -> Any:
        return _special(self, "__eq__", other)

    def __ne__(self, other: object) -> Any:
        return _special(self, "__ne__", other)

    def __hash__(self) -> int:
        return int(_special(self, "__hash__"))


def _bare(x: Any) -> Any:
    """A captured object itself."""
    return object.__getattribute__(x, "_hjit_object") if type(x) is ObjectProxy else x


def _special(proxy: ObjectProxy, name: str, *args: Any) -> Any:
    """What a method that operators and built-in functions call gives: one in Python runs on the proxy, so that what it reads is seen."""
    value = _bare(proxy)
    found = _class_attribute(type(value), name)
    if isinstance(found, types.FunctionType):
        return clone(found)(proxy, *args)
    if name == "__ne__" and isinstance(_class_attribute(type(value), "__eq__"), types.FunctionType):
        equal = _special(proxy, "__eq__", *args)
        return equal if equal is NotImplemented else not equal
    if found is None:
        return NotImplemented if args else _refuse_special(value, name)
    return getattr(value, name)(*map(_bare, args))


def _refuse_special(value: Any, name: str) -> Any:
    raise TypeError(f"{type(value).__name__} has no {name}")


def _forward(name: str) -> Callable[..., Any]:
    def method(self: ObjectProxy, *args: Any) -> Any:
        return _special(self, name, *args)

    return method


_SPECIAL = """len str repr format lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul
    rmatmul and rand or ror neg pos abs invert float int index round enter exit""".split()
for _name in _SPECIAL:
    setattr(ObjectProxy, f"__{_name}__", _forward(f"__{_name}__"))


def _class_attribute(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def captured_object(value: Any, path: Path) -> Any:
    """A proxy for an instance of a class written in Python; any other value as it is."""
    cls = type(value)
    if isinstance(value, STREAMS):
        return Stream(value)
    if isinstance(value, (logging.Logger, logging.LoggerAdapter)):
        return effects.Log(value)
    if isinstance(value, io.IOBase):
        return effects.Output(str(path))
    if isinstance(value, Iterator):
        raise current().error(
            f"{path}: {cls.__name__}",
            "each call takes items from an iterator that outlives it",
            "pass a list or a tuple",
        )
    if isinstance(value, _MUTABLE):
        name = "argument" if path.kind == "leaf" else str(path)
        raise current().error(
            f"{name}: {cls.__name__}", "hjit cannot see when its contents change", "use a list, tuple or dict"
        )
    if cls is types.SimpleNamespace:
        return ObjectProxy(value, path)
    if isinstance(value, (enum.Enum, type)) or not cls.__flags__ & (1 << 9) or _is_library(cls):
        return value
    return ObjectProxy(value, path)


def _is_library(cls: type) -> bool:
    """Is this a class of the standard library, NumPy or SciPy?"""
    return cls.__module__.partition(".")[0] in _LIBRARY | _VALUES | {"numpy", "scipy", "builtins"}


# -- functions


@provides
def clone(function: types.FunctionType) -> Callable[..., Any]:
    """`function` over an overlay of its globals and of its closure."""
    closure = function.__closure__
    if closure:
        cells = []
        for name, cell in zip(function.__code__.co_freevars, closure, strict=True):
            try:
                cells.append(types.CellType(_captured_cell(function, name, cell)))
                current().cells.append((cells[-1], cells[-1].cell_contents, name))
            except ValueError:  # an empty cell: a name not yet bound
                cells.append(cell)
        closure = tuple(cells)
    twin = types.FunctionType(function.__code__, overlay(function.__globals__), function.__name__, None, closure)
    twin.__defaults__ = _defaults(function)
    kwdefaults = function.__kwdefaults__
    if kwdefaults:
        twin.__kwdefaults__ = {
            k: wrap(v, Path(Path(function, "__kwdefaults__", "attr"), k)) for k, v in kwdefaults.items()
        }
    twin.__dict__.update(function.__dict__)
    twin.__qualname__ = function.__qualname__
    return twin


def _captured_cell(function: types.FunctionType, name: str, cell: types.CellType) -> Any:
    """What is in a cell of a closure; a number of the user's is read at every call."""
    value, path, rec = cell.cell_contents, Path(cell, name, "cell"), current()
    if (
        rec.settled
        or is_host(value)
        or not is_run_time(value)
        or (function.__module__ or "").partition(".")[0] in _PACKAGES
    ):
        return wrap(value, path)
    key = path.key()
    if key not in rec.captured:
        rec.captured[key] = HostScalar.cell(rec.tape, cell)
    return rec.captured[key]


def _defaults(function: types.FunctionType) -> tuple[Any, ...] | None:
    if not function.__defaults__:
        return None
    base = Path(function, "__defaults__", "attr")
    return tuple(wrap(v, Path(base, k)) for k, v in enumerate(function.__defaults__))


def overlay(under: dict[str, Any]) -> Overlay:
    """The overlay of a module's globals; one per module and trace."""
    if type(under) is Overlay:
        return under
    overlays = current().overlays
    if id(under) not in overlays:
        overlays[id(under)] = Overlay(under)
    found: Overlay = overlays[id(under)]
    return found


def wrap_callable(value: Any) -> Any:
    """The traced version of a function, method or class; `value` itself where there is nothing to take over."""
    try:
        special = _REPLACED.get(value) or (_taken_over(value) if value in functions() else None)
    except TypeError:  # not hashable
        special = None
    if special is not None:
        return special
    if isinstance(value, types.FunctionType):
        top = (value.__module__ or "").partition(".")[0]
        if type(value.__globals__) is Overlay or top in _LIBRARY or (value.__module__ or "").startswith(_OWN):
            return value
        return _numpy_function(value) if top in _PACKAGES else clone(value)
    if isinstance(value, np.ufunc):
        return value
    if type(value).__name__ == "_ArrayFunctionDispatcher":
        return _numpy_function(value)
    if is_stream_method(value):
        return draw(value, value.__self__)
    if isinstance(value, types.MethodType) and isinstance(value.__func__, types.FunctionType):
        owner = value.__self__
        if isinstance(owner, (logging.Logger, logging.LoggerAdapter)):
            return getattr(effects.Log(owner), value.__name__)
        if isinstance(owner, (type, types.ModuleType)):
            return types.MethodType(clone(value.__func__), owner)
        return types.MethodType(clone(value.__func__), captured_object(owner, Path(value, "__self__", "attr")))
    if isinstance(value, functools.partial):
        return functools.partial(wrap_callable(value.func), *value.args, **value.keywords)
    if hasattr(value, "py_func") and isinstance(getattr(value, "py_func", None), types.FunctionType):
        return clone(value.py_func)
    if type(value) is _CACHE or (
        type(value).__module__ == "hjit.pipeline" and isinstance(value.__wrapped__, types.FunctionType)
    ):
        return _cached_function(value)
    if type(value).__module__ == "uarray" or type(value).__module__.startswith(
        "scipy._lib"
    ):  # scipy.fft's, which choose a back end
        return _numpy_function(value)
    if _is_compiled(value) and (value.__module__ or "?").partition(".")[0] not in _SAFE_BUILTINS:
        return foreign(value)
    return value


_CACHE = type(functools.lru_cache(_defaults))


def _is_compiled(value: Any) -> bool:
    """Is this a function of an extension module, Cython's included? OpenCV's know of no module, as methods of built-in objects do."""
    if isinstance(value, types.BuiltinFunctionType):
        return value.__module__ is not None or value.__self__ is None or isinstance(value.__self__, types.ModuleType)
    return type(value).__name__ in ("cython_function_or_method", "fused_cython_function")


def _cached_function(value: Any) -> Callable[..., Any]:
    """functools.lru_cache and its like: the cache cannot hold tracers, so traced arguments pass it by."""

    @functools.wraps(value.__wrapped__, updated=())
    def method(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = settled(args), settled(kwargs)
        if has_tracer(args) or has_tracer(kwargs):
            return clone(value.__wrapped__)(*args, **kwargs)
        return value(*args, **kwargs)

    return method


_OF_ELEMENTS = (np.where, np.clip)  # functions that treat numbers as ufuncs do


@functools.lru_cache(maxsize=4096)
def _taken_over(function: Any) -> Callable[..., Any]:
    """A function of the table: traced where an argument is, or where it makes an array."""
    traced = functions()[function]
    makes = getattr(traced, "makes_arrays", False)

    def method(*args: Any, **kwargs: Any) -> Any:
        if function not in _OF_ELEMENTS:
            args, kwargs = settled(args), settled(kwargs)
        if makes or has_tracer(args) or has_tracer(kwargs):
            return traced(*args, **kwargs)
        return concrete(function, args, kwargs)

    return functools.wraps(function, updated=())(method) if hasattr(function, "__name__") else method


@functools.lru_cache(maxsize=4096)
def _numpy_function(function: Any) -> Callable[..., Any]:
    """A NumPy or SciPy function that is not in the table: its own Python source is traced."""

    def method(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = settled(args), settled(kwargs)
        if has_tracer(args) or has_tracer(kwargs):
            return numpy_call(function, args, kwargs)
        return concrete(function, args, kwargs)

    return functools.wraps(function, updated=())(method)


@provides
def numpy_call(function: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy or SciPy function on tracers: by the table, else by tracing its source, else opaquely.

    Raises:
        TraceError: none of these is possible.
    """
    traced = functions().get(function)
    if traced is not None:
        return traced(*args, **kwargs)
    if isinstance(function, np.ufunc):
        return function(*args, **kwargs)
    module = getattr(function, "__module__", "") or ""
    name = f"{module}.{getattr(function, '__name__', function)}".replace("numpy._core.fromnumeric", "numpy").replace(
        "numpy.lib._", "numpy.lib._"
    )
    selected = next((a for a in args if type(a) is Selected), None)
    if selected is not None:
        return selected.__array_function__(function, (), args, kwargs)
    if module.startswith(_OPAQUE) and not (
        isinstance(function, types.FunctionType) and function.__name__.startswith("_")
    ):
        return opaque_call(name, function, args, kwargs)
    source = getattr(function, "_implementation", None) or getattr(function, "__wrapped__", function)
    source = _undispatched(source)
    if not isinstance(source, types.FunctionType):
        raise current().error(name, "hjit does not know this function")
    return clone(source)(*args, **kwargs)


_OPAQUE = (
    "numpy.fft",
    "numpy.linalg",
    "scipy.fft",
    "scipy.linalg",
    "scipy.special",
    "scipy.interpolate",
    "scipy.spatial",
    "scipy.optimize",
)


def _undispatched(function: Any) -> Any:
    """The implementation behind NumPy's dispatcher for `__array_function__`."""
    if type(function).__name__ == "_ArrayFunctionDispatcher":
        return getattr(function, "_implementation", function)
    return function


# -- modules


class ModuleProxy(types.ModuleType):
    """A module whose attributes are seen through `wrap`."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(module.__name__)
        object.__setattr__(self, "_hjit_module", module)

    def __getattribute__(self, name: str) -> Any:
        module = object.__getattribute__(self, "_hjit_module")
        if name in ("__dict__", "__class__", "__name__", "__spec__", "__path__", "__file__"):
            return getattr(module, name)
        cache = object.__getattribute__(self, "__dict__")
        seen = cache[name] if name in cache else _attribute(module, name, cache)
        return called(seen, sys._getframe(1)) if isinstance(seen, (np.ufunc, type)) else seen


def _attribute(module: types.ModuleType, name: str, cache: dict[str, Any]) -> Any:
    """What stands for a module's attribute; kept in `cache` where that is the same in all traces."""
    value = getattr(module, name)
    if isinstance(value, types.ModuleType):
        seen: Any = module_proxy(value)
    elif _replaced(value):
        seen = wrap_callable(value)
    elif module.__name__.partition(".")[0] in _PACKAGES and callable(value):
        seen = value if isinstance(value, (np.ufunc, type)) else wrap_callable(value)
    else:
        return wrap(value, Path(module, name, "attr"))
    cache[name] = seen
    return seen


def _replaced(value: Any) -> bool:
    try:
        return value in _REPLACED or value in functions()
    except TypeError:
        return False


_modules: dict[str, Any] = {}
_SEEN_THROUGH = frozenset({"builtins", "types", "functools", "itertools", "typing", "collections", "operator"})


def module_proxy(module: types.ModuleType) -> Any:
    """The traced view of a module."""
    name = module.__name__
    if name in effects.MODULES:
        return effects.MODULES[name]
    if type(module) in (ModuleProxy, effects.PartProxy) or name.partition(".")[0] in _SEEN_THROUGH | {"hjit"}:
        return module
    if name.startswith("scipy."):
        load_table()
    found = _modules.get(name)
    if found is None or object.__getattribute__(found, "_hjit_module") is not module:
        found = _modules[name] = ModuleProxy(module)
    return found


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    under = globals.under if type(globals) is Overlay else globals
    return module_proxy(builtins.__import__(name, under, locals, fromlist, level))


# -- builtins


_REPLACED: dict[Any, Any] = {**replaced(), **builtin_calls.REPLACED, **effects.replaced()}
_BUILTINS: dict[str, Any] = dict(vars(builtins))
_BUILTINS.update(__import__=_import)
for _name in ("range", "len", "isinstance", "hasattr", "getattr", "print", "open", "input"):
    _BUILTINS[_name] = _REPLACED[getattr(builtins, _name)]
_CALLED = builtin_calls.CALLED  # these names are classes where they are not called


# the modules of `hjit.trace.ops` that fill the table of traced functions; the last ones where a process has loaded SciPy's
_FAMILIES = """elementwise.ufuncs elementwise.casting elementwise.formulas elementwise.operators
    arrays.creation arrays.views arrays.strides arrays.joining
    indexing.getitem indexing.gathers indexing.scatters indexing.searching indexing.histograms
    reductions.reduce reductions.sorting reductions.contractions reductions.apply_along_axis
    stencils.padding stencils.differences""".split()


def load_table() -> None:
    """Import the modules that fill the table of traced functions."""
    for name in _FAMILIES:
        importlib.import_module(f"hjit.trace.ops.{name}")
    for name in ("ndimage", "signal"):  # a process that does not use SciPy does not load it
        if f"scipy.{name}" in sys.modules:
            importlib.import_module(f"hjit.trace.ops.stencils.{name}")
    if "cv2" in sys.modules:
        _REPLACED.update(of_opencv(sys.modules["cv2"]))
    special = sys.modules.get("scipy.special")
    if hasattr(special, "errstate"):
        _REPLACED[special.errstate] = effects.errors(special.errstate, "scipy.special.errstate")
    creation = sys.modules["hjit.trace.ops.arrays.creation"]
    _REPLACED[np.mgrid], _REPLACED[np.ogrid] = creation.mgrid, creation.ogrid
