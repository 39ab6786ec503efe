"""Which threads of a block touch the same element between two barriers, one of them writing: the loop IR, thread by
thread, with indices only.

What a gather reads is left out: its index depends on values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from hjit.kernels.lower.loopir import (
    BEGIN,
    Barrier,
    Block,
    Choose,
    CombineThreads,
    CommitCopies,
    CopyAsync,
    For,
    If,
    Let,
    Name,
    ResetWindow,
    ScanThreads,
    SlidingProduce,
    Stmt,
    Threads,
    WaitForCopies,
)
from hjit.kernels.lower.program import Nest, Program
from hjit.kernels.lower.traverse import stmt_exprs
from hjit.trace.ir.expressions import Expr, Load, loads
from hjit.trace.ir.poly import Atom, Indirect, Poly, Sym, Var, deep_atoms, sizes_value

Element = tuple[str, tuple[int, ...]]
FAR = -(1 << 30)


def races(program: Program, sizes: Mapping[str, int], blocks: int = 3) -> Iterator[str]:
    """Of the first and the last blocks of each nest."""
    for nest in program.nests:
        if nest.blocks and nest.count is not None and nest.renaming is None:
            count = sizes_value(nest.count, sizes)
            for block in sorted({*range(min(blocks, count)), *range(max(count - blocks, 0), count)}):
                yield from Run(nest, sizes, block).found()


class Run:
    """One block."""

    def __init__(self, nest: Nest, sizes: Mapping[str, int], block: int) -> None:
        self.nest, self.sizes, self.block = nest, sizes, block
        self.vars: dict[Var, int] = {BEGIN: block}
        self.done: dict[str, int] = {}
        self.written: dict[Element, set[int]] = {}
        self.read: dict[Element, set[int]] = {}
        self.joined: dict[str, set[int]] = {}  # updated atomically, wherever that is
        self.apart: dict[str, set[int]] = {}  # read or written
        self.common = {b.stage for b in nest.buffers.values() if b.shared} | {nest.stage}
        # elements of groups of copies that may be under way, and whose they are; the last group has not ended
        self.copying: list[dict[Element, int]] = [{}]
        self.faults: dict[str, str] = {}

    def found(self) -> Iterator[str]:
        self.body(self.nest.body, 0)
        yield from self.faults.values()

    def value(self, p: Poly) -> int:
        def of(a: Atom) -> int:
            return self.sizes[a.name] if isinstance(a, Sym) else self.vars[a]  # type: ignore[index]

        return p.evaluate(of) if p.terms else p.const

    def body(self, body: tuple[Stmt, ...], thread: int) -> None:
        for s in body:
            self.visit(s, thread)

    def visit(self, s: Stmt, thread: int) -> None:
        match s:
            case Let():
                self.vars[s.var] = self.value(s.value)
            case Choose():
                self.vars[s.var] = self.value(s.yes if self.value(s.test) >= 0 else s.no)
            case For():
                for k in range(self.value(s.begin), self.value(s.end), s.step):
                    first = k if s.first is None else max(k, self.value(s.first))
                    self.vars[s.var] = first if s.limit is None else min(first, self.value(s.limit) - s.step)
                    self.body(s.body, thread)
            case If():
                self.body(s.body if self.value(s.value) >= 0 else s.otherwise, thread)
            case ResetWindow():
                self.done[s.stage] = FAR
            case SlidingProduce():
                self.vars[s.var] = begin = max(self.value(s.first), self.done[s.stage])
                self.body(s.body, thread)
                if s.last:
                    self.done[s.stage] = max(begin, self.value(s.end))
            case Threads():
                ranges = [range(self.value(t.begin), self.value(t.end), t.step) for t in s.loops]
                counts = [len(r) if t.most is None else t.most for r, t in zip(ranges, s.loops, strict=True)]
                for place in itertools.product(*map(range, map(len, ranges))):
                    item = 0
                    for k, n in zip(place, counts, strict=True):
                        item = item * n + k
                    self.vars |= {t.var: r[k] for t, r, k in zip(s.loops, ranges, place, strict=True)}
                    self.body(s.body, item % self.nest.threads)
            case Barrier() | CombineThreads(lanes=0) | ScanThreads():
                for touched in (self.written, self.read, self.joined, self.apart):
                    touched.clear()
            case CommitCopies():
                self.copying.append({})
            case WaitForCopies():  # now they are written, as their threads see them
                last = max(len(self.copying) - 1 - s.groups, 0)
                for element, copier in (x for group in self.copying[:last] for x in group.items()):
                    self.written.setdefault(element, set()).add(copier)
                self.copying = self.copying[last:]
            case CopyAsync():
                self.touch(s.buffer, s.index, thread, writes=True)
                self.copying[-1][s.buffer, self.place(s.buffer, s.index)] = thread
            case Block() | Name():
                self.accesses(s, thread)

    def accesses(self, s: Block | Name, thread: int) -> None:
        for load in self.loads(s):
            self.touch(load.source, load.index, thread, writes=False)
        for put in s.stores if isinstance(s, Block) else ():
            if put.atomic is None:
                self.touch(put.buffer, put.index, thread, writes=True)
            elif put.buffer in self.common:
                self.clash(f"updates {put.buffer}", self.apart.get(put.buffer, set()), thread)
                self.joined.setdefault(put.buffer, set()).add(thread)

    def loads(self, s: Block | Name) -> Iterator[Load]:
        exprs: list[Expr] = list(stmt_exprs(s))
        yield from (x for x in loads(*exprs) if x.source in self.common)

    def clash(self, what: str, others: set[int], thread: int) -> None:
        """Others may have touched the same element."""
        if others - {thread}:
            self.faults.setdefault(what, f"thread {thread} {what}, as thread {min(others - {thread})} did")

    def place(self, source: str, index: tuple[Poly, ...]) -> tuple[int, ...]:
        """Where an element is in memory: what a buffer holds later has the same places."""
        at = [self.value(p) for p in index]
        b = self.nest.buffers.get(source)
        if b is not None:
            at = [x - self.value(p) for x, p in zip(at, b.origin, strict=True)]
        if b is not None and b.fold is not None:
            at[b.fold] %= self.value(b.lengths[b.fold])
        return tuple(at)

    def touch(self, source: str, index: tuple[Poly, ...], thread: int, writes: bool) -> None:
        if source in self.common:
            self.clash(f"touches {source}", self.joined.get(source, set()), thread)
            self.apart.setdefault(source, set()).add(thread)
        if source not in self.common or any(isinstance(a, Indirect) for p in index for a in deep_atoms(p)):
            return
        at = self.place(source, index)
        element = source, at
        if any(element in group for group in self.copying):
            fault = f"thread {thread} touches {source}{list(at)}, to which a copy is under way"
            self.faults.setdefault(f"copies {source}", fault)
        others = self.written.get(element, set()) - {thread}
        if writes and not others:
            others = self.read.get(element, set()) - {thread}
        if others:
            what = "writes" if writes else "reads"
            fault = f"thread {thread} {what} {source}{list(at)}, which thread {min(others)} touches before a barrier"
            self.faults.setdefault(f"{what} {source}", fault)
        (self.written if writes else self.read).setdefault(element, set()).add(thread)
