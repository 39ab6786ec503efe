"""Register blocking of reductions: several accumulators at a time, combined at the end. Prefix scans by a block's
threads.

Every `Reduce` becomes registers, loops around blocks that set them, and final stores. A `Scan` becomes a loop over a
few tiles at a time, of which each thread has one element each, so that neighbouring threads access neighbouring
elements; the running total is carried from step to step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.errors import ScheduleError
from hjit.kernels.lower.loopir import (
    INTERIOR,
    Block,
    CombineLanes,
    CombineThreads,
    Declare,
    For,
    If,
    Item,
    Reduce,
    ReductionLoop,
    Register,
    Scan,
    ScanThreads,
    Set,
    Stmt,
    Store,
    ThreadLoop,
    Threads,
    Vectors,
)
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.thresholds import ACCUMULATORS, FEW_PRODUCTS, PRODUCTS, SUMS_OF_PRODUCTS
from hjit.kernels.lower.traverse import Body, at, every, with_bodies
from hjit.kernels.lower.two_sum import two_sum
from hjit.sched.language.limits import WARP
from hjit.trace.ir.expressions import Const, Expr, Op, cast, select
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import ZERO, Poly, Var, extremum, poly


def block_reductions(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Replace each `Reduce` by registers, loops and stores.

    Raises:
        ScheduleError: lanes share a reduction, and threads do something else between them.
    """
    return replace(nest, body=Reductions().body(nest.body, None))


@dataclass(frozen=True, slots=True)
class _State:
    """A running value: the total, and its rounding error if that is tracked."""

    total: Expr
    error: Expr | None = None

    def joined(self, op: str, x: Expr) -> _State:
        """One more element."""

        def apply(name: str, a: Expr, b: Expr) -> Expr:
            return Op(name, (a, b), self.total.dtype)

        if self.error is None:
            return _State(apply(op, self.total, x))
        total, lost = two_sum(self.total, x, apply)
        return _State(total, apply("add", self.error, lost))

    def combined(self, op: str, other: _State) -> _State:
        """Two partial results into one."""
        found = self.joined(op, other.total)
        if found.error is None or other.error is None:
            return found
        return _State(found.total, Op("add", (found.error, other.error), found.error.dtype))

    def result(self, dtype: np.dtype[Any]) -> Expr:
        """The value in the dtype of the result."""
        total, error = self.total, self.error
        if error is not None:
            broken = Op("isnan", (error,), np.bool_)  # an infinity met: the total alone is right
            total = select(broken, total, Op("add", (total, error), total.dtype))
        return cast(total, dtype)


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The registers of a state."""

    total: Register
    error: Register | None
    lanes: int

    @property
    def state(self) -> _State:
        return _State(self.total, self.error)

    @property
    def registers(self) -> tuple[Register, ...]:
        return (self.total,) if self.error is None else (self.total, self.error)

    def declared(self, start: Expr) -> Iterator[Stmt]:
        yield Declare(self.total, cast(start, self.total.dtype), self.lanes)
        if self.error is not None:
            yield Declare(self.error, Const(0, self.error.dtype), self.lanes)

    def set(self, state: _State) -> Iterator[Set]:
        yield Set(self.total, state.total)
        if self.error is not None and state.error is not None:
            yield Set(self.error, state.error)


class Reductions:
    """Numbers the registers of a nest."""

    def __init__(self) -> None:
        self.count = 0

    def body(self, body: Body, vectors: Vectors | None) -> Body:
        return tuple(t for s in body for t in self.visit(s, vectors))

    def visit(self, s: Stmt, vectors: Vectors | None) -> Iterator[Stmt]:
        by_lanes = _by_lanes(s)
        if by_lanes is not None:
            yield from self.by_warp_lanes(*by_lanes)
        elif not isinstance(s, Reduce):
            if isinstance(s, Threads):
                _check_lanes(s)
            inside = s if isinstance(s, Vectors) else vectors
            yield with_bodies(s, lambda body: self.body(body, inside))
        elif any(t.threads for t in s.loops):
            yield from self.across_threads(s)
        elif s.loops and s.loops[-1].lanes > 1:
            yield from self.along_lanes(s)
        else:
            yield from self.across_lanes(s, vectors)

    def accumulator(self, s: Reduce, dtype: np.dtype[Any], lanes: int, compensated: bool) -> Accumulator:
        self.count += 1
        name = f"{s.buffer}.{s.op}{self.count}"
        return Accumulator(Register(name, dtype), Register(f"{name}.error", dtype) if compensated else None, lanes)

    # -- in each lane alone
    def across_lanes(self, s: Reduce, vectors: Vectors | None) -> Iterator[Stmt]:
        accs = [self.accumulator(s, s.dtype, _lanes(i, vectors), s.compensated) for i in s.items]
        for acc, i in zip(accs, s.items, strict=True):
            yield from acc.declared(i.initial)
        yield from self.products(s, accs) if s.products else nested(s.loops, (joining(s, accs),))
        yield stored(s, [acc.state for acc in accs])

    def products(self, s: Reduce, accs: list[Accumulator]) -> Body:
        """Sums of products by fused multiply-adds in the dtype of the result, in two levels, then into the
        accumulators."""
        counts = [x.trip_count for x in s.loops]
        known = math.prod(n for n in counts if n is not None)
        is_short = None not in counts and known < FEW_PRODUCTS * SUMS_OF_PRODUCTS
        outer, products = _split(s.loops, FEW_PRODUCTS if is_short else PRODUCTS)
        outer, sums = _split(outer, SUMS_OF_PRODUCTS)
        return self.summed(s, [outer, sums] if sums else [outer], products, accs)

    def summed(
        self,
        s: Reduce,
        levels: Sequence[tuple[ReductionLoop, ...]],
        products: tuple[ReductionLoop, ...],
        into: list[Accumulator],
    ) -> Body:
        """The products of some loops, summed at each of their levels before they are added to what is outside of it."""
        if not levels:
            return nested(products, (_multiplying(s, into),))
        parts = [self.accumulator(s, s.dtype_out, a.lanes, False) for a in into]
        zero = Const(0, s.dtype_out)
        declared = (t for part in parts for t in part.declared(zero))
        sums = zip(into, parts, strict=True)
        sets = (x for acc, part in sums for x in acc.set(acc.state.joined(s.op, cast(part.total, acc.total.dtype))))
        return nested(levels[0], (*declared, *self.summed(s, levels[1:], products, parts), Block((), (), tuple(sets))))

    # -- by the threads of a block
    def across_threads(self, s: Reduce) -> Iterator[Stmt]:
        """Each thread reduces its iterations, then they are combined, always in the same order."""
        first = next(k for k, t in enumerate(s.loops) if t.threads)
        last = next((k for k, t in enumerate(s.loops[first:], first) if not t.threads), len(s.loops))
        neutral = Const(start_value(s.op, s.dtype), s.dtype)
        accs = [self.accumulator(s, s.dtype, 1, s.compensated) for _ in s.items]
        for acc in accs:
            yield from acc.declared(neutral)
        shared = tuple(ThreadLoop(t.var, t.begin, t.end, t.step, t.trip_count) for t in s.loops[first:last])

        def threads(items: Sequence[Item]) -> Body:
            return (Threads(shared, nested(s.loops[last:], (joining(s, accs, items),))),)

        body = threads(s.items)
        if s.interior:  # blocks decide once, and all their threads alike
            body = (If(poly(INTERIOR), threads(s.interior), body),)
        yield from nested(s.loops[:first], body)
        for acc in accs:
            yield self.combined(s, acc)
        states = (acc.state.joined(s.op, cast(i.initial, s.dtype)) for acc, i in zip(accs, s.items, strict=True))
        yield Threads((), (stored(s, list(states)),))

    def combined(self, s: Reduce, acc: Accumulator) -> CombineThreads:
        """What threads have of an accumulator as one."""
        other = tuple(Register(f"{r.name}.other", r.dtype) for r in acc.registers)
        both = acc.state.combined(s.op, _State(*other))
        return CombineThreads(acc.registers, other, (both.total,) if both.error is None else (both.total, both.error))

    def by_warp_lanes(self, loops: tuple[ThreadLoop, ...], s: Reduce) -> Iterator[Stmt]:
        """Each result has `warp_lanes` consecutive lanes of a warp. Each of them reduces the elements that are so many
        apart, then they are combined, always in the same order."""
        number = next(k for k, t in enumerate(s.loops) if t.warp_lanes)
        inner = s.loops[number]
        outer = next(k for k, t in enumerate(s.loops) if inner.begin.mentions(t.var))
        lane, lanes = Var(f"{inner.var.name}.lane"), inner.warp_lanes
        accs = [self.accumulator(s, s.dtype, 1, s.compensated) for _ in s.items]
        neutral = Const(start_value(s.op, s.dtype), s.dtype)
        for acc in accs:
            yield from acc.declared(neutral)
        own = replace(s.loops[outer], var=inner.var, begin=s.loops[outer].begin + poly(lane))
        rest = (*s.loops[:outer], own, *(t for k, t in enumerate(s.loops[outer + 1 :], outer + 1) if k != number))

        def lanes_of(items: Sequence[Item]) -> Body:
            shared = (*loops, ThreadLoop(lane, ZERO, poly(lanes), 1, lanes))
            return (Threads(shared, nested(rest, (joining(s, accs, items),))),)

        body = lanes_of(s.items)
        yield from (If(poly(INTERIOR), lanes_of(s.interior), body),) if s.interior else body
        for acc in accs:
            yield replace(self.combined(s, acc), lanes=lanes)
        states = (acc.state.joined(s.op, cast(i.initial, s.dtype)) for acc, i in zip(accs, s.items, strict=True))
        first = ThreadLoop(lane, ZERO, poly(1), 1, lanes)
        yield Threads((*loops, first), (stored(s, list(states)),))

    # -- along the innermost loop
    def along_lanes(self, s: Reduce) -> Iterator[Stmt]:
        """Blocks of several vectors, single vectors, then single elements."""
        inner = s.loops[-1]
        lanes = inner.lanes
        many = inner.unroll if inner.unroll > 1 else max(ACCUMULATORS // len(s.items), 1)
        neutral = Const(start_value(s.op, s.dtype), s.dtype)
        accs = [[self.accumulator(s, s.dtype, lanes, s.compensated) for _ in range(many)] for _ in s.items]
        singles = [self.accumulator(s, s.dtype, 1, s.compensated) for _ in s.items]
        for acc in (*(a for own in accs for a in own), *singles):
            yield from acc.declared(neutral)

        def vectors(count: int) -> Body:
            blocks = (
                at((joining(s, [own[k] for own in accs]),), {inner.var: poly(inner.var) + k * lanes} if k else {})
                for k in range(count)
            )
            return (Vectors(inner.var, lanes, tuple(b for block in blocks for b in block), count),)

        extent, block = inner.end - inner.begin, lanes * many
        to_block, to_lanes = (inner.begin + extent // n * n for n in (block, lanes))
        loops: list[Stmt] = [For(inner.var, inner.begin, to_block, block, vectors(many))]
        if many > 1:
            loops.append(For(inner.var, to_block, to_lanes, lanes, vectors(1)))
        loops.append(For(inner.var, to_lanes, inner.end, 1, (joining(s, singles),), rare=True))
        yield from nested(s.loops[:-1], tuple(loops))
        states = []
        for own, single, item in zip(accs, singles, s.items, strict=True):
            whole = self.accumulator(s, s.dtype, 1, s.compensated)
            yield from whole.declared(neutral)
            while len(own) > 1:
                pairs = list(zip(own[::2], own[1::2], strict=False))
                sets = (x for a, b in pairs for x in a.set(a.state.combined(s.op, b.state)))
                yield Block((), (), tuple(sets))
                own = own[::2]
            yield CombineLanes(s.op, own[0].registers, whole.registers)
            states.append(whole.state.combined(s.op, single.state).joined(s.op, cast(item.initial, s.dtype)))
        yield stored(s, states)


def _by_lanes(s: Stmt) -> tuple[tuple[ThreadLoop, ...], Reduce] | None:
    """The thread loops and the reduction, if lanes of warps share a reduction."""
    match s:
        case Threads(loops=loops, body=(Reduce() as r,)) if any(t.warp_lanes for t in r.loops):
            return loops, r
        case Reduce() if any(t.warp_lanes for t in s.loops):
            return (), s
    return None


def _check_lanes(s: Threads) -> None:
    """Raise where lanes share a reduction, and threads do something else beside it: all of a warp are to be there.

    Raises:
        ScheduleError: they do.
    """
    for x in every(s.body):
        if isinstance(x, Reduce) and any(t.warp_lanes for t in x.loops):
            raise ScheduleError(
                f"{x.buffer}: the threads around lanes that share a reduction do nothing else; have other loops, and "
                "stages that are computed there, outside of the loops over threads"
            )


def _lanes(i: Item, vectors: Vectors | None) -> int:
    """Of the vector that an item is part of."""
    return vectors.lanes if vectors is not None and any(p.mentions(vectors.var) for p in i.index) else 1


def joining(s: Reduce, accs: Sequence[Accumulator], items: Sequence[Item] = ()) -> Block:
    """One more element of each item, or of others in their place."""
    new = ((acc, acc.state.joined(s.op, cast(i.value, s.dtype))) for acc, i in zip(accs, items or s.items, strict=True))
    return Block((), (), tuple(x for acc, state in new for x in acc.set(state)))


def _multiplying(s: Reduce, accs: Sequence[Accumulator]) -> Block:
    """One more product of each item, rounded once."""
    sets = []
    for acc, i in zip(accs, s.items, strict=True):
        assert isinstance(i.value, Op)
        sets.append(Set(acc.total, Op("fma", (*i.value.args, acc.total), acc.total.dtype)))
    return Block((), (), tuple(sets))


def stored(s: Reduce, states: Sequence[_State]) -> Block:
    """The results in their places."""
    return Block(tuple(Store(s.buffer, i.index, x.result(s.dtype_out)) for i, x in zip(s.items, states, strict=True)))


def nested(loops: tuple[ReductionLoop, ...], body: Body) -> Body:
    """`body` inside the loops, unrolled ones as so many copies and the rest of their iterations one by one."""
    if not loops:
        return body
    head = loops[0]
    body = nested(loops[1:], body)

    def repeated(first: Poly) -> Body:
        return tuple(s for k in range(head.unroll) for s in at(body, {head.var: first + k}))

    if head.unroll == 1:
        return (For(head.var, head.begin, head.end, head.step, body),)
    extent = head.end - head.begin
    if extent.is_const and extent.const == head.unroll:
        return repeated(head.begin)
    stop = head.begin + extent // head.unroll * head.unroll
    steady = For(head.var, head.begin, stop, head.unroll, repeated(poly(head.var)))
    if extent.is_const and extent.const % head.unroll == 0:
        return (steady,)
    return steady, For(head.var, stop, head.end, head.step, body)


def _split(loops: tuple[ReductionLoop, ...], most: int) -> tuple[tuple[ReductionLoop, ...], tuple[ReductionLoop, ...]]:
    """Loops as outer and inner ones, where the inner ones have at most `most` iterations together; one loop may be
    tiled."""
    k, count = len(loops), 1
    while k and (n := loops[k - 1].trip_count) is not None and count * n <= most:
        count *= max(n, 1)
        k -= 1
    if k == 0 or count * 2 > most:
        return loops[:k], loops[k:]
    head = loops[k - 1]
    step = head.step << (most // count).bit_length() - 1
    block = Var(f"{head.var.name}.block")
    end = extremum("min", poly(block) + step, head.end)
    outer = ReductionLoop(block, head.begin, head.end, step)
    return (*loops[: k - 1], outer), (replace(head, begin=poly(block), end=end), *loops[k:])


# -- scans


def block_scans(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Replace each `Scan` by loops and prefix scans."""
    if not nest.blocks:
        return nest
    return replace(nest, body=_with_scans(nest.body, nest.threads))


def _with_scans(body: Body, threads: int) -> Body:
    found: list[Stmt] = []
    for s in body:
        found += _scanned(s, threads) if isinstance(s, Scan) else (with_bodies(s, lambda b: _with_scans(b, threads)),)
    return tuple(found)


def _scanned(s: Scan, threads: int) -> Iterator[Stmt]:
    """The steps of a scan."""
    names = [f"{s.buffer}.{s.op}{k}" for k in range(max(WARP // max(threads // WARP, 1), 1))]
    elements = tuple(Register(name, s.dtype) for name in names)
    before, error, all_ = (Register(f"{s.buffer}.{word}", s.dtype) for word in ("before", "error", "all"))
    neutral = Const(start_value(s.op, s.dtype), s.dtype)

    def apply(name: str, a: Expr, b: Expr) -> Expr:
        return Op(name, (a, b), s.dtype)

    yield Declare(before, cast(s.initial, s.dtype))
    if s.compensated:
        yield Declare(error, Const(0, s.dtype))
    step = Var(f"{s.var.name}.step")

    def tile(k: int, block: Block) -> Threads:
        end = extremum("min", poly(step) + (k + 1) * threads, s.end)
        return Threads((ThreadLoop(s.var, poly(step) + k * threads, end, 1, threads),), (block,))

    value: list[Expr] = [apply(s.op, before, x) for x in elements]
    sets = [Set(before, apply(s.op, before, all_))]
    if s.compensated:  # what is lost where the elements of a step join those before it is carried along
        running: Expr = before
        total, lost = two_sum(running, all_, apply)
        value = [apply("add", before, apply("add", x, error)) for x in elements]
        kept = apply("add", error, lost)  # not where an infinity is met: the total alone is right
        sets = [
            Set(before, total),
            Set(error, select(Op("isfinite", (kept,), "?"), kept, Const(0, s.dtype))),
        ]
    yield For(
        step,
        s.begin,
        s.end,
        threads * len(elements),
        (
            *(Declare(x, neutral) for x in elements),
            Declare(all_, neutral),
            *(tile(k, Block((), (), (Set(x, cast(s.element, s.dtype)),))) for k, x in enumerate(elements)),
            ScanThreads(s.op, elements, all_),
            *(tile(k, Block((Store(s.buffer, s.index, cast(v, s.dtype_out)),))) for k, v in enumerate(value)),
            Block((), (), tuple(sets)),
        ),
    )
