"""Vectors of the LLVM emitter: what is inside `Vectors`, and where the lines of memory begin."""

from __future__ import annotations

from hjit.kernels.llvm import streaming_stores
from hjit.kernels.llvm.address import address, memory_dtype
from hjit.kernels.llvm.code import BOOL, I64, Val, const, splat
from hjit.kernels.llvm.context import NestEmitter
from hjit.kernels.lower.loopir import LineStart, Vectors


def emit(e: NestEmitter, s: Vectors) -> None:
    """The body, in which what depends on the variable is a vector."""
    guard = e.guard
    e.vector, e.lanes, e.align, e.at_once = s.var, s.lanes, s.align, s.count
    if s.active is not None:
        e.mask = _mask(e, s, e.int(s.active))
        e.guard = Val("", I64, 1, len(e.code.scopes) - 1)  # with a mask, loads stay inside
    e.stmts(s.body)
    e.mask, e.guard = None, guard
    e.vector, e.lanes, e.align, e.at_once = None, 1, 1, 1


def _mask(e: NestEmitter, s: Vectors, end: Val) -> tuple[Val, Val]:
    """Which lanes do something, and the last index that one of them has; the others read what that one reads."""
    code = e.code
    last = e.arith("sub", end, const(1, I64))
    index = e.atom(s.var, s.lanes)
    limit = splat(code, code.opaque(end), s.lanes)  # LLVM 22 stores too much by a constant mask of one lane
    return code.emit(f"icmp slt {index.type} {index.text}, {limit.text}", BOOL, s.lanes, index, limit), last


def line_start(e: NestEmitter, s: LineStart) -> None:
    """From the address of the store: an iteration is `step` elements, which has an inverse modulo the lanes, a power of
    two."""
    code, line = e.code, s.line
    low, high = e.int(s.low), e.int(s.high)
    dtype = memory_dtype(e.dtypes[line.buffer])
    flat = e.flat(line.buffer, line.index)
    at = address(e, line.buffer, flat.substitute(lambda a: s.low if a == s.var else None))
    number = code.emit(f"ptrtoint ptr {at.text} to i64", I64, 1, at)
    element = code.emit(f"lshr i64 {number.text}, {dtype.itemsize.bit_length() - 1}", I64, 1, number)
    iterations = e.arith("mul", element, const(pow(line.step, -1, s.lanes), I64))
    within = const(s.lanes - 1, I64)
    n = e.arith("sub", high, low)
    enough = code.emit(f"icmp sge i64 {n.text}, {s.fewest}", BOOL, 1, n)
    keep = streaming_stores.streaming(e, line.buffer)
    streamed = code.emit(f"icmp eq i64 {keep.text}, 0", BOOL, 1, keep)
    both = code.emit(f"and i1 {enough.text}, {streamed.text}", BOOL, 1, enough, streamed)
    e.define(s.streams, e.choose(both, const(0, I64), const(-1, I64)))
    e.define(s.around, e.arith("sub", low, e.arith("and", iterations, within)))
    e.define(s.inner, e.arith("add", low, e.arith("and", e.arith("sub", const(0, I64), iterations), within)))
