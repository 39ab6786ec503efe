"""Calls of functions with graph breaks: Python runs the split function, whose parts are compiled."""

from __future__ import annotations

import functools
import logging
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import CallKey
from hjit.call.breaks.limits import MAX_DEPTH, WARMUP_CALLS
from hjit.call.checks.timed_calls import TimedCalls
from hjit.call.entry import Call, Entry
from hjit.call.function_state import FunctionState
from hjit.call.results import MISS, PARTS, PLAIN, Outcome
from hjit.errors import BudgetError, HjitError, MemoryShortage, TraceError
from hjit.options import Options
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.stored.refusals import Refusal

log = logging.getLogger("hjit")

MakePart = Callable[..., Any]  # given the state of the whole, a function, and `deeper`


@uncounted
class SplitCalls:
    """Runs the calls of a function that cannot be traced as a whole.

    Args:
        timed: times calls against NumPy.
        make_part: makes the pipeline of a part of the function, or of a function that it calls (`deeper` = 1).
    """

    def __init__(self, state: FunctionState, timed: TimedCalls, make_part: MakePart) -> None:
        self._state, self._timed = state, timed
        self._make_part = functools.partial(make_part, state)
        self._code: Any = None  # of the function, when it was split

    def _callee(self) -> Callable[[Any], Any] | None:
        """Makes the pipelines of functions that the function calls; None: these run uncompiled."""
        return None if self._state.depth >= MAX_DEPTH else functools.partial(self._make_part, deeper=1)

    def is_current(self) -> bool:
        """Has the function the code that was split? Notebooks that load modules again change it."""
        return self._code is getattr(self._state.py_func, "__code__", None)

    def call(self, key: CallKey, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A later call of a split function, or with arrays to convert; some of them are timed against NumPy."""
        parts, timing = entry.parts or entry.converted, entry.timing
        assert parts is not None
        if timing is not None:
            return self._timed.run(
                key, timing, lambda: parts(*args, **kwargs), lambda: self._state.run_plain(args, kwargs)
            )
        if entry.warmup_calls < WARMUP_CALLS and self._state.options.of(key[0]).numpy_if_faster:
            entry.warmup_calls += 1
            if entry.warmup_calls == WARMUP_CALLS:
                entry.time(None)
        return parts(*args, **kwargs)

    def first_call(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The first call of a split function with this key."""
        state = self._state
        entry = state.entries.at(key)
        assert state.parts is not None
        entry.parts = state.parts.run
        try:
            result = entry.parts(*args, **kwargs)
        except Exception:
            entry.parts = None  # perhaps tracing failed only because these arguments are invalid
            raise
        state.entries.refusals += 1
        return result

    def refuse_as_before(self, key: CallKey, options: Options) -> Outcome:
        """Treat a call as those with the keys before it, which could not be traced."""
        state = self._state
        if state.parts is not None and options.on_unsupported == "break":
            return PARTS
        state.give_up(key, state.entries.refusal, is_refused=True)
        return PLAIN

    def not_compiled(self, call: Call, options: Options, error: HjitError) -> Outcome:
        """How a call goes on that hjit cannot compile: by the split function or by NumPy.

        Raises:
            HjitError: `error`, with ``on_unsupported="raise"``.
        """
        state = self._state
        is_refused = isinstance(error, TraceError) and not isinstance(error, BudgetError)
        if isinstance(error, TraceError) and is_refused:
            self._store_refusal(call.key, options, error)
        if is_refused and options.on_unsupported == "break" and self.split(error):
            return PARTS
        if options.on_unsupported == "raise" and not isinstance(error, BudgetError):
            raise error
        why = f"{state.name} runs as plain NumPy: {error}"
        if isinstance(error, MemoryShortage):
            state.entries.at(call.key).postpone()
            state.report_fallback(why)
        else:
            state.give_up(call.key, why, is_refused=True)
        return PLAIN

    def not_compiled_later(self, call: Call, error: TraceError) -> None:
        """As `not_compiled`, for later calls: this one has its result already."""
        state = self._state
        if self.not_compiled(call, state.options.of(call.key[0]), error) is PARTS and state.parts is not None:
            state.entries.at(call.key).parts = state.parts.run

    def split(self, error: Exception) -> bool:
        """Split the function where tracing raised `error`; False if it cannot be split."""
        from hjit.call.stored.refusals import Refusal

        function = self._state.py_func
        return isinstance(function, types.FunctionType) and self._split_for(Refusal.of(error, function))

    def _split_for(self, refusal: Refusal) -> bool:
        """Split the function for this refusal; False if it cannot be split, or has a schedule, which is one of the
        whole function."""
        state = self._state
        if state.schedule is not None:
            return False
        if state.parts is None:
            from hjit.call.breaks.parts import split

            self._code = getattr(state.py_func, "__code__", None)
            state.parts = split(state.py_func, refusal, self._make_part, self._callee(), state.options.here())
            if state.parts is not None:
                state.stats.parts = len(state.parts.parts)
                log.info("%s runs in parts: %s", state.name, refusal.message)
        return state.parts is not None

    def stored_refusal(self, key: CallKey, options: Options) -> Outcome:
        """How a call goes on that an earlier process could not trace; MISS if none has tried."""
        state = self._state
        if options.on_unsupported != "break" or state.schedule is not None:
            return MISS
        from hjit.call.stored import refusals

        refusal = refusals.load(state.py_func, key, options)
        if refusal is not None and self._split_for(refusal):
            return PARTS
        if refusal is None or refusal.is_loop:  # which is traced to its end
            return MISS
        state.give_up(key, f"{state.name} runs as plain NumPy: {refusal.message}", is_refused=True)
        return PLAIN

    def _store_refusal(self, key: CallKey, options: Options, error: TraceError) -> None:
        """Store a refusal on disk, so that later processes do not trace such calls."""
        from hjit.call.stored import refusals

        if options.on_unsupported == "break" and self._state.schedule is None:
            refusals.store(self._state.py_func, key, options, error)
