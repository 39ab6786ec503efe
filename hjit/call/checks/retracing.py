"""Limiting how often a function is traced whose sizes, or values that its code depends on, differ at nearly every call.

For small images, tracing and compiling take longer than NumPy, and are wasted if the next call needs another trace. So
NumPy runs most of such calls, and only so many are traced that this takes a small share of the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, Literal

from hjit.trace.tracing.frames import uncounted

MISSES, AMONG = 16, 32  # misses (calls that no variant serves) are frequent: so many of them among so many calls
SHARE = 0.05  # of NumPy's time that tracing may take if it is the slower one
NEARLY_ALL = 2  # hits among the last misses, below which further calls are not even looked up
BYPASSED = 16, 1 << 10  # calls in a row that are not looked up: at first, doubled each time, and at most
MOST_SKIPPED = 1 << 16  # misses in a row that NumPy runs
Next = Literal["trace", "plain", "compare"]


@uncounted
@dataclass(slots=True)
class Retracing:
    """The recent misses of one function, and what to do with the next ones.

    Attributes:
        misses: the latest ones, by their numbers among all calls.
        seconds: of the latest traces.
        skipped: how many more misses NumPy is to run.
        granted: how many more misses are to be traced.
        is_slower: did tracing take longer than NumPy when they were last compared?
        bypass: how many more calls NumPy is to run without looking for a variant.
        bypassed: how many such calls there have been.
        bypasses: how many there will be the next time.
    """

    misses: deque[int] = field(default_factory=lambda: deque(maxlen=MISSES))
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=MISSES))
    skipped: int = 0
    granted: int = 0
    is_slower: bool = False
    bypass: int = 0
    bypassed: int = 0
    bypasses: int = BYPASSED[0]

    def next(self, call: int) -> Next:
        """What to do with a miss, which is the `call`-th of all calls."""
        self.misses.append(call - self.bypassed)
        among = self.misses[-1] - self.misses[0]
        if len(self.misses) < MISSES or among >= AMONG or not self.seconds:
            return "trace"
        if self.skipped:
            self.skipped -= 1
            self._pass_by(among - MISSES < NEARLY_ALL)
            return "plain"
        if self.granted:
            self.granted -= 1
            return "trace"
        return "compare"

    def _pass_by(self, is_dense: bool) -> None:
        """Bypass the look-up for the next calls if nearly all recent calls were misses."""
        self.bypass = self.bypasses if is_dense else 0
        self.bypassed += self.bypass
        self.skipped = max(self.skipped - self.bypass, 0)
        self.bypasses = min(2 * self.bypasses, BYPASSED[1]) if is_dense else BYPASSED[0]

    def traced(self, run: Callable[[], Any]) -> Any:
        """Run what traces a call, timed."""
        start = perf_counter()
        try:
            return run()
        finally:
            self.seconds.append(perf_counter() - start)

    def compared(self, plain: Callable[[], Any]) -> Any:
        """Run a call in NumPy, timed, and decide how many of the next misses are traced."""
        start = perf_counter()
        result = plain()
        taken, tracing = max(perf_counter() - start, 1e-7), median(self.seconds)
        self.is_slower = taken < tracing
        self.skipped = min(int(tracing / (SHARE * taken)), MOST_SKIPPED) if self.is_slower else 0
        self.granted = 1 if self.is_slower else MISSES
        return result
