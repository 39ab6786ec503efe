"""The schedule of a Graph by search: the cost model's choice, kept on disk as a plan.

The model errs, so the first process that searches measures the best of what it found beside the default schedule, and keeps the fastest.

A plan is found under the canonical Graph, the order of magnitude of its sizes, the machine, and what searched. It says which stages are
inlined, and the tree, with stages by their position: so it serves every Graph with the same key, whatever its variables are called.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hjit import cache, machine
from hjit.errors import ScheduleError, SlidingError
from hjit.kernels import features, launch
from hjit.kernels.kernel import Bound
from hjit.model.costs import Cost
from hjit.model.network import load
from hjit.options import Options
from hjit.sched.check import check
from hjit.sched.default import Target, default_schedule
from hjit.sched.refine import Schedule, refined
from hjit.sched.search import Found, Parameters, Record, never, presets, search
from hjit.sched.search import Options as SearchOptions
from hjit.sched.space import Space, State
from hjit.sched.transforms import storage_at_compute
from hjit.sched.tree import Compute, Loop, Node, Root, from_json, renamed
from hjit.trace.graph import Graph
from hjit.trace.key import graph_key
from hjit.trace.poly import sizes_value
from hjit.trace.rewrites import AS_IT_IS, Rewrites

log = logging.getLogger("hjit")
T = TypeVar("T")
Array = np.ndarray[Any, Any]

WEIGHTS = Path(__file__).parent / "model" / "weights.npz"
MEASURED_SECONDS, TURNS = 0.1, (3, 40)  # of a searched schedule beside the default one: how many turns at least and at most
BUILT_SECONDS = 10.0  # of compiling, after which what else was found is not compiled any more
LONG = 1.0  # seconds of measuring, after which two turns are enough, and the winner need not win again
MUCH_SLOWER = (4.0, 1.5)  # than the fastest: not run again after the first turn, when all is cold, and after later ones
NOT_MUCH_DEARER = 3.0  # than the best schedule known
SURELY = 0.97  # how much faster than the default schedule another must be
FEW_STAGES = 12  # of which all are searched
ASKED = 500  # costs at once; between them a search looks at the time
COLLECTED_AFTER = 200_000  # new objects, while a search runs
BUCKET = 4  # sizes that differ by less than about this factor share a plan
MOST_PLANS = 500  # of this process

_plans: dict[str, bytes] = {}  # of this process by name, for where there is no disk to keep them


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard a search tries.

    Attributes:
        passes: see `hjit.sched.search.Options`.
        sample: are only some of alike states looked at?
        freeze: are all but the dearest stages of a large Graph left where they are? See `frozen`.
        memoise: see `hjit.sched.space.Space`.
        by_depth: are states ordered by `hjit.sched.search.DepthPriority`?
        seconds: after which a search ends with what it has.
        refine: seconds of local search from there, see `hjit.sched.refine`.
        timed: how many of the schedules that it found are timed beside the default one.
        otherwise: for how many of the dearest stages it is tried, too, what comes of inlining them, or of not doing so; see `otherwise`.
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


GREEDY = presets()["greedy"]
EFFORTS = {
    "greedy": Effort(GREEDY, freeze=True, seconds=1.0),
    "refined": Effort(GREEDY, freeze=True, refine=3.0, timed=3, otherwise=2),
    # choices of sizes are costed together: samples would save nothing
    "beam": Effort(presets(32)["beam"], passes=5, freeze=True, seconds=30.0, refine=3.0, timed=6, otherwise=4),
}


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search decided on for the Graphs of one function; a `hjit.options.Scheduler`.

    Attributes:
        trees: by the outputs of the Graphs; others have the default schedule.
        inlined: stages that are computed wherever they are read.
        new: names and Graphs of the plans that no process has measured yet.
        others: what else is worth measuring then.
    """

    trees: Mapping[tuple[str, ...], Root]
    inlined: frozenset[str] = frozenset()
    new: tuple[tuple[str, Graph], ...] = ()
    others: tuple[Searched, ...] = ()

    def rewrites(self) -> Rewrites:
        """What changes of the Graphs."""
        return Rewrites(inlined_after=self.inlined)

    def tree(self, graph: Graph, target: Target) -> Root:
        """The schedule of one of the Graphs."""
        found = self.trees.get(graph.outputs)
        return default_schedule(graph, target) if found is None else found


@dataclass(frozen=True, slots=True)
class Plan:
    """The schedule of one Graph.

    Attributes:
        tree: None: the default schedule.
        cost: as the cost model has it.
        seconds: that the search took.
        record: of the search with the options' effort.
        asked: schedules whose cost was asked, by that search and those before and after it.
        others: further schedules that are worth timing.
    """

    tree: Root | None
    inlined: frozenset[str]
    cost: float
    seconds: float = 0.0
    record: Record | None = None
    asked: int = 0
    others: tuple[Schedule, ...] = ()


def target_of(options: Options) -> Target:
    """What schedules must know of the machine that code is for."""
    return Target(features.native_width(features.target_features(options.target)))


@functools.lru_cache(maxsize=1)
def weights() -> Cost:
    """The cost model that comes with hjit."""
    return load(WEIGHTS)


def scheduled(make: Callable[[Rewrites], list[Graph]], sizes: Mapping[str, int], options: Options) -> Searched | None:
    """The schedules of the Graphs of a function; None where the default ones are the best.

    Args:
        make: the Graphs, with some rewrites.
        sizes: numbers of the run-time sizes by name.
    """
    graphs = [g for g in make(AS_IT_IS) if g.outputs]
    named = [(plan_name(g, sizes, options), g) for g in graphs]
    known = [kept(name, g, options) for name, g in named]
    plans = [searched(g, sizes, options) if p is None else p for p, g in zip(known, graphs, strict=True)]
    new = tuple(x for x, p in zip(named, known, strict=True) if p is None)
    trees = {g.outputs: p.tree for g, p in zip(graphs, plans, strict=True) if p.tree is not None}
    found = Searched(trees, frozenset(n for p in plans for n in p.inlined), new)
    others = [Searched({graphs[0].outputs: x.tree}, x.inlined, new) for x in plans[0].others] if len(plans) == 1 else []
    legal, *more = (x if _is_legal(x, make) else None for x in (found, *others))
    found = replace(legal or Searched({}, new=new), others=tuple(x for x in more if x is not None))
    if not found.trees and not found.others:
        keep(found, options)
        return None
    return found


def _is_legal(found: Searched, make: Callable[[Rewrites], list[Graph]]) -> bool:
    after = {g.outputs: g for g in make(found.rewrites()) if g.outputs}
    try:
        for outputs, tree in found.trees.items():
            check(tree, after[outputs])
    except (ScheduleError, KeyError) as error:
        refused(error)
        return False
    return True


def refused(error: Exception) -> None:
    """A searched schedule is not legal, or cannot be lowered: a fault of the search, which costs time only, as the default schedule runs."""
    log.debug("a searched schedule is refused: %s", error)


def kept(name: str, graph: Graph, options: Options) -> Plan | None:
    """The plan of a canonical Graph that this process or an earlier one made."""
    text = cache.load(name, options.cache_dir, options.cache, "plan") or _plans.get(name)
    return None if text is None else from_text(text, graph)


def keep(found: Searched, options: Options) -> None:
    """Put the new plans on the disk, and in this process."""
    for name, graph in found.new:
        inlined = found.inlined & graph.by_name.keys()
        text = to_text(Plan(found.trees.get(graph.outputs), inlined, 0.0), graph)
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        _plans[name] = text
        cache.store(name, text, {"tune": options.tune, "versions": cache.versions()}, options.cache_dir, options.cache, "plan")


def fastest(bounds: Sequence[Bound], arrays: Mapping[str, Array], scalars: Mapping[str, Any]) -> int:
    """Which of some kernels is the fastest, run in turns on the arrays at hand; the last one where an index is out of bounds.

    The last one is by the default schedule. The luckiest of several need not be the fastest: it must win once more, against that one alone.
    """
    results: dict[Any, list[Array]] = {}  # into the same arrays: a new one costs its first writer more than the kernel does
    given = [([arrays[n] for n in x.inputs], results.setdefault(x.outputs, x.new_outputs()), [scalars[n] for n, _ in x.scalars]) for x in bounds]
    last = len(bounds) - 1

    def winner(some: Sequence[int], seconds: float) -> int:
        times = _least_times([functools.partial(bounds[k].run, *given[k]) for k in some], seconds)
        if times is None:
            return last
        log.debug("measured, the default schedule first: %s ms", ", ".join(f"{1e3 * x:.3f}" for x in times))
        return min(zip(some, times, strict=True), key=lambda x: x[1] * (SURELY if x[0] == last else 1.0))[0]

    start = time.perf_counter()
    best = winner([*reversed(range(len(bounds)))], MEASURED_SECONDS * last)
    return best if best == last or time.perf_counter() - start > LONG else winner([last, best], MEASURED_SECONDS)


def _least_times(runs: Sequence[Callable[[], bool]], seconds: float) -> list[float] | None:
    """The least seconds of each, in turns; None where one fails. One that is much slower than another is not run again: the model may err by far."""
    best = [math.inf] * len(runs)
    begin, turns = time.perf_counter(), 0
    while not _is_enough(turns, time.perf_counter() - begin, seconds):
        for k, run in enumerate(runs):
            if turns and best[k] > MUCH_SLOWER[turns > 1] * min(best):
                continue
            start = time.perf_counter()
            if not run():
                return None
            best[k] = min(best[k], time.perf_counter() - start)
        turns += 1
    return best


def _is_enough(turns: int, taken: float, seconds: float) -> bool:
    least, most = TURNS
    return turns >= most or (turns >= least and taken >= seconds) or (turns >= 2 and taken >= LONG)


def searched(graph: Graph, sizes: Mapping[str, int], options: Options, cost: Cost | None = None, effort: Effort | None = None) -> Plan:
    """Search the schedule of a canonical Graph, with the default schedule as what there is to beat.

    Args:
        cost: the cost model, if not the one that comes with hjit.
        effort: if not that of `options.tune`.
    """
    with _few_collections():
        return _searched(graph, sizes, options, cost, effort or EFFORTS[str(options.tune)])


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """The garbage collector runs less often: a search makes much that it keeps, and little garbage in circles."""
    old = gc.get_threshold()
    gc.set_threshold(COLLECTED_AFTER, *old[1:])
    try:
        yield
    finally:
        gc.set_threshold(*old)


def _searched(graph: Graph, sizes: Mapping[str, int], options: Options, cost: Cost | None, effort: Effort) -> Plan:
    start = time.perf_counter()
    space = whole = space_of(graph, sizes, options, cost, effort.memoise)
    by_default = Schedule(default_schedule(graph, space.target), frozenset())
    ways = [(space.tree_cost(by_default.tree), by_default)]
    limit = start + effort.seconds
    around = SearchOptions(
        passes=effort.passes,
        depth=len(space.decisions) if effort.by_depth else None,
        bucket=space.bucket if effort.passes > 1 or effort.sample else None,
        sample=effort.sample,
        asked=ASKED,
        stop=lambda: time.perf_counter() > limit,
    )
    if effort.freeze and len(graph.stages) > FEW_STAGES:
        half = start + effort.seconds / 2
        space = frozen(space, lambda: time.perf_counter() > half)
    if effort.parameters != GREEDY:  # a beam may end dearer, or early; what this costs is known to it
        ways += _best(greedily(space, around.stop), 1)
    found = search(space, space.start, effort.parameters, around)
    ways += _best(_completed(space, found), effort.timed)
    if effort.refine:
        end = time.perf_counter() + effort.refine
        better = refined(whole, min(ways, key=lambda x: x[0])[1], stop=lambda: time.perf_counter() > end)
        ways.append((better.cost, better.schedule))
    ways += otherwise(space, *min(ways, key=lambda x: x[0]), effort.otherwise, around.stop)
    ways.sort(key=lambda x: x[0])
    first, *others = dict.fromkeys(x for _, x in ways)
    further = tuple(unlike([x for x in others if x != by_default], first)[: effort.timed])
    seconds = time.perf_counter() - start
    log.debug("searched %d schedules of %d stages in %.3f s", whole.tally.asked, len(graph.stages), seconds)
    return Plan(None if first == by_default else first.tree, first.inlined, ways[0][0], seconds, found.record, whole.tally.asked, further)


def greedily(space: Space, stop: Callable[[], bool] = never) -> Found[State]:
    """A greedy search of a space."""
    return _completed(space, search(space, space.start, GREEDY, SearchOptions(stop=stop)))


def _completed(space: Space, found: Found[State]) -> Found[State]:
    """What a search found; where it was ended before that, how far it came, with all other stages at the root."""
    if found.finalists or found.halted is None:
        return found
    stages = [s.name for s in space.graph.stages]
    rest = Space.freezing(space, {n: "inline" if space.frozen.get(n) == "inline" else "root" for n in stages}, stages)
    (state,) = rest.children(found.halted)
    (cost,) = space.cost([state])
    return replace(found, finalists=((cost, state),) if cost < math.inf else ())


def _best(found: Found[State], count: int) -> list[tuple[float, Schedule]]:
    """The cheapest schedules of a search, and their costs."""
    return [(cost, Schedule(x.tree, x.inlined)) for cost, x in found.finalists[:count]]


def otherwise(space: Space, cost: float, best: Schedule, count: int, stop: Callable[[], bool]) -> list[tuple[float, Schedule]]:
    """What greedy searches find that inline one of the dearest stages where `best` does not, or the other way round, and its predicted costs.

    The model errs most where a value is computed again rather than kept; what it does not think much dearer is worth timing.
    """
    costs = space.costs_by_stage(best.tree, best.inlined)
    free = [s.name for s in space.graph.stages if space.may_inline(s) and s.name not in space.frozen]
    found: list[tuple[float, Schedule]] = []
    for name in sorted(free, key=lambda n: -costs.get(n, 0.0))[:count]:
        if stop():
            break
        other = Space.freezing(space, {**space.frozen, name: "root" if name in best.inlined else "inline"}, space.settled)
        found += _best(greedily(other, stop), 1)
    return [x for x in found if x[0] <= NOT_MUCH_DEARER * cost]


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
    return Space.freezing(space, {n: "inline" if n in found.inlined else "root" for n in stages if n not in open_}, {*stages} - open_)


def space_of(graph: Graph, sizes: Mapping[str, int], options: Options, cost: Cost | None = None, memoise: bool = True) -> Space:
    """The space of the schedules of a Graph on this machine."""
    target, threads = target_of(options), launch.threads(options.num_threads)
    return Space(graph, sizes, cost or weights(), machine.facts(threads, target.vector_bytes), threads, target, memoise=memoise)


def built(made: Callable[[Searched], T], found: Searched) -> tuple[T, Searched]:
    """What `made` makes of searched schedules, and the schedules; storage of stages that turn out not to slide is moved inwards.

    Raises:
        ScheduleError: a schedule cannot be lowered for another reason.
    """
    while True:
        try:
            return made(found), found
        except SlidingError as error:
            trees = {outputs: storage_at_compute(tree, error.stage) for outputs, tree in found.trees.items()}
            if trees == found.trees:
                raise
            log.debug("%s: stored where it is computed", error)
            found = replace(found, trees=trees)


# -- plans on disk


def plan_name(graph: Graph, sizes: Mapping[str, int], options: Options) -> str:
    """The name of a plan in the cache."""
    points = sum(math.prod(sizes_value(n, sizes) for n in s.shape) for s in graph.stages if s.name in graph.outputs)
    bucket = round(math.log(max(points, 1), BUCKET))
    threads = launch.threads(options.num_threads)
    parts = (graph_key(graph).text, str(bucket), str(target_of(options)), str(threads), str(options.tune), str(options.fast_math), _model_digest())
    return "plan_" + cache.digest(*parts, cache.versions())[:40]


@functools.lru_cache(maxsize=1)
def _model_digest() -> str:
    return cache.digest(WEIGHTS.read_bytes().hex())


def to_text(found: Plan, graph: Graph) -> bytes:
    """A plan as it is kept: stages by position."""
    number = {s.name: f"s{k}" for k, s in enumerate(graph.stages)}
    tree = None if found.tree is None else json.loads(renamed(found.tree, number).to_json())  # type: ignore[union-attr]
    return json.dumps({"tree": tree, "inlined": sorted(number[n] for n in found.inlined), "cost": found.cost}).encode()


def from_text(text: bytes, graph: Graph) -> Plan | None:
    """The plan that was kept, for a Graph with the same key; None where it is not one."""
    names = {f"s{k}": s.name for k, s in enumerate(graph.stages)}
    try:
        data = json.loads(text)
        inlined = frozenset(names[n] for n in data["inlined"])
        tree = None if data["tree"] is None else renamed(from_json(json.dumps(data["tree"])), names)
        cost = float(data["cost"])
    except (ValueError, KeyError, TypeError, RecursionError, ScheduleError) as error:
        log.debug("a plan is not usable: %s", error)
        return None
    return Plan(tree, inlined, cost) if tree is None or isinstance(tree, Root) else None
