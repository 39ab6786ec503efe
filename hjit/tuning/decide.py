"""The one place that decides on the schedule of a function: the user's, found on disk, searched, or the default one."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hjit.errors import ScheduleError
from hjit.kernels.runtime import launch
from hjit.options import Options
from hjit.process import deadline
from hjit.sched.language.tree import Root
from hjit.trace.ir.analysis.costs import cost
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.poly import sizes_value
from hjit.trace.passes.rewrites import NO_REWRITES, Rewrites, factors, parts_name
from hjit.tuning.choice import DEFAULT, Choice, Scheduler, Segment, SegmentsOf, users_choice
from hjit.tuning.limits import (
    BELIEVED,
    COMPARED_TOGETHER,
    FEW_TASKS,
    LITTLE_GAIN,
    LITTLE_WORK,
    LONG_REDUCTION,
    LONGEST_BLOCK,
    PARTS,
)
from hjit.tuning.plans import Plan, PlanName, load_plan, plan_name, store_plans

log = logging.getLogger("hjit")

KEPT_BY = ("autotune", "beam", "refined", "top_five", "greedy")  # modes whose plans are looked up, the best first
Search = Callable[[Segment, Mapping[str, int], Options], Plan]  # the plan of a Graph at some sizes


@dataclass(frozen=True, slots=True)
class Decision:
    """The schedule that was decided on, and the candidates to time against it.

    Attributes:
        best: the schedule; `DEFAULT` if the search predicts that one to be the fastest.
        others: further schedules that are worth timing.
        new: names and Graphs of plans that no process has timed yet.
        is_final: is nothing to be timed? So it is for the user's schedule, and for the default one without candidates.
        plans: the cache entries of the plans that it was made from.
        absent: cache entries that would have been used, had they existed.
    """

    best: Choice
    others: tuple[Choice, ...] = ()
    new: tuple[tuple[PlanName, Graph], ...] = ()
    is_final: bool = True
    plans: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def decided(
    segments_of: SegmentsOf,
    scheduler: Scheduler | None,
    is_whole: bool,
    sizes: Mapping[str, int],
    options: Options,
    is_alone: Callable[[Options], bool] | None = None,
) -> Decision:
    """Decide on the schedule of a function.

    Args:
        segments_of: returns the segments of the function for some rewrites.
        scheduler: the user's schedule, or None.
        is_whole: see `users_choice`.
        sizes: the values of the run-time sizes by name.
        is_alone: is the default schedule to run whatever a search finds? See `hjit.tuning.candidates`.

    Raises:
        ScheduleError: the user's schedule is not legal.
    """
    if scheduler is not None:
        return Decision(users_choice(scheduler, segments_of, is_whole))
    if not options.tune:
        return Decision(DEFAULT)
    names = [plan_name(x, sizes, options) for x in segments_of(NO_REWRITES) if x.graph.outputs]
    found = _kept(segments_of, names, options)
    if found is not None:
        return found
    absent = tuple(x.by(tune).entry for tune in _kept_by(options) for x in names)
    if options.tune == "autotune":  # it cannot be tuned, or is tuned in the background: search greedily now
        names, options = [x.by("greedy") for x in names], replace(options, tune="greedy")
    if options.tune == "stored" or (options.tune == "greedy" and is_little(segments_of, sizes)):
        return Decision(DEFAULT, absent=absent)
    if is_alone is not None and (alone := _without_search(segments_of, names, options, is_alone)) is not None:
        return replace(alone, absent=absent)
    return replace(found_or_searched(segments_of, sizes, options, search, names), absent=absent)


def is_tuned(segments_of: SegmentsOf, sizes: Mapping[str, int], options: Options) -> bool:
    """Are the plans of `hjit.tuning.autotune` for a function on disk?"""
    segments = [x for x in segments_of(NO_REWRITES) if x.graph.outputs]
    names = [plan_name(x, sizes, options).by("autotune") for x in segments]
    return all(load_plan(name, x.graph, options) is not None for name, x in zip(names, segments, strict=True))


def _kept(segments_of: SegmentsOf, names: Sequence[PlanName], options: Options) -> Decision | None:
    """The schedules that tuning has stored; with ``tune="stored"`` also those that searches have stored."""
    segments = [x for x in segments_of(NO_REWRITES) if x.graph.outputs]
    for tune in _kept_by(options):
        known = [load_plan(name.by(tune), x.graph, options) for name, x in zip(names, segments, strict=True)]
        if segments and all(p is not None for p in known):
            found = _joined({x.graph.outputs: p for x, p in zip(segments, known, strict=True) if p is not None})
            entries = tuple(name.by(tune).entry for name in names)
            if not found.trees or not _is_legal(found, segments_of):
                return Decision(DEFAULT, plans=entries)
            return Decision(found, is_final=False, plans=entries)
    return None


def _kept_by(options: Options) -> tuple[str, ...]:
    """The modes whose plans are looked up before anything is searched."""
    return KEPT_BY if options.tune == "stored" else KEPT_BY[:1]


def is_little(segments_of: SegmentsOf, sizes: Mapping[str, int]) -> bool:
    """Is there so little work that no better schedule could pay for its search and compilation?"""
    work = 0.0
    for x in segments_of(NO_REWRITES):
        for s in x.graph.stages:
            for d in s.definitions:
                work += math.prod(sizes_value(n, sizes) for n in (*d.dims, *d.rdims)) * max(cost(d.value), 1)
                if work > LITTLE_WORK:
                    return False
    return True


def _without_search(
    segments_of: SegmentsOf, names: Sequence[PlanName], options: Options, is_alone: Callable[[Options], bool]
) -> Decision | None:
    """The default schedule, where it is to run whatever a search finds; None: it need not, or there are plans."""
    graphs = [x.graph for x in segments_of(NO_REWRITES) if x.graph.outputs]
    new = tuple((n, g) for n, g in zip(names, graphs, strict=True) if load_plan(n, g, options) is None)
    if not new or not is_alone(options):
        return None
    store_plans(DEFAULT, new, options)
    return Decision(DEFAULT, plans=tuple(x.entry for x in names))


def search(segment: Segment, sizes: Mapping[str, int], options: Options) -> Plan:
    """Search a plan; the search is imported only now."""
    from hjit.tuning import autoschedule

    with deadline.paused():  # it has limits of its own
        return autoschedule.searched(segment, sizes, options)


def found_or_searched(
    segments_of: SegmentsOf,
    sizes: Mapping[str, int],
    options: Options,
    search: Search,
    names: Sequence[PlanName] | None = None,
) -> Decision:
    """The schedules from disk, or found by `search`; `names`: of the plans, if they are known."""
    segments = [x for x in segments_of(NO_REWRITES) if x.graph.outputs]
    names = [plan_name(x, sizes, options) for x in segments] if names is None else names
    known = [load_plan(name, x.graph, options) for name, x in zip(names, segments, strict=True)]
    plans = [search(x, sizes, options) if p is None else p for p, x in zip(known, segments, strict=True)]
    if known == [None]:
        plans = [_in_parts(plans[0], segments[0], segments_of, sizes, options, search)]
    elif len(plans) > 1:
        plans = [p if p.cost < BELIEVED * p.default_cost else replace(p, tree=None, inlined=frozenset()) for p in plans]
    if len(plans) == 1 and deadline.spent().comparing > COMPARED_TOGETHER[str(options.tune)]:
        plans = [p if p.default_cost - p.cost > LITTLE_GAIN else _default_plan(p) for p in plans]
    new = tuple((name, x.graph) for name, x, p in zip(names, segments, known, strict=True) if p is None)
    found = _joined({x.graph.outputs: p for x, p in zip(segments, plans, strict=True)})
    others = [_joined({segments[0].graph.outputs: p}) for p in plans[0].others] if len(plans) == 1 else []
    best = found if found.trees and _is_legal(found, segments_of) else replace(DEFAULT, costs=found.costs)
    others = [x for x in others if _is_legal(x, segments_of)]
    if not best.trees and not others:
        store_plans(best, new, options)
        return Decision(DEFAULT, plans=tuple(x.entry for x in names))
    return Decision(best, tuple(others), new, is_final=False, plans=tuple(x.entry for x in names))


def _default_plan(plan: Plan) -> Plan:
    """The default schedule, instead of one that is predicted to be little faster."""
    return replace(plan, tree=None, inlined=frozenset(), factored={}, others=())


def by_search(
    trees: Mapping[tuple[str, ...], Root],
    inlined: frozenset[str] = frozenset(),
    factored: Mapping[str, tuple[int, int]] | None = None,
    costs: Mapping[tuple[str, ...], float] | None = None,
) -> Choice:
    """The result of a search as a `Choice`; see `Plan`."""
    rewrites = Rewrites(inlined_after=inlined, factored=factored or {})
    return Choice(rewrites, trees, LONGEST_BLOCK, costs or {})


def _joined(plans: Mapping[tuple[str, ...], Plan]) -> Choice:
    """The plans of the Graphs of one function, by their outputs."""
    return by_search(
        {outputs: p.tree for outputs, p in plans.items() if p.tree is not None},
        frozenset(n for p in plans.values() for n in p.inlined),
        {n: x for p in plans.values() for n, x in p.factored.items()},
        {outputs: p.cost for outputs, p in plans.items()},
    )


def _in_parts(
    plan: Plan, segment: Segment, segments_of: SegmentsOf, sizes: Mapping[str, int], options: Options, search: Search
) -> Plan:
    """A plan, or one that computes the longest reduction in parts (Halide's `rfactor`), if that is predicted to be
    faster. It is tried if the result has too few elements for all cores."""
    cores = launch.threads(options.num_threads)
    long = [(n, s.name, k) for s in segment.graph.stages for d in s.updates for k, n in _factors(s, d, sizes, cores)]
    if not long:
        return plan
    _, name, k = max(long)
    factored = {name: (k, PARTS * cores)}
    (other, *_) = (x for x in segments_of(Rewrites(factored=factored)) if x.graph.outputs)
    found = search(other, sizes, options)
    seconds, evaluations = plan.seconds + found.seconds, plan.evaluations + found.evaluations
    if found.cost >= plan.cost or parts_name(name) not in other.graph.by_name:
        return replace(plan, seconds=seconds, evaluations=evaluations)
    tree = found.tree or other.default
    return replace(found, tree=tree, others=(), factored=factored, seconds=seconds, evaluations=evaluations)


def _factors(s: Stage, d: Definition, sizes: Mapping[str, int], cores: int) -> Iterator[tuple[int, int]]:
    """The reduction dimensions of an update that are worth computing in parts, and their extents."""
    pure = math.prod(sizes_value(n, sizes) for n in d.dims)
    every = pure * math.prod(sizes_value(n, sizes) for n in d.rdims)
    for k, n in enumerate(d.rdims):
        extent = sizes_value(n, sizes)
        if pure < FEW_TASKS * cores and every >= LONG_REDUCTION and extent >= PARTS * cores and factors(s, d, k):
            yield k, extent


def _is_legal(choice: Choice, segments_of: SegmentsOf) -> bool:
    try:
        choice.check(segments_of(choice.rewrites))
    except ScheduleError as error:
        refused(error)
        return False
    return True


def refused(error: Exception) -> None:
    """Log that a searched schedule is not legal, or cannot be lowered: a bug of the search that only costs time, since
    the default schedule runs."""
    log.debug("a searched schedule is refused: %s", error)
