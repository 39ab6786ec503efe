"""Effects: warnings and log records that a function issues while it computes.

The trace records them, and every call gives them in order, once all is computed and before an argument is changed: a
call that proves to need another variant, or plain NumPy, has given none. An effect of another kind is refused.
"""

from __future__ import annotations

import atexit
import contextlib
import decimal
import gc
import locale
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from hjit.trace.capture.side_effects.environment import QUERIES, VARIABLES, answer, guarded_query
from hjit.trace.capture.side_effects.impure import READS_OR_WRITES, refused, sees_frames
from hjit.trace.splitting.frame_inspection import FRAME_READERS
from hjit.trace.tracing.externs.calls import Arguments, within
from hjit.trace.tracing.forward import provides
from hjit.trace.tracing.frames import is_counted, is_own
from hjit.trace.tracing.recording.events import Effect
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.host import static_value

# the function of this file is the outermost frame of a trace
_TRACE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "trace.py")
_PLAIN = (bool, int, float, str, type(None))


def record(kind: str, call: Callable[..., None], args: Any, blocked: Callable[[], bool] | None = None) -> None:
    """Record an effect, ``call(*args)``, for every call of the function; arrays among the arguments are computed."""
    rec = current()
    if rec.loops:
        raise rec.loops[-1].refusal(f"{kind} in the loop")
    given = Arguments(late=True)
    frozen = given.freeze(tuple(args))
    needs, places = given.needs()
    settings = tuple(again() for again in rec.externs.contexts)

    def give(arrays: Sequence[np.ndarray[Any, Any]], values: Sequence[Any]) -> None:
        with within(settings):
            call(*given.fill(frozen, [arrays[k] for k in places], values))

    rec.effects.append(Effect(needs, give, blocked, rec.line()))


# -- where an effect comes from


class SourceLine(NamedTuple):
    """A line of the user's source, and the globals of its module."""

    filename: str
    line: int
    function: str
    names: dict[str, Any]


def _outside(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames that the plain function would have, from the innermost."""
    while frame is not None:
        if not is_own(frame.f_code):
            if is_counted(frame.f_code):
                yield frame
        elif frame.f_code.co_filename == _TRACE and frame.f_code.co_name == "_traced":
            return
        frame = frame.f_back


def _place(frame: FrameType) -> SourceLine:
    names = getattr(frame.f_globals, "under", frame.f_globals)
    return SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, names)


def place(level: int) -> Callable[[], SourceLine]:
    """Finds the `level`-th frame from the one that has the effect; frames above the traced function differ by call."""
    inside = [_place(f) for f in _outside(sys._getframe(1))]
    if level <= len(inside):
        return lambda: inside[max(level, 1) - 1]
    above = level - len(inside)

    def later() -> SourceLine:
        found = next((f for k, f in enumerate(_outside(sys._getframe(1)), 1) if k == above), None)
        return SourceLine("sys", 1, "sys", vars(sys)) if found is None else _place(found)

    return later


@provides
def traced_line(frame: FrameType | None = None) -> SourceLine | None:
    """The line of the traced function, or of its callees, that runs; None: a C function itself.

    Args:
        frame: one of hjit's, where others than the one that asks may lie between.
    """
    found = next(_outside(sys._getframe(1) if frame is None else frame), None)
    return None if found is None else _place(found)


@provides
def calling_line() -> SourceLine | None:
    """The line that calls a traced or compiled function; None: it is in another thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_own(frame.f_code) or not is_counted(frame.f_code)):
        frame = frame.f_back
    return None if frame is None else _place(frame)


# -- settings that hold for a part of the function


def _refusal(operation: str, reason: str) -> Exception:
    return current().error(operation, reason, "decorate the functions that it calls instead")


class ErrState:
    """`numpy.errstate` and `scipy.special.errstate`: extern calls are made inside them; reports are refused."""

    def __init__(self, cls: Any, name: str, given: dict[str, Any]) -> None:
        if cls is np.errstate:
            _check_errors(name, given)
        self.cls, self.given = cls, given
        self.real: Any = None

    def again(self) -> Callable[[], Any]:
        return lambda: self.cls(**self.given)

    def __enter__(self) -> Any:
        self.real = self.cls(**self.given)
        current().externs.contexts.append(self.again)
        return self.real.__enter__()

    def __exit__(self, *exc: object) -> Any:
        current().externs.contexts.remove(self.again)
        return self.real.__exit__(*exc)

    def __call__(self, function: Any) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            with ErrState(self.cls, "", self.given):
                return function(*args, **kwargs)

        return method


def _check_errors(name: str, given: dict[str, Any], known: tuple[str | None, ...] = ("ignore", None)) -> None:
    bad = next((v for v in given.values() if v not in known), None)
    if bad is not None:
        raise _refusal(f"{name}({bad!r})", "compiled code raises and reports no floating-point errors")


def set_errors(all: Any = None, divide: Any = None, over: Any = None, under: Any = None, invalid: Any = None) -> Any:
    """`numpy.seterr`, whose settings apply to later extern calls; see also `settings_kept`."""
    given = {"all": all, "divide": divide, "over": over, "under": under, "invalid": invalid}
    _check_errors("numpy.seterr", given, ("ignore", "warn", None))  # "warn" may be what it gave, put back
    current().externs.contexts.append(lambda: lambda: np.errstate(**given))
    return np.seterr(**given)


def errors(cls: Any, name: str) -> Callable[..., ErrState]:
    """What stands for a class of error settings."""
    return lambda **given: ErrState(cls, name, given)


class CatchWarnings:
    """`warnings.catch_warnings`: warnings that it ignores are ignored at every call.

    Compiled code gives no warnings, so recording them is refused.
    """

    def __init__(
        self,
        *,
        record: bool = False,
        module: Any = None,
        action: str | None = None,
        category: Any = Warning,
        **more: Any,
    ) -> None:
        if record:
            raise _refusal("warnings.catch_warnings(record=True)", "compiled code gives none of NumPy's warnings")
        self.filters: list[tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]]] = []
        if action is not None:
            self.add(warnings.simplefilter, action, (category,), more)

    def add(self, function: Callable[..., None], action: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if action != "ignore":
            raise _refusal(f"warnings.{function.__name__}({action!r})", "compiled code gives none of NumPy's warnings")
        self.filters.append((function, (action, *args), kwargs))

    def again(self) -> Callable[[], Any]:
        filters = [*self.filters]

        @contextlib.contextmanager
        def filtered() -> Iterator[None]:
            with warnings.catch_warnings():
                for function, args, kwargs in filters:
                    function(*args, **kwargs)
                yield

        return filtered

    def __enter__(self) -> None:
        current().externs.contexts.append(self.again)
        current().externs.warning_filters.append(self)

    def __exit__(self, *exc: object) -> None:
        current().externs.contexts.remove(self.again)
        current().externs.warning_filters.remove(self)


def _filter(function: Callable[..., None]) -> Callable[..., None]:
    def method(action: str, *args: Any, **kwargs: Any) -> None:
        rec = current()
        if not rec.externs.warning_filters:
            raise _refusal(f"warnings.{function.__name__}", "it changes settings that outlive the function")
        rec.externs.warning_filters[-1].add(function, action, args, kwargs)

    return method


# -- warnings


def _warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **more: Any) -> None:
    """`warnings.warn`."""
    category = type(message) if isinstance(message, Warning) else UserWarning if category is None else category
    if not (isinstance(category, type) and issubclass(category, Warning)):
        raise TypeError(f"category must be a Warning subclass, not '{type(category).__name__}'")
    if more:
        raise _refusal(f"warnings.warn({', '.join(more)}=...)", "hjit does not know this argument")
    give_warning(message, category, place(int(static_value(stacklevel))), source)


def give_warning(message: Any, category: Any, where: Callable[[], SourceLine], source: Any) -> None:
    """Issue a warning at every call, at a line that is found then."""

    condition, current().externs.warns_if = current().externs.warns_if, None

    def give(message: Any, condition: Any) -> None:
        if condition is not None and not condition:
            return
        at = where()
        registry = at.names.setdefault("__warningregistry__", {})
        module = at.names.get("__name__") or "<string>"
        warnings.warn_explicit(message, category, at.filename, at.line, module, registry, None, source)

    record("a warning", give, (message, condition), lambda: may_be_error(category))


@provides
def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """A warning that NumPy issues about the sizes of arrays, or about how it is called, at the calling line."""
    _warn(message, category)


def _warn_explicit(message: Any, category: Any, filename: str, lineno: int, *module: Any, **more: Any) -> None:
    """`warnings.warn_explicit`."""
    if more or len(module) > 1:
        raise _refusal("warnings.warn_explicit", "hjit traces it without a registry only")
    kind = type(message) if isinstance(message, Warning) else category
    line = int(static_value(lineno))

    def give(message: Any) -> None:
        warnings.warn_explicit(message, kind, filename, line, *module)

    record("a warning", give, (message,), lambda: may_be_error(kind))


def may_be_error(category: type) -> bool:
    """May warnings of this category be errors now? Then the plain function must raise them."""
    for action, text, of, module, line in warnings.filters:
        if issubclass(category, of):
            if action == "error":
                return True
            if text is None and module is None and not line:
                return False  # filters after it do not count
    return False


# -- log records

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "critical": 50, "fatal": 50}
_SETTINGS = ("isEnabledFor", "getEffectiveLevel", "hasHandlers", "name", "level", "disabled", "propagate")


class LoggerProxy:
    """A logger, or an adapter of one: its records are given at every call, and settings that are read are guarded."""

    __slots__ = ("_hjit_log",)

    def __init__(self, log: Any) -> None:
        object.__setattr__(self, "_hjit_log", log)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(object.__getattribute__(self, "_hjit_log"))

    def __getattribute__(self, name: str) -> Any:
        log = object.__getattribute__(self, "_hjit_log")
        if name == "__class__":
            return type(log)
        if name in _LEVELS:
            return lambda msg, *args, **kwargs: _log(log, _LEVELS[name], msg, args, **kwargs)
        if name == "log":
            return lambda level, msg, *args, **kwargs: _log(log, static_value(level), msg, args, **kwargs)
        if name == "getChild":
            return lambda suffix: LoggerProxy(log.getChild(suffix))
        if name not in _SETTINGS:
            raise _refusal(f"logging.{type(log).__name__}.{name}", "hjit does not trace it")
        found = getattr(log, name)
        return (lambda *args: answer(lambda: found(*args))) if callable(found) else answer(lambda: getattr(log, name))


def _log(
    log: Any,
    level: int,
    msg: Any,
    args: tuple[Any, ...],
    exc_info: Any = None,
    stack_info: bool = False,
    stacklevel: int = 1,
    extra: Any = None,
) -> None:
    """A log record of `level`."""
    if exc_info or stack_info:
        raise _refusal(
            "logging: exc_info, stack_info", "the stack of a call that is compiled is not that of the function"
        )
    where = place(int(static_value(stacklevel)))
    if isinstance(log, logging.LoggerAdapter):
        msg, kwargs = log.process(msg, {} if extra is None else {"extra": extra})
        log, extra = log.logger, kwargs.get("extra")
        if not isinstance(log, logging.Logger):
            raise _refusal("logging.LoggerAdapter", "hjit does not trace an adapter of an adapter")

    def give(msg: Any, args: tuple[Any, ...], extra: Any) -> None:
        if log.isEnabledFor(level):
            at = where()
            log.handle(log.makeRecord(log.name, level, at.filename, at.line, msg, args, None, at.function, extra, None))

    record("a log record", give, (msg, args, extra))


def _root(name: str) -> Callable[..., None]:
    """A function of `logging` itself: the root logger's, which it first makes ready."""

    def method(*args: Any, **kwargs: Any) -> None:
        if not logging.root.handlers:
            record("a log record", logging.basicConfig, ())
        getattr(LoggerProxy(logging.root), name)(*args, **kwargs)

    return method


# -- output


class RefusedFile:
    """A file object from outside the function, whose use is refused."""

    __slots__ = ("_hjit_name",)

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_hjit_name", name)

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return RefusedFile
        file = object.__getattribute__(self, "_hjit_name")
        raise current().error(f"{file}.{name}", READS_OR_WRITES, "do it outside the function")


class PatchedModule(ModuleType):
    """A module of which some attributes are replaced, by name."""

    def __init__(self, module: ModuleType, changed: dict[str, Any]) -> None:
        super().__init__(module.__name__)
        object.__setattr__(self, "_hjit_parts", (module, changed))

    def __getattribute__(self, name: str) -> Any:
        module, changed = object.__getattribute__(self, "_hjit_parts")
        return changed[name] if name in changed else getattr(module, name)


OUTLIVES = "it changes what outlives the function"
SETTERS: tuple[Any, ...] = (
    warnings.resetwarnings, signal.signal, atexit.register, atexit.unregister, gc.set_threshold,
    decimal.getcontext, decimal.setcontext, locale.setlocale, logging.disable, logging.basicConfig,
)  # fmt: skip
OF_SYS = ("setprofile", "setrecursionlimit", "setswitchinterval", "settrace")
_FILES = """chdir chmod chown link lstat makedirs mkdir mkfifo open popen putenv remove removedirs rename
    renames replace rmdir startfile stat symlink system truncate umask unlink unsetenv utime write""".split()
MODULES: dict[str, Any] = {
    "sys": PatchedModule(
        sys,
        {
            **{
                name: RefusedFile(f"sys.{name}")
                for name in ("stdout", "stderr", "stdin", "__stdout__", "__stderr__", "__stdin__", "path")
            },
            **{name: refused(f"sys.{name}", OUTLIVES, "do it outside the function") for name in OF_SYS},
            **{f.__name__: sees_frames(where) for where, f in FRAME_READERS.items() if hasattr(sys, f.__name__)},
        },
    ),
    "os": PatchedModule(
        os,
        {
            **{
                name: refused(f"os.{name}", READS_OR_WRITES, "do it outside the function")
                for name in _FILES
                if hasattr(os, name)
            },
            **{f.__name__: guarded_query(f) for f in QUERIES if not hasattr(os.path, f.__name__)},
            "environ": VARIABLES,
            "urandom": refused("os.urandom"),
            "path": PatchedModule(
                os.path, {f.__name__: guarded_query(f) for f in QUERIES if hasattr(os.path, f.__name__)}
            ),
        },
    ),
}


def replaced() -> dict[Any, Any]:
    """Functions and classes of the standard library and NumPy that have effects, with their replacements."""
    found: dict[Any, Any] = {
        warnings.warn: _warn,
        warnings.warn_explicit: _warn_explicit,
        **{f: refused(f"{f.__module__}.{f.__name__}", OUTLIVES, "do it outside the function") for f in SETTERS},
        warnings.catch_warnings: CatchWarnings,
        np.errstate: errors(np.errstate, "numpy.errstate"),
        np.seterr: set_errors,
    }
    for function in (warnings.simplefilter, warnings.filterwarnings):
        found[function] = _filter(function)
    for name in (*_LEVELS, "log"):
        found[getattr(logging, name)] = _root(name)
    found[logging.getLogger] = lambda name=None: LoggerProxy(logging.getLogger(name))
    return found
