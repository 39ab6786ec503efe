"""Barriers: where the threads of a block read, or write again, what others of them have written.

Threads of one `Threads` statement do not wait for each other; a barrier goes before the next one that touches the same
memory, and as few as that needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hjit.kernels.lower.loopir import Barrier, Block, CombineThreads, For, If, Nest, SlidingProduce, Stmt
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.traverse import Body, every, own_polys, sources
from hjit.trace.ir.graph import Graph, loads


def insert_barriers(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """The nest in which no two threads of a block touch the same memory at once, one of them writing."""
    if not nest.blocks:
        return nest
    shared = frozenset(b.stage for b in nest.buffers.values() if b.shared)
    body, _ = _Barriers(shared, nest.stage).body(nest.body, _Since())
    return replace(nest, body=body)


@dataclass(frozen=True, slots=True)
class _Since:
    """Memory that threads have read and written since the last barrier."""

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()

    def union(self, other: _Since) -> _Since:
        return _Since(self.read | other.read, self.written | other.written)


class _Barriers:
    """Puts them into a nest.

    Attributes:
        shared: buffers of a block, whose elements are written again and again.
        common: these, and what the nest computes for later ones: each of its elements is written once.
    """

    def __init__(self, shared: frozenset[str], stage: str) -> None:
        self.shared, self.common = shared, shared | {stage}

    def body(self, body: Body, since: _Since) -> tuple[Body, _Since]:
        found: list[Stmt] = []
        for s in body:
            stmts, since = self.visit(s, since)
            found += stmts
        return tuple(found), since

    def visit(self, s: Stmt, since: _Since) -> tuple[Body, _Since]:
        match s:
            case For():
                _, before = self.body(s.body, since)  # what an iteration leaves to the next
                body, after = self.body(s.body, since.union(before))
                return (replace(s, body=body),), since.union(after)
            case If():  # before it rather than in both
                wait = self.wait((s,), since)
                since = _Since() if wait else since
                body, after = self.body(s.body, since)
                otherwise, after_otherwise = self.body(s.otherwise, since)
                return (*wait, replace(s, body=body, otherwise=otherwise)), after.union(after_otherwise)
            case SlidingProduce():
                body, after = self.body(s.body, since)
                return (replace(s, body=body),), since.union(after)
            case CombineThreads():
                return (s,), _Since()
        wait = self.wait((s,), since)
        own = self.touched((s,))
        return (*wait, s), own if wait else since.union(own)

    def wait(self, body: Body, since: _Since) -> Body:
        """The barrier that statements need before them, if they do."""
        own = self.touched(body)
        clash = own.read & since.written or own.written & (since.read | since.written & self.shared)
        return (Barrier(),) if clash else ()

    def touched(self, body: Iterable[Stmt]) -> _Since:
        """What statements read and write of the common memory."""
        body = tuple(body)
        stores = [x for s in every(body) if isinstance(s, Block) for x in s.stores]
        read = {*sources(body), *(x.buffer for x in stores if x.atomic is not None)}
        read |= {x.source for s in every(body) for p in own_polys(s) for x in loads(*p.exprs)}
        return _Since(self.common & read, self.common & {x.buffer for x in stores})
