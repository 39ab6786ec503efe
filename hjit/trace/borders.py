"""Constant padding as a pure definition, so that it fuses.

A constant image with a box written into it is the padded image: inside the box the value, outside the constant. As
``select(inside(d0 - 1, h), ..., c)`` it goes where other point-wise stages go, and lowering drops the test in the
interior of a loop.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hjit.trace.graph import Const, Definition, Expr, Graph, Index, Op, Stage, select, substitute
from hjit.trace.poly import Dim, Poly, bound, poly

INSIDE = "inside"  # the operation 0 <= index < extent


def inside(index: Poly, extent: Poly) -> Expr:
    """The bool ``0 <= index < extent``."""
    return Op(INSIDE, (Index(index), Index(extent)), np.bool_)


def settled(e: Expr) -> Expr:
    """The side that a test takes whose index and extent are known, as those of the planes of a stack are; other expressions as they are."""
    match e:
        case Op(name="select", args=(Op(name=test, args=(Index(poly=at), Index(poly=n))), a, b)) if test == INSIDE and at.is_const and n.is_const:
            return settled(a if 0 <= at.const < n.const else b)
    return e


def borders(graph: Graph) -> Graph:
    """Boxes written into a constant become pure definitions."""
    return replace(graph, stages=tuple(_pure(s) for s in graph.stages))


def _pure(s: Stage) -> Stage:
    if len(s.updates) != 1 or not isinstance(s.initial, Const) or not _is_box(s, s.updates[0]):
        return s
    d = s.updates[0]
    here = [poly(Dim(k)) - (p - poly(Dim(k))) for k, p in enumerate(d.target)]
    within = [bound("clamp", p, n) if p != poly(Dim(k)) or n != s.shape[k] else p for k, (p, n) in enumerate(zip(here, d.dims, strict=True))]
    value = substitute(d.value, lambda a: within[a.k] if isinstance(a, Dim) else None)
    for k, (p, n) in enumerate(zip(here, d.dims, strict=True)):
        if within[k] != poly(Dim(k)):
            value = select(inside(p, n), value, s.initial)
    return replace(s, initial=value, updates=())


def _is_box(s: Stage, d: Definition) -> bool:
    """Does the update write a box, each dimension along its axis, from values that do not depend on the stage?"""
    if d.order != "pure" or len(d.dims) != len(s.shape) or s.name in d.sources:
        return False
    shifts = [p - poly(Dim(k)) for k, p in enumerate(d.target)]
    return not any(p.mentions(Dim(k)) for p in shifts for k in range(len(d.dims)))
