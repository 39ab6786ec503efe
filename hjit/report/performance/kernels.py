"""The kernels of a variant: what they are, how long they take, and what was compared before they were chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hjit.call.build import on_deep_stack
from hjit.call.compiling import segments_for
from hjit.call.segments import TraceSegments
from hjit.call.variant import CompiledSegment, Variant
from hjit.errors import HjitError
from hjit.kernels.runtime import launch
from hjit.kernels.runtime.lowered import Lowered, lowered
from hjit.options import Options
from hjit.process import machine
from hjit.report.performance.costs import Costs, by_line, costs_of, measured_by_stage
from hjit.report.performance.facts import Buffer, Candidate, KernelFacts
from hjit.report.performance.timing import Times
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import sizes_value
from hjit.trace.passes.rewrites import NO_REWRITES
from hjit.tuning.autoschedule import space_of
from hjit.tuning.choice import Segment
from hjit.tuning.decide import is_little
from hjit.tuning.plans import Plan, load_plan, plan_name


@dataclass(frozen=True)
class Reading:
    """A variant that is read.

    Attributes:
        is_given: does it run by a schedule of the user?
        where: in which part of the function it is.
        untimed: why there are no times.
    """

    variant: Variant
    options: Options
    is_given: bool
    where: str
    times: Times
    untimed: str

    @cached_property
    def segments_of(self) -> TraceSegments:
        """Its Graphs, with some rewrites."""
        return segments_for(self.variant.trace, self.options)

    @cached_property
    def recorded(self) -> Graph:
        """The Graph as it was traced, an operation a stage."""
        return self.variant.rec.graph(())

    @cached_property
    def bandwidth(self) -> float:
        """Bytes that all threads copy in a second; a copy reads and writes each."""
        threads = launch.threads(self.options.num_threads)
        return machine.kept_bandwidth(threads, self.options.cache_dir, self.options.cache)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Numbers of the run-time sizes by name."""
        return self.variant.rec.sizes

    def kernels(self) -> Iterator[KernelFacts]:
        """Its kernels, in order."""
        for number, (compiled, segment) in enumerate(
            zip(self.variant.segments, self.segments_of(NO_REWRITES), strict=True)
        ):
            if compiled.scheduled is not None:
                yield on_deep_stack(self._kernel, number, compiled, segment)

    def _kernel(self, number: int, compiled: CompiledSegment, segment: Segment) -> KernelFacts:
        assert compiled.scheduled is not None and compiled.bound is not None
        sizes = self.sizes
        given = [i for i in compiled.graph.inputs if i.data is None]
        read = sum(i.dtype.itemsize * math.prod(sizes_value(n, sizes) for n in i.shape) for i in given)
        written = sum(math.prod(shape) * dtype.itemsize for _, shape, dtype in compiled.bound.outputs)
        if self.options.target == "cuda":
            return self._on_device(compiled.bound, read, written)
        low = lowered(compiled.scheduled, self.options)
        costs, why_no_costs = self._costs(segment, low)
        candidates, why_no_candidates = self._candidates(segment)
        nests = self.times.nests.get(number, ())
        stage_seconds = measured_by_stage(costs, nests) if costs is not None and nests else {}
        return KernelFacts(
            where=self.where,
            graph=low.graph,
            tree=low.schedule,
            sizes=sizes,
            buffers=_buffers(low, sizes, "task"),
            read=read,
            written=written,
            limit=(read + written) / (2 * self.bandwidth),
            on_device="",
            seconds=self.times.kernels.get(number),
            nests=nests,
            stage_seconds=stage_seconds,
            why_untimed=self.untimed,
            costs=costs,
            why_no_costs=why_no_costs,
            candidates=candidates,
            why_no_candidates=why_no_candidates,
            lines={} if costs is None else by_line(costs, stage_seconds or costs.by_stage, self.recorded),
        )

    def _on_device(self, bound: Any, read: int, written: int) -> KernelFacts:
        from hjit.kernels.cuda.runtime import inspection

        low, rows = inspection.of(bound), list(inspection.rows(bound, None))
        return KernelFacts(
            where=self.where,
            graph=low.graph,
            tree=low.schedule,
            sizes=self.sizes,
            buffers=_buffers(low, self.sizes, "thread"),
            read=read,
            written=written,
            limit=sum(x.estimate.seconds for x in rows),
            on_device=str(inspection.Table(rows, inspection.capability())),
            seconds=None,
            nests=(),
            stage_seconds={},
            why_untimed="kernels on a GPU are not timed by a report",
            costs=None,
            why_no_costs="the cost model is one of CPUs",
            candidates=(),
            why_no_candidates="nothing is searched for a GPU: it has a default schedule, or yours",
            lines={},
        )

    def _costs(self, segment: Segment, low: Lowered) -> tuple[Costs | None, str]:
        try:
            return costs_of(segment.graph, low.graph, low.schedule, self.sizes, segment.target, self.options), ""
        except HjitError as error:  # a tree by hand may be one that the features do not describe
            return None, f"the cost model does not know such a schedule: {error}"

    def _candidates(self, segment: Segment) -> tuple[tuple[Candidate, ...], str]:
        """What was compared when the schedule was chosen; why nothing was."""
        if self.is_given:
            return (), "the schedule is one that was given to f.use: nothing was searched"
        if not self.options.tune:
            return (), "tune=False: the default schedule runs, nothing was searched"
        name = plan_name(segment, self.sizes, self.options)
        plan = load_plan(name.by("autotune"), segment.graph, self.options)
        if plan is None and self.options.tune == "greedy" and is_little(self.segments_of, self.sizes):
            return (), "there is so little work that no schedule would save what a search takes"
        plan = plan or load_plan(name, segment.graph, self.options)
        if plan is None:
            return (), "no search is kept: not all candidates could be compiled in time, or the cache has lost it"
        if plan.timed:
            return tuple(self._compared(plan, segment)), ""
        if len(self.variant.segments) > 1:
            return (), "of a function of several kernels is kept which schedules were the fastest, but no times"
        return (), "the search found nothing that it took for faster than the default schedule, so nothing was timed"

    def _compared(self, plan: Plan, segment: Segment) -> Iterator[Candidate]:
        number = 0
        for x in plan.timed:
            predicted = x.cost
            if x.tree is None and predicted is None:
                space = space_of(segment, self.sizes, self.options, may_compile=False)
                predicted = float(space.tree_cost(segment.default))
            number += x.tree is not None
            is_chosen = (x.tree, x.inlined) == (plan.tree, plan.inlined)
            name = "default" if x.tree is None else f"candidate {number}"
            yield Candidate(name, predicted, x.seconds, is_chosen, x.tree or segment.default)


def _buffers(low: Any, sizes: Mapping[str, int], owner: str) -> dict[str, Buffer]:
    """The buffers that each task or thread has, and those of blocks, at some sizes."""
    found = {}
    for name, b in low.program.buffers.items():
        shape = tuple(max(sizes_value(n, sizes), 1) for n in b.lengths)
        found[name] = Buffer(
            "block" if b.shared else owner, shape, math.prod(shape) * low.graph.stage(name).dtype.itemsize, b.fold
        )
    return found
