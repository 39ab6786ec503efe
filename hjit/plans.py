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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from hjit import cache
from hjit.errors import BlockError, ScheduleError, SlidingError
from hjit.kernels import features, launch
from hjit.options import Options
from hjit.sched.check import check
from hjit.sched.default import Target, default_schedule
from hjit.sched.transforms import rolled, storage_at_compute
from hjit.sched.tree import Root, computes, from_json, renamed
from hjit.trace.graph import Graph
from hjit.trace.key import graph_key
from hjit.trace.poly import sizes_value
from hjit.trace.rewrites import AS_IT_IS, Rewrites

if TYPE_CHECKING:
    from hjit.sched.refine import Schedule
    from hjit.sched.search import Record

log = logging.getLogger("hjit")
T = TypeVar("T")

WEIGHTS = Path(__file__).parent / "model" / "weights.npz"
BUCKET = 4  # sizes that differ by less than about this factor share a plan
MOST_PLANS = 500  # of this process
LONGEST_BLOCK = 5000  # instructions of code without a branch: the backend's time grows faster than they do, and nobody waits for a guess
BUILT_SECONDS = {"greedy": 0.5, "refined": 10.0, "beam": 10.0}  # of compiling, after which what else was found is not compiled any more

_plans: dict[str, bytes] = {}  # of this process by name, for where there is no disk to keep them


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search decided on for the Graphs of one function; a `hjit.options.Scheduler`.

    Attributes:
        trees: by the outputs of the Graphs; others have the default schedule.
        inlined: stages that are computed wherever they are read.
        new: names and Graphs of the plans that no process has measured yet.
        others: what else is worth measuring then.
    """

    longest_block: ClassVar[float] = LONGEST_BLOCK
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


Search = Callable[[Graph, Mapping[str, int], Options], Plan]  # the plan of a canonical Graph at some sizes


def scheduled(make: Callable[[Rewrites], list[Graph]], sizes: Mapping[str, int], options: Options, search: Search) -> Searched | None:
    """The schedules of the Graphs of a function; None where the default ones are the best.

    Args:
        make: the Graphs, with some rewrites.
        sizes: numbers of the run-time sizes by name.
        search: what makes a plan where there is none.
    """
    graphs = [g for g in make(AS_IT_IS) if g.outputs]
    named = [(plan_name(g, sizes, options), g) for g in graphs]
    known = [kept(name, g, options) for name, g in named]
    plans = [search(g, sizes, options) if p is None else p for p, g in zip(known, graphs, strict=True)]
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
            trees = {outputs: mend(tree, error.stage) if _has(tree, error.stage) else tree for outputs, tree in found.trees.items()}
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
    return features.schedule_target(features.target_features(options.target))


# -- on disk


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

