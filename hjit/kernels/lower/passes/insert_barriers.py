"""Barriers: before threads of a block read or overwrite what other threads have written.

Threads do not wait within one `Threads` statement; a barrier is inserted before the next one that accesses the same
memory, and no more barriers than needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hjit.kernels.lower.loopir import (
    Barrier,
    Block,
    CopyAsync,
    For,
    If,
    SlidingProduce,
    Stmt,
)
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import Body, every, own_polys, sources
from hjit.kernels.lower.uniform import check_uniform, is_barrier
from hjit.trace.ir.expressions import loads
from hjit.trace.ir.graph import Graph


def insert_barriers(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Insert barriers, so that no thread of a block accesses memory that another one is writing.

    Raises:
        CompileError: some threads of a block may not reach a barrier, see `check_uniform`.
    """
    if not nest.blocks:
        return nest
    shared = {b.stage: b.memory or b.stage for b in nest.buffers.values() if b.shared}
    body, _ = _Barriers(shared, nest.stage, nest.threads).body(nest.body, _Accesses())
    nest = replace(nest, body=body)
    check_uniform(nest)
    return nest


@dataclass(frozen=True, slots=True)
class _Accesses:
    """The memory that threads have read and written since the last barrier.

    Attributes:
        joined: what has been updated atomically, and by which operation: in any order, but not in that of others.
    """

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    joined: frozenset[tuple[str, str]] = frozenset()

    def union(self, other: _Accesses) -> _Accesses:
        return _Accesses(self.read | other.read, self.written | other.written, self.joined | other.joined)

    def without(self, name: str) -> _Accesses:
        """What of it is not of one array."""
        return replace(self, read=self.read - {name}, written=self.written - {name})

    def clashes(self, later: _Accesses, again: frozenset[str]) -> bool:
        """Do later accesses conflict with these?

        Args:
            again: memory whose elements are written more than once.
        """
        joined, joined_later = ({name for name, _ in x.joined} for x in (self, later))
        others = {name for name, op in later.joined if any(n == name and o != op for n, o in self.joined)}
        return bool(
            later.read & (self.written | joined)
            or later.written & (self.read | joined | self.written & again)
            or joined_later & (self.read | self.written)
            or others
        )


class _Barriers:
    """Inserts barriers into a nest.

    Attributes:
        memory: of buffers of a block the one in whose memory they are, themselves for instance.
        shared: the memory of blocks, whose elements are written again and again.
        common: this, and what the nest computes for later ones: each of its elements is written once.
        threads: of a block.
    """

    def __init__(self, memory: Mapping[str, str], stage: str, threads: int) -> None:
        self.memory, self.shared, self.threads = memory, frozenset(memory.values()), threads
        self.common = self.shared | {stage}

    def body(self, body: Body, since: _Accesses) -> tuple[Body, _Accesses]:
        found: list[Stmt] = []
        for s in body:
            stmts, since = self.visit(s, since)
            found += stmts
        return tuple(found), since

    def visit(self, s: Stmt, since: _Accesses) -> tuple[Body, _Accesses]:
        match s:
            case For():
                body, after = self.iterations(s.body, since)
                steady, after_steady = self.iterations(s.body, _Accesses())
                if _barriers(steady) < _barriers(body):  # one before the loop in place of one in each iteration
                    return (Barrier(), replace(s, body=steady)), after_steady
                return (replace(s, body=body),), since.union(after)
            case If():  # before it rather than in both
                wait = self.wait((s,), since)
                since = _Accesses() if wait else since
                body, after = self.body(s.body, since)
                otherwise, after_otherwise = self.body(s.otherwise, since)
                return (*wait, replace(s, body=body, otherwise=otherwise)), after.union(after_otherwise)
            case SlidingProduce():
                body, after = self.body(s.body, since.without(s.stage) if s.is_apart else since)
                return (replace(s, body=body),), since.union(after)
            case _ if is_barrier(s, self.threads):
                return (s,), _Accesses()
        wait = self.wait((s,), since)
        own = self.touched((s,))
        return (*wait, s), own if wait else since.union(own)

    def iterations(self, body: Body, since: _Accesses) -> tuple[Body, _Accesses]:
        """The body of a loop: what an iteration leaves to the next one counts, too."""
        _, before = self.body(body, since)
        return self.body(body, since.union(before))

    def wait(self, body: Body, since: _Accesses) -> Body:
        """The barrier that statements need before them, if any."""
        own = self.touched(body)
        return (Barrier(),) if since.clashes(own, self.shared) else ()

    def touched(self, body: Iterable[Stmt]) -> _Accesses:
        """The accesses of statements to memory that threads share."""
        body = tuple(body)
        stores = [x for s in every(body) if isinstance(s, Block) for x in s.stores]
        read = {*sources(body), *(x.source for s in every(body) for p in own_polys(s) for x in loads(*p.exprs))}
        joined = {(self.place(x.buffer), x.atomic) for x in stores if x.atomic is not None}
        written = {x.buffer for x in stores if x.atomic is None}
        written |= {s.buffer for s in every(body) if isinstance(s, CopyAsync)}
        read, written = (set(map(self.place, names)) for names in (read, written))
        return _Accesses(self.common & read, self.common & written, frozenset(x for x in joined if x[0] in self.common))

    def place(self, array: str) -> str:
        """The memory in which an array is."""
        return self.memory.get(array, array)


def _barriers(body: Body) -> int:
    return sum(isinstance(s, Barrier) for s in every(body))
