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
from hjit.trace.capture.loops.carried import ALL, CarriedVariables, LargeInts
from hjit.trace.capture.loops.elements import NotCarried, set_locals
from hjit.trace.capture.loops.found import LoopState
from hjit.trace.capture.loops.packing import pack_nests
from hjit.trace.capture.loops.paths import NotOneUpdate, Path, ReadsWhatItWrites, guard_gathers, guarded, without_first
from hjit.trace.capture.loops.programs import record_loop
from hjit.trace.capture.loops.recurrences import merge_iterations
from hjit.trace.ir.analysis.ranges import Range
from hjit.trace.ir.expressions import Expr
from hjit.trace.ir.graph import Stage
from hjit.trace.ir.poly import ZERO, Poly, Var, poly
from hjit.trace.tracing.arrays.buffers import serials
from hjit.trace.tracing.arrays.grown import GrowingList
from hjit.trace.tracing.arrays.number_dicts import Entry, NumberDict
from hjit.trace.tracing.arrays.stacks import NumberStack
from hjit.trace.tracing.arrays.tracer import call, is_tracer, python_int, stage_of
from hjit.trace.tracing.frames import traced_frame
from hjit.trace.tracing.recording.recorder import Recorder
from hjit.trace.tracing.recording.state.attempt import Stacking, place_of
from hjit.trace.tracing.scalars.induction import CannotReroll, Comparison, InductionVariable, LoopSite

MAX_CONDITIONS, MAX_PATHS = 16, 64  # on one path through an iteration, and paths through it: each is traced (chosen)
MAX_TRACED = 20_000  # stages of all these paths, where there may be fewer paths (chosen: tracing them takes a second)


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
        condition, holds: the computed bool that says whether there is its one iteration, in a program, and which
            outcome; None of others.
    """

    start: Any
    step: int
    count: Any
    limits: tuple[Limit, ...] = ()
    is_bound: bool = False
    computed: tuple[Any, int, Poly] | None = None
    condition: Any = None
    holds: bool = True

    @property
    def may_be_empty(self) -> bool:
        """May there be none of them, or none of the first ones?"""
        return bool(self.limits) or self.computed is not None or self.condition is not None

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


def outcome_of(rec: Recorder, condition: Any) -> bool | None:
    """How a condition has come out on the path that is traced; None: it was not decided on."""
    if condition.index:  # an element
        return None
    return next((x.outcomes[v] for x in rec.loops if (v := condition.buffer.version) in x.outcomes), None)


def _made_inside(s: Stacking) -> NumberStack | NumberDict:
    """The arrays of a list, a dict or a set that each iteration makes."""
    if type(s.item) is Entry:
        return NumberDict(s.place, s.item, True, s.item.made_as, {})
    return NumberStack(s.place, s.item, is_inside=True)


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
        self.is_program = rec.loops[0].is_program if rec.loops else rec.attempt.is_program(self.site)
        self.is_overwriting = self.is_program or self.site in rec.attempt.overwriting
        self.iterations, self.count = iterations, iterations.count
        self.trip_count = int(self.count)
        self.known = 0, self.trip_count - 1
        self.start: _Mark | None = None  # where the loop begins, and
        self.mark: _Mark | None = None  # where a path through an iteration does
        self.paths: list[Path] = []
        self.decided: list[tuple[str, bool]] = []  # on the present path
        self.outcomes: dict[str, bool] = {}  # of what was decided on, likewise
        self.ahead: list[bool] = []  # its first outcomes, those after them are True
        self.guard = ""  # on the present path, see `Path`
        checked = [name for site, name in rec.attempt.checked if site == self.site]
        self.checks_ints = ALL in checked
        known = rec.rerolled.conditions.setdefault(self._place(), {}) if iterations.condition is not None else None
        self.carried = CarriedVariables(rec, frame, found.kept, loop.left, iterations.may_be_empty, checked, known)

    def _place(self) -> Any:
        """Where on the paths that are traced the loop begins."""
        loops = self.rec.loops
        decided = tuple((loop.site, tuple(held for _, held in loop.decided)) for loop in loops)
        return self.site, decided, len(self.rec.stages) - loops[-1].mark.at[0]

    def __iter__(self) -> TracedLoop:
        return self

    __reversed__ = __iter__  # its iterations are in the order of the loop already

    def __next__(self) -> Any:
        if self.mark is not None and self.rec.unrolled.iterations is not None:
            self.rec.unrolled.iterations.go_back(self.frame, self.loop.offset)
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
        self.effects = len(rec.breaks), len(rec.externs.undo)
        self.unrolled_before = 0
        if rec.unrolled.iterations is not None:
            rec.unrolled.iterations.begin_loop(*traced_frame())
            self.unrolled_before = rec.unrolled.iterations.operations
        self.var = Var(f"iteration{len(rec.loops)}")
        rec.loops.append(self)
        start, step = self.iterations.start, self.iterations.step
        self.variable = InductionVariable(self, start, self.iterations.last, rec.poly(start) + step * poly(self.var))
        self.ends = self.iterations.ends(rec.poly(start), rec.poly(self.count))
        if len(rec.loops) == 1:
            self._begin_lists()
        self.start = _Mark.of(rec)
        self.carried.begin()
        self.mark, self.serial = _Mark.of(rec), next(serials)

    def _begin_lists(self) -> None:
        """Make the arrays that hold what the loop appends to lists, and stacks."""
        rec, variables = self.rec, self.frame.f_locals
        for g in rec.attempt.growing:
            to = variables.get(g.name)
            if g.place == place_of(self.site) and type(to) is list and not to:
                rec.rerolled.growing[id(to)] = GrowingList(rec, to, g.name, g.item, g.shape)
        inside = (s for s in rec.attempt.stacks if s.is_inside)
        rec.rerolled.stacks = {s.place: _made_inside(s) for s in inside}

    def _end_lists(self) -> None:
        """Give the variables that hold lists what the loop has appended."""
        growing = self.rec.rerolled.growing
        held = ((name, growing.get(id(x))) for name, x in self.frame.f_locals.items() if type(x) is list)
        set_locals(self.frame, {name: found.grown() for name, found in held if found is not None})
        growing.clear()

    def _begin_again(self) -> None:
        """Forget all paths through the body: there are more variables that iterations change than was known."""
        assert self.start is not None
        self.start.return_to(self.rec)
        self.paths, self.decided, self.ahead = [], [], []
        self.carried.begin()
        self.mark, self.serial = _Mark.of(self.rec), next(serials)

    def _begin_path(self) -> None:
        self._forget_conditions()
        self.outcomes = {}
        if self.rec.unrolled.iterations is not None:
            self.rec.unrolled.iterations.operations = self.unrolled_before
        for limit in self.iterations.limits:
            limit.narrow()
        if self.iterations.condition is not None:
            self._narrow(self.iterations.condition.buffer.version, self.iterations.holds)
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
        known = outcome_of(self.rec, condition)
        if known is not None:
            return known
        if len(self.decided) >= MAX_CONDITIONS or len(self.paths) >= MAX_PATHS or self._traces_too_much():
            raise self._too_many_paths()
        outcome = self.ahead[len(self.decided)] if len(self.decided) < len(self.ahead) else True
        self.decided.append((stage_of(condition), outcome))
        if not condition.index:
            self.outcomes[condition.buffer.version] = outcome
        self._narrow(condition.buffer.version, outcome)
        return outcome

    def _narrow(self, condition: str, outcome: bool) -> None:
        """Only iterations are meant now in which a condition, and what follows from that, has an outcome."""
        comparison = self.rec.rerolled.comparisons.get(condition)
        if comparison is not None:
            comparison.narrow(outcome)
        for part in self.rec.rerolled.implied.get((condition, outcome), ()):
            self._narrow(part, outcome)

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
        if rec.loops[-1:] != [self] or self.effects != (len(rec.breaks), len(rec.externs.undo)):
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
        except LargeInts as why:
            rec.rerolled.refused = self.site
            checking = frozenset((self.site, name) for name in why.names)
            raise CannotReroll(self.site, str(why), checking=checking) from None
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
        spared = rec.attempt.is_large(self.site), rec.attempt.is_few(self.site)
        found = self.iterations.condition
        condition = ("" if found is None else found.buffer.version), self.iterations.holds
        left = self.carried.version_of_left()
        record_loop(rec, self.var, self.ends, self.serial, self.paths, left, condition, spared)
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
        self.carried.end(self.iterations.last, self._was_run)
        if not rec.loops and rec.rerolled.growing:
            self._end_lists()
        if self.iterations.is_bound:
            self._check_left()

    def _was_run(self) -> bool:
        """Is the condition met for which there is an iteration? A decision of the loop around."""
        found = outcome_of(self.rec, self.iterations.condition)
        return (bool(self.iterations.condition) if found is None else found) is self.iterations.holds

    def _check_left(self) -> None:
        """Have Python run where a loop does not end within the iterations that are traced."""
        left = self.frame.f_locals.get(self.loop.left)
        if not is_tracer(left):
            raise self.refusal("no end")
        self.rec.checks.append(stage_of(call(np.logical_not, left)))

    def range_of(self, e: Expr) -> Range | None:
        """See `hjit.trace.tracing.scalars.induction.RerolledLoop`."""
        return self.carried.ranges(self._fixed()).of(e)

    def moves(self, e: Expr, own: str) -> int | None:
        """See `hjit.trace.tracing.scalars.induction.RerolledLoop`."""
        return self.carried.ranges(self._fixed()).moves(e, own)

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

    def _traces_too_much(self) -> bool:
        """Are its paths long, and may it have fewer?"""
        if sum(len(p.body) for p in self.paths) <= MAX_TRACED:
            return False
        attempt = self.rec.attempt
        return (self.rec.unrolled.has_short and not attempt.rolls_inside) or not attempt.chooses

    def _too_many_paths(self) -> CannotReroll:
        """Short loops inside may be the reason, or conditions that need no paths of their own."""
        rec = self.rec
        rec.rerolled.refused = self.site
        rolling = rec.unrolled.has_short and not rec.attempt.rolls_inside
        choosing = not rolling and not rec.attempt.chooses
        branching = not rolling and not choosing and self.is_program and not rec.attempt.branches
        many = not rolling and not choosing and not self.is_program
        why = "too many paths through an iteration"
        return CannotReroll(self.site, why, rolling=rolling, choosing=choosing, branching=branching, many=many)
