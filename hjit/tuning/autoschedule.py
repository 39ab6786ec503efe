"""The schedule of a Graph by search: the cost model's choice, to be kept as a plan (`hjit.tuning.plans`).

The model errs, so the first process that searches measures the best of what it found beside the default schedule, and keeps the fastest.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.kernels.runtime import launch
from hjit.kernels.runtime.kernel import Bound
from hjit.model.costs import Cost
from hjit.model.network import load
from hjit.options import Options
from hjit.process import debug, machine
from hjit.process.garbage_collection import few_collections
from hjit.sched.default.schedules import default_schedule
from hjit.sched.language.tree import Compute, Loop, Node
from hjit.sched.search.batches import State
from hjit.sched.search.refine import Schedule, refined
from hjit.sched.search.search import Found, Parameters, never, presets, search
from hjit.sched.search.search import Options as SearchOptions
from hjit.sched.search.space import Space
from hjit.trace.ir.costs import cost as cost_of
from hjit.trace.ir.graph import Graph
from hjit.tuning.plans import WEIGHTS, Plan, target_of

log = logging.getLogger("hjit")
Array = np.ndarray[Any, Any]

MEASURED_SECONDS, TURNS = (
    0.1,
    (3, 40),
)  # of a searched schedule beside the default one: how many turns at least and at most
LONG, VERY_LONG = (
    1.0,
    10.0,
)  # seconds of measuring, after which two turns are enough, and the winner need not win again; and one is
MUCH_SLOWER = (4.0, 1.5)  # than the fastest: not run again after the first turn, when all is cold, and after later ones
NOT_MUCH_DEARER = 3.0  # than the best schedule known
SURELY = 0.97  # how much faster than the default schedule another must be
FEW_STAGES = 12  # of which all are searched
LOOKED_AT = 800  # definitions a second, at most: of more not even the default schedule is costed in time
COMPLETED = 2.5  # times the seconds that all nests of a tree cost: what it takes to put all stages at the root that a search left


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard a search tries.

    Attributes:
        passes: see `hjit.sched.search.search.Options`.
        sample: are only some of alike states looked at?
        freeze: are all but the dearest stages of a large Graph left where they are? See `frozen`.
        memoise: see `hjit.sched.search.space.Space`.
        by_depth: are states ordered by `hjit.sched.search.search.DepthPriority`?
        seconds: after which a search ends with what it has.
        refine: further seconds, of local search from there, see `hjit.sched.search.refine`.
        timed: how many of the schedules that it found are timed beside the default one.
        otherwise: for how many of the dearest stages it is tried, too, what comes of inlining them, or of not doing so; see `otherwise`.
        worth: predicted seconds of a run, below which this is not tried.
        asked: costs at once; between them a search looks at the time.
    """

    parameters: Parameters
    passes: int = 1
    sample: bool = False
    freeze: bool = False
    memoise: bool = True
    by_depth: bool = False
    seconds: float = 20.0
    refine: float = 0.0
    timed: int = 1
    otherwise: int = 0
    worth: float = 0.0
    asked: int = 500


GREEDY = presets()["greedy"]
EFFORTS = {
    "greedy": Effort(GREEDY, freeze=True, seconds=0.95, timed=2, otherwise=2, worth=1e-4),
    "refined": Effort(GREEDY, freeze=True, refine=3.0, timed=3, otherwise=2),
    # choices of sizes are costed together: samples would save nothing
    "beam": Effort(
        presets(32)["beam"], passes=5, freeze=True, seconds=25.0, refine=3.0, timed=6, otherwise=4, asked=100_000
    ),
}


@functools.lru_cache(maxsize=1)
def weights() -> Cost:
    """The cost model that comes with hjit."""
    return load(WEIGHTS)


def fastest(
    bounds: Sequence[Bound], arrays: Mapping[str, Array], scalars: Mapping[str, Any]
) -> tuple[int, list[float]]:
    """Which of some kernels is the fastest, run in turns on the arrays at hand; the last one where an index is out of bounds.

    And the least seconds of each; none in that case.

    The last one is by the default schedule. The luckiest of several need not be the fastest: it must win once more, against that one alone.
    """
    results: dict[
        Any, list[Array]
    ] = {}  # into the same arrays: a new one costs its first writer more than the kernel does
    given = [
        (
            [arrays[n] for n in x.inputs],
            results.setdefault(x.outputs, x.new_outputs()),
            [scalars[n] for n, _ in x.scalars],
        )
        for x in bounds
    ]
    last = len(bounds) - 1

    seconds_of = [math.inf] * len(bounds)

    def winner(some: Sequence[int], seconds: float) -> int:
        times = _least_times([functools.partial(bounds[k].run, *given[k]) for k in some], seconds)
        if times is None:
            seconds_of.clear()
            return last
        debug.say(
            "search", "measured, the default schedule first", lambda: " ".join(f"{1e3 * x:.3f} ms" for x in times)
        )
        log.debug("measured, the default schedule first: %s ms", ", ".join(f"{1e3 * x:.3f}" for x in times))
        for k, x in zip(some, times, strict=True):
            seconds_of[k] = min(seconds_of[k], x)
        return min(zip(some, times, strict=True), key=lambda x: x[1] * (SURELY if x[0] == last else 1.0))[0]

    start = time.perf_counter()
    best = winner([*reversed(range(len(bounds)))], MEASURED_SECONDS * last)
    if best != last and time.perf_counter() - start <= LONG:
        best = winner([last, best], MEASURED_SECONDS)
    return best, seconds_of


def _shown(ways: Sequence[tuple[float, Any]]) -> str:
    """The best schedules of a search, with their costs."""
    return "\n".join(f"cost {cost:.4g}\n{x.tree}" for cost, x in ways[:3])


def _least_times(runs: Sequence[Callable[[], bool]], seconds: float) -> list[float] | None:
    """The least seconds of each, in turns; None where one fails. One that is much slower than another is not run again: the model may err by far."""
    best = [math.inf] * len(runs)
    begin, turns = time.perf_counter(), 0
    while not _is_enough(turns, taken := time.perf_counter() - begin, seconds):
        for k, run in enumerate(runs):
            if turns and best[k] > MUCH_SLOWER[turns > 1 or taken > LONG] * min(best):
                continue
            start = time.perf_counter()
            if not run():
                return None
            best[k] = min(best[k], time.perf_counter() - start)
        turns += 1
    return best


def _is_enough(turns: int, taken: float, seconds: float) -> bool:
    least, most = TURNS
    return (
        turns >= most or (turns >= least and taken >= seconds) or (turns >= 2 and taken >= LONG) or taken >= VERY_LONG
    )


def searched(
    graph: Graph, sizes: Mapping[str, int], options: Options, cost: Cost | None = None, effort: Effort | None = None
) -> Plan:
    """Search the schedule of a canonical Graph, with the default schedule as what there is to beat.

    Args:
        cost: the cost model, if not the one that comes with hjit.
        effort: if not that of `options.tune`.
    """
    with few_collections():
        return _searched(graph, sizes, options, cost, effort or EFFORTS[str(options.tune)])


def _searched(graph: Graph, sizes: Mapping[str, int], options: Options, cost: Cost | None, effort: Effort) -> Plan:
    start = time.perf_counter()
    if effort.freeze and sum(len(s.definitions) for s in graph.stages) > LOOKED_AT * effort.seconds:
        log.debug("%d stages are too many to search in %g s", len(graph.stages), effort.seconds)
        return Plan(None, frozenset(), 0.0)
    space = whole = space_of(graph, sizes, options, cost, effort.memoise)
    by_default = Schedule(default_schedule(graph, space.target), frozenset())
    limit, half = start + effort.seconds, start + effort.seconds / 2
    is_large = effort.freeze and len(graph.stages) > FEW_STAGES
    begin = time.perf_counter()
    ways = [(space.tree_cost(by_default.tree, lambda: is_large and time.perf_counter() > half), by_default)]
    of_a_tree = time.perf_counter() - begin
    around = SearchOptions(
        passes=effort.passes,
        depth=len(space.decisions) if effort.by_depth else None,
        buckets=space.buckets if effort.passes > 1 or effort.sample else None,
        sample=effort.sample,
        batch_size=effort.asked,
        stop=lambda: time.perf_counter() > limit,
    )
    if is_large:
        if max(half, time.perf_counter()) + COMPLETED * of_a_tree > limit:
            log.debug("%d stages are too many to search in %g s", len(graph.stages), effort.seconds)
            return Plan(None, frozenset(), ways[0][0], time.perf_counter() - start, None, whole.tally.evaluations)
        space = frozen(space, lambda: time.perf_counter() > half)
    if effort.parameters != GREEDY:  # a beam may end dearer, or early; what this costs is known to it
        ways += _best(greedily(space, around.stop), 1)
    found = search(space, space.start, effort.parameters, around)
    ways += _best(_completed(space, found), effort.timed)
    if effort.refine:
        end = time.perf_counter() + effort.refine
        better = refined(whole, min(ways, key=lambda x: x[0])[1], stop=lambda: time.perf_counter() > end)
        ways.append((better.cost, better.schedule))
    predicted, best = min(ways, key=lambda x: x[0])
    if predicted >= effort.worth:
        ways += otherwise(space, predicted, best, effort.otherwise, around.stop)
    ways.sort(key=lambda x: x[0])
    first, *others = dict.fromkeys(x for _, x in ways)
    further = unlike([x for x in others if x != by_default], first)[: effort.timed - (first != by_default)]
    cost_of_each = {x: c for c, x in reversed(ways)}
    others_found = tuple(Plan(x.tree, x.inlined, cost_of_each[x]) for x in further)
    seconds = time.perf_counter() - start
    log.debug("searched %d schedules of %d stages in %.3f s", whole.tally.evaluations, len(graph.stages), seconds)
    debug.say(
        "search", f"{whole.tally.evaluations} schedules in {seconds:.3f} s, the best by the model", lambda: _shown(ways)
    )
    return Plan(
        None if first == by_default else first.tree,
        first.inlined,
        ways[0][0],
        seconds,
        found.record,
        whole.tally.evaluations,
        others_found,
    )


def greedily(space: Space, stop: Callable[[], bool] = never) -> Found[State]:
    """A greedy search of a space."""
    return _completed(space, search(space, space.start, GREEDY, SearchOptions(stop=stop)))


def _completed(space: Space, found: Found[State]) -> Found[State]:
    """What a search found; where it was ended before that, how far it came, with all other stages at the root."""
    if found.finalists or found.halted is None:
        return found
    stages = [s.name for s in space.graph.stages]
    rest = Space.freezing(space, {n: "inline" if space.frozen.get(n) == "inline" else "root" for n in stages}, stages)
    (batch,) = rest.families(found.halted)
    ((cost,),) = space.cost([(batch, np.zeros(1, np.int64))])
    return replace(found, finalists=((float(cost), batch[0]),) if cost < math.inf else ())


def _best(found: Found[State], count: int) -> list[tuple[float, Schedule]]:
    """The cheapest schedules of a search, and their costs."""
    return [(cost, Schedule(x.tree, x.inlined)) for cost, x in found.finalists[:count]]


def otherwise(
    space: Space, cost: float, best: Schedule, count: int, stop: Callable[[], bool]
) -> list[tuple[float, Schedule]]:
    """What greedy searches find that inline one of the dearest stages where `best` does not, or the other way round, and its predicted costs.

    The model errs most where a value is computed again rather than kept; what it does not think much dearer is worth timing. Of stages that
    share a nest, and so its cost, that one comes first which is cheapest to compute again.
    """
    costs = space.costs_by_stage(best.tree, best.inlined)
    free = [s.name for s in space.graph.stages if space.may_inline(s) and s.name not in space.frozen]
    found: list[tuple[float, Schedule]] = []
    for name in sorted(free, key=lambda n: (-costs.get(n, 0.0), _computed_again(space.graph, n)))[:count]:
        if stop():
            break
        other = Space.freezing(
            space, {**space.frozen, name: "root" if name in best.inlined else "inline"}, space.frozen_loops
        )
        found += _best(greedily(other, stop), 1)
    return [x for x in found if x[0] <= NOT_MUCH_DEARER * cost]


def _computed_again(graph: Graph, name: str) -> float:
    """What a stage costs at all the places where one turn of its readers would compute it, if it were inlined."""
    (d,) = graph.stage(name).definitions
    places = sum(
        len({x.index for r in graph.stage(c).definitions for x in r.loads if x.source == name})
        for c in graph.consumers()[name]
    )
    return float(places * cost_of(d.value))


def unlike(schedules: Sequence[Schedule], first: Schedule) -> list[Schedule]:
    """Schedules in another order: by turns one that computes some stage elsewhere than `first` and those before it do, and the cheapest other."""
    seen = {_places(first)}
    new: list[Schedule] = []
    rest: list[Schedule] = []
    for x in schedules:
        places = _places(x)
        (rest if places in seen else new).append(x)
        seen.add(places)
    return [x for pair in itertools.zip_longest(new, rest) for x in pair if x is not None]


def _places(x: Schedule) -> tuple[frozenset[tuple[str, tuple[str, ...]]], frozenset[str]]:
    """Inside the loops of which other stages each stage is computed, and what is inlined."""
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
    """The space with all but the dearest stages frozen where a search that knows only the root and inlining puts them.

    Anderson 2021, section 3.2. The paper leaves log2(N) of N stages; here some more are left, since what a stage may gain depends on its
    neighbours, too. Loops of those that are frozen, and of all in that search, are those of the default schedule.
    """
    stages = [s.name for s in space.graph.stages]
    apart = Space.freezing(space, dict.fromkeys(stages, "apart"), stages)
    found = greedily(apart, stop).best
    if found is None:
        return space
    costs = space.costs_by_stage(found.tree, found.inlined)
    count = FEW_STAGES // 2 + 2 * round(math.log2(len(stages)))
    open_ = set(sorted(stages, key=lambda n: -costs.get(n, 0.0))[:count])
    return Space.freezing(
        space, {n: "inline" if n in found.inlined else "root" for n in stages if n not in open_}, {*stages} - open_
    )


def space_of(
    graph: Graph, sizes: Mapping[str, int], options: Options, cost: Cost | None = None, memoise: bool = True
) -> Space:
    """The space of the schedules of a Graph on this machine."""
    target, threads = target_of(options), launch.threads(options.num_threads)
    facts = machine.facts(threads, target.vector_bytes, options.cache_dir, options.cache)
    return Space(graph, sizes, cost or weights(), facts, threads, target, memoise=memoise)
