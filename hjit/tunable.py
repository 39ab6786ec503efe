"""`Tunable`: `f.tune`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import CallKey, is_dask_array, is_device_array, key_of
from hjit.call.compiled_function import CompiledFunction, P, R
from hjit.call.tuning.calls import tune_now
from hjit.errors import OptionError, ScheduleError, TraceError
from hjit.options import Options
from hjit.process import forks
from hjit.process.progress import progress
from hjit.trace.capture.trace import flatten_arguments
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.breaks.parts import Parts
    from hjit.tuning.autotune import Tuned


@uncounted
class Tunable(CompiledFunction[P, R]):
    """A compiled function whose schedules can be tuned."""

    def tune(self, *args: Any, budget: float | None = None, **kwargs: Any) -> Tuned:
        """Search for the fastest schedule of calls with such arguments by compiling and timing many schedules.

        The result is used from the next call on, and kept on disk: later processes find it whatever their `tune`
        option is, except ``tune=False``; this pipeline uses it in any case. It is never slower than the default
        schedule when both were timed. Ctrl-C ends the search and keeps the best so far. The arguments are not changed,
        and the function is not called, except once if it runs in parts.

        Args:
            budget: seconds; None: the option `tune_budget`. The search ends earlier if there is no further gain.

        Raises:
            ScheduleError: the function has a schedule from `use`, or runs on a GPU or on Dask arrays.
            TraceError: no part of it is compiled.
            OptionError: the budget is not a number of seconds.
        """
        from hjit.call.build import TracingFailed
        from hjit.call.variant import OutOfBounds
        from hjit.tuning.autotune import not_tuned

        key, (structure, leaves) = key_of(args, kwargs), flatten_arguments(args, kwargs)
        options = self._state.options.here()
        seconds = options.tune_budget if budget is None else budget
        if type(seconds) not in (int, float) or not 0 < seconds < math.inf:
            raise OptionError(f"budget={budget!r}: seconds, more than 0")
        self._check_tunable(options, leaves)
        if options.tune is False:
            self._state.options.use_plans()
        with progress(f"hjit: tuning {self.__name__}"):
            try:
                found = tune_now(self._state, structure, leaves, options, seconds)
            except OutOfBounds:
                return not_tuned("an index is out of bounds")
            except (TraceError, TracingFailed) as error:
                cause = error.error if isinstance(error, TracingFailed) else error
                with self._state.lock, forks.builds.inside():
                    is_split = options.on_unsupported == "break" and self._split.split(cause)
                if is_split and self.parts is not None:
                    found = _tune_parts(self.parts, key, args, kwargs, seconds)
                elif isinstance(error, TracingFailed):
                    raise self._new.numpys_error(error.error, structure, leaves) from None
                else:
                    raise
        self._state.tuned = found
        with self._state.lock:
            self._entries.pop(key, None)
        return found

    def _check_tunable(self, options: Options, leaves: list[Any]) -> None:
        if self._state.schedule is not None:
            raise ScheduleError(f"{self.__name__} runs by the schedule given to f.use; f.use(None) takes that back")
        if options.target == "cuda" or any(map(is_device_array, leaves)):
            raise ScheduleError(f"{self.__name__}: a GPU has one schedule, by rules, and nothing to tune")
        if any(map(is_dask_array, leaves)):
            raise ScheduleError(f"{self.__name__}: tune it with a NumPy array as large as one chunk")

    def tune_next(self, context: Any, seconds: float | None) -> None:
        """Tune at the next call with new arguments; None: stop doing so."""
        options = self._state.options
        options.forget(context)
        if seconds is not None:
            tuning = replace(
                options.of(context),
                tune="autotune",
                tune_budget=seconds,
                tune_in_background=False,
                numpy_if_faster=False,
            )
            options.override(context, tuning)
            self._state.tuned = None
            with self._state.lock:
                self._forget_calls()


def _tune_parts(parts: Parts, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float) -> Tuned:
    """Call a function in parts, each of which is tuned when it is called; their results, together."""
    from hjit.tuning.autotune import combined

    several = [*_pipelines(parts)]
    begin = time.perf_counter()
    for p in several:
        p.tune_next(key[0], seconds / len(several))
    try:
        parts.run(*args, **kwargs)
    finally:
        for p in several:
            p.tune_next(key[0], None)
    return combined([p.tuned for p in several if p.tuned is not None], time.perf_counter() - begin)


def _pipelines(parts: Parts) -> Iterator[Tunable[..., Any]]:
    """All parts that are compiled, and the functions that they call."""
    for p in (*(p for p, _, _ in parts.parts), *(p for _, p in parts.callees.made.values())):
        if isinstance(p, Tunable):
            if p.parts is None:
                yield p
            else:
                yield from _pipelines(p.parts)
