"""Finding out, while a compiled function is used, whether it is slower than the plain one.

The first comparison with NumPy measures both times. If the kernel was not much faster, the next calls with the same key
run compiled and plain, interleaved, and pairs of calls decide. Each call runs only once, one way or the other, so its
effects happen once and no call takes longer for this.
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
from hjit.process.restoring import if_free
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.variant import Variant

PAIRS = 5  # pairs of calls that decide, after one that is discarded: memory and threads are new to it
SHORT_SECONDS = 50e-6  # calls that take NumPy less than this are short: their times scatter more,
SHORT_PAIRS = 25  # so more pairs decide
SLOWER_RATIO = 1.05  # a kernel that takes more than this times NumPy's time is slower: NumPy runs from then on
UNCLEAR_RATIO = 0.85  # above this ratio another round of pairs is timed
MAX_ROUNDS = 3  # rounds of pairs; after the last one the median alone decides
SUSPECT_RATIO = 0.5  # of NumPy's time in the first comparison; a kernel that took less is not timed again
MIN_SECONDS = 1e-6  # below this time of NumPy's, the overhead of the clock and of the call matters
FAR_SLOWER = 3.0  # the ratio that counts as slower for such short calls
MAX_DISTURBED = 30  # timed calls that another thread's call overlapped, after which the kernel is kept
MAX_TIMED = 64  # keys of a pipeline that are timed at the same time; the oldest is dropped without a verdict

ADVICE = "What to do: numpy_if_faster=False runs the kernel all the same; f.use sets a schedule of your own"

clock = time.perf_counter

comparing: set[int] = set()  # threads that run a plain function for a comparison; pipelines called in it run plain, too


@contextlib.contextmanager
def all_plain() -> Iterator[None]:
    """A block in which pipelines of this thread run their plain functions, so that NumPy computes the reference."""
    me = threading.get_ident()
    is_first = me not in comparing
    try:
        comparing.add(me)
        yield
    finally:
        if is_first:
            comparing.discard(me)


@dataclass(frozen=True, slots=True)
class Medians:
    """The times of some pairs of calls.

    Attributes:
        compiled, plain: medians, in seconds.
        ratio: the kernel's time over NumPy's, the median over pairs.
        low: the first quartile of that.
        pairs: how many there were.
        is_last: is this the last round?
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
        """Is another round of pairs unnecessary?"""
        return self.is_last or self.is_slower or self.ratio <= UNCLEAR_RATIO

    def __str__(self) -> str:
        what = "the kernel is slower than NumPy" if self.is_slower else "the kernel is not clearly slower than NumPy"
        compiled, plain = f"{1e3 * self.compiled:.3g} ms", f"{1e3 * self.plain:.3g} ms"
        return f"{what}: {compiled} compiled, {plain} in NumPy (medians of {self.pairs} pairs of calls)"


def is_suspect(seconds: tuple[float, float] | None) -> bool:
    """May NumPy be the faster one, by the seconds of the kernel and of NumPy in the first comparison?"""
    if seconds is None:
        return False
    compiled, plain = seconds
    return compiled > (SUSPECT_RATIO if plain >= MIN_SECONDS else FAR_SLOWER) * plain


@uncounted
class InterleavedCalls:
    """Timing calls with one key that run compiled and plain, interleaved.

    Attributes:
        variant: what is compared with NumPy; None if it is a split function.
    """

    def __init__(self, variant: Variant | None) -> None:
        self.variant = variant
        self._times: tuple[list[float], list[float]] = [], []
        self._timed = threading.Lock()  # held by the call that is being timed
        self._disturbed = False
        self._lost = 0

    def run(self, compiled: Callable[[], Any], plain: Callable[[], Any]) -> Any:
        """Run a call compiled or plain; its time counts if it returns a result."""
        with if_free(self._timed) as is_free:
            if not is_free:
                self._disturbed = True
                return compiled()
            self._disturbed = False
            count = sum(map(len, self._times))
            way = (count + 1) // 2 % 2  # 0 1 1 0 0 1 1 0: in pairs, neither always after the other
            seconds = None
            start = clock()
            try:
                result = plain() if way else compiled()
                if result is not MISS and result is not PLAIN:
                    seconds = clock() - start
                return result
            finally:
                if seconds is None or self._disturbed:
                    self._lost += 1
                else:
                    self._times[way].append(seconds)

    @property
    def is_over(self) -> bool:
        """Are no more calls to be timed?"""
        done = min(map(len, self._times))
        ahead = done > 1 and all(c < SUSPECT_RATIO * p for c, p in zip(*self._times, strict=False))
        if ahead or self._lost > MAX_DISTURBED:
            return True
        found = self.medians() if done > self._pairs and (done - 1) % self._pairs == 0 else None
        return found is not None and found.is_clear

    @property
    def _pairs(self) -> int:
        """The number of pairs of a round."""
        plain = self._times[1][1:]
        return SHORT_PAIRS if plain and statistics.median(plain) < SHORT_SECONDS else PAIRS

    @property
    def seconds(self) -> tuple[float, float] | None:
        """Median seconds of a compiled call and of NumPy so far, or None."""
        compiled, plain = self._times
        return (statistics.median(compiled), statistics.median(plain)) if compiled and plain else None

    def medians(self) -> Medians | None:
        """The latest round; None if too few calls could be timed."""
        done, pairs = min(map(len, self._times)) - 1, self._pairs
        if done < pairs:
            return None
        is_last = done >= MAX_ROUNDS * pairs
        count = (MAX_ROUNDS - 1) * pairs if is_last else pairs  # the latest ones: a split function may settle late
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
