"""Plans: the schedules that searches found, kept on disk.

A plan is found under the canonical Graph, the order of magnitude of its sizes, the machine, and what searched. It says which stages are
inlined, and the tree, with stages by their position: so it serves every Graph with the same key, whatever its variables are called.
What makes a plan where there is none, a search, is given.
"""

from __future__ import annotations

import functools
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from hjit import cache
from hjit.errors import BlockError, ScheduleError, SlidingError
from hjit.kernels.runtime import features, launch
from hjit.options import Options
from hjit.process import machine
from hjit.sched.default.schedules import default_schedule
from hjit.sched.language.check import check_tree
from hjit.sched.language.limits import MAX_PARTS, check_number
from hjit.sched.language.target import Target
from hjit.sched.language.transforms import rolled, storage_at_compute
from hjit.sched.language.tree import Root, computes, from_json, renamed
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.key import graph_key
from hjit.trace.ir.poly import sizes_value
from hjit.trace.passes.rewrites import NO_REWRITES, Rewrites, factors, parts_name

if TYPE_CHECKING:
    from hjit.sched.search.search import Record

log = logging.getLogger("hjit")
T = TypeVar("T")

WEIGHTS = Path(__file__).parents[1] / "model" / "weights.npz"
BUCKET = 4  # sizes that differ by less than about this factor share a plan
PARTS = 4  # of a reduction for each core
FEW_TASKS = 2  # for each core: where there are fewer, cores may wait for each other
LONG = 1 << 18  # evaluations of a reduction that is worth parts
MOST_PLANS = 500  # of this process
LONGEST_BLOCK = 5000  # instructions of code without a branch: the backend's time grows faster than they do, and nobody waits for a guess
BUILT_SECONDS = {
    "greedy": 0.5,
    "refined": 10.0,
    "beam": 10.0,
}  # of compiling, after which what else was found is not compiled any more

_plans: dict[str, bytes] = {}  # of this process by name, for where there is no disk to keep them


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search decided on for the Graphs of one function; a `hjit.options.Scheduler`.

    Attributes:
        trees: by the outputs of the Graphs; others have the default schedule.
        inlined: stages that are computed wherever they are read.
        new: names and Graphs of the plans that no process has measured yet.
        others: what else is worth measuring then.
        costs: what the cost model predicts, in seconds, by the outputs of the Graphs.
        factored: reductions that are done in parts; see `hjit.trace.passes.rewrites.Rewrites`.
    """

    longest_block: ClassVar[float] = LONGEST_BLOCK
    trees: Mapping[tuple[str, ...], Root]
    inlined: frozenset[str] = frozenset()
    new: tuple[tuple[str, Graph], ...] = ()
    others: tuple[Searched, ...] = ()
    costs: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    factored: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def rewrites(self) -> Rewrites:
        """What changes of the Graphs."""
        return Rewrites(inlined_after=self.inlined, factored=self.factored)

    def tree(self, graph: Graph, target: Target) -> Root:
        """The schedule of one of the Graphs."""
        found = self.trees.get(graph.outputs)
        return default_schedule(graph, target) if found is None else found


@dataclass(frozen=True, slots=True)
class Plan:
    """The schedule of one Graph.

    Attributes:
        tree: None: the default schedule.
        cost: as the cost model has it, in seconds.
        measured: seconds that it, and the default schedule, took when they were compared; None: they were not.
        factored: reductions that are done in parts.
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
    others: tuple[Plan, ...] = ()
    measured: tuple[float, float] | None = None
    factored: Mapping[str, tuple[int, int]] = field(default_factory=dict)


Search = Callable[[Graph, Mapping[str, int], Options], Plan]  # the plan of a canonical Graph at some sizes


def scheduled(
    make: Callable[[Rewrites], list[Graph]], sizes: Mapping[str, int], options: Options, search: Search
) -> Searched | None:
    """The schedules of the Graphs of a function; None where the default ones are the best.

    Args:
        make: the Graphs, with some rewrites.
        sizes: numbers of the run-time sizes by name.
        search: what makes a plan where there is none.
    """
    graphs = [g for g in make(NO_REWRITES) if g.outputs]
    named = [(plan_name(g, sizes, options), g) for g in graphs]
    known = [kept(name, g, options) for name, g in named]
    plans = [search(g, sizes, options) if p is None else p for p, g in zip(known, graphs, strict=True)]
    if known == [None]:
        plans = [_in_parts(plans[0], graphs[0], make, sizes, options, search)]
    new = tuple(x for x, p in zip(named, known, strict=True) if p is None)
    trees = {g.outputs: p.tree for g, p in zip(graphs, plans, strict=True) if p.tree is not None}
    costs = {g.outputs: p.cost for g, p in zip(graphs, plans, strict=True)}
    factored = {n: x for p in plans for n, x in p.factored.items()}
    found = Searched(trees, frozenset(n for p in plans for n in p.inlined), new, costs=costs, factored=factored)
    others = [_other(graphs[0], x, new) for x in plans[0].others] if len(plans) == 1 else []
    legal, *more = (x if _is_legal(x, make) else None for x in (found, *others))
    found = replace(legal or Searched({}, new=new, costs=costs), others=tuple(x for x in more if x is not None))
    if not found.trees and not found.others:
        keep(found, options)
        return None
    return found


def _in_parts(
    plan: Plan,
    graph: Graph,
    make: Callable[[Rewrites], list[Graph]],
    sizes: Mapping[str, int],
    options: Options,
    search: Search,
) -> Plan:
    """A plan, or one that does the longest reduction in parts, which are then joined, where the cost model expects that to be faster.

    It is tried where the elements of the result are too few for all cores (Halide's `rfactor`).
    """
    cores = launch.threads(options.num_threads)
    long = [(n, s.name, k) for s in graph.stages for d in s.updates for k, n in _factors(s, d, sizes, cores)]
    if not long:
        return plan
    _, name, k = max(long)
    factored = {name: (k, PARTS * cores)}
    graphs = [g for g in make(Rewrites(factored=factored)) if g.outputs]
    other = search(graphs[0], sizes, options)
    if other.cost >= plan.cost or parts_name(name) not in graphs[0].by_name:
        return replace(plan, seconds=plan.seconds + other.seconds, asked=plan.asked + other.asked)
    tree = other.tree or default_schedule(graphs[0], target_of(options))
    return replace(
        other,
        tree=tree,
        others=(),
        factored=factored,
        seconds=plan.seconds + other.seconds,
        asked=plan.asked + other.asked,
    )


def _factors(s: Stage, d: Definition, sizes: Mapping[str, int], cores: int) -> Iterator[tuple[int, int]]:
    """Reduction dimensions of an update that may be done in parts, and is worth it, and their extents."""
    pure = math.prod(sizes_value(n, sizes) for n in d.dims)
    every = pure * math.prod(sizes_value(n, sizes) for n in d.rdims)
    for k, n in enumerate(d.rdims):
        if pure < FEW_TASKS * cores and every >= LONG and sizes_value(n, sizes) >= PARTS * cores and factors(s, d, k):
            yield k, sizes_value(n, sizes)


def _other(graph: Graph, plan: Plan, new: tuple[tuple[str, Graph], ...]) -> Searched:
    assert plan.tree is not None
    return Searched({graph.outputs: plan.tree}, plan.inlined, new, costs={graph.outputs: plan.cost})


def _is_legal(found: Searched, make: Callable[[Rewrites], list[Graph]]) -> bool:
    after = {g.outputs: g for g in make(found.rewrites()) if g.outputs}
    try:
        for outputs, tree in found.trees.items():
            check_tree(tree, after[outputs])
    except (ScheduleError, KeyError) as error:
        refused(error)
        return False
    return True


def built(made: Callable[[Searched], T], found: Searched) -> tuple[T, Searched]:
    """What `made` makes of searched schedules, and the schedules.

    Storage of stages that turn out not to slide is moved inwards, and what makes too long a block is unrolled less.

    Raises:
        ScheduleError: a schedule cannot be lowered for another reason.
    """
    while True:
        try:
            return made(found), found
        except (SlidingError, BlockError) as error:
            mend = storage_at_compute if isinstance(error, SlidingError) else rolled
            trees = {
                outputs: mend(tree, error.stage) if _has(tree, error.stage) else tree
                for outputs, tree in found.trees.items()
            }
            if trees == found.trees:
                raise
            log.debug("mended: %s", error)
            found = replace(found, trees=trees)


def _has(tree: Root, stage: str) -> bool:
    return any(c.stage == stage for c in computes(tree))


def refused(error: Exception) -> None:
    """A searched schedule is not legal, or cannot be lowered: a fault of the search, which costs time only, as the default schedule runs."""
    log.debug("a searched schedule is refused: %s", error)


def target_of(options: Options) -> Target:
    """What schedules must know of the machine that code is for."""
    return features.schedule_target(options.target)


# -- on disk


def kept(name: str, graph: Graph, options: Options) -> Plan | None:
    """The plan of a canonical Graph that this process or an earlier one made."""
    text = cache.load(name, options.cache_dir, options.cache, "plan") or _plans.get(name)
    return None if text is None else from_text(text, graph)


def keep(found: Searched, options: Options, measured: tuple[float, float] | None = None) -> None:
    """Put the new plans on the disk, and in this process.

    Args:
        measured: see `Plan`.
    """
    for name, graph in found.new:
        inlined = found.inlined & graph.by_name.keys()
        factored = {n: x for n, x in found.factored.items() if n in graph.by_name}
        cost = found.costs.get(graph.outputs, 0.0)
        text = to_text(Plan(found.trees.get(graph.outputs), inlined, cost, measured=measured, factored=factored), graph)
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        _plans[name] = text
        cache.store(
            name, text, {"tune": options.tune, "versions": cache.versions()}, options.cache_dir, options.cache, "plan"
        )


def plan_name(graph: Graph, sizes: Mapping[str, int], options: Options) -> str:
    """The name of a plan in the cache. It holds what was measured, so it is of this processor."""
    points = sum(math.prod(sizes_value(n, sizes) for n in d.extents) for s in graph.stages for d in s.definitions)
    bucket = round(math.log(max(points, 1), BUCKET))
    threads = launch.threads(options.num_threads)
    parts = (
        graph_key(graph).text,
        str(bucket),
        str(target_of(options)),
        str(threads),
        str(options.tune),
        str(options.fast_math),
        _model_digest(),
    )
    return "plan_" + cache.digest(*parts, machine.cpu(), cache.versions())[:40]


@functools.lru_cache(maxsize=1)
def _model_digest() -> str:
    return cache.digest(WEIGHTS.read_bytes().hex())


def to_text(found: Plan, graph: Graph) -> bytes:
    """A plan as it is kept: stages by position."""
    number = {s.name: f"s{k}" for k, s in enumerate(graph.stages)}
    number |= {parts_name(n): parts_name(number[n]) for n in found.factored}
    tree = None if found.tree is None else json.loads(renamed(found.tree, number).to_json())  # type: ignore[union-attr]
    inlined = sorted(number[n] for n in found.inlined)
    factored = {number[n]: x for n, x in found.factored.items()}
    return json.dumps(
        {"tree": tree, "inlined": inlined, "cost": found.cost, "measured": found.measured, "factored": factored}
    ).encode()


def from_text(text: bytes, graph: Graph) -> Plan | None:
    """The plan that was kept, for a Graph with the same key; None where it is not one."""
    names = {f"s{k}": s.name for k, s in enumerate(graph.stages)}
    try:
        data = json.loads(text)
        inlined = frozenset(names[n] for n in data["inlined"])
        for _, parts in data["factored"].values():
            check_number("rfactor", parts, MAX_PARTS, "parts")
        factored = {names[n]: (int(k), int(parts)) for n, (k, parts) in data["factored"].items()}
        names |= {parts_name(number): parts_name(names[number]) for number in data["factored"]}
        tree = None if data["tree"] is None else renamed(from_json(json.dumps(data["tree"])), names)
        cost = float(data["cost"])
        measured = None if data["measured"] is None else (float(data["measured"][0]), float(data["measured"][1]))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, ScheduleError) as error:
        log.debug("a plan is not usable: %s", error)
        return None
    return (
        Plan(tree, inlined, cost, measured=measured, factored=factored)
        if tree is None or isinstance(tree, Root)
        else None
    )
