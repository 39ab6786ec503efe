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

import functools
import operator
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.trace.capture.loops.bytecode import Loop
from hjit.trace.capture.loops.carried import CarriedVariables
from hjit.trace.capture.loops.elements import NotCarried
from hjit.trace.capture.loops.found import LoopState
from hjit.trace.capture.loops.packing import pack_nests
from hjit.trace.capture.loops.paths import NotOneUpdate, Path, ReadsWhatItWrites, guard_gathers, guarded, without_first
from hjit.trace.capture.loops.programs import record_loop
from hjit.trace.capture.loops.recurrences import merge_iterations
from hjit.trace.ir.graph import Stage
from hjit.trace.ir.poly import ZERO, Poly, Var, poly
from hjit.trace.tracing.arrays.buffers import serials
from hjit.trace.tracing.arrays.tracer import call, is_tracer, python_int, stage_of
from hjit.trace.tracing.frames import traced_frame
from hjit.trace.tracing.recording.recorder import Recorder
from hjit.trace.tracing.scalars.induction import CannotReroll, Comparison, InductionVariable, LoopSite

MAX_CONDITIONS, MAX_PATHS = 16, 64  # on one path through an iteration, and paths through it: each is traced (chosen)


@dataclass(frozen=True, slots=True)
class Limit:
    """What holds in the iterations that a range has, where it moves with a loop around it.

    Attributes:
        compare: the loop's variable with this end of the range.
        exists: this end with the other one of all ranges, where there are iterations at all.
    """

    compare: Callable[[Any, Any], Any]
    end: InductionVariable
    exists: Callable[[Any, Any], Any]
    other: Any

    def narrow(self) -> None:
        """Only iterations of the loop around are meant that have some."""
        end = self.end
        Comparison(end.loop, self.exists, end.first - int(self.other), end.step).narrow(True)


@dataclass(frozen=True, slots=True)
class Iterations:
    """What a loop runs over.

    Attributes:
        limits: which of its iterations there are.
        is_bound: does it have to be left before their end?
        computed: of a range whose ends a program computes the first number, the step, and how many there are.
    """

    start: Any
    step: int
    count: Any
    limits: tuple[Limit, ...] = ()
    is_bound: bool = False
    computed: tuple[Any, int, Poly] | None = None

    @property
    def may_be_empty(self) -> bool:
        """May there be none of them, or none of the first ones?"""
        return bool(self.limits) or self.computed is not None

    @property
    def last(self) -> Any:
        """The last number."""
        return self.start + self.step * (self.count - 1)

    def ends(self, start: Poly, count: Poly) -> tuple[Poly, Poly]:
        """Between which of them, counted from the first one, those are that there are; the last one excluded."""
        begin, end = ZERO, count if self.computed is None else self.computed[2]
        for limit in self.limits:
            at = (limit.end.poly - start) * self.step
            if limit.compare in (operator.ge, operator.le):
                begin = at
            else:
                end = at
        return begin, end

    def reversed(self) -> Iterations:
        """The same ones the other way round."""
        return replace(self, start=self.last, step=-self.step)


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
        self.forget_indices(rec)

    def forget_indices(self, rec: Recorder) -> None:
        """Forget the indices that were noted since."""
        rec.indices.clear()
        rec.indices.update(self.indices)


class TracedLoop:
    """The iterator of a loop: it gives one `InductionVariable`, and then makes one update of what was recorded.

    Where the iteration decides on a computed value, it gives the variable again, once for each path through the body;
    and from the start, where a variable proves to be carried from one iteration to the next.
    """

    def __init__(
        self, rec: Recorder, frame: types.FrameType, loop: Loop, found: LoopState, iterations: Iterations
    ) -> None:
        self.rec, self.frame, self.loop, self.found = rec, frame, loop, found
        self.site: LoopSite = (frame.f_code, loop.offset)
        self.is_program = rec.loops[0].is_program if rec.loops else self.site in rec.attempt.programs
        self.is_overwriting = self.is_program or self.site in rec.attempt.overwriting
        self.iterations, self.count = iterations, iterations.count
        self.trip_count = int(self.count)
        self.known = 0, self.trip_count - 1
        self.mark: _Mark | None = None
        self.paths: list[Path] = []
        self.decided: list[tuple[str, bool]] = []  # on the present path
        self.ahead: list[bool] = []  # its first outcomes, those after them are True
        self.guard = ""  # on the present path, see `Path`
        self.carried = CarriedVariables(rec, frame, found.kept, loop.left, iterations.may_be_empty)

    def __iter__(self) -> TracedLoop:
        return self

    __reversed__ = __iter__  # its iterations are in the order of the loop already

    def __next__(self) -> Any:
        if self.mark is not None and self.rec.iterations is not None:
            self.rec.iterations.go_back(self.frame, self.loop.offset)
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
        if self.iterations.computed is None:
            return self.variable
        start, step, _ = self.iterations.computed
        return python_int(start + self.variable.traced() * step)

    def _begin(self) -> None:
        rec = self.rec
        self.around = [(loop, loop.known) for loop in rec.loops]
        self.effects = len(rec.breaks), len(rec.undo)
        self.unrolled_before = 0
        if rec.iterations is not None:
            rec.iterations.begin_loop(*traced_frame())
            self.unrolled_before = rec.iterations.operations
        self.var = Var(f"iteration{len(rec.loops)}")
        rec.loops.append(self)
        start, step = self.iterations.start, self.iterations.step
        self.variable = InductionVariable(self, start, self.iterations.last, rec.poly(start) + step * poly(self.var))
        self.ends = self.iterations.ends(rec.poly(start), rec.poly(self.count))
        self.mark, self.serial = _Mark.of(rec), next(serials)

    def _begin_again(self) -> None:
        """Forget all paths through the body: there are more variables that iterations change than was known."""
        assert self.mark is not None
        self.mark.return_to(self.rec)
        self.paths, self.decided, self.ahead = [], [], []
        self.carried.begin()
        self.mark, self.serial = _Mark.of(self.rec), next(serials)

    def _begin_path(self) -> None:
        self._forget_conditions()
        if self.rec.iterations is not None:
            self.rec.iterations.operations = self.unrolled_before
        for limit in self.iterations.limits:
            limit.narrow()
        self.carried.begin_path(self._is_first, self.branch)
        if self.iterations.limits and not self.is_program:
            exists = [x.compare(self.variable.traced(), x.end.traced()) for x in self.iterations.limits]
            self.guard = stage_of(functools.reduce(operator.and_, exists))

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
            raise self._too_many_paths()
        outcome = self.ahead[len(self.decided)] if len(self.decided) < len(self.ahead) else True
        self.decided.append((stage_of(condition), outcome))
        comparison = self.rec.rerolled.comparisons.get(condition.buffer.version)
        if comparison is not None:
            comparison.narrow(outcome)
        return outcome

    def compared(self, outcome: Any, comparison: Comparison) -> Any:
        """A traced comparison, which is noted."""
        self.rec.rerolled.comparisons[outcome.buffer.source()] = comparison
        return outcome

    def _is_left(self) -> bool:
        """Are what the iteration leaves, and how, known already? If so, it is written.

        Raises:
            CannotReroll: it cannot be.
        """
        rec = self.rec
        if rec.rerolled.refused:
            raise CannotReroll(rec.rerolled.refused, "an exception that the code has handled")
        if rec.loops[-1:] != [self] or self.effects != (len(rec.breaks), len(rec.undo)):
            raise self.refusal("a decision, a draw or a call of another library in the loop")
        try:
            is_known = self.carried.keep_lists(self.found.changed())
            return self.carried.end_path(self.variable, self.loop.read) and is_known
        except NotCarried as why:
            raise self.refusal(str(why)) from None

    def _end_of_path(self) -> None:
        """Take what the path has recorded, and find the next one: the last condition that held does not."""
        assert self.mark is not None
        self.paths.append(replace(Path.rolled_back(self.rec, self.mark.at, self.decided), guard=self.guard))
        if self.is_program:  # what paths have in common they record alike
            self.mark.forget_indices(self.rec)
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
            if self.is_program:
                self._end_of_program()
                return
            self.paths = [guard_gathers(rec, p) for p in guarded(self.paths, self.carried.version_of_left())]
            merge_iterations(rec, self.var, rec.poly(self.count), self.serial, self.paths)
            if any(name in p.body and name not in rec.stages for name in rec.checks for p in self.paths):
                raise NotOneUpdate("NumPy refuses some values of what the loop computes")
        except ReadsWhatItWrites as why:
            raise CannotReroll(self.site, str(why), overwriting=not self.is_overwriting) from None
        except (NotOneUpdate, NotCarried) as why:
            raise self.refusal(str(why)) from None
        self._forget_conditions()
        rec.loops.pop()
        self._leave()

    def _end_of_program(self) -> None:
        """Record a loop whose iterations are run one after the other."""
        rec = self.rec
        self._forget_conditions()
        rec.loops.pop()
        record_loop(rec, self.var, self.ends, self.serial, self.paths, self.carried.version_of_left())
        self._leave()

    def _leave(self) -> None:
        """Give the variables what they hold after the loop."""
        rec = self.rec
        if not self.iterations.may_be_empty:
            for loop in rec.loops:
                if loop.frame is self.frame:
                    loop.carried.set_inside.add(self.loop.variable)
        self.carried.note_ints()
        if not rec.loops:
            pack_nests(rec)
        self.carried.end(self.iterations.last)
        if self.iterations.is_bound:
            self._check_left()

    def _check_left(self) -> None:
        """Have Python run where a loop does not end within the iterations that are traced."""
        left = self.frame.f_locals.get(self.loop.left)
        if not is_tracer(left):
            raise self.refusal("no end")
        self.rec.checks.append(stage_of(call(np.logical_not, left)))

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
        """The first iteration needs no path of its own where it does what the others do."""
        rec = self.rec
        checks = {*rec.checks, *(noted.stage for noted in rec.indices.values())}
        found = without_first(self.paths, self.carried.begins(), checks)
        gone = [p for p in self.paths if p.decided[0][1]] if len(found) < len(self.paths) else []
        rec.checks[:] = [name for name in rec.checks if all(name not in p.body for p in gone)]
        self.paths = found

    def refusal(self, why: str) -> CannotReroll:
        """See `hjit.trace.tracing.scalars.induction.RerolledLoop`."""
        self.rec.rerolled.refused = self.site
        return CannotReroll(self.site, why)

    def _too_many_paths(self) -> CannotReroll:
        """Short loops inside may be the reason, or conditions that need no paths of their own."""
        rec = self.rec
        rec.rerolled.refused = self.site
        rolling = rec.has_short_loops and not rec.attempt.rolls_inside
        choosing = not rolling and not rec.attempt.chooses
        return CannotReroll(self.site, "too many paths through an iteration", rolling=rolling, choosing=choosing)
