"""Scans: recurrences whose operation is associative, so that their iterations may be combined in any grouping.

Of few long rows a target with many blocks of threads scans parts at once (Blelloch 1990): what each part comes to, a
scan of that, and the elements of a part from what comes before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

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
from hjit.trace.ir.identities import IDENTITIES, start_value
from hjit.trace.ir.poly import ONE, ZERO, Atom, Dim, IntLike, Poly, boundary, poly
from hjit.trace.ir.rewriting import fresh
from hjit.trace.passes.block_reductions import IDEMPOTENT, runs_along_rows
from hjit.trace.passes.limits import SCAN_ELEMENTS, SHORT_AXIS

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
    """The scan that an update is; None where grouping its operations otherwise would give other numbers.

    Sums and products of floats are scans where NumPy leaves their order open (`Definition.reorders`).
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
