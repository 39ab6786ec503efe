"""Random legal schedules for a GPU: blocks, threads, shared memory and registers."""

from __future__ import annotations

import random
from collections.abc import Collection

from hjit.sched.language.build import Path, Step, at, attached, loops_around, nest
from hjit.sched.language.check import check_tree, faults
from hjit.sched.language.definitions import is_associative, is_direct
from hjit.sched.language.groups import groups
from hjit.sched.language.tree import Loop, Root, Store, computes
from hjit.trace.ir.graph import Graph, Stage

SIZES = (1, 2, 3, 4, 8, 16, 32, 48)
TRIES = 40


def random_gpu_schedule(graph: Graph, rng: random.Random, inside: float = 0.7) -> Root:
    """A legal schedule; `inside`: how probable it is that a stage is not computed at the root."""
    root = Root(())
    consumers = graph.consumers()
    for s in reversed(graph.stages):
        root = _placed(graph, root, s, consumers[s.name], rng, inside)
    check_tree(root, graph, "cuda")
    return root


def _placed(graph: Graph, root: Root, s: Stage, consumers: Collection[str], rng: random.Random, inside: float) -> Root:
    placed = {c.stage for c in computes(root)} | {s.name}
    rest = Graph(graph.inputs, graph.scalars, tuple(x for x in graph.stages if x.name in placed), graph.outputs)
    for attempt in range(TRIES):
        is_plain = attempt > TRIES * 2 // 3
        site, store = ((), ()) if is_plain or s.name in graph.outputs else _place(root, consumers, rng, inside)
        nests = [nest(s.name, g, [] if is_plain else _loops(s, g, rng, root=not site)) for g in groups(s)]
        if is_plain:
            nests = [nest(s.name, g, _serial(s, g)) for g in groups(s)]
        memory = rng.choice(("heap", "heap", "shared", "register")) if site else "heap"
        if site:
            tree = attached(root, nests, site, store, Store(s.name, (), memory=memory))
        else:
            tree = Root((Store(s.name, tuple(nests)), *root.children))
        if next(faults(tree, rest), None) is None:
            return tree
    raise AssertionError(f"no legal schedule for {s}")


def _place(root: Root, consumers: Collection[str], rng: random.Random, inside: float) -> tuple[Path, Path]:
    """A random loop around all consumers, and a random node above it for the storage."""
    found = loops_around(root, consumers) if rng.random() < inside else []
    if not found:
        return (), ()
    site = rng.choice(found)
    above = [site[:k] for k in range(1, len(site)) if isinstance(at(root, site[:k]), (Loop, Store))]
    return site, rng.choice([*above, site, site, site])


def _serial(s: Stage, group: tuple[int, ...]) -> list[Step]:
    return [(k, "serial", None) for k in range(len(s.definitions[group[-1]].extents))]


def _loops(s: Stage, group: tuple[int, ...], rng: random.Random, root: bool) -> list[Step]:
    """Random loops over the dimensions of a nest."""
    d = s.definitions[group[-1]]
    pure, reduction = list(range(len(d.dims))), list(range(len(d.dims), len(d.extents)))
    rng.shuffle(pure)
    if is_associative(d):
        rng.shuffle(reduction)
    if rng.random() < 0.15:
        kind = "parallel" if root and rng.random() < 0.7 else "serial"
        return [*((k, kind, None) for k in pure), *((k, "serial", None) for k in reduction)]  # type: ignore[misc]
    blocks: list[Step] = []
    outer: list[Step] = []
    threads: list[Step] = []
    inner: list[Step] = []
    for k in pure:
        size = rng.choice(SIZES)
        match rng.choice("tbswc"):
            case "t":
                blocks.append((k, "gpu_block", None))
                threads.append((k, "gpu_thread", size))
            case "b":
                blocks.append((k, "gpu_block", None))
            case "s":
                outer.append((k, "serial", None))
                threads.append((k, "gpu_thread", size))
            case "w":
                threads.append((k, "gpu_thread", None))
            case "c":
                few = rng.choice((1, 2, 4))
                blocks.append((k, "gpu_block", None))
                outer.append((k, "serial", size * few * 2))
                threads.append((k, "gpu_thread", size * few))
                inner.append((k, rng.choice(("serial", "unroll")), few))
    if not root:
        outer = [*((k, "serial", size) for k, _, size in blocks), *outer]  # type: ignore[misc]
        blocks = []
    by_threads = is_associative(d) and is_direct(d) and rng.random() < 0.4
    if by_threads:
        outer += [(k, "serial", size) for k, _, size in threads]  # type: ignore[misc]
        threads = []
    if root and threads and rng.random() < 0.2:  # all blocks whole
        threads = [(k, kind, size, "shift_inwards") if size else (k, kind, size) for k, kind, size, *_ in threads]
    sums: list[Step] = [(k, "serial", None) for k in reduction]
    if reduction and is_associative(d) and is_direct(d) and not by_threads and rng.random() < 0.5:  # tiles, or lanes
        sums.append((reduction[-1], *rng.choice((("serial", 4), ("serial", 16), ("gpu_lane", 8), ("gpu_lane", 32)))))
    if by_threads and sums:
        k = rng.randrange(len(sums))
        sums[k] = (sums[k][0], "gpu_thread", None)
    elif not pure and reduction and rng.random() < 0.5:
        sums[0] = (sums[0][0], rng.choice(("gpu_block", "gpu_thread", "parallel")), None)
    if rng.random() < 0.5:
        return [*blocks, *outer, *threads, *inner, *sums]
    return [*blocks, *outer, *threads, *sums, *inner]
