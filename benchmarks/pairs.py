"""Interleaved timing: what is compared runs once a round, A B A B, and is compared round by round.

A machine that jumps between two speeds, or that has other guests, gives each of two runs a minimum by luck. Within a round both meet
the same machine: the median over rounds of the ratio of their times is what is reported, with how far those ratios scattered.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MIN_ROUNDS = 5
TURN = 2e-3  # seconds that short calls are repeated for in a round
WARM = 20e-3  # seconds: a longer call hardly gains by finding its data in the caches


@dataclass(frozen=True)
class Ratio:
    """How many times one takes as long as another: the median over pairs and their quartiles, which are None where there is one pair."""

    median: float
    low: float | None
    high: float | None
    pairs: int

    def text(self) -> str:
        """For a table: ``1.24 (1.20-1.29)``."""
        scatter = "" if self.low is None or self.high is None else f" ({self.low:.2f}-{self.high:.2f})"
        return f"{self.median:.2f}{scatter}"


def seconds(run: Callable[[], Any]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def interleaved(
    runs: Sequence[Callable[[], Any]], budget: float, limits: Sequence[int | None] | None = None
) -> list[list[float]]:
    """Seconds of a call of each, a number for each round: the k-th numbers of all are of the same round.

    Whatever has spent its budget after `MIN_ROUNDS` drops out, so that a slow one does not decide how often the others run: lists may be
    shorter than others, but a round that is missing is missing at the end.

    Args:
        budget: seconds for each.
        limits: about how often each may be called.
    """
    turns = [_Turns(run, limit) for run, limit in zip(runs, limits or [None] * len(runs), strict=True)]
    while going := [t for t in turns if len(t.times) < MIN_ROUNDS or not t.spent(budget)]:
        for t in going:
            t.take()
    return [t.times for t in turns]


class _Turns:
    """One run and its times."""

    def __init__(self, run: Callable[[], Any], limit: int | None) -> None:
        self.run, self.limit = run, limit
        self.each = max(limit // MIN_ROUNDS, 1) if limit else 1_000_000  # calls a round
        self.times: list[float] = []
        self.calls, self.total = 0, 0.0

    def spent(self, budget: float) -> bool:
        return self.total >= budget or (self.limit is not None and self.calls >= self.limit)

    def take(self) -> None:
        """A turn: a call that is not timed fetches the data that others have displaced from the caches; the median of those after it counts."""
        left, taken = self.each, 0.0
        if left > 1 and (not self.times or self.times[-1] < WARM):
            self.total += seconds(self.run)
            self.calls += 1
            left -= 1
        mine: list[float] = []
        while left and (not mine or taken < TURN):
            mine.append(seconds(self.run))
            taken += mine[-1]
            left -= 1
        self.calls += len(mine)
        self.total += taken
        self.times.append(statistics.median(mine))


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> Ratio:
    """Their times over ours, paired by round; what one of them has no more of is left out."""
    pairs = [a / b if b else math.inf for a, b in zip(theirs, ours, strict=False)]
    low, high = quartiles(pairs)
    return Ratio(statistics.median(pairs), low, high, len(pairs))


def quartiles(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The first and the third; None where there are fewer than two values."""
    if len(values) < 2:
        return None, None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
