"""`Attempt`: the settings of one attempt at tracing a function, such as which loops are traced as one iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hjit.trace.ir.poly import Poly
from hjit.trace.tracing.scalars.induction import LoopSite


@dataclass(frozen=True, slots=True)
class Growing:
    """A list that a loop fills, see `hjit.trace.tracing.arrays.grown`.

    Attributes:
        place: the line of the outermost loop.
        name: the variable that holds it.
        item: an `Item`.
        shape: how many iterations the loops around have.
    """

    place: tuple[str, int]
    name: str
    item: Any
    shape: tuple[Poly, ...]


@dataclass(frozen=True, slots=True)
class Stacking:
    """A list that loops take items from, or a dict or a set that they fill, see `hjit.trace.tracing.arrays.stacks`.

    Attributes:
        place: where the function makes it.
        item: an `Item`, or an `Entry` of `hjit.trace.tracing.arrays.number_dicts`.
        is_inside: is it made by each iteration of a loop?
    """

    place: tuple[str, str]
    item: Any
    is_inside: bool


@dataclass(frozen=True, slots=True)
class Attempt:
    """Settings that earlier attempts have shown to be needed; see `hjit.trace.capture.attempts`.

    Attributes:
        unrolled: loops over ``range(...)`` to trace iteration by iteration.
        rolled: short loops to trace as one iteration.
        overwriting: loops whose iterations read and overwrite earlier arrays, so that their contents are not known.
        programs: loops to run as a `hjit.trace.ir.programs.steps.Program`, with all inner loops.
        places: programs by source line, for code that has been rewritten since.
        large: programs, except if iterations compute whole arrays, which may then be kernels of their own.
        few: those of `large` that also are no programs if they contain loops over arrays.
        rolls_inside: is a short loop inside a re-rolled loop re-rolled, too?
        rolls_short: is a short loop outside of re-rolled loops re-rolled?
        few_iterations: do inner loops that can be left run all their iterations, masked? A ``while`` of unknown trip
            count is assumed to take few.
        checked: loop variables that hold Python ints: each iteration checks that they, or all results of operations on
            them, are small.
        chooses: are both branches evaluated if a condition only selects numbers?
        chooses_unrolled: are they in loops that are traced iteration by iteration, too?
        branches: are the branches of conditions in programs traced one after the other?
        growing: lists that loops fill.
        grows: may loops fill lists? Otherwise a list that iterations change has them traced one by one.
        indexes: are lists of numbers that loops index arrays?
        stacks: lists that loops take items from, and dicts and sets that they fill.
        stacks_items: may there be any?
        freeze_captured: are captured numbers constants? Otherwise they are read at every call, like arguments.
        classes: does traced code get a `ScalarClass` for each NumPy scalar type? None: unless it calls one through a
            variable.
        traces_methods: are methods of the function's own objects traced? None: only if running one untraced fails.
        decides_ints: is a Python int that is made from a computed number outside of loops a decision? Otherwise it is
            computed at every call.
        speculates: lines in loops at which the outcome of a condition is assumed to be the one that it has now, in all
            iterations, and is checked at each call; by file and number.
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
    growing: tuple[Growing, ...] = ()
    grows: bool = True
    indexes: bool = True
    stacks: tuple[Stacking, ...] = ()
    stacks_items: bool = True
    freeze_captured: bool = False
    classes: bool | None = None
    traces_methods: bool | None = None
    decides_ints: bool = False
    speculates: frozenset[tuple[str, int]] = frozenset()

    @property
    def records_programs(self) -> bool:
        """Are some loops run as programs?"""
        return bool(self.programs or self.places)

    def is_program(self, site: LoopSite) -> bool:
        """Is the loop run as a program?"""
        return site in self.programs or (bool(self.places) and place_of(site) in self.places)

    def is_large(self, site: LoopSite) -> bool:
        """See `large`."""
        return site in self.large or (bool(self.large) and place_of(site) in self.large)

    def is_few(self, site: LoopSite) -> bool:
        """See `few`."""
        return site in self.few or (bool(self.few) and place_of(site) in self.few)

    def moved(self, **changes: Any) -> Attempt:
        """The same settings for rewritten code."""
        places = self.places | {place_of(site) for site in self.programs}
        large, few = (frozenset(x if isinstance(x[0], str) else place_of(x) for x in y) for y in (self.large, self.few))
        none: frozenset[Any] = frozenset()
        sites = replace(self, programs=none, unrolled=none, rolled=none, overwriting=none, checked=none)
        return replace(sites, places=places, large=large, few=few, **changes)


def place_of(site: LoopSite) -> tuple[str, int]:
    """The source line of a loop, which stays the same if the function is rewritten."""
    code, offset = site
    lines = (line for start, end, line in code.co_lines() if start <= offset < end and line is not None)
    return code.co_filename, next(lines, code.co_firstlineno)
