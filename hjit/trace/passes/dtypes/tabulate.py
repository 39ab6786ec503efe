"""Look-up tables for arithmetic on bytes: a function of one uint8 pixel has only 256 values.

``(img.astype(np.float32) / 255) ** gamma`` on a uint8 image is computed once for each value of a byte (and each
index of small dimensions that the expression mentions, such as the channel) and then looked up. The entries are
computed by the same operations as the pixels would be, so the numbers stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import is_

import numpy as np

from hjit.trace.ir.analysis.costs import COSTS
from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, Op, ScalarRef, cast, rewrite, substitute
from hjit.trace.ir.graph import Graph, Stage
from hjit.trace.ir.poly import Dim, Indirect, Poly, poly
from hjit.trace.ir.rewriting import fresh
from hjit.trace.passes.limits import TABLE_ROWS, TABULATED_COST

VALUES = 256  # of a byte


@dataclass(slots=True)
class _Dependence:
    """What a sub-expression depends on: byte loads, the dimensions of everything else, and its cost.

    `bytes` None: it depends on something that no table can hold.
    """

    bytes: frozenset[Load] | None
    dims: frozenset[int]
    cost: int


def tabulate(graph: Graph) -> Graph:
    """Replace expensive expressions of one byte by look-ups in tables."""
    constants = {i.name for i in graph.inputs if i.data is not None}
    stages: list[Stage] = []
    names = set(graph.arrays)
    for s in graph.stages:
        if s.initial is not None and not all(n.is_const for n in s.shape):
            found = _Tabulation(s, constants, names)
            new = found.replace(s.initial)
            if found.tables:
                stages += found.tables
                s = replace(s, initial=new)
        stages.append(s)
    return replace(graph, stages=tuple(stages))


class _Tabulation:
    """Finds the largest expressions of one byte, and makes their tables."""

    def __init__(self, stage: Stage, constants: set[str], names: set[str]) -> None:
        self.stage, self.constants, self.names = stage, constants, names
        self.dependences: dict[Expr, _Dependence] = {}
        self.tables: list[Stage] = []
        self.done: dict[Expr, Expr] = {}

    def replace(self, e: Expr) -> Expr:
        """`e` with its expressions of one byte looked up."""
        found = self.done.get(e)
        if found is None:
            found = self.done[e] = self._replace(e)
        return found

    def _replace(self, e: Expr) -> Expr:
        dependence = self.look(e)
        if (
            dependence.bytes is not None
            and len(dependence.bytes) == 1
            and dependence.cost >= TABULATED_COST
            and self.rows(dependence) <= TABLE_ROWS
        ):
            return self.table(e, next(iter(dependence.bytes)), sorted(dependence.dims))
        if not e.args:
            return e
        args = tuple(map(self.replace, e.args))
        return e if all(map(is_, args, e.args)) else e.with_args(args)

    def rows(self, dependence: _Dependence) -> int:
        """Rows of the table; more than allowed where a large dimension is mentioned."""
        count = 1
        for k in dependence.dims:
            n = self.stage.shape[k]
            count = count * n.const if n.is_const else TABLE_ROWS + 1
        return count

    def look(self, e: Expr) -> _Dependence:
        """The dependence of an expression, and its cost."""
        found = self.dependences.get(e)
        if found is None:
            found = self.dependences[e] = self._look(e)
        return found

    def _look(self, e: Expr) -> _Dependence:
        match e:
            case Const() | ScalarRef():
                return _Dependence(frozenset(), frozenset(), 0)
            case Index():
                return _of_index((e.poly,))
            case Load() if e.dtype in (np.uint8, np.int8) and e.source not in self.constants:
                return _Dependence(frozenset([e]), frozenset(), 0)
            case Load() if e.source in self.constants:
                return _of_index(e.index)
            case Load():
                return _Dependence(None, frozenset(), 0)
            case Op() | Cast():
                parts = [self.look(a) for a in e.args]
                cost = min(sum(p.cost for p in parts), TABULATED_COST) + (
                    COSTS.get(e.name, 1) if isinstance(e, Op) else 0
                )
                dims = frozenset().union(*(p.dims for p in parts))
                if any(p.bytes is None for p in parts):
                    return _Dependence(None, dims, cost)
                loads = frozenset().union(*(p.bytes for p in parts if p.bytes is not None))
                return _Dependence(loads if len(loads) <= 1 else None, dims, cost)
        return _Dependence(None, frozenset(), 0)

    def table(self, e: Expr, byte: Load, dims: list[int]) -> Expr:
        """A look-up of an expression, in a table that is a new stage: its values for each of `dims` and each byte."""
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
    """The expression over the dimensions of the table, `pixel` in place of the byte."""
    mark = ScalarRef("byte", pixel.dtype)
    e = rewrite(e, lambda x: mark if x == byte else None)
    e = substitute(e, lambda a: place.get(a.k) if isinstance(a, Dim) else None)
    return rewrite(e, lambda x: pixel if x == mark else None)


def _of_index(index: tuple[Poly, ...]) -> _Dependence:
    """The dimensions of a plain index."""
    dims: set[int] = set()
    for p in index:
        for m in p.terms:
            if len(m) != 1 or not isinstance(m[0], Dim):
                return _Dependence(None, frozenset(), 0)
            dims.add(m[0].k)
    return _Dependence(frozenset(), frozenset(dims), 0)
