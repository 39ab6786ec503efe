"""Constant padding as a pure definition, so that it fuses.

A constant image with a box written into it is the padded image: inside the box the value, outside the constant. As
``select(inside(d0 - 1, h), ..., c)`` it goes where other point-wise stages go, and lowering drops the test in the
interior of a loop.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hjit.trace.ir.graph import Const, Definition, Expr, Graph, Index, Op, Stage, select, substitute
from hjit.trace.ir.poly import ONE, Dim, Poly, boundary, poly

Side = tuple[
    Poly, Poly, int | None
]  # of a box along an axis: where a point lies in it, its length, and the dimension that runs along it
INSIDE = "inside"  # the operation 0 <= index < extent


def inside(index: Poly, extent: Poly) -> Expr:
    """The bool ``0 <= index < extent``."""
    return Op(INSIDE, (Index(index), Index(extent)), np.bool_)


def fold_select(e: Expr) -> Expr:
    """The side that a test takes whose index and extent are known, as those of the planes of a stack are; other expressions as they are."""
    match e:
        case Op(name="select", args=(Op(name=test, args=(Index(poly=at), Index(poly=n))), a, b)) if (
            test == INSIDE and at.is_const and n.is_const
        ):
            return fold_select(a if 0 <= at.const < n.const else b)
    return e


def borders(graph: Graph) -> Graph:
    """Boxes written into a constant become pure definitions."""
    return replace(graph, stages=tuple(_pure(s) for s in graph.stages))


def _pure(s: Stage) -> Stage:
    if len(s.updates) != 1 or not isinstance(s.initial, Const) or len(s.updates[0].dims) != len(s.shape):
        return s
    value = piecewise(s)
    return s if value is None else replace(s, initial=value, updates=())


def piecewise(s: Stage) -> Expr | None:
    """The value of a stage that boxes are written into, at a point of its own; None where something else is written."""
    value = s.initial
    for d in s.updates:
        box = _box(s, d)
        if box is None:
            return None
        part = _brought_inside(d.value, s, box)
        for axis, (p, n, _) in enumerate(box) if value is not None else ():
            part = _where(axis, p, n, s.shape[axis], part, value)
        value = part
    return value


def _where(axis: int, p: Poly, n: Poly, length: Poly, inner: Expr, outer: Expr) -> Expr:
    """One value where `p` is in [0, n), another elsewhere on an axis; the test holds in the interior, so that it is dropped there."""
    here = poly(Dim(axis))
    if (p, n) == (here, length):
        return inner
    if n.is_const and not length.is_const and p == here:
        return select(inside(here - n, length - n), outer, inner)
    if n.is_const and not length.is_const and p == here - (length - n):
        return select(inside(here, length - n), outer, inner)
    return select(inside(p, n), inner, outer)


def _brought_inside(value: Expr, s: Stage, box: list[Side]) -> Expr:
    """The value of a box at a point of the stage, or at the point of the box that is nearest to it."""
    whole = {axis for axis, (p, n, _) in enumerate(box) if (p, n) == (poly(Dim(axis)), s.shape[axis])}
    at = {k: p if axis in whole else boundary("clamp", p, n) for axis, (p, n, k) in enumerate(box) if k is not None}
    return substitute(value, lambda a: at[a.k] if isinstance(a, Dim) else None)


def _box(s: Stage, d: Definition) -> list[Side] | None:
    """The box that an update writes; None where that is no box, or its values depend on the stage."""
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
