"""Which stages are bit-identical to NumPy's, and how others may differ, from the Graph alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr, Load, Op
from hjit.trace.ir.graph import Stage

# Ufuncs whose compiled result may differ from NumPy's in the last bits
INEXACT = frozenset(
    """exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 sin cos tan arcsin arccos arctan arctan2 hypot
    sinh cosh tanh arcsinh arccosh arctanh power cbrt reordered unordered fma""".split()
)
# Discontinuous ufuncs from floats to floats
_DISCONTINUOUS = frozenset(
    "rint floor ceil trunc sign floor_divide remainder fmod heaviside copysign spacing nextafter".split()
)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed difference of a result from NumPy's.

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
    """The tolerance of values that are rounded to a dtype differently from NumPy."""
    return Tolerance(float(np.finfo(dtype).eps)) if dtype.kind == "f" else EXACT


class ToleranceAnalysis:
    """The tolerances of the stages of a Graph, propagated from their sources."""

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
        found = combined(self.expr(e, known) for e in indices)
        return Tolerance(max(found.eps, rounding(dtype).eps), True) if found.eps else EXACT

    def expr(self, e: Expr, known: dict[Expr, Tolerance]) -> Tolerance:
        found = known.get(e)
        if found is None:
            found = combined(self.expr(a, known) for a in e.args) | self.chosen(
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


def combined(parts: Iterable[Tolerance]) -> Tolerance:
    """The tolerance of a value computed from all of these."""
    found = EXACT
    for t in parts:
        found = found | t
    return found
