"""The words of pytest that test modules use, for machines that do not have it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_ABSENT: Any = object()


class Skipped(BaseException):
    """A test that does not run here."""


class Failed(BaseException):
    """A test that found something wrong."""


@dataclass(frozen=True)
class Mark:
    """A mark with its arguments, a decorator."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType):
            args[0].pytestmark = [*getattr(args[0], "pytestmark", ()), self]  # type: ignore[attr-defined]
            return args[0]
        return Mark(self.name, args, kwargs)


class _Marks:
    def __getattr__(self, name: str) -> Mark:
        return Mark(name)


class MonkeyPatch:
    """Changes that are taken back."""

    def __init__(self) -> None:
        self._back: list[Callable[[], Any]] = []

    @classmethod
    @contextlib.contextmanager
    def context(cls) -> Iterator[MonkeyPatch]:
        patch = cls()
        try:
            yield patch
        finally:
            patch.undo()

    def undo(self) -> None:
        while self._back:
            self._back.pop()()

    def setattr(self, target: Any, name: str, value: Any) -> None:
        old = vars(target).get(name, _ABSENT) if isinstance(target, type) else getattr(target, name)
        self._back.append(lambda: delattr(target, name) if old is _ABSENT else setattr(target, name, old))
        setattr(target, name, value)

    def setitem(self, target: Any, key: Any, value: Any) -> None:
        old = target.get(key, _ABSENT)
        self._back.append(lambda: target.pop(key, None) if old is _ABSENT else target.__setitem__(key, old))
        target[key] = value

    def setenv(self, name: str, value: str) -> None:
        self.setitem(os.environ, name, value)

    def delenv(self, name: str, raising: bool = True) -> None:
        if raising or name in os.environ:
            self.setitem(os.environ, name, "")
            del os.environ[name]


@contextlib.contextmanager
def raises(kind: Any, match: str = "") -> Iterator[Any]:
    """A block that raises an exception of a kind, whose text has a pattern in it."""
    try:
        yield None
    except kind as error:
        if not re.search(match, str(error)):
            raise AssertionError(f"{match!r} is not in {str(error)!r}") from error
        return
    raise Failed(f"did not raise {kind}")


@contextlib.contextmanager
def warns(kind: Any, match: str = "") -> Iterator[Any]:
    """A block that warns of a kind, in words that have a pattern in them."""
    import warnings

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield None
    if not any(issubclass(w.category, kind) and re.search(match, str(w.message)) for w in found):
        raise Failed(f"did not warn of {kind}")


def approx(value: float, rel: float = 1e-6) -> Any:
    """A number that equals those near it."""

    class Near(float):
        def __eq__(self, other: Any) -> bool:
            return abs(other - float(self)) <= rel * abs(float(self))

        __hash__ = float.__hash__

    return Near(value)


def fail(reason: str = "") -> Any:
    raise Failed(reason)


def skip(reason: str = "", allow_module_level: bool = False) -> Any:
    raise Skipped(reason)


def importorskip(
    modname: str, minversion: str | None = None, reason: str | None = None, *, exc_type: type[ImportError] = ImportError
) -> Any:
    try:
        module = __import__(modname, fromlist=["_"])
    except exc_type:
        raise Skipped(reason or f"needs {modname}") from None
    if minversion is not None and _version(module.__version__) < _version(minversion):
        raise Skipped(reason or f"needs {modname} {minversion}")
    return module


def _version(text: str) -> list[int]:
    return [int(x) for x in re.findall(r"\d+", text)]


def param(*values: Any, marks: Any = ()) -> Any:
    """Arguments of one case; marks say what a real pytest does with it."""
    return values if len(values) > 1 else values[0]


def fixture(*args: Any, **kwargs: Any) -> Any:
    return args[0] if args else lambda f: f


def install() -> bool:
    """Make this the package `pytest` where there is none; was there none?"""
    try:
        import pytest  # noqa: F401
    except ImportError:
        module: Any = types.ModuleType("pytest")
        words = (
            "Skipped",
            "Failed",
            "MonkeyPatch",
            "raises",
            "warns",
            "approx",
            "fail",
            "skip",
            "importorskip",
            "param",
            "fixture",
        )
        vars(module).update({name: globals()[name] for name in words}, mark=_Marks())
        vars(module).update(LogCaptureFixture=Any, CaptureFixture=dict, TempPathFactory=Any)
        sys.modules["pytest"] = module
        return True
    return False
