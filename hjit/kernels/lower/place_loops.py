"""The first pass of lowering: turns the schedule tree into loops around each definition.

Nest by nest (`build_nest`): the loops that are divided into tasks, then the walk down the tree, which infers bounds,
slides windows and chooses tails (`hjit.kernels.lower.placing.walk`). The loops are those of the tree: unrolled loops
are still loops, and vector loops still include the border.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hjit.kernels.lower import nest_merging
from hjit.kernels.lower.loopir import BEGIN, END, For, If, Let, Stmt
from hjit.kernels.lower.nest_merging import Renaming
from hjit.kernels.lower.placing import walk
from hjit.kernels.lower.placing.context import NestContext, Stmts, definition_of
from hjit.kernels.lower.placing.environment import Env, Remaining
from hjit.kernels.lower.placing.inner_loops import inner_loops, is_alone, step_of
from hjit.kernels.lower.placing.rows import rows_of
from hjit.kernels.lower.program import Nest, Program, Rows
from hjit.process import deadline
from hjit.sched.analysis.bounds import ComputeSite, Reads, infer_bounds, vector_axes, whole_region
from hjit.sched.language.build import nests, parallel_loops
from hjit.sched.language.definitions import is_associative, is_direct
from hjit.sched.language.memory import C_ORDER, LINE, Layout
from hjit.sched.language.tree import Compute, DimKey, Loop, Node, Root, Store, computes, dims_of, own
from hjit.sched.language.tree import walk as nodes
from hjit.trace.ir.analysis.costs import cost
from hjit.trace.ir.analysis.scans import scan_of
from hjit.trace.ir.graph import Graph, single_dim
from hjit.trace.ir.intervals import Interval
from hjit.trace.ir.poly import ONE, ZERO, Dim, Poly, extremum, poly


def place_loops(graph: Graph, schedule: Root, fast: bool = False) -> Program:
    """The loop nests of a Graph under a schedule.

    Args:
        fast: may sums of floats be accumulated in their own dtype?

    Raises:
        ScheduleError: a stage cannot slide along the loop that the schedule says.
    """
    layouts = {
        x.stage: found for x in nodes(schedule) if isinstance(x, Store) and (found := _layout(x, graph)) != C_ORDER
    }
    return Program(tuple(_nests(graph, list(nests(schedule)), layouts, fast)), layouts)


def _nests(graph: Graph, tops: list[Node], layouts: dict[str, Layout], fast: bool) -> list[Nest]:
    """The nests at the root; of many that differ in names only, all but the first are a `Renaming` of that one."""
    reads = Reads(graph)
    is_many = len(tops) >= nest_merging.MANY
    signatures = [nest_merging.signature_of(graph, layouts, top) if is_many else None for top in tops]
    first: dict[str, tuple[int, nest_merging.Signature]] = {}
    found: list[Nest] = []
    for number, (top, this) in enumerate(zip(deadline.within("lowering", tops), signatures, strict=True)):
        before = None if this is None else first.setdefault(this.text, (number, this))
        if this is None or before is None or before[0] == number:
            found.append(build_nest(reads, layouts, top, fast))
        else:
            found.append(_renamed(found[before[0]], top, nest_merging.renaming(this, *before)))
    return found


def _renamed(nest: Nest, top: Node, renaming: Renaming) -> Nest:
    """A nest that differs from another one in arrays and sizes only, as a `Renaming` of it."""
    assert isinstance(top, (Loop, Compute))
    count = None if nest.count is None else renaming.poly(nest.count)
    work, points = renaming.poly(nest.work), renaming.poly(nest.points)
    return replace(
        nest,
        stage=top.stage,
        body=(),
        count=count,
        work=work,
        writes=(top.stage,),
        points=points,
        renaming=renaming,
        rows=Rows(top.stage, ONE),
    )


def _layout(store: Store, graph: Graph) -> Layout:
    """The memory layout of a stage; rows whose length the call decides begin at cache lines, so that vectors do not
    straddle them."""
    s = graph.stage(store.stage)
    align = store.align
    if not align and len(s.shape) > 1 and s.name not in graph.outputs:
        row = store.order[-1] if store.order else len(s.shape) - 1
        if not s.shape[row].is_const:
            align = tuple(LINE // s.dtype.itemsize if k == row else 1 for k in range(len(s.shape)))
    return Layout(store.order, align)


# -- one nest


def build_nest(reads: Reads, layouts: dict[str, Layout], top: Node, fast: bool) -> Nest:
    """The loop nest of a node at the root."""
    assert isinstance(top, (Loop, Compute))
    stage = reads.stages[top.stage]
    local = tuple(dict.fromkeys(c.stage for c in computes(top) if c.stage != stage.name))
    first, loops = own(top, stage.name), parallel_loops(top)
    n = NestContext(
        reads,
        head=stage.name,
        layouts=layouts,
        round_up=_rounding(reads, top),
        vectors=vector_axes(reads, top) if local else {},
        is_doubled=any(isinstance(x, Loop) and x.tail == "shift_inwards" for x in nodes(top)),
        in_blocks=any(isinstance(x, Loop) and x.kind.startswith("gpu_") for x in nodes(top)),
        atomics=frozenset(_atomics(reads, top)),
        fast=fast,
    )
    env, lets = _outermost(n, top, local)
    env = env.opened(stage.name, reads.group(stage.name, first.definitions[-1]).dims(whole_region(stage)))
    work = sum((_work(reads, c) for c in computes(top)), ZERO)
    points = sum((_points(reads, c) for c in computes(top)), ZERO)
    counts = [_iterations(env.remains(x), step_of(x)) for x in loops]
    count = math.prod(counts, start=ONE) if loops or n.in_blocks else None
    if not loops:
        body = walk.place(n, (top,), env)[0]
    elif n.in_blocks:
        body = _blocks(n, loops, counts, env)
    else:
        body = _parallel(n, loops, counts, poly(BEGIN), poly(END), env)
    writes = (stage.name, *local)
    rows = rows_of(n, top, loops[0], counts[0], env) if loops and n.in_blocks else Rows(stage.name, ONE)
    return Nest(stage.name, (*lets, *body), count, work, writes, n.buffers, points, blocks=n.in_blocks, rows=rows)


def _outermost(n: NestContext, top: Node, local: tuple[str, ...]) -> tuple[Env, Stmts]:
    """The environment outside of all loops, and the names of bounds in it: of the stages computed inside, those stored
    nowhere in the tree have all of what the nest needs of them in memory."""
    if not local:
        return Env(), ()
    lets: list[Stmt] = []
    found = infer_bounds(ComputeSite(n.reads, computes(top), round_up=n.round_up), n.namer(lets, ".all"))
    inside = {x.stage for x in nodes(top) if isinstance(x, Store)}
    stores = {name: (0, found[name]) for name in local if name not in inside}
    return Env(stores=stores, regions=found), tuple(lets)


def _blocks(n: NestContext, loops: list[Loop], counts: list[Poly], env: Env) -> Stmts:
    """Iteration `BEGIN` of loops that count as one.

    Where the last block of a loop is shifted inwards, all are whole, unless there is less than one; that is code of its
    own, in which threads take single elements.
    """
    shifted = {k: env.remains(x) for k, x in enumerate(loops) if _is_shifted(x)}
    missing = [left.end - left.low - step_of(loops[k]) for k, left in shifted.items()]
    if not missing:
        return _block(n, loops, counts, env, frozenset())
    whole = _block(n, loops, counts, env, frozenset(shifted))
    single = _one_by_one(loops[-1], frozenset(x.dim for x in loops))
    clipped = _block(n, [*loops[:-1], single], counts, env, frozenset())
    return (If(functools.reduce(functools.partial(extremum, "min"), missing), whole, clipped),)


def _is_shifted(loop: Loop) -> bool:
    """Is the last block of a loop shifted inwards if it is not full?"""
    below = inner_loops(loop)
    return bool(below) and below[0].tail == "shift_inwards"


def _one_by_one(node: Node, tiled: frozenset[DimKey]) -> Any:
    """A nest without the loops over what one thread of its stage computes together, and over parts of a reduction.

    Args:
        tiled: dimensions of the loops over blocks; the first loop inside, which says how large a block is, stays.
    """
    match node:
        case Loop(kind="unroll" | "serial", size=int(), children=(inside,)) if node.dim not in tiled and is_alone(node):
            return _one_by_one(inside, tiled)
        case Loop():
            left = tiled - {node.dim} if node.size is not None else tiled
            return replace(node, children=tuple(_one_by_one(x, left) for x in node.children))
        case Store():
            return replace(node, children=tuple(_one_by_one(x, tiled) for x in node.children))
    return node


def _block(n: NestContext, loops: list[Loop], counts: list[Poly], env: Env, shifted: frozenset[int]) -> Stmts:
    """A block, of which the sides along some loops are whole."""
    lets: list[Stmt] = []
    for k, loop in enumerate(loops):
        left, step, var = env.remains(loop), step_of(loop), n.loop_var(loop)
        index = poly(BEGIN) if k == 0 else poly(BEGIN) % _divisor(counts[k:])
        first = index // _divisor(counts[k + 1 :]) * step + left.low
        if k in shifted:
            lets.append(Let(var, extremum("min", first, left.end - step)))
            env = env.within(loop, Interval.tile(poly(var), step), step)
        else:
            lets.append(Let(var, first))
            env = env.tile(loop, poly(var), step)
        env = env.deeper(var, step, poly(var))
    return (*lets, *walk.place(n, loops[-1].children, env)[0])


def _parallel(n: NestContext, loops: list[Loop], counts: list[Poly], begin: Poly, end: Poly, env: Env) -> Stmts:
    """Loops over the iterations ``begin .. end`` of parallel loops that count as one."""
    loop, step = loops[0], step_of(loops[0])
    left = env.remains(loop)
    if len(loops) == 1:
        last = end * step + left.low
        last = last if step == 1 else extremum("min", last, left.end)
        return walk.iterations(n, loop, env, begin * step + left.low, last)
    inner = _divisor(counts[1:])
    iteration = n.loop_var(loop, ".iteration")
    first, stop = n.var("first"), n.var("stop")
    lets: Stmts = (
        Let(first, extremum("max", begin - poly(iteration) * inner, ZERO)),
        Let(stop, extremum("min", end - poly(iteration) * inner, inner)),
    )
    low = poly(iteration) * step + left.low
    inside = env.at(loop, low) if step == 1 else env.within(loop, Interval.tile(low, step, left.interval.high))
    inside = inside.deeper(iteration, 1, begin)
    body = _parallel(n, loops[1:], counts[1:], poly(first), poly(stop), inside)
    return (For(iteration, begin // inner, (end - 1) // inner + 1, 1, (*lets, *body)),)


def _divisor(counts: Sequence[Poly]) -> Poly:
    """What an index over several loops is divided by; where there are no iterations at all it is not 0."""
    found = math.prod(counts, start=ONE)
    return ONE if found == ZERO else found


def _iterations(left: Remaining, step: int) -> Poly:
    n = left.end - left.low
    return n if step == 1 else (n + (step - 1)) // step


def _atomics(reads: Reads, top: Node) -> Iterator[tuple[str, int]]:
    """Definitions whose iterations update the same elements at once."""
    for x in nodes(top):
        if isinstance(x, Loop) and (x.kind == "parallel" or x.kind.startswith("gpu_")):
            compute = own(x, x.stage)
            d = definition_of(reads, compute)
            is_combined = (is_associative(d) and is_direct(d)) or scan_of(reads.stages[x.stage], d) is not None
            if dims_of(x.dim)[0] >= len(d.dims) and not is_combined:
                yield from ((x.stage, number) for number in compute.definitions)


def _rounding(reads: Reads, top: Node) -> dict[str, dict[int, int]]:
    """Stage -> axis -> what its part of the axis is made a multiple of, as loops with the tail "round_up" say."""
    found: dict[str, dict[int, int]] = {}
    for x in nodes(top):
        if isinstance(x, Loop) and x.tail == "round_up" and isinstance(x.dim, int):
            d = definition_of(reads, own(x, x.stage))
            for axis, p in enumerate(d.target):
                if single_dim(p, len(d.dims)) == x.dim:
                    c = p.coefficient(Dim(x.dim))
                    sizes = found.setdefault(x.stage, {})
                    sizes[axis] = math.lcm(sizes.get(axis, 1), (x.size or 1) * (c.const if c is not None else 1))
    return found


def _points(reads: Reads, compute: Compute) -> Poly:
    """The number of elements that a computation writes; an empty reduction still writes its initial value."""
    return math.prod(definition_of(reads, compute).dims, start=ONE)


def _work(reads: Reads, compute: Compute) -> Poly:
    """Estimated operations of a computation over the whole stage."""
    parts = [reads.stages[compute.stage].definitions[n] for n in compute.definitions]
    operations = poly(max(sum(cost(d.value) + 1 for d in parts), 1))
    return math.prod(parts[-1].extents, start=operations)
