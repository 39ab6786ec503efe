"""Calls that no variant serves: the function is traced and compiled, or is found not to be compilable."""

from __future__ import annotations

import contextlib
import logging
import sys
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import copied, each_once, is_device_array
from hjit.call.breaks.split_calls import SplitCalls
from hjit.call.checks.retracing import Retracing
from hjit.call.checks.timed_calls import TimedCalls
from hjit.call.checks.verified_calls import VerifiedCalls
from hjit.call.entry import Call
from hjit.call.function_state import FunctionState
from hjit.call.known_calls import KnownCalls
from hjit.call.results import MISS, PARTS, PLAIN
from hjit.call.tuning.calls import tune_later
from hjit.errors import CompileError, DeviceError, HjitError, LongLoop, MemoryShortage, TraceError, raise_if_signalled
from hjit.options import Options
from hjit.process import forks, shown_warnings
from hjit.process.progress import progress
from hjit.trace.capture.trace import PyTree, python_function
from hjit.trace.capture.tracing_errors import as_trace_error
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.build import Built, Request
    from hjit.tuning.choice import Scheduler

log = logging.getLogger("hjit")


@uncounted
class NewCalls:
    """Runs the first call of a key, and later ones that take a path through the function that no variant takes.

    Args:
        known: runs the variants.
        timed: times the later calls.
        verified: compares the first results of a kernel with NumPy's.
        split: runs calls that cannot be traced as a whole.
        retracing: limits how often the function is traced.
    """

    def __init__(
        self,
        state: FunctionState,
        known: KnownCalls,
        timed: TimedCalls,
        verified: VerifiedCalls,
        split: SplitCalls,
        retracing: Retracing,
    ) -> None:
        self._state, self._known = state, known
        self._timed, self._verified, self._split, self._retracing = timed, verified, split, retracing

    def run(self, call: Call, is_into: bool) -> Any:
        """Trace a call, unless nearly every call is traced and NumPy is faster than tracing."""
        state, retracing = self._state, self._retracing
        do = "trace" if is_into or not self._may_skip(call) else retracing.next(state.stats.calls)
        if do == "plain":
            return state.run_plain(call.args, call.kwargs)
        if do == "compare":
            was_slower = retracing.is_slower
            result = retracing.compared(lambda: state.run_plain(call.args, call.kwargs))
            if retracing.is_slower and not was_slower:
                log.info("%s: sizes or values differ at nearly every call, so NumPy runs most calls", state.name)
            return result
        was_refused = call.refused is not None
        try:
            result = retracing.traced(lambda: self._first_call(call))
            if result is PLAIN and was_refused:
                state.entries.at(call.key).decides = False
            if result is PARTS:
                return self._split.first_call(call.key, call.args, call.kwargs)
            return self._run_plain_instead(call) if result is PLAIN else result
        except HjitError:
            raise
        except Exception:  # raised by the function itself
            if not any(map(is_device_array, call.leaves)):
                state.entries.at(call.key).raised += 1
            raise

    def _may_skip(self, call: Call) -> bool:
        """Is NumPy allowed to run a call that could be traced?"""
        state = self._state
        options = state.options.of(call.key[0])
        is_free = options.numpy_if_faster and options.on_unsupported != "raise" and options.verify == "first"
        return is_free and state.schedule is None and not state.is_part

    def _run_plain_instead(self, call: Call) -> Any:
        """Run the plain function where it was traced in vain, as NumPy was expected to raise an exception.

        If it raises none (an int of Python has outgrown 64 bits), such calls are traced again after a while only.
        """
        result = self._state.run_plain(call.args, call.kwargs)
        entry = self._state.entries.at(call.key)
        if call.refused is not None and call.refused.rec.known.assumed:
            self._state.assumes = False
        elif call.refused is not None and call.refused.speculates and entry.decides is None:
            entry.decides = True
        elif not entry.is_known and not entry.skipped:
            entry.postpone()
        return result

    def _first_call(self, call: Call) -> Any:
        """Trace, compile and verify; the result of the call, or an `Outcome`."""
        from hjit.call.build import Built
        from hjit.call.variant import Mispredict, OutOfBounds, RunOptions

        state = self._state
        if not state.may_trace(call):
            return PLAIN
        is_refused = call.refused is not None
        options = state.options.of(call.key[0])
        if not state.is_part:
            state.spent.building = state.spent.searching = 0.0  # each key has the whole budget
        with state.lock, forks.builds.inside():
            result = self._known_by_now(call, options)
            if result is not MISS:
                return result
            build = self._build_deciding if is_refused else self._build_or_refuse
            built = build(call, options)
            if not isinstance(built, Built):
                return built
            state.entries.refusals = 0
            variant = built.variant
            tune_later(state, call, options)
            if state.is_part and not variant.bounds:  # no kernel: Python is as fast, and needs no guards
                state.give_up(call.key, "it computes nothing of arrays")
                return PLAIN
            guarded = variant.guards.values(call.leaves)
            if guarded is None or not variant.guards.may_write(call.leaves, guarded[1]):
                if variant.fast is None:  # a hot path would run without being verified
                    state.entries.install(call.key, variant)
                return PLAIN
            stores = self._verified.unverified(variant, call.targets, options)
            if stores:
                try:
                    result = self._verified.verify(call, variant, guarded, stores)
                except TraceError as error:
                    if is_refused:
                        return PLAIN
                    return self._split.not_compiled(call, options, error)
                return self._first_call(call) if result is MISS else result
            seconds = None if built.verified is None else built.verified.seconds
            state.entries.install(call.key, variant, seconds)
            self._timed.begin(call.key, variant, options, seconds)
        try:
            given, run_options = (call.args, call.kwargs), RunOptions(built.results)
            result = variant.run(call.leaves, guarded, call.targets, given, run_options)
            for warning in variant.rec.externs.warnings:  # issued while tracing, by calls that are not repeated
                shown_warnings.give(warning)
            return result
        except OutOfBounds:
            call.refused = variant
            return state.leave_to_numpy(call)
        except Mispredict:  # an assumed outcome was wrong; or a decision differs by the last bits of a sum
            if not variant.rec.known.assumed:
                state.interprets = False
                return PLAIN
            state.assumes = False
            return self._first_call(call)

    def _known_by_now(self, call: Call, options: Options) -> Any:
        """The result, or `Outcome`, by what another thread, other keys or an earlier process has found; else MISS."""
        state = self._state
        entry = state.entries.get(call.key)
        known = () if entry is None else entry.variants
        if known is not call.known:  # another thread has compiled it meanwhile
            call.known = known
            result = self._known.run(call)
            if result is not MISS:
                return result
        if entry is not None and entry.plain is not None:
            return PLAIN
        is_free = options.on_unsupported != "raise" and state.schedule is None
        if is_free and state.entries.refuses_again():
            return self._split.refuse_as_before(call.key, options)
        return self._split.stored_refusal(call.key, options)

    def _build_or_refuse(self, call: Call, options: Options) -> Any:
        """The function traced and compiled for a call (`Built`); if that fails, the result of the call or an `Outcome`.

        Raises:
            HjitError: it failed, and ``on_unsupported="raise"``.
        """
        from hjit.call.build import TracingFailed
        from hjit.call.variant import OutOfBounds

        try:
            with progress(f"hjit: compiling {self._state.name}"):
                return self._build_with_expected(call, options)
        except (TraceError, CompileError, DeviceError, OutOfBounds, MemoryError, TracingFailed) as error:
            failed: Exception = error  # exceptions of the plain function, which runs below, do not have it as context
        try:
            if isinstance(failed, OutOfBounds):
                return self._state.leave_to_numpy(call)
            if isinstance(failed, TracingFailed):
                return self._not_traceable(call, options, failed.error)
            if isinstance(failed, MemoryError):
                return self._too_little_memory(call, options, failed)
            assert isinstance(failed, HjitError)
            return self._split.not_compiled(call, options, failed)
        finally:
            if sys.exception() is not failed:
                _clear_frames(failed)
            del failed  # its traceback holds this frame

    def _build_deciding(self, call: Call, options: Options) -> Any:
        """As `_build_or_refuse`, for a call that a speculating variant has refused: with decisions, or not at all."""
        from hjit.call.build import TracingFailed
        from hjit.call.variant import OutOfBounds

        state = self._state
        try:
            with progress(f"hjit: compiling {state.name}"):
                return state.build(self.request(call.structure, call.leaves, options, state.schedule, speculate=False))
        except (TraceError, CompileError, DeviceError, OutOfBounds, MemoryError, TracingFailed) as error:
            raise_if_signalled(error)
            _clear_frames(error)
            in_loops = call.refused is not None and call.refused.rec.attempt.speculates
            if in_loops and options.on_unsupported == "break" and isinstance(error, TraceError):
                return self._split.not_compiled(call, options, error)
            return PLAIN

    def _too_little_memory(self, call: Call, options: Options, error: MemoryError) -> Any:
        """The result of a call where the function itself raised an error, or there is too little memory to trace it."""
        raise_if_signalled(error)
        if options.on_unsupported == "raise":
            raise error
        result = self._state.run_plain(call.args, call.kwargs)
        self._split.not_compiled(call, options, MemoryShortage(f"too little memory to trace it: {error}"))
        return result

    def _not_traceable(self, call: Call, options: Options, error: Exception) -> Any:
        """The result of a call, or an `Outcome`, where tracing raised an exception that may be the function's own.

        Raises:
            TraceError: it is not, and ``on_unsupported="raise"``.
        """
        state = self._state
        if options.on_unsupported == "break" and self._split.split(error):
            return PARTS
        if options.on_unsupported == "raise":
            raise self.numpys_error(error, call.structure, call.leaves)
        result = state.run_plain(call.args, call.kwargs)  # once, as it may have effects; it may raise
        why = f"{state.name} runs as plain NumPy: {self._not_traced(error)}"
        state.give_up(call.key, why, is_refused=True)
        return result

    def _build_with_expected(self, call: Call, options: Options) -> Built:
        """As `FunctionState.build`, assuming that conditions come out as in an earlier process; if that fails, by
        evaluating them."""
        from hjit.call.build import TracingFailed
        from hjit.call.stored import outcomes
        from hjit.call.variant import OutOfBounds

        state = self._state
        found = outcomes.Outcomes()
        entry = state.entries.get(call.key)
        decides = not call.known and entry is not None and entry.decides is not None
        if (
            state.assumes and state.interprets and not call.known and not decides
        ):  # else an assumption has been wrong before
            found = outcomes.load(state.py_func, call.key, options) or outcomes.Outcomes((), state.speculated)
        if found:
            with contextlib.suppress(HjitError, OutOfBounds, TracingFailed):  # it may be on the wrong path
                request = self.request(call.structure, call.leaves, options, state.schedule)
                return state.build(replace(request, expected=found.expected, speculated=found.speculated))
        built = self._build_unsplit(call, options, speculate=not decides)
        state.speculated = tuple(built.variant.rec.known.speculated)
        is_first = all(v.rec.known.assumed for v in call.known)
        if is_first and not decides:  # outcomes are stored for first calls of later processes
            outcomes.store(state.py_func, call.key, options, built.variant.rec)
        return built

    def _build_unsplit(self, call: Call, options: Options, speculate: bool) -> Built:
        """As `FunctionState.build`; a long loop is unrolled into the trace if the function cannot be split there."""
        state = self._state
        request = self.request(call.structure, call.leaves, options, state.schedule, speculate=speculate)
        try:
            return state.build(request)
        except LongLoop as error:
            if self._split.split(error):
                raise
        return state.build(replace(request, options=replace(options, on_unsupported="numpy")))

    def request(
        self,
        structure: PyTree,
        leaves: list[Any],
        options: Options,
        schedule: Scheduler | None,
        speculate: bool = True,
    ) -> Request:
        """A request to compile the function for these arguments."""
        from hjit.call.build import Request

        state = self._state
        return Request(
            state.py_func,
            structure,
            leaves,
            options,
            schedule,
            state.interprets,
            speculate=speculate,
        )

    def numpys_error(self, error: Exception, structure: PyTree, leaves: list[Any]) -> Exception:
        """The exception that the plain function raises for these arguments; a `TraceError` if it raises none."""
        copy, function = copied, self._state.py_func
        if any(map(is_device_array, leaves)):
            from hjit.call.other_arrays.on_device import host_copy

            copy, function = host_copy, self._state.plain_for_numpy()
        args, kwargs = structure.build(each_once(copy, leaves).__getitem__)
        try:
            with forks.builds.outside():
                function(*args, **kwargs)
        except Exception as own:
            return own
        return self._not_traced(error)

    def _not_traced(self, error: Exception) -> TraceError:
        return as_trace_error(self._state.name, error, python_function(self._state.py_func).__code__.co_filename)


def _clear_frames(error: Exception) -> None:
    """Free the arguments, and what was traced, which the frames of an exception that is done with hold in cycles."""
    done: BaseException | None = error.error if hasattr(error, "error") else error
    while done is not None:
        traceback.clear_frames(done.__traceback__)
        done = done.__context__
