"""Scans: recurrences whose operation is associative, so that their iterations may be combined in any grouping."""

from __future__ import annotations

from dataclasses import dataclass

from hjit.trace.ir.expressions import Const, Expr, Index, Load, Op
from hjit.trace.ir.graph import Definition, Stage
from hjit.trace.ir.identities import IDENTITIES
from hjit.trace.ir.poly import ONE, ZERO, Dim, poly

EXTREMES = ("maximum", "minimum", "fmax", "fmin")


@dataclass(frozen=True, slots=True)
class Scan:
    """A recurrence ``stage[target] = op(stage[one before], element)``.

    Attributes:
        axis: along which it runs, upwards.
        before: the load of the element before.
        restart: at multiples of so many iterations it goes on from `start` in place of `before`; 0: it does not.
    """

    op: str
    axis: int
    before: Load
    element: Expr
    restart: int = 0
    start: Expr | None = None


def scan_of(s: Stage, d: Definition) -> Scan | None:
    """An update as a scan; None if regrouping its operations would change the result.

    Sums of floats are scans where NumPy leaves their order open (`Definition.reorders`).
    """
    value, last = d.value, len(d.extents) - 1
    if d.order != "sequential" or d.is_scatter or len(d.rdims) != 1 or not isinstance(value, Op):
        return None
    is_exact = s.dtype.kind in "iub" or value.name in EXTREMES or d.reorders
    if value.name not in IDENTITIES or not is_exact or value.dtype != s.dtype or len(value.args) != 2:
        return None
    first, element = value.args
    restart, start, before = _restart(first, last)
    if not isinstance(before, Load) or before.source != s.name or any(x.source == s.name for x in element.loads):
        return None
    if start is not None and any(x.source == s.name for x in start.loads):
        return None
    steps = [p - q for p, q in zip(d.target, before.index, strict=True)]
    axes = [k for k, p in enumerate(d.target) if p.mentions(Dim(last))]
    if len(axes) != 1 or any(step != (ONE if k == axes[0] else ZERO) for k, step in enumerate(steps)):
        return None
    if not (d.target[axes[0]] - poly(Dim(last))).is_const:
        return None
    return Scan(value.name, axes[0], before, element, restart, start)


def _restart(e: Expr, last: int) -> tuple[int, Expr | None, Expr]:
    """After how many iterations a recurrence goes on from another value, that value, and the one before otherwise."""
    match e:
        case Op(name="select", args=(Op(name="equal", args=(Index(poly=place), Const(value=0))), start, before)):
            for a in place.atoms():
                by = getattr(a, "by", None)
                if by is not None and by.is_const and place == poly(Dim(last)) % by.const:
                    return by.const, start, before
    return 0, None, e
