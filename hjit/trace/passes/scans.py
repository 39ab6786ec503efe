"""Scans of few long rows in parts, for targets on which many blocks of threads run at once (Blelloch 1990): what each
part comes to, a scan of that, and the elements of a part from what comes before it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from hjit.trace.ir.borders import inside
from hjit.trace.ir.graph import (
    Const,
    Definition,
    Expr,
    Graph,
    Index,
    Load,
    Op,
    Stage,
    cast,
    identity,
    renumber,
    select,
    substitute,
)
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import ZERO, Atom, Dim, IntLike, Poly, boundary, poly
from hjit.trace.ir.rewriting import fresh
from hjit.trace.ir.scans import Scan, scan_of
from hjit.trace.passes.block_reductions import IDEMPOTENT, runs_along_rows
from hjit.trace.passes.limits import SCAN_ELEMENTS, SHORT_AXIS


def scan_in_blocks(graph: Graph) -> Graph:
    """Scans of few long rows have parts, which restart from what comes before them."""
    stages: list[Stage] = []
    names = set(graph.arrays)
    for s in graph.stages:
        x = scan_of(s, s.updates[-1]) if s.updates else None
        first = None if x is None or not _wants_parts(s, x) else _first(s, x)
        if x is not None and first is not None:
            blocks, before = (fresh(f"{s.name}_{word}", names) for word in ("blocks", "before"))
            names |= {blocks, before}
            stages += _parts(s, x, first, blocks, before)
        else:
            stages.append(s)
    return replace(graph, stages=tuple(stages))


def _wants_parts(s: Stage, x: Scan) -> bool:
    """Are there too few rows for all blocks?"""
    d = s.updates[-1]
    if x.restart or d.rdims[0].is_const or any(not n.is_const for n in d.dims):
        return False
    return math.prod(n.const for n in d.dims) <= SHORT_AXIS and runs_along_rows(d, s.name)


def _first(s: Stage, x: Scan) -> Expr | None:
    """What rows begin with, in terms of the other dimensions; None where that depends on the stage itself."""
    d, other = s.updates[-1], s.definitions[0]
    at: list[Poly] = [p.substitute(lambda a: 0 if a == Dim(len(d.dims)) else None) for p in x.before.index]
    is_written = all(n == length or k == x.axis for k, (n, length) in enumerate(zip(other.dims, s.shape, strict=False)))
    is_known = len(s.definitions) == 2 and other.order == "pure" and other.target == identity(len(s.shape))
    if not is_known or not is_written or other.rdims or at[x.axis] != ZERO or s.name in other.sources:
        return None
    return substitute(other.value, renumber(at))


def _parts(s: Stage, x: Scan, first: Expr, blocks: str, before: str) -> tuple[Stage, Stage, Stage]:
    """What each part comes to, what comes before it, and the scan that restarts from that."""
    d = s.updates[-1]
    assert isinstance(d.value, Op)
    pure, n, size = len(d.dims), d.rdims[0], SCAN_ELEMENTS
    wide = np.dtype(np.float64) if x.op == "add" and s.dtype.kind == "f" else s.dtype
    shape = (*d.dims, (n + (size - 1)) // size)
    here, last = identity(pure), poly(Dim(pure))
    place = last * size + poly(Dim(pure + 1))
    kept = boundary("clamp", place, n)

    def change(a: Atom) -> IntLike | None:
        return kept if a == Dim(pure) else None

    neutral = Const(start_value(x.op, wide), wide)
    element = cast(substitute(x.element, change), wide)
    if x.op not in IDEMPOTENT:
        element = select(inside(place, n), element, neutral)
    own = Load(blocks, (*here, last), wide)
    part = Definition(shape, (poly(size),), own.index, Op(x.op, (own, element), wide), x.op)
    parts = Stage(blocks, wide, shape, neutral, (part,), s.origin)

    start = cast(first, wide)
    joined = Op(x.op, (Load(before, (*here, last), wide), own), wide)
    running = Definition(d.dims, (shape[-1] - 1,), (*here, last + 1), joined, "sequential", d.reorders)
    carried = Stage(before, wide, shape, start, (running,), s.origin)

    restarts = Op("equal", (Index(last % size), Const(0, np.int64)), np.bool_)
    value = cast(Load(before, (*here, last // size), wide), s.dtype)
    scan = replace(d, value=Op(x.op, (select(restarts, value, x.before), x.element), s.dtype))
    return parts, carried, replace(s, updates=(*s.updates[:-1], scan))
