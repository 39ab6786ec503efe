"""Random legal schedules.

Stages from the outputs back to the inputs: random tilings for the nests of each, then a random place among all where
it may be computed, and a random one where it may be stored.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from hjit.sched.language.build import Path, Step, at, attached, loops_around, nest
from hjit.sched.language.check import faults
from hjit.sched.language.definitions import free_from, is_associative, is_direct
from hjit.sched.language.groups import groups
from hjit.sched.language.tree import TAILS, DimKey, Loop, Root, Store, computes
from hjit.trace.ir.graph import Definition, Graph, Stage

SIZES = (2, 3, 4, 5, 8, 12, 16, 32, 48)
LANES = (2, 4, 8, 16)
TRIES = 30


def random_schedule(graph: Graph, rng: random.Random, inside: float = 0.7) -> Root:
    """A legal schedule; `inside`: how probable it is that a stage is not computed at the root."""
    root = Root(())
    consumers = graph.consumers()
    for s in reversed(graph.stages):
        root = _placed(graph, root, s, consumers[s.name], rng, inside)
    return root


def _placed(graph: Graph, root: Root, s: Stage, consumers: Collection[str], rng: random.Random, inside: float) -> Root:
    placed = {c.stage for c in computes(root)} | {s.name}
    rest = Graph(graph.inputs, graph.scalars, tuple(x for x in graph.stages if x.name in placed), graph.outputs)
    for attempt in range(TRIES):
        site, store = (
            _place(root, consumers, rng)
            if s.name not in graph.outputs and rng.random() < inside and attempt < TRIES // 2
            else ((), ())
        )
        nests = [
            nest(s.name, g, random_loops(s, g, rng, root=not site, plain=attempt > TRIES * 2 // 3)) for g in groups(s)
        ]
        order: tuple[int, ...] = ()
        align: tuple[int, ...] = ()
        if s.name not in graph.outputs and rng.random() < 0.2:
            order = tuple(rng.sample(range(len(s.shape)), len(s.shape)))
        if s.name not in graph.outputs and rng.random() < 0.1:
            align = tuple(rng.choice((1, 4, 16)) for _ in s.shape)
        if site:
            tree = attached(root, nests, site, store, Store(s.name, (), order, align))
        else:
            tree = Root((Store(s.name, tuple(nests), order, align), *root.children))
        if next(faults(tree, rest), None) is None:
            return tree
    raise AssertionError(f"no legal schedule for {s}")


def _place(root: Root, consumers: Collection[str], rng: random.Random) -> tuple[Path, Path]:
    """A random loop around all consumers, and a random node above it for the storage."""
    found = loops_around(root, consumers)
    if not found:
        return (), ()
    site = rng.choice(found)
    above = (
        [site[:k] for k in range(1, len(site)) if isinstance(at(root, site[:k]), (Loop, Store))]
        if rng.random() < 0.5
        else []
    )
    return site, rng.choice([*above, site])


def random_loops(s: Stage, group: tuple[int, ...], rng: random.Random, root: bool, plain: bool = False) -> list[Step]:
    """Random loops over the dimensions of a nest; `plain`: without tiles and vectors."""
    d = s.definitions[group[-1]]
    pure, reduction = list(range(len(d.dims))), list(range(len(d.dims), len(d.extents)))
    rng.shuffle(pure)
    associative = is_associative(d)
    if associative:
        rng.shuffle(reduction)
    free = reduction if associative and is_direct(d) else reduction[-1:] if free_from(s, d) < len(d.extents) else []
    lanes: list[DimKey | None] = [None, *pure, *free]
    vector = rng.choice(lanes) if not plain else None
    outer: list[Step] = []
    inner: list[Step] = []
    keys: list[DimKey] = [*pure]
    if len(pure) > 1 and rng.random() < 0.15:
        first = rng.randrange(len(d.dims) - 1)
        keys = [x for x in keys if x not in (first, first + 1)] + [(first, first + 1)]
        vector = rng.choice([None, (first, first + 1)])
    for k in keys:
        outer.append((k, "parallel" if root and not outer and rng.random() < 0.7 else "serial", None))
        if not plain and rng.random() < 0.4:
            size = rng.choice(SIZES)
            step = rng.choice(LANES)
            if rng.random() < 0.5:
                outer.append((k, "serial", size * step))
            if k == vector:
                inner.append((k, "unroll", step * rng.choice((1, 2, 3)) if rng.random() < 0.3 else step))
                inner.append((k, "vector", step))
            else:
                inner.append((k, rng.choice(("serial", "unroll")), rng.choice((step, 1, 2)) if step % 2 == 0 else step))
        elif k == vector:
            inner.append((k, "vector", rng.choice(LANES)))
    if root and not outer and reduction and rng.random() < 0.5:  # tasks that update the same elements
        return [(k, "parallel" if n == 0 else "serial", None) for n, k in enumerate(reduction)]
    steps = _woven(d, outer, inner, reduction, vector, rng, plain)
    return steps if plain else _tailed(steps, rng)


def _woven(
    d: Definition,
    outer: list[Step],
    inner: list[Step],
    reduction: list[int],
    vector: object,
    rng: random.Random,
    plain: bool,
) -> list[Step]:
    """Outer loops, then reductions among the inner loops."""
    loops: list[Step] = []
    for k in reduction:
        small = d.extents[k].is_const and d.extents[k].const <= 8
        kind = "unroll" if small and not plain and rng.random() < 0.5 else "serial"
        loops.append((k, kind, None))  # type: ignore[arg-type]
        if kind == "serial" and not plain and k != vector and rng.random() < 0.3:
            loops.append((k, rng.choice(("serial", "unroll")), rng.choice((2, 3, 4))))
    if vector in reduction:
        loops = [x for x in loops if x[0] != vector] + [(vector, "serial", None), (vector, "vector", rng.choice(LANES))]  # type: ignore[list-item]
        return [*outer, *_ordered(inner, rng), *loops]
    inner = _ordered(inner, rng)
    if rng.random() < 0.5:
        return [*outer, *inner, *loops]
    return [*outer, *loops, *inner]


def _tailed(steps: list[Step], rng: random.Random) -> list[Step]:
    """The steps, some inner loops with another tail."""
    return [(*x[:3], rng.choice(TAILS)) if x[2] is not None and rng.random() < 0.3 else x for x in steps]  # type: ignore[misc]


def _ordered(steps: list[Step], rng: random.Random) -> list[Step]:
    """The steps of different dimensions in random order, those of one dimension in theirs."""
    keys = [s[0] for s in steps]
    rng.shuffle(keys)
    queues = {k: [s for s in steps if s[0] == k] for k in keys}
    return [queues[k].pop(0) for k in keys]
