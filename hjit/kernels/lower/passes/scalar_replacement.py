"""Loop-carried scalar replacement: values that an iteration stores and a later one reads stay in registers.

Without it, a recurrence such as a running sum along a row waits for store-to-load forwarding, which takes longer than
the addition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from hjit.kernels.lower.loopir import Block, Declare, For, If, Register, Set, Stmt, Store, Vectors
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import Body, with_bodies
from hjit.trace.ir.expressions import Const, Expr, Load, loads, rewrite
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Poly, Var, poly

MAX_ITERATIONS = 4  # that a value is kept

Index = tuple[Poly, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """A store whose values a loop keeps in registers.

    Attributes:
        loads: what reads it, by how many iterations later.
    """

    store: Store
    loads: dict[int, Load]


def replace_scalars(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Keep the loop-carried values of recurrences in registers."""
    return replace(nest, body=_Recurrences(nest).body(nest.body))


class _Recurrences:
    """Numbers the registers of a nest."""

    def __init__(self, nest: Nest) -> None:
        self.buffers = nest.buffers
        self.count = 0

    def body(self, body: Body) -> Body:
        return tuple(map(self.visit, body))

    def visit(self, s: Stmt) -> Stmt:
        if isinstance(s, Vectors):
            return s
        if isinstance(s, For) and not s.rare:
            kept = carried(s)
            if kept and all(self.is_in_place(s, x.store.buffer) for x in kept):
                return self.kept(s, kept)
        return with_bodies(s, self.body)

    def is_in_place(self, s: For, source: str) -> bool:
        """Has each element that the loop stores a place of its own? In a circular buffer rows that are its length apart
        share one."""
        buffer = self.buffers.get(source)
        if buffer is None or buffer.fold is None:
            return True
        rows = [p.index[buffer.fold] for x in s.body if isinstance(x, Block) for p in x.stores if p.buffer == source]
        apart = [row - rows[0] for row in rows]
        if any(row.mentions(s.var) for row in rows) or not all(d.is_const for d in apart):
            return False
        return max(d.const for d in apart) - min(d.const for d in apart) < buffer.lengths[buffer.fold].const

    def kept(self, s: For, kept: list[Carried]) -> Stmt:
        """The loop with registers for the latest value, that of the iteration before, and so on; none where it never
        runs."""
        declared: list[Stmt] = []
        inside: dict[Expr, Expr] = {}
        latest: dict[Store, Register] = {}
        shifts: list[Set] = []
        for x in kept:
            dtype = next(iter(x.loads.values())).dtype
            self.count += 1
            names = [Register(f"{x.store.buffer}.before{self.count}.{k}", dtype) for k in range(max(x.loads) + 1)]
            latest[x.store] = names[0]
            declared.append(Declare(names[0], Const(0, dtype)))
            for k, register in enumerate(names[1:], 1):
                declared.append(Declare(register, Load(x.store.buffer, _at(x.store.index, s, s.begin, k), dtype)))
            inside |= {load: names[k] for k, load in x.loads.items()}
            shifts += [Set(new, old) for old, new in pairwise(names)]
        body = (*self.replaced(s.body, inside, latest), Block((), (), tuple(shifts)))
        return If(s.end - s.begin - 1, (*declared, replace(s, body=body)))

    def replaced(self, body: Body, inside: dict[Expr, Expr], latest: dict[Store, Register]) -> Iterator[Stmt]:
        """Blocks that read registers, and leave there what they store."""
        for s in body:
            assert isinstance(s, Block)
            values = {store: rewrite(store.value, inside.get) for store in s.stores}
            sets = tuple(Set(latest[store], values[store]) for store in s.stores if store in latest)
            yield replace(
                s, stores=tuple(replace(store, value=values[store]) for store in s.stores), sets=(*s.sets, *sets)
            )


def carried(s: For) -> list[Carried]:
    """What the iterations of a loop can keep for later ones: of stores that overwrite no other's elements."""
    if s.limit is not None or not all(isinstance(x, Block) for x in s.body):
        return []
    stores = [p for x in s.body if isinstance(x, Block) for p in x.stores]
    read = loads(*(p.value for p in stores))
    found = []
    for p in stores:
        same = [q for q in stores if q.buffer == p.buffer]
        if any(q.atomic for q in same) or not _moves(p.index, s.var):
            continue
        if not all(q is p or _are_apart(p.index, q.index, s.var) for q in same):
            continue
        before = {_at(p.index, s, poly(s.var), k): k for k in range(1, MAX_ITERATIONS + 1)}
        kept = {before[x.index]: x for x in read if x.source == p.buffer and x.index in before}
        if kept:
            found.append(Carried(p, kept))
    return found


def _at(index: Index, s: For, iteration: Poly, before: int) -> Index:
    """An index so many iterations before another one of a loop."""
    return tuple(p.substitute(lambda a: iteration - before * s.step if a == s.var else None) for p in index)


def _moves(index: Index, var: Var) -> bool:
    """Does each iteration store another element, at a fixed distance from that of the one before?"""
    steps = [p.coefficient(var) for p in index]
    return all(c is not None and c.is_const for c in steps) and any(c.const for c in steps if c is not None)


def _are_apart(a: Index, b: Index, var: Var) -> bool:
    """Are two elements different, whatever iterations they are of?"""
    return any((p - q).is_const and p != q and not p.mentions(var) for p, q in zip(a, b, strict=True))
