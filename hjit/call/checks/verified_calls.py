"""The first calls of new kernels: results are compared with NumPy's, and a kernel that is wrong is not used again."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import is_device_array
from hjit.call.breaks.split_calls import SplitCalls
from hjit.call.checks import against_numpy
from hjit.call.checks.timed_calls import TimedCalls
from hjit.call.entry import Call
from hjit.call.function_state import FunctionState
from hjit.call.results import MISS, PLAIN
from hjit.errors import TraceError
from hjit.options import Options
from hjit.process import forks, shown_warnings
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.checks.first_calls import FirstCalls, Report
    from hjit.call.checks.uninitialised import Uninitialised
    from hjit.call.guards import GuardValues
    from hjit.call.variant import Variant


@uncounted
class VerifiedCalls:
    """Compares the first results of a function's kernels with NumPy's.

    Args:
        timed: times the later calls.
        split: runs the later calls if this one shows that the function cannot be compiled as a whole.
    """

    def __init__(self, state: FunctionState, timed: TimedCalls, split: SplitCalls) -> None:
        self._state, self._timed, self._split = state, timed, split

    def unverified(self, variant: Variant, targets: Sequence[Any], options: Options) -> list[bool]:
        """The kinds of stores (True: streaming) of this call's results that have not been compared with NumPy yet."""
        if options.verify != "first":
            return []
        stores = [False, True] if targets and variant.may_stream else [False]
        return [] if variant.verified_stores.issuperset(stores) else self._first_calls.unverified(variant, stores)

    def verify(
        self, call: Call, variant: Variant, guarded: GuardValues, stores: list[bool], is_known: bool = False
    ) -> Any:
        """Compare a variant with NumPy, install it if they agree, and return NumPy's result; MISS if an assumption, or
        a decision of a known variant, came out differently.

        Raises:
            TraceError: the outcome of an extern call differs from the one while tracing.
        """
        state = self._state
        if variant.on_device and any(map(is_device_array, (*call.leaves, *guarded[1].values()))):
            return self._verify_copies(call, variant, guarded, stores, is_known)
        from hjit.call.build import on_deep_stack
        from hjit.call.checks.first_calls import never_the_same, runs_of

        if self._first_calls.is_wrong(variant, stores):
            state.give_up(call.key, "")
            return PLAIN
        with shown_warnings.of_another_run():
            ran = runs_of(variant, guarded, call, stores)
        if ran is None:
            call.refused = variant
            outgrown = None if is_known else variant.rec.findings.checked_int
            if outgrown is not None and state.options.of(call.key[0]).on_unsupported == "break":
                raise TraceError("loop", "an int of Python outgrows 64 bits", "compute with NumPy's numbers", outgrown)
            return PLAIN
        if ran.missed is not None and (is_known or variant.rec.known.assumed):
            state.assumes = state.assumes and not variant.rec.known.assumed
            return MISS
        missed = None if ran.missed is None else variant.breaks[ran.missed]
        if missed is not None and missed.call is not None and not state.interprets:
            raise never_the_same(missed)
        with forks.builds.outside(), against_numpy.all_plain():
            expected = (state.plain_for_numpy() if variant.on_device else state.py_func)(*call.args, **call.kwargs)
        if missed is not None and state.interprets:  # NumPy and kernels decide differently: trace by kernels next time
            state.interprets = False
            state.stats.fallbacks += 1
            return expected
        seconds = ran.seconds, against_numpy.clock() - ran.end
        uninitialised = functools.partial(self._uninitialised, call, variant, ran.before)
        try:
            report = on_deep_stack(self._first_calls.compare, variant, guarded, ran, expected, uninitialised)
        except TraceError as error:
            self._split.not_compiled_later(call, error)
            state.stats.fallbacks += 1
            return expected
        self._record_report(report, call, variant, stores, seconds)
        return expected

    def _record_report(
        self, report: Report, call: Call, variant: Variant, stores: list[bool], seconds: tuple[float, float]
    ) -> None:
        """Decide what later calls run, by the report of a comparison.

        Args:
            seconds: of the kernels, and of NumPy.
        """
        state = self._state
        state.count_flipped(report.flipped)
        if not (report.verified or report.is_blank):
            state.stats.fallbacks += 1
            if report.verified is False:
                state.stats.verified = False
                state.give_up(call.key, report.what_is_wrong(state.name))
            return
        from hjit.call.stored import verdicts

        options = state.options.of(call.key[0])
        state.stats.verified = state.stats.verified is not False
        if report.verified and report.is_kept:
            verdicts.store(variant, stores, options, verdicts.Kept(seconds, report.flipped))
        known = state.entries.get(call.key)
        if known is None or variant not in known.variants or known.is_compared != report.is_blank:
            state.entries.install(call.key, variant, seconds, is_compared=report.is_blank)
            if not report.is_blank:
                self._timed.begin(call.key, variant, options, seconds)

    def _uninitialised(
        self, call: Call, variant: Variant, before: dict[str, Any], draws: Mapping[str, Any]
    ) -> Uninitialised:
        """Finds the uninitialised elements of the results of a call."""
        from hjit.call.build import Request
        from hjit.call.checks.uninitialised import Uninitialised

        state = self._state
        function = state.plain_for_numpy() if variant.on_device else state.py_func
        options = replace(state.options.of(call.key[0]), target="cpu")
        speculate = not variant.decides
        request = Request(function, call.structure, call.leaves, options, state.schedule, speculate=speculate)
        return Uninitialised(request, variant, before, draws)

    def _verify_copies(
        self, call: Call, variant: Variant, guarded: GuardValues, stores: list[bool], is_known: bool
    ) -> Any:
        """As `verify`, for arrays on a device: on copies in host memory."""
        from hjit.call.other_arrays.on_device import has_copies, host_copy, on_copies

        if not (variant.guards.written.isdisjoint(guarded[1]) and has_copies(variant.rec)):
            # NumPy can neither change captured arrays on the device nor read all of them: nothing to compare
            variant.verified_stores.update(stores)
            self._state.entries.install(call.key, variant)
            return variant.run(call.leaves, guarded, arguments=(call.args, call.kwargs))
        captured = {n: host_copy(a) for n, a in guarded[1].items()}
        result = on_copies(call, lambda here: self.verify(here, variant, (guarded[0], captured), stores, is_known))
        is_refused = result is PLAIN and not self._first_calls.is_wrong(variant, stores)
        return self._state.leave_to_numpy(call) if is_refused else result

    @property
    def _first_calls(self) -> FirstCalls:
        from hjit.call.checks.first_calls import FirstCalls

        state = self._state
        if state.compared is None:
            state.compared = FirstCalls(state.name)
        return state.compared
