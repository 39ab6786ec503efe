"""Timing the kernels of a call one by one, on its own arguments; none of the caller's arrays is changed."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hjit.call.variant import CompiledSegment, CompiledSegments, Mispredict, OutOfBounds, Variant
from hjit.errors import HjitError
from hjit.kernels.runtime.kernel import Bound
from hjit.options import Options
from hjit.report.performance.costs import NestFacts
from hjit.trace.tracing.recording.products import Product
from hjit.tuning.candidates import least_times
from hjit.tuning.nest_times import noting

log = logging.getLogger("hjit")

SECONDS = 0.1  # of runs of each kernel
NEST_RUNS = 7  # of each kernel again, as one that notes the times of its nests


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds.

    Attributes:
        kernels: the least of several runs of each, by its number among the steps.
        nests: those of each kernel, of the fastest of several runs.
        breaks: of one run of each call that is made between kernels, by its number.
    """

    kernels: dict[int, float] = field(default_factory=dict)
    nests: dict[int, tuple[NestFacts, ...]] = field(default_factory=dict)
    breaks: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimedSegments(CompiledSegments):
    """Kernels, and calls between them, that note how long they take."""

    options: Options = field(default_factory=Options)
    times: Times = field(default_factory=Times)

    def run_kernel(
        self,
        bound: Bound,
        state: dict[str, Any],
        values: Sequence[Any],
        destinations: Mapping[str, Any],
        streamed: bool,
    ) -> None:
        """Run it, and then some times more."""
        CompiledSegments.run_kernel(self, bound, state, values, destinations, streamed)
        inputs, scalars = self.arguments(bound, state, values)
        given = inputs, bound.new_outputs(), scalars
        found = least_times([functools.partial(bound.run, *given)], SECONDS)
        if found is not None:
            number = next(k for k, segment in enumerate(self.segments) if segment.bound is bound)
            self.times.kernels[number] = found[0]
            self.times.nests[number] = self._nests(self.segments[number], given)

    def _nests(self, segment: CompiledSegment, given: tuple[Any, ...]) -> tuple[NestFacts, ...]:
        """Its nests, none where there is no time to compile a kernel that notes their times."""
        assert segment.bound is not None and segment.scheduled is not None
        try:
            notes = noting(segment.bound, segment.scheduled, self.options)
        except HjitError as error:
            log.debug("nests are not timed: %s", error)
            return ()
        runs = [x for _ in range(NEST_RUNS) if (x := notes.nest_seconds(*given)) is not None]
        if not runs:
            return ()
        seconds = min(runs, key=lambda x: float(x.sum()))
        found: dict[tuple[str, ...], float] = {}  # definitions of one stage may have a nest each
        for stages, x in zip(notes.parameters.nests, seconds, strict=True):
            found[stages] = found.get(stages, 0.0) + float(x)
        return tuple(NestFacts(stages, x) for stages, x in found.items())

    def multiply(self, product: Product, arrays: Sequence[Any], destination: Any) -> Any:
        """A product by BLAS, timed."""
        number = next(
            k for k, s in enumerate(self.segments) if s.graph_break is not None and s.graph_break.product is product
        )
        return _noting(self.times.breaks, number, CompiledSegments.multiply)(self, product, arrays, destination)


def _noting(times: dict[int, float], number: int, f: Callable[..., Any]) -> Callable[..., Any]:
    """The function, noting what it takes."""

    def noting(*args: Any) -> Any:
        start = time.perf_counter()
        try:
            return f(*args)
        finally:
            times[number] = time.perf_counter() - start

    return noting


def _with_timed_calls(segments: Sequence[CompiledSegment], times: dict[int, float]) -> list[CompiledSegment]:
    found = list(segments)
    for k, segment in enumerate(segments):
        b = segment.graph_break
        if b is not None and b.call is not None:
            found[k] = replace(segment, graph_break=replace(b, call=_noting(times, k, b.call)))
    return found


def timed(variant: Variant, leaves: Sequence[Any], options: Options) -> Times | None:
    """How long the steps of a call take; None where the arguments lead elsewhere."""
    guarded = variant.guards.values(leaves)
    if guarded is None:
        return None
    values, captured = guarded
    times = Times()
    body = variant.body
    timed_segments = _with_timed_calls(body.segments, times.breaks)
    body = TimedSegments(timed_segments, body.packed, body.slots, body.allocations, options, times)
    drawn: list[Callable[[], None]] = []
    try:
        body.run(variant.arrays(leaves, captured), values, {}, {}, drawn, False)
    except (Mispredict, OutOfBounds):
        return None
    finally:  # random numbers are drawn again by the caller's own calls
        for put_back in reversed(drawn):
            put_back()
    return times
