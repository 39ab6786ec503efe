"""``hjit profile``: where the time of a script goes, and what hjit would make of it.

The script runs plain, while `Profiler` notes the time of functions of the user's own files (or of given modules), what
arrays they take and return, and the arguments of one call. Then `tried` runs the heaviest compiled, on copies of these
arguments, against the plain function.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import statistics
import sys
import sysconfig
import time
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hjit.pipeline import Pipeline
from hjit.report.equality import difference
from hjit.report.kinds import BREAKS, WHOLE, row_of

LEAST_SHARE = 0.01  # of the script's time: what takes less is not tried
MOST_BYTES = 1 << 29  # of arrays of a call that are copied
SAMPLED = 8  # calls of a function, of which the one with the most in arrays is kept
ROUNDS, SECONDS = 15, 1.0  # timing ends after so many pairs of calls, or after so long and `MIN_ROUNDS`
MIN_ROUNDS = 3
SETTLING = 3  # calls before those that are timed: they trace, compile, compare with NumPy
PAYS, SAME = 1.2, 1e-4  # how much faster it must be; how far results may be apart, relative to the largest
NOT_PLAIN_CALLS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

clock = time.perf_counter


@dataclass(slots=True)
class FunctionProfile:
    """What was seen of a function.

    Attributes:
        seconds: of its calls, with what they call; calls inside its own calls do not count twice.
        sample: positional and keyword arguments of a call, copied before it.
        has_arrays: it takes or returns arrays.
        inside: functions that were running at every call of it.
    """

    function: types.FunctionType
    calls: int = 0
    seconds: float = 0.0
    sample: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    has_arrays: bool = False
    inside: set[types.CodeType] | None = None
    depth: int = 0
    bytes: int = -1


@dataclass(frozen=True, slots=True)
class Row:
    """A function of the listing.

    Attributes:
        share: of the script's time.
        kind: whole, with breaks, or plain; see `hjit.report.kinds`.
        breaks: lines that Python runs between compiled parts.
        why: it is not compiled whole.
        speed: how many times as fast as plain NumPy on the arguments seen; None: not tried.
        apart: the largest difference of results, relative to the largest magnitude; None: not tried.
        first: seconds of the first call.
        pays: it is faster, with the same results.
        own: it is in a file of the user's, and can be patched.
    """

    name: str
    file: str
    line: int
    share: float
    calls: int
    kind: str
    breaks: tuple[int, ...]
    why: str
    speed: float | None
    apart: float | None
    first: float | None
    pays: bool
    own: bool


@dataclass(slots=True)
class Profiler:
    """Notes functions while a block runs; those of the calling thread.

    Attributes:
        modules: whose functions are noted besides the user's own, with those of modules below them.
        seconds: of the block, less what noting took.
    """

    modules: Sequence[str] = ()
    seconds: float = 0.0
    seen: dict[types.CodeType, FunctionProfile | None] = field(default_factory=dict)
    _open: list[tuple[types.CodeType, float]] = field(default_factory=list)
    _lost: float = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The block."""
        before, start = sys.getprofile(), clock()
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(before)
            self.seconds = clock() - start - self._lost

    def heaviest(self, most: int) -> list[FunctionProfile]:
        """Functions of arrays that take a share of the time, heaviest first."""
        found = [s for s in self.seen.values() if s is not None and s.has_arrays]
        found = [s for s in found if s.seconds >= LEAST_SHARE * self.seconds]
        return sorted(found, key=lambda s: -s.seconds)[:most]

    def _event(self, frame: types.FrameType, event: str, result: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        seen = self.seen.get(code, _UNKNOWN)
        if seen is None:
            return
        now = clock()
        if seen is _UNKNOWN:
            seen = self.seen[code] = self._new(frame) if event == "call" else None
        if seen is not None:
            if event == "call":
                self._called(seen, frame)
                self._lost += clock() - now
                self._open.append((code, clock() - self._lost))
                return
            self._returned(seen, code, now, result)
        self._lost += clock() - now

    def _called(self, seen: FunctionProfile, frame: types.FrameType) -> None:
        code = frame.f_code
        seen.calls += 1
        seen.depth += 1
        around = {c for c, _ in self._open}
        seen.inside = around if seen.inside is None else seen.inside & around
        if seen.calls > SAMPLED:
            return
        given = _arguments(frame)
        size = sum(a.nbytes for a in _arrays(given))
        seen.has_arrays |= size > 0
        if seen.bytes < size <= MOST_BYTES and code.co_flags & NOT_PLAIN_CALLS == 0:
            with contextlib.suppress(Exception):  # what cannot be copied is not tried
                seen.sample, seen.bytes = copy.deepcopy(given), size

    def _returned(self, seen: FunctionProfile, code: types.CodeType, now: float, result: Any) -> None:
        if not self._open or self._open[-1][0] is not code:
            return  # it was called before the block
        _, start = self._open.pop()
        seen.depth -= 1
        if seen.depth == 0:
            seen.seconds += now - self._lost - start
        if not seen.has_arrays and seen.calls <= SAMPLED:
            seen.has_arrays = next(_arrays(result), None) is not None

    def _new(self, frame: types.FrameType) -> FunctionProfile | None:
        """Notes of a function that is called for the first time; None: it is none of those that are noted."""
        code = frame.f_code
        name = str(frame.f_globals.get("__name__", ""))
        is_named = any(name == m or name.startswith(f"{m}.") for m in self.modules)
        if code.co_flags & NOT_PLAIN_CALLS or not (is_named or is_own(code.co_filename)):
            return None
        function = _function(frame)
        return None if function is None else FunctionProfile(function)


_UNKNOWN: Any = object()


def run_script(script: str, args: Sequence[str], profiler: Profiler) -> int:
    """Run a script as Python does, and note its functions; returns its exit status. Its module stays alive."""
    main = types.ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main
    sys.argv = [script, *args]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    with open(script, "rb") as f:
        code = compile(f.read(), os.path.abspath(script), "exec")
    try:
        with profiler.running():
            exec(code, main.__dict__)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def is_own(file: str) -> bool:
    """Is a file the user's own: neither Python's nor of an installed package nor hjit's?"""
    if not os.path.isfile(file):
        return False
    path = os.path.abspath(file)
    if {"site-packages", "dist-packages"} & set(path.split(os.sep)):
        return False
    paths = sysconfig.get_paths()
    others = (paths["stdlib"], paths["platstdlib"], os.path.dirname(os.path.abspath(__file__)))
    return not any(path.startswith(os.path.join(p, "")) for p in others)


def _function(frame: types.FrameType) -> types.FunctionType | None:
    """The function of a frame, found by its name: one of a module, or of a class of a module."""
    code = frame.f_code
    found: Any = None
    for k, name in enumerate(code.co_qualname.split(".")):
        found = frame.f_globals.get(name) if k == 0 else getattr(found, "__dict__", {}).get(name)
    for _ in range(10):
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        elif isinstance(found, property):
            found = found.fget
        if isinstance(found, types.FunctionType) and found.__code__ is code:
            return found
        found = getattr(found, "__wrapped__", None)
    return None


def _arguments(frame: types.FrameType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call that begins."""
    found = inspect.getargvalues(frame)
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount]
    only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    rest = values.get(found.varargs, ()) if found.varargs else ()
    named = values.get(found.keywords, {}) if found.keywords else {}
    return (*(values[n] for n in names if n in values), *rest), {**{n: values[n] for n in only if n in values}, **named}


def _arrays(given: Any, depth: int = 3) -> Iterator[np.ndarray[Any, Any]]:
    """The arrays in an object and in the containers that it is made of."""
    if isinstance(given, np.ndarray):
        yield given
    elif depth and isinstance(given, (list, tuple)):
        for x in given[:64]:
            yield from _arrays(x, depth - 1)
    elif depth and isinstance(given, dict):
        for x in [*given.values()][:64]:
            yield from _arrays(x, depth - 1)


def rows(profiler: Profiler, most: int, progress: Callable[[str], None] = lambda name: None) -> list[Row]:
    """The listing: the heaviest functions, tried."""
    found = []
    for seen in profiler.heaviest(most):
        progress(seen.function.__qualname__)
        found.append(tried(seen, seen.seconds / profiler.seconds))
    return found


def tried(seen: FunctionProfile, share: float) -> Row:
    """A function compiled, on the arguments seen. What it prints is not shown; its other effects happen again."""
    f = seen.function
    p = Pipeline(f, {"on_unsupported": "break", "numpy_if_faster": False}).quiet()
    speed = apart = first = None
    error = "the arguments seen cannot be copied" if seen.sample is None else ""
    if seen.sample is not None:
        try:
            with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
                apart, first = _compared(p, f, seen.sample)
                speed = _speed(p, f, seen.sample)
        except Exception as e:
            error = f"it cannot be called again: {type(e).__name__}: {e}"
    row = row_of(f.__qualname__, p)
    is_same = apart is not None and apart <= SAME and row.verified is not False
    return Row(
        f.__qualname__,
        f.__code__.co_filename,
        f.__code__.co_firstlineno,
        share,
        seen.calls,
        row.kind,
        tuple(sorted({*_kept(p)})) if row.kind == BREAKS else (),
        error or row.why,
        speed,
        apart,
        first,
        is_same and row.kind in (WHOLE, BREAKS) and speed is not None and speed >= PAYS,
        is_own(f.__code__.co_filename),
    )


def _compared(p: Pipeline[..., Any], f: Callable[..., Any], sample: Any) -> tuple[float, float]:
    """How far results are apart over some calls, changed arguments included; and the seconds of the first call."""
    apart, first = 0.0, 0.0
    for k in range(SETTLING):
        plain, compiled = copy.deepcopy(sample), copy.deepcopy(sample)
        expected = f(*plain[0], **plain[1])
        start = clock()
        got = p(*compiled[0], **compiled[1])
        first = first if k else clock() - start
        apart = max(apart, difference((expected, *plain), (got, *compiled)))
    return apart, first


def _speed(p: Pipeline[..., Any], f: Callable[..., Any], sample: Any) -> float:
    """Plain time over compiled time: the median over pairs of calls."""
    pairs: list[float] = []
    start = clock()
    while len(pairs) < MIN_ROUNDS or (len(pairs) < ROUNDS and clock() - start < SECONDS):
        plain, compiled = _seconds(f, sample), _seconds(p, sample)
        pairs.append(plain / max(compiled, 1e-9))
    return statistics.median(pairs)


def _seconds(f: Callable[..., Any], sample: Any) -> float:
    args, kwargs = copy.deepcopy(sample)
    start = clock()
    f(*args, **kwargs)
    return clock() - start


def _kept(p: Any) -> Iterator[int]:
    """The lines of a function in parts that Python runs."""
    if p.parts is not None:
        if p.parts.kept is not None:
            yield p.parts.kept[1]
        for part, first, _ in p.parts.parts:
            if part.plain:
                yield first
            yield from _kept(part)


def patched(rows: Iterable[Row], profiler: Profiler) -> dict[str, list[int]]:
    """By file, the first lines of functions that are worth a decorator.

    One that runs only inside another that is compiled whole is compiled with it.
    """
    rows = [row for row in rows if row.pays]
    whole = {(row.file, row.line) for row in rows if row.kind == WHOLE and row.own}
    found: dict[str, list[int]] = {}
    for row in rows:
        around = next(
            (
                s.inside or set()
                for s in profiler.seen.values()
                if s is not None and _place(s.function.__code__) == (row.file, row.line)
            ),
            set(),
        )
        if row.own and whole.isdisjoint(map(_place, around)):
            found.setdefault(row.file, []).append(row.line)
    return found


def _place(code: types.CodeType) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno
