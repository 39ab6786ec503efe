"""Calls that no variant serves yet: the function is traced and compiled, or is found not to be compilable."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import copied, each_once, is_device_array
from hjit.call.breaks.split_calls import SplitCalls
from hjit.call.checks.verified_calls import VerifiedCalls
from hjit.call.entry import Call
from hjit.call.results import MISS, PARTS, PLAIN, Outcome
from hjit.errors import (
    BudgetError,
    CompileError,
    DeviceError,
    HjitError,
    LongLoop,
    MemoryShortage,
    TraceError,
    raise_if_signalled,
)
from hjit.options import Options
from hjit.process import deadline, forks, shown_warnings
from hjit.process.progress import progress
from hjit.trace.capture.trace import PyTree, python_function
from hjit.trace.capture.tracing_errors import as_trace_error
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.build import Built, Request
    from hjit.trace.tracing.recording.events import ExpectedOutcome
    from hjit.tuning.autotune import Tuned
    from hjit.tuning.choice import Scheduler


@uncounted
class NewCalls(VerifiedCalls, SplitCalls):
    """The part of `CompiledFunction` for the first call of a key, or of a path through the function that no variant of
    the key takes.

    Attributes:
        tuned: the result of the latest tuning, or None.
    """

    tuned: Tuned | None
    _is_part = False
    _spent: deadline.Spent

    @abstractmethod
    def _run_known(self, call: Call) -> Any:
        """Run the variant whose guards and decisions hold; MISS if there is none, PLAIN if NumPy must run."""

    @abstractmethod
    def _report_fallback(self, why: str) -> None:
        """Report why NumPy runs calls: by a warning, or in the log."""

    @abstractmethod
    def _tune_later(self, call: Call, options: Options) -> None:
        """Tune such calls in the background, if that option is set."""

    def _first_call(self, call: Call) -> Any:
        """Trace, compile and verify; the result of the call, or an `Outcome`."""
        from hjit.call.build import Built
        from hjit.call.variant import Mispredict, OutOfBounds, RunOptions

        options = self._resolved(call.key[0])
        if not self._is_part:
            self._spent.building = self._spent.searching = 0.0  # each key has the whole budget
        with self._lock, forks.builds:
            result = self._known_by_now(call, options)
            if result is not MISS:
                return result
            built = self._build_or_refuse(call, options)
            if not isinstance(built, Built):
                return built
            self._entries.refusals = 0
            variant = built.variant
            self._tune_later(call, options)
            if self._is_part and not variant.bounds:  # no kernel: Python is as fast, and needs no guards
                self._give_up(call.key, "it computes nothing of arrays")
                return PLAIN
            guarded = variant.guards.values(call.leaves)
            if guarded is None or not variant.guards.may_write(call.leaves, guarded[1]):
                if variant.fast is None:  # a hot path would run without being verified
                    self._entries.install(call.key, variant)
                return PLAIN
            stores = self._unverified(variant, call.targets, options)
            if stores:
                try:
                    result = self._verify(call, variant, guarded, stores)
                except TraceError as error:
                    return self._not_compiled(call, options, error)
                return self._first_call(call) if result is MISS else result
            seconds = None if built.verified is None else built.verified.seconds
            self._entries.install(call.key, variant, seconds)
            self._time_calls(call.key, variant, options, seconds)
        try:
            given, run_options = (call.args, call.kwargs), RunOptions(built.results)
            result = variant.run(call.leaves, guarded, call.targets, given, run_options)
            for warning in variant.rec.warned:  # extern calls issued them while tracing, and are not made again
                shown_warnings.give(warning)
            return result
        except OutOfBounds:
            return self._leave_to_numpy(call)
        except Mispredict:  # an assumed outcome was wrong; or a decision differs by the last bits of a sum
            if not variant.rec.assumed:
                self._interprets = False
                return PLAIN
            self._assumes = False
            return self._first_call(call)

    def _known_by_now(self, call: Call, options: Options) -> Any:
        """The result, or `Outcome`, by what another thread, other keys or an earlier process has found; else MISS."""
        entry = self._entries.get(call.key)
        known = () if entry is None else entry.variants
        if known is not call.known:  # another thread has compiled it meanwhile
            call.known = known
            result = self._run_known(call)
            if result is not MISS:
                return result
        if entry is not None and entry.plain is not None:
            return PLAIN
        is_free = options.on_unsupported != "raise" and self._schedule is None
        if is_free and self._entries.refuses_again():
            return self._refuse_as_before(call.key, options)
        return self._stored_refusal(call.key, options)

    def _build_or_refuse(self, call: Call, options: Options) -> Any:
        """The function traced and compiled for a call (`Built`); if that fails, the result of the call or an `Outcome`.

        Raises:
            HjitError: it failed, and ``on_unsupported="raise"``.
        """
        from hjit.call.build import TracingFailed
        from hjit.call.variant import OutOfBounds

        breaks, raises = options.on_unsupported == "break", options.on_unsupported == "raise"
        try:
            with progress(f"hjit: compiling {self.__name__}"):
                return self._build_with_expected(call, options)
        except (TraceError, CompileError, DeviceError) as error:
            return self._not_compiled(call, options, error)
        except OutOfBounds:
            return self._leave_to_numpy(call)
        except MemoryError as error:  # raised by the function itself, or there is too little memory to trace it
            raise_if_signalled(error)
            if raises:
                raise
            result = self._run_plain(call.args, call.kwargs)
            self._not_compiled(call, options, MemoryShortage(f"too little memory to trace it: {error}"))
            return result
        except TracingFailed as failed:
            if breaks and self._split(failed.error):
                return PARTS
            if raises:
                raise self._numpys_error(failed.error, call.structure, call.leaves) from None
            result = self._run_plain(call.args, call.kwargs)  # once, as it may have effects; it may raise
            why = f"{self.__name__} runs as plain NumPy: {self._not_traced(failed.error)}"
            self._give_up(call.key, why, is_refused=True)
            return result

    def _not_compiled(self, call: Call, options: Options, error: HjitError) -> Outcome:
        """How a call goes on that hjit cannot compile: by the split function or by NumPy.

        Raises:
            HjitError: `error`, with ``on_unsupported="raise"``.
        """
        is_refused = isinstance(error, TraceError) and not isinstance(error, BudgetError)
        if isinstance(error, TraceError) and is_refused:
            self._store_refusal(call.key, options, error)
        if is_refused and options.on_unsupported == "break" and self._split(error):
            return PARTS
        if options.on_unsupported == "raise" and not isinstance(error, BudgetError):
            raise error
        why = f"{self.__name__} runs as plain NumPy: {error}"
        if isinstance(error, MemoryShortage):
            self._entries.at(call.key).postpone()
            self._report_fallback(why)
        else:
            self._give_up(call.key, why, is_refused=True)
        return PLAIN

    def _not_compiled_later(self, call: Call, error: TraceError) -> None:
        """As `_not_compiled`, for later calls: this one has its result already."""
        if self._not_compiled(call, self._resolved(call.key[0]), error) is PARTS and self.parts is not None:
            self._entries.at(call.key).parts = self.parts.run

    def _build_with_expected(self, call: Call, options: Options) -> Built:
        """As `_build`, assuming that conditions come out as in an earlier process; if that fails, by evaluating
        them."""
        from hjit.call.build import TracingFailed
        from hjit.call.stored import outcomes
        from hjit.call.variant import OutOfBounds

        expected: Sequence[ExpectedOutcome | None] = ()
        if self._assumes and self._interprets and not call.known:  # else an assumption has been wrong before
            expected = outcomes.load(self.py_func, call.key, options)
        if any(expected):
            with contextlib.suppress(HjitError, OutOfBounds, TracingFailed):  # it may be on the wrong path
                return self._build(self._request(call.structure, call.leaves, options, self._schedule, expected))
        built = self._build_unsplit(call, options)
        if all(v.rec.assumed for v in call.known):  # outcomes are stored for first calls of later processes
            outcomes.store(self.py_func, call.key, options, built.variant.rec)
        return built

    def _build_unsplit(self, call: Call, options: Options) -> Built:
        """As `_build`; a long loop is unrolled into the trace if the function cannot be split there."""
        request = self._request(call.structure, call.leaves, options, self._schedule)
        try:
            return self._build(request)
        except LongLoop as error:
            if self._split(error):
                raise
        return self._build(replace(request, options=replace(options, on_unsupported="numpy")))

    def _request(
        self,
        structure: PyTree,
        leaves: list[Any],
        options: Options,
        schedule: Scheduler | None,
        expected: Sequence[ExpectedOutcome | None] = (),
    ) -> Request:
        """A request to compile the function for these arguments."""
        from hjit.call.build import Request

        return Request(self.py_func, structure, leaves, options, schedule, self._interprets, expected)

    def _build(self, request: Request) -> Built:
        """Run `hjit.call.build.build`, and update the counters.

        Raises:
            BudgetError, TraceError, CompileError, OutOfBounds, TracingFailed: as `build` does.
        """
        from hjit.call.build import build

        options = request.options
        tune: Callable[..., Tuned | None] | None = None
        if options.tune == "autotune" and not options.tune_in_background and request.scheduler is None:
            from hjit.call.tuned import tuned_once

            tune = tuned_once
        with deadline.counting(self._spent):
            made = build(request, self.__name__, tune)
        self.tuned = made.tuned or self.tuned
        self.stats.traces += 1
        self.stats.compilations += made.compiled
        self.stats.cache_hits += made.loaded
        if made.verified is not None:
            self.stats.verified = self.stats.verified is not False
            self._count_flipped(made.verified.flipped)
        self.stats.scratch_bytes = max((b.scratch_bytes for b in made.variant.bounds), default=0)
        return made

    def _numpys_error(self, error: Exception, structure: PyTree, leaves: list[Any]) -> Exception:
        """The exception that the plain function raises for these arguments; a `TraceError` if it raises none."""
        copy, function = copied, self.py_func
        if any(map(is_device_array, leaves)):
            from hjit.call.other_arrays.on_device import host_copy

            copy, function = host_copy, self._plain_for_numpy()
        args, kwargs = structure.build(each_once(copy, leaves).__getitem__)
        try:
            with forks.builds.outside():
                function(*args, **kwargs)
        except Exception as own:
            return own
        return self._not_traced(error)

    def _not_traced(self, error: Exception) -> TraceError:
        return as_trace_error(self.__name__, error, python_function(self.py_func).__code__.co_filename)
