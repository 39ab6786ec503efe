"""Tiled reductions: the operands that the threads of a block share are staged in shared memory, tile after tile.

In a matrix product, all threads of a row of results read the same row of one operand, and all threads of a column the
same column of the other. If the schedule tiles the reduction, the threads of a block copy the operands of a tile, wait,
and then accumulate their own results over the tile, in registers that live from tile to tile. A thread has several
adjacent results (`unroll`), and so reads fewer elements for each. Anything that several threads read counts as an
operand, including the window of a stencil.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hjit.kernels.lower.loopir import Block, Reduce, ReductionLoop, Set, Stmt, Store, ThreadLoop, Threads
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.passes.block_reductions import Accumulator, Reductions, joining, nested, stored
from hjit.kernels.lower.program import Buffer, Nest, shared_bytes
from hjit.kernels.lower.thresholds import PRODUCTS, SUMS_OF_PRODUCTS
from hjit.kernels.lower.traverse import Body, with_bodies
from hjit.sched.language.memory import C_ORDER, memory_order
from hjit.trace.ir.expressions import Const, Expr, Load, cast, loads, rewrite
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.intervals import upper_bound
from hjit.trace.ir.poly import ZERO, Poly, Var, poly

MAX_BYTES = 24 << 10  # of a block's operands, with what it has in shared memory already
WIDEST = 16  # bytes that a thread reads of shared memory at once
LEAST_READS = 2  # of an element, for which it is copied

Index = tuple[Poly, ...]


def stage_operands(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Stage the operands of tiled reductions in shared memory."""
    if not nest.blocks:
        return nest
    made = _Staging(nest, graph)
    body = made.body(nest.body)
    return replace(nest, body=body, buffers=nest.buffers | made.buffers)


@dataclass(frozen=True, slots=True)
class _Span:
    """What a variable of the threads, or of a loop inside a tile, runs over.

    Attributes:
        length: from `first` to `last`, at most.
    """

    first: Poly
    last: Poly
    length: int


@dataclass(frozen=True, slots=True)
class _Axis:
    """The part of an axis of an array that a tile needs: `low` .. `high`, `width` elements at most.

    Attributes:
        number: of the axis. neighbours: does a thread read several elements along it, side by side?
    """

    number: int
    low: Poly
    high: Poly
    width: int
    neighbours: bool


@dataclass(frozen=True, slots=True)
class _Operand:
    """The part of an array that a tile needs.

    Attributes:
        index: of one of the loads; those along the axes that are none of `axes` are the same for all threads.
        axes: in the order in which they are in shared memory, the fastest one last.
        reads: of all threads together, in a tile.
    """

    array: str
    index: Index
    loads: tuple[Load, ...]
    axes: tuple[_Axis, ...]
    reads: int

    @property
    def size(self) -> int:
        """Elements of it."""
        return math.prod(x.width for x in self.axes)

    @property
    def is_turned(self) -> bool:
        """Is it in another order in shared memory?"""
        return [x.number for x in self.axes] != sorted(x.number for x in self.axes)

    def lengths(self, itemsize: int) -> tuple[Poly, ...]:
        """Of the axes in shared memory. Rows are as long as whole accesses, and where they are written across, by one
        more: so that they begin in different banks."""
        *others, last = (x.width for x in self.axes)
        unit = max(WIDEST // itemsize, 1)
        return tuple(map(poly, (*others, -(-last // unit) * unit + unit * self.is_turned)))

    def at(self, index: Index) -> Index:
        """The place of an element in shared memory."""
        return tuple(index[x.number] - x.low for x in self.axes)


class _Staging:
    """Stages the operands of a nest.

    Attributes:
        buffers: of the tiles.
        left: bytes of shared memory that are free.
    """

    def __init__(self, nest: Nest, graph: Graph) -> None:
        self.nest, self.graph, self.reductions = nest, graph, Reductions()
        self.buffers: dict[str, Buffer] = {}
        taken = shared_bytes(nest.buffers.values(), graph.dtypes)
        self.left = 0 if taken is None else MAX_BYTES - taken

    def body(self, body: Body) -> Body:
        return tuple(t for s in body for t in self.visit(s))

    def visit(self, s: Stmt) -> Body:
        match s:
            case Threads(body=(Reduce() as r,)):
                return self.reduction(s, r) or (s,)
            case Threads():
                return (s,)
        return (with_bodies(s, self.body),)

    def reduction(self, s: Threads, r: Reduce) -> Body:
        """A reduction by tiles; nothing where it has none, or no operand that fits."""
        number = _tile_of(r)
        spans = None if number is None else _spans(s.loops, r.loops[number + 1 :], self.nest.threads)
        if number is None or spans is None or any(_mentions(t, spans) for t in r.loops[: number + 1]):
            return ()
        copies: list[Stmt] = []
        staged: dict[Expr, Expr] = {}
        for x in self.operands(r, spans):
            name = self.buffer(x)
            if name is not None:
                copies.append(self.copy(x, name))
                staged |= {y: Load(name, x.at(y.index), y.dtype) for y in x.loads}
        if not staged:
            return ()
        items = tuple(replace(i, value=rewrite(i.value, staged.get)) for i in r.items)
        return tuple(self.accumulated(s, replace(r, items=items), number, tuple(copies)))

    # -- the loops
    def accumulated(self, s: Threads, r: Reduce, number: int, copies: Body) -> Iterator[Stmt]:
        """Registers of each thread, loops over tiles, and the results."""
        outer, inner = r.loops[: number + 1], r.loops[number + 1 :]
        neutral = Const(start_value(r.op, r.dtype), r.dtype)
        accs = [self.reductions.accumulator(r, r.dtype, 1, r.compensated) for _ in r.items]
        for acc in accs:
            yield from acc.declared(neutral)
        local = replace(r, loops=inner)
        if _has_sums(r, number):
            yield from self.in_sums(s, local, outer, accs, copies)
        else:
            body = self.reductions.products(local, accs) if r.products else nested(inner, (joining(local, accs),))
            yield from nested(outer, (*copies, replace(s, body=body)))
        states = (acc.state.joined(r.op, cast(i.initial, r.dtype)) for acc, i in zip(accs, r.items, strict=True))
        yield replace(s, body=(stored(r, list(states)),))

    def in_sums(
        self, s: Threads, local: Reduce, outer: tuple[ReductionLoop, ...], accs: list[Accumulator], copies: Body
    ) -> Body:
        """Products of a tile, and of a few of them, are summed in the dtype of the result before they join the
        accumulators."""
        parts = [self.reductions.accumulator(local, local.dtype_out, 1, False) for _ in accs]
        zero = Const(0, local.dtype_out)
        declared = (t for part in parts for t in part.declared(zero))
        tile = replace(s, body=self.reductions.summed(local, [()], local.loops, parts))
        sets = (x for acc, part in zip(accs, parts, strict=True) for x in _joined(local.op, acc, part))
        return nested(outer[:-1], (*declared, *nested(outer[-1:], (*copies, tile)), Block((), (), tuple(sets))))

    # -- the operands
    def operands(self, r: Reduce, spans: Mapping[Var, _Span]) -> Iterator[_Operand]:
        """What several threads read of arrays that the nest does not compute."""
        found: dict[tuple[str, Index], list[Load]] = {}
        for x in loads(*(i.value for i in r.items)):
            if x.source not in self.nest.writes and x.source not in self.nest.buffers:
                found.setdefault((x.source, tuple(p - p.const for p in x.index)), []).append(x)
        for (array, _), same in found.items():
            axes = [_axis(k, [x.index[k] for x in same], spans) for k in range(len(same[0].index))]
            moving = [x for x in axes if x is not None and x.width > 1]
            if None in axes or not moving:
                continue
            reads = len(same) * math.prod(_count(v) for v in spans.values())
            axes_in_order = tuple(sorted(moving, key=lambda x: (x.neighbours, x.number)))
            operand = _Operand(array, same[0].index, tuple(same), axes_in_order, reads)
            if reads >= LEAST_READS * operand.size:
                yield operand

    def copy(self, x: _Operand, name: str) -> Threads:
        """The elements that a tile needs into shared memory; consecutive threads along rows."""
        order = memory_order(self.graph, x.array) or range(len(x.index))
        axes = {axis.number: axis for axis in x.axes}
        names = {k: Var(f"{name}.{k}") for k in axes}
        loops = tuple(ThreadLoop(names[k], axes[k].low, axes[k].high + 1, 1, axes[k].width) for k in order if k in axes)
        index = tuple(poly(names[k]) if k in axes else p for k, p in enumerate(x.index))
        value = Load(x.array, index, self.graph.dtypes[x.array])
        return Threads(loops, (Block((Store(name, x.at(index), value),)),))

    def buffer(self, x: _Operand) -> str | None:
        """Shared memory for an operand; None where there is no more of it."""
        dtype = self.graph.dtypes[x.array]
        lengths = x.lengths(dtype.itemsize)
        size = dtype.itemsize * math.prod(n.const for n in lengths)
        if size > self.left:
            return None
        self.left -= size
        number = sum(name.startswith(f"{x.array}.operand") for name in self.buffers)
        name = f"{x.array}.operand{number + 1 if number else ''}"
        self.buffers[name] = Buffer(name, (ZERO,) * len(lengths), lengths, C_ORDER, shared=True, dtype=dtype)
        return name


def _joined(op: str, acc: Accumulator, part: Accumulator) -> Iterator[Set]:
    return acc.set(acc.state.joined(op, cast(part.total, acc.total.dtype)))


def _tile_of(r: Reduce) -> int | None:
    """Which of its loops runs over tiles: the last one in steps, with loops inside it."""
    if r.interior or any(t.threads or t.warp_lanes or t.lanes > 1 for t in r.loops):
        return None
    steps = [k for k, t in enumerate(r.loops[:-1]) if t.step > 1]
    return steps[-1] if steps else None


def _has_sums(r: Reduce, number: int) -> bool:
    """Are a few tiles of products summed before they join the accumulators?"""
    if not r.products or number < 1 or r.loops[number - 1].step < r.loops[number].step:
        return False
    lengths = [upper_bound(t.end - t.begin) for t in r.loops[number + 1 :]]
    tiles = r.loops[number - 1].step // r.loops[number].step
    return tiles <= SUMS_OF_PRODUCTS and math.prod(n or PRODUCTS + 1 for n in lengths) <= PRODUCTS


def _spans(loops: Sequence[ThreadLoop], inner: Sequence[ReductionLoop], threads: int) -> dict[Var, _Span] | None:
    """What the variables inside a tile run over; None where that is not known, or where a thread takes several
    iterations, whose accumulators would be the same registers."""
    if math.prod(t.most or threads + 1 for t in loops) > threads:
        return None
    found: dict[Var, _Span] = {}
    for t in loops:
        most = t.most or 1
        if t.step > 1 and t.end - t.begin != poly(most * t.step):
            return None
        last = t.end - 1 if t.step == 1 else t.begin + (most - 1) * t.step
        found[t.var] = _Span(t.begin, last, (most - 1) * t.step)
    for x in inner:
        most_of = upper_bound(x.end - x.begin)
        if most_of is None or x.step > 1 or any(p.mentions(v) for v in found for p in (x.begin, x.end)):
            return None
        found[x.var] = _Span(x.begin, x.end - 1, max(most_of - 1, 0))
    return found


def _count(x: _Span) -> int:
    return x.length + 1


def _mentions(t: ReductionLoop, spans: Mapping[Var, _Span]) -> bool:
    return any(p.mentions(v) for v in spans for p in (t.begin, t.end))


def _axis(number: int, indices: Sequence[Poly], spans: Mapping[Var, _Span]) -> _Axis | None:
    """What a tile needs along an axis, by indices that differ by constants; None where they are not linear."""
    low = high = indices[0] - indices[0].const
    width = 1
    for v, span in spans.items():
        c = indices[0].coefficient(v)
        if c is None or not c.is_const:
            return None
        ends = (span.first, span.last) if c.const >= 0 else (span.last, span.first)
        low, high = (p - poly(v) * c + end * c for p, end in zip((low, high), ends, strict=True))
        width += abs(c.const) * span.length
    if any(p.mentions(v) for p in (low, high) for v in spans):
        return None
    first, last = min(p.const for p in indices), max(p.const for p in indices)
    return _Axis(number, low + first, high + last, width + last - first, first != last)
