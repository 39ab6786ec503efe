"""Calls that are timed against NumPy: if the kernel is slower, the plain function runs the later ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import CallKey
from hjit.call.checks import against_numpy
from hjit.call.checks.against_numpy import InterleavedCalls
from hjit.call.function_state import FunctionState
from hjit.options import Options
from hjit.process.restoring import if_free
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.variant import Variant


@uncounted
class TimedCalls:
    """Finds out whether kernels of a function are slower than NumPy."""

    def __init__(self, state: FunctionState) -> None:
        self._state = state

    def run(self, key: CallKey, timing: InterleavedCalls, compiled: Callable[[], Any], plain: Callable[[], Any]) -> Any:
        """Run a call compiled or plain, timed; after enough of them, decide which runs from now on."""
        result = timing.run(compiled, plain)
        if timing.is_over:
            with if_free(self._state.lock) as is_free:
                if is_free:
                    self._state.entries.decide(key, timing)
        return result

    def begin(
        self, key: CallKey, variant: Variant, options: Options, seconds: tuple[float, float] | None = None
    ) -> None:
        """Time the next calls against NumPy if NumPy may be faster: it was for another key, or the first comparison
        (`seconds` of the kernel and of NumPy) suggests it, or extern calls take an unknown part of it: NumPy may have
        been slow just because that was its first call."""
        state = self._state
        is_wanted = options.numpy_if_faster and options.verify == "first" and state.schedule is None
        may_be_slower = state.stats.slower or variant.makes_calls or against_numpy.is_suspect(seconds)
        if is_wanted and may_be_slower:
            state.entries.time(key, variant)
