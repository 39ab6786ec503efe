"""Tuning the kernels of a trace: the interface between traces and `hjit.tuning.autotune`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from hjit.call.build import all_arrays, on_deep_stack
from hjit.call.compiling import kernels_of, segments_for
from hjit.call.segments import TraceSegments
from hjit.options import Options
from hjit.process import forks
from hjit.trace.capture.trace import Trace
from hjit.tuning import autotune
from hjit.tuning.autotune import Limits, Tuned
from hjit.tuning.choice import Candidate, Choice
from hjit.tuning.decide import is_little, is_tuned


def tuned_once(traced: Trace, leaves: Sequence[Any], options: Options) -> Tuned | None:
    """Tune the kernels of a trace unless their plans are on disk; `hjit.call.compiling` then finds the plans."""
    segments_of = segments_for(traced, options)
    if on_deep_stack(is_tuned, segments_of, traced.recorder.sizes, options):
        return None
    return tuned(traced, segments_of, leaves, options, Limits(options.tune_budget))


def is_worth_tuning(traced: Trace, segments_of: TraceSegments, options: Options) -> bool:
    """Is a trace not tuned yet, and its work more than a little?"""
    sizes = traced.recorder.sizes
    return not on_deep_stack(is_little, segments_of, sizes) and not on_deep_stack(is_tuned, segments_of, sizes, options)


def tuned(
    traced: Trace,
    segments_of: TraceSegments,
    leaves: Sequence[Any],
    options: Options,
    limits: Limits,
) -> Tuned:
    """Tune the kernels of a trace, and store their plans.

    Other threads may fork meanwhile, except while kernels are compiled.

    Args:
        segments_of: see `hjit.call.compiling.segments_for`.
    """

    def make(choice: Choice) -> Candidate:
        with forks.builds.inside():
            return on_deep_stack(kernels_of, traced, segments_of, options, choice)

    arguments = functools.partial(all_arrays, traced, leaves, options)
    with forks.builds.outside():
        return autotune.autotune(segments_of, traced.recorder.sizes, make, arguments, options, limits)
