"""Reductions of images with borders: their terms are stages of their own.

Vectors along a dimension run where no border is near, and single elements at its ends. A reduction's loop has no ends, so that
each lane of ``np.abs(laplace(img)).sum()`` would look for the border by itself.
"""

from __future__ import annotations

from dataclasses import replace

from hjit.trace.ir.graph import Definition, Graph, Load, Op, Stage, fresh, identity
from hjit.trace.ir.poly import Boundary, Dim, Poly, deep_atoms, poly


def bordered_terms(graph: Graph) -> Graph:
    """What is reduced along a dimension that its lanes would run along is computed before, where it looks across a border of it."""
    names = {x.name for x in (*graph.inputs, *graph.stages)}
    stages: list[Stage] = []
    for s in graph.stages:
        for number, d in enumerate(s.updates):
            if _has_bordered_terms(d):
                terms, d = _apart(s, d, fresh(f"{s.name}_terms", names))
                names.add(terms.name)
                stages.append(terms)
                s = replace(s, updates=(*s.updates[:number], d, *s.updates[number + 1 :]))
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _has_bordered_terms(d: Definition) -> bool:
    if d.order in ("pure", "sequential") or d.is_scatter or not isinstance(d.value, Op) or len(d.value.args) != 2:
        return False
    return any(x.index and _is_bordered(x.index[-1], d) and _is_all_of(x, d) for x in d.value.args[1].loads)


def _is_bordered(p: Poly, d: Definition) -> bool:
    """Does an index along the innermost axis look across a border in a reduction's dimension?"""
    return any(isinstance(a, Boundary) and any(k >= len(d.dims) for k in _long(poly(a), d)) for a in deep_atoms(p))


def _is_all_of(x: Load, d: Definition) -> bool:
    """Is each dimension that is long one of an axis of the array, so that there are no more terms than it has elements?"""
    along = [_long(p, d) for p in x.index]
    return all(len(dims) <= 1 for dims in along) and len(set().union(*along)) == sum(not n.is_const for n in d.extents)


def _long(p: Poly, d: Definition) -> set[int]:
    """The dimensions in an index whose extents are not known."""
    return {a.k for a in deep_atoms(p) if isinstance(a, Dim) and not d.extents[a.k].is_const}


def _apart(s: Stage, d: Definition, name: str) -> tuple[Stage, Definition]:
    """The terms of an update, and the update of them."""
    assert isinstance(d.value, Op)
    own, term = d.value.args
    terms = Stage(name, term.dtype, d.extents, term, (), s.origin)
    return terms, replace(
        d, value=Op(d.value.name, (own, Load(name, identity(len(d.extents)), term.dtype)), d.value.dtype)
    )
