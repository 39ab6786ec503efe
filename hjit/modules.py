"""`accelerate`: the public functions of modules run compiled, without a change of their code."""

from __future__ import annotations

import importlib
import types
from collections.abc import Iterator
from typing import Any

from hjit.errors import OptionError
from hjit.options import checked
from hjit.pipeline import Pipeline
from hjit.report.kinds import Row, rows_of


class Accelerated:
    """Modules whose public functions are pipelines; `undo`, or the end of a ``with`` block, puts the functions back.

    Attributes:
        pipelines: by the names of the functions, ``package.module.function``.
    """

    def __init__(self, names: tuple[str, ...], given: dict[str, Any]) -> None:
        self.pipelines: dict[str, Pipeline[..., Any]] = {}
        self._before: list[tuple[types.ModuleType, str, Any]] = []
        made: dict[Any, Pipeline[..., Any]] = {}  # a function that several modules have is one pipeline
        found = [(module, name, f) for module in map(_module, names) for name, f in functions_of(module)]
        for module, name, function in found:
            p = made.setdefault(function, Pipeline(function, given))
            self.pipelines[f"{module.__name__}.{name}"] = p
            self._before.append((module, name, function))
            setattr(module, name, p)

    def undo(self) -> None:
        """Put the functions back; what others have put in their place since then stays."""
        for module, name, function in reversed(self._before):
            if getattr(getattr(module, name, None), "py_func", None) is function:
                setattr(module, name, function)
        self._before.clear()

    def __enter__(self) -> Accelerated:
        return self

    def __exit__(self, *exc: object) -> None:
        self.undo()

    def __str__(self) -> str:
        """What was called, and how it ran."""
        lines = [str(row) for row in self.rows() if row.calls]
        return "\n".join(lines) or f"{len(self.pipelines)} functions, none of which has been called"

    def rows(self) -> list[Row]:
        """How the calls of each function ran."""
        return rows_of(self.pipelines)


def accelerate(*names: str, **given: Any) -> Accelerated:
    """Make the public functions of modules pipelines, from now on, or in a ``with`` block.

    What a package calls inside by other names, and what was imported from a module before, stays as it is.

    Args:
        names: of modules, such as ``"skimage.filters"``.
        given: options of the pipelines, see `hjit.options`.

    Raises:
        ModuleNotFoundError: there is no such module.
        OptionError: an unknown option, or no names.
    """
    if not names:
        raise OptionError('accelerate needs the names of modules: accelerate("skimage.filters")')
    return Accelerated(names, checked(given))


def _module(name: str) -> types.ModuleType:
    return importlib.import_module(name)


def functions_of(module: types.ModuleType) -> Iterator[tuple[str, types.FunctionType]]:
    """The public functions of a module that are its package's own, written in Python."""
    package = module.__name__.partition(".")[0]
    for name in getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]:
        found = getattr(module, name, None)
        if isinstance(found, types.FunctionType) and (found.__module__ or "").partition(".")[0] == package:
            yield name, found
