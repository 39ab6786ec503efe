"""Reductions of the LLVM emitter: accumulators in registers, several at a time, combined at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from hjit.kernels.llvm import memory, stores
from hjit.kernels.llvm.code import I64, Val, const, shuffle, splat, type_name
from hjit.kernels.llvm.context import NestEmitter
from hjit.kernels.llvm.vecmath import apply as vecmath
from hjit.kernels.llvm.vecmath.text import intrinsic
from hjit.kernels.lower.loopir import Reduce, ReductionLoop
from hjit.trace.ir.graph import Op
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import Var, extremum, poly

FEW, PRODUCTS = (
    9,
    18,
)  # products that are summed before they join other such sums: where there are few, and where there are more
SUMS = (
    4  # of those that are summed before they join the accumulator: about as many roundings as in NumPy's pairwise sum
)
ACCUMULATORS = 4  # vectors accumulated independently, to hide the latency of the operation


class _Accumulator:
    """A running value in memory that LLVM turns into registers: the total, and its rounding error where compensated."""

    def __init__(self, e: NestEmitter, s: Reduce, lanes: int, start: Val) -> None:
        self.e, self.s, self.lanes = e, s, lanes
        self.type = type_name(s.dtype, lanes)
        self.total = e.alloca(self.type)
        self.error = e.alloca(self.type) if s.compensated else ""
        e.code.effect(f"store {splat(e.code, start, lanes)}, ptr {self.total}")
        if self.error:
            e.code.effect(f"store {const(0, s.dtype, lanes)}, ptr {self.error}")

    def read(self) -> tuple[Val, Val | None]:
        code = self.e.code
        total = code.here(f"load {self.type}, ptr {self.total}", self.s.dtype, self.lanes)
        error = code.here(f"load {self.type}, ptr {self.error}", self.s.dtype, self.lanes) if self.error else None
        return total, error

    def multiply_add(self, a: Val, b: Val) -> None:
        """One more product, rounded once."""
        code = self.e.code
        a, b = splat(code, a, self.lanes), splat(code, b, self.lanes)
        total, _ = self.read()
        code.effect(f"store {intrinsic(code, 'fma', a, b, total)}, ptr {self.total}")

    def add(self, x: Val) -> None:
        x = splat(self.e.code, x, self.lanes)
        total, error = self.read()
        total, error = step(self.e, self.s, (total, error), x)
        self.e.code.effect(f"store {total}, ptr {self.total}")
        if error is not None:
            self.e.code.effect(f"store {error}, ptr {self.error}")


State = tuple[Val, Val | None]


def step(e: NestEmitter, s: Reduce, state: State, x: Val) -> State:
    """One more element. Compensated: Knuth's two-sum, exact for any order of magnitudes."""
    total, error = state
    if error is None:
        return vecmath.apply(e.code, s.op, (total, x), s.dtype), None

    def sub(a: Val, b: Val) -> Val:
        return vecmath.apply(e.code, "subtract", (a, b), s.dtype)

    def add(a: Val, b: Val) -> Val:
        return vecmath.apply(e.code, "add", (a, b), s.dtype)

    new = add(total, x)
    part = sub(new, total)
    lost = add(sub(total, sub(new, part)), sub(x, part))
    return new, add(error, lost)


def combine(e: NestEmitter, s: Reduce, a: State, b: State) -> State:
    """Two partial results into one."""
    total, error = step(e, s, a, b[0])
    if error is not None and b[1] is not None:
        error = vecmath.apply(e.code, "add", (error, b[1]), s.dtype)
    return total, error


def horizontal(e: NestEmitter, s: Reduce, state: State) -> State:
    """All lanes into one."""

    def part(first: int, count: int) -> State:
        def some(v: Val) -> Val:
            if count == 1:
                return e.code.emit(f"extractelement {v}, i64 {first}", v.dtype, 1, v)
            return shuffle(e.code, v, v, range(first, first + count))

        return some(state[0]), None if state[1] is None else some(state[1])

    lanes = state[0].lanes
    if lanes == 1:
        return state
    half = 1 << ((lanes - 1).bit_length() - 1)
    low, high = part(0, half), part(half, lanes - half)
    if lanes == 2 * half:
        return horizontal(e, s, combine(e, s, low, high))
    return combine(e, s, horizontal(e, s, low), horizontal(e, s, high))


def finish(e: NestEmitter, s: Reduce, state: State) -> Val:
    """The result of a reduction in its own dtype."""
    total, error = state
    if error is not None:
        whole = vecmath.apply(e.code, "add", (total, error), s.dtype)
        broken = vecmath.apply(e.code, "isnan", (error,), "?")  # an infinity met: the total alone is right
        total = vecmath.apply(e.code, "select", (broken, total, whole), s.dtype)
    return vecmath.convert(e.code, total, s.dtype_out)


def emit(e: NestEmitter, s: Reduce) -> None:
    """Write reductions: of each lane of an outer vector loop, or with the lanes along their own innermost loop."""
    initials = [vecmath.convert(e.code, e.value(i.initial), s.dtype) for i in s.items]
    if s.loops and s.loops[-1].lanes > 1:
        states = [step(e, s, state, initial) for state, initial in zip(_along_lanes(e, s), initials, strict=True)]
    else:
        lanes = [e.lanes if any(e.varies(p) for p in i.index) else 1 for i in s.items]
        accs = [_Accumulator(e, s, n, initial) for n, initial in zip(lanes, initials, strict=True)]

        def add() -> None:
            for acc, i in zip(accs, s.items, strict=True):
                acc.add(vecmath.convert(e.code, e.value(i.value), s.dtype))

        if s.products:
            _products(e, s, accs)
        else:
            nested(e, s.loops, add)
        states = [acc.read() for acc in accs]
    results = [memory.to_memory(e.code, finish(e, s, state)) for state in states]
    stores.store_values(e, [(s.buffer, e.flat(s.buffer, i.index), v) for i, v in zip(s.items, results, strict=True)])


def _products(e: NestEmitter, s: Reduce, accs: list[_Accumulator]) -> None:
    """Sums of products by fused multiply-adds in the dtype of the result: of a few, of a few of those, then into the accumulators."""
    counts = [_turns(x) for x in s.loops]
    known = math.prod(n for n in counts if n is not None)
    outer, products = _split(s.loops, FEW if None not in counts and known < FEW * SUMS else PRODUCTS)
    outer, sums = _split(outer, SUMS)
    _summed(e, replace(s, dtype=s.dtype_out, compensated=False), [outer, sums] if sums else [outer], products, accs)


def _summed(
    e: NestEmitter,
    s: Reduce,
    levels: Sequence[tuple[ReductionLoop, ...]],
    products: tuple[ReductionLoop, ...],
    into: list[_Accumulator],
) -> None:
    """The products of some loops, summed at each of their levels before they are added to what is outside of it."""
    if not levels:

        def add() -> None:
            for acc, i in zip(into, s.items, strict=True):
                assert isinstance(i.value, Op)
                acc.multiply_add(*(e.value(x) for x in i.value.args))

        nested(e, products, add)
        return

    def some() -> None:
        parts = [_Accumulator(e, s, a.lanes, const(0, s.dtype)) for a in into]
        _summed(e, s, levels[1:], products, parts)
        for acc, part in zip(into, parts, strict=True):
            acc.add(vecmath.convert(e.code, part.read()[0], acc.s.dtype))

    nested(e, levels[0], some)


def _split(loops: tuple[ReductionLoop, ...], most: int) -> tuple[tuple[ReductionLoop, ...], tuple[ReductionLoop, ...]]:
    """Loops as outer ones and inner ones that have at most `most` turns together: whole ones, and a part of the next one."""
    k, turns = len(loops), 1
    while k and (count := _turns(loops[k - 1])) is not None and turns * count <= most:
        turns *= max(count, 1)
        k -= 1
    if k == 0 or turns * 2 > most:
        return loops[:k], loops[k:]
    head = loops[k - 1]
    step = head.step << (most // turns).bit_length() - 1
    block = Var(f"{head.var.name}.block")
    end = extremum("min", poly(block) + step, head.end)
    return (*loops[: k - 1], ReductionLoop(block, head.begin, head.end, step)), (
        replace(head, begin=poly(block), end=end),
        *loops[k:],
    )


def _turns(loop: ReductionLoop) -> int | None:
    """How many turns a loop has; None where only the run knows."""
    extent = loop.end - loop.begin
    return -(-extent.const // loop.step) if extent.is_const else None


def nested(e: NestEmitter, loops: tuple[ReductionLoop, ...], body: Callable[[], None]) -> None:
    """`body` inside the loops, unrolled ones as so many copies and the rest of their turns one by one."""
    if not loops:
        body()
        return
    head, rest = loops[0], loops[1:]

    def copies() -> None:
        first = e.vars[head.var]
        for k in range(head.unroll):
            e.vars[head.var] = e.arith("add", first, const(k, I64)) if k else first
            e.memo.open()
            nested(e, rest, body)
            e.memo.close()
        e.vars[head.var] = first

    extent = head.end - head.begin
    if head.unroll > 1 and extent.is_const and extent.const == head.unroll:
        for k in range(head.unroll):
            e.vars[head.var] = e.int(head.begin + k)
            e.memo.open()
            nested(e, rest, body)
            e.memo.close()
        del e.vars[head.var]
        return
    begin, end = e.int(head.begin), e.int(head.end)
    if head.unroll > 1:
        stop = e.int(head.begin + extent // head.unroll * head.unroll)
        e.loop(head.var, begin, stop, head.unroll, copies)
        begin = stop
        if extent.is_const and extent.const % head.unroll == 0:
            return
    e.loop(head.var, begin, end, head.step, lambda: nested(e, rest, body))


def _along_lanes(e: NestEmitter, s: Reduce) -> list[State]:
    """Lanes along the innermost reduction loop: blocks of several vectors, single vectors, then single elements."""
    inner = s.loops[-1]
    lanes = inner.lanes
    many = inner.unroll if inner.unroll > 1 else max(ACCUMULATORS // len(s.items), 1)
    neutral = const(start_value(s.op, s.dtype), s.dtype)
    accs = [[_Accumulator(e, s, lanes, neutral) for _ in range(many)] for _ in s.items]
    singles = [_Accumulator(e, s, 1, neutral) for _ in s.items]
    block = lanes * many

    def vectors(count: int) -> Callable[[], None]:
        def body() -> None:
            first = e.vars[inner.var]
            for k in range(count):
                if k:
                    e.vars[inner.var] = e.arith("add", first, const(k * lanes, I64))
                e.memo.open()
                for own, i in zip(accs, s.items, strict=True):
                    own[k].add(vecmath.convert(e.code, e.value(i.value), s.dtype))
                e.memo.close()
            e.vars[inner.var] = first

        return body

    def single() -> None:
        for acc, i in zip(singles, s.items, strict=True):
            acc.add(vecmath.convert(e.code, e.value(i.value), s.dtype))

    def all_loops() -> None:
        begin, end = e.int(inner.begin), e.int(inner.end)
        to_block = e.int(inner.begin + (inner.end - inner.begin) // block * block)
        to_lanes = e.int(inner.begin + (inner.end - inner.begin) // lanes * lanes)
        e.vector, e.lanes = inner.var, lanes
        e.loop(inner.var, begin, to_block, block, vectors(many))
        if many > 1:
            e.loop(inner.var, to_block, to_lanes, lanes, vectors(1))
        e.vector, e.lanes = None, 1
        e.loop(inner.var, to_lanes, end, 1, single, rare=True)

    nested(e, s.loops[:-1], all_loops)
    found = []
    for own, one in zip(accs, singles, strict=True):
        states = [a.read() for a in own]
        while len(states) > 1:
            states = [
                combine(e, s, *states[k : k + 2]) if k + 1 < len(states) else states[k]
                for k in range(0, len(states), 2)
            ]
        found.append(combine(e, s, horizontal(e, s, states[0]), one.read()))
    return found
