"""Calls with arrays that are not NumPy's own in memory: of another byte order, on a GPU, or of Dask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hjit.call.base import FunctionBase
from hjit.call.entry import Call
from hjit.call.other_arrays.byte_orders import ConvertedCalls
from hjit.errors import DeviceError, TraceError, raise_if_signalled
from hjit.options import context_state
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.other_arrays.on_dask import CallSettings


@uncounted
class OtherArrays(FunctionBase):
    """What `hjit.call.compiled_function.CompiledFunction` does with such calls."""

    def _convert(self, call: Call) -> Any:
        """The first call with arrays that are not in the machine's byte order: it tells what later ones give.

        Raises:
            TraceError: they cannot be converted, and ``on_unsupported="raise"``.
        """
        converted = ConvertedCalls(self)
        self.stats.fallbacks += 1
        result = converted.first(call.args, call.kwargs)
        if not converted.why:
            self._entries.at(call.key).converted = converted
        elif self._resolved(call.key[0]).on_unsupported == "raise":
            raise TraceError(
                self.__name__, converted.why, 'convert it first: `img.astype(img.dtype.newbyteorder("="))`'
            )
        else:
            self._give_up(call.key, f"{self.__name__} runs as plain NumPy: {converted.why}")
        return result

    def _call_device(self, call: Call, is_into: bool) -> Any:
        """A call whose kernels run on a GPU: where its arrays are."""

        from hjit.call.other_arrays.on_device import adopt, device_of

        try:
            if adopt(call.leaves):
                call.args, call.kwargs = call.structure.build(call.leaves.__getitem__)
        except DeviceError as error:
            if self._resolved(call.key[0]).on_unsupported != "numpy":
                raise
            self._give_up(call.key, f"{self.__name__} runs as plain NumPy: {error}")
            return self._run_plain(call.args, call.kwargs)
        with device_of(call.leaves):
            return self._run(call, is_into)

    def _call_dask(self, call: Call) -> Any:
        """A call with Dask arrays: lazy results, or what the plain function makes of them."""
        from hjit.call.other_arrays.on_dask import traced_call

        self.stats.traces += 1
        try:
            return traced_call(self._dask_settings(), call.structure, call.leaves).results()
        except Exception as error:  # not only hjit's: the function may ask for what only Dask's arrays have
            raise_if_signalled(error)
            if self._resolved(call.key[0]).on_unsupported == "raise":
                raise
            why = str(error)
        result = self._run_plain(call.args, call.kwargs)  # or the exception, if it is the function's own
        self._warn(f"{self.__name__} runs as the plain function does on arrays of Dask: {why}")
        return result

    def _dask_settings(self) -> CallSettings:
        from hjit.call.other_arrays.on_dask import CallSettings

        options = self._resolved(context_state())
        return CallSettings(self, self.__name__, self.py_func, options, self._schedule, self._warn)
