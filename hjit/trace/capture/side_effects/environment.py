"""Queries of the function about its environment: files, folders, the process. Each answer is guarded.

Later calls ask again, and another answer traces anew. A question that raises an exception is answered by that.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from hjit.errors import raise_if_signalled
from hjit.trace.capture.side_effects.impure import READS_OR_WRITES, refused
from hjit.trace.tracing.recording.recorder import current, tracing
from hjit.trace.tracing.scalars.host import HostScalar, static_value

QUERIES: tuple[Callable[..., Any], ...] = (
    *(
        getattr(os.path, name)
        for name in """exists lexists isfile isdir islink ismount samefile getsize getmtime getctime abspath realpath
        relpath expanduser expandvars""".split()
    ),
    *(getattr(os, name) for name in "access getcwd getcwdb getenv getpid readlink".split() if hasattr(os, name)),
)
_OF_PATHS = """exists is_file is_dir is_symlink is_mount is_junction is_socket is_fifo is_block_device is_char_device
    samefile owner group readlink resolve absolute expanduser""".split()


def answer(ask: Callable[[], Any]) -> Any:
    """The guarded answer to a query.

    Raises:
        Exception: what the question raises; later calls find out whether it does so again.
    """

    def again() -> tuple[Any, str]:
        try:
            return ask(), ""
        except Exception as error:
            raise_if_signalled(error)
            return None, repr(error)

    tape = current().tape
    found, problem = None, None
    try:
        found = ask()
    except Exception as error:
        raise_if_signalled(error)
        problem = error
    tape.ops.append((again, ()))
    HostScalar(tape, len(tape.ops) - 1, (found, "" if problem is None else repr(problem))).make_static()
    if problem is not None:
        raise problem
    return found


def guarded_query(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose answer is a guard."""

    def method(*args: Any, **kwargs: Any) -> Any:
        given, named = [static_value(x) for x in args], {name: static_value(x) for name, x in kwargs.items()}
        return answer(lambda: function(*given, **named))

    return method


# -- paths

PATH_TYPE: Any = type(pathlib.Path())  # PosixPath or WindowsPath


class _AnyPath(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, pathlib.Path)


def _of_path(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        path, given = PATH_TYPE(self), [PATH_TYPE(x) if type(x) is TracedPath else static_value(x) for x in args]
        found = answer(lambda: function(path, *given, **kwargs)) if tracing() else function(path, *given, **kwargs)
        return traced_path(found) if isinstance(found, pathlib.Path) else found

    return method


def _of_class(function: Callable[[], Any]) -> Any:
    return classmethod(lambda cls: traced_path(answer(function) if tracing() else function()))


def _status(self: Any, **kwargs: Any) -> Any:
    refuse = refused("pathlib.Path.stat", READS_OR_WRITES, "do it outside the function")
    return refuse() if tracing() else PATH_TYPE(self).stat(**kwargs)


# A path that the function has from outside or makes: what it makes of it by joining and splitting is one, too.
TracedPath: Any = _AnyPath(
    PATH_TYPE.__name__,
    (PATH_TYPE,),
    {
        "__slots__": (),
        "__module__": PATH_TYPE.__module__,
        **{name: _of_path(getattr(PATH_TYPE, name)) for name in _OF_PATHS if hasattr(PATH_TYPE, name)},
        **{name: _of_class(getattr(PATH_TYPE, name)) for name in ("cwd", "home")},
        "stat": _status,
        "lstat": lambda self: _status(self, follow_symlinks=False),
    },
)


def traced_path(path: pathlib.Path) -> Any:
    """The path as the traced function sees it."""
    return TracedPath(path) if type(path) is PATH_TYPE else path


# -- environment variables


class _Variables(MutableMapping[str, str]):
    """A read-only `os.environ`."""

    __setitem__ = refused("os.environ[...] = ...", READS_OR_WRITES, "do it outside the function")
    __delitem__ = refused("del os.environ[...]", READS_OR_WRITES, "do it outside the function")

    def __getitem__(self, name: str) -> str:
        value: str = answer(lambda: os.environ[name])
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(answer(lambda: [*os.environ]))

    def __len__(self) -> int:
        return len([*self])

    def copy(self) -> dict[str, str]:
        return dict(self)


VARIABLES = _Variables()


def replaced() -> dict[Any, Any]:
    """Functions and classes of the standard library that query the environment, with their replacements."""
    return {
        **{function: guarded_query(function) for function in QUERIES},
        pathlib.Path: TracedPath,
        PATH_TYPE: TracedPath,
    }
