"""Measured time as a cost: the decisions of a space, whose complete schedules cost the seconds that a run of them takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from hjit.sched.search.batches import State
from hjit.sched.search.refine import Schedule
from hjit.sched.search.space import Space
from hjit.sched.search.successors import Floats, Some


class Timed:
    """A tree for `hjit.sched.search.search`.

    Partial schedules cost what the cost model of the space predicts, so that has to predict seconds; complete ones what `seconds` says,
    asked once for each.

    Args:
        seconds: measures a schedule; inf where it cannot be run.

    Attributes:
        measured: all that was, with its seconds.
    """

    def __init__(self, space: Space, seconds: Callable[[Schedule], float]) -> None:
        self.space, self.seconds = space, seconds
        self.measured: dict[Schedule, float] = {}
        self.families, self.alone = space.families, space.alone

    def cost(self, some: Sequence[Some[State]]) -> Iterable[Floats]:
        """Seconds of each state, measured or predicted; a schedule that a rule forbids is not run."""
        return [
            np.array([self._measured(family[k]) if c < math.inf else c for k, c in zip(rows, costs, strict=True)])
            if family.is_complete
            else costs
            for (family, rows), costs in zip(some, self.space.cost(some), strict=True)
        ]

    def _measured(self, state: State) -> float:
        schedule = Schedule(state.tree, state.inlined)
        if schedule not in self.measured:
            self.measured[schedule] = self.seconds(schedule)
        return self.measured[schedule]
