"""Running a function under observation: clones of Python functions whose globals return traced versions.

CPython looks globals up with ``__getitem__`` when they are a subclass of dict. A clone of the user's function with such
globals sees a tracing ``numpy``, tracing SciPy functions, clones of the Python functions it calls, and tracers for
the arrays it captures; nothing of the user's is changed, so tracing is thread-safe.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import logging
import random
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.capture import builtin_calls
from hjit.trace.capture.captured import (
    LIBRARY,
    NUMERIC,
    AccessPath,
    captured_object,
    guard,
    guard_absent,
    guard_present,
    is_own,
    kept,
    outlives,
    wrap,
)
from hjit.trace.capture.constructors import called, class_seen
from hjit.trace.capture.cupy_names import numpy_of
from hjit.trace.capture.harmless import is_harmless
from hjit.trace.capture.loops.bytecode import (
    APPEND,
    BEGIN,
    BOTH,
    CHOOSE,
    CHOOSES,
    CONTAINS,
    EITHER,
    FILLED,
    INDEXED,
    JOINED,
    LEAVES,
    ONCE,
    OTHERWISE,
    PLUS,
    SORT,
    STACKED,
    TRUTH,
    UNSET,
    WHILE,
)
from hjit.trace.capture.loops.iterators import leaves, while_
from hjit.trace.capture.loops.rewriting import appends, branches, choices, dicts, hoisting, indexing, stacks
from hjit.trace.capture.loops.rewriting.exits import code_of
from hjit.trace.capture.made_attributes import made_attribute
from hjit.trace.capture.numpy_calls import dispatched, numpy_function
from hjit.trace.capture.side_effects import effects, environment
from hjit.trace.capture.side_effects.impure import (
    PythonRandomProxy,
    ThreadClass,
    draw,
    is_generator_method,
    of_loaded_modules,
    replaced,
)
from hjit.trace.splitting.decorated import python_original
from hjit.trace.tracing import forward
from hjit.trace.tracing.arrays.tracer import has_tracer
from hjit.trace.tracing.dispatch import functions, is_dispatched
from hjit.trace.tracing.externs.foreign import foreign
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.frames import compared, is_installed, mapped
from hjit.trace.tracing.recording.recorder import current, tracing
from hjit.trace.tracing.scalars.host import HostScalar, is_host, is_run_time, known_number, static_captured

# modules of compiled functions that ask a tracer through Python's own protocols
_SAFE_BUILTINS = ("builtins", "_operator", "_functools", "itertools", "math", "time", "_heapq", "_bisect")
# of these the traced code sees the same thing each time; of a list it gets another copy
_LASTING = (types.ModuleType, types.FunctionType, type, np.ufunc, bool, int, float, str, type(None))
_OWN = ("hjit.trace", "hjit.kernels", "hjit.sched", "hjit.model", "hjit.pipeline", "hjit.call", "hjit.options")


class Overlay(dict[str, Any]):
    """Globals of clones: the module's own, seen through `wrap`."""

    __slots__ = ("_known", "under")

    def __init__(self, under: dict[str, Any]) -> None:
        super().__init__(__builtins__=_BUILTINS, __name__=under.get("__name__"))
        self.under = under
        self._known: dict[str, tuple[Any, Any]] = {}  # what was wrapped, and how it is seen

    def __getitem__(self, name: str) -> Any:
        if dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        if name not in self.under:
            if name not in _BUILTINS or (name in _PYTHONS and _is_users(self.under)):
                guard_absent(AccessPath(self.under, name))
            if name in _CALLED:
                return _called_or_class(name, self.under)
            raise KeyError(name)
        value = self.under[name]
        known, seen = self._known.get(name, (self, None))
        if known is not value:
            seen = wrap(value, AccessPath(self.under, name))
            if isinstance(value, _LASTING):
                self._known[name] = value, seen
        return called(seen, sys._getframe(1)) if isinstance(value, (np.ufunc, type)) or type(seen) is np.ufunc else seen

    def __contains__(self, name: object) -> bool:
        if dict.__contains__(self, name):
            return True
        if tracing():
            (guard_present if name in self.under else guard_absent)(AccessPath(self.under, name))
        return name in self.under

    def get(self, name: str, default: Any = None) -> Any:
        if not tracing() or name.startswith("__"):  # the standard library asks, for the text of an error
            return self.under.get(name, default)
        is_there = name in self
        return self[name] if is_there else default

    def assigned(self) -> list[str]:
        """Globals that the function has set: CPython stores them without asking `__setitem__`."""
        return [name for name in self if name not in ("__builtins__", "__name__", "__warningregistry__")]


_PYTHONS = frozenset(vars(builtins))


def _is_users(names: dict[str, Any]) -> bool:
    """Are these the globals of a module that may be given another function in place of a built-in one?"""
    return (names.get("__name__") or "").partition(".")[0] not in NUMERIC


_USES_OF_TYPE = frozenset(("isinstance", "issubclass", "map"))


def _called_or_class(name: str, names: dict[str, Any]) -> Any:
    """``float(x)`` is traced, ``dtype=float`` is the class: the bytecode of the caller tells which.

    `type` itself is handed out where it is compared only: in a variable it would be called with a traced array.

    Args:
        names: globals of the code that asks.
    """
    frame = sys._getframe(2)
    if frame.f_code.co_code[frame.f_lasti + 1] & 1:
        return _CALLED[name]
    cls = getattr(builtins, name)
    is_compared = frame.f_lasti in compared(frame.f_code) or frame.f_lasti in mapped(frame.f_code)
    return class_seen(cls) if cls is type and (not is_compared or _USES_OF_TYPE & names.keys()) else cls


# -- functions


@provides
def clone(function: types.FunctionType) -> Callable[..., Any]:
    """`function` over an overlay of its globals and of its closure."""
    rec = current()
    if function in rec.clones.functions:  # or it refers to itself
        return rec.clones.functions[function]
    rec.codes[function.__code__] = None
    cells = [_filled_later(cell) for cell in function.__closure__ or ()]
    closure = tuple(cells) if function.__closure__ is not None else None
    is_library = (function.__module__ or "").partition(".")[0] in NUMERIC
    chooses = rec.attempt.chooses or rec.attempt.chooses_unrolled
    code = function.__code__ if is_library else code_of(function, chooses, rec.attempt.branches)
    if not is_installed(function.__code__):  # notebooks that load modules again change the code of their functions
        guard(rec, AccessPath(function, "__code__", "attr"), function.__code__, "identity")
    cloned = types.FunctionType(code, overlay(function.__globals__), function.__name__, None, closure)
    rec.clones.functions[function] = cloned
    try:
        for name, cell, own in zip(function.__code__.co_freevars, function.__closure__ or (), cells, strict=True):
            if own is not cell:
                own.cell_contents = _seen(function, cell.cell_contents, AccessPath(cell, name, "cell"))
                if name != "__class__":  # which no code changes
                    rec.watched.cells.append((own, own.cell_contents, name))
        cloned.__defaults__ = _defaults(function, "__defaults__")
        cloned.__kwdefaults__ = _defaults(function, "__kwdefaults__")
    except BaseException:
        del rec.clones.functions[function]
        raise
    if closure is not None or type(function.__globals__) is Overlay:  # the traced code may change what is in its cells
        del rec.clones.functions[function]
    cloned.__dict__.update(function.__dict__)
    if not is_library:
        for n, v in function.__dict__.items():
            if not n.startswith("__"):
                cloned.__dict__[n] = wrap(v, AccessPath(function, n, "attr"))
    rec.watched.add(cloned.__dict__, f"attributes of {function.__name__}")
    cloned.__qualname__ = function.__qualname__
    return cloned


def _filled_later(cell: types.CellType) -> types.CellType:
    """A cell for what the trace sees; the same one where it has nothing yet: a name that is not bound."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return cell
    return types.CellType()


def _seen(function: Any, value: Any, path: AccessPath) -> Any:
    """The contents of a function's closure or defaults; numbers are read at every call."""
    rec = current()
    is_library = (getattr(function, "__module__", None) or "").partition(".")[0] in NUMERIC
    if rec.attempt.freeze_captured or is_library or is_host(value) or not is_run_time(value):
        return wrap(value, path)
    key = path.key()
    if key not in rec.captured.seen:
        rec.captured.seen[key] = HostScalar.found(rec.tape, path, value)
    return rec.captured.seen[key]


def _defaults(function: Any, name: str) -> Any:
    """The values in a tuple or a dict of a function: `__defaults__`, or what a partial adds."""
    base, values = AccessPath(function, name, "attr"), getattr(function, name)
    if isinstance(values, dict):
        return {k: _seen(function, v, AccessPath(base, k)) for k, v in values.items()}
    return tuple(_seen(function, v, AccessPath(base, k)) for k, v in enumerate(values)) if values else values


class Partial(functools.partial):  # type: ignore[type-arg]
    """A partial of the traced function. What it adds is seen, as defaults are, where it is called or asked for that:
    tables may hold many that never are, with much data."""

    def __new__(cls, value: functools.partial[Any]) -> Partial:
        self = super().__new__(cls, value.func)
        self.__dict__["original"] = value
        return self

    @functools.cached_property
    def seen(self) -> functools.partial[Any]:
        """The partial itself."""
        value = self.__dict__["original"]
        seen = functools.partial(wrap_callable(value.func), *_defaults(value, "args"), **_defaults(value, "keywords"))
        current().watched.add(seen.keywords, "keywords of a partial")
        return seen

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.seen(*args, **kwargs)

    def __reduce__(self) -> Any:  # of copies
        return self.seen.__reduce__()

    func = property(lambda self: self.seen.func)
    args = property(lambda self: self.seen.args)
    keywords = property(lambda self: self.seen.keywords)


def overlay(under: dict[str, Any]) -> Overlay:
    """The overlay of a module's globals; one per module and trace."""
    if type(under) is Overlay:
        return under
    overlays = current().clones.overlays  # by identity: the globals of a module are one dict, which does not hash
    if id(under) not in overlays:
        overlays[id(under)] = Overlay(under)
    found: Overlay = overlays[id(under)]
    return found


def replacement(value: Any) -> Any:
    """The replacement of a function that is traced without its source, or None."""
    try:
        return _REPLACED.get(value) or (dispatched(value) if value in functions() else None)
    except TypeError:  # not hashable
        return None


@provides
def wrap_callable(value: Any) -> Any:
    """The traced version of a function, method or class; `value` itself if there is nothing to replace."""
    if value is type:
        class_seen(value)
    value = numpy_of(value)
    special = replacement(value)
    if special is not None:
        return special
    if isinstance(value, types.FunctionType):
        top = (value.__module__ or "").partition(".")[0]
        if type(value.__globals__) is Overlay or top in LIBRARY or (value.__module__ or "").startswith(_OWN):
            return value
        return numpy_function(value) if top in NUMERIC else clone(value)
    if isinstance(value, np.ufunc):
        return value
    if is_dispatched(value):
        return numpy_function(value)
    if not callable(value):  # and may answer questions in its own way
        return value
    if isinstance(value, type) and issubclass(value, threading.Thread):
        return ThreadClass(value)
    if is_generator_method(value):
        return draw(value, value.__self__)
    if isinstance(getattr(value, "__self__", None), random.Random):
        return getattr(PythonRandomProxy(value.__self__), value.__name__, None)
    if isinstance(value, types.MethodType) and isinstance(function_of(value.__func__), types.FunctionType):
        owner, function = value.__self__, function_of(value.__func__)
        if isinstance(owner, (logging.Logger, logging.LoggerAdapter)):
            return getattr(effects.LoggerProxy(owner), value.__name__)
        if isinstance(owner, (type, types.ModuleType)):
            return types.MethodType(clone(function), owner)
        return types.MethodType(clone(function), captured_object(owner, AccessPath(value, "__self__", "attr")))
    if isinstance(value, functools.partial):
        return Partial(value)
    if type(value) is np.vectorize:
        return forward.vectorized(value)
    if function_of(value) is not value:
        return _of_pipeline(value)
    if type(value) is _CACHE:
        return _cached_function(value)
    # functions of scipy.fft, which choose a back end
    if type(value).__module__ == "uarray" or type(value).__module__.startswith("scipy._lib"):
        return numpy_function(value)
    if _is_compiled(value) and (value.__module__ or "?").partition(".")[0] not in _SAFE_BUILTINS:
        if value.__module__ in _COMPILED_LATE:
            importlib.import_module(f"hjit.trace.ops.{_COMPILED_LATE[value.__module__]}")
        return foreign(value)
    return value


@provides
def function_of(value: Any) -> Any:
    """The original function of a pipeline, or of one decorated by another compiler; else `value` itself."""
    given = python_original(value)
    is_own = type(value).__module__ == "hjit.pipeline"
    return given if isinstance(given, types.FunctionType) or is_own else value


def _of_pipeline(value: Any) -> Any:
    """The traced version of a pipeline: of what it was made of, which it also gives out; one for each pipeline."""
    pipelines = current().clones.pipelines
    if id(value) in pipelines:
        return pipelines[id(value)][1]
    given = function_of(value)
    inner = wrap(given, AccessPath(value, "py_func", "attr")) if not isinstance(given, types.FunctionType) else None

    def method(*args: Any, **kwargs: Any) -> Any:
        return (clone(given) if inner is None else inner)(*args, **kwargs)

    functools.update_wrapper(method, given, ("__name__", "__qualname__", "__doc__"), ())
    method.__wrapped__ = method.py_func = method  # type: ignore[attr-defined]
    pipelines[id(value)] = value, method
    return method


def is_traced_call(frame: types.FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is a pipeline called by traced code, or with traced arrays?"""
    return tracing() and (type(frame.f_globals) is Overlay or has_tracer(args) or has_tracer(kwargs))


# modules of compiled functions, and what stands for these: loaded where traced code meets one of them
_COMPILED_LATE = {"skimage.transform._warps_cy": "geometry.skimage_warp"}
_CACHE = type(functools.lru_cache(clone))


def _is_compiled(value: Any) -> bool:
    """Is this a function of an extension module, Cython's included? OpenCV's have no `__module__`."""
    if isinstance(value, types.BuiltinFunctionType):
        return value.__module__ is not None or value.__self__ is None or isinstance(value.__self__, types.ModuleType)
    return type(value).__name__ in ("cython_function_or_method", "fused_cython_function")


def _cached_function(value: Any) -> Callable[..., Any]:
    """functools.lru_cache and the like: the cache cannot hold tracers, so traced arguments bypass it."""

    @functools.wraps(value.__wrapped__, updated=())
    def method(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = static_captured(args), static_captured(kwargs)
        if has_tracer(args) or has_tracer(kwargs):
            return wrap_callable(value.__wrapped__)(*args, **kwargs)  # Python's, or of an extension module
        return kept(value(*known_number(args), **{k: known_number(x) for k, x in kwargs.items()}))

    return method


# -- modules


class ModuleProxy(types.ModuleType):
    """A module whose attributes are seen through `wrap`."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(module.__name__)
        object.__setattr__(self, "_hjit_module", module)
        object.__setattr__(self, "_hjit_first", {} if is_own(module) else dict(vars(module)))
        object.__setattr__(self, "_hjit_seen", {})  # attributes, and how all traces see them

    def __getattribute__(self, name: str) -> Any:
        module = object.__getattribute__(self, "_hjit_module")
        if name in ("__dict__", "__class__", "__name__", "__spec__", "__path__", "__file__"):
            return getattr(module, name)
        value, seen = object.__getattribute__(self, "_hjit_seen").get(name, _UNSEEN)
        if vars(module).get(name) is not value:
            seen = _attribute(self, module, name, sys._getframe(1).f_globals)
        return called(seen, sys._getframe(1)) if isinstance(seen, (np.ufunc, type)) else seen

    def __setattr__(self, name: str, new: Any) -> None:
        raise outlives(f"{self.__name__}.{name} = ...", "a module")

    def __delattr__(self, name: str) -> None:
        raise outlives(f"del {self.__name__}.{name}", "a module")


_UNSEEN = (object(), None)


def _attribute(proxy: ModuleProxy, module: types.ModuleType, name: str, names: dict[str, Any]) -> Any:
    """The stand-in of a module's attribute, which the proxy keeps if it is the same in all traces.

    Attributes of the user's modules are guarded, and so are those of NumPy, SciPy and the standard library that are not
    what they were at first: a test has put something else there, for a while.

    Args:
        names: globals of the code that uses it.
    """
    is_numeric = module.__name__.partition(".")[0] in NUMERIC
    try:
        value, found_at = made_attribute(module, name, names)
    except AttributeError:
        if not is_numeric:
            guard_absent(AccessPath(module, name, "attr"))
        raise
    path = found_at or AccessPath(module, name, "attr")
    first = object.__getattribute__(proxy, "_hjit_first")
    if is_own(module) or (name in first and first[name] is not value):
        return wrap(value, path)
    if isinstance(value, types.ModuleType):
        seen: Any = module_proxy(value)
    elif _replaced(value):
        seen = wrap_callable(value)
    elif is_numeric and callable(value) and is_harmless(value):
        seen = value if isinstance(value, (np.ufunc, type)) else wrap_callable(value)
    else:
        return wrap(value, path)
    if found_at is None:
        object.__getattribute__(proxy, "_hjit_seen")[name] = value, seen
    return seen


def _replaced(value: Any) -> bool:
    try:
        return value in _REPLACED or value in functions()
    except TypeError:
        return False


_modules: dict[str, Any] = {}
_SEEN_THROUGH = frozenset({"types", "functools", "typing", "collections", "operator"})


@provides
def module_proxy(module: types.ModuleType) -> Any:
    """The traced view of a module."""
    if numpy_of(module) is not module:
        return _cupy_proxy(module)
    name = module.__name__
    if name in effects.MODULES:
        return effects.MODULES[name]
    if type(module) in (ModuleProxy, effects.PatchedModule) or name.partition(".")[0] in _SEEN_THROUGH | {"hjit"}:
        return module
    if name.startswith("scipy."):
        _load_scipy()
    found = _modules.get(name)
    if found is None or object.__getattribute__(found, "_hjit_module") is not module:
        found = _modules[name] = ModuleProxy(module)
    return found


def _cupy_proxy(module: types.ModuleType) -> Any:
    """The view of a module of CuPy: NumPy's or SciPy's own."""
    here = numpy_of(module)
    found = module_proxy(here) if here is not np else _modules.get("cupy")
    if found is None:
        found = _modules["cupy"] = ModuleProxy(here)
        object.__getattribute__(found, "_hjit_seen")["get_array_module"] = None, lambda *args: found
    return found


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    under = globals.under if type(globals) is Overlay else globals
    module = builtins.__import__(name, under, locals, fromlist, level)
    _REPLACED.update(of_loaded_modules())
    return module_proxy(module)


# -- builtins


_REPLACED: dict[Any, Any] = {**replaced(), **builtin_calls.REPLACED, **effects.replaced(), **environment.replaced()}
_BUILTINS: dict[str, Any] = dict(vars(builtins))
_BUILTINS.update({"__import__": _import, LEAVES: leaves, WHILE: while_, APPEND: appends.append, SORT: hoisting.sort})
_BUILTINS.update({INDEXED: indexing.indexed, STACKED: stacks.stacked})
_BUILTINS.update({FILLED: dicts.filled, CONTAINS: dicts.contains, PLUS: dicts.plus})
_BUILTINS.update({CHOOSES: choices.chooses, CHOOSE: choices.choose, BOTH: choices.both, EITHER: choices.either})
_BUILTINS.update({BEGIN: branches.begin, TRUTH: branches.truth, JOINED: branches.joined})
_BUILTINS.update({ONCE: branches.once, OTHERWISE: branches.otherwise, UNSET: branches.unset})


for _name in (
    "range enumerate zip len isinstance hasattr getattr callable max min sum round sorted divmod print open input"
).split():
    _BUILTINS[_name] = _REPLACED[getattr(builtins, _name)]
_BUILTINS["type"] = builtin_calls.CALLED["type"]  # of bodies of classes and `eval`, which do not ask the overlay


_CALLED = builtin_calls.CALLED  # these names are classes where they are not called
# the modules of `hjit.trace.ops` that fill the table of traced functions
_FAMILIES = """elementwise.ufuncs elementwise.casting elementwise.formulas elementwise.operators elementwise.vectorized
    arrays.creation arrays.views arrays.strides arrays.joining arrays.packing
    indexing.getitem indexing.gathers indexing.scatters indexing.searching indexing.histograms
    indexing.masked_reads indexing.masked_indexing
    indexing.selections indexing.compaction
    reductions.reduce reductions.sorting reductions.quantiles reductions.contractions reductions.apply_along_axis
    stencils.padding stencils.differences
    complex_numbers.ufuncs complex_numbers.arrays complex_numbers.reductions complex_numbers.fft""".split()


def load_table() -> None:
    """Import the modules that fill the table of traced functions."""
    _load_families()
    _load_scipy()
    _REPLACED.update(of_loaded_modules())
    module_proxy(np)  # has NumPy's own functions, before somebody replaces one


@functools.cache
def _load_families() -> None:
    for name in _FAMILIES:
        importlib.import_module(f"hjit.trace.ops.{name}")
    importlib.import_module("hjit.trace.capture.side_effects.library_warnings")  # provides what extern calls ask for
    creation, joining = (sys.modules[f"hjit.trace.ops.arrays.{name}"] for name in ("creation", "joining"))
    _REPLACED[np.mgrid], _REPLACED[np.ogrid] = creation.mgrid, creation.ogrid
    _REPLACED[np.r_], _REPLACED[np.c_] = joining.r_, joining.c_
    _REPLACED[np.vectorize] = sys.modules["hjit.trace.ops.elementwise.vectorized"].Vectorized


def _load_scipy() -> None:
    """The replacements of SciPy's functions, which are loaded only if the process uses SciPy."""
    for name in ("ndimage", "signal"):
        if f"scipy.{name}" in sys.modules:
            importlib.import_module(f"hjit.trace.ops.stencils.{name}")
    if "scipy.ndimage" in sys.modules:
        importlib.import_module("hjit.trace.ops.geometry.ndimage_transforms")
        importlib.import_module("hjit.trace.ops.geometry.splines")
    if hasattr(sys.modules.get("scipy._lib.array_api_extra"), "at"):
        array_api = importlib.import_module("hjit.trace.ops.indexing.array_api")
        _REPLACED[array_api.at] = array_api.At
    special = sys.modules.get("scipy.special")
    if special is not None and hasattr(special, "errstate") and special.errstate not in _REPLACED:
        _REPLACED[special.errstate] = effects.errors(special.errstate, "scipy.special.errstate")
