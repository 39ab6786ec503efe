"""Operands of products that are the same array, ``x @ x.T``, become separate arrays: each has its own required region.

A task that computes a part of such a product needs some rows of one operand and other rows of the other one; as one
array, it would need all rows in between.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hjit.trace.ir.expressions import Expr, Load, rewrite
from hjit.trace.ir.graph import Definition, Graph, Input, Stage, contiguous_layout
from hjit.trace.ir.poly import Dim, deep_atoms
from hjit.trace.ir.rewriting import fresh

Dims = tuple[frozenset[int], ...]  # of each axis of an array the dimensions that its index depends on


def separate_operands(graph: Graph, large: Collection[str]) -> tuple[Graph, dict[str, str]]:
    """The Graph with an input for each repeated operand, and the array that each of these stands for.

    Args:
        large: the arrays that matter.
    """
    aliases: dict[tuple[str, Dims], str] = {}
    stages = tuple(_stage(s, graph, large, aliases) for s in graph.stages)
    inputs = tuple(_input(graph, source, name) for (source, _), name in aliases.items())
    found = {name: source for (source, _), name in aliases.items()}
    return replace(graph, inputs=(*graph.inputs, *inputs), stages=stages), found


def _input(graph: Graph, source: str, name: str) -> Input:
    array = graph.arrays[source]
    return Input(name, array.dtype, array.shape, contiguous_layout(array.shape))


def _stage(s: Stage, graph: Graph, large: Collection[str], aliases: dict[tuple[str, Dims], str]) -> Stage:
    return replace(s, updates=tuple(_update(s.name, d, graph, large, aliases) for d in s.updates))


def _update(
    stage: str, d: Definition, graph: Graph, large: Collection[str], aliases: dict[tuple[str, Dims], str]
) -> Definition:
    """An update over a reduction domain, which loads each array by one set of dimensions only."""
    first: dict[str, Dims] = {}
    for load in d.loads if d.rdims else ():
        if load.source in large and load.source != stage:
            dims = first.setdefault(load.source, _dims(load))
            if dims != _dims(load) and (load.source, _dims(load)) not in aliases:
                taken = {*graph.arrays, *aliases.values()}
                aliases[load.source, _dims(load)] = fresh(f"{load.source}_again", taken)

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Load) and first.get(e.source, _dims(e)) != _dims(e):
            return Load(aliases[e.source, _dims(e)], e.index, e.dtype)
        return None

    return replace(d, value=rewrite(d.value, change)) if first else d


def _dims(load: Load) -> Dims:
    return tuple(frozenset(a.k for a in deep_atoms(p) if isinstance(a, Dim)) for p in load.index)
