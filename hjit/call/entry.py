"""What a pipeline keeps: counters, and what it knows of each key of arguments; and one call."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import CallKey
from hjit.call.checks import against_numpy
from hjit.call.checks.against_numpy import InterleavedCalls
from hjit.trace.capture.trace import PyTree

if TYPE_CHECKING:
    from hjit.call.variant import OneKernel, Variant, WithProducts

log = logging.getLogger("hjit")

MAX_CONTEXTS = 64  # sets of options around calls that a pipeline remembers; the oldest is forgotten
MAX_KEYS = 512  # keys that a pipeline remembers; the oldest is forgotten
MAX_VARIANTS = 16  # outcomes of decisions and guards that one key remembers
FEW_REFUSALS = 4  # keys in a row that could not be traced, from which on not every further one is tried
MAX_RAISED = 2  # calls that are traced although the function raises an exception
RECOGNISED_AFTER = 8  # calls with a key that NumPy runs, after which they are recognised without it


@dataclass(slots=True)
class Stats:
    """Counters of a pipeline.

    Attributes:
        calls: calls of the pipeline.
        traces: how often the function was traced.
        compilations: kernels compiled.
        cache_hits: kernels loaded from the disk cache.
        fallbacks: calls whose result is the plain function's, since no kernel gave one, the first one's was wrong,
            or NumPy was timed, or found to be faster.
        slower: keys of arguments with which the plain function runs, as the kernel was slower.
        verified: None before the first comparison with NumPy, then its outcome: False where one of them failed.
        flipped: elements of compared results that differ since a decision on a rounded value (a threshold, a
            rounding to a whole number, an index) fell the other way.
        scratch_bytes: scratch memory of the latest new key.
        parts: in how many parts the function runs, where it cannot be traced as a whole; each has counters of its own.
    """

    calls: int = 0
    traces: int = 0
    compilations: int = 0
    cache_hits: int = 0
    fallbacks: int = 0
    slower: int = 0
    verified: bool | None = None
    flipped: int = 0
    scratch_bytes: int = 0
    parts: int = 0


@dataclass(slots=True)
class Entry:
    """What calls with one key run.

    Attributes:
        variants: that one is tried first which came last.
        fast: the hot path of the first one; None: it has none, or calls are being timed.
        plain: why NumPy runs instead; None: it does not. `is_given_up`: since nothing can be compiled, or is worth it,
            and not as it is slower.
        timing: of calls against NumPy; None: they are not timed.
        parts: the function with compiled parts, where it is not traced as a whole.
        converted: what copies arrays of another byte order, and calls the function with them.
        warmup_calls: of one of these, before the timed ones.
        seconds: of a call, and of one by NumPy, where both have been timed.
        raised: of calls without a variant, how many raised an exception of the function's own; from `MAX_RAISED` on
            the plain function runs first, until it raises none.
        is_compared: calls are still compared with NumPy, as those before told nothing; they do not go the hot path.
        plain_calls: calls that NumPy ran since then.
        shortages: how often memory was too little to compile. `skipped`: calls that NumPy runs before the next attempt.
    """

    variants: tuple[Variant, ...] = ()
    fast: OneKernel | WithProducts | None = None
    plain: str | None = None
    is_given_up: bool = False
    timing: InterleavedCalls | None = None
    parts: Callable[..., Any] | None = None
    converted: Callable[..., Any] | None = None
    warmup_calls: int = 0
    seconds: tuple[float, float] | None = None
    plain_calls: int = 0
    raised: int = 0
    is_compared: bool = False
    shortages: int = 0
    skipped: int = 0

    @property
    def is_known(self) -> bool:
        """Is it known what runs such calls?"""
        return bool(self.variants or self.parts or self.converted) or self.plain is not None

    def postpone(self) -> None:
        """Memory is too little to compile: the next attempts come after 1, 3, 7 and so on calls more."""
        self.shortages += 1
        self.skipped = (1 << self.shortages) - 1

    def skips(self) -> bool:
        """Does NumPy run one more call, before compiling is tried again?"""
        self.skipped, before = max(self.skipped - 1, 0), self.skipped
        return before > 0

    def put(self, variants: tuple[Variant, ...]) -> None:
        """Run these from now on, the first one by its hot path."""
        self.variants = variants[:MAX_VARIANTS]
        self._open()

    def time(self, variant: Variant | None) -> None:
        """Time calls against NumPy: they do not go the hot path."""
        self.timing = InterleavedCalls(variant)
        self._open()

    def stop_timing(self) -> None:
        """Calls go the hot path again."""
        self.timing = None
        self._open()

    def _open(self) -> None:
        first = self.variants[0] if self.variants else None
        is_timed = self.timing is not None and self.timing.variant is first
        self.fast = None if first is None or is_timed or self.is_compared else first.fast


class Entries(dict[CallKey, Entry]):
    """What a pipeline knows, by the key of arguments.

    Attributes:
        name: of the pipeline.
        refusals: keys in a row that could not be traced.
        refusal: of the latest one that runs as plain NumPy: why.
    """

    def __init__(self, name: str, stats: Stats) -> None:
        super().__init__()
        self.name, self._stats = name, stats
        self.refusals, self.refusal = 0, ""

    def at(self, key: CallKey) -> Entry:
        """What is known of a key, from now on if nothing is."""
        found = self.get(key)
        if found is None:
            found = self[key] = Entry()
            limit(self, MAX_KEYS)
        return found

    def give_up(self, key: CallKey, why: str, is_refused: bool) -> None:
        """NumPy runs all calls with this key; `is_refused`: as it cannot be traced, or takes too long to compile."""
        entry = self.at(key)
        entry.plain, entry.is_given_up = why, True
        if is_refused:
            self.refusals += 1
            self.refusal = why

    def refuses_again(self) -> bool:
        """Is a new key taken to be refused, too, as those before it were? Each time that they have doubled, one is
        tried: a list that grows with every call makes each key a new one."""
        return self.refusals >= FEW_REFUSALS and self.refusals & (self.refusals - 1) != 0

    def install(
        self,
        key: CallKey,
        variant: Variant,
        seconds: tuple[float, float] | None = None,
        is_compared: bool = False,
    ) -> None:
        """Run this variant from now on; `seconds`, `is_compared`: see `Entry`."""
        entry = self.at(key)
        entry.timing, entry.seconds, entry.is_compared = None, seconds, is_compared
        entry.put((variant, *(v for v in entry.variants if v is not variant)))

    def time(self, key: CallKey, variant: Variant) -> None:
        """Time the next calls against NumPy."""
        timed = [e for e in [*self.values()] if e.timing is not None]  # a copy, as other threads add some
        for entry in timed[: max(len(timed) + 1 - against_numpy.MAX_TIMED, 0)]:
            entry.stop_timing()
        self.at(key).time(variant)

    def decide(self, key: CallKey, timing: InterleavedCalls) -> None:
        """NumPy runs from now on, where it is faster."""
        entry = self.get(key)
        if entry is None or entry.timing is not timing:
            return
        entry.stop_timing()
        found = timing.medians()
        entry.seconds = timing.seconds if found is None else (found.compiled, found.plain)
        if found is None or not found.is_slower:
            log.debug(
                "%s stays compiled: %s", self.name, found or "it is faster than NumPy, or too many threads call it"
            )
        else:
            log.info("%s runs as plain NumPy with such arguments: %s", self.name, found)
            self._stats.slower += 1
            entry.plain = f"{found}. {against_numpy.ADVICE}"
            entry.put(())


def limit(entries: dict[Any, Any], most: int) -> None:
    """Forget the oldest entries of too many; another thread may do so, too."""
    for key in [*entries][: max(len(entries) - most, 0)]:  # a copy, as they change meanwhile
        entries.pop(key, None)


@dataclass(slots=True)
class Call:
    """One call off the hot path.

    Attributes:
        leaves: the arguments, containers opened.
        structure: how they were put together.
        targets: arrays for the results, of `Pipeline.into`.
        known: the variants that the key had when the call began.
    """

    key: CallKey
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]
    structure: PyTree
    targets: list[Any]
    known: tuple[Variant, ...]
