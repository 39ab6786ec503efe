"""Repeated attempts at tracing a function; each knows from earlier ones which loops to trace as one iteration, and so
on.

A loop is traced as one iteration that becomes an update of arrays; else iteration by iteration; else, where that fills
the trace, with what is around it and inside as a program (`hjit.trace.capture.loops.programs`). Loops whose iterations
have no two arrays of the same length are programs at once, if they can be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, TypeVar

from hjit.errors import BudgetError, InherentError, LongLoop, Origin, TraceError
from hjit.trace.capture.captured import NUMERIC
from hjit.trace.capture.loops.rewriting.exits import code_of
from hjit.trace.tracing.recording.recorder import OutOfBounds, Recorder
from hjit.trace.tracing.recording.state.attempt import Attempt, Growing, Stacking
from hjit.trace.tracing.scalars.host import captured_number
from hjit.trace.tracing.scalars.induction import CannotReroll, LoopSite

E = TypeVar("E", bound=BaseException)


def _else_without_methods(
    step: Callable[[Attempts, Recorder, E], None],
) -> Callable[[Attempts, Recorder, E], None]:
    """Where methods are traced and nothing else can be tried: begin again, with the methods as they are."""

    @functools.wraps(step)
    def method(attempts: Attempts, rec: Recorder, error: E) -> None:
        try:
            step(attempts, rec, error)
        except (OutOfBounds, BudgetError):
            raise
        except Exception:
            if attempts.decided_on is not None:
                raise attempts.decided_on from None
            if not attempts.next.traces_methods:
                raise
            attempts.next, attempts.outermost = Attempt(traces_methods=False), set()
            attempts.too_long = attempts.otherwise = None

    return method


def _has_choices(rec: Recorder) -> bool:
    """Are there conditions in loops of traced functions that only choose numbers?"""
    functions = [f for f in rec.clones.functions if isinstance(f, FunctionType)]
    return any(
        code_of(f, True) is not code_of(f) for f in functions if (f.__module__ or "").partition(".")[0] not in NUMERIC
    )


@dataclass
class Attempts:
    """What the attempts at tracing a function have shown.

    Attributes:
        has_programs: does something run programs?
        speculates: may outcomes be speculated on?
        next: the next attempt.
        outermost: the loops around those that could not be traced as one iteration, or they themselves.
        too_long: why a function cannot be traced without programs; None: it was not found that it cannot.
        has_branched: were the sides of conditions traced one after the other? That takes long, and is tried once.
        repeated: the line that iterations of a loop decide at too often; None: there is none.
        decided_on: why a function cannot be traced unless outcomes of conditions are speculated on, once they are.
        otherwise: how loops are traced where programs cannot be recorded either.
    """

    has_programs: bool = False
    speculates: bool = True
    next: Attempt = field(default_factory=Attempt)
    outermost: set[LoopSite] = field(default_factory=set)
    too_long: TraceError | None = None
    has_branched: bool = False
    repeated: Origin | None = None
    decided_on: TraceError | None = None
    otherwise: Attempt | None = None

    def update(self, **changes: Any) -> None:
        """Change settings for the next attempt."""
        self.next = replace(self.next, **changes)

    @_else_without_methods
    def refused(self, rec: Recorder, refusal: CannotReroll) -> None:
        """A loop could not be traced with the current settings.

        Raises:
            TraceError: see `too_long`.
        """
        site = rec.loops[0].site if rec.loops else refusal.site
        if refusal.overwriting:
            self.update(overwriting=self.next.overwriting | {refusal.site})
        elif refusal.growing is not None:
            self._grow(rec, refusal.growing)
        elif refusal.stacking is not None:
            self._stack(refusal.stacking)
        elif refusal.indexing:
            self.update(indexes=False)
        elif refusal.rolling:
            self.update(rolls_inside=True)
        elif refusal.endless:
            if self.next.records_programs and not self.next.is_program(site):
                self.update(programs=self.next.programs | {site})
            elif self.has_programs and self.otherwise is None:
                self.otherwise = replace(self.next, few_iterations=True)
                self._with_programs(frozenset({site}))
            else:
                self.update(few_iterations=True)
        elif refusal.checking:
            self.update(checked=self.next.checked | refusal.checking)
        elif refusal.choosing:
            self.update(chooses=True)
        elif refusal.many and self.has_programs and self.otherwise is None and not self.has_branched:
            self.has_branched = True
            self.otherwise = replace(self.next, unrolled=self.next.unrolled | {refusal.site})
            self.update(large=frozenset({site}))
            self._with_programs(frozenset({site}))
            self.next = self.next.moved(branches=True)
        elif refusal.branching and not self.has_branched:
            self.has_branched = True
            self.next = self.next.moved(branches=True)
        elif self.next.is_program(site) and refusal.site in rec.unrolled.short - self.next.unrolled - {site}:
            self.update(unrolled=self.next.unrolled | {refusal.site})
        elif self.next.is_program(site):
            self._without_programs()
        elif self.next.records_programs:
            self.update(programs=self.next.programs | {site})
        elif refusal.moving and self.has_programs and self.otherwise is None:
            self.otherwise = replace(self.next, unrolled=self.next.unrolled | {refusal.site})
            self._with_programs(frozenset({site}))
        else:
            self.outermost.add(site)
            self.update(unrolled=self.next.unrolled | {refusal.site})

    @_else_without_methods
    def long(self, rec: Recorder, error: TraceError) -> None:
        """A loop that is traced iteration by iteration makes the trace too long.

        Raises:
            TraceError: it does so whatever is done.
        """
        self.repeated = rec.findings.repeated_decision or self.repeated
        if rec.findings.runs_methods:
            self.update(traces_methods=True)
        elif rec.breaks and not self.next.chooses_unrolled and not self.next.records_programs and _has_choices(rec):
            self.next = self.next.moved(chooses_unrolled=True)
        elif self.next.records_programs:
            if all(map(self.next.is_program, rec.unrolled.short)):
                self._without_programs()
            else:
                self.update(programs=self.next.programs | rec.unrolled.short)  # one of them may be around a program
        elif isinstance(error, LongLoop) and not self.next.rolls_short and rec.unrolled.has_short:
            self.update(rolls_short=True)
        elif (sites := self.outermost or rec.unrolled.too_long) and self.has_programs and self.too_long is None:
            self.too_long = error
            if not self.outermost:
                self.update(large=rec.unrolled.too_long, few=rec.unrolled.too_long)
            self._with_programs(frozenset(sites))
        else:
            self._speculate(error)

    def _speculate(self, error: TraceError) -> None:
        """Speculate on the outcomes at the line that iterations decide at too often.

        Raises:
            TraceError: `error`, if there is none, or it is not enough.
        """
        line = self.repeated
        if not self.speculates or line is None or (place := (line.filename, line.line)) in self.next.speculates:
            raise error
        self.decided_on = self.decided_on or error
        self.next = Attempt(traces_methods=self.next.traces_methods, speculates=self.next.speculates | {place})
        self.repeated, self.outermost, self.has_programs = None, set(), False
        self.too_long = self.otherwise = None

    @_else_without_methods
    def failed(self, rec: Recorder, error: Exception) -> None:
        """An attempt has failed with another exception.

        Raises:
            OutOfBounds: NumPy refuses an index.
            Exception: this one, where nothing else can be tried.
        """
        if rec.findings.out_of_bounds:
            raise OutOfBounds from None
        if isinstance(error, BudgetError):
            raise error
        if (
            isinstance(error, InherentError) and self.next.stacks and not rec.loops
        ):  # the loops themselves can be traced
            raise error
        if rec.findings.computes_ints:
            self.update(decides_ints=True)  # what takes no computed int may take one that is known
        elif rec.findings.runs_methods:
            self.update(traces_methods=True)
        elif self.next.records_programs:
            self._without_programs()
        elif self.next.classes:
            self.update(classes=False)  # they do not help
        elif rec.loops:
            self.outermost.add(rec.loops[0].site)
            # iteration by iteration it may be another error, or none
            self.update(unrolled=self.next.unrolled | {rec.loops[-1].site})
        elif not isinstance(error, InherentError) and any(f is captured_number for f, _ in rec.tape.ops):
            self.update(freeze_captured=True)  # what takes no run-time number may take a plain one
        elif rec.refusals and not isinstance(error, TraceError):
            raise error from rec.refusals[0]  # which the function has handled: this may be what came of it
        elif isinstance(error, TraceError):
            self.long(rec, error)
        else:
            raise error

    def _grow(self, rec: Recorder, found: Any) -> None:
        """Have a loop fill a list; where it cannot be such a one, none is; see `CannotReroll.growing`."""
        known = [(g.place, g.name) for g in self.next.growing]
        if isinstance(found, Growing) and (found.place, found.name) not in known:
            self.update(growing=(*self.next.growing, found))
        elif found is True and known and not rec.unrolled.short <= self.next.rolled:
            self.update(growing=(), rolled=self.next.rolled | rec.unrolled.short)
        else:
            self.update(growing=(), grows=False)

    def _stack(self, found: Any) -> None:
        """Have a loop use a list, a dict or a set that is arrays; where it cannot be, none is."""
        if isinstance(found, Stacking) and found not in self.next.stacks:
            self.update(stacks=(*(s for s in self.next.stacks if s.place != found.place), found))
        else:
            self.update(stacks=(), stacks_items=False)

    def _with_programs(self, sites: frozenset[LoopSite]) -> None:
        self.update(programs=sites, unrolled=frozenset(), rolls_inside=True, rolls_short=True)

    def _without_programs(self) -> None:
        """They could not be recorded.

        Raises:
            TraceError: see `too_long`.
        """
        if self.too_long is not None or self.otherwise is None:
            self._speculate(self.too_long or TraceError("loop", "there are no programs"))
            return
        before = self.otherwise
        self.update(
            programs=frozenset(),
            places=frozenset(),
            large=frozenset(),
            few=frozenset(),
            branches=False,
            unrolled=before.unrolled,
            rolls_inside=before.rolls_inside,
            rolls_short=before.rolls_short,
            few_iterations=before.few_iterations,
        )
        self.outermost |= before.unrolled
