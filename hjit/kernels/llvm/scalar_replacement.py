"""Loops whose turns read what the turns before have stored keep it in registers.

A recurrence, such as a running sum along a row, else waits for its own store to come back from memory, which takes longer
than the addition.
"""

from __future__ import annotations

from dataclasses import dataclass

from hjit.kernels.llvm import memory
from hjit.kernels.llvm.code import BOOL, Val
from hjit.kernels.llvm.context import NestEmitter
from hjit.kernels.lower.loopir import Block, For, Store
from hjit.trace.ir.graph import Load, loads
from hjit.trace.ir.poly import Poly, Var, poly

MOST = 4  # turns that a value is kept

Index = tuple[Poly, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """What a loop keeps of one store.

    Attributes:
        loads: what reads it, by how many turns later.
    """

    put: Store
    loads: dict[int, Load]


def carried(s: For) -> list[Carried]:
    """What the turns of a loop can keep for those after them: of stores that overwrite no other's elements."""
    if s.limit is not None or not all(isinstance(x, Block) for x in s.body):
        return []
    puts = [p for x in s.body if isinstance(x, Block) for p in x.stores]
    read = loads(*(p.value for p in puts))
    found = []
    for p in puts:
        same = [q for q in puts if q.buffer == p.buffer]
        if (
            any(q.atomic for q in same)
            or not _moves(p.index, s.var)
            or not all(q is p or _are_apart(p.index, q.index, s.var) for q in same)
        ):
            continue
        before = {_at(p.index, s, poly(s.var), k): k for k in range(1, MOST + 1)}
        kept = {before[x.index]: x for x in read if x.source == p.buffer and x.index in before}
        if kept:
            found.append(Carried(p, kept))
    return found


def _at(index: Index, s: For, turn: Poly, before: int) -> Index:
    """An index so many turns before another turn of a loop."""
    return tuple(p.substitute(lambda a: turn - before * s.step if a == s.var else None) for p in index)


def _moves(index: Index, var: Var) -> bool:
    """Does each turn store another element, at a fixed distance from that of the turn before?"""
    steps = [p.coefficient(var) for p in index]
    return all(c is not None and c.is_const for c in steps) and any(c.const for c in steps if c is not None)


def _are_apart(a: Index, b: Index, var: Var) -> bool:
    """Are two elements different, whatever turns they are of?"""
    return any((p - q).is_const and p != q and not p.mentions(var) for p, q in zip(a, b, strict=True))


def emit(e: NestEmitter, s: For, kept: list[Carried]) -> None:
    """The loop, which runs once or more, with what it keeps."""
    code, begin, end = e.code, e.int(s.begin), e.int(s.end)

    def loop() -> None:
        depth = len(code.scopes)  # of what is inside the loop
        phis: list[tuple[Val, Val, str]] = []
        latest: dict[Store, str] = {}
        inside: dict[Load, Val] = {}
        for x in kept:
            after = latest[x.put] = f"%{code.fresh('stored')}"
            for turns in range(1, max(x.loads) + 1):
                first = memory.scalar(e, x.put.buffer, e.flat(x.put.buffer, _at(x.put.index, s, s.begin, turns)))
                value = Val(f"%{code.fresh('kept')}", first.dtype, 1, depth)
                phis.append((value, first, after))
                after = value.text
                if turns in x.loads:
                    inside[x.loads[turns]] = value

        def body() -> None:
            e.kept, e.stored = inside, {}
            e.stmts(s.body)
            for put, name in latest.items():
                v = e.stored[put]
                code.effect(f"{name} = select i1 true, {v}, {v}")
            e.kept, e.stored = {}, {}

        e.loop(s.var, begin, end, s.step, body, phis=phis)

    e.branch(code.emit(f"icmp slt i64 {begin.text}, {end.text}", BOOL, 1, begin, end), loop)
