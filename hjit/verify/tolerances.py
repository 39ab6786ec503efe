"""Tolerances of results, from the Graph alone: which must be bit-identical to NumPy's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hjit.trace.ir.analysis.tolerances import EXACT, INEXACT, Tolerance, ToleranceAnalysis, combined, rounding
from hjit.trace.ir.expressions import Op, walk
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.programs.steps import Branch, Define, Program, Step, every, exprs
from hjit.trace.tracing.recording.events import GraphBreak


def tolerances(
    graphs: Sequence[Graph],
    graph_breaks: Sequence[GraphBreak | None],
    fast_math: bool,
    reorders_scatters: bool = False,
) -> dict[str, Tolerance]:
    """The tolerance of each stage of the segments.

    Args:
        graph_breaks: what ends each of them.
        reorders_scatters: are sums of floats at computed places added in another order than NumPy's?
    """
    found: dict[str, Tolerance] = {}
    for graph, graph_break in zip(graphs, graph_breaks, strict=True):
        analysis = ToleranceAnalysis(found, fast_math, reorders_scatters)
        for s in graph.stages:
            analysis.stage(s)
        if graph_break is not None and graph_break.call is not None:
            needs = combined(found.get(n, EXACT) for n in graph_break.needs)
            dtypes = {i.name: i.dtype for g in graphs for i in g.inputs} | {s.name: s.dtype for s in graph.stages}
            if graph_break.product is not None:
                # The order of its sums depends on the layout of the operands
                found[graph_break.gives[0]] = needs | rounding(graph_break.product.dtype)
                continue
            if graph_break.program is not None:
                found.update(_of_program(graph_break, needs, fast_math))
                continue
            decided = needs.decided or not (graph_break.rule == "monotone" or graph_break.is_reordered)
            if graph_break.is_reordered:  # perhaps with the precision of the least precise argument
                needs = needs | combined(rounding(dtypes[n]) for n in graph_break.needs if n in dtypes)
            found.update(
                {
                    n: needs | Tolerance(max(rounding(dtypes[n]).eps, needs.eps), decided)
                    for n in graph_break.gives
                    if (needs.eps or graph_break.is_reordered) and n in dtypes
                }
            )
    return found


def is_inexact(program: Program, fast_math: bool) -> bool:
    """May loops on exact numbers give other results than NumPy?"""
    for s in every(program.body):
        orders = [d.order for d in s.stage.updates if s.stage.dtype.kind == "f"] if isinstance(s, Define) else []
        if any(order in ("add", "multiply") for order in orders):
            return True
        if any(isinstance(e, Op) and (fast_math or e.name in INEXACT) for e in walk(*exprs(s))):
            return True
    return False


def _of_program(graph_break: GraphBreak, needs: Tolerance, fast_math: bool) -> dict[str, Tolerance]:
    program = graph_break.program
    assert program is not None
    if not needs.eps and not is_inexact(program, fast_math):
        return {}
    given = zip(graph_break.gives, program.arrays, strict=True)
    eps = max([needs.eps, *(rounding(s.dtype).eps for s in program.arrays)]) or float(np.finfo(np.float64).eps)
    decides = any(isinstance(s, Branch) or _chooses(s) for s in every(program.body))
    return {n: Tolerance(eps, needs.decided or decides or s.dtype.kind != "f") for n, s in given}


def _chooses(s: Step) -> bool:
    """Does a step make whole numbers or conditions of floats?"""
    return any(e.args and e.dtype.kind != "f" and any(a.dtype.kind == "f" for a in e.args) for e in walk(*exprs(s)))
