"""What earlier attempts at tracing a function have shown: which of its loops are traced as one iteration, and so on.

A loop is traced as one iteration that becomes an update of arrays; else iteration by iteration; else, where that fills
the trace, with what is around it and inside as a program (`hjit.trace.capture.loops.programs`). Loops whose iterations
have no two arrays of the same length are programs at once, if they can be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hjit.errors import BudgetError, InherentError, LongLoop, TraceError
from hjit.trace.tracing.recording.recorder import OutOfBounds, Recorder
from hjit.trace.tracing.scalars.host import captured_number
from hjit.trace.tracing.scalars.induction import CannotReroll, LoopSite

NONE: frozenset[LoopSite] = frozenset()


@dataclass
class Attempts:
    """How the next attempt is made.

    Attributes:
        has_programs: does something run programs?
        unrolled, rolled, overwriting, programs: loops, see `Recorder`.
        rolls_inside, rolls_short, chooses, freeze_captured, classes: see `Recorder`.
        outermost: the loops around those that could not be traced as one iteration, or they themselves.
        too_long: why a function cannot be traced without programs; None: it was not found that it cannot.
        otherwise: what is unrolled where programs cannot be recorded either, and how short loops are traced.
    """

    has_programs: bool = False
    unrolled: frozenset[LoopSite] = NONE
    rolled: frozenset[LoopSite] = NONE
    overwriting: frozenset[LoopSite] = NONE
    programs: frozenset[LoopSite] = NONE
    rolls_inside: bool = False
    rolls_short: bool = False
    chooses: bool = False
    freeze_captured: bool = False
    classes: bool | None = None
    outermost: set[LoopSite] = field(default_factory=set)
    too_long: TraceError | None = None
    otherwise: tuple[frozenset[LoopSite], bool, bool] | None = None

    def options(self) -> dict[str, Any]:
        """What the recorder is told."""
        words = "unrolled rolled overwriting programs rolls_inside rolls_short chooses freeze_captured classes".split()
        return {word: getattr(self, word) for word in words}

    def refused(self, rec: Recorder, refusal: CannotReroll) -> None:
        """A loop cannot be traced as it was.

        Raises:
            TraceError: see `too_long`.
        """
        site = rec.loops[0].site if rec.loops else refusal.site
        if refusal.overwriting:
            self.overwriting |= {refusal.site}
        elif refusal.rolling:
            self.rolls_inside = True
        elif refusal.choosing:
            self.chooses = True
        elif site in self.programs:
            self._without_programs()
        elif self.programs:
            self.programs |= {site}
        elif refusal.moving and self.has_programs and self.otherwise is None:
            self.otherwise = self.unrolled | {refusal.site}, self.rolls_inside, self.rolls_short
            self._with_programs(frozenset({site}))
        else:
            self.outermost.add(site)
            self.unrolled |= {refusal.site}

    def long(self, rec: Recorder, error: TraceError) -> None:
        """A loop that is traced iteration by iteration fills the trace.

        Raises:
            TraceError: it does so whatever is done.
        """
        if self.programs:
            if rec.short_loops <= self.programs:
                self._without_programs()
            else:
                self.programs |= rec.short_loops  # one of them may be around a program
        elif isinstance(error, LongLoop) and not self.rolls_short and rec.has_short_loops:
            self.rolls_short = True
        elif self.outermost and self.has_programs and self.too_long is None:
            self.too_long = error
            self._with_programs(frozenset(self.outermost))
        else:
            raise error

    def failed(self, rec: Recorder, error: Exception) -> None:
        """An attempt has ended with another exception.

        Raises:
            OutOfBounds: NumPy refuses an index.
            Exception: this one, where nothing else can be tried.
        """
        if rec.out_of_bounds:
            raise OutOfBounds from None
        if isinstance(error, BudgetError):
            raise error
        if self.programs:
            self._without_programs()
        elif self.classes:
            self.classes = False  # they do not help
        elif rec.loops:
            self.outermost.add(rec.loops[0].site)
            self.unrolled |= {rec.loops[-1].site}  # iteration by iteration it may be another error, or none
        elif not isinstance(error, InherentError) and any(f is captured_number for f, _ in rec.tape.ops):
            self.freeze_captured = True  # what takes no run-time number may take a plain one
        elif rec.refusals and not isinstance(error, TraceError):
            raise error from rec.refusals[0]  # which the function has handled: this may be what came of it
        elif isinstance(error, TraceError):
            self.long(rec, error)
        else:
            raise error

    def _with_programs(self, sites: frozenset[LoopSite]) -> None:
        self.programs, self.unrolled = sites, NONE
        self.rolls_inside = self.rolls_short = True

    def _without_programs(self) -> None:
        """They could not be recorded.

        Raises:
            TraceError: see `too_long`.
        """
        if self.too_long is not None or self.otherwise is None:
            raise self.too_long or AssertionError("there are no programs") from None
        self.programs = NONE
        self.unrolled, self.rolls_inside, self.rolls_short = self.otherwise
        self.outermost |= self.unrolled
