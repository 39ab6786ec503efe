"""Updates of a single row, ``out[0] = ...``, as updates of rows: ``out[0:1]``, so that a chunk without it does none."""

from __future__ import annotations

from dataclasses import replace

from hjit.trace.ir.expressions import Expr, Load, rewrite, substitute
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.poly import ONE, Atom, Dim, Indirect, IntLike, Poly, deep_atoms, poly


def rows_as_dims(graph: Graph) -> Graph:
    """Give targets at a fixed position of an axis a dimension of one iteration."""
    return replace(graph, stages=tuple(map(_stage, graph.stages)))


def _stage(s: Stage) -> Stage:
    if not any(_is_fixed(p) for d in s.updates for p in d.target):
        return s
    return replace(s, updates=tuple(_update(s.name, d) for d in s.updates))


def _is_fixed(p: Poly) -> bool:
    return not any(isinstance(a, (Dim, Indirect)) for a in deep_atoms(p))


def _update(name: str, d: Definition) -> Definition:
    for axis, p in enumerate(d.target):
        if _is_fixed(p):
            d = _with_dim(name, d, axis)
    return d


def _with_dim(name: str, d: Definition, axis: int) -> Definition:
    """The definition with a further pure dimension, along an axis."""
    new = len(d.dims)

    def change(a: Atom) -> IntLike | None:
        return poly(Dim(a.k + 1)) if isinstance(a, Dim) and a.k >= new else None

    fixed = d.target[axis]
    target = tuple(p.substitute(change) for p in d.target)
    target = (*target[:axis], fixed + poly(Dim(new)), *target[axis + 1 :])

    def own(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.source == name and e.index[axis] == fixed:
            return Load(name, (*e.index[:axis], fixed + poly(Dim(new)), *e.index[axis + 1 :]), e.dtype)
        return None

    value = rewrite(substitute(d.value, change), own)
    return replace(d, dims=(*d.dims, ONE), target=target, value=value)
