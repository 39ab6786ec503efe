"""Is a compiled function slower than the plain one? That is found while it is used.

The first comparison with NumPy knows both times. Where the kernel was not much faster, the next calls with the same key
run one or the other, interleaved, and pairs of calls decide. Each call runs once, one way or the other: so effects
happen once, and nothing waits for this.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hjit.call.results import MISS, PLAIN
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.variant import Variant

PAIRS = 5  # that decide, after one that does not count: memory and threads are new to it
SHORT_SECONDS = 50e-6  # of calls that take less by NumPy
SHORT_PAIRS = 25  # decide, as they scatter more
SLOWER_RATIO = 1.05  # times as long as NumPy: then NumPy runs
UNCLEAR_RATIO = 0.85  # from which on as many pairs are timed once more; the last ones decide by their median alone
MAX_ROUNDS = 3
SUSPECT_RATIO = 0.5  # of NumPy's time in the first comparison, below which a kernel is taken for the faster one
MIN_SECONDS = 1e-6  # seconds by NumPy: what the clock and the call itself take is no longer small beside less
FAR_SLOWER = 3.0  # times as long as NumPy: that is not the clock
MAX_DISTURBED = 30  # calls beside which another one ran, after which the kernel is kept
MAX_TIMED = 64  # keys of a pipeline whose calls are timed at the same time; the oldest ends without a verdict

ADVICE = "What to do: numpy_if_faster=False runs it all the same; f.use runs a schedule of yours"

clock = time.perf_counter

comparing: set[int] = set()  # threads that run a plain function for a comparison: pipelines in it run plain, too


@contextlib.contextmanager
def all_plain() -> Iterator[None]:
    """A block in which this thread runs no pipeline compiled: what kernels are compared with is NumPy's alone."""
    me = threading.get_ident()
    is_first = me not in comparing
    comparing.add(me)
    try:
        yield
    finally:
        if is_first:
            comparing.discard(me)


@dataclass(frozen=True, slots=True)
class Medians:
    """What pairs of calls took: medians, in seconds.

    Attributes:
        ratio: how many times as long as NumPy the kernel took: the median over pairs; `low` is their first quartile.
        is_last: no more pairs are timed.
    """

    compiled: float
    plain: float
    ratio: float
    low: float
    pairs: int
    is_last: bool = False

    @property
    def is_slower(self) -> bool:
        """Is the kernel clearly slower?"""
        least = SLOWER_RATIO if self.plain >= MIN_SECONDS else FAR_SLOWER
        return self.ratio > least and (self.low > 1 or self.is_last)

    @property
    def is_clear(self) -> bool:
        """Would more pairs change nothing?"""
        return self.is_last or self.is_slower or self.ratio <= UNCLEAR_RATIO

    def __str__(self) -> str:
        what = "the kernel is slower" if self.is_slower else "the kernel is not clearly slower"
        compiled, plain = f"{1e3 * self.compiled:.3g} ms", f"{1e3 * self.plain:.3g} ms"
        return f"{what}: compiled it takes {compiled}, by NumPy {plain} (medians of {self.pairs} pairs of calls)"


def is_suspect(seconds: tuple[float, float] | None) -> bool:
    """Are further calls worth timing, by the seconds of the kernel and of NumPy in the first comparison?"""
    if seconds is None:
        return False
    compiled, plain = seconds
    return compiled > (SUSPECT_RATIO if plain >= MIN_SECONDS else FAR_SLOWER) * plain


@uncounted
class InterleavedCalls:
    """Calls with one key that run compiled and plain, interleaved, and are timed.

    Attributes:
        variant: what is compared with NumPy; None: the function in parts.
    """

    def __init__(self, variant: Variant | None) -> None:
        self.variant = variant
        self._times: tuple[list[float], list[float]] = [], []
        self._timed = threading.Lock()  # held by the call that is timed
        self._disturbed = False
        self._lost = 0

    def run(self, compiled: Callable[[], Any], plain: Callable[[], Any]) -> Any:
        """A call, one way or the other; only one that gives a result tells how long that takes."""
        way = self.begin()
        if way is None:
            return compiled()
        seconds = None
        start = clock()
        try:
            result = plain() if way else compiled()
            if result is not MISS and result is not PLAIN:
                seconds = clock() - start
            return result
        finally:
            self.end(way, seconds)

    def begin(self) -> int | None:
        """0: this call is to run compiled, 1: plain; None: compiled and untimed, as another one is being timed."""
        if not self._timed.acquire(blocking=False):
            self._disturbed = True
            return None
        self._disturbed = False
        count = sum(map(len, self._times))
        return (count + 1) // 2 % 2  # in pairs, so that none always runs after the other

    def end(self, way: int, seconds: float | None) -> None:
        """The call has ended; None: it says nothing of the kernel's time."""
        if seconds is None or self._disturbed:
            self._lost += 1
        else:
            self._times[way].append(seconds)
        self._timed.release()

    @property
    def is_over(self) -> bool:
        """Is there nothing more to time?"""
        done = min(map(len, self._times))
        ahead = done > 0 and all(c < SUSPECT_RATIO * p for c, p in zip(*self._times, strict=False))
        if ahead or self._lost > MAX_DISTURBED:
            return True
        found = self.medians() if done > self._pairs and (done - 1) % self._pairs == 0 else None
        return found is not None and found.is_clear

    @property
    def _pairs(self) -> int:
        """How many decide."""
        plain = self._times[1][1:]
        return SHORT_PAIRS if plain and statistics.median(plain) < SHORT_SECONDS else PAIRS

    @property
    def seconds(self) -> tuple[float, float] | None:
        """Of a call and of one by NumPy, as far as it is known."""
        compiled, plain = self._times
        return (statistics.median(compiled), statistics.median(plain)) if compiled and plain else None

    def medians(self) -> Medians | None:
        """What was found; None where too few calls could be timed."""
        done, pairs = min(map(len, self._times)) - 1, self._pairs
        if done < pairs:
            return None
        is_last = done >= MAX_ROUNDS * pairs
        count = (MAX_ROUNDS - 1) * pairs if is_last else pairs  # the latest: parts of a function may still settle
        compiled, plain = (times[done + 1 - count : done + 1] for times in self._times)
        ratios = [c / p if p else 1.0 for c, p in zip(compiled, plain, strict=True)]
        return Medians(
            statistics.median(compiled),
            statistics.median(plain),
            statistics.median(ratios),
            statistics.quantiles(ratios, n=4)[0],
            count,
            is_last,
        )
