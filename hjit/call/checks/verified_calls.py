"""The first calls of new kernels: results are compared with NumPy's, and a kernel that is wrong is not used again."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import is_device_array
from hjit.call.checks import against_numpy
from hjit.call.checks.timed_calls import TimedCalls
from hjit.call.entry import Call
from hjit.call.results import MISS, PLAIN
from hjit.errors import HjitWarning, TraceError
from hjit.options import Options
from hjit.process import forks, shown_warnings
from hjit.trace.tracing.frames import stack_level, uncounted

if TYPE_CHECKING:
    from hjit.call.checks.first_calls import FirstCalls, Report
    from hjit.call.checks.uninitialised import Uninitialised
    from hjit.call.guards import GuardValues
    from hjit.call.variant import Variant


@uncounted
class VerifiedCalls(TimedCalls):
    """The part of `CompiledFunction` that verifies the first results of its kernels."""

    _compared: FirstCalls | None
    _interprets = True  # see `hjit.call.build.Request`
    _assumes = True  # while tracing, assume that conditions on values come out as in an earlier process?

    def _unverified(self, variant: Variant, targets: Sequence[Any], options: Options) -> list[bool]:
        """The kinds of stores (True: streaming) of this call's results that have not been compared with NumPy yet."""
        if options.verify != "first":
            return []
        stores = [False, True] if targets and variant.may_stream else [False]
        return [] if variant.verified_stores.issuperset(stores) else self._first_calls.unverified(variant, stores)

    def _verify(
        self, call: Call, variant: Variant, guarded: GuardValues, stores: list[bool], is_known: bool = False
    ) -> Any:
        """Compare a variant with NumPy, install it if they agree, and return NumPy's result; MISS if an assumption, or
        a decision of a known variant, came out differently.

        Raises:
            TraceError: the outcome of an extern call differs from the one while tracing.
        """
        if variant.on_device and any(map(is_device_array, (*call.leaves, *guarded[1].values()))):
            return self._verify_copies(call, variant, guarded, stores, is_known)
        from hjit.call.build import on_deep_stack
        from hjit.call.checks.first_calls import never_the_same, runs_of

        if self._first_calls.is_wrong(variant, stores):
            self._give_up(call.key, "")
            return PLAIN
        with shown_warnings.of_another_run():
            ran = runs_of(variant, guarded, call, stores)
        if ran is None:
            outgrown = None if is_known else variant.rec.outgrown
            if outgrown is not None and self._resolved(call.key[0]).on_unsupported == "break":
                raise TraceError("loop", "an int of Python outgrows 64 bits", "compute with NumPy's numbers", outgrown)
            return PLAIN
        if ran.missed is not None and (is_known or variant.rec.assumed):
            self._assumes = self._assumes and not variant.rec.assumed
            return MISS
        missed = None if ran.missed is None else variant.breaks[ran.missed]
        if missed is not None and missed.call is not None and not self._interprets:
            raise never_the_same(missed)
        with forks.builds.outside(), against_numpy.all_plain():
            expected = (self._plain_for_numpy() if variant.on_device else self.py_func)(*call.args, **call.kwargs)
        if missed is not None and self._interprets:  # NumPy and kernels decide differently: trace by kernels next time
            self._interprets = False
            self.stats.fallbacks += 1
            return expected
        seconds = ran.seconds, against_numpy.clock() - ran.end
        uninitialised = functools.partial(self._uninitialised, call, variant, ran.before)
        try:
            report = on_deep_stack(self._first_calls.compare, variant, guarded, ran, expected, uninitialised)
        except TraceError as error:
            self._not_compiled_later(call, error)
            self.stats.fallbacks += 1
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
        self._count_flipped(report.flipped)
        if not (report.verified or report.is_blank):
            self.stats.fallbacks += 1
            if report.verified is False:
                self.stats.verified = False
                self._give_up(call.key, report.what_is_wrong(self.__name__))
            return
        from hjit.call.stored import verdicts

        options = self._resolved(call.key[0])
        self.stats.verified = self.stats.verified is not False
        if report.verified and report.is_kept:
            verdicts.store(variant, stores, options, verdicts.Kept(seconds, report.flipped))
        known = self._entries.get(call.key)
        if known is None or variant not in known.variants or known.is_compared != report.is_blank:
            self._entries.install(call.key, variant, seconds, is_compared=report.is_blank)
            if not report.is_blank:
                self._time_calls(call.key, variant, options, seconds)

    def _count_flipped(self, count: int) -> None:
        """Count elements of compared results that differ because a decision on a rounded value went the other way."""
        self.stats.flipped += count
        if count and not self._warned_of_flips:
            self._warned_of_flips = True
            text = (
                f"{self.__name__}: {count} elements of the result differ from NumPy's by more than a rounding: "
                "a threshold, a rounding to a whole number, an argmax, an index, a quotient or the overflow of a sum "
                "depends on numbers that agree but for their last bits "
                "(f.stats.flipped counts such elements)"
            )
            warnings.warn(text, HjitWarning, stacklevel=stack_level())

    def _uninitialised(
        self, call: Call, variant: Variant, before: dict[str, Any], draws: Mapping[str, Any]
    ) -> Uninitialised:
        """Finds the uninitialised elements of the results of a call."""
        from hjit.call.build import Request
        from hjit.call.checks.uninitialised import Uninitialised

        function = self._plain_for_numpy() if variant.on_device else self.py_func
        options = replace(self._resolved(call.key[0]), target="cpu")
        request = Request(function, call.structure, call.leaves, options, self._schedule)
        return Uninitialised(request, variant, before, draws)

    def _verify_copies(
        self, call: Call, variant: Variant, guarded: GuardValues, stores: list[bool], is_known: bool
    ) -> Any:
        """As `_verify`, for arrays on a device: on copies in host memory."""
        from hjit.call.other_arrays.on_device import has_copies, host_copy, on_copies

        if not (variant.guards.written.isdisjoint(guarded[1]) and has_copies(variant.rec)):
            # NumPy can neither change captured arrays on the device nor read all of them: nothing to compare
            variant.verified_stores.update(stores)
            self._entries.install(call.key, variant)
            return variant.run(call.leaves, guarded, arguments=(call.args, call.kwargs))
        captured = {n: host_copy(a) for n, a in guarded[1].items()}
        result = on_copies(call, lambda here: self._verify(here, variant, (guarded[0], captured), stores, is_known))
        is_refused = result is PLAIN and not self._first_calls.is_wrong(variant, stores)
        return self._leave_to_numpy(call) if is_refused else result

    @property
    def _first_calls(self) -> FirstCalls:
        from hjit.call.checks.first_calls import FirstCalls

        if self._compared is None:
            self._compared = FirstCalls(self.__name__)
        return self._compared
