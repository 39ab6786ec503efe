"""Privatisation: a reduction in parts of a dimension, each with a partial result; these are then combined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hjit.trace.ir.analysis.accumulations import accumulation_of
from hjit.trace.ir.expressions import Const, Index, Load, Op, cast, select, substitute
from hjit.trace.ir.graph import Definition, Graph, Stage, identity
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import Atom, Dim, IntLike, extremum, poly
from hjit.trace.ir.rewriting import fresh
from hjit.trace.passes.limits import HISTOGRAM_PARTS


def privatise_histograms(graph: Graph) -> Graph:
    """Count histograms of integers in parts of the image, which run in parallel, and add these up."""
    stages: list[Stage] = []
    names = set(graph.arrays)
    for s in graph.stages:
        for number, d in enumerate(s.updates):
            if _is_histogram(s, d):
                part, update = in_parts(s, d, 0, HISTOGRAM_PARTS, fresh(f"{s.name}_parts", names))
                names.add(part.name)
                stages.append(part)
                s = replace(s, updates=(*s.updates[:number], update, *s.updates[number + 1 :]))
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _is_histogram(s: Stage, d: Definition) -> bool:
    """Is it a scatter from much memory into little, by an operation whose order does not matter?"""
    little = (len(s.shape) == 1 and len(d.rdims) > 1) or all(n.is_const for n in s.shape)
    return (
        d.is_scatter
        and s.dtype.kind in "iub"
        and is_separable(s, d)
        and little
        and not d.dims
        and not d.rdims[0].is_const
    )


def is_separable(s: Stage, d: Definition) -> bool:
    """Can the update be computed in parts of a reduction dimension, and combined by the same operation?"""
    return d.order not in ("pure", "sequential") and accumulation_of(s.name, d) is not None


def in_parts(s: Stage, d: Definition, k: int, parts: int, name: str) -> tuple[Stage, Definition]:
    """A stage of the partial results over parts of reduction dimension `k`, and the update that combines them."""
    assert isinstance(d.value, Op)
    pure = len(d.dims)
    rows = d.rdims[k]
    size = (rows + (parts - 1)) // parts
    row = poly(Dim(0)) * size + poly(Dim(pure + k + 1))
    inside = row if size * parts == rows else extremum("min", row, rows - 1)

    def change(a: Atom) -> IntLike | None:
        return (inside if a.k == pure + k else poly(Dim(a.k + 1))) if isinstance(a, Dim) else None

    # partial sums are rounded once
    wide = np.dtype(np.float64) if d.order == "add" and s.dtype.kind == "f" else s.dtype
    target = (poly(Dim(0)), *(p.substitute(change) for p in d.target))
    neutral = Const(start_value(d.order, wide), wide)
    element = cast(substitute(d.value.args[1], change), wide)
    if inside != row:
        element = select(Op("less", (Index(row), Index(rows)), "?"), element, neutral)
    value = Op(d.value.name, (Load(name, target, wide), element), wide)
    rdims = (*d.rdims[:k], size, *d.rdims[k + 1 :])
    part = Stage(
        name,
        wide,
        (poly(parts), *s.shape),
        neutral,
        (Definition((poly(parts), *d.dims), rdims, target, value, d.order),),
        s.origin,
    )
    n = len(s.shape)
    here = identity(n)
    joined = Op(
        d.value.name, (Load(s.name, here, s.dtype), cast(Load(name, (poly(Dim(n)), *here), wide), s.dtype)), s.dtype
    )
    return part, Definition(s.shape, (poly(parts),), here, joined, d.order)
