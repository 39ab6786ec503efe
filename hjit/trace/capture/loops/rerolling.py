"""Loop re-rolling: Python loops over ``range(...)`` are traced once, so that the trace does not grow with the image.

The first iteration stands for all of them: its variable is an `InductionVariable`. At its end, everything it found
(local variables, lists and dicts) must be unchanged, but for one array that it has written to. Then every iteration
does the same, and what was recorded is made one update of that array:

- over one more pure dimension, where no iteration reads what another one writes;
- else over a reduction dimension in order, a recurrence. Where an iteration reads elements near those that others
  wrote, all that it writes is inside that dimension.

Temporaries that do not depend on that array become stages with an axis for the iterations; the others become part of
the value. Whatever does not fit raises `CannotReroll`, and the function is traced again with that loop unrolled.
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hjit.trace.capture.captured import ObjectProxy
from hjit.trace.capture.loops.bytecode import Loop, has_no_side_effects, loops
from hjit.trace.capture.loops.recurrences import NotOneUpdate, Path, ReadsWhatItWrites, merge_iterations
from hjit.trace.ir.poly import SMALL, Var, poly
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer
from hjit.trace.tracing.arrays.tracer import is_tracer, serials, stage_of
from hjit.trace.tracing.recording.recorder import Recorder, current, tracing
from hjit.trace.tracing.scalars.host import is_host, static_value
from hjit.trace.tracing.scalars.induction import CannotReroll, InductionVariable, LoopSite
from hjit.trace.tracing.scalars.size import Size

MAX_CONDITIONS, MAX_PATHS = 8, 16  # on one way through an iteration, and ways through it: each is traced (chosen)
MAX_TAPS = 128  # iterations of a loop that has nothing to do with a size: they unroll into one expression


def range_(*args: Any) -> Any:
    """``range`` for traced functions: the iterations of a loop at once, where its body allows that."""
    plain = range(*(operator.index(static_value(a)) for a in args))
    frame = sys._getframe(1)
    if len(plain) <= SMALL or type(frame.f_globals) is dict or not tracing():
        return plain
    sizes = [a if type(a) is Size else operator.index(static_value(a)) for a in args]
    start, stop = sizes[:2] if len(sizes) > 1 else (0, sizes[0])
    if len(plain) <= MAX_TAPS and not any(type(n) is Size for n in (start, stop)):
        return plain
    loop, rec = loops(frame.f_code).get(frame.f_lasti), current()
    if loop is None or (frame.f_code, loop.offset) in rec.unrolled:
        return plain
    step = plain.step
    span = stop - start if step > 0 else start - stop
    count = span if abs(step) == 1 else (span + (abs(step) - 1)) // abs(step)
    if loop.is_reversed:
        start, step = start + step * (count - 1), -step
    found = _found(loop, frame)
    return plain if found is None else _RerolledLoop(rec, frame, loop, found, (start, step, count))


# -- what an iteration finds


@dataclass
class _LoopState:
    """Variables that an iteration must leave unchanged, and containers that it can reach, with their contents."""

    kept: dict[str, Any]
    containers: list[tuple[Any, list[Any]]] = field(default_factory=list)

    def is_left(self, frame: types.FrameType) -> bool:
        now = frame.f_locals
        same = all(now.get(name, self) is value for name, value in self.kept.items())
        return same and all(_identical(_contents(c), before) for c, before in self.containers)


def _found(loop: Loop, frame: types.FrameType) -> _LoopState | None:
    """What the loop finds; None where it can reach things that might remember an iteration."""
    known = frame.f_locals
    found = _LoopState({name: known.get(name) for name in loop.kept})
    values = [known.get(name) for name in loop.read]
    under: dict[str, Any] = frame.f_globals.under  # type: ignore[attr-defined]
    named = [under.get(name, _BUILTINS.get(name, sys)) for name in loop.names]
    named = [v for v in named if type(v) is not np.ndarray]  # these are read as tracers
    return found if all(_keeps_no_state(v, found.containers) for v in (*values, *named)) else None


_HARMLESS = (
    min,
    max,
    abs,
    len,
    float,
    int,
    bool,
    range,
    slice,
    tuple,
    list,
    round,
    sum,
    zip,
    enumerate,
    reversed,
    isinstance,
)
_BUILTINS = {f.__name__: f for f in _HARMLESS}
_PLAIN = (type(None), bool, int, float, str, bytes, complex, slice, range, np.generic, np.dtype, np.ufunc, type(...))
_MODULES = ("numpy", "math", "scipy")
_CALLABLE = (type, types.FunctionType, types.BuiltinFunctionType, type(np.sum))


def _keeps_no_state(value: Any, containers: list[tuple[Any, list[Any]]]) -> bool:
    """Can an iteration leave nothing behind in this object, but in arrays and the containers noted here?"""
    if (
        is_tracer(value)
        or type(value) is ComplexTracer
        or is_host(value)
        or type(value) in (Size, InductionVariable, ObjectProxy)
        or isinstance(value, _PLAIN)
    ):
        return True
    if type(value) in (tuple, list, dict):
        if type(value) is not tuple:
            containers.append((value, _contents(value)))
        return all(_keeps_no_state(v, containers) for v in (value.values() if type(value) is dict else value))
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in _MODULES
    if any(value is f for f in _HARMLESS) or (
        isinstance(value, _CALLABLE) and (value.__module__ or "").partition(".")[0] in _MODULES
    ):
        return True
    if not isinstance(value, types.FunctionType):
        return False
    held = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *_cells(value))
    return has_no_side_effects(value.__code__) and all(_keeps_no_state(v, containers) for v in held)


def _cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name not yet bound
            pass


def _contents(container: Any) -> list[Any]:
    return [*container, *container.values()] if type(container) is dict else list(container)


def _identical(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


# -- the loop


class _RerolledLoop:
    """The iterator of a loop: it gives one `InductionVariable`, and then makes one update of what was recorded.

    Where the iteration decides on a computed value, it gives the variable again, once for each way through the body.
    """

    def __init__(
        self, rec: Recorder, frame: types.FrameType, loop: Loop, found: _LoopState, iterations: tuple[Any, Any, Any]
    ) -> None:
        self.rec, self.frame, self.found = rec, frame, found
        self.site: LoopSite = (frame.f_code, loop.offset)
        self.is_overwriting = self.site in rec.overwriting
        self.start, self.step, self.count = iterations
        self.at: tuple[int, int] | None = None
        self.paths: list[Path] = []
        self.decided: list[tuple[str, bool]] = []  # on the present path
        self.ahead: list[bool] = []  # its first outcomes, those after them are True

    def __iter__(self) -> _RerolledLoop:
        return self

    __reversed__ = __iter__  # its iterations are in the order of the loop already

    def __next__(self) -> InductionVariable:
        if self.at is None:
            return self._begin()
        self._end_of_path()
        if self.ahead:
            return self.variable
        self._end()
        raise StopIteration

    def _begin(self) -> InductionVariable:
        rec = self.rec
        self.at, self.serial = (len(rec.stages), len(rec.changes)), next(serials)
        self.effects = len(rec.breaks), len(rec.undo)
        self.var = Var(f"iteration{len(rec.loops)}")
        rec.loops.append(self)
        last = self.start + self.step * (self.count - 1)
        self.variable = InductionVariable(self, self.start, last, rec.poly(self.start) + self.step * poly(self.var))
        return self.variable

    def branch(self, condition: Any) -> bool:
        """The outcome of a condition on the present path."""
        if len(self.decided) >= MAX_CONDITIONS or len(self.paths) >= MAX_PATHS:
            raise self.refusal("too many ways through an iteration")
        outcome = self.ahead[len(self.decided)] if len(self.decided) < len(self.ahead) else True
        self.decided.append((stage_of(condition), outcome))
        return outcome

    def _end_of_path(self) -> None:
        """Take what the path has recorded, and find the next one: the last condition that held does not."""
        rec = self.rec
        if rec.refused:
            raise CannotReroll(rec.refused, "an exception that the code has handled")
        if rec.loops[-1:] != [self] or self.effects != (len(rec.breaks), len(rec.undo)):
            raise self.refusal("a decision, a draw or a call of another library in the loop")
        if not self.found.is_left(self.frame):
            raise self.refusal("a variable is carried from one iteration to the next")
        assert self.at is not None
        self.paths.append(Path.rolled_back(rec, self.at, self.decided))
        outcomes = [held for _, held in self.decided]
        while outcomes and not outcomes[-1]:
            outcomes.pop()
        self.ahead = [*outcomes[:-1], False] if outcomes else []
        self.decided = []

    def _end(self) -> None:
        rec = self.rec
        try:
            merge_iterations(rec, self.var, rec.poly(self.count), self.serial, self.paths)
        except ReadsWhatItWrites as why:
            raise CannotReroll(self.site, str(why), overwriting=not self.is_overwriting) from None
        except NotOneUpdate as why:
            raise self.refusal(str(why)) from None
        rec.loops.pop()

    def refusal(self, why: str) -> CannotReroll:
        self.rec.refused = self.site
        return CannotReroll(self.site, why)
