"""Compiling a function as one kernel for all sizes, for a given platform."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from hjit.call.arguments import each_apart, is_dask_array, leaf_names
from hjit.call.build import Request, on_deep_stack
from hjit.call.compiling import arguments_of, kernels_of
from hjit.call.segments import TraceSegments
from hjit.errors import HjitError, Origin
from hjit.export.describing import check, described, with_copies
from hjit.export.description import CannotExport, Description
from hjit.export.sizes import PolymorphicTrace, polymorphic_trace
from hjit.export.targets import Platform
from hjit.kernels.runtime.lowered import Lowered, lowered_for
from hjit.options import Options
from hjit.process import forks
from hjit.process.garbage_collection import few_collections
from hjit.trace.capture.trace import python_function
from hjit.tuning.choice import Choice
from hjit.tuning.decide import decided


@dataclass(frozen=True, slots=True)
class Compiled:
    """A function with one kernel, lowered for a platform."""

    polymorphic: PolymorphicTrace
    description: Description
    lowered: Lowered


def compiled(request: Request, name: str, entry: str, for_what: Platform, copies: bool = False) -> Compiled:
    """The one kernel of a function, and all that is known of it.

    Args:
        name: of the exported function.
        entry: of the symbol in the object code.
        copies: are results that are views to be copies?

    Raises:
        HjitError: it needs Python when it runs.
    """
    if any(map(is_dask_array, request.leaves)):
        raise HjitError("an argument is an array of Dask. What to do: give an array of NumPy, as a chunk is")
    leaves = each_apart(request.leaves)  # the caller of what is compiled may give other arrays
    options = replace(
        request.options, budget=None, on_unsupported="raise", blas=False, numpy_if_faster=False, target="cpu"
    )
    function, structure, scheduler = request.function, request.structure, request.scheduler
    request = replace(request, leaves=leaves, options=options)

    def make() -> Compiled:
        found = polymorphic_trace(request)
        if not found.trace.recorder.breaks:
            found = replace(found, trace=with_copies(found.trace, copies))
        check(found.trace)
        segments_of = TraceSegments(found.trace, for_what.target, by_chance=False)
        if for_what.is_here() and scheduler is None:
            choice = _best(found, segments_of, leaves, options)
        else:  # what cannot be measured runs by the default schedule
            choice = decided(
                segments_of, scheduler, True, found.trace.recorder.sizes, replace(options, tune=False)
            ).best
        (segment,) = segments_of(choice.rewrites)
        if not segment.graph.outputs:
            raise CannotExport("nothing is computed of the arguments", "export a function that returns an array")
        machine = replace(for_what.machine, fast_math=options.fast_math, small=True)
        low = lowered_for(choice.of(segment), machine, entry)
        names = leaf_names(function, structure, len(leaves))
        return Compiled(
            found, replace(described(name, entry, found, segment.graph, low, leaves, names), structure=structure), low
        )

    with forks.builds.inside(), few_collections():
        try:
            return on_deep_stack(make)
        except CannotExport as error:
            if error.origin is not None:
                raise
            code = python_function(function).__code__
            origin = Origin(code.co_filename, code.co_firstlineno, code.co_name)
            raise CannotExport(error.what, error.advice, origin) from None


def _best(found: PolymorphicTrace, segments_of: TraceSegments, leaves: list[Any], options: Options) -> Choice:
    """The schedule that a call of the pipeline would run by: on disk, or searched and measured."""
    rec = found.trace.recorder
    decision = decided(segments_of, None, True, rec.sizes, options)
    if decision.is_final:
        return decision.best
    from hjit.tuning.candidates import chosen  # not loaded where nothing is compared

    make = functools.partial(kernels_of, found.trace, segments_of, options)
    return chosen(decision, make, segments_of, lambda _: arguments_of(found.trace, leaves), options).choice
