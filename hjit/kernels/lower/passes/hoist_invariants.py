"""Loop-invariant code motion: values that all iterations share are computed before the loop, and named.

An expression is moved out of every loop that none of its indices depends on, if the nest does not write the memory that
it reads. It stays inside conditions, functions and sliding windows, outside of which its operands may not exist. Names
of indices are moved as well if computing them cannot fail, because a loop without iterations must compute nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from operator import is_
from typing import TypeVar

from hjit.kernels.lower.loopir import Block, Choose, For, Let, Name, Register, Set, Stmt, Store, Vectors
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import Body, bound_vars, every, named_polys, sources, with_bodies
from hjit.trace.ir.borders import fold_select
from hjit.trace.ir.expressions import Cast, Expr, Load, Op
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Dim, Extremum, FloorDiv, Mod, Poly, Sym, Var, deep_atoms

Write = TypeVar("Write", Store, Set)


def hoist_invariants(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Move loop-invariant expressions out of loops."""
    changing = frozenset((*nest.writes, *nest.buffers)).intersection(sources(nest.body))
    return replace(nest, body=_Hoisting(changing).body(nest.body))


class _Hoisting:
    """Numbers the names of a nest.

    Attributes:
        changing: the arrays that the nest reads and writes.
    """

    def __init__(self, changing: frozenset[str]) -> None:
        self.changing = changing
        self.count = 0

    def body(self, body: Body) -> Body:
        """Loops inside first: what they do not depend on may go further out."""
        return tuple(t for s in body for t in self.visit(with_bodies(s, self.body)))

    def visit(self, s: Stmt) -> Iterator[Stmt]:
        if not isinstance(s, For):
            yield s
            return
        indices, body = _without_indices(s)
        loop = _Loop(frozenset({s.var, *(v for t in every(body) for v in bound_vars(t))}), self.changing)
        body = tuple(t for x in body for t in self.without(x, loop))
        yield from indices
        yield from loop.hoisted
        yield replace(s, body=body)

    def without(self, s: Stmt, loop: _Loop) -> Iterator[Stmt]:
        """A statement of a loop's body without what does not depend on the loop."""
        match s:
            case Name(value=value) if loop.is_invariant(value):
                loop.hoisted.append(s)
                loop.names.setdefault(value, s.register)
            case Block():
                yield replace(
                    s,
                    stores=tuple(self.with_value(x, loop) for x in s.stores),
                    sets=tuple(self.with_value(x, loop) for x in s.sets),
                )
            case Vectors():
                yield replace(s, body=tuple(t for x in s.body for t in self.without(x, loop)))
            case _:
                yield s

    def with_value(self, x: Write, loop: _Loop) -> Write:
        value = self.outside(x.value, loop)
        return x if value is x.value else replace(x, value=value)

    def outside(self, e: Expr, loop: _Loop) -> Expr:
        """The expression with names for its largest parts that do not depend on the loop."""
        found = loop.rewritten.get(e)
        if found is None:
            found = loop.rewritten[e] = self._outside(e, loop)
        return found

    def _outside(self, e: Expr, loop: _Loop) -> Expr:
        e = fold_select(e)
        if isinstance(e, Op | Cast | Load) and loop.is_invariant(e):
            if e not in loop.names:
                self.count += 1
                loop.names[e] = Register(f"invariant{self.count}", e.dtype)
                loop.hoisted.append(Name(loop.names[e], e))
            return loop.names[e]
        args = tuple(self.outside(a, loop) for a in e.args)
        return e if all(map(is_, args, e.args)) else e.with_args(args)


def _without_indices(loop: For) -> tuple[list[Let | Choose], Body]:
    """The names of indices that do not depend on a loop, and its body without them."""
    bound = Counter(v for t in every(loop.body) for v in bound_vars(t))
    inside = {loop.var, *bound}
    hoisted: list[Let | Choose] = []
    kept: list[Stmt] = []
    for s in loop.body:
        if isinstance(s, Let | Choose) and bound[s.var] == 1 and all(_goes_out(p, inside) for p in named_polys(s)):
            hoisted.append(s)
            inside.discard(s.var)
        else:
            kept.append(s)
    return hoisted, tuple(kept)


def _goes_out(p: Poly, inside: Collection[Var]) -> bool:
    """Does an index depend on nothing `inside`, and can computing it not fail, by loading or by dividing by zero?"""
    return all(
        isinstance(a, Dim | Sym | Extremum)
        or (isinstance(a, Var) and a not in inside)
        or (isinstance(a, FloorDiv | Mod) and a.by.is_const)
        for a in deep_atoms(p)
    )


class _Loop:
    """What goes out of one loop.

    Attributes:
        hoisted: what goes before it. names: invariant expressions -> their names.
        rewritten: expressions of the loop -> those with names.
    """

    def __init__(self, inside: frozenset[Var], changing: frozenset[str]) -> None:
        self.inside, self.changing = inside, changing
        self.hoisted: list[Name] = []
        self.names: dict[Expr, Register] = {}
        self.rewritten: dict[Expr, Expr] = {}
        self._known: dict[Expr, bool] = {}

    def is_invariant(self, e: Expr) -> bool:
        found = self._known.get(e)
        if found is None:
            found = self._known[e] = self._is_invariant(e)
        return found

    def _is_invariant(self, e: Expr) -> bool:
        if isinstance(e, Register) or (isinstance(e, Load) and e.source in self.changing):
            return False
        if not all(self.inside.isdisjoint(deep_atoms(p)) for p in e.polys):
            return False
        return all(map(self.is_invariant, e.args)) and all(self.is_invariant(x) for p in e.polys for x in p.exprs)
