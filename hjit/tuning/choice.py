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
    """The user's schedule, set by `Pipeline.use`: it decides on the trees of a function in place of the search.

    It may have a method `has(stage)`: does it schedule this stage? And `check_names(graphs)`, which raises a
    `ScheduleError` if it names stages that these Graphs do not have.

    Attributes:
        longest_block: limit on the instructions of a basic block; a schedule with a longer one is refused.
    """

    @property
    def longest_block(self) -> float: ...

    def rewrites(self) -> Rewrites:
        """The rewrites of the Graphs that it requests."""

    def tree(self, graph: Graph, target: Target) -> Root:
        """The schedule tree of a canonical Graph."""


@dataclass(frozen=True)
class Segment:
    """A canonical Graph with its target; its key and default schedule are computed once."""

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
        """The default schedule, and as a fallback the one with every stage at the root, for Graphs in which a window
        cannot slide, or stages do not fit into shared memory."""
        yield self.default
        if self.target.kind == "cuda":
            from hjit.sched.default.cuda import cuda_root_schedule

            yield cuda_root_schedule(self.graph)
            return
        from hjit.sched.nests.root_nests import root_schedule

        yield root_schedule(self.graph, self.target)

    def scheduled_by(self, tree: Root | None, longest_block: float = math.inf) -> Scheduled:
        """The Graph under a schedule; None: the default one."""
        return Scheduled(self.graph, self.key, tree, self.defaults, longest_block)


Segments = Sequence[Segment]
SegmentsOf = Callable[[Rewrites], Segments]  # the segments of a function, as a schedule rewrites them


@dataclass(frozen=True, slots=True)
class Choice:
    """The schedule of all segments of a function: the user's, found on disk, searched, or the default one.

    Attributes:
        rewrites: the rewrites of the Graphs that it requests.
        trees: by the outputs of the rewritten Graphs; segments that are not in it have the default schedule.
        longest_block: see `Scheduler`.
        costs: predicted seconds, by the outputs.
    """

    rewrites: Rewrites = NO_REWRITES
    trees: Mapping[tuple[str, ...], Root] = field(default_factory=dict)
    longest_block: float = math.inf
    costs: Mapping[tuple[str, ...], float] = field(default_factory=dict)

    def of(self, segment: Segment) -> Scheduled:
        """One of the segments under this schedule."""
        tree = self.trees.get(segment.graph.outputs)
        return segment.scheduled_by(tree, math.inf if tree is None else self.longest_block)

    def check(self, segments: Segments) -> None:
        """Check that each tree is legal for its Graph.

        Raises:
            ScheduleError: one is not, or there is no such Graph.
        """
        from hjit.sched.language.check import check_tree  # imported late: default schedules are not checked

        found = {x.graph.outputs: x for x in segments}
        for outputs, tree in self.trees.items():
            if outputs not in found:
                raise ScheduleError(f"a schedule of {', '.join(outputs)}, which no Graph computes")
            check_tree(tree, found[outputs].graph, found[outputs].target.kind)


DEFAULT = Choice()


@dataclass(frozen=True, slots=True)
class Candidate:
    """The kernels of a function under one schedule, ready to run.

    Attributes:
        kernels: of the segments; None for one that computes nothing.
        measured: see `hjit.tuning.plans.Plan`.
        timed: all schedules that it was timed against, itself among them, with their seconds.
    """

    choice: Choice
    segments: Segments
    kernels: tuple[Bound | None, ...]
    measured: tuple[float, float] | None = None
    timed: tuple[tuple[Choice, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arrays and scalars on which candidates are timed, by name."""

    arrays: Mapping[str, np.ndarray[Any, Any]]
    scalars: Mapping[str, Any]


ArgumentsOf = Callable[[Candidate], Arguments | None]  # of these kernels; None: they are not to be had


def users_choice(scheduler: Scheduler, segments_of: SegmentsOf, is_whole: bool) -> Choice:
    """The user's schedule of these segments.

    Args:
        is_whole: are these all segments of the function? If not, a stage that it names may be on another path.

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
