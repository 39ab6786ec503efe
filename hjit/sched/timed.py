"""Measured time as a cost: the decisions of a space, whose complete schedules cost the seconds that a run of them takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hjit.sched.refine import Schedule
from hjit.sched.space import Space, State


class Timed:
    """A tree for `hjit.sched.search`.

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
        self.children, self.depth, self.is_complete = space.children, space.depth, space.is_complete

    def cost(self, states: Sequence[State]) -> Iterable[float]:
        """Seconds of each, measured or predicted; a schedule that a rule forbids is not run."""
        return [self._measured(x) if c < float("inf") and self.is_complete(x) else c for x, c in zip(states, self.space.cost(states), strict=True)]

    def _measured(self, state: State) -> float:
        schedule = Schedule(state.tree, state.inlined)
        if schedule not in self.measured:
            self.measured[schedule] = self.seconds(schedule)
        return self.measured[schedule]
