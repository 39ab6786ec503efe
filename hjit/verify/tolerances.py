"""How results may differ from NumPy's, as far as the Graph alone tells: which of them must have NumPy's bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr, Load, Op, walk
from hjit.trace.ir.graph import Graph, Stage
from hjit.trace.ir.programs.steps import Branch, Define, Program, Step, every, exprs
from hjit.trace.tracing.recording.events import GraphBreak

# Ufuncs whose compiled result may differ from NumPy's in the last bits
INEXACT = frozenset(
    """exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 sin cos tan arcsin arccos arctan arctan2 hypot
    sinh cosh tanh arcsinh arccosh arctanh power cbrt reordered fma""".split()
)
# Discontinuous ufuncs from floats to floats
_DISCONTINUOUS = frozenset(
    "rint floor ceil trunc sign floor_divide remainder fmod heaviside copysign spacing nextafter".split()
)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How a result may differ from NumPy's.

    Attributes:
        eps: of the coarsest float type that its inexact values have had; 0: it has NumPy's bits.
        decided: has an inexact value been rounded to a whole number, compared, or used as an index? Then a few elements
            may differ by any amount.
    """

    eps: float = 0.0
    decided: bool = False

    def __or__(self, other: Tolerance) -> Tolerance:
        return (
            other
            if not self.eps
            else self
            if not other.eps
            else Tolerance(max(self.eps, other.eps), self.decided or other.decided)
        )


EXACT = Tolerance()


def rounding(dtype: np.dtype[Any]) -> Tolerance:
    """The tolerance of values that are rounded to a dtype differently from NumPy's."""
    return Tolerance(float(np.finfo(dtype).eps)) if dtype.kind == "f" else EXACT


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
        judge = _Judge(found, fast_math, reorders_scatters)
        for s in graph.stages:
            judge.stage(s)
        if graph_break is not None and graph_break.call is not None:
            needs = _all(found.get(n, EXACT) for n in graph_break.needs)
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
                needs = needs | _all(rounding(dtypes[n]) for n in graph_break.needs if n in dtypes)
            found.update(
                {
                    n: needs | Tolerance(max(rounding(dtypes[n]).eps, needs.eps), decided)
                    for n in graph_break.gives
                    if (needs.eps or graph_break.is_reordered) and n in dtypes
                }
            )
    return found


def is_inexact(program: Program, fast_math: bool) -> bool:
    """May what loops compute of exact numbers differ from NumPy's results?"""
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


class _Judge:
    """The tolerances of the stages of a Graph, from those of what they read."""

    def __init__(self, found: dict[str, Tolerance], fast_math: bool, reorders_scatters: bool) -> None:
        self.found, self.fast_math, self.reorders_scatters = found, fast_math, reorders_scatters

    def stage(self, s: Stage) -> None:
        own = rounding(s.dtype)
        before: Tolerance | None = None
        now = EXACT
        while now != before:  # updates read the stage itself
            before = self.found[s.name] = now
            known: dict[Expr, Tolerance] = {}
            for d in s.definitions:
                value = self.expr(d.value, known) | self.chosen((e for p in d.target for e in p.exprs), s.dtype, known)
                if d.order in ("add", "multiply") or d.reorders or (self.reorders_scatters and d.is_scatter):
                    value = value | own  # NumPy leaves the order of its sums open
                now = now | (value | own if value.eps else value)

    def chosen(self, indices: Iterable[Expr], dtype: np.dtype[Any], known: dict[Expr, Tolerance]) -> Tolerance:
        """The tolerance of an element whose index is computed."""
        found = _all(self.expr(e, known) for e in indices)
        return Tolerance(max(found.eps, rounding(dtype).eps), True) if found.eps else EXACT

    def expr(self, e: Expr, known: dict[Expr, Tolerance]) -> Tolerance:
        found = known.get(e)
        if found is None:
            found = _all(self.expr(a, known) for a in e.args) | self.chosen(
                (x for p in e.polys for x in p.exprs), e.dtype, known
            )
            if isinstance(e, Load):
                found = found | self.found.get(e.source, EXACT)
            elif isinstance(e, Op) and (self.fast_math or e.name in INEXACT):
                found = found | rounding(e.dtype)
            if found.eps:
                jumps = e.args and (e.dtype.kind != "f" or (isinstance(e, Op) and e.name in _DISCONTINUOUS))
                found = found | rounding(e.dtype) | (Tolerance(found.eps, True) if jumps else EXACT)
            known[e] = found
        return found


def _all(parts: Iterable[Tolerance]) -> Tolerance:
    found = EXACT
    for t in parts:
        found = found | t
    return found
