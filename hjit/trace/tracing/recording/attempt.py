"""How one attempt at tracing a function is made: which of its loops are traced as one iteration, and so on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hjit.trace.tracing.scalars.induction import LoopSite


@dataclass(frozen=True, slots=True)
class Attempt:
    """What earlier attempts have shown to be needed; see `hjit.trace.capture.attempts`.

    Attributes:
        unrolled: loops over ``range(...)`` that are to be traced iteration by iteration.
        rolled: short loops whose iterations are traced as one.
        overwriting: loops whose iterations read and overwrite earlier arrays, so that their contents are not known.
        programs: loops that are run as a `hjit.trace.ir.programs.steps.Program`, with all loops inside.
        places: of programs in code that has been written otherwise since: lines.
        large: programs that are no such where iterations compute whole arrays: these may be kernels of their own.
        few: of these those that are no programs where they have loops over arrays inside, either.
        rolls_inside: are iterations of a short loop traced as one, too, inside of a loop whose iterations are?
        rolls_short: are they where it is inside of none?
        few_iterations: is a ``while`` of which nothing says how many iterations it has taken to have few, in a loop
            that is no program?
        checked: variables of loops that hold ints of Python: each iteration checks that they are small; or that all
            results of operations on such ints are.
        chooses: are both sides of conditions computed that only choose numbers?
        chooses_unrolled: are they in loops that are traced iteration by iteration, too?
        branches: are the sides of conditions in programs traced one after the other?
        freeze_captured: are captured numbers constants? Else they are read at every call, as arguments are.
        classes: does traced code get a `ScalarClass` for each scalar type of NumPy? None: only where it calls none in
            a variable.
        traces_methods: are objects that the function makes of classes whose methods are traced? None: only where one
            that runs as it is fails.
        decides_ints: is an int of Python that the function makes of a computed number, outside of loops, decided on?
            Else it is computed at every call.
    """

    unrolled: frozenset[LoopSite] = frozenset()
    rolled: frozenset[LoopSite] = frozenset()
    overwriting: frozenset[LoopSite] = frozenset()
    programs: frozenset[LoopSite] = frozenset()
    places: frozenset[tuple[str, int]] = frozenset()
    large: frozenset[LoopSite | tuple[str, int]] = frozenset()
    few: frozenset[LoopSite | tuple[str, int]] = frozenset()
    rolls_inside: bool = False
    rolls_short: bool = False
    few_iterations: bool = False
    checked: frozenset[tuple[LoopSite, str]] = frozenset()
    chooses: bool = False
    chooses_unrolled: bool = False
    branches: bool = False
    freeze_captured: bool = False
    classes: bool | None = None
    traces_methods: bool | None = None
    decides_ints: bool = False

    @property
    def records_programs(self) -> bool:
        """Are some loops programs?"""
        return bool(self.programs or self.places)

    def is_program(self, site: LoopSite) -> bool:
        """Is a loop one?"""
        return site in self.programs or (bool(self.places) and place_of(site) in self.places)

    def is_large(self, site: LoopSite) -> bool:
        """See `large`."""
        return site in self.large or (bool(self.large) and place_of(site) in self.large)

    def is_few(self, site: LoopSite) -> bool:
        """See `few`."""
        return site in self.few or (bool(self.few) and place_of(site) in self.few)

    def moved(self, **changes: Any) -> Attempt:
        """The same over code that is written otherwise."""
        places = self.places | {place_of(site) for site in self.programs}
        large, few = (frozenset(x if isinstance(x[0], str) else place_of(x) for x in y) for y in (self.large, self.few))
        none: frozenset[Any] = frozenset()
        sites = replace(self, programs=none, unrolled=none, rolled=none, overwriting=none, checked=none)
        return replace(sites, places=places, large=large, few=few, **changes)


def place_of(site: LoopSite) -> tuple[str, int]:
    """The line of a loop, which stays the same where a function is written otherwise."""
    code, offset = site
    lines = (line for start, end, line in code.co_lines() if start <= offset < end and line is not None)
    return code.co_filename, next(lines, code.co_firstlineno)
