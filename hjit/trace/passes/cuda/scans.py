"""Scans of few long rows, and of columns, in parts, for targets on which many blocks of threads run at once (Blelloch
1990): the total of each part, a scan of these totals, and the elements of a part from what comes before it.

An image has thousands of columns, and a GPU runs a hundred times as many threads at once.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from hjit.trace.ir.analysis.scans import Scan, scan_of
from hjit.trace.ir.borders import inside
from hjit.trace.ir.expressions import Const, Expr, Index, Load, Op, cast, renumber, select, substitute
from hjit.trace.ir.graph import Definition, Graph, Stage, identity
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import ZERO, Atom, Dim, IntLike, Poly, boundary, poly
from hjit.trace.ir.rewriting import fresh, map_exprs, with_source
from hjit.trace.passes.cuda.block_reductions import IDEMPOTENT, runs_along_rows
from hjit.trace.passes.limits import SCAN_ELEMENTS, SCAN_ROWS, SHORT_AXIS


def scan_in_blocks(graph: Graph) -> Graph:
    """Compute scans of few long rows, and of columns, in parts, which continue from the total before them."""
    stages: list[Stage] = []
    names = set(graph.arrays)
    for s in graph.stages:
        x = scan_of(s, s.updates[-1]) if s.updates else None
        parts = None if x is None else _parts_of(s, x)
        first = None if x is None or parts is None else _first(s, x)
        if x is not None and parts is not None and first is not None:
            blocks, before = (fresh(f"{s.name}_{word}", names) for word in ("blocks", "before"))
            names |= {blocks, before}
            stages += _in_parts(s, x, parts, first, blocks, before)
        else:
            stages.append(s)
    return replace(graph, stages=tuple(stages))


def separate_scans(graph: Graph) -> Graph:
    """Make in-place scans stages of their own, so that threads can compute them together."""
    stages: list[Stage] = []
    names = set(graph.arrays)
    for s in graph.stages:
        own = _own_scan(s)
        if own is None:
            stages.append(s)
            continue
        terms = fresh(f"{s.name}_terms", names)
        names.add(terms)
        rename = functools.partial(with_source, old=s.name, new=terms)
        stages.append(map_exprs(replace(s, name=terms, updates=s.updates[:-1]), rename))
        scan = replace(s.updates[-1], value=Op(own.op, (own.before, rename(own.element)), s.dtype))
        stages.append(replace(s, initial=Load(terms, identity(len(s.shape)), s.dtype), updates=(scan,)))
    return replace(graph, stages=tuple(stages))


def _own_scan(s: Stage) -> Scan | None:
    """The last update of a stage, if it is a scan but for what it adds, which is what the stage has."""
    d = s.updates[-1] if s.updates else None
    if s.initial is None or d is None or d.joined or not isinstance(d.value, Op) or len(d.value.args) != 2:
        return None
    for before, element in (d.value.args, d.value.args[::-1]):
        if {x.index for x in element.loads if x.source == s.name} == {d.target}:
            found = scan_of(s, replace(d, value=Op(d.value.name, (before, Const(0, s.dtype)), s.dtype)))
            if found is not None:
                return replace(found, element=element)
    return None


@dataclass(frozen=True, slots=True)
class _Parts:
    """How a scan is divided.

    Attributes:
        size: iterations of a part.
        come_first: is the number of the part the first axis of the totals, so that neighbours there are of neighbouring
            columns? Else it is the last one.
    """

    size: int
    come_first: bool

    def index(self, part: Poly, others: tuple[Poly, ...]) -> tuple[Poly, ...]:
        """Where the total of a part is."""
        return (part, *others) if self.come_first else (*others, part)


def _parts_of(s: Stage, x: Scan) -> _Parts | None:
    """The parts of a scan; None if there are enough rows, or columns along two axes, for all blocks."""
    d = s.updates[-1]
    if x.restart or d.rdims[0].is_const:
        return None
    along_rows, long = runs_along_rows(d, s.name), [n for n in d.dims if not n.is_const]
    if len(long) == 1 and not along_rows:
        return _Parts(SCAN_ROWS, come_first=True)
    is_few = not long and math.prod(n.const for n in d.dims) <= SHORT_AXIS
    return _Parts(SCAN_ELEMENTS, come_first=False) if is_few and along_rows else None


def _first(s: Stage, x: Scan) -> Expr | None:
    """What rows begin with, in terms of the other dimensions; None where that depends on the stage itself."""
    d, other = s.updates[-1], s.definitions[0]
    at: list[Poly] = [p.substitute(lambda a: 0 if a == Dim(len(d.dims)) else None) for p in x.before.index]
    is_written = all(n == length or k == x.axis for k, (n, length) in enumerate(zip(other.dims, s.shape, strict=False)))
    is_known = len(s.definitions) == 2 and other.order == "pure" and other.target == identity(len(s.shape))
    if not is_known or not is_written or other.rdims or at[x.axis] != ZERO or s.name in other.sources:
        return None
    return substitute(other.value, renumber(at))


def _in_parts(s: Stage, x: Scan, parts: _Parts, first: Expr, blocks: str, before: str) -> tuple[Stage, Stage, Stage]:
    """The total of each part, that of all before it, and the scan that restarts from that."""
    d = s.updates[-1]
    assert isinstance(d.value, Op)
    pure, n, size = len(d.dims), d.rdims[0], parts.size
    wide = np.dtype(np.float64) if x.op == "add" and s.dtype.kind == "f" else s.dtype
    shape = parts.index((n + (size - 1)) // size, d.dims)
    *others, part = range(pure + 1)  # the dimensions of the totals
    if parts.come_first:
        part, *others = range(pure + 1)
    columns = tuple(poly(Dim(k)) for k in others)
    place = poly(Dim(part)) * size + poly(Dim(pure + 1))
    kept = boundary("clamp", place, n)

    def change(a: Atom) -> IntLike | None:
        return (kept if a.k == pure else columns[a.k]) if isinstance(a, Dim) else None

    neutral = Const(start_value(x.op, wide), wide)
    element = cast(substitute(x.element, change), wide)
    if x.op not in IDEMPOTENT:
        element = select(inside(place, n), element, neutral)
    here = identity(pure + 1)
    joined = Op(x.op, (Load(blocks, here, wide), element), wide)
    reduced = Definition(shape, (poly(size),), here, joined, x.op)
    found = Stage(blocks, wide, shape, neutral, (reduced,), s.origin)

    def at(part: Poly, name: str) -> Load:
        """The total of a part, or of all before it, in the dimensions of the scan."""
        return Load(name, parts.index(part, identity(pure)), wide)

    start, last = cast(substitute(first, change), wide), poly(Dim(pure))
    count = (n + (size - 1)) // size
    joined = Op(x.op, (at(last, before), at(last, blocks)), wide)
    running = Definition(d.dims, (count - 1,), at(last + 1, before).index, joined, "sequential", d.reorders)
    carried = Stage(before, wide, shape, start, (running,), s.origin)

    restarts = Op("equal", (Index(last % size), Const(0, np.int64)), np.bool_)
    value = cast(at(last // size, before), s.dtype)
    scan = replace(d, value=Op(x.op, (select(restarts, value, x.before), x.element), s.dtype))
    return found, carried, replace(s, updates=(*s.updates[:-1], scan))
