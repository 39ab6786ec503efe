"""Runs the loops of a schedule tree over tables of definitions, iteration by iteration, and notes what happens. See `tests.sched.counting`."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hjit.sched.analysis.bounds import Reads
from hjit.sched.language.definitions import is_repeatable
from hjit.sched.language.tree import Compute, DimKey, Loop, Node, Root, Store, computes, dims_of, own, walk
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Dim, Indirect
from tests.sched.tables import Ints, Mask, Ranges, Regions, Tables, hull, joined, lengths

Evaluated = dict[int, dict[int, Mask]]  # for each computation of each of its definitions the points


@dataclass
class Realization:
    """One allocation of a stage: whether it is the middle one, and what happens while it lives."""

    middle: bool
    held: Ranges
    points: dict[int, int] = field(default_factory=dict)  # for each computation
    reads: dict[tuple[int, str], Ranges | None] = field(default_factory=dict)
    evaluated: Evaluated = field(default_factory=dict)


@dataclass
class Counted:
    """What is known of a stage at the end."""

    realizations: list[Realization] = field(default_factory=list)
    runs: list[list[Ranges | None]] = field(
        default_factory=list
    )  # of the loop around it: what is new at each iteration
    production: Ranges | None = None  # the middle one
    window: Ranges | None = None
    is_sliding: bool = False
    run_middle: int = 0
    tasks: dict[int, int] = field(default_factory=dict)  # of the nest of each computation
    written: dict[int, Ranges | None] = field(default_factory=dict)  # by the middle task
    outside: dict[tuple[int, str], Ranges | None] = field(default_factory=dict)  # read by it
    outside_evaluated: Evaluated = field(default_factory=dict)  # by it
    vector: dict[tuple[int, str], Ranges | None] = field(default_factory=dict)  # read by the middle vector
    vector_evaluated: Evaluated = field(default_factory=dict)  # by it
    tile: dict[int, tuple[int, int]] = field(default_factory=dict)
    produced: dict[int, int] = field(default_factory=dict)  # points of the middle production
    split: dict[int, tuple[int, int, int]] = field(
        default_factory=dict
    )  # whole vectors, single ones, points of the middle production
    block: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    calls: dict[int, dict[str, tuple[float, float]]] = field(default_factory=dict)
    stored: float = 0.0
    site: tuple[Node, ...] = ()


@dataclass
class Env:
    """A place, at one iteration of all loops around it."""

    base: dict[str, Ranges]
    regions: dict[str, dict[DimKey, tuple[int, int]]]
    middle: bool
    path: tuple[Node, ...]
    done: dict[str, Mask]  # of stages that slide along the innermost loop: what this run has computed
    run: dict[str, list[Ranges | None]]  # what is new of them at each iteration of it
    until_middle: bool  # is this the middle iteration, or one before it in the same run?


class Run:
    """Runs a schedule tree; `of` has what happened to each stage."""

    def __init__(
        self,
        graph: Graph,
        sizes: Mapping[str, int],
        root: Root,
        vector_bytes: int = 64,
        tasks: int | None = None,
        inlined: Collection[str] = (),
    ) -> None:
        self.graph, self.root, self.vector_bytes, self.tasks, self.inlined = graph, root, vector_bytes, tasks, inlined
        self.stages, self.reads = graph.by_name, Reads(graph)
        self.look = Tables(graph, sizes, inlined)
        self.arrays, self.shapes, self.tables = self.look.arrays, self.look.shapes, self.look.of
        self.orders = {x.stage: x.order for x in walk(root) if isinstance(x, Store)}
        self.aligns = {x.stage: x.align for x in walk(root) if isinstance(x, Store) and x.align}
        self.placed = {c.stage for c in computes(root)}
        self.rounds: dict[tuple[str, int], int] = {}  # stage, axis: what its part of the axis is made a multiple of
        for x in walk(root):
            if isinstance(x, Loop) and x.tail == "round_up":
                d = self.stages[x.stage].definitions[own(x, x.stage).definitions[-1]]
                for k, p in enumerate(d.target):
                    if p.mentions(Dim(x.dim)):  # type: ignore[arg-type]
                        c = p.coefficient(Dim(x.dim))  # type: ignore[arg-type]
                        self.rounds[x.stage, k] = math.lcm(
                            self.rounds.get((x.stage, k), 1), (x.size or 1) * (1 if c is None else c.const)
                        )
        self.of: dict[str, Counted] = {name: Counted() for name in self.placed}
        self.now: dict[str, Realization] = {}
        self.in_middle_task = False
        for child in root.children:
            self._child(child)

    # -- regions
    def needed(self, env: Env, under: list[Compute], served: Mapping[str, Mask]) -> dict[str, Ranges]:
        """The regions of the stages that begin under a place, from the elements that are read there; `served`: what of some is computed now."""
        here: dict[str, list[int]] = {}
        for c in under:
            here.setdefault(c.stage, []).extend(c.definitions)
        found: dict[str, Ranges] = {}
        order = [s.name for s in self.graph.stages if s.name in here]
        for name in reversed(order):
            if name in env.base:
                continue
            region: Ranges | None = None
            for consumer in order[order.index(name) + 1 :]:
                for n in here[consumer]:
                    table = self.tables[consumer, n]
                    if consumer in env.base:
                        among = table.inside(env.regions[consumer], env.base[consumer])
                    elif consumer in served:
                        among = np.atleast_1d(served[consumer][tuple(table.target)])
                    else:
                        among = table.writing(found[consumer])
                    for source, index, unknown, _ in table.loads:
                        if source == name:
                            region = joined(region, hull(index, among, unknown, self.shapes[name]))
            found[name] = self._whole(name, region)
        return found

    def _whole(self, name: str, region: Ranges | None) -> Ranges:
        """With the axes whole that cannot be divided, and pieces that are written side by side together."""
        shape = self.shapes[name]
        found = []
        for k, (n, c) in enumerate(zip(shape, self.reads.steps(name), strict=True)):
            low, high = (0, n - 1) if region is None or k in self.reads.whole_axes(name) else region[k]
            low, high, up = low // c * c, min(high // c * c + c - 1, n - 1), self.rounds.get((name, k), 1)
            found.append((low, min(low + -(-(high - low + 1) // up) * up - 1, n - 1)))
        return found

    def base_of(self, name: str, numbers: tuple[int, ...], elements: Mask) -> Ranges:
        """The iterations that write some elements."""
        table = self.tables[name, numbers[-1]]
        found = hull(table.points, np.atleast_1d(elements[tuple(table.target)]), (), tuple(0 for _ in table.points))
        return found or [(0, -1) for _ in table.points]

    def elements(self, name: str, region: Ranges) -> Mask:
        found = np.zeros(self.shapes[name], bool)
        found[tuple(slice(a, b + 1) for a, b in region)] = True
        return found

    # -- running
    def _child(self, child: Node) -> None:
        items, stores = flat([child])
        heads = {x.stage for x in items}
        for name in dict.fromkeys(x.stage for x in items):
            region = [(0, n - 1) for n in self.shapes[name]]
            self.now[name] = Realization(True, region)
            self.of[name].realizations.append(self.now[name])
            self.of[name].production = self.of[name].window = region
            self.of[name].site = (child,)
        for item in items:
            self._nest(item, child, [x for x in stores if x.stage not in heads])

    def _nest(self, item: Loop | Compute, child: Node, stores: list[Store]) -> None:
        head = item.stage
        base = self.base_of(head, own(item, head).definitions, np.ones(self.shapes[head], bool))
        chain, node = [], item
        while isinstance(node, Loop) and node.kind == "parallel":
            chain.append(node)
            items, inner = flat(node.children)
            if inner or len(items) != 1:
                break
            node = items[0]
        iterations = []
        for x in chain:
            n = math.prod(lengths([base[k] for k in dims_of(x.dim)]))
            iterations.append(-(-n // step_of(x)))
        each = (
            math.prod(iterations)
            if not chain
            else -(-math.prod(iterations) // min(math.prod(iterations), self.tasks or math.prod(iterations)))
        )
        blocks: list[int] = []
        for n in reversed(iterations):
            blocks.insert(0, min(each, n))
            each = -(-each // blocks[0])
        grid = [range(-(-n // b)) for n, b in zip(iterations, blocks, strict=True)]
        for c in computes(item):
            self.of[c.stage].tasks[c.definitions[-1]] = math.prod(map(len, grid))
        for block in itertools.product(*grid):
            middle = all(k == (len(g) - 1) // 2 for k, g in zip(block, grid, strict=True))
            regions: dict[DimKey, tuple[int, int]] = dict(enumerate(base))
            for x, k, b in zip(chain, block, blocks, strict=True):
                low, high = region(regions, base, x.dim)
                size = b * step_of(x)
                regions[x.dim] = low + k * size, min(low + (k + 1) * size - 1, high)
            env = Env({head: base}, {head: regions}, middle, (child,), {}, {}, middle)
            self.in_middle_task = middle
            self._store(stores, list(computes(item)), env)
            self._visit(item, env)
        self.in_middle_task = False

    def _store(self, stores: Iterable[Store], under: list[Compute], env: Env) -> None:
        stores = list(stores)
        if stores:
            regions = self.needed(env, under, {})
            for x in stores:
                if x.stage in regions:
                    self.now[x.stage] = Realization(env.middle, regions[x.stage])
                    self.of[x.stage].realizations.append(self.now[x.stage])

    def _visit(self, node: Node, env: Env) -> None:
        match node:
            case Compute():
                self._leaf(node, env)
            case Loop(kind="vector"):
                self._place(node, replace(env, path=(*env.path, node)))
            case Loop():
                self._turns(node, env)

    def _turns(self, node: Loop, env: Env) -> None:
        regions, step = env.regions[node.stage], step_of(node)
        low, high = region(regions, env.base[node.stage], node.dim)
        regions = {key: x for key, x in regions.items() if isinstance(node.dim, int) or key not in node.dim}
        starts = range(low, high + 1, step)
        run: dict[str, list[Ranges | None]] = {}
        done: dict[str, Mask] = {}
        for t, start in enumerate(starts):
            inside = {**env.regions, node.stage: {**regions, node.dim: (start, min(start + step - 1, high))}}
            middle, last = env.middle and t == (len(starts) - 1) // 2, env.middle and t <= (len(starts) - 1) // 2
            self._place(node, Env(env.base, inside, middle, (*env.path, node), done, run, last))
        for name, row in run.items():
            self.of[name].runs.append(row)
            if env.middle:
                self.of[name].run_middle = len(self.of[name].runs) - 1

    def _place(self, node: Loop, env: Env) -> None:
        if env.middle and node.kind in ("serial", "parallel"):
            for c in computes(node):
                if c.stage == node.stage and dims_of(node.dim)[0] < len(
                    self.tables[c.stage, c.definitions[-1]].definition.dims
                ):
                    self.of[c.stage].tile[c.definitions[-1]] = self._tile(env, c)
        items, stores = flat(node.children)
        new = list(dict.fromkeys(x.stage for x in items if x.stage not in env.base))
        under = [c for x in items for c in computes(x)]
        self._store(stores, under, env)
        kept_here = {x.stage for x in stores}
        parts: dict[str, Mask] = {}
        for name in reversed([s.name for s in self.graph.stages if s.name in new]):
            region = self.needed(env, under, parts)[name]
            parts[name] = self.elements(name, region)
            if name not in kept_here:
                old = env.done.get(name, np.zeros(self.shapes[name], bool))
                env.done[name] = old | parts[name]
                parts[name] = parts[name] & ~old
            self._note(name, region, parts[name], name not in kept_here, env)
        for x in items:
            if x.stage not in new:
                self._visit(x, env)
            elif parts[x.stage].any():
                base = self.base_of(x.stage, own(x, x.stage).definitions, parts[x.stage])
                middle = env.middle or (x.stage not in kept_here and env.until_middle)
                self._forget(x, middle)
                regions = {**env.regions, x.stage: dict(enumerate(base))}
                self._visit(x, Env({**env.base, x.stage: base}, regions, middle, env.path, {}, {}, middle))

    def _forget(self, item: Node, middle: bool) -> None:
        """A later production is nearer to the middle one."""
        for x in computes(item) if middle else ():
            self.of[x.stage].split.pop(x.definitions[-1], None)
            self.of[x.stage].vector_evaluated.pop(x.definitions[-1], None)
            for key in [k for k in self.of[x.stage].vector if k[0] == x.definitions[-1]]:
                del self.of[x.stage].vector[key]

    def _note(self, name: str, region: Ranges, part: Mask, sliding: bool, env: Env) -> None:
        """A production."""
        c = self.of[name]
        where = np.argwhere(part)
        new = None if not len(where) else [(int(a), int(b)) for a, b in zip(where.min(0), where.max(0), strict=True)]
        env.run.setdefault(name, []).append(new)
        c.is_sliding, c.site = sliding, env.path
        if env.middle:
            c.production, c.window = (new or region), region

    def _leaf(self, node: Compute, env: Env) -> None:
        name = node.stage
        c, now, last = self.of[name], self.now[name], node.definitions[-1]
        for n in node.definitions:
            table = self.tables[name, n]
            among = table.inside(env.regions[name], env.base[name])
            if len(table.points) < len(
                self.tables[name, last].points
            ):  # the initial value, once for all of the reduction
                inner, regions, base = self.tables[name, last], env.regions[name], env.base[name]
                first = all(
                    region(regions, base, k)[0] == base[k][0] for k in range(len(table.points), len(inner.points))
                )
                counted = int(among.sum()) if first else 0
            else:
                counted = int(among.sum())
            now.points[last] = now.points.get(last, 0) + counted
            _note_evaluated(now.evaluated, last, n, among)
            if self.in_middle_task:
                _note_evaluated(c.outside_evaluated, last, n, among)
            if env.middle:
                _note_evaluated(c.vector_evaluated, last, n, among)
            for source, index, unknown, _ in table.loads:
                found = hull(index, among, unknown, self.shapes[source])
                now.reads[last, source] = joined(now.reads.get((last, source)), found)
                if self.in_middle_task:
                    c.outside[last, source] = joined(c.outside.get((last, source)), found)
                if env.middle:
                    c.vector[last, source] = joined(c.vector.get((last, source)), found)
            if self.in_middle_task:
                unknown_target = [
                    k
                    for k, p in enumerate(table.definition.target)
                    if any(isinstance(a, Indirect) for m in p.terms for a in m)
                ]
                c.written[last] = joined(
                    c.written.get(last), hull(table.target, among, unknown_target, self.shapes[name])
                )
        if env.middle and last not in c.split:
            self._vectors(node, env)

    def _tile(self, env: Env, c: Compute) -> tuple[int, int]:
        """Points, and points of the pure dimensions."""
        table = self.tables[c.stage, c.definitions[-1]]
        points = table.points[:, table.inside(env.regions[c.stage], env.base[c.stage])]
        return points.shape[1], len(set(map(tuple, points[: len(table.definition.dims)].T.tolist())))

    # -- vectors
    def _vectors(self, node: Compute, env: Env) -> None:
        name, last = node.stage, node.definitions[-1]
        loops = [x for x in env.path if isinstance(x, Loop) and x.stage == name]
        base = env.base[name]
        whole = dict(enumerate(base))
        points = math.prod(lengths(base))
        self.of[name].produced[last] = sum(
            math.prod(lengths(base[: len(self.tables[name, n].points)])) for n in node.definitions
        )
        counts = [0, 0]
        self._lanes(
            loops, whole, base, frozenset(), False, is_repeatable(self.stages[name], node.definitions), last, counts
        )
        self.of[name].split[last] = counts[0], counts[1], points
        self.of[name].block[last], self.of[name].calls[last] = self._block(node, loops, base)

    def _lanes(
        self,
        loops: list[Loop],
        regions: Regions,
        base: Ranges,
        absorbed: frozenset[DimKey],
        vector: bool,
        shifts: bool,
        last: int,
        counts: list[int],
    ) -> None:
        """Runs the loops of a computation with whole vectors, as lowering does."""
        if not loops:
            counts[not vector] += 1
            return
        loop, *rest = loops

        def go(regions: Regions, absorbed: frozenset[DimKey], vector: bool) -> None:
            self._lanes(rest, regions, base, absorbed, vector, shifts, last, counts)

        def one(k: int, vector: bool) -> None:
            go({**regions, loop.dim: (k, k)}, absorbed | {loop.dim}, vector)

        if loop.size is not None and loop.dim in absorbed:
            go(regions, absorbed, vector)
            return
        low, high = region(regions, base, loop.dim)
        inner = [x for x in rest if x.dim == loop.dim]
        alone = all(c.stage == loop.stage for c in computes(loop))
        if loop.kind == "vector" or (
            alone and inner and inner[-1].kind == "vector" and all(x.kind == "unroll" for x in inner[:-1])
        ):
            lanes = (inner[-1] if inner else loop).size or 1
            tail = (inner[-1] if inner else loop).tail
            pure = len(self.tables[loop.stage, last].definition.dims)
            together = (inner[0].size or 1) if inner else lanes
            if shifts and tail not in ("guard_with_if", "predicate") and dims_of(loop.dim)[-1] < pure:
                for count in dict.fromkeys((together, lanes)):
                    if high - low + 1 >= count:  # the last ones start earlier, where they do not fit
                        for k in range(low, high + 1, count):
                            for j in range(0, count, lanes):
                                one(min(k, high - count + 1) + j, True)
                        return
                k = low
            else:
                k = low + (high - low + 1) // lanes * lanes
                for j in range(low, k, lanes):
                    one(j, True)
                if tail == "predicate" and k <= high:
                    one(k, True)
                    k = high + 1
            for j in range(k, high + 1):
                one(j, False)
            return
        step = inner[0].size or 1 if inner else 1
        for start in range(low, high + 1, step):
            go({**regions, loop.dim: (start, min(start + step - 1, high))}, absorbed, vector)

    def _block(
        self, node: Compute, loops: list[Loop], base: Ranges
    ) -> tuple[tuple[float, float, float], dict[str, tuple[float, float]]]:
        """Of a block of unrolled code scalar and vector loads for each vector, and loads for each scalar; calls of inlined stages for each of both.

        The block is in the middle of the image, at a multiple of its own length, so that divisions of the index have one pattern.
        """
        regions: dict[DimKey, tuple[int, int]] = {}
        copies: dict[DimKey, list[int]] = {}
        for k, loop in enumerate(loops):
            low, high = region(regions, base, loop.dim)
            step = next((x.size or 1 for x in loops[k + 1 :] if x.dim == loop.dim), 1)
            starts = range(low, high + 1, step) or range(low, low + 1)
            if loop.kind == "unroll":
                copies[loop.dim] = [a + start - low for a in copies.get(loop.dim, [0]) for start in starts]
            if loop.kind != "vector":
                start = starts[(len(starts) - 1) // 2]
                regions[loop.dim] = start, min(start + step - 1, high)
        name, vector = node.stage, next((x for x in loops if x.kind == "vector"), None)
        lanes = 1 if vector is None else vector.size or 1
        copied = [dict(zip(copies, moved, strict=True)) for moved in itertools.product(*copies.values())]
        groups = {g for moved in copied for g in self._loads_at(node, moved, copies, vector, lanes)}
        full = [
            n
            for n in node.definitions
            if len(self.tables[name, n].points) == len(self.tables[name, node.definitions[-1]].points)
        ]
        block = len(full) * math.prod(map(len, copies.values()))
        called = Counter(
            stage for stage, _ in {x for moved in copied for x in self._calls_at(node, moved, copies, vector, lanes)}
        )
        each = Counter(stage for n in node.definitions for stage, _ in self.tables[name, n].called)
        calls = {
            x: (n / block, n / block if vector is None else each[x] / len(node.definitions)) for x, n in called.items()
        }
        if vector is None:
            return (0.0, 0.0, len(groups) / block), calls
        scalars = vectors = 0
        for _, gathered, *at in groups:
            span = max(at) - min(at) + 1 if not gathered else math.inf if len(set(at)) > 1 else 1
            if span == 1 or span > 4 * lanes:
                scalars += 1 if span == 1 else lanes
            else:
                vectors += -(-int(span) // lanes)
        single = set(self._loads_at(node, {}, {}, None, 1))
        return (scalars / block, vectors / block, len(single) / len(full)), calls

    def _calls_at(
        self, node: Compute, moved: dict[DimKey, int], copies: dict[DimKey, list[int]], vector: Loop | None, lanes: int
    ) -> Iterator[tuple[str, bytes]]:
        """Every element of an inlined stage that one copy calls, lane by lane."""
        points = self._points_at(node, moved, copies, vector, lanes)
        for n in node.definitions:
            d = self.stages[node.stage].definitions[n]
            for stage, at in self.look.table(d, points[: len(d.extents)]).called:
                yield stage, at.tobytes()

    def _loads_at(
        self, node: Compute, moved: dict[DimKey, int], copies: dict[DimKey, list[int]], vector: Loop | None, lanes: int
    ) -> Iterator[tuple[Any, ...]]:
        """Source and addresses of every load of one copy, lane by lane, in the whole array; of gathers what they depend on."""
        name, points = node.stage, self._points_at(node, moved, copies, vector, lanes)
        for n in node.definitions:
            d = self.stages[name].definitions[n]
            for number, (source, index, unknown, by) in enumerate(self.look.table(d, points[: len(d.extents)]).loads):
                if unknown:
                    yield source, (n, number), *(tuple(points[k, j] for k in by) for j in range(lanes))
                    continue
                strides = self._strides(source, index)
                at = [int(sum(s * i for s, i in zip(strides, index[:, j], strict=True))) for j in range(lanes)]
                inner = self.shapes[source][-1] if self.shapes[source] else 1
                if lanes > 1 and 1 < at[1] - at[0] <= 4 and at[1] - at[0] == inner and strides[-1] == 1:
                    at = [x - x % inner for x in at]  # the channels of a pixel are loaded together
                yield source, None, *at

    def _points_at(
        self, node: Compute, moved: dict[DimKey, int], copies: dict[DimKey, list[int]], vector: Loop | None, lanes: int
    ) -> Any:
        """The points of the lanes of one copy, [dimensions, lanes]."""
        name = node.stage
        extents = [max(int(n.max(initial=0)) + 1, 1) for n in self.tables[name, node.definitions[-1]].points]
        points = np.array([[n // 2] * lanes for n in extents], np.int64).reshape(len(extents), lanes)
        for key in {*moved, *([] if vector is None else [vector.dim])}:
            own = range(lanes) if vector is not None and key == vector.dim else [0] * lanes
            length = max(copies.get(key, [0])) + (lanes if vector is not None and key == vector.dim else 1)
            first = math.prod(extents[k] for k in dims_of(key)) // 2 // length * length
            for j in range(lanes):
                flat_index = first + moved.get(key, 0) + own[j]
                for k in reversed(dims_of(key)[1:]):
                    flat_index, points[k, j] = divmod(flat_index, extents[k])
                points[dims_of(key)[0], j] = flat_index
        return points

    def _strides(self, source: str, index: Ints) -> list[int]:
        shape = self.shapes[source]
        order = self.orders.get(source, ()) or tuple(range(len(shape)))
        if source in self.stages and source not in self.placed:  # an unplaced stage suits its reader
            moving = [k for k in range(len(shape)) if len(set(index[k])) > 1]
            if len(moving) == 1:
                order = (*(k for k in range(len(shape)) if k != moving[0]), moving[0])
        found = [0] * len(shape)
        step = 1
        for axis in reversed(order):
            found[axis], step = step, step * self._aligned(source, shape)[axis]
        return found

    def _aligned(self, name: str, extents: Iterable[int]) -> list[int]:
        """Lengths of axes in memory."""
        extents = list(extents)
        return [-(-n // a) * a for n, a in zip(extents, self.aligns.get(name, [1] * len(extents)), strict=True)]


# -- parts of trees


def flat(children: Iterable[Node]) -> tuple[list[Any], list[Store]]:
    """What runs among some nodes, and what is stored around it."""
    items: list[Any] = []
    stores: list[Store] = []
    for x in children:
        if isinstance(x, Store):
            stores.append(x)
            more, inner = flat(x.children)
            items += more
            stores += inner
        else:
            items.append(x)
    return items, stores


def step_of(loop: Loop) -> int:
    """How far an iteration goes: the size of the next loop over the same dimension around the loop's first computation."""
    path = path_to(loop, own(loop, loop.stage))
    return next(
        (x.size or 1 for x in path[1:] if isinstance(x, Loop) and (x.stage, x.dim) == (loop.stage, loop.dim)), 1
    )


def path_to(node: Node, wanted: Compute) -> tuple[Node, ...]:
    """The nodes from `node` to a computation, both included."""
    if node is wanted:
        return (node,)
    for x in () if isinstance(node, Compute) else node.children:
        found = path_to(x, wanted)
        if found:
            return (node, *found)
    return ()


def region(regions: Regions, base: Ranges, key: DimKey) -> tuple[int, int]:
    """What is left of a dimension; of fused ones, of their number."""
    return regions[key] if key in regions else (0, math.prod(lengths([base[k] for k in dims_of(key)])) - 1)


def _note_evaluated(found: Evaluated, computation: int, definition: int, points: Mask) -> None:
    known = found.setdefault(computation, {})
    known[definition] = known[definition] | points if definition in known else points
