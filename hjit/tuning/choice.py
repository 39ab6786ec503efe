"""The schedule of a function as a value: which segments it has, and the tree that was decided on for each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from hjit.errors import ScheduleError
from hjit.kernels.runtime.kernel import Bound
from hjit.kernels.runtime.scheduled import Scheduled
from hjit.sched.language.target import Target
from hjit.sched.language.tree import Root
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.key import Key, graph_key
from hjit.trace.passes.rewrites import NO_REWRITES, Rewrites


class Scheduler(Protocol):
    """What decides on the schedules of a function in place of the search: what is given to `Pipeline.use`.

    It may have `has(stage)`, whether it schedules a stage, and `check_names(graphs)`, which raises a ScheduleError
    where it names others.

    Attributes:
        longest_block: instructions of one block of code, above which the schedule is refused.
    """

    @property
    def longest_block(self) -> float: ...

    def rewrites(self) -> Rewrites:
        """What it changes of the Graphs."""

    def tree(self, graph: Graph, target: Target) -> Root:
        """The schedule tree of a canonical Graph."""


@dataclass(frozen=True)
class Segment:
    """A canonical Graph, and what is worked out of it once: its key and its default schedule."""

    graph: Graph
    target: Target

    @cached_property
    def key(self) -> Key:
        """See `hjit.trace.ir.key`."""
        return graph_key(self.graph)

    @cached_property
    def default(self) -> Root:
        """Its default schedule."""
        # a process that finds its kernels loads none of these
        if self.target.kind == "cuda":
            from hjit.sched.default.cuda import cuda_schedule

            return cuda_schedule(self.graph)
        from hjit.sched.default.schedules import default_schedule

        return default_schedule(self.graph, self.target)

    def defaults(self) -> Iterator[Root]:
        """Its default schedule; then every stage at the root, for where a sliding window does not slide, or stages
        do not fit into shared memory."""
        yield self.default
        if self.target.kind == "cuda":
            from hjit.sched.default.cuda import cuda_root_schedule

            yield cuda_root_schedule(self.graph)
            return
        from hjit.sched.nests.root_nests import root_schedule

        yield root_schedule(self.graph, self.target)

    def scheduled_by(self, tree: Root | None, longest_block: float = math.inf) -> Scheduled:
        """What its kernel is made of; None: the default schedule."""
        return Scheduled(self.graph, self.key, tree, self.defaults, longest_block)


Segments = Sequence[Segment]
SegmentsOf = Callable[[Rewrites], Segments]  # the segments of a function, as a schedule rewrites them


@dataclass(frozen=True, slots=True)
class Choice:
    """The schedule of the segments of one function: given, found on disk, searched, or the default one.

    Attributes:
        rewrites: what it changes of the Graphs.
        trees: by the outputs of the rewritten Graphs; what is not in it has the default schedule.
        longest_block: instructions of one block of code, above which it is refused.
        costs: what the cost model predicts, in seconds, by the outputs.
    """

    rewrites: Rewrites = NO_REWRITES
    trees: Mapping[tuple[str, ...], Root] = field(default_factory=dict)
    longest_block: float = math.inf
    costs: Mapping[tuple[str, ...], float] = field(default_factory=dict)

    def of(self, segment: Segment) -> Scheduled:
        """What the kernel of one of the segments is made of."""
        tree = self.trees.get(segment.graph.outputs)
        return segment.scheduled_by(tree, math.inf if tree is None else self.longest_block)

    def check(self, segments: Segments) -> None:
        """Is each tree legal for the Graph that it is of?

        Raises:
            ScheduleError: one is not, or there is no such Graph.
        """
        from hjit.sched.language.check import check_tree  # where all have the default schedule it is not loaded

        found = {x.graph.outputs: x for x in segments}
        for outputs, tree in self.trees.items():
            if outputs not in found:
                raise ScheduleError(f"a schedule of {', '.join(outputs)}, which no Graph computes")
            check_tree(tree, found[outputs].graph, found[outputs].target.kind)


DEFAULT = Choice()


@dataclass(frozen=True, slots=True)
class Candidate:
    """The kernels of a function by one schedule, ready to run.

    Attributes:
        kernels: of the segments; None of one that computes nothing.
        measured: see `hjit.tuning.plans.Plan`.
        timed: what was compared for it to be chosen, and the seconds of each.
    """

    choice: Choice
    segments: Segments
    kernels: tuple[Bound | None, ...]
    measured: tuple[float, float] | None = None
    timed: tuple[tuple[Choice, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Arguments:
    """What candidates are measured on: arrays and numbers of the call by name."""

    arrays: Mapping[str, np.ndarray[Any, Any]]
    scalars: Mapping[str, Any]


ArgumentsOf = Callable[[Candidate], Arguments | None]  # of these kernels; None: they are not to be had


def given_by(scheduler: Scheduler, segments_of: SegmentsOf, is_whole: bool) -> Choice:
    """The schedule that the user has given.

    Args:
        is_whole: are these all segments that the function has? Another path through it may have the stages that
            this one lacks.

    Raises:
        ScheduleError: it is not legal for these segments.
    """
    rewrites = scheduler.rewrites()
    segments = segments_of(rewrites)
    check_names: Any = getattr(scheduler, "check_names", None)
    if check_names is not None and is_whole:
        check_names([x.graph for x in segments])
    trees = {x.graph.outputs: scheduler.tree(x.graph, x.target) for x in segments if x.graph.outputs}
    found = Choice(rewrites, trees, scheduler.longest_block)
    found.check(segments)
    return found
