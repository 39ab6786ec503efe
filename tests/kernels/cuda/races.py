"""Which threads of a block touch the same element between two barriers, one of them writing, which touch what is not in a
buffer, and which read what another buffer has in the same memory: the loop IR, thread by thread, with indices only.

What a gather reads is left out: its index depends on values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hjit.kernels.lower.loopir import (
    BEGIN,
    Block,
    Choose,
    CommitCopies,
    CopyAsync,
    For,
    If,
    Let,
    Name,
    ResetWindow,
    SlidingProduce,
    Stmt,
    Threads,
    WaitForCopies,
)
from hjit.kernels.lower.program import Nest, Program
from hjit.kernels.lower.traverse import stmt_exprs
from hjit.kernels.lower.uniform import is_barrier
from hjit.trace.ir.expressions import Expr, Load, loads
from hjit.trace.ir.poly import Atom, Indirect, Poly, Sym, Var, deep_atoms, sizes_value

Element = tuple[str, tuple[int, ...]]
FAR, FAR_UP = -(1 << 30), 1 << 62


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
        self.lent = {b.memory for b in nest.buffers.values()}
        self.holds: dict[Element, str] = {}  # whose an element is
        self.values: dict[Poly, Callable[[], int]] = {}
        self.places: dict[tuple[str, tuple[Poly, ...]], list[tuple[Callable[[], int], int, bool]]] = {}
        self.gathers: dict[tuple[Poly, ...], bool] = {}
        self.read_by: dict[int, list[Load]] = {}  # by the statement's id

    def found(self) -> Iterator[str]:
        self.body(self.nest.body, 0)
        yield from self.faults.values()

    def value(self, p: Poly) -> int:
        found = self.values.get(p)
        if found is None:
            found = self.values[p] = self.formula(p)
        return found()

    def formula(self, p: Poly) -> Callable[[], int]:
        """What computes a polynomial at the present values of variables: fast, where it is a sum of some of them."""
        const, terms = p.const, []
        for m, c in p.terms.items():
            atoms = [a for a in m if not isinstance(a, Sym)]
            if len(atoms) > 1 or not all(isinstance(a, Var) for a in atoms):
                return lambda: p.evaluate(self.atom)
            factor = math.prod((self.sizes[a.name] for a in m if isinstance(a, Sym)), start=c)
            if atoms:
                terms.append((factor, atoms[0]))
            else:
                const += factor
        values: Mapping[Any, int] = self.vars
        return lambda: const + sum([c * values[v] for c, v in terms])

    def atom(self, a: Atom) -> int:
        return self.sizes[a.name] if isinstance(a, Sym) else self.vars[a]  # type: ignore[index]

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
            case _ if is_barrier(s, self.nest.threads):
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
                self.copying[-1][self.element(s.buffer, self.place(s.buffer, s.index))] = thread
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

    def loads(self, s: Block | Name) -> list[Load]:
        found = self.read_by.get(id(s))
        if found is None:
            exprs: list[Expr] = list(stmt_exprs(s))
            found = self.read_by[id(s)] = [x for x in loads(*exprs) if x.source in self.common]
        return found

    def clash(self, what: str, others: set[int], thread: int) -> None:
        """Others may have touched the same element."""
        if others - {thread}:
            self.faults.setdefault(what, f"thread {thread} {what}, as thread {min(others - {thread})} did")

    def place(self, source: str, index: tuple[Poly, ...]) -> tuple[int, ...]:
        """Where an element is in memory: what a buffer holds later has the same places."""
        axes = self.places.get((source, index))
        if axes is None:
            axes = self.places[source, index] = self.axes(source, index)
        at = tuple([value() if not is_circular else value() % length for value, length, is_circular in axes])
        if any(k < 0 or k >= length for k, (_, length, _) in zip(at, axes, strict=True)):
            lengths = " x ".join(str(length) for _, length, _ in axes)
            self.faults.setdefault(
                f"outside {source}", f"{source}{list(at)} is not in the {lengths} elements of {source}"
            )
        return at

    def axes(self, source: str, index: tuple[Poly, ...]) -> list[tuple[Callable[[], int], int, bool]]:
        """Of an access, per axis: the place in its memory, how many there are, and whether they are a circle."""
        b = self.nest.buffers.get(source)
        if b is None:
            return [(self.formula(p), FAR_UP, False) for p in index]
        from_origin = (p - o for p, o in zip(index, b.origin, strict=True))
        lengths = [self.value(p) for p in b.lengths]
        return [(self.formula(p), lengths[k], k == b.fold) for k, p in enumerate(from_origin)]

    def element(self, source: str, at: tuple[int, ...]) -> Element:
        """The memory, and where in it, of an element: its number, where several buffers have the memory."""
        b = self.nest.buffers.get(source)
        if b is None or (b.memory is None and source not in self.lent):
            return source, at
        strides = b.layout.strides(b.lengths)
        return b.memory or source, (sum(k * n.const for k, n in zip(at, strides, strict=True)),)

    def is_gather(self, index: tuple[Poly, ...]) -> bool:
        found = self.gathers.get(index)
        if found is None:
            found = self.gathers[index] = any(isinstance(a, Indirect) for p in index for a in deep_atoms(p))
        return found

    def touch(self, source: str, index: tuple[Poly, ...], thread: int, writes: bool) -> None:
        if source in self.common:
            self.clash(f"touches {source}", self.joined.get(source, set()), thread)
            self.apart.setdefault(source, set()).add(thread)
        if source not in self.common or self.is_gather(index):
            return
        at = self.place(source, index)
        element = self.element(source, at)
        if writes:
            self.holds[element] = source
        elif self.holds.get(element, source) != source:
            fault = f"thread {thread} reads {source}{list(at)}, where {self.holds[element]} is"
            self.faults.setdefault(f"holds {source}", fault)
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
