"""The first pass of lowering: the schedule tree, opened into loops around each definition.

A walk down the tree. On the way the `Env` knows what is left of every dimension; at each place where stages of their
own begin, bounds inference says how much of them is needed, and `hjit.kernels.lower.sliding_windows` what of it is new.
Loops are as the tree has them: unrolled ones are still loops, vector loops still run over the border, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from hjit.errors import SlidingError
from hjit.kernels.lower import alike
from hjit.kernels.lower.alike import Like
from hjit.kernels.lower.environment import Env, Remaining, not_negative
from hjit.kernels.lower.loopir import (
    BEGIN,
    END,
    Block,
    Buffer,
    For,
    If,
    Item,
    Let,
    Nest,
    Program,
    Reduce,
    ReductionLoop,
    ResetWindow,
    SlidingProduce,
    Stmt,
    Store,
    VectorLoop,
)
from hjit.kernels.lower.sliding_windows import Windows, slides_of
from hjit.kernels.lower.thresholds import EXACT_SUM_TERMS
from hjit.process import deadline
from hjit.sched.analysis.bounds import Reads, Region, infer_bounds, vector_axes, whole_region
from hjit.sched.language.build import flattened, nests, parallel_loops
from hjit.sched.language.definitions import is_associative, is_direct, is_repeatable
from hjit.sched.language.limits import check_buffer
from hjit.sched.language.memory import C_ORDER, LINE, Layout
from hjit.sched.language.tree import Compute, DimKey, Loop, Node, Root, computes, dims_of, own, walk
from hjit.sched.language.tree import Store as StoreNode
from hjit.trace.ir.costs import cost
from hjit.trace.ir.graph import Cast, Definition, Graph, Load, Op, Stage, renumber, substitute
from hjit.trace.ir.intervals import Interval
from hjit.trace.ir.poly import ONE, ZERO, Dim, Poly, Sym, Var, extremum, poly, single_dim

Stmts = tuple[Stmt, ...]


def place_loops(graph: Graph, schedule: Root, fast: bool = False) -> Program:
    """The loop nests of a Graph under a schedule.

    Args:
        fast: may sums of floats be accumulated in their own dtype?

    Raises:
        ScheduleError: a stage cannot slide along the loop that the schedule says.
    """
    layouts = {
        x.stage: found for x in walk(schedule) if isinstance(x, StoreNode) and (found := _layout(x, graph)) != C_ORDER
    }
    return Program(tuple(_nests(graph, list(nests(schedule)), layouts, fast)), layouts)


def _nests(graph: Graph, tops: list[Node], layouts: dict[str, Layout], fast: bool) -> list[Nest]:
    """The nests at the root; of many that are alike, all but the first are `Like` that one."""
    reads = Reads(graph)
    shapes = [alike.shape_of(graph, layouts, top) for top in tops] if len(tops) >= alike.MANY else [None] * len(tops)
    first: dict[str, tuple[int, alike.Shape]] = {}
    found: list[Nest] = []
    for number, (top, shape) in enumerate(zip(deadline.within("lowering", tops), shapes, strict=True)):
        before = None if shape is None else first.setdefault(shape.text, (number, shape))
        if shape is None or before is None or before[0] == number:
            found.append(_Nest(reads, layouts, top, fast).build())
        else:
            found.append(_like(found[before[0]], top, alike.like(shape, *before)))
    return found


def _like(nest: Nest, top: Node, like: Like) -> Nest:
    """The nest that differs from another one in arrays and sizes alone."""
    assert isinstance(top, (Loop, Compute))
    count = None if nest.count is None else like.poly(nest.count)
    work, points = like.poly(nest.work), like.poly(nest.points)
    return replace(
        nest, stage=top.stage, body=(), count=count, work=work, writes=(top.stage,), points=points, like=like
    )


def _layout(store: StoreNode, graph: Graph) -> Layout:
    """How a stage lies in memory; rows whose length the call decides begin with lines of the cache, so that vectors do
    not straddle them."""
    s = graph.stage(store.stage)
    align = store.align
    if not align and len(s.shape) > 1 and s.name not in graph.outputs:
        row = store.order[-1] if store.order else len(s.shape) - 1
        if not s.shape[row].is_const:
            align = tuple(LINE // s.dtype.itemsize if k == row else 1 for k in range(len(s.shape)))
    return Layout(store.order, align)


class _Nest:
    """Builds one nest."""

    def __init__(self, reads: Reads, layouts: dict[str, Layout], top: Node, fast: bool) -> None:
        assert isinstance(top, (Loop, Compute))
        self.reads, self.top, self.fast = reads, top, fast
        self.head = top.stage
        self.buffers: dict[str, Buffer] = {}
        self.layouts = layouts
        self.names: dict[str, int] = {}
        self.warm = 0
        self.round_up = _rounding(reads, top)
        self.atomic = False
        self.points: dict[
            tuple[str, int, tuple[Poly, ...]], Store
        ] = {}  # each is in vectors and in the code beside them
        self.doubled = any(isinstance(x, Loop) and x.tail == "shift_inwards" for x in walk(top))

    @cached_property
    def vectors(self) -> dict[str, frozenset[int]]:
        """The axes of each stage along which vectors run; needed only where a window slides."""
        return vector_axes(self.reads, self.top)

    # -- names
    def var(self, name: str) -> Var:
        """A new loop variable."""
        n = self.names[name] = self.names.get(name, 0) + 1
        return Var(name if n == 1 else f"{name}.{n}")

    def loop_var(self, loop: Loop, kind: str = "") -> Var:
        prefix = "" if loop.stage == self.head else f"{loop.stage}."
        return self.var(prefix + ".".join(f"d{k}" for k in dims_of(loop.dim)) + kind)

    # -- the nest
    def build(self) -> Nest:
        local = tuple(dict.fromkeys(c.stage for c in computes(self.top) if c.stage != self.head))
        stage = self.reads.stages[self.head]
        first = own(self.top, self.head)
        lets: list[Stmt] = []
        env = Env()
        if local:
            found = infer_bounds(self.reads, computes(self.top), {}, self.namer(lets, ".all"), round_up=self.round_up)
            inside = {x.stage for x in walk(self.top) if isinstance(x, StoreNode)}
            env = replace(env, stores={name: (0, found[name]) for name in local if name not in inside}, regions=found)
        env = env.opened(self.head, self.reads.part(stage.name, first.definitions[-1]).dims(whole_region(stage)))
        loops = parallel_loops(self.top)
        work, points = ZERO, ZERO
        for c in computes(self.top):
            work = work + _work(self.reads.stages[c.stage], c)
            points = points + _points(self.reads.stages[c.stage], c)
        if not loops:
            body = (*lets, *self.place((self.top,), env)[0])
            return Nest(self.head, body, None, work, (self.head, *local), self.buffers, points=points)
        pure = len(_definition(stage, first).dims)
        self.atomic = any(k >= pure for x in loops for k in dims_of(x.dim))
        counts = [_iterations(env.remains(x), step_of(x)) for x in loops]
        count = ONE
        for n in counts:
            count = count * n
        body = (*lets, *self.parallel(loops, counts, poly(BEGIN), poly(END), env))
        return Nest(self.head, body, count, work, (self.head, *local), self.buffers, self.warm, points)

    def parallel(self, loops: list[Loop], counts: list[Poly], begin: Poly, end: Poly, env: Env) -> Stmts:
        """Loops over the iterations ``begin .. end`` of parallel loops that count as one."""
        loop, step = loops[0], step_of(loops[0])
        left = env.remains(loop)
        if len(loops) == 1:
            last = end * step + left.low
            return self.iterations(
                loop, env, begin * step + left.low, last if step == 1 else extremum("min", last, left.end)
            )
        inner = ONE
        for n in counts[1:]:
            inner = inner * n
        inner = ONE if inner == ZERO else inner  # then there are no iterations at all
        iteration = self.loop_var(loop, ".iteration")
        first, stop = self.var("first"), self.var("stop")
        lets: Stmts = (
            Let(first, extremum("max", begin - poly(iteration) * inner, ZERO)),
            Let(stop, extremum("min", end - poly(iteration) * inner, inner)),
        )
        low = poly(iteration) * step + left.low
        inside = env.at(loop, low) if step == 1 else env.within(loop, Interval.tile(low, step, left.interval.high))
        body = self.parallel(loops[1:], counts[1:], poly(first), poly(stop), inside.deeper(iteration, 1, begin))
        return (For(iteration, begin // inner, (end - 1) // inner + 1, 1, (*lets, *body)),)

    # -- what runs at a place
    def place(self, children: tuple[Node, ...], env: Env) -> tuple[Stmts, int]:
        """The statements inside a loop, and how many iterations earlier than its first one it must start."""
        items, stores = flattened(children)
        new = list(dict.fromkeys(x.stage for x in items if x.stage not in env.intervals))
        if not new and not stores:
            return tuple(s for x in items for s in self.visit(x, env)), 0
        lets: list[Stmt] = []
        computed = [c for x in items for c in computes(x)]

        sliding = {n: env.regions[n] for n in new if n in env.stores and env.stores[n][0] < env.depth}
        vectors = self.vectors if sliding else {}
        windows = Windows(
            self.reads, computed, self.round_up, env.iteration, sliding, env.intervals, env.regions, new, vectors
        )
        first = windows.first_regions(self.namer(lets, ".first"))
        found = infer_bounds(
            self.reads, computed, env.intervals, self.namer(lets), windows.steady, self.round_up, env.regions, new
        )
        windows.finish(found, first)
        held = {s.stage: (env.depth, found[s.stage]) for s in stores if s.stage in found}
        env = replace(env, stores=env.stores | held, regions={**env.regions, **found})
        always: list[Stmt] = list(lets)
        body: list[Stmt] = []
        for k, x in enumerate(items):
            if x.stage not in new:
                body += self.visit(x, env)
                continue
            region = found[x.stage]
            always += self.allocate(x.stage, region, env)
            slide = windows.slides.get(x.stage)
            if slide is None:
                body += self.realise(x, region, env)
                continue
            var = self.var(f"{x.stage}.new")
            stmts = self.realise(x, slide.part(region, poly(var)), env)
            if not slide.new:  # all of it at the first iteration; what updates itself must not do so again
                stmts = (If(slide.end - poly(var) - 1, stmts),)
            last = not any(y.stage == x.stage for y in items[k + 1 :])
            one = SlidingProduce(x.stage, var, slide.first, slide.end, stmts, last, slide.axis, slide.window)
            if windows.warm:
                if body:
                    always.append(windows.when_begun(tuple(body)))
                    body = []
                always.append(one)
            else:
                body.append(one)
        if windows.warm and body:
            return (*always, windows.when_begun(tuple(body))), windows.warm
        return (*always, *body), windows.warm

    def realise(self, node: Loop | Compute, region: Region, env: Env) -> Stmts:
        """One nest of a stage over the part of it that a region needs."""
        part = self.reads.part(node.stage, own(node, node.stage).definitions[-1])
        return self.visit(node, env.opened(node.stage, part.dims(region)))

    def allocate(self, stage: str, region: Region, env: Env) -> Stmts:
        """The buffer of a stage that is computed here; names for its origin, where there is other code for this place,
        too."""
        if stage in self.buffers and not self.doubled:
            return ()
        held = env.stores[stage][1]
        origin = [held[k].low for k in range(len(region))]
        lengths = [_at_least_one(held[k].length) for k in range(len(region))]
        for k, n in enumerate(lengths):
            if not all(isinstance(a, Sym) for a in n.atoms()):  # minima of minima: a whole axis, and a short text
                origin[k], lengths[k] = ZERO, self.reads.stages[stage].shape[k]
        check_buffer(stage, [n.const for n in lengths if n.is_const])
        lets: Stmts = ()
        if self.doubled:
            names = [Var(f"{stage}.from{k}") for k in range(len(origin))]
            lets = tuple(map(Let, names, origin))
            old = self.buffers.get(stage)
            if old is not None:
                lengths = [extremum("max", a, b) for a, b in zip(lengths, old.lengths, strict=True)]
            origin = list(map(poly, names))
        self.buffers[stage] = Buffer(stage, tuple(origin), tuple(lengths), self.layouts.get(stage, C_ORDER))
        return lets

    def namer(self, lets: list[Stmt], kind: str = "") -> Callable[[str, Region], Region]:
        """Gives the bounds of regions names where they are long."""

        def bound(name: str, p: Poly) -> Poly:
            if len(p.terms) <= 2 and all(isinstance(a, (Var, Sym)) for a in p.atoms()):
                return p
            var = self.var(name)
            lets.append(Let(var, p))
            return poly(var)

        def named(stage: str, region: Region) -> Region:
            return tuple(
                replace(s, low=bound(f"{stage}.low{k}{kind}", s.low), high=bound(f"{stage}.high{k}{kind}", s.high))
                for k, s in enumerate(region)
            )

        return named

    # -- loops
    def visit(self, node: Node, env: Env) -> Stmts:
        match node:
            case Compute():
                return self.leaf(node, env)
            case Loop():
                return self.loop(node, env)
        raise AssertionError(node)

    def loop(self, node: Loop, env: Env) -> Stmts:
        if node.size is not None and (node.stage, node.dim) in env.absorbed:
            return self.place(node.children, env)[0]
        first = own(node, node.stage)
        d = _definition(self.reads.stages[node.stage], first)
        if dims_of(node.dim)[0] >= len(d.dims) and is_associative(d) and is_direct(d):
            return self.reduction(node, first, env)
        return self.run(node, env, lambda e: self.place(node.children, e)[0])

    def run(self, node: Loop, env: Env, build: Callable[[Env], Stmts]) -> Stmts:
        """A loop whose body `build` makes, given what is left inside it."""
        env = env.fused(node)
        left = env.remains(node)
        vector = self.vector_below(node)
        if vector is not None:
            lanes, copies = vector
            return self.vector(node, env, left, lanes, copies, build)
        if node.kind == "unroll":
            return self.unrolled(node, env, left, build)
        return self.iterations(node, env, left.low, left.end)

    def vector_below(self, node: Loop) -> tuple[int, int] | None:
        """Lanes and vectors at once of the loop, where nothing but vectors runs inside it."""
        if node.kind == "vector":
            return node.size or 1, 1
        below = _inner_loops(node)
        if not below or below[-1].kind != "vector" or any(x.kind != "unroll" for x in below[:-1]):
            return None
        if any(c.stage != node.stage for c in computes(node)):
            return None
        lanes = below[-1].size or 1
        together = node.size if node.kind == "unroll" and node.size else below[0].size or 1
        return lanes, max(together // lanes, 1)

    def iterations(self, node: Loop, env: Env, begin: Poly, end: Poly) -> Stmts:
        """A serial loop over part of its left, in steps of the next loop inside."""
        vector = self.vector_below(node)
        if vector is not None and node.kind != "vector":
            left = env.remains(node)
            part = replace(left.interval, low=begin, high=end - 1)
            return self.vector(
                node, env.fused(node), Remaining(part), *vector, lambda e: self.place(node.children, e)[0]
            )
        env = env.fused(node)
        left, step = env.remains(node), step_of(node)
        var = self.loop_var(node)
        v = poly(var)
        if step == 1:
            return self.counted(node, var, begin, end, 1, env.at(node, v))
        known = left.known if begin == left.low and end == left.end else None
        full = env.within(node, Interval.tile(v, step), step)
        if known is not None and known % step == 0:
            return self.counted(node, var, begin, end, step, full)
        shorter = env.within(node, Interval.tile(v, step, left.interval.high))
        inner = _inner_loops(node)[0]
        alone = all(c.stage == node.stage for c in computes(node))
        unrolled = alone and inner.kind == "unroll"
        if inner.tail == "shift_inwards" or (unrolled and inner.tail == "auto" and self.is_repeatable(node)):
            few = (
                self.one_by_one(node, env, begin, end)
                if unrolled
                else self.counted(node, var, begin, end, step, shorter)
            )
            many = self.counted(node, var, begin, end, step, full, limit=left.end)
            return (If(left.end - left.low - step, many, few),)
        if unrolled:
            stop = begin + not_negative(end - begin, left.interval.partial) // step * step
            return (*self.counted(node, var, begin, stop, step, full), *self.one_by_one(node, env, stop, end))
        return self.counted(node, var, begin, end, step, shorter)

    def is_repeatable(self, node: Loop) -> bool:
        """May iterations of a loop be run twice?"""
        return is_repeatable(self.reads.stages[node.stage], own(node, node.stage).definitions)

    def one_by_one(self, node: Loop, env: Env, begin: Poly, end: Poly) -> Stmts:
        """The loop in steps of one, loops over the same dimension inside it gone."""
        var = self.loop_var(node)
        return self.counted(node, var, begin, end, 1, env.at(node, poly(var)).absorb(node))

    def counted(
        self, node: Loop, var: Var, begin: Poly, end: Poly, step: int, env: Env, limit: Poly | None = None
    ) -> Stmts:
        """``for var in range(begin, end, step)`` around the children of a node."""
        body, warm = self.place(node.children, env.deeper(var, step, begin))
        sliding = slides_of(body)
        if limit is not None and sliding:
            raise SlidingError(
                sliding[0],
                f"{sliding[0]} cannot slide along {var}: its last iteration is shifted inwards; "
                "store it inside that loop",
            )
        resets = tuple(ResetWindow(s) for s in sliding)
        if node.kind == "parallel":
            self.warm = max(self.warm, warm)
        return (*resets, For(var, begin - warm * step, end, step, body, limit))

    def unrolled(self, node: Loop, env: Env, left: Remaining, build: Callable[[Env], Stmts]) -> Stmts:
        """A loop of which there is to be code for each iteration; where they are too many or too few, one that is
        counted."""
        step = step_of(node)
        d = _definition(self.reads.stages[node.stage], own(node, node.stage))
        pure = dims_of(node.dim)[-1] < len(d.dims)
        n = left.known

        def one_by_one() -> For:
            var = self.loop_var(node)
            return For(var, left.low, left.end, 1, build(env.at(node, poly(var)).absorb(node).deeper(var, 1, left.low)))

        if n is None and node.size is not None:
            full = Remaining(
                Interval(
                    left.low, left.low + (node.size - 1), left.interval.base, left.interval.first, left.interval.last
                ),
                node.size,
            )
            rest = one_by_one()
            many = self.unrolled(node, env.within(node, full.interval, node.size), full, build)
            return (If(left.end - left.low - node.size, many, (rest,)),)
        if n is None or n % step or (env.scalar and pure) or (d.order == "sequential" and not pure):
            return (one_by_one(),)
        var = self.loop_var(node, ".unrolled")
        v = poly(var)
        inside = env.at(node, v) if step == 1 else env.within(node, Interval.tile(v, step), step)
        return (For(var, left.low, left.end, step, build(inside), kind="unroll_and_jam" if pure else "unroll"),)

    def vector(
        self, node: Loop, env: Env, left: Remaining, lanes: int, copies: int, build: Callable[[Env], Stmts]
    ) -> Stmts:
        """Vectors over a left, and single elements where no vector fits."""
        var = self.loop_var(node)
        inside = env.at(node, poly(var)).absorb(node).deeper(var, 1, left.low)
        single = replace(inside, scalar=True)
        if lanes == 1:
            return (For(var, left.low, left.end, 1, build(single)),)
        kind = _vector_of(node).tail
        tail = (
            "predicate"
            if kind == "predicate"
            else "shift_inwards"
            if kind != "guard_with_if" and self.is_repeatable(node)
            else "guard_with_if"
        )
        return (
            VectorLoop(
                var, left.low, left.end, left.low, left.end, lanes, copies, 1, tail, build(inside), build(single)
            ),
        )

    # -- reductions
    def reduction(self, node: Loop, compute: Compute, env: Env) -> Stmts:
        """Accumulators in registers, over all loops from the first reduction dimension on."""
        s = self.reads.stages[node.stage]
        d = _definition(s, compute)
        chain = _chain(node)
        for x in chain:
            key = (x.stage, x.dim)
            is_turn = key in env.remaining and env.remaining[key].size == step_of(
                x
            )  # one iteration is all that is left
            if dims_of(x.dim)[0] < len(d.dims) and key not in env.absorbed and not is_turn:
                return self.run(x, env, lambda e: self.reduction(node, compute, e))
        env, loops = self.headers(chain, d, env)
        return (self.reduce(s, compute, env, loops),)

    def headers(self, chain: list[Loop], d: Definition, env: Env) -> tuple[Env, tuple[ReductionLoop, ...]]:
        """The reduction loops of a chain."""
        iterations: list[ReductionLoop] = []
        done: set[DimKey] = set()
        for x in chain:
            if dims_of(x.dim)[0] < len(d.dims) or x.dim in done:
                continue
            left = env.remains(x)
            var = self.var(f"r{x.dim}")
            v = poly(var)
            below = _inner_loops(x)
            vector = self.vector_below(x)
            if vector is not None and below:
                iterations.append(ReductionLoop(var, left.low, left.end, 1, *vector))
                env = env.at(x, v)
                done.add(x.dim)
            elif x.kind == "unroll" or (below and below[0].kind == "unroll"):
                size = left.known if x.kind == "unroll" else below[0].size
                iterations.append(ReductionLoop(var, left.low, left.end, 1, 1, size or 1))
                env = env.at(x, v)
                done.add(x.dim)
            elif below:
                size = below[0].size or 1
                iterations.append(ReductionLoop(var, left.low, left.end, size))
                env = env.within(x, Interval.tile(v, size, left.interval.high))
            else:
                iterations.append(ReductionLoop(var, left.low, left.end))
                env = env.at(x, v)
        return env, tuple(iterations)

    def reduce(self, s: Stage, compute: Compute, env: Env, loops: tuple[ReductionLoop, ...]) -> Reduce:
        d = _definition(s, compute)
        assert isinstance(d.value, Op)
        at = _point(env.intervals[s.name], len(d.extents))
        change = renumber(at)
        old, element = d.value.args
        op, out = d.value.name, d.value.dtype
        points = 1
        for n in d.rdims:
            points = points * n.const if n.is_const and points else 0
        dtype, compensated, products = out, False, False
        if (
            op == "add"
            and out.kind == "f"
            and not 0 < points <= EXACT_SUM_TERMS
            and not (self.fast and out.itemsize > 2)
        ):
            dtype = np.dtype(np.float64)
            products = (
                isinstance(element, Op)
                and element.name == "multiply"
                and element.dtype == out
                and loops[-1].lanes == 1
                and out.itemsize > 2
            )
            if isinstance(element, Cast) and element.arg.dtype == dtype:
                element = element.arg
            compensated = element.dtype == dtype and not self.fast
        index = tuple(p.substitute(change) for p in d.target)
        if len(compute.definitions) == 2:
            initial = substitute(s.definitions[compute.definitions[0]].value, renumber(index))
        else:
            initial = substitute(old, change)
        return Reduce(
            s.name, op, (Item(index, initial, substitute(element, change)),), loops, dtype, out, compensated, products
        )

    # -- leaves
    def leaf(self, node: Compute, env: Env) -> Stmts:
        s = self.reads.stages[node.stage]
        puts = [self.put(s, n, _point(env.intervals[s.name], len(s.definitions[n].extents))) for n in node.definitions]
        ahead = dict.fromkeys(x for n in node.definitions for x in self.ahead(node, s.definitions[n], env))
        return (Block(tuple(puts), tuple(ahead)),)

    def put(self, s: Stage, number: int, point: tuple[Poly, ...]) -> Store:
        """What a definition writes at a point of its loops."""
        found = self.points.get((s.name, number, point))
        if found is None:
            d, change = s.definitions[number], renumber(point)
            value, how = (
                (d.value.args[1], d.order)
                if self.atomic and s.name == self.head and isinstance(d.value, Op)
                else (d.value, None)
            )
            found = Store(s.name, tuple(p.substitute(change) for p in d.target), substitute(value, change), how)
            self.points[s.name, number, point] = found
        return found

    def ahead(self, node: Compute, d: Definition, env: Env) -> Iterator[Load]:
        """What a definition will read where its stage says so: the last of neighbours, as iterations before have
        fetched the others."""
        point = _point(env.intervals[node.stage], len(d.extents))
        for source, dim, iterations in node.ahead:
            change = renumber([p + iterations if k == dim else p for k, p in enumerate(point)])
            later = [substitute(x, change) for x in d.loads if x.source == source]
            last = sorted((x for x in later if isinstance(x, Load)), key=lambda x: [p.const for p in x.index])
            found = {tuple(p if p.is_const else p - p.const for p in x.index): x for x in last}
            yield from found.values()


def _at_least_one(n: Poly) -> Poly:
    """Regions are never empty, even where their consumers are."""
    return poly(max(n.const, 1)) if n.is_const else n


def _point(intervals: dict[int, Interval], n: int) -> tuple[Poly, ...]:
    return tuple(intervals[k].low for k in range(n))


def _definition(s: Stage, compute: Compute) -> Definition:
    """The definition whose dimensions the loops of a computation run over."""
    return s.definitions[compute.definitions[-1]]


def _rounding(reads: Reads, top: Node) -> dict[str, dict[int, int]]:
    """Stage -> axis -> what its part of the axis is made a multiple of, as loops with the tail "round_up" say."""
    found: dict[str, dict[int, int]] = {}
    for x in walk(top):
        if isinstance(x, Loop) and x.tail == "round_up" and isinstance(x.dim, int):
            d = _definition(reads.stages[x.stage], own(x, x.stage))
            for axis, p in enumerate(d.target):
                if single_dim(p, len(d.dims)) == x.dim:
                    c = p.coefficient(Dim(x.dim))
                    sizes = found.setdefault(x.stage, {})
                    sizes[axis] = math.lcm(sizes.get(axis, 1), (x.size or 1) * (c.const if c is not None else 1))
    return found


def _vector_of(node: Loop) -> Loop:
    """The vector loop that a loop is, or that runs inside it."""
    return node if node.kind == "vector" else _inner_loops(node)[-1]


def _chain(node: Loop) -> list[Loop]:
    """A loop and the loops inside it, each the only child of the one before."""
    found = [node]
    while isinstance(found[-1].children[0], Loop):
        found.append(found[-1].children[0])
    return found


def _inner_loops(node: Loop) -> list[Loop]:
    """The loops of the same stage and dimension inside a loop, outermost first."""
    found: list[Loop] = []

    def visit(n: Node) -> bool:
        if isinstance(n, Loop) and n.stage == node.stage and n.dim == node.dim:
            found.append(n)
        if isinstance(n, Compute):
            return n.stage == node.stage
        return any(visit(c) for c in n.children)

    for c in node.children:
        if visit(c):
            break
        found.clear()
    return found


def step_of(node: Loop) -> int:
    """How far one iteration of a loop goes: the size of the next loop over the same dimension."""
    below = _inner_loops(node)
    return (below[0].size or 1) if below else 1


def _iterations(left: Remaining, step: int) -> Poly:
    n = left.end - left.low
    return n if step == 1 else (n + (step - 1)) // step


def _points(s: Stage, compute: Compute) -> Poly:
    """Elements that a computation writes; a reduction of nothing writes its initial value."""
    points = ONE
    for n in _definition(s, compute).dims:
        points = points * n
    return points


def _work(s: Stage, compute: Compute) -> Poly:
    """Estimated operations of a computation over the whole stage."""
    parts = [s.definitions[n] for n in compute.definitions]
    work = poly(max(sum(cost(d.value) + 1 for d in parts), 1))
    for n in parts[-1].extents:
        work = work * n
    return work
