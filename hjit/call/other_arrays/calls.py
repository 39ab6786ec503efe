"""Calls with arrays that are not NumPy's own in memory: of another byte order, on a GPU, or of Dask."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hjit.call.entry import Call
from hjit.call.function_state import FunctionState
from hjit.call.other_arrays.byte_orders import ConvertedCalls
from hjit.errors import DeviceError, TraceError, raise_if_signalled
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.other_arrays.on_dask import CallSettings


@uncounted
class OtherArrays:
    """Runs the calls of a function that have such arrays."""

    def __init__(self, state: FunctionState) -> None:
        self._state = state

    def convert(self, pipeline: Any, call: Call) -> Any:
        """The first call with arrays that are not in the machine's byte order: it tells what later ones give.

        Args:
            pipeline: runs the later ones, on copies.

        Raises:
            TraceError: they cannot be converted, and ``on_unsupported="raise"``.
        """
        state = self._state
        converted = ConvertedCalls(pipeline)
        state.stats.fallbacks += 1
        result = converted.first(call.args, call.kwargs)
        if not converted.why:
            state.entries.at(call.key).converted = converted
        elif state.options.of(call.key[0]).on_unsupported == "raise":
            raise TraceError(state.name, converted.why, 'convert it first: `img.astype(img.dtype.newbyteorder("="))`')
        else:
            state.give_up(call.key, f"{state.name} runs as plain NumPy: {converted.why}")
        return result

    def on_gpu(self, call: Call, run: Callable[[Call], Any]) -> Any:
        """Run a call whose kernels run on a GPU where its arrays are."""
        from hjit.call.other_arrays.on_device import adopt, device_of

        state = self._state
        try:
            if adopt(call.leaves):
                call.args, call.kwargs = call.structure.build(call.leaves.__getitem__)
        except DeviceError as error:
            if state.options.of(call.key[0]).on_unsupported != "numpy":
                raise
            state.give_up(call.key, f"{state.name} runs as plain NumPy: {error}")
            return state.run_plain(call.args, call.kwargs)
        with device_of(call.leaves):
            return run(call)

    def on_dask(self, pipeline: Any, call: Call) -> Any:
        """A call with Dask arrays: lazy results, or what the plain function makes of them."""
        from hjit.call.other_arrays.on_dask import traced_call

        state = self._state
        state.stats.traces += 1
        try:
            return traced_call(self.dask_settings(pipeline), call.structure, call.leaves).results()
        except Exception as error:  # not only hjit's: the function may ask for what only Dask's arrays have
            raise_if_signalled(error)
            if state.options.of(call.key[0]).on_unsupported == "raise":
                raise
            why = str(error)
        result = state.run_plain(call.args, call.kwargs)  # or the exception, if it is the function's own
        state.warnings.of_fallback(f"{state.name} runs as the plain function does on arrays of Dask: {why}")
        return result

    def dask_settings(self, pipeline: Any) -> CallSettings:
        """How calls with Dask arrays run."""
        from hjit.call.other_arrays.on_dask import CallSettings

        state = self._state
        warn = state.warnings.of_fallback
        return CallSettings(pipeline, state.name, state.py_func, state.options.here(), state.schedule, warn)
