"""Functions that cannot be traced as a whole: their calls run in Python, with compiled parts."""

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
    """What `hjit.call.compiled_function.CompiledFunction` does where its function cannot be traced as a whole.

    Attributes:
        parts: the function with compiled parts, once it was called with what cannot be traced as a whole.
    """

    parts: Parts | None
    _depth: int  # of functions in parts that call each other

    @abstractmethod
    def _part(self, function: Any, deeper: int = 0) -> Any:
        """What runs a part of the function, or one that it calls (`deeper`)."""
        ...

    def _callee(self) -> Callable[[Any], Any] | None:
        """What gives the pipelines of functions that are called in parts; None: these run as they are."""
        return None if self._depth >= MAX_DEPTH else functools.partial(self._part, deeper=1)

    def _by_parts(self, key: CallKey, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A later call of a function with compiled parts, or with arrays that are converted; some are timed against the
        plain function."""
        parts, timing = entry.parts or entry.converted, entry.timing
        assert parts is not None
        if timing is not None:
            return self._interleaved(key, timing, lambda: parts(*args, **kwargs), lambda: self._numpy(args, kwargs))
        if entry.warmup_calls < WARMUP_CALLS and self._resolved(key[0]).numpy_if_faster:
            entry.warmup_calls += 1
            if entry.warmup_calls == WARMUP_CALLS:
                entry.time(None)
        return parts(*args, **kwargs)

    def _in_parts(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The first call of a function that Python runs, but for parts of it."""
        entry = self._entries.at(key)
        assert self.parts is not None
        entry.parts = self.parts.run
        try:
            result = entry.parts(*args, **kwargs)
        except Exception:
            entry.parts = None  # it may be these arguments that are wrong, and not what was refused
            raise
        self._entries.refusals += 1
        return result

    def _as_before(self, key: CallKey, options: Options) -> Outcome:
        """As calls with the keys before it."""
        if self.parts is not None and options.on_unsupported == "break":
            return PARTS
        self._give_up(key, self._entries.refusal, is_refused=True)
        return PLAIN

    def _split(self, error: Exception) -> bool:
        """Can the function, in which tracing raised something, run in parts?"""
        from hjit.call.stored.refusals import Refusal

        return isinstance(self.py_func, types.FunctionType) and self._split_at(Refusal.of(error, self.py_func))

    def _split_at(self, refusal: Refusal) -> bool:
        """Can the function, which cannot be traced, run in parts? A schedule is one of the whole function."""
        if self._schedule is not None:
            return False
        if self.parts is None:
            from hjit.call.breaks.parts import split

            self.parts = split(self.py_func, refusal, self._part, self._callee(), self._resolved(context_state()))
            if self.parts is not None:
                self.stats.parts = len(self.parts.parts)
                log.info("%s runs in parts: %s", self.__name__, refusal.message)
        return self.parts is not None

    def _refused_before(self, key: CallKey, options: Options) -> Outcome:
        """What becomes of a call that an earlier process could not trace; MISS: none has tried."""
        if options.on_unsupported != "break" or self._schedule is not None:
            return MISS
        from hjit.call.stored import refusals

        refusal = refusals.load(self.py_func, key, options)
        if refusal is not None and self._split_at(refusal):
            return PARTS
        if refusal is None or refusal.is_loop:  # which is traced to its end
            return MISS
        self._give_up(key, f"{self.__name__} runs as plain NumPy: {refusal.message}", is_refused=True)
        return PLAIN

    def _note_refusal(self, key: CallKey, options: Options, error: TraceError) -> None:
        """Later processes do not trace such calls."""
        from hjit.call.stored import refusals

        if options.on_unsupported == "break" and self._schedule is None:
            refusals.store(self.py_func, key, options, error)
