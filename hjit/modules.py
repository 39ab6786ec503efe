"""`accelerate`: the public functions of modules run compiled, without a change of the code; or those of a script."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import runpy
import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Unpack

from hjit.errors import OptionError
from hjit.options import GivenOptions, checked
from hjit.pipeline import Pipeline
from hjit.process.restoring import surely
from hjit.report.kinds import Row, rows_of


class Accelerated:
    """Modules whose public functions are pipelines; `undo`, or the end of a ``with`` block, restores the functions.

    Attributes:
        pipelines: by the names of the functions, ``package.module.function``.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self.pipelines: dict[str, Pipeline[..., Any]] = {}
        self._given = given
        self._before: list[tuple[types.ModuleType, str, Any]] = []
        self._entries: list[tuple[Any, Any, Any]] = []  # of tables: the table, the key or the number, and the function
        self._keys: list[tuple[dict[Any, Any], Any]] = []  # that tables have besides: pipelines

    def take(self, names: Iterable[str | types.ModuleType]) -> Accelerated:
        """Replace the functions of modules; itself."""
        try:
            self._replace([*map(_module, names)])
            return self
        except BaseException:
            surely(self.undo)
            raise

    def _replace(self, modules: list[types.ModuleType]) -> None:
        """Replace functions; each is noted before, so that `undo` finds it."""
        made: dict[Any, Pipeline[..., Any]] = {}  # a function that several modules have is one pipeline
        found = [(module, name, f) for module in modules for name, f in functions_of(module)]
        for module, name, function in found:
            p = made.setdefault(function, Pipeline(function, self._given))
            self.pipelines[f"{module.__name__}.{name}"] = p
            self._before.append((module, name, function))
            setattr(module, name, p)
        loaded = _of_packages(modules)
        for table in _tables(modules, loaded, made):
            for key, function in [*(table.items() if isinstance(table, dict) else enumerate(table))]:
                if type(function) is types.FunctionType and function in made:
                    self._entries.append((table, key, function))
                    table[key] = made[function]
        for keyed in _dicts(loaded):
            for function in [f for f in keyed if type(f) is types.FunctionType and f in made]:
                self._keys.append((keyed, made[function]))
                keyed[made[function]] = keyed[function]

    def decorated(self, function: types.FunctionType) -> Any:
        """A function of a running script as a pipeline, unless its calls only begin something."""
        if _only_begins(function):
            return function
        found = self.pipelines[function.__qualname__] = Pipeline(function, self._given)
        return found

    def undo(self) -> None:
        """Restore the functions, unless other code has replaced them since."""
        for module, name, function in reversed(self._before):
            if getattr(getattr(module, name, None), "py_func", None) is function:
                setattr(module, name, function)
        for table, key, function in self._entries:
            with contextlib.suppress(LookupError):
                if getattr(table[key], "py_func", None) is function:
                    table[key] = function
        for keyed, key in self._keys:
            keyed.pop(key, None)
        self._before.clear()
        self._entries.clear()
        self._keys.clear()

    def __enter__(self) -> Accelerated:
        return self

    def __exit__(self, *exc: object) -> None:
        surely(self.undo)

    def __str__(self) -> str:
        """What was called, and how it ran."""
        lines = [str(row) for row in self.rows() if row.calls]
        return "\n".join(lines) or f"{len(self.pipelines)} functions, none of which has been called"

    def rows(self) -> list[Row]:
        """How the calls of each function ran."""
        return rows_of(self.pipelines)


def accelerate(*names: str | types.ModuleType, **given: Unpack[GivenOptions]) -> Accelerated:
    """Turn the public functions of modules into pipelines, from now on, or in a ``with`` block.

    Functions that a package calls under other names, or that were imported from a module before, are not replaced.

    Args:
        names: of modules, such as ``"skimage.filters"``; or modules.
        given: options of the pipelines, see `hjit.options`.

    Raises:
        ModuleNotFoundError: there is no such module.
        OptionError: an unknown option, no names, or something else.
    """
    if not names:
        raise OptionError('accelerate needs the names of modules: accelerate("skimage.filters")')
    return Accelerated(checked({**given})).take(names)


_BENEATH = ("numpy", "numba", "llvmlite", "hjit")  # packages that hjit's own calls use


def _module(name: Any) -> types.ModuleType:
    if not isinstance(name, (str, types.ModuleType)):
        raise OptionError(f"accelerate takes modules, or their names, not {name!r}")
    called = name if isinstance(name, str) else name.__name__
    if called.partition(".")[0] in _BENEATH:
        why = "hjit runs on it itself. What to do: name the modules that call it, or decorate the functions that do"
        raise OptionError(f"{called}: {why}")
    return name if isinstance(name, types.ModuleType) else importlib.import_module(name)


def functions_of(module: types.ModuleType) -> Iterator[tuple[str, types.FunctionType]]:
    """The public functions of a module that are its package's own, written in Python."""
    package = module.__name__.partition(".")[0]
    for name in getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]:
        found = _given_freely(module, name)
        if not isinstance(found, types.FunctionType) or _only_begins(found):
            continue
        if (found.__module__ or "").partition(".")[0] == package:
            yield name, found


def _only_begins(function: types.FunctionType) -> bool:
    """Do its calls compute nothing: is it a generator, a coroutine, or of `contextlib.contextmanager`?"""
    made_of = inspect.unwrap(function)
    codes = (getattr(f, "__code__", None) for f in (function, made_of))
    return any(code is not None and code.co_flags & _NOT_PLAIN_CALLS for code in codes)


def _given_freely(module: types.ModuleType, name: str) -> Any:
    """A module's attribute; None where its `__getattr__` makes it and warns: it is deprecated, and stays as it is."""
    if name in vars(module):
        return vars(module)[name]
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        found = getattr(module, name, None)
    return None if given else found


def _of_packages(modules: Iterable[types.ModuleType]) -> list[types.ModuleType]:
    """All loaded modules of the same packages."""
    packages = {module.__name__.partition(".")[0] for module in modules}
    loaded = [module for name, module in [*sys.modules.items()] if name.partition(".")[0] in packages]
    return [module for module in loaded if isinstance(module, types.ModuleType)]


def _tables(
    modules: Iterable[types.ModuleType], loaded: Iterable[types.ModuleType], made: Iterable[types.FunctionType]
) -> list[Any]:
    """The dicts and lists of modules, and of objects in them, in which functions may stand: code may choose one by its
    key and ask later whether it is the one of some name (`f is METHODS["gauss"]`).

    Tables of which code of another module asks so stay as they are: there, the names are still those of the functions.
    """
    modules = list(modules)
    values = [x for module in modules for name, x in vars(module).items() if not name.startswith("__")]
    objects = [x for x in values if not isinstance(x, (type, types.ModuleType, types.FunctionType, Pipeline))]
    held = [(x, y) for x in objects for y in getattr(x, "__dict__", {}).values()]
    tables = {id(y): (x, y) for x, y in (*((x, x) for x in values), *held) if type(y) in (dict, list)}
    functions = set(made)
    others = [module for module in loaded if module not in modules]

    def is_asked_elsewhere(holder: Any, table: Any) -> bool:
        entries = table.values() if isinstance(table, dict) else table
        found = [f for f in entries if type(f) is types.FunctionType and f in functions]
        return any(_names_both(module, holder, found) for module in others if found)

    return [table for holder, table in tables.values() if not is_asked_elsewhere(holder, table)]


def _names_both(module: types.ModuleType, table: Any, functions: Iterable[types.FunctionType]) -> bool:
    """Does a function of a module name a table and one of some functions?"""
    names = [{name for name, x in vars(module).items() if x is table}]
    names.append({name for name, x in vars(module).items() if type(x) is types.FunctionType and x in functions})
    if not all(names):
        return False
    own = (inspect.unwrap(f) for f in vars(module).values() if type(f) is types.FunctionType)
    codes = (set(f.__code__.co_names) for f in own if getattr(f, "__globals__", None) is vars(module))
    return any(not code.isdisjoint(names[0]) and not code.isdisjoint(names[1]) for code in codes)


def _dicts(loaded: Iterable[types.ModuleType]) -> list[dict[Any, Any]]:
    """The dicts in modules, in which functions may be keys: what a package's decorators say of a function is looked up
    by it (`CAPABILITIES[f]`), wherever the table is."""
    values = [x for module in loaded for x in [*vars(module).values()]]
    return list({id(x): x for x in values if type(x) is dict}.values())


# -- scripts

_NOT_PLAIN_CALLS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_DECORATOR = "__hjit_pipeline__"


def run_script(path: str, accelerated: Accelerated | None) -> None:
    """Run a file as Python does, as the module ``__main__``.

    Args:
        accelerated: takes the script's own public functions, those without a decorator and with a parameter, as they
            are defined; None: these stay as they are.

    Raises:
        FileNotFoundError: there is no such file.
        Exception: what the script raises.
    """
    code = None if accelerated is None else _decorating(path)
    if code is None:
        runpy.run_path(path, run_name="__main__")
        return
    main = types.ModuleType("__main__")
    main.__dict__.update({"__file__": path, "__builtins__": __builtins__, _DECORATOR: accelerated.decorated})  # type: ignore[union-attr]
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _decorating(path: str) -> types.CodeType | None:
    """The code of a script that decorates its functions; None where it is not one file of Python's source."""
    try:
        with open(path, "rb") as f:
            tree = ast.parse(f.read(), path)
    except (OSError, SyntaxError, ValueError):  # `runpy` says why, or runs it
        return None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and not node.name.startswith("_"):
            a = node.args
            if a.posonlyargs or a.args or a.vararg or a.kwonlyargs:
                decorator = ast.Name(_DECORATOR, ast.Load())
                node.decorator_list.append(ast.copy_location(decorator, node))
    return compile(tree, path, "exec", dont_inherit=True)
