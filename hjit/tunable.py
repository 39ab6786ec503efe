"""`Tunable`: tuning the schedules of a function, on request (`f.tune`) and in the background."""

from __future__ import annotations

import functools
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import CallKey, copied, each_once, is_dask_array, is_device_array, key_of
from hjit.call.compiled_function import CompiledFunction, P, R
from hjit.call.entry import Call, Entries
from hjit.errors import OptionError, Origin, ScheduleError, TraceError
from hjit.options import Options, context_state
from hjit.process import background, deadline, forks
from hjit.process.garbage_collection import few_collections
from hjit.process.progress import progress
from hjit.trace.capture.trace import PyTree, Trace, flatten_arguments, python_function
from hjit.trace.tracing.frames import uncounted

if TYPE_CHECKING:
    from hjit.call.breaks.parts import Parts
    from hjit.call.segments import TraceSegments
    from hjit.tuning.autotune import Limits, Tuned

log = logging.getLogger("hjit")


@uncounted
class Tunable(CompiledFunction[P, R]):
    """A compiled function whose schedules can be tuned."""

    def tune(self, *args: Any, budget: float | None = None, **kwargs: Any) -> Tuned:
        """Look for the fastest schedule of calls with such arguments: compile and time many, and learn from them.

        What is found runs from the next call on, and is kept on disk: later processes find it, whatever search they
        run by (``tune=False`` but for this pipeline excepted). It is never slower than the default schedule was when
        both were timed. Ctrl-C ends it, and keeps the best so far. The arguments stay as they are, and the function is
        not called; one that runs in parts is called once.

        Args:
            budget: seconds; None: those of the option `tune_budget`. It ends earlier where nothing more is gained.

        Raises:
            ScheduleError: the function runs by a schedule that was given to `use`, on a GPU or on Dask.
            TraceError: nothing of it is compiled.
            OptionError: the budget is no number of seconds.
        """
        from hjit.call.build import TracingFailed
        from hjit.call.variant import OutOfBounds
        from hjit.tuning.autotune import not_tuned

        key, (structure, leaves) = key_of(args, kwargs), flatten_arguments(args, kwargs)
        options = self._resolved(context_state())
        seconds = options.tune_budget if budget is None else budget
        if type(seconds) not in (int, float) or not 0 < seconds < math.inf:
            raise OptionError(f"budget={budget!r}: seconds, more than 0")
        self._check_tunable(options, leaves)
        if options.tune is False:
            self._uses_plans = True
            self._options = {}
        with progress(f"hjit: tuning {self.__name__}"):
            try:
                self.tuned = self._tune_kernels(structure, leaves, options, seconds)
            except OutOfBounds:
                return not_tuned("an index is out of bounds")
            except (TraceError, TracingFailed) as error:
                cause = error.error if isinstance(error, TracingFailed) else error
                with self._lock, forks.builds:
                    is_split = options.on_unsupported == "break" and self._split(cause)
                if is_split and self.parts is not None:
                    self.tuned = _tune_parts(self.parts, key, args, kwargs, seconds)
                elif isinstance(error, TracingFailed):
                    raise self._numpys_error(error.error, structure, leaves) from None
                else:
                    raise
        with self._lock:
            self._entries.pop(key, None)
        return self.tuned

    def _check_tunable(self, options: Options, leaves: list[Any]) -> None:
        if self._schedule is not None:
            raise ScheduleError(f"{self.__name__} runs by the schedule given to f.use; f.use(None) takes that back")
        if options.target == "cuda" or any(map(is_device_array, leaves)):
            raise ScheduleError(f"{self.__name__}: a GPU has one schedule, by rules, and nothing to tune")
        if any(map(is_dask_array, leaves)):
            raise ScheduleError(f"{self.__name__}: tune it with a NumPy array as large as one chunk")

    def _tune_kernels(
        self,
        structure: PyTree,
        leaves: list[Any],
        options: Options,
        seconds: float,
    ) -> Tuned:
        """Trace a call, and tune its kernels.

        Raises:
            TraceError, OutOfBounds, TracingFailed: as `hjit.call.build.build` does.
        """
        from hjit.call.compiling import segments_for
        from hjit.tuning.autotune import Limits

        traced = self._traced(structure, leaves, options)
        return _tuned(
            self.py_func, self.__name__, traced, segments_for(traced, options), leaves, options, Limits(seconds)
        )

    def _traced(self, structure: PyTree, leaves: list[Any], options: Options) -> Trace:
        from hjit.call.build import Request, traced_call

        with self._lock, forks.builds, few_collections(), _budget(self.py_func, self.__name__, options):
            return traced_call(Request(self.py_func, structure, leaves, options))

    # -- in parts
    def tune_next(self, context: Any, seconds: float | None) -> None:
        """Tune at the next call with arguments that are new then; None: no longer."""
        self._options.pop(context, None)
        if seconds is not None:
            found = self._resolved(context)
            self._options[context] = replace(
                found, tune="autotune", tune_budget=seconds, tune_in_background=False, numpy_if_faster=False
            )
            self.tuned = None
            with self._lock:
                self._entries = Entries(self.__name__, self.stats)
                self._is_plain_again = None

    # -- in the background
    def _tune_later(self, call: Call, options: Options) -> None:
        """Tune such calls in a thread, if that is wanted and worth it."""
        if not options.tune_in_background or not options.tune or options.tune == "stored" or self._schedule is not None:
            return
        if options.target == "cuda":
            return
        structure, leaves = call.structure, each_once(copied, call.leaves)  # the function may change them
        work = functools.partial(_tune_behind, call.key, structure, leaves, options)
        if not background.submit(self, work):
            log.debug("%s is not tuned in the background: too much waits for that", self.__name__)

    def _adopt_tuned(self, key: CallKey, found: Tuned) -> None:
        """Calls run by what was found: the next one builds what it needs of it."""
        self.tuned = found
        with self._lock, forks.builds:
            entry = self._entries.get(key)
            if entry is not None and entry.plain is None and entry.parts is None and self._schedule is None:
                self._entries.pop(key, None)


def _tune_behind(
    key: CallKey,
    structure: PyTree,
    leaves: list[Any],
    options: Options,
    owner: Callable[[], Tunable[..., Any] | None],
    is_over: Callable[[], bool],
) -> None:
    """What a thread does for a function, of which it holds only what it computes: it may end meanwhile."""
    from hjit.call.build import TracingFailed
    from hjit.call.compiling import segments_for
    from hjit.call.tuned import is_worth_tuning
    from hjit.call.variant import OutOfBounds
    from hjit.tuning.autotune import Limits

    f = owner()
    if f is None:
        return
    try:
        traced = f._traced(structure, leaves, options)
    except (TraceError, TracingFailed, OutOfBounds):
        return
    function, name = f.py_func, f.__name__
    del f
    segments_of = segments_for(traced, options)
    if not is_worth_tuning(traced, segments_of, options):
        return
    fits = "jax" in sys.modules  # it warns of each fork of a process that has loaded it
    found = _tuned(function, name, traced, segments_of, leaves, options, Limits(options.tune_budget, is_over, fits))
    f = owner()
    if f is not None and found.default:
        f._adopt_tuned(key, found)


def _tuned(
    function: Any,
    name: str,
    traced: Trace,
    segments_of: TraceSegments,
    leaves: list[Any],
    options: Options,
    limits: Limits,
) -> Tuned:
    from hjit.call.tuned import tuned

    with _budget(function, name, options):
        return tuned(traced, segments_of, leaves, options, limits)


def _budget(function: Any, name: str, options: Options) -> Any:
    """Limits tracing, and compilations that do not end; tuning has its own limit."""
    code = python_function(function).__code__
    return deadline.budget(options.budget, name, Origin(code.co_filename, code.co_firstlineno, code.co_name))


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
