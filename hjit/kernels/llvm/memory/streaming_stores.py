"""Streaming (non-temporal) stores: whole vectors of large results bypass the caches, and their lines are not read
first.

A store to memory that is not in a cache moves twice its bytes: the line is read, changed, and written back later. A
store with a non-temporal hint writes a whole line without reading it (Intel's optimization manual, "Cacheability
control"), but requires an aligned address. So the code has both kinds of stores, and each iteration takes the one that
its address allows; a vector loop begins so far before its first element that later iterations are aligned
(`hjit.kernels.lower.passes.vectorize`). A first or last iteration that is shifted inwards recomputes elements of its
neighbour and does not store them: a line that is partly stored and then streamed is written twice, with a stall
(unsharp: 1.4 times slower).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from hjit.kernels.llvm.builder.code import BOOL, I64, Val, const, splat
from hjit.kernels.llvm.memory.address import address, memory_dtype
from hjit.kernels.llvm.nest import indices
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.llvm.vecmath.text import suffix
from hjit.kernels.lower.loopir import LineStart

_HINT = "!0"
_METADATA = f"{_HINT} = !{{i32 1}}"


class Stores:
    """Stores of one statement, emitted together at its end.

    Attributes:
        first: of the elements that an iteration of the vector loop computes, the number of the current vector's first
            one.
    """

    def __init__(self, e: NestEmitter) -> None:
        self._e = e
        self._waiting: list[tuple[str, Val, Val, list[int]]] = []
        self.first = 0

    def whole(self, buffer: str, v: Val, at: Val, elements: Iterable[int]) -> None:
        """A vector, all of whose lanes are stored at `at`; `elements`: the number of each lane's element."""
        if is_streamed(self._e, buffer, v.dtype.itemsize * v.lanes):
            self._waiting.append((buffer, v, at, [self.first + k for k in elements]))
        else:
            self._e.code.effect(f"store {v}, ptr {at.text}, align {v.dtype.itemsize}")

    def finish(self) -> None:
        """Write what may be streamed: with the hint where all addresses are aligned."""
        if not self._waiting:
            return
        e, code = self._e, self._e.code
        kept = [streaming(e, buffer) for buffer in dict.fromkeys(buffer for buffer, *_ in self._waiting)]
        bits = list(kept)
        for _, v, at, _ in self._waiting:
            number = code.emit(f"ptrtoint ptr {at.text} to i64", I64, 1, at)
            bits.append(e.arith("and", number, const(v.dtype.itemsize * v.lanes - 1, I64)))
        code.declare(_METADATA)
        e.branch(self._none(bits), lambda: self._store(f", !nontemporal {_HINT}"), lambda: self._unaligned(kept))

    def _none(self, bits: Iterable[Val]) -> Val:
        """Are they all 0?"""
        every = functools.reduce(lambda x, y: self._e.arith("or", x, y), bits)
        return self._e.code.emit(f"icmp eq i64 {every.text}, 0", BOOL, 1, every)

    def _store(self, hint: str) -> None:
        for _, v, at, _ in self._waiting:
            aligned = v.dtype.itemsize * (v.lanes if hint else 1)
            self._e.code.effect(f"store {v}, ptr {at.text}, align {aligned}{hint}")

    def _unaligned(self, kept: Sequence[Val]) -> None:
        """Of an iteration that is shifted inwards its own elements where others are streamed, else all."""
        e = self._e
        assert e.vector is not None
        at = e.vars[e.vector]
        begin, step = e.iterations.get(e.vector, (at, 0))
        if begin.text == at.text or not all(_has_masks(v) for _, v, _, _ in self._waiting):
            self._store("")
            return
        before = e.arith("sub", begin, at)
        moved = e.code.emit(f"icmp ne i64 {before.text}, 0", BOOL, 1, before)
        own = e.code.emit(f"and i1 {moved.text}, {self._none(kept).text}", BOOL, 1, moved)
        e.branch(own, lambda: self._own(before, step), lambda: self._store(""))

    def _own(self, before: Val, step: int) -> None:
        """Store the elements from `before` on, and before the next iteration's."""
        e, code = self._e, self._e.code
        end = e.arith("add", before, const(step, I64))
        for _, v, at, elements in self._waiting:
            begins, ends = (splat(code, indices.narrow(e, x), v.lanes) for x in (before, end))
            numbers = f"<{', '.join(f'i32 {k}' for k in elements)}>"
            after = code.emit(f"icmp sle {begins.type} {begins.text}, {numbers}", BOOL, v.lanes, begins)
            below = code.emit(f"icmp sgt {ends.type} {ends.text}, {numbers}", BOOL, v.lanes, ends)
            mask = code.emit(f"and {after.type} {after.text}, {below.text}", BOOL, v.lanes, after, below)
            store_masked(e, v, at, mask)


def store_masked(e: NestEmitter, v: Val, at: Val, mask: Val) -> None:
    """Store the lanes of a vector for which `mask` holds."""
    name = f"llvm.masked.store.{suffix(v.dtype, v.lanes)}.p0"
    e.code.declare(f"declare void @{name}({v.type}, ptr, i32, <{v.lanes} x i1>)")
    e.code.effect(f"call void @{name}({v}, ptr {at.text}, i32 {v.dtype.itemsize}, {mask})")


def _has_masks(v: Val) -> bool:
    """Does the processor store some lanes of such a vector at once? (AVX-512 also of narrower ones: not tried.)"""
    return v.dtype.itemsize >= 4


def is_streamed(e: NestEmitter, buffer: str, size: int) -> bool:
    """Does a store of so many bytes wait for `Stores.finish`?"""
    return (
        buffer in e.params.keep
        and "x86" in e.machine.features
        and size >= e.machine.width
        and size & (size - 1) == 0
        and e.mask is None
    )


def line_start(e: NestEmitter, s: LineStart) -> None:
    """Where vectors are aligned, by the address of the store: an iteration is `step` elements, an odd number, which has
    an inverse modulo the lanes, a power of two."""
    code, line = e.code, s.line
    low, high = e.integer(s.low), e.integer(s.high)
    dtype = memory_dtype(e.dtypes[line.buffer])
    flat = e.flat(line.buffer, line.index)
    at = address(e, line.buffer, flat.substitute(lambda a: s.low if a == s.var else None))
    number = code.emit(f"ptrtoint ptr {at.text} to i64", I64, 1, at)
    element = code.emit(f"lshr i64 {number.text}, {dtype.itemsize.bit_length() - 1}", I64, 1, number)
    iterations = e.arith("mul", element, const(pow(line.step, -1, s.lanes), I64))
    within = const(s.lanes - 1, I64)
    n = e.arith("sub", high, low)
    enough = code.emit(f"icmp sge i64 {n.text}, {s.fewest}", BOOL, 1, n)
    keep = streaming(e, line.buffer)
    streamed = code.emit(f"icmp eq i64 {keep.text}, 0", BOOL, 1, keep)
    both = code.emit(f"and i1 {enough.text}, {streamed.text}", BOOL, 1, enough, streamed)
    e.define(s.streams, e.choose(both, const(0, I64), const(-1, I64)))
    e.define(s.aligned_down, e.arith("sub", low, e.arith("and", iterations, within)))
    e.define(s.aligned_up, e.arith("add", low, e.arith("and", e.arith("sub", const(0, I64), iterations), within)))


def finish(e: NestEmitter) -> None:
    """At the end of a function: what was streamed is in memory before its task is done."""
    if _METADATA in e.code.declarations:
        e.code.declare("declare void @llvm.x86.sse.sfence()")
        e.code.effect("call void @llvm.x86.sse.sfence()")


def streaming(e: NestEmitter, buffer: str) -> Val:
    """`params.KEEP` or `params.STREAM`, as the run decides."""
    return e.slot(e.params.keep[buffer])
