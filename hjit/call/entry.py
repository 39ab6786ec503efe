"""What a pipeline keeps between calls: counters (`Stats`), and an `Entry` for each key of arguments; and a `Call`."""

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

MAX_CONTEXTS = 64  # contexts of options that a pipeline remembers; the oldest is dropped
MAX_KEYS = 512  # keys that a pipeline remembers; the oldest is dropped
MAX_VARIANTS = 16  # variants of one key, for different outcomes of decisions and guards
FEW_REFUSALS = 4  # keys in a row that could not be traced; after that many, not every new key is tried
MAX_RAISED = 2  # calls of one key that are traced although the function raises an exception
MANY_REFUSED = 2  # calls in a row that a kernel refused, after which NumPy runs the next ones;
MOST_REFUSED = 6  # 2 to this power is the largest number of them, so kernels run in vain for a small share of calls
RECOGNISED_AFTER = 8  # fallbacks of one key, after which such calls are recognised without making the key


@dataclass(slots=True)
class Stats:
    """Counters of a pipeline.

    Attributes:
        calls: calls of the pipeline.
        traces: how many times the function was traced.
        compilations: kernels compiled.
        cache_hits: kernels loaded from the disk cache.
        fallbacks: calls that returned the plain function's result: no kernel served them, the kernel's first result
            was wrong, or NumPy was being timed or was found to be faster.
        slower: keys for which NumPy runs because the kernel was slower.
        verified: None before the first comparison with NumPy; True if all comparisons agreed, else False.
        flipped: elements of compared results that differ because a decision on a rounded value (a threshold, a
            rounding to an integer, an index) went the other way.
        scratch_bytes: scratch memory of the latest new key.
        parts: the number of compiled parts of a function with graph breaks; each has its own counters.
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
    """What is known about calls with one key.

    Attributes:
        variants: tried in this order; the latest one is first.
        fast: the hot path of the first variant; None if it has none, or while calls are timed or compared.
        plain: the reason why NumPy runs all calls; None if it does not.
        is_given_up: is that because nothing can be compiled, or is worth it? If not, because the kernel was slower.
        timing: the comparison of calls with NumPy's time that is under way, or None.
        parts: the split function, if it has graph breaks.
        converted: copies arrays to native byte order and calls the function; None if that is not needed.
        warmup_calls: calls of `parts` or `converted` so far, before they are timed.
        seconds: of a compiled call, and of the plain function, once both have been timed.
        plain_calls: calls that NumPy ran since `plain` was set.
        raised: calls without a variant in which the function itself raised an exception; from `MAX_RAISED` on the plain
            function runs first, until it raises none.
        is_compared: are results still compared with NumPy's, since the comparisons so far were inconclusive?
        postponed: how often compiling was put off: there was too little memory, or nothing came of a trace.
        skipped: calls that NumPy runs before compiling, or a kernel that refused the last ones, is tried again.
        refused: calls in a row that a kernel refused although NumPy raised no exception.
        decides: are calls that a speculating variant refuses traced with decisions? None: there were none; False: that
            was in vain.
        behind: calls in a row that a speculating variant has served after one with decisions.
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
    postponed: int = 0
    skipped: int = 0
    refused: int = 0
    decides: bool | None = None
    behind: int = 0

    @property
    def is_known(self) -> bool:
        """Has it been found out how such calls run?"""
        return bool(self.variants or self.parts or self.converted) or self.plain is not None

    @property
    def speculating(self) -> tuple[Variant, ...]:
        """The variants that are not made for calls that others refuse, if there are such."""
        return tuple(v for v in self.variants if not v.decides)

    def postpone(self) -> None:
        """Try to compile again after 1 call, then after 3, 7 and so on."""
        self.postponed += 1
        self.skipped = (1 << self.postponed) - 1

    def skips(self) -> bool:
        """Count one call down; is it to run in NumPy, before compiling is tried again?"""
        self.skipped, before = max(self.skipped - 1, 0), self.skipped
        return before > 0

    def refuse(self, variant: Variant, may_skip: bool) -> None:
        """Count a call that a variant refused although NumPy raised no exception; `may_skip`: may NumPy run others?"""
        if variant.speculates and self.decides is None:
            self.decides = True
        elif may_skip and not self.decides:
            self.refused += 1
            if self.refused >= MANY_REFUSED:
                self.skipped = 1 << min(self.refused, MOST_REFUSED)
            self._open()

    def accept(self) -> None:
        """A kernel has served a call after others were refused."""
        self.refused = 0
        self._open()

    def put(self, variants: tuple[Variant, ...]) -> None:
        """Use these variants from now on."""
        self.variants = variants[:MAX_VARIANTS]
        self._open()

    def time(self, variant: Variant | None) -> None:
        """Start timing calls against NumPy; meanwhile there is no hot path."""
        self.timing = InterleavedCalls(variant)
        self._open()

    def stop_timing(self) -> None:
        """Stop timing; calls use the hot path again."""
        self.timing = None
        self._open()

    def _open(self) -> None:
        first = self.variants[0] if self.variants else None
        is_timed = self.timing is not None and self.timing.variant is first
        self.fast = None if first is None or is_timed or self.is_compared or self.refused else first.fast


class Entries(dict[CallKey, Entry]):
    """The entries of a pipeline, by the key of the arguments.

    Attributes:
        name: of the pipeline.
        refusals: how many keys in a row could not be traced.
        refusal: why the latest of them runs in NumPy.
    """

    def __init__(self, name: str, stats: Stats) -> None:
        super().__init__()
        self.name, self._stats = name, stats
        self.refusals, self.refusal = 0, ""

    def forget(self) -> None:
        """Make all keys new again."""
        self.clear()
        self.refusals, self.refusal = 0, ""

    def at(self, key: CallKey) -> Entry:
        """The entry of a key, made if there is none."""
        found = self.get(key)
        if found is None:
            found = self[key] = Entry()
            limit(self, MAX_KEYS)
        return found

    def give_up(self, key: CallKey, why: str, is_refused: bool) -> None:
        """Leave all calls with this key to NumPy; `is_refused`: it cannot be traced, or not compiled in time."""
        entry = self.at(key)
        entry.plain, entry.is_given_up = why, True
        if is_refused:
            self.refusals += 1
            self.refusal = why

    def refuses_again(self) -> bool:
        """Assume that a new key cannot be traced, as those before it? One is tried each time their number has doubled:
        an argument such as a list that grows at every call makes every key a new one."""
        return self.refusals >= FEW_REFUSALS and self.refusals & (self.refusals - 1) != 0

    def install(
        self,
        key: CallKey,
        variant: Variant,
        seconds: tuple[float, float] | None = None,
        is_compared: bool = False,
    ) -> None:
        """Use this variant from now on; `seconds`, `is_compared`: see `Entry`."""
        entry = self.at(key)
        entry.timing, entry.seconds, entry.is_compared = None, seconds, is_compared
        entry.put((variant, *(v for v in entry.variants if v is not variant)))

    def time(self, key: CallKey, variant: Variant) -> None:
        """Time the next calls against NumPy."""
        timed = [e for e in [*self.values()] if e.timing is not None]  # a copy: other threads add entries
        for entry in timed[: max(len(timed) + 1 - against_numpy.MAX_TIMED, 0)]:
            entry.stop_timing()
        self.at(key).time(variant)

    def decide(self, key: CallKey, timing: InterleavedCalls) -> None:
        """End a comparison of times: NumPy runs from now on if it was faster."""
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
            if timing.variant is not None and timing.variant.decides and (others := entry.speculating):
                entry.decides = False
                entry.put(others)
                return
            log.info("%s runs as plain NumPy with such arguments: %s", self.name, found)
            self._stats.slower += 1
            entry.plain = f"{found}. {against_numpy.ADVICE}"
            entry.put(())


def limit(entries: dict[Any, Any], most: int) -> None:
    """Drop the oldest entries beyond `most`; other threads may do so at the same time."""
    for key in [*entries][: max(len(entries) - most, 0)]:  # a copy: other threads change it
        entries.pop(key, None)


@dataclass(slots=True)
class Call:
    """One call off the hot path.

    Attributes:
        leaves: the arguments, flattened.
        structure: their nesting in tuples, lists and dicts.
        targets: the caller's arrays for the results (`Pipeline.into`).
        known: the variants of the key when the call began.
        refused: the variant whose check says that NumPy must run, or None.
    """

    key: CallKey
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]
    structure: PyTree
    targets: list[Any]
    known: tuple[Variant, ...]
    refused: Variant | None = None
