"""Calls of functions with graph breaks: Python runs the split function, whose parts are compiled."""

from __future__ import annotations

import functools
import logging
import types
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import CallKey
from hjit.call.breaks.limits import MAX_DEPTH, WARMUP_CALLS
from hjit.call.checks.timed_calls import TimedCalls
from hjit.call.entry import Entry
from hjit.call.results import MISS, PARTS, PLAIN, Outcome
from hjit.errors import TraceError
from hjit.options import Options, context_state
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.breaks.parts import Parts
    from hjit.call.stored.refusals import Refusal

log = logging.getLogger("hjit")


@uncounted
class SplitCalls(TimedCalls):
    """The part of `CompiledFunction` for functions that cannot be traced as a whole.

    Attributes:
        parts: the split function, made when a call cannot be traced as a whole.
    """

    parts: Parts | None
    _depth: int  # how many split functions call each other, down to this one

    @abstractmethod
    def _make_part(self, function: Any, deeper: int = 0) -> Any:
        """The pipeline of a part of the function, or of a function that it calls (`deeper` = 1)."""
        ...

    def _callee(self) -> Callable[[Any], Any] | None:
        """Makes the pipelines of functions that the function calls; None: these run uncompiled."""
        return None if self._depth >= MAX_DEPTH else functools.partial(self._make_part, deeper=1)

    def _call_parts(self, key: CallKey, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A later call of a split function, or with arrays to convert; some of them are timed against NumPy."""
        parts, timing = entry.parts or entry.converted, entry.timing
        assert parts is not None
        if timing is not None:
            return self._run_interleaved(
                key, timing, lambda: parts(*args, **kwargs), lambda: self._run_plain(args, kwargs)
            )
        if entry.warmup_calls < WARMUP_CALLS and self._resolved(key[0]).numpy_if_faster:
            entry.warmup_calls += 1
            if entry.warmup_calls == WARMUP_CALLS:
                entry.time(None)
        return parts(*args, **kwargs)

    def _first_call_in_parts(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The first call of a split function with this key."""
        entry = self._entries.at(key)
        assert self.parts is not None
        entry.parts = self.parts.run
        try:
            result = entry.parts(*args, **kwargs)
        except Exception:
            entry.parts = None  # perhaps tracing failed only because these arguments are invalid
            raise
        self._entries.refusals += 1
        return result

    def _refuse_as_before(self, key: CallKey, options: Options) -> Outcome:
        """Treat a call as those with the keys before it, which could not be traced."""
        if self.parts is not None and options.on_unsupported == "break":
            return PARTS
        self._give_up(key, self._entries.refusal, is_refused=True)
        return PLAIN

    def _split(self, error: Exception) -> bool:
        """Split the function where tracing raised `error`; False if it cannot be split."""
        from hjit.call.stored.refusals import Refusal

        return isinstance(self.py_func, types.FunctionType) and self._split_for(Refusal.of(error, self.py_func))

    def _split_for(self, refusal: Refusal) -> bool:
        """Split the function for this refusal; False if it cannot be split, or has a schedule, which is one of the
        whole function."""
        if self._schedule is not None:
            return False
        if self.parts is None:
            from hjit.call.breaks.parts import split

            self.parts = split(self.py_func, refusal, self._make_part, self._callee(), self._resolved(context_state()))
            if self.parts is not None:
                self.stats.parts = len(self.parts.parts)
                log.info("%s runs in parts: %s", self.__name__, refusal.message)
        return self.parts is not None

    def _stored_refusal(self, key: CallKey, options: Options) -> Outcome:
        """How a call goes on that an earlier process could not trace; MISS if none has tried."""
        if options.on_unsupported != "break" or self._schedule is not None:
            return MISS
        from hjit.call.stored import refusals

        refusal = refusals.load(self.py_func, key, options)
        if refusal is not None and self._split_for(refusal):
            return PARTS
        if refusal is None or refusal.is_loop:  # which is traced to its end
            return MISS
        self._give_up(key, f"{self.__name__} runs as plain NumPy: {refusal.message}", is_refused=True)
        return PLAIN

    def _store_refusal(self, key: CallKey, options: Options, error: TraceError) -> None:
        """Store a refusal on disk, so that later processes do not trace such calls."""
        from hjit.call.stored import refusals

        if options.on_unsupported == "break" and self._schedule is None:
            refusals.store(self.py_func, key, options, error)
