"""Compiling the kernels of a trace: the steps of `hjit.call.build` between tracing and binding.

A process that finds its kernels on disk (`hjit.call.stored.kernels`) does not import this module.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hjit.call.segments import TraceSegments, continued, recorded, strides_of
from hjit.kernels.lower import lower
from hjit.kernels.runtime import features
from hjit.kernels.runtime.bind import bind
from hjit.options import Options
from hjit.process import debug
from hjit.trace.capture.trace import Trace
from hjit.trace.ir.analysis.costs import instruction_count
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import sizes_value
from hjit.trace.passes.canonical import FAST_CUDA_PASSES, PASSES, canonicalise
from hjit.trace.tracing.recording.recorder import Recorder
from hjit.tuning.choice import Arguments, ArgumentsOf, Candidate, Choice, Scheduler, Segment
from hjit.tuning.decide import Decision, decided

Array = np.ndarray[Any, Any]
QUICK_WORK = 1e9  # operations on elements that code which is compiled quickly does 0.05 s slower (0.01 to 0.05 ns each)


def binding(options: Options) -> Any:
    """The function that makes, or loads, a kernel for a target and binds it to sizes."""
    if options.target != "cuda":
        return bind
    from hjit.kernels.cuda.runtime import bound

    return bound.Bound


def evaluating(rec: Recorder, names: tuple[str, ...], options: Options, begun: tuple[str, ...] = ()) -> Any:
    """A kernel that computes stages of an unfinished trace from those that it takes as arrays (`begun`)."""
    target = features.schedule_target(options.target)
    graph = canonicalise(continued(recorded(rec), begun, names), target=target.kind)
    scheduled = Segment(graph, target).scheduled_by(None)
    if target.kind == "cpu":
        scheduled = replace(scheduled, quick=work(graph, rec.sizes) <= QUICK_WORK)
    return binding(options)(scheduled, options, rec.sizes, strides_of(rec, [graph]))


def work(graph: Graph, sizes: Mapping[str, int]) -> int:
    """Operations on elements."""
    return sum(
        math.prod(sizes_value(n, sizes) for n in (*d.dims, *d.rdims)) * max(instruction_count(d.value), 1)
        for s in graph.stages
        for d in s.definitions
    )


# -- canonicalise, look up, search, lower, emit, tune


def candidate_of(
    traced: Trace, arguments: ArgumentsOf, options: Options, scheduler: Scheduler | None
) -> tuple[Candidate, Decision]:
    """The kernels of a trace by the schedule that is decided on; `arguments`: see `hjit.call.build.all_arrays`."""
    if debug.is_on():
        passes: tuple[Any, ...] = (*PASSES, *FAST_CUDA_PASSES, *lower.CPU, *lower.CUDA)
        debug.check_names(("place_loops", *(f.__name__ for f in passes)))
    segments_of = segments_for(traced, options)  # canonicalises
    make = functools.partial(kernels_of, traced, segments_of, options)  # loads, or lowers and emits

    def is_alone(options: Options) -> bool:
        from hjit.tuning.candidates import is_default_alone  # imported late: often a plan is found

        return is_default_alone(make, segments_of, options)

    decision = decided(segments_of, scheduler, not traced.recorder.breaks, traced.recorder.sizes, options, is_alone)
    if decision.is_final:
        return make(decision.best), decision
    from hjit.tuning.candidates import chosen  # imported late: often nothing is timed

    return chosen(decision, make, segments_of, arguments, options), decision  # tunes


def segments_for(traced: Trace, options: Options) -> TraceSegments:
    """The canonicalised segments of a trace for its target."""
    return TraceSegments(traced, features.schedule_target(options.target), fast_math=options.fast_math)


def decided_for(traced: Trace, options: Options, scheduler: Scheduler | None) -> tuple[TraceSegments, Decision]:
    """The segments of a trace, and the schedule that is decided on for them."""
    rec, segments_of = traced.recorder, segments_for(traced, options)  # canonicalises
    return segments_of, decided(segments_of, scheduler, not rec.breaks, rec.sizes, options)  # looks up, or searches


def kernels_of(traced: Trace, segments_of: TraceSegments, options: Options, choice: Choice) -> Candidate:
    """The kernels of all segments by one schedule."""
    rec, segments = traced.recorder, segments_of(choice.rewrites)
    strides = strides_of(rec, [x.graph for x in segments])
    bound = binding(options)
    kernels = (bound(choice.of(x), options, rec.sizes, strides) if x.graph.outputs else None for x in segments)
    return Candidate(choice, segments, tuple(kernels))


def arguments_of(traced: Trace, leaves: Sequence[Any]) -> Arguments | None:
    """The arrays and numbers of the call, on which candidates are timed."""
    rec = traced.recorder
    values = rec.tape.replay(leaves) if rec.tape.ops else []
    if values is None:
        return None
    scalars = {name: values[slot.k] for name, (slot, _) in rec.scalars.slots().items()}
    return Arguments({n: s.array for n, s in rec.inputs.items()}, scalars)
