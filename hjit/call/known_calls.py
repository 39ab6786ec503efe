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

MANY_BEHIND = 8  # calls in a row that a speculating variant serves after one with decisions, before it is tried first


@uncounted
class KnownCalls:
    """Runs the variants of a function."""

    def __init__(self, state: FunctionState, timed: TimedCalls, verified: VerifiedCalls) -> None:
        self._state, self._timed, self._verified = state, timed, verified

    def run(self, call: Call) -> Any:
        """Run the variant whose guards and decisions hold; MISS if there is none, PLAIN if NumPy must run."""
        from hjit.call.variant import Mispredict, OutOfBounds

        state = self._state
        missed: dict[bool, tuple[Variant, Mispredict]] = {}  # those with the same kind of decisions
        for v in call.known:
            if v is call.refused or (v.decides in missed and not v.branches_from(*missed[v.decides])):
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
                if result is MISS or (call.refused is v and v.speculates):
                    continue
                return result
            try:
                result = v.run(call.leaves, guarded, call.targets, arguments=(call.args, call.kwargs))
            except OutOfBounds:
                call.refused = v
                if v.speculates:
                    continue
                return state.leave_to_numpy(call)
            except Mispredict as error:
                missed[v.decides] = v, error
                continue
            if not self._is_behind(call, v, (not v.decides) in missed):
                self._move_to_front(call, v, call.refused is not None or (not v.decides) in missed)
            return result
        if call.refused is None:
            return MISS
        entry = state.entries.get(call.key)
        return MISS if entry is not None and entry.decides else state.leave_to_numpy(call)

    def run_timed(self, call: Call, timing: InterleavedCalls) -> Any:
        """As `run`, or the plain function, timed."""

        def compiled() -> Any:
            fast = None if timing.variant is None else timing.variant.fast
            result = MISS if fast is None else fast.run((*call.args, *call.kwargs.values()))
            if result is PLAIN:
                call.refused = timing.variant
                return self.run(call) if call.refused is not None and call.refused.speculates else PLAIN
            return self.run(call) if result is MISS else result

        return self._timed.run(call.key, timing, compiled, lambda: self._state.run_plain(call.args, call.kwargs))

    def _is_behind(self, call: Call, v: Variant, in_vain: bool) -> bool:
        """Is a variant that speculates to stay behind one with decisions, which has run `in_vain`?"""
        entry = self._state.entries.get(call.key)
        if entry is None or entry.decides is None:
            return False
        entry.behind = entry.behind + 1 if in_vain and v.speculates else 0
        return 0 < entry.behind < MANY_BEHIND

    def _move_to_front(self, call: Call, v: Variant, in_vain: bool) -> None:
        """Try this variant first from now on. Not if it begins with a decision, which costs a run to find out; unless
        one that speculates has run `in_vain`, or one with the decisions that take its place."""
        if v is call.known[0] or (v.segments[0].graph_break is not None and not in_vain):
            return
        with if_free(self._state.lock) as is_free:
            entry = self._state.entries.get(call.key)
            if is_free and entry is not None and entry.variants is call.known:
                entry.put((v, *(x for x in call.known if x is not v)))
