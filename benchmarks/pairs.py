"""Interleaved timing: all candidates run once a round, A B A B, and are compared round by round.

On a machine that jumps between two speeds, or that has other guests, the minimum of a run is a matter of luck. Within a
round both runs meet the same conditions: the median over rounds of the ratio of their times is reported, with the
scatter of those ratios.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

MIN_ROUNDS = 5
REPEAT_SECONDS = 2e-3  # for which short calls are repeated in a round
WARM_SECONDS = 20e-3  # a longer call hardly gains by finding its data in the caches


@dataclass(frozen=True)
class Ratio:
    """How many times as long one takes as another: the median over pairs, and quartiles (None for a single pair)."""

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

    A candidate that has spent its budget after `MIN_ROUNDS` drops out, so that a slow one does not limit how often the
    others run: lists may be shorter than others, but only the last rounds are missing.

    Args:
        budget: seconds for each.
        limits: about how often each may be called.
    """
    candidates = [_Candidate(run, limit) for run, limit in zip(runs, limits or [None] * len(runs), strict=True)]
    while going := [t for t in candidates if len(t.times) < MIN_ROUNDS or not t.spent(budget)]:
        for t in going:
            t.take()
    return [t.times for t in candidates]


class _Candidate:
    """One run and its times."""

    def __init__(self, run: Callable[[], Any], limit: int | None) -> None:
        self.run, self.limit = run, limit
        self.each = max(limit // MIN_ROUNDS, 1) if limit else 1_000_000  # calls a round
        self.times: list[float] = []
        self.calls, self.total = 0, 0.0

    def spent(self, budget: float) -> bool:
        return self.total >= budget or (self.limit is not None and self.calls >= self.limit)

    def take(self) -> None:
        """Run a round: an untimed call brings the data back into the caches; the median of the others counts."""
        left, taken = self.each, 0.0
        if left > 1 and (not self.times or self.times[-1] < WARM_SECONDS):
            self.total += seconds(self.run)
            self.calls += 1
            left -= 1
        mine: list[float] = []
        while left and (not mine or taken < REPEAT_SECONDS):
            mine.append(seconds(self.run))
            taken += mine[-1]
            left -= 1
        self.calls += len(mine)
        self.total += taken
        self.times.append(statistics.median(mine))


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> Ratio:
    """Their times over ours, paired by round; rounds that only one of them has are left out."""
    pairs = [a / b if b else math.inf for a, b in zip(theirs, ours, strict=False)]
    low, high = quartiles(pairs)
    return Ratio(statistics.median(pairs), low, high, len(pairs))


def quartiles(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The first and the third; None where there are fewer than two values."""
    if len(values) < 2:
        return None, None
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
