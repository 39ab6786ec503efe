"""Local search: improves a finished schedule, one transform of its tree at a time, by the cost model that chose it.

The moves are those of the schedule-tree autoscheduler (`papers/schedule-tree-autoscheduler`, section 3), in
`hjit.sched.language.transforms`. The first move that lowers the cost is taken, until there is none. Moves are tried in
random order, those of the most expensive children of the root first, where most is to be gained.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from hjit.errors import ScheduleError
from hjit.sched.language import transforms
from hjit.sched.language.build import paths
from hjit.sched.language.tree import Loop, Node, Root, computes, dims_of, walk
from hjit.sched.nests.root_nests import RootNests
from hjit.sched.search.search import never
from hjit.sched.search.space import Space
from hjit.sched.search.templates import native_widths
from hjit.sched.search.thresholds import MIN_GAIN, REFINE_TILES
from hjit.sched.search.unrolled_bodies import own_compute, unrolled_instructions
from hjit.trace.ir.graph import Graph
from hjit.trace.passes.fusion import inline


@dataclass(frozen=True, slots=True)
class Schedule:
    """A complete schedule: its tree, and the stages that are inlined."""

    tree: Root
    inlined: frozenset[str]


@dataclass(frozen=True, slots=True)
class Refined:
    """The result of a local search.

    Attributes:
        moves: how many transforms were taken.
        costs: how many schedules were costed.
    """

    schedule: Schedule
    cost: float
    moves: int
    costs: int


Move = Callable[[], Schedule]


def refined(space: Space, start: Schedule, seed: int = 0, stop: Callable[[], bool] = never) -> Refined:
    """Apply moves as long as one lowers the cost.

    Args:
        start: legal.
        seed: of the order of the moves.
        stop: called before each move is tried; where it is true, the search ends with what it has.
    """
    rng = random.Random(seed)
    best, cost, taken, costs = start, _cost(space, start), 0, 0
    found = True
    while found:
        found = False
        for move in moves(space, best, rng):
            if stop():
                return Refined(best, cost, taken, costs)
            new = _made(space, move)
            if new is None:
                continue
            costs += 1
            space.counters.evaluations += 1
            now = _cost(space, new)
            if now < MIN_GAIN * cost:
                best, cost, taken, found = new, now, taken + 1, True
                break
    return Refined(best, cost, taken, costs)


def _made(space: Space, move: Move) -> Schedule | None:
    """The schedule after a move; None if it is not legal, or pruned."""
    try:
        new = move()
    except ScheduleError:
        return None
    return new if all(is_permitted(space, nest, new.inlined) for nest in new.tree.children) else None


def _cost(space: Space, of: Schedule) -> float:
    return space.schedule_cost(of.tree, of.inlined)


def moves(space: Space, of: Schedule, rng: random.Random) -> Iterator[Move]:
    """All transforms of a schedule, the most expensive child of the root first; illegal ones raise `ScheduleError`."""
    graph = inline(space.graph, set(of.inlined))
    costs = space.costs_of_nests(of.tree, of.inlined)
    for k in sorted(range(len(costs)), key=lambda k: -costs[k]):
        stages = tuple(dict.fromkeys(c.stage for c in computes(of.tree.children[k])))
        found = [*_of_loops(space, of, graph, k), *_of_stages(space, of, graph, stages)]
        rng.shuffle(found)
        yield from found
    yield from (partial(_at_root, space, of, name) for name in sorted(of.inlined))


def random_walk(space: Space, start: Schedule, steps: int, rng: random.Random) -> Schedule:
    """The schedule after some random moves that no rule forbids, whatever their cost."""
    for _ in range(steps):
        some = list(moves(space, start, rng))
        for move in rng.sample(some, len(some)):
            new = _made(space, move)
            if new is not None and _cost(space, new) < math.inf:
                start = new
                break
    return start


def _of_loops(space: Space, of: Schedule, graph: Graph, child: int) -> Iterator[Move]:
    """Moves of loops: split, resize, change the kind, interchange."""

    def moved(transform: Callable[..., Root], *more: object) -> Move:
        return lambda: replace(of, tree=transform(of.tree, graph, *more))

    for path, node in paths(of.tree.children[child], (child,)):
        if not isinstance(node, Loop):
            continue
        yield from (
            moved(transforms.change_type, path, kind) for kind in space.target.traits.loops if kind != node.kind
        )
        yield moved(transforms.reorder, path)
        yield from (moved(transforms.split, path, n) for n in REFINE_TILES)
        if node.size is not None:
            yield from (moved(transforms.resize, path, n) for n in (node.size * 2, node.size // 2, None) if n != 0)


def _of_stages(space: Space, of: Schedule, graph: Graph, stages: tuple[str, ...]) -> Iterator[Move]:
    """Moves of stages: compute or store one loop further out or in, or inline."""
    for name in stages:
        for transform in (
            transforms.hoist_compute,
            transforms.lower_compute,
            transforms.hoist_storage,
            transforms.lower_storage,
        ):
            yield partial(_transformed, of, graph, transform, name)
        if space.may_inline(space.graph.stage(name)):
            yield partial(_inlined, of, graph, name)


def _transformed(of: Schedule, graph: Graph, transform: Callable[[Root, Graph, str], Root], name: str) -> Schedule:
    return replace(of, tree=transform(of.tree, graph, name))


def _inlined(of: Schedule, graph: Graph, name: str) -> Schedule:
    return Schedule(transforms.inlined(of.tree, graph, name)[0], of.inlined | {name})


def _at_root(space: Space, of: Schedule, name: str) -> Schedule:
    """An inlined stage computed at the root."""
    rest = of.inlined - {name}
    graph = inline(space.graph, set(rest))
    nests = RootNests(graph, space.target)[name]
    return Schedule(transforms.computed_at_root(of.tree, graph, name, nests), rest)


# -- what the rules forbid of nests that transforms make; templates obey them anyway


def is_permitted(space: Space, nest: Node, inlined: frozenset[str]) -> bool:
    """Does a child of the root have neither too wide vectors nor too long unrolled bodies?"""
    if space.rules.native_vectors and any(
        isinstance(x, Loop) and x.kind == "vector" and (x.size or 1) > _widest(space, x) for x in walk(nest)
    ):
        return False
    return unrolled_instructions(space.nests, nest, inlined) <= space.rules.unrolled


def _widest(space: Space, loop: Loop) -> int:
    """Lanes of a native vector of the narrowest type that is worked on."""
    s = space.graph.stage(loop.stage)
    d = s.definitions[own_compute(loop).definitions[-1]]
    return space.sized.once(
        ("widest", loop.stage, d, loop.dim), lambda: max(native_widths(s, d, space.target, dims_of(loop.dim)[-1]))
    )
