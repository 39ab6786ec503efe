"""Constant padding as a pure definition, so that it fuses.

A constant image with a region written into it is the padded image: inside the region the value, outside the constant.
As ``select(inside(d0 - 1, h), ..., c)`` it is fused as other point-wise stages are, and loop partitioning removes the
test from the steady state of a loop.
"""

from __future__ import annotations

import numpy as np

from hjit.trace.ir.expressions import Expr, Index, Op, select, substitute
from hjit.trace.ir.graph import Definition, Stage
from hjit.trace.ir.poly import ONE, Dim, Poly, boundary, poly

# of a region along an axis: where a point lies in it, its length, and the dimension that runs along it
Side = tuple[Poly, Poly, int | None]
INSIDE = "inside"  # the operation 0 <= index < extent


def inside(index: Poly, extent: Poly) -> Expr:
    """The bool ``0 <= index < extent``."""
    return Op(INSIDE, (Index(index), Index(extent)), np.bool_)


def fold_select(e: Expr) -> Expr:
    """An expression; of a select by `inside` of constants, as those of the planes of a stack are, the chosen side."""
    match e:
        case Op(name="select", args=(Op(name=test, args=(Index(poly=at), Index(poly=n))), a, b)) if (
            test == INSIDE and at.is_const and n.is_const
        ):
            return fold_select(a if 0 <= at.const < n.const else b)
    return e


def piecewise(s: Stage) -> Expr | None:
    """The value of a stage at a point, if regions are written into it; None if other updates are."""
    value = s.initial
    for d in s.updates:
        region = _region(s, d)
        if region is None:
            return None
        part = _clamped(d.value, s, region)
        if value is not None:
            for axis, (p, n, _) in enumerate(region):
                part = _where(axis, p, n, s.shape[axis], part, value)
        value = part
    return value


def _where(axis: int, p: Poly, n: Poly, length: Poly, inner: Expr, outer: Expr) -> Expr:
    """`inner` where `p` is in [0, n), `outer` elsewhere on an axis; the test is one that holds in the steady state."""
    here = poly(Dim(axis))
    if (p, n) == (here, length):
        return inner
    if n.is_const and not length.is_const and p == here:
        return select(inside(here - n, length - n), outer, inner)
    if n.is_const and not length.is_const and p == here - (length - n):
        return select(inside(here, length - n), outer, inner)
    return select(inside(p, n), inner, outer)


def _clamped(value: Expr, s: Stage, region: list[Side]) -> Expr:
    """The value of a region at the point of it that is nearest to a point of the stage."""
    whole = {axis for axis, (p, n, _) in enumerate(region) if (p, n) == (poly(Dim(axis)), s.shape[axis])}
    at = {k: p if axis in whole else boundary("clamp", p, n) for axis, (p, n, k) in enumerate(region) if k is not None}
    return substitute(value, lambda a: at[a.k] if isinstance(a, Dim) else None)


def _region(s: Stage, d: Definition) -> list[Side] | None:
    """The region that an update writes; None if it is not rectangular, or its values depend on the stage."""
    if d.order != "pure" or s.name in d.sources:
        return None
    found: list[Side] = []
    for axis, p in enumerate(d.target):
        here = [k for k in range(len(d.dims)) if p.mentions(Dim(k))]
        shift = p - poly(Dim(here[0])) if len(here) == 1 else p
        if len(here) > 1 or any(shift.mentions(Dim(k)) for k in here):
            return None
        found.append((poly(Dim(axis)) - shift, d.dims[here[0]] if here else ONE, here[0] if here else None))
    return found if sorted(k for _, _, k in found if k is not None) == [*range(len(d.dims))] else None
