"""Fission of reductions: terms with boundary conditions as stages of their own, and reductions in two steps.

The loops of a pure stage are partitioned: vectors run where no boundary condition applies, single elements at the ends.
A reduction's loop is not, so each lane of ``np.abs(laplace(img)).sum()`` would evaluate the boundary condition.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hjit.trace.ir.expressions import Const, Load, Op, cast, renumber, substitute
from hjit.trace.ir.graph import Definition, Graph, Stage, identity
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import Boundary, Dim, Poly, deep_atoms, poly
from hjit.trace.ir.rewriting import fresh


def separate_boundary_terms(graph: Graph) -> Graph:
    """Make terms that read across a boundary of the vector dimension stages of their own."""
    names = set(graph.arrays)
    stages: list[Stage] = []
    for s in graph.stages:
        for number, d in enumerate(s.updates):
            if _has_boundary_terms(d):
                terms, d = _separated(s, d, fresh(f"{s.name}_terms", names))
                names.add(terms.name)
                stages.append(terms)
                s = replace(s, updates=(*s.updates[:number], d, *s.updates[number + 1 :]))
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _has_boundary_terms(d: Definition) -> bool:
    if d.order in ("pure", "sequential") or d.is_scatter or not isinstance(d.value, Op) or len(d.value.args) != 2:
        return False
    return any(x.index and _is_at_boundary(x.index[-1], d) and _is_all_of(x, d) for x in d.value.args[1].loads)


def _is_at_boundary(p: Poly, d: Definition) -> bool:
    """Does an index have a boundary condition in a long reduction dimension?"""
    return any(isinstance(a, Boundary) and any(k >= len(d.dims) for k in _long(poly(a), d)) for a in deep_atoms(p))


def _is_all_of(x: Load, d: Definition) -> bool:
    """Does each long dimension run along an axis of the array, so that there are no more terms than elements?"""
    along = [_long(p, d) for p in x.index]
    return all(len(dims) <= 1 for dims in along) and len(set().union(*along)) == sum(not n.is_const for n in d.extents)


def _long(p: Poly, d: Definition) -> set[int]:
    """The dimensions in an index whose extents are not known."""
    return {a.k for a in deep_atoms(p) if isinstance(a, Dim) and not d.extents[a.k].is_const}


def _separated(s: Stage, d: Definition, name: str) -> tuple[Stage, Definition]:
    """The stage of an update's terms, and the update that reads it."""
    assert isinstance(d.value, Op)
    own, term = d.value.args
    terms = Stage(name, term.dtype, d.extents, term, (), s.origin)
    return terms, replace(
        d, value=Op(d.value.name, (own, Load(name, identity(len(d.extents)), term.dtype)), d.value.dtype)
    )


def split_reductions(graph: Graph) -> Graph:
    """Split a reduction to few elements into two steps, rows and then their results, so that rows run in parallel."""
    stages: list[Stage] = []
    names = set(graph.arrays)
    for s in graph.stages:
        if len(s.updates) == 1 and _wants_two_steps(s.updates[0]):
            rows, s = _in_two_steps(s, fresh(f"{s.name}_rows", names))
            names.add(rows.name)
            stages.append(rows)
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _wants_two_steps(d: Definition) -> bool:
    """Nothing to run in parallel but the reduction itself, and a target that does not depend on it."""
    if d.order in ("pure", "sequential") or d.target != identity(len(d.dims)):
        return False
    return all(n.is_const for n in d.dims) and sum(not n.is_const for n in d.rdims) >= 2


def _in_two_steps(s: Stage, name: str) -> tuple[Stage, Stage]:
    """The stage ``rows[r, dims]`` that reduces all but the outermost long dimension, and the one that reduces that."""
    d = s.updates[0]
    assert isinstance(d.value, Op)
    own, element = d.value.args
    outer, pure = next(k for k, n in enumerate(d.rdims) if not n.is_const), len(d.dims)
    order = [pure + outer, *range(pure), *(pure + k for k in range(len(d.rdims)) if k != outer)]
    place = {old: poly(Dim(new)) for new, old in enumerate(order)}
    dtype = d.value.dtype
    # sums of floats keep their rows in double precision; the last cast rounds once
    wide = np.dtype(np.float64) if d.order == "add" and dtype.kind == "f" else dtype
    shape, rest = (d.rdims[outer], *d.dims), tuple(n for k, n in enumerate(d.rdims) if k != outer)
    here = identity(len(shape))
    element = cast(substitute(element, renumber([place[k] for k in range(len(order))])), wide)
    reduced = Definition(shape, rest, here, Op(d.order, (Load(name, here, wide), element), wide), d.order)
    rows = Stage(name, wide, shape, Const(start_value(d.order, wide), wide), (reduced,), s.origin)
    row = cast(Load(name, (poly(Dim(pure)), *identity(pure)), wide), dtype)
    update = Definition(d.dims, (d.rdims[outer],), d.target, Op(d.order, (own, row), dtype), d.order)
    return rows, replace(s, updates=(update,))
