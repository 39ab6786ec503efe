"""Calls that a known variant may serve: the first whose guards and decisions hold runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hjit.call.checks.against_numpy import InterleavedCalls
from hjit.call.checks.timed_calls import TimedCalls
from hjit.call.checks.verified_calls import VerifiedCalls
from hjit.call.entry import Call
from hjit.call.function_state import FunctionState
from hjit.call.results import MISS, PLAIN
from hjit.process import forks
from hjit.process.restoring import if_free
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.variant import Mispredict, Variant


@uncounted
class KnownCalls:
    """Runs the variants of a function."""

    def __init__(self, state: FunctionState, timed: TimedCalls, verified: VerifiedCalls) -> None:
        self._state, self._timed, self._verified = state, timed, verified

    def run(self, call: Call) -> Any:
        """Run the variant whose guards and decisions hold; MISS if there is none, PLAIN if NumPy must run."""
        from hjit.call.variant import Mispredict, OutOfBounds

        state = self._state
        miss: Mispredict | None = None
        missed: Variant | None = None
        for v in call.known:
            if miss is not None and missed is not None and not v.branches_from(missed, miss):
                continue
            guarded = v.guards.values(call.leaves)
            if guarded is None:
                continue
            if not v.guards.may_write(call.leaves, guarded[1]):
                return PLAIN
            stores = self._verified.unverified(v, call.targets, state.options.of(call.key[0]))
            if stores:
                with state.lock, forks.builds.inside():
                    result = self._verified.verify(call, v, guarded, stores, is_known=True)
                if result is not MISS:
                    return result
                continue
            try:
                result = v.run(call.leaves, guarded, call.targets, arguments=(call.args, call.kwargs))
            except OutOfBounds:
                return state.leave_to_numpy(call)
            except Mispredict as error:
                miss, missed = error, v
                continue
            self._move_to_front(call, v)
            return result
        return MISS

    def run_timed(self, call: Call, timing: InterleavedCalls) -> Any:
        """As `run`, or the plain function, timed."""

        def compiled() -> Any:
            fast = None if timing.variant is None else timing.variant.fast
            result = MISS if fast is None else fast.run((*call.args, *call.kwargs.values()))
            return self.run(call) if result is MISS else result

        return self._timed.run(call.key, timing, compiled, lambda: self._state.run_plain(call.args, call.kwargs))

    def _move_to_front(self, call: Call, v: Variant) -> None:
        """Try this variant first from now on. Not if it begins with a decision: that costs a run to find out."""
        if v is call.known[0] or v.segments[0].graph_break is not None:
            return
        with if_free(self._state.lock) as is_free:
            entry = self._state.entries.get(call.key)
            if is_free and entry is not None and entry.variants is call.known:
                entry.put((v, *(x for x in call.known if x is not v)))
