"""Look-up tables for arithmetic on bytes: a long formula of one uint8 pixel has only 256 results.

``(img.astype(np.float32) / 255) ** gamma`` on a uint8 image is computed once for every value of a byte (and every
index of small dimensions that the formula mentions, such as the channel) and then looked up. The table's entries are
computed by the same operations as the pixels would be, so the numbers stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hjit.trace.ir.costs import COSTS
from hjit.trace.ir.graph import (
    Cast,
    Const,
    Expr,
    Graph,
    Index,
    Load,
    Op,
    ScalarRef,
    Stage,
    cast,
    fresh,
    rewrite,
    substitute,
)
from hjit.trace.ir.poly import Dim, Indirect, Poly, poly

WORTH = 24  # additions that a look-up must save for each element
MAX_ROWS = 64  # combinations of small dimensions that one table holds
VALUES = 256


@dataclass(slots=True)
class _Facts:
    """What a sub-expression depends on: byte loads, the dimensions of everything else, and its cost.

    `bytes` None: it depends on something that no table can hold.
    """

    bytes: frozenset[Load] | None
    dims: frozenset[int]
    cost: int


def tabulate(graph: Graph) -> Graph:
    """Replace costly formulas of one byte by look-ups in tables of their own."""
    constants = {i.name for i in graph.inputs if i.data is not None}
    stages: list[Stage] = []
    names = {s.name for s in (*graph.stages, *graph.inputs)}
    for s in graph.stages:
        if s.initial is not None and not all(n.is_const for n in s.shape):
            finder = _Finder(s, constants, names)
            new = finder.replace(s.initial)
            if finder.tables:
                stages += finder.tables
                s = replace(s, initial=new)
        stages.append(s)
    return replace(graph, stages=tuple(stages))


class _Finder:
    """Finds the largest formulas of one byte in an expression, and makes their tables."""

    def __init__(self, stage: Stage, constants: set[str], names: set[str]) -> None:
        self.stage, self.constants, self.names = stage, constants, names
        self.facts: dict[Expr, _Facts] = {}
        self.tables: list[Stage] = []
        self.done: dict[Expr, Expr] = {}

    def replace(self, e: Expr) -> Expr:
        """`e` with its byte formulas looked up."""
        found = self.done.get(e)
        if found is None:
            found = self.done[e] = self._replace(e)
        return found

    def _replace(self, e: Expr) -> Expr:
        facts = self.look(e)
        if facts.bytes is not None and len(facts.bytes) == 1 and facts.cost >= WORTH and self.rows(facts) <= MAX_ROWS:
            return self.table(e, next(iter(facts.bytes)), sorted(facts.dims))
        if not e.args:
            return e
        args = tuple(map(self.replace, e.args))
        return e if all(a is b for a, b in zip(args, e.args, strict=True)) else e.with_args(args)

    def rows(self, facts: _Facts) -> int:
        """Rows of the table; more than allowed where a large dimension is mentioned."""
        count = 1
        for k in facts.dims:
            n = self.stage.shape[k]
            count = count * n.const if n.is_const else MAX_ROWS + 1
        return count

    def look(self, e: Expr) -> _Facts:
        found = self.facts.get(e)
        if found is None:
            found = self.facts[e] = self._look(e)
        return found

    def _look(self, e: Expr) -> _Facts:
        match e:
            case Const() | ScalarRef():
                return _Facts(frozenset(), frozenset(), 0)
            case Index():
                return _of_index((e.poly,))
            case Load() if e.dtype in (np.uint8, np.int8) and e.source not in self.constants:
                return _Facts(frozenset([e]), frozenset(), 0)
            case Load() if e.source in self.constants:
                return _of_index(e.index)
            case Load():
                return _Facts(None, frozenset(), 0)
            case Op() | Cast():
                parts = [self.look(a) for a in e.args]
                price = min(sum(p.cost for p in parts), WORTH) + (COSTS.get(e.name, 1) if isinstance(e, Op) else 0)
                dims = frozenset().union(*(p.dims for p in parts))
                if any(p.bytes is None for p in parts):
                    return _Facts(None, dims, price)
                loads = frozenset().union(*(p.bytes for p in parts if p.bytes is not None))
                return _Facts(loads if len(loads) <= 1 else None, dims, price)
        return _Facts(None, frozenset(), 0)

    def table(self, e: Expr, byte: Load, dims: list[int]) -> Expr:
        name = fresh(f"{self.stage.name}_table", self.names)
        self.names.add(name)
        value = poly(Dim(len(dims)))
        pixel = cast(Index(value - 128 if byte.dtype == np.int8 else value), byte.dtype)
        place = {k: poly(Dim(j)) for j, k in enumerate(dims)}
        formula = _renumbered(e, byte, place, pixel)
        shape = (*(self.stage.shape[k] for k in dims), poly(VALUES))
        self.tables.append(Stage(name, e.dtype, shape, formula, (), self.stage.origin))
        at = Indirect(cast(byte, np.int64), None)
        index = poly(at) + 128 if byte.dtype == np.int8 else poly(at)
        return Load(name, (*(poly(Dim(k)) for k in dims), index), e.dtype)


def _renumbered(e: Expr, byte: Load, place: dict[int, Poly], pixel: Expr) -> Expr:
    """The formula over the dimensions of the table, `pixel` in place of the byte."""
    mark = ScalarRef("byte", pixel.dtype)
    e = rewrite(e, lambda x: mark if x == byte else None)
    e = substitute(e, lambda a: place.get(a.k) if isinstance(a, Dim) else None)
    return rewrite(e, lambda x: pixel if x == mark else None)


def _of_index(index: tuple[Poly, ...]) -> _Facts:
    """The dimensions of a plain index."""
    dims: set[int] = set()
    for p in index:
        for m in p.terms:
            if len(m) != 1 or not isinstance(m[0], Dim):
                return _Facts(None, frozenset(), 0)
            dims.add(m[0].k)
    return _Facts(frozenset(), frozenset(dims), 0)
