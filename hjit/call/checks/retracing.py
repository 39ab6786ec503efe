"""Calls that find nothing to run, one after the other: sizes or values that the code depends on differ at each call.

Tracing and compiling for such a call takes longer than NumPy does for small images, and nothing is gained by it where
the next call needs another trace. Then NumPy runs, and few enough calls are traced still, that they take a small share
of all the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, Literal

from hjit.trace.tracing.frames import uncounted

MISSES, AMONG = 16, 32  # calls that find nothing to run, among so many calls: they are frequent
SHARE = 0.05  # of NumPy's time that tracing may take where it is the slower one
NEARLY_ALL = 2  # calls that do find something, among so many misses: the others are not even looked at
BYPASSED = 16, 1 << 10  # calls in a row that are not looked at, at first and at most: twice as many each time
MOST_SKIPPED = 1 << 16  # calls in a row that NumPy runs untried
Next = Literal["trace", "plain", "compare"]


@uncounted
@dataclass(slots=True)
class Retracing:
    """The calls of one function that found nothing to run.

    Attributes:
        misses: the numbers of the latest ones among all calls.
        seconds: that the latest traces took.
        skipped: how many more calls NumPy is to run.
        granted: how many more calls are to be traced.
        is_slower: does tracing take longer than NumPy, as compared last?
        bypass: how many more calls NumPy is to run without a look for what could.
        bypassed: how many it has run so.
        bypasses: how many are next.
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
        """What to do with a call that finds nothing to run, the `call`-th one of all."""
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
        """Look at none of the next calls, if nearly none of those before has found something."""
        self.bypass = self.bypasses if is_dense else 0
        self.bypassed += self.bypass
        self.skipped = max(self.skipped - self.bypass, 0)
        self.bypasses = min(2 * self.bypasses, BYPASSED[1]) if is_dense else BYPASSED[0]

    def traced(self, run: Callable[[], Any]) -> Any:
        """Run what traces, timed."""
        start = perf_counter()
        try:
            return run()
        finally:
            self.seconds.append(perf_counter() - start)

    def compared(self, plain: Callable[[], Any]) -> Any:
        """Run NumPy, timed, and settle which calls are traced from now on."""
        start = perf_counter()
        result = plain()
        taken, tracing = max(perf_counter() - start, 1e-7), median(self.seconds)
        self.is_slower = taken < tracing
        self.skipped = min(int(tracing / (SHARE * taken)), MOST_SKIPPED) if self.is_slower else 0
        self.granted = 1 if self.is_slower else MISSES
        return result
