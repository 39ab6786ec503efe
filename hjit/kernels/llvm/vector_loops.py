"""Vector loops of the LLVM emitter: whole vectors, what is left of them, and single elements at both sides."""

from __future__ import annotations

from dataclasses import dataclass

from hjit.kernels.llvm import streaming_stores
from hjit.kernels.llvm.address import address, memory_dtype
from hjit.kernels.llvm.code import BOOL, I64, Val, const, splat
from hjit.kernels.llvm.context import NestEmitter
from hjit.kernels.lower.loop_partitioning import copies
from hjit.kernels.lower.loopir import Block, For, Let, Stmt, VectorLoop, vectors_at_once
from hjit.trace.ir.poly import Poly, Var, deep_atoms

SIDE = Var("side")  # of the interior: before or behind it
MIN_TURNS = 8  # of a vector loop, for one turn more to be little


def emit(e: NestEmitter, s: VectorLoop) -> None:
    """Whole vectors over the interior, then what is left of the range one by one."""
    low, high = e.int(s.low), e.int(s.high)
    n = e.arith("sub", high, low)

    def vectors(begin: Val, end: Val, count: int, limit: Val | None, first: Val | None = None) -> None:
        body = s.body if count == 1 else copies(s.body, s.var, tuple(range(0, count * s.lanes, s.lanes)))
        e.vector, e.lanes, e.align, e.at_once = s.var, s.lanes, s.align, count
        e.loop(s.var, begin, end, count * s.lanes, lambda: e.stmts(body), limit, first)
        e.vector, e.lanes, e.align, e.at_once = None, 1, 1, 1

    def whole(step: int, begin: Val) -> Val:
        """The end of the whole steps from `begin` on; the range may be empty, and end before it begins."""
        left = e.arith("sub", high, begin)
        end = e.arith("add", begin, e.arith("sub", left, e.divide(left, const(step, I64), quotient=False)))
        return e.minmax("max", end, begin)

    fits = vectors_at_once(s.lanes, s.copies, s.align)
    end, after, lines = low, low, None
    if s.tail == "shift_inwards":  # all of the interior in vectors where it has at least one
        lines = _lines(e, s, low, n)
        for k, count in enumerate(fits):
            enough = e.code.emit(f"icmp sge i64 {n.text}, {count * s.lanes}", BOOL, 1, n)
            if k:  # too few for the copies
                few = e.code.emit(f"icmp slt i64 {n.text}, {s.copies * s.lanes}", BOOL, 1, n)
                enough = e.code.emit(f"and i1 {enough.text}, {few.text}", BOOL, 1, enough, few)
            stop = e.choose(enough, high, low)
            if lines is None or k:
                vectors(low, stop, count, high)
            elif s.rest:
                after = whole(count * s.lanes, lines.first)
                vectors(e.choose(lines.streams, lines.first, low), e.choose(lines.streams, after, stop), count, high)
            else:
                vectors(e.choose(lines.streams, lines.around, low), stop, count, high, low)
            end = e.minmax("max", end, stop)
    else:
        for count in fits:
            begin, end = end, whole(count * s.lanes, end)
            vectors(begin, end, count, None)
        if s.tail == "predicate":
            _masked(e, s, end, high)
            end = e.minmax("max", end, high)
    if not s.rest:
        return
    if lines is None:
        _single(e, s, e.int(s.begin), low, end, e.int(s.end))
    else:
        e.branch(
            lines.streams,
            lambda: _edges(e, s, lines.first, after),
            lambda: _single(e, s, e.int(s.begin), low, end, e.int(s.end)),
        )


@dataclass(frozen=True, slots=True)
class _Lines:
    """Where the lines of memory begin that a vector loop streams to.

    Attributes:
        streams: are the results not to be kept in the caches, and the loop long enough?
        around, first: the last index not after the interior's begin and the first one not before it at which a vector is aligned.
    """

    streams: Val
    around: Val
    first: Val


def _lines(e: NestEmitter, s: VectorLoop, low: Val, n: Val) -> _Lines | None:
    """Of a loop whose results may be streamed; None for others."""
    found = _first_put(e, s) if s.align == 1 and _are_puts(s.rest) else None
    if found is None:
        return None
    buffer, flat, step = found
    code, dtype = e.code, memory_dtype(e.dtypes[buffer])
    at = address(e, buffer, flat.substitute(lambda a: s.low if a == s.var else None))
    number = code.emit(f"ptrtoint ptr {at.text} to i64", I64, 1, at)
    element = code.emit(f"lshr i64 {number.text}, {dtype.itemsize.bit_length() - 1}", I64, 1, number)
    turns = e.arith("mul", element, const(pow(step, -1, s.lanes), I64))  # `step` of them are one element
    around = e.arith("sub", low, e.arith("and", turns, const(s.lanes - 1, I64)))
    first = e.arith("add", low, e.arith("and", e.arith("sub", const(0, I64), turns), const(s.lanes - 1, I64)))
    enough = code.emit(f"icmp sge i64 {n.text}, {MIN_TURNS * s.copies * s.lanes}", BOOL, 1, n)
    says = streaming_stores.says(e, buffer)
    streamed = code.emit(f"icmp eq i64 {says.text}, 0", BOOL, 1, says)
    return _Lines(code.emit(f"and i1 {enough.text}, {streamed.text}", BOOL, 1, enough, streamed), around, first)


def _are_puts(stmts: tuple[Stmt, ...]) -> bool:
    """Stores, also of rows one after the other, whose vectors hold several?"""
    return all(isinstance(x, (Let, Block)) or (isinstance(x, For) and _are_puts(x.body)) for x in stmts)


def _first_put(e: NestEmitter, s: VectorLoop) -> tuple[str, Poly, int] | None:
    """The first streamed store of a vector loop: its array, its index, and how far that moves with the loop."""
    if not all(isinstance(x, (Let, Block)) for x in s.body):
        return None
    for p in (p for x in s.body if isinstance(x, Block) for p in x.stores):
        if not streaming_stores.is_streamed(e, p.buffer, e.dtypes[p.buffer].itemsize * s.lanes):
            continue
        flat = e.flat(p.buffer, p.index)
        step = flat.coefficient(s.var)
        if step is None or not step.is_const or step.const < 1 or step.const % 2 == 0:
            continue
        if all(a == s.var or e.knows(a) for a in deep_atoms(flat) if isinstance(a, Var)):
            return p.buffer, flat, step.const
    return None


def _single(e: NestEmitter, s: VectorLoop, begin: Val, low: Val, high: Val, end: Val) -> None:
    """Single elements before `low` and from `high` on: one code for both sides."""

    def sides() -> None:
        first = e.code.emit(f"icmp eq i64 {e.vars[SIDE].text}, 0", BOOL, 1, e.vars[SIDE])
        e.loop(s.var, e.choose(first, begin, high), e.choose(first, low, end), 1, lambda: e.stmts(s.rest), rare=True)

    if s.low == s.begin:
        e.loop(s.var, high, end, 1, lambda: e.stmts(s.rest), rare=True)
    else:
        e.loop(SIDE, const(0, I64), const(2, I64), 1, sides)


def _edges(e: NestEmitter, s: VectorLoop, first: Val, after: Val) -> None:
    """What lies before `first` and from `after` on, with boundary handling in vectors: no line of a streamed result is stored in parts."""
    begin, end = e.int(s.begin), e.int(s.end)
    before = e.arith("add", e.arith("sub", first, begin), const(s.lanes - 1, I64))
    start = e.arith("sub", first, e.arith("and", before, const(-s.lanes, I64)))

    def sides() -> None:
        left = e.code.emit(f"icmp eq i64 {e.vars[SIDE].text}, 0", BOOL, 1, e.vars[SIDE])
        e.vector, e.lanes = s.var, s.lanes
        e.loop(
            s.var,
            e.choose(left, start, after),
            e.choose(left, first, end),
            s.lanes,
            lambda: e.stmts(s.rest),
            end,
            begin,
            rare=True,
        )
        e.vector, e.lanes = None, 1

    e.loop(SIDE, const(0, I64), const(2, I64), 1, sides)


def _masked(e: NestEmitter, s: VectorLoop, begin: Val, end: Val) -> None:
    """Vectors from `begin` on, of which the lanes before `end` do something; the others read what the last of those reads."""
    code = e.code

    def body() -> None:
        last = e.arith("sub", end, const(1, I64))
        e.vector, e.lanes, e.align = s.var, s.lanes, s.align
        index = e.atom(s.var, s.lanes)
        limit = splat(code, code.opaque(end), s.lanes)  # LLVM 22 stores too much by a constant mask of one lane
        e.mask = code.emit(f"icmp slt {index.type} {index.text}, {limit.text}", BOOL, s.lanes, index, limit), last
        e.stmts(s.body)
        e.mask, e.vector, e.lanes, e.align = None, None, 1, 1

    guard = e.guard
    e.guard = Val("", I64, 1, len(code.scopes))  # with a mask, loads stay inside
    e.loop(s.var, begin, end, s.lanes, body)
    e.guard = guard
