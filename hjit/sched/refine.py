"""Local search: a finished schedule made cheaper, one transform of its tree at a time, under the cost model that chose it.

The moves are those of the schedule-tree autoscheduler (`papers/schedule-tree-autoscheduler`, section 3), in
`hjit.sched.transforms`. The first one that makes the schedule cheaper is taken, and the next one looked for, until none is
left. Moves are tried in a random order, those of the dearest children of the root first: most of what there is to gain is there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from hjit.errors import ScheduleError
from hjit.sched import transforms
from hjit.sched.build import paths
from hjit.sched.search import never
from hjit.sched.space import Space
from hjit.sched.tree import KINDS, Loop, Root, computes
from hjit.trace.canonical import inline
from hjit.trace.graph import Graph

SIZES = tuple(2**k for k in range(1, 10))  # of new tiles
GAIN = 0.999  # how much cheaper a schedule is that counts as cheaper


@dataclass(frozen=True, slots=True)
class Schedule:
    """A complete schedule: its tree, and the stages that are inlined."""

    tree: Root
    inlined: frozenset[str]


@dataclass(frozen=True, slots=True)
class Refined:
    """What a local search came to.

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
    """The schedule after all moves that make it cheaper.

    Args:
        start: legal.
        seed: of the order of the moves.
        stop: asked before each move is tried; where it is true, the search ends with what it has.
    """
    rng = random.Random(seed)
    best, cost, taken, costs = start, _cost(space, start), 0, 0
    found = True
    while found:
        found = False
        for move in moves(space, best, rng):
            if stop():
                return Refined(best, cost, taken, costs)
            try:
                new = move()
            except ScheduleError:
                continue
            if not all(map(space.has_native_vectors, new.tree.children)):
                continue
            costs += 1
            space.tally.asked += 1
            now = _cost(space, new)
            if now < GAIN * cost:
                best, cost, taken, found = new, now, taken + 1, True
                break
    return Refined(best, cost, taken, costs)


def _cost(space: Space, of: Schedule) -> float:
    return sum(space.costs_of_nests(of.tree, of.inlined))


def moves(space: Space, of: Schedule, rng: random.Random) -> Iterator[Move]:
    """All transforms of a schedule, those in the dearest child of the root first; one that is not legal raises `ScheduleError`."""
    graph = inline(space.graph, set(of.inlined))
    costs = space.costs_of_nests(of.tree, of.inlined)
    for k in sorted(range(len(costs)), key=lambda k: -costs[k]):
        stages = tuple(dict.fromkeys(c.stage for c in computes(of.tree.children[k])))
        found = [*_of_loops(space, of, graph, k), *_of_stages(space, of, graph, stages)]
        rng.shuffle(found)
        yield from found
    yield from (partial(_at_root, space, of, name) for name in sorted(of.inlined))


def walked(space: Space, start: Schedule, steps: int, rng: random.Random) -> Schedule:
    """The schedule some random moves away, none of which a rule forbids; the cost does not matter."""
    for _ in range(steps):
        some = list(moves(space, start, rng))
        for move in rng.sample(some, len(some)):
            try:
                new = move()
            except ScheduleError:
                continue
            if _cost(space, new) < inf:
                start = new
                break
    return start


def _of_loops(space: Space, of: Schedule, graph: Graph, child: int) -> Iterator[Move]:
    """Loops split, resized, of another kind, and exchanged."""

    def moved(transform: Callable[..., Root], *more: object) -> Move:
        return lambda: replace(of, tree=transform(of.tree, graph, *more))

    for path, node in paths(of.tree.children[child], (child,)):
        if not isinstance(node, Loop):
            continue
        yield from (moved(transforms.change_type, path, kind) for kind in KINDS if kind != node.kind)
        yield moved(transforms.reorder, path)
        yield from (moved(transforms.split, path, n) for n in SIZES)
        if node.size is not None:
            yield from (moved(transforms.resize, path, n) for n in (node.size * 2, node.size // 2, None) if n != 0)


def _of_stages(space: Space, of: Schedule, graph: Graph, stages: tuple[str, ...]) -> Iterator[Move]:
    """Stages computed or stored one loop further out or in, or inlined."""
    for name in stages:
        for transform in (transforms.hoist_compute, transforms.lower_compute, transforms.hoist_storage, transforms.lower_storage):
            yield lambda name=name, transform=transform: replace(of, tree=transform(of.tree, graph, name))  # type: ignore[misc]
        if space.may_inline(space.graph.stage(name)):
            yield lambda name=name: Schedule(transforms.inlined(of.tree, graph, name)[0], of.inlined | {name})  # type: ignore[misc]


def _at_root(space: Space, of: Schedule, name: str) -> Schedule:
    """An inlined stage computed at the root."""
    rest = of.inlined - {name}
    return Schedule(transforms.computed_at_root(of.tree, inline(space.graph, set(rest)), name, space.target), rest)
