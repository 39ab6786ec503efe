"""Storage narrowing: a stage that is read through one narrowing cast only is stored in that dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Cast, Expr, Load, cast, rewrite, walk
from hjit.trace.ir.graph import Graph, Stage
from hjit.trace.ir.rewriting import map_exprs

DType = np.dtype[Any]


def narrow_storage(graph: Graph) -> Graph:
    """Store each stage in a narrower dtype if all readers cast it to that one."""
    reads = _reads(graph)
    to = {
        s.name: dtype for s in graph.stages if (dtype := reads.get(s.name)) is not None and _may_have(s, dtype, graph)
    }
    if not to:
        return graph

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Cast) and isinstance(e.arg, Load) and e.arg.dtype != to.get(e.arg.source, e.arg.dtype):
            return Load(e.arg.source, e.arg.index, e.dtype)
        return None  # a cast around that one stays

    def changed(s: Stage) -> Stage:
        memo: dict[Expr, Expr] = {}
        s = map_exprs(s, lambda e: rewrite(e, change, memo))
        dtype = to.get(s.name)
        if dtype is None:
            return s
        initial = None if s.initial is None else cast(s.initial, dtype)
        return replace(
            s, dtype=dtype, initial=initial, updates=tuple(replace(d, value=cast(d.value, dtype)) for d in s.updates)
        )

    return replace(graph, stages=tuple(map(changed, graph.stages)))


def _may_have(s: Stage, dtype: DType, graph: Graph) -> bool:
    """May a stage have a dtype? One that accumulates, or is an output, keeps its own."""
    if s.name in graph.outputs or dtype.itemsize >= s.dtype.itemsize:
        return False
    return s.name not in s.sources and all(d.order == "pure" for d in s.definitions)


def _reads(graph: Graph) -> dict[str, DType | None]:
    """The dtype to which each array is cast where it is read; None: several dtypes, or it is not cast."""
    found: dict[str, DType | None] = {}

    def note(e: Expr, dtype: DType | None) -> None:
        if isinstance(e, Load):
            found[e.source] = dtype if found.get(e.source, dtype) == dtype else None

    for s in graph.stages:
        for root in s.exprs():
            note(root, None)
        for e in walk(*s.exprs()):
            for a in e.args:
                note(a, e.dtype if isinstance(e, Cast) else None)
            for p in e.polys:
                for root in p.exprs:
                    note(root, None)
    return found
