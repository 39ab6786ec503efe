"""CuPy's names for NumPy's and SciPy's: code with ``cp.`` and ``cupyx.scipy`` is traced as that with ``np.``."""

from __future__ import annotations

import builtins
import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_PREFIXES = {"cupy": "numpy", "cupyx.scipy": "scipy"}  # of modules' names
_MODULES = (  # whose functions are imported by name
    "cupy",
    "cupy.linalg",
    "cupy.fft",
    *(f"cupyx.scipy.{name}" for name in ("ndimage", "signal", "special", "fft", "linalg")),
)
_OWN = ("cupy.cuda", "cupy.testing", "cupy.random")  # modules that are no other names for NumPy's


def numpy_of(value: Any) -> Any:
    """The NumPy or SciPy counterpart of a CuPy module, function or class; any other value itself."""
    if sys.modules.get("cupy") is None:
        return value
    if isinstance(value, types.ModuleType):
        return _module(value.__name__) or value
    try:
        return _names(tuple(_loaded())).get(value, value)
    except TypeError:  # not hashable
        return value


def is_cupy(value: Any) -> bool:
    """Is it a module, function or class of CuPy?"""
    return numpy_of(value) is not value


@functools.lru_cache(maxsize=256)
def _module(name: str) -> types.ModuleType | None:
    """NumPy's or SciPy's module for one of CuPy."""
    if name.startswith(_OWN):
        return None
    for prefix, other in _PREFIXES.items():
        if name == prefix or name.startswith(f"{prefix}."):
            try:
                return importlib.import_module(other + name[len(prefix) :])
            except ImportError:
                return None
    return None


def _loaded() -> Iterator[types.ModuleType]:
    for name in _MODULES:
        if sys.modules.get(name) is not None:
            yield sys.modules[name]


@functools.lru_cache(maxsize=8)
def _names(modules: tuple[types.ModuleType, ...]) -> dict[Any, Any]:
    """Functions and classes of CuPy's modules with those of NumPy and SciPy of the same names."""
    found: dict[Any, Any] = {}
    for there in modules:
        here = _module(there.__name__)
        for word in [w for w in dir(here) if not w.startswith("_")]:
            own, other = getattr(there, word, None), getattr(here, word)
            if callable(own) and callable(other) and own is not other:
                found[own] = other
    get_array_module = getattr(modules[0], "get_array_module", None)
    if get_array_module is not None:
        found[get_array_module] = array_module
    return found


def array_module(*args: Any) -> types.ModuleType:
    """``cupy.get_array_module``: NumPy, for traced arrays."""
    return np


# -- CuPy's code by NumPy


def by_numpy(function: Any) -> Callable[..., Any]:
    """A function with CuPy replaced by NumPy and SciPy, if it, or a Python function that it calls, uses CuPy."""
    if sys.modules.get("cupy") is not None and isinstance(function, types.FunctionType) and _uses_cupy(function):
        return _clone(function, {})
    return function  # type: ignore[no-any-return]


class _Globals(dict[str, Any]):
    """Globals of clones: a module's own, but for CuPy."""

    def __init__(self, under: dict[str, Any], overlays: dict[int, _Globals]) -> None:
        super().__init__(__builtins__={**vars(builtins), "__import__": _import}, __name__=under.get("__name__"))
        self.under, self.overlays = under, overlays

    def __getitem__(self, name: str) -> Any:
        if dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        return _seen(self.under[name], self.overlays)


def _seen(value: Any, overlays: dict[int, _Globals]) -> Any:
    """A value as clones see it."""
    if isinstance(value, types.ModuleType):
        return _CuPy(value) if value.__name__ == "cupyx" or is_cupy(value) else value
    if _is_array(value):
        return value.get()
    if is_cupy(value) or not isinstance(value, types.FunctionType):
        return numpy_of(value)
    return _clone(value, overlays) if _uses_cupy(value) else value


class _CuPy(types.ModuleType):
    """A module of CuPy with NumPy's functions."""

    def __init__(self, module: types.ModuleType) -> None:
        super().__init__(module.__name__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        here = numpy_of(self._module)
        is_other = here is not self._module and hasattr(here, name)
        return getattr(here, name) if is_other else _seen(getattr(self._module, name), {})


def _clone(function: types.FunctionType, overlays: dict[int, _Globals]) -> Callable[..., Any]:
    # overlays by the identity of globals: those of a module are one dict, which does not hash
    under = function.__globals__
    if id(under) not in overlays:
        overlays[id(under)] = _Globals(under, overlays)
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(types.CellType(_seen(cell.cell_contents, overlays)))
        except ValueError:  # a name not yet bound
            cells.append(cell)
    made = types.FunctionType(
        function.__code__, overlays[id(under)], function.__name__, function.__defaults__, tuple(cells) or None
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _uses_cupy(function: types.FunctionType) -> bool:
    """May the function, or one that it calls, name CuPy?"""
    found, new = {function}, [function]
    while new:
        f = new.pop()
        if (f.__module__ or "").partition(".")[0] in ("numpy", "scipy", "cupy", "cupyx"):
            continue
        values = [*f.__globals__.values(), *(c.cell_contents for c in f.__closure__ or () if _is_bound(c))]
        if any(n.startswith("cupy") for n in f.__code__.co_names) or any(is_cupy(v) or _is_array(v) for v in values):
            return True
        called = {v for v in values if isinstance(v, types.FunctionType)} - found
        found |= called
        new += called
    return False


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "cupy" and hasattr(value, "get")


def _is_bound(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    under = globals.under if isinstance(globals, _Globals) else globals
    return _seen(builtins.__import__(name, under, locals, fromlist, level), {})
