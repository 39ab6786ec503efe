"""Loop re-rolling: Python loops over ``range(...)`` are traced once, so that the trace does not grow with the image.

The first iteration stands for all of them: its variable is an `InductionVariable`. At its end, everything it found
(local variables, lists and dicts) must be unchanged, but for arrays that it has written to, and for variables that hold
numbers: with these it is traced again, as what holds them is an array, too (`hjit.trace.capture.loops.carried`). Then
every iteration does the same, and what was recorded is made one update of that array:

- over one more pure dimension, where no iteration reads what another one writes;
- else over a reduction dimension in order, a recurrence. Where an iteration reads elements near those that others
  wrote, all that it writes is inside that dimension;
- of several arrays that depend on each other, and in several places, over such a dimension together
  (`hjit.trace.capture.loops.nests`).

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
from hjit.trace.capture.loops.carried import UNBOUND, CarriedVariables, NotCarried
from hjit.trace.capture.loops.packing import pack_nests
from hjit.trace.capture.loops.paths import NotOneUpdate, Path, ReadsWhatItWrites, without_first
from hjit.trace.capture.loops.recurrences import merge_iterations
from hjit.trace.ir.graph import Stage
from hjit.trace.ir.poly import SMALL, Var, poly
from hjit.trace.tracing.arrays.complex_tracer import ComplexTracer
from hjit.trace.tracing.arrays.tracer import is_tracer, serials, stage_of
from hjit.trace.tracing.recording.recorder import Recorder, current, tracing
from hjit.trace.tracing.scalars.host import is_host, static_value
from hjit.trace.tracing.scalars.induction import CannotReroll, Comparison, InductionVariable, LoopSite
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
    """Variables that an iteration may change, and containers that it can reach and must not, with their contents."""

    kept: dict[str, Any]  # `UNBOUND` for those that have no value yet
    containers: list[tuple[Any, list[Any]]] = field(default_factory=list)

    def keeps_containers(self) -> bool:
        """Do the containers hold what they held?"""
        return all(_identical(_contents(c), before) for c, before in self.containers)


def _found(loop: Loop, frame: types.FrameType) -> _LoopState | None:
    """What the loop finds; None where it can reach things that might remember an iteration."""
    known = frame.f_locals
    found = _LoopState({name: known.get(name, UNBOUND) for name in loop.kept})
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


@dataclass(frozen=True, slots=True)
class _Mark:
    """How far a trace had come, to go back to that."""

    at: tuple[int, int]
    checks: int
    indices: dict[Any, Any]

    @classmethod
    def of(cls, rec: Recorder) -> _Mark:
        return cls((len(rec.stages), len(rec.changes)), len(rec.checks), dict(rec.indices))

    def return_to(self, rec: Recorder) -> None:
        """Forget what was recorded since."""
        Path.rolled_back(rec, self.at, ())
        del rec.checks[self.checks :]
        rec.indices.clear()
        rec.indices.update(self.indices)


class _RerolledLoop:
    """The iterator of a loop: it gives one `InductionVariable`, and then makes one update of what was recorded.

    Where the iteration decides on a computed value, it gives the variable again, once for each way through the body;
    and from the start, where it turns out that a variable is carried from one iteration to the next.
    """

    def __init__(
        self, rec: Recorder, frame: types.FrameType, loop: Loop, found: _LoopState, iterations: tuple[Any, Any, Any]
    ) -> None:
        self.rec, self.frame, self.loop, self.found = rec, frame, loop, found
        self.site: LoopSite = (frame.f_code, loop.offset)
        self.is_overwriting = self.site in rec.overwriting
        self.start, self.step, self.count = iterations
        self.last = self.start + self.step * (self.count - 1)
        self.trip_count = int(self.count)
        self.known = 0, self.trip_count - 1
        self.mark: _Mark | None = None
        self.paths: list[Path] = []
        self.decided: list[tuple[str, bool]] = []  # on the present path
        self.ahead: list[bool] = []  # its first outcomes, those after them are True
        self.carried = CarriedVariables(rec, frame, found.kept)

    def __iter__(self) -> _RerolledLoop:
        return self

    __reversed__ = __iter__  # its iterations are in the order of the loop already

    def __next__(self) -> InductionVariable:
        if self.mark is None:
            self._begin()
        elif self._is_left():
            self._end_of_path()
            if not self.ahead:
                self._end()
                raise StopIteration
        else:
            self._begin_again()
        self._begin_path()
        return self.variable

    def _begin(self) -> None:
        rec = self.rec
        self.around = [(loop, loop.known) for loop in rec.loops]
        self.effects = len(rec.breaks), len(rec.undo)
        self.var = Var(f"iteration{len(rec.loops)}")
        rec.loops.append(self)
        self.variable = InductionVariable(
            self, self.start, self.last, rec.poly(self.start) + self.step * poly(self.var)
        )
        self.mark, self.serial = _Mark.of(rec), next(serials)

    def _begin_again(self) -> None:
        """Forget all ways through the body: there are more variables that iterations change than was known."""
        assert self.mark is not None
        self.mark.return_to(self.rec)
        self.paths, self.decided, self.ahead = [], [], []
        self.carried.begin()
        self.mark, self.serial = _Mark.of(self.rec), next(serials)

    def _begin_path(self) -> None:
        self._forget_conditions()
        self.carried.begin_path(self._is_first, self.branch)

    def _forget_conditions(self) -> None:
        self.known = 0, self.trip_count - 1
        for loop, known in self.around:
            loop.known = known

    def _is_first(self) -> bool:
        """Is it the first iteration? A condition as those of the function."""
        iteration = InductionVariable(self, 0, self.trip_count - 1, poly(self.var))
        return self.branch(self.compared(iteration.traced() == 0, Comparison(self, operator.eq, 0, 1)))

    def branch(self, condition: Any) -> bool:
        """The outcome of a condition on the present path."""
        if len(self.decided) >= MAX_CONDITIONS or len(self.paths) >= MAX_PATHS:
            raise self.refusal("too many ways through an iteration")
        outcome = self.ahead[len(self.decided)] if len(self.decided) < len(self.ahead) else True
        self.decided.append((stage_of(condition), outcome))
        comparison = self.rec.comparisons.get(condition.buffer.version)
        if comparison is not None:
            comparison.narrow(outcome)
        return outcome

    def compared(self, outcome: Any, comparison: Comparison) -> Any:
        """A traced comparison, which is noted."""
        self.rec.comparisons[outcome.buffer.source()] = comparison
        return outcome

    def _is_left(self) -> bool:
        """Are what the iteration leaves, and how, known already? If so, it is written.

        Raises:
            CannotReroll: it cannot be.
        """
        rec = self.rec
        if rec.refused:
            raise CannotReroll(rec.refused, "an exception that the code has handled")
        if rec.loops[-1:] != [self] or self.effects != (len(rec.breaks), len(rec.undo)):
            raise self.refusal("a decision, a draw or a call of another library in the loop")
        if not self.found.keeps_containers():
            raise self.refusal("a list or a dict is changed")
        try:
            return self.carried.end_path(self.variable, self.loop.read)
        except NotCarried as why:
            raise self.refusal(str(why)) from None

    def _end_of_path(self) -> None:
        """Take what the path has recorded, and find the next one: the last condition that held does not."""
        assert self.mark is not None
        self.paths.append(Path.rolled_back(self.rec, self.mark.at, self.decided))
        outcomes = [held for _, held in self.decided]
        while outcomes and not outcomes[-1]:
            outcomes.pop()
        self.ahead = [*outcomes[:-1], False] if outcomes else []
        self.decided = []

    def _end(self) -> None:
        rec = self.rec
        try:
            self.carried.check_ints(self.paths, self._fixed())
            self.carried.check_bound()
            if self.carried.has_first_iteration:
                self._drop_first()
            merge_iterations(rec, self.var, rec.poly(self.count), self.serial, self.paths)
            if any(name in p.body and name not in rec.stages for name in rec.checks for p in self.paths):
                raise NotOneUpdate("NumPy refuses some values of what the loop computes")
        except ReadsWhatItWrites as why:
            raise CannotReroll(self.site, str(why), overwriting=not self.is_overwriting) from None
        except (NotOneUpdate, NotCarried) as why:
            raise self.refusal(str(why)) from None
        self._forget_conditions()
        rec.loops.pop()
        self.carried.note_ints()
        if not rec.loops:
            pack_nests(rec)
        self.carried.end(self.last)

    def _fixed(self) -> dict[str, Stage]:
        """The stages that hold the same in all iterations, also of loops around."""
        rec = self.rec
        outermost = rec.loops[0]
        recent = set(list(rec.stages)[outermost.mark.at[0] :])
        changed = {version for c in rec.changes[outermost.mark.at[1] :] for version in (c[1], c[0].version)}
        for loop in rec.loops:
            changed |= loop.carried.arrays()
        is_inside = outermost is not self
        return {n: s for n, s in rec.stages.items() if n not in changed and (n in recent or not is_inside)}

    def _drop_first(self) -> None:
        """The first iteration needs no way of its own where it does what the others do."""
        rec = self.rec
        checks = {*rec.checks, *(noted.stage for noted in rec.indices.values())}
        found = without_first(self.paths, self.carried.begins(), checks)
        gone = [p for p in self.paths if p.decided[0][1]] if len(found) < len(self.paths) else []
        rec.checks[:] = [name for name in rec.checks if all(name not in p.body for p in gone)]
        self.paths = found

    def refusal(self, why: str) -> CannotReroll:
        self.rec.refused = self.site
        return CannotReroll(self.site, why)
