"""Constant padding as a pure definition, so that it fuses as other point-wise stages do."""

from __future__ import annotations

from dataclasses import replace

from hjit.trace.ir.borders import piecewise
from hjit.trace.ir.expressions import Const
from hjit.trace.ir.graph import Graph, Stage


def select_padding(graph: Graph) -> Graph:
    """Rewrite a constant stage with regions written into it as a select between those and the constant."""
    return replace(graph, stages=tuple(_pure(s) for s in graph.stages))


def _pure(s: Stage) -> Stage:
    if len(s.updates) != 1 or not isinstance(s.initial, Const) or len(s.updates[0].dims) != len(s.shape):
        return s
    value = piecewise(s)
    return s if value is None else replace(s, initial=value, updates=())
