"""The schedule of a Graph by search: the cost model's choice.

The model errs, so the best of what is found is measured, see `hjit.tuning.candidates`.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hjit.kernels.runtime import launch
from hjit.model.costs import Cost
from hjit.options import Options
from hjit.process import deadline, debug, machine
from hjit.process.garbage_collection import few_collections
from hjit.process.progress import ends_in, note, watched
from hjit.sched.language.tree import Compute, Loop, Node, Root
from hjit.sched.search.batches import State
from hjit.sched.search.nest_costs import Machine
from hjit.sched.search.portfolio import GREEDY, Searched, beam_searches, greedily, greedy_searches
from hjit.sched.search.refine import Schedule, refined
from hjit.sched.search.search import Found, Parameters, never, presets
from hjit.sched.search.search import Options as SearchOptions
from hjit.sched.search.space import Space
from hjit.sched.search.unrolled_bodies import unrolled_instructions
from hjit.trace.ir.analysis.costs import cost as cost_of
from hjit.trace.ir.graph import Graph
from hjit.tuning.choice import Segment
from hjit.tuning.featuriser import compiled_featuriser, is_due, note_recorded, stored_featuriser
from hjit.tuning.limits import (
    COMPILING_SECONDS,
    COMPLETED,
    DEFINITIONS_A_SECOND,
    FEW_STAGES,
    LONG_RUN,
    MEASURED_SECONDS,
    NEAR,
    NOT_MUCH_COSTLIER,
    RECORDED_DEFINITIONS,
    RECORDED_SECONDS,
)
from hjit.tuning.plans import Plan
from hjit.tuning.weights import weights

log = logging.getLogger("hjit")


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard a search tries.

    Attributes:
        parameters: of the search loop.
        passes: see `hjit.sched.search.search.Options`.
        sample: is only a sample of similar states costed?
        freeze: are all but the most expensive stages of a large Graph frozen? See `frozen`.
        memoise: see `hjit.sched.search.space.Space`.
        by_depth: are states ordered by `hjit.sched.search.search.DepthPriority`?
        seconds: the time limit of one search.
        together: the time limit of all searches for one call, of all kernels and parts of the function. Each search
            gets half of what is left, so that something is left for the next ones.
        refine: further seconds of local search, see `hjit.sched.search.refine`.
        timed: how many of the schedules found are timed together with the default one.
        flips: for how many of the most expensive stages the opposite choice about inlining is tried; see `flipped`.
        flip_threshold: predicted seconds of a run, below which that is not tried.
        long_run: predicted seconds of a run, below which of schedules that are near to each other only one is timed.
        batch: how many costs are evaluated at once; in between, a search checks the time.
    """

    parameters: Parameters
    passes: int = 1
    sample: bool = False
    freeze: bool = False
    memoise: bool = True
    by_depth: bool = False
    seconds: float = 20.0
    together: float = math.inf
    refine: float = 0.0
    timed: int = 1
    flips: int = 0
    flip_threshold: float = 0.0
    long_run: float = 0.0
    batch: int = 500

    def options(self, space: Space, stop: Callable[[], bool]) -> SearchOptions[State]:
        """The options of a search of a space."""
        return SearchOptions(
            passes=self.passes,
            depth=len(space.decisions) if self.by_depth else None,
            buckets=space.buckets if self.passes > 1 or self.sample else None,
            sample=self.sample,
            batch_size=self.batch,
            stop=stop,
        )


EFFORTS = {
    "greedy": Effort(
        GREEDY, freeze=True, seconds=0.95, together=1.9, timed=2, flips=2, flip_threshold=1e-4, long_run=LONG_RUN
    ),
    "refined": Effort(GREEDY, freeze=True, refine=3.0, timed=3, flips=2),
    # choices of sizes are costed together: samples would save nothing
    "beam": Effort(
        presets(32)["beam"], passes=5, freeze=True, seconds=25.0, refine=3.0, timed=6, flips=4, batch=100_000
    ),
    # Anderson 2021, section 6: the cost model's choice as it is, and the best five of it, timed
    "one_shot": Effort(presets(32)["beam"], passes=5, freeze=True, seconds=25.0, batch=100_000),
    "top_five": Effort(presets(32)["beam"], passes=5, freeze=True, seconds=25.0, timed=5, batch=100_000),
}
EFFORTS["autotune"] = EFFORTS["greedy"]  # what tuning begins with, see `hjit.tuning.autotune`


def _shown(candidates: Sequence[tuple[float, Any]]) -> str:
    """The best schedules of a search, with their costs."""
    return "\n".join(f"cost {cost:.4g}\n{x.tree}" for cost, x in candidates[:3])


def searched(
    segment: Segment,
    sizes: Mapping[str, int],
    options: Options,
    effort: Effort | None = None,
) -> Plan:
    """Search a schedule of a canonical Graph; the plan is the default schedule if nothing better is found.

    Args:
        effort: None: that of `options.tune`, within the time that is left for the function.
    """
    spent = deadline.spent()
    if effort is None:
        effort = EFFORTS[str(options.tune)]
        left = max(effort.together - spent.searching, 0.0)
        effort = replace(effort, seconds=min(effort.seconds, left / 2))
    plan = _found(segment, sizes, options, effort)
    spent.searching += plan.seconds
    return plan


def _found(segment: Segment, sizes: Mapping[str, int], options: Options, effort: Effort) -> Plan:
    """As `searched`, by recorded features or the compiled featuriser."""
    note(doing="searching")
    if (status := watched()) is not None and status.end is None:
        ends_in(effort.seconds + effort.refine + COMPILING_SECONDS[str(options.tune)] + MEASURED_SECONDS * effort.timed)
    with few_collections():
        is_long = definitions(segment) > RECORDED_DEFINITIONS and not is_too_large(segment, effort)
        if stored_featuriser(options) is None and not is_due() and not is_long:
            return _searched(segment, sizes, options, effort, RECORDED_SECONDS)
        compiled_featuriser(options)  # before the clock of the search starts: it may be compiled now, once a machine
        return _searched(segment, sizes, options, effort)


def definitions(segment: Segment) -> int:
    """How many there are in the Graph."""
    return sum(len(s.definitions) for s in segment.graph.stages)


def is_too_large(segment: Segment, effort: Effort) -> bool:
    """Is a Graph too large to be searched in time?"""
    return effort.freeze and definitions(segment) > DEFINITIONS_A_SECOND * effort.seconds


class _Timer:
    """The time of one search.

    Attributes:
        patience: CPU seconds that features may be recorded for in Python. Then, or where the search would end
            unfinished, `hurry` compiles the featuriser, and the clock starts again.
        hurry: has the rest of the search use the compiled featuriser.
    """

    def __init__(self, patience: float, hurry: Callable[[], None]) -> None:
        self.patience, self.hurry = patience, hurry
        # with a finite patience CPU time: that the machine is busy is no reason to compile the featuriser
        self._now = time.perf_counter if patience == math.inf else time.thread_time
        self._start = self._now()

    def clock(self) -> float:
        """Seconds since the search began."""
        return self._now() - self._start

    def is_past(self, end: float) -> bool:
        """Is it later than `end`?"""
        now = self.clock()
        if now <= end and now <= self.patience:
            return False
        if self.patience == math.inf:
            return True
        self.record()
        self.patience = math.inf
        self.hurry()
        self._now = time.perf_counter
        self._start = self._now()
        return False

    def record(self) -> None:
        """Note how long features have been recorded in Python, if they still are."""
        if self.patience < math.inf:
            note_recorded(self.clock())


def _searched(
    segment: Segment, sizes: Mapping[str, int], options: Options, effort: Effort, patience: float = math.inf
) -> Plan:
    """As `searched`; with a finite `patience` by recorded features, for so many CPU seconds. They are those of the
    compiled featuriser, so that what is found does not depend on when it takes over.
    """

    def hurry() -> None:
        log.debug("the search goes on with the compiled featuriser")
        whole.nests.compute_by(compiled_featuriser(options))

    timer, count = _Timer(patience, hurry), len(segment.graph.stages)
    if is_too_large(segment, effort):
        return _not_searched(Plan(None, frozenset(), 0.0), count, effort)
    whole = space_of(segment, sizes, options, memoise=effort.memoise, may_compile=patience == math.inf)
    by_default = Schedule(segment.default, frozenset())
    limit, half = effort.seconds, effort.seconds / 2
    is_large = effort.freeze and count > FEW_STAGES
    begin = timer.clock()
    default_cost = whole.tree_cost(by_default.tree, lambda: timer.is_past(half if is_large else math.inf))
    space, now = whole, timer.clock()
    if is_large:
        limit -= COMPLETED * max(now - begin, 0.0)  # a clock that has started again knows the rest of it only
        if timer.is_past(limit):
            plan = Plan(None, frozenset(), default_cost, now, None, whole.counters.evaluations)
            return _not_searched(plan, count, effort)
        now = timer.clock()
        until = max(half, now + (limit - now) / 3)
        space = frozen(space, lambda: timer.is_past(until)) if space.kinds > FEW_STAGES else space

    def is_past_half() -> bool:
        # recorded features are slow: with them only the quick searches run, the others do not justify compiling
        return timer.clock() > min(half, timer.patience / 2)

    searches = greedy_searches(space, lambda: timer.is_past(limit), is_past_half)
    if effort.parameters != GREEDY:  # a beam may end at a higher cost, or early; it shares memoised costs with these
        searches = [*_beams([x.space for x in searches], effort, limit, timer), *searches]
    candidates = [(default_cost, by_default), *(c for x in searches for c in _best(x.found, effort.timed))]
    candidates = _improved(candidates, whole, space, effort, limit, timer)
    timer.record()
    whole.nests.forget(0)  # it refers to itself: the garbage collector would have to find it
    evaluations, seconds = whole.counters.evaluations, timer.clock()
    log.debug("searched %d schedules of %d stages in %.3f s", evaluations, count, seconds)
    said = f"{evaluations} schedules in {seconds:.3f} s, the best by the model"
    debug.say("search", said, lambda: _shown(candidates))
    plan = _plan_of(candidates, by_default, effort.timed, effort.long_run)
    return replace(plan, seconds=seconds, record=searches[0].found.record, evaluations=evaluations)


def _not_searched(plan: Plan, count: int, effort: Effort) -> Plan:
    """The plan of a Graph that is too large to be searched in time: the default schedule."""
    log.debug("%d stages are too many to search in %g s", count, effort.seconds)
    return plan


def _improved(
    candidates: list[tuple[float, Schedule]], whole: Space, space: Space, effort: Effort, limit: float, timer: _Timer
) -> list[tuple[float, Schedule]]:
    """Schedules with their costs, the cheapest first: the candidates, and variations of the best of them.

    Args:
        whole: the space in which local search may change any stage.
        space: the space that was searched, perhaps with frozen stages.
    """
    found = [*candidates]
    if effort.refine:
        end = timer.clock() + effort.refine
        better = refined(whole, min(found, key=lambda x: x[0])[1], stop=lambda: timer.is_past(end))
        found.append((better.cost, better.schedule))
    predicted, best = min(found, key=lambda x: x[0])
    if predicted >= effort.flip_threshold:
        found += flipped(space, predicted, best, effort.flips, lambda: timer.is_past(limit))
    return sorted(found, key=lambda x: x[0])


def _beams(spaces: Sequence[Space], effort: Effort, limit: float, timer: _Timer) -> list[Searched]:
    """Beam searches of all spaces, each for its share of the remaining time."""

    def options(x: Space, number: int) -> SearchOptions[State]:
        now = timer.clock()
        end = now + (limit - now) / (len(spaces) - number)
        return effort.options(x, lambda: timer.is_past(end))

    return beam_searches(spaces, effort.parameters, options)


def _plan_of(
    candidates: Sequence[tuple[float, Schedule]], by_default: Schedule, count: int, long_run: float = 0.0
) -> Plan:
    """The best of some schedules with their costs, cheapest first; with others, of which `count` are to be timed.

    Args:
        long_run: see `Effort`.
    """
    first, *others = dict.fromkeys(x for _, x in candidates)
    further = unlike([x for x in others if x != by_default], first)[: count - (first != by_default)]
    if candidates[0][0] < long_run:
        further = [x for k, x in enumerate(further) if not any(are_near(x, y) for y in (first, *further[:k]))]
    cost_of_each = {x: c for c, x in reversed(candidates)}
    return Plan(
        None if first == by_default else first.tree,
        first.inlined,
        candidates[0][0],
        others=tuple(Plan(x.tree, x.inlined, cost_of_each[x]) for x in further),
        default_cost=cost_of_each[by_default],
    )


def _best(found: Found[State], count: int) -> list[tuple[float, Schedule]]:
    """The cheapest schedules of a search, and their costs."""
    return [(cost, Schedule(x.tree, x.inlined)) for cost, x in found.finalists[:count]]


def flipped(
    space: Space, cost: float, best: Schedule, count: int, stop: Callable[[], bool]
) -> list[tuple[float, Schedule]]:
    """Schedules, with their costs, that differ from `best` in whether one of the most expensive stages is inlined.

    The model errs most in comparing recomputation with storage, so such a schedule is worth timing unless it is
    predicted to be much slower. Stages that share a nest share its cost: the cheapest one to recompute comes first.
    """
    costs = space.costs_by_stage(best.tree, best.inlined)
    free = [
        s.name
        for s in space.graph.stages
        if space.may_inline(s)
        and s.name not in space.frozen
        and (s.name in best.inlined or space.is_short(best.inlined | {s.name}))
    ]
    found: list[tuple[float, Schedule]] = []
    for name in sorted(free, key=lambda n: (-costs.get(n, 0.0), _computed_again(space.graph, n)))[:count]:
        if stop():
            break
        other = Space.freezing(
            space, {**space.frozen, name: "root" if name in best.inlined else "inline"}, space.frozen_loops
        )
        found += _best(greedily(other, stop), 1)
    return [x for x in found if x[0] <= NOT_MUCH_COSTLIER * cost and _unrolls_few(space, x[1])]


def _unrolls_few(space: Space, schedule: Schedule) -> bool:
    """Are unrolled bodies short? The search does not check that for stages whose inlining is prescribed."""
    nests = schedule.tree.children
    return all(unrolled_instructions(space.nests, x, schedule.inlined) <= space.rules.inlined for x in nests)


def _computed_again(graph: Graph, name: str) -> float:
    """The cost of a stage times the number of indices at which its consumers read it: what inlining would recompute."""
    (d,) = graph.stage(name).definitions
    places = sum(
        len({x.index for r in graph.stage(c).definitions for x in r.loads if x.source == name})
        for c in graph.consumers()[name]
    )
    return float(places * cost_of(d.value))


def unlike(schedules: Sequence[Schedule], first: Schedule) -> list[Schedule]:
    """The schedules reordered: those that compute some stage at another place than `first` and all before them,
    interleaved with the others."""
    seen = {_places(first)}
    new: list[Schedule] = []
    rest: list[Schedule] = []
    for x in schedules:
        places = _places(x)
        (rest if places in seen else new).append(x)
        seen.add(places)
    return [x for pair in itertools.zip_longest(new, rest) for x in pair if x is not None]


def are_near(a: Schedule, b: Schedule) -> bool:
    """Do schedules differ in the sizes of tiles alone, and in these by little? Their code is the same but for a number,
    and takes as long: the second one is not worth compiling."""

    def are(x: Node | Root, y: Node | Root) -> bool:
        if isinstance(x, Compute) or isinstance(y, Compute):
            return x == y
        if len(x.children) != len(y.children) or not all(map(are, x.children, y.children)):
            return False
        if isinstance(x, Loop) and isinstance(y, Loop) and x.kind == "serial" and x.size and y.size:
            if not 1 / NEAR <= x.size / y.size <= NEAR:
                return False
            y = replace(y, size=x.size)
        return type(x) is type(y) and replace(x, children=()) == replace(y, children=())

    return a.inlined == b.inlined and are(a.tree, b.tree)


def _places(x: Schedule) -> tuple[frozenset[tuple[str, tuple[str, ...]]], frozenset[str]]:
    """For each stage the other stages inside whose loops it is computed; and the inlined stages."""
    found: set[tuple[str, tuple[str, ...]]] = set()

    def visit(node: Node, around: tuple[str, ...]) -> None:
        if isinstance(node, Compute):
            found.add((node.stage, tuple(n for n in dict.fromkeys(around) if n != node.stage)))
            return
        for c in node.children:
            visit(c, (*around, node.stage) if isinstance(node, Loop) else around)

    visit(x.tree, ())
    return frozenset(found), x.inlined


def frozen(space: Space, stop: Callable[[], bool] = never) -> Space:
    """The space with all but the most expensive stages frozen at the root or inlined (Anderson 2021, section 3.2).

    A first search decides between root and inline, with the loops of the default schedule; frozen stages keep both. The
    paper leaves log2(N) of N stages undecided. Here some more are, since a stage's gain depends on its neighbours.
    """
    stages = [s.name for s in space.graph.stages]
    apart = Space.freezing(space, dict.fromkeys(stages, "apart"), stages)
    found = greedily(apart, stop).best
    if found is None:
        return space
    costs = space.costs_by_stage(found.tree, found.inlined)
    count = FEW_STAGES // 2 + 2 * round(math.log2(len(stages)))
    undecided = set(sorted(stages, key=lambda n: -costs.get(n, 0.0))[:count])
    return Space.freezing(
        space,
        {n: "inline" if n in found.inlined else "root" for n in stages if n not in undecided},
        {*stages} - undecided,
    )


def space_of(
    segment: Segment,
    sizes: Mapping[str, int],
    options: Options,
    cost: Cost | None = None,
    memoise: bool = True,
    may_compile: bool = True,
) -> Space:
    """The space of the schedules of a Graph on this machine; `may_compile`: may the featuriser be compiled?"""
    threads, target = launch.threads(options.num_threads), segment.target
    facts = machine.facts(threads, target.vector_bytes, options.cache_dir, options.cache)
    featuriser = compiled_featuriser(options) if may_compile else stored_featuriser(options)
    return Space(
        segment.graph, sizes, cost or weights(), Machine(facts, threads, target), memoise=memoise, featuriser=featuriser
    )
