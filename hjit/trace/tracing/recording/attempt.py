"""How one attempt at tracing a function is made: which of its loops are traced as one iteration, and so on."""

from __future__ import annotations

from dataclasses import dataclass

from hjit.trace.tracing.scalars.induction import LoopSite


@dataclass(frozen=True, slots=True)
class Attempt:
    """What earlier attempts have shown to be needed; see `hjit.trace.capture.attempts`.

    Attributes:
        unrolled: loops over ``range(...)`` that are to be traced iteration by iteration.
        rolled: short loops whose iterations are traced as one.
        overwriting: loops whose iterations read and overwrite earlier arrays, so that their contents are not known.
        programs: loops that are run as a `hjit.trace.ir.programs.steps.Program`, with all loops inside.
        rolls_inside: are iterations of a short loop traced as one, too, inside of a loop whose iterations are?
        rolls_short: are they where it is inside of none?
        chooses: are both sides of conditions computed that only choose numbers?
        freeze_captured: are captured numbers constants? Else they are read at every call, as arguments are.
        classes: does traced code get a `ScalarClass` for each scalar type of NumPy? None: only where it calls none in
            a variable.
        traces_methods: are objects that the function makes of classes whose methods are traced?
    """

    unrolled: frozenset[LoopSite] = frozenset()
    rolled: frozenset[LoopSite] = frozenset()
    overwriting: frozenset[LoopSite] = frozenset()
    programs: frozenset[LoopSite] = frozenset()
    rolls_inside: bool = False
    rolls_short: bool = False
    chooses: bool = False
    freeze_captured: bool = False
    classes: bool | None = None
    traces_methods: bool = False
