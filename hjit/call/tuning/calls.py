"""Tuning the schedules of calls with some arguments: on request, and in the background."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hjit.call.arguments import CallKey, copied, each_once
from hjit.call.entry import Call
from hjit.call.function_state import FunctionState
from hjit.errors import Origin, TraceError
from hjit.options import Options
from hjit.process import background, deadline, forks
from hjit.process.garbage_collection import few_collections
from hjit.trace.capture.trace import PyTree, Trace, python_function

if TYPE_CHECKING:
    from hjit.call.segments import TraceSegments
    from hjit.tuning.autotune import Limits, Tuned

log = logging.getLogger("hjit")


def tune_now(state: FunctionState, structure: PyTree, leaves: list[Any], options: Options, seconds: float) -> Tuned:
    """Trace a call, and tune its kernels.

    Raises:
        TraceError, OutOfBounds, TracingFailed: as `hjit.call.build.build` does.
    """
    from hjit.call.compiling import segments_for
    from hjit.tuning.autotune import Limits

    traced = _traced(state, structure, leaves, options)
    segments_of = segments_for(traced, options)
    return _tuned(state.py_func, state.name, traced, segments_of, leaves, options, Limits(seconds))


def tune_later(state: FunctionState, call: Call, options: Options) -> None:
    """Tune such calls in a thread, if that is wanted and worth it."""
    if not options.tune_in_background or not options.tune or options.tune == "stored" or state.schedule is not None:
        return
    if options.target == "cuda":
        return
    structure, leaves = call.structure, each_once(copied, call.leaves)  # the function may change them
    work = functools.partial(_tune_in_thread, call.key, structure, leaves, options)
    if not background.submit(state, work):
        log.debug("%s is not tuned in the background: too much waits for that", state.name)


def _tune_in_thread(
    key: CallKey,
    structure: PyTree,
    leaves: list[Any],
    options: Options,
    owner: Callable[[], FunctionState | None],
    is_over: Callable[[], bool],
) -> None:
    """What a thread does for a function, of which it holds only what it computes: it may end meanwhile."""
    from hjit.call.build import TracingFailed
    from hjit.call.compiling import segments_for
    from hjit.call.tuning.kernels import is_worth_tuning
    from hjit.call.variant import OutOfBounds
    from hjit.tuning.autotune import Limits

    state = owner()
    if state is None:
        return
    try:
        traced = _traced(state, structure, leaves, options)
    except (TraceError, TracingFailed, OutOfBounds):
        return
    function, name = state.py_func, state.name
    del state
    segments_of = segments_for(traced, options)
    if not is_worth_tuning(traced, segments_of, options):
        return
    fits = "jax" in sys.modules  # it warns of each fork of a process that has loaded it
    found = _tuned(function, name, traced, segments_of, leaves, options, Limits(options.tune_budget, is_over, fits))
    state = owner()
    if state is not None and found.default:
        _adopt(state, key, found)


def _adopt(state: FunctionState, key: CallKey, found: Tuned) -> None:
    """Calls run by what was found: the next one builds what it needs of it."""
    state.tuned = found
    with state.lock, forks.builds.inside():
        entry = state.entries.get(key)
        if entry is not None and entry.plain is None and entry.parts is None and state.schedule is None:
            state.entries.pop(key, None)


def _traced(state: FunctionState, structure: PyTree, leaves: list[Any], options: Options) -> Trace:
    from hjit.call.build import Request, traced_call

    with state.lock, forks.builds.inside(), few_collections(), _budget(state.py_func, state.name, options):
        return traced_call(Request(state.py_func, structure, leaves, options))


def _tuned(
    function: Any,
    name: str,
    traced: Trace,
    segments_of: TraceSegments,
    leaves: list[Any],
    options: Options,
    limits: Limits,
) -> Tuned:
    from hjit.call.tuning.kernels import tuned

    with _budget(function, name, options):
        return tuned(traced, segments_of, leaves, options, limits)


def _budget(function: Any, name: str, options: Options) -> Any:
    """Limits tracing, and compilations that do not end; tuning has its own limit."""
    code = python_function(function).__code__
    return deadline.budget(options.budget, name, Origin(code.co_filename, code.co_firstlineno, code.co_name))
