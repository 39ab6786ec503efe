"""Reductions of the LLVM emitter: accumulators in registers, several at a time, combined at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hjit.kernels import memory, vecmath
from hjit.kernels.code import I64, Val, const, splat, type_name
from hjit.kernels.loopir import For, Reduce
from hjit.trace.poly import Poly
from hjit.trace.reductions import start_value

if TYPE_CHECKING:
    from hjit.kernels.emit import NestEmitter

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
    while state[0].lanes > 1:
        half = state[0].lanes // 2

        def part(v: Val | None, first: int, half: int = half) -> Val | None:
            if v is None:
                return None
            if half == 1:
                return e.code.emit(f"extractelement {v}, i64 {first}", v.dtype, 1, v)
            return memory.shuffle(e.code, v, v, range(first, first + half))

        low = (part(state[0], 0), part(state[1], 0))
        high = (part(state[0], half), part(state[1], half))
        state = combine(e, s, low, high)  # type: ignore[arg-type]
    return state


def finish(e: NestEmitter, s: Reduce, state: State) -> Val:
    """The result of a reduction in its own dtype."""
    total, error = state
    if error is not None:
        whole = vecmath.apply(e.code, "add", (total, error), s.dtype)
        broken = vecmath.apply(e.code, "isnan", (error,), "?")  # an infinity met: the total alone is right
        total = vecmath.apply(e.code, "select", (broken, total, whole), s.dtype)
    return vecmath.convert(e.code, total, s.dtype_out)


def emit(e: NestEmitter, s: Reduce) -> None:
    """Write a reduction: of each lane of an outer vector loop, or with the lanes along its own innermost loop."""
    initial = vecmath.convert(e.code, e.value(s.initial), s.dtype)
    lanes = e.lanes
    if s.loops and s.loops[-1].kind == "vector":
        state = _along_lanes(e, s)
        state = step(e, s, state, initial)
    else:
        acc = _Accumulator(e, s, lanes, initial)
        nested(e, s.loops, lambda: acc.add(_element(e, s)))
        state = acc.read()
    result = finish(e, s, state)
    memory.store(e, s.buffer, e.flat(s.buffer, s.index), memory.to_memory(e.code, result))


def _element(e: NestEmitter, s: Reduce) -> Val:
    return vecmath.convert(e.code, e.value(s.value), s.dtype)


def nested(e: NestEmitter, loops: tuple[For, ...], body: Callable[[], None]) -> None:
    """`body` inside serial and unrolled loops."""
    if not loops:
        body()
        return
    head, rest = loops[0], loops[1:]
    begin, end = head.ranges[0]
    if head.kind == "unroll":
        assert isinstance(end, Poly)
        for k in range(begin.const, end.const):
            e.vars[head.var] = const(k, I64)
            e.memos.append({})
            nested(e, rest, body)
            e.memos.pop()
        e.vars.pop(head.var, None)
        return
    e.loop(head.var, [e.range((begin, end))], head.step, lambda: nested(e, rest, body))


def _along_lanes(e: NestEmitter, s: Reduce) -> State:
    """Lanes along the innermost reduction loop: blocks of several vectors, single vectors, then single elements."""
    inner = s.loops[-1]
    lanes = inner.step
    neutral = const(start_value(s.op, s.dtype), s.dtype)
    accs = [_Accumulator(e, s, lanes, neutral) for _ in range(ACCUMULATORS)]
    single = _Accumulator(e, s, 1, neutral)
    block = lanes * ACCUMULATORS
    begin, end = inner.ranges[0]
    to_block = begin + (end - begin) // block * block
    to_lanes = begin + (end - begin) // lanes * lanes

    def vectors(count: int) -> Callable[[], None]:
        def body() -> None:
            first = e.vars[inner.var]
            for k in range(count):
                if k:
                    e.vars[inner.var] = e.arith("add", first, const(k * lanes, I64))
                e.memos.append({})
                accs[k].add(_element(e, s))
                e.memos.pop()
            e.vars[inner.var] = first

        return body

    def all_loops() -> None:
        e.vector, e.lanes = inner.var, lanes
        e.loop(inner.var, [e.range((begin, to_block))], block, vectors(ACCUMULATORS))
        e.loop(inner.var, [e.range((to_block, to_lanes))], lanes, vectors(1))
        e.vector, e.lanes = None, 1
        e.loop(inner.var, [e.range((to_lanes, end))], 1, lambda: single.add(_element(e, s)))

    nested(e, s.loops[:-1], all_loops)
    states = [a.read() for a in accs]
    while len(states) > 1:
        states = [combine(e, s, states[k], states[k + 1]) for k in range(0, len(states), 2)]
    return combine(e, s, horizontal(e, s, states[0]), single.read())
