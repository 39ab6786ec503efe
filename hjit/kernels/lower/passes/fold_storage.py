"""Storage folding: a stage that slides along a loop keeps only what one iteration reads (Halide 2012, section 4.3).

The axis that moves becomes circular, its length rounded up to a power of two, so that a mask wraps an index. Where
vectors run along that axis all of it is kept: they cannot wrap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hjit.kernels.lower.loopir import Block, Buffer, Nest, Reduce, SlidingProduce, Stmt, VectorLoop
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.traverse import Body, every, inner, stmt_exprs
from hjit.trace.ir.graph import Graph, loads
from hjit.trace.ir.poly import ZERO, Poly, Var, poly


def fold_storage(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """The nest whose sliding stages have circular buffers, where they can."""
    slides: dict[str, list[SlidingProduce]] = {}
    for s in every(nest.body):
        if isinstance(s, SlidingProduce):
            slides.setdefault(s.stage, []).append(s)
    if not slides:
        return nest
    along = set(_vector_axes(nest.body, frozenset()))
    folded = {
        stage: _folded(nest.buffers[stage], found[0].axis, max(s.window for s in found))
        for stage, found in slides.items()
        if all(s.window for s in found) and (stage, found[0].axis) not in along
    }
    return replace(nest, buffers=nest.buffers | folded)


def _folded(b: Buffer, axis: int, window: int) -> Buffer:
    def with_axis(ps: tuple[Poly, ...], p: Poly) -> tuple[Poly, ...]:
        return (*ps[:axis], p, *ps[axis + 1 :])

    length = poly(1 << (window - 1).bit_length())
    return replace(b, origin=with_axis(b.origin, ZERO), lengths=with_axis(b.lengths, length), fold=axis)


def _vector_axes(body: Body, lanes: frozenset[Var]) -> Iterator[tuple[str, int]]:
    """Stages, and their axes along which vectors read or write them."""
    for s in body:
        own = lanes | {t.var for t in s.loops if t.lanes > 1} if isinstance(s, Reduce) else lanes
        for stage, index in _accesses(s) if own else ():
            yield from ((stage, axis) for axis, p in enumerate(index) if any(p.mentions(v) for v in own))
        for k, part in enumerate(inner(s)):
            yield from _vector_axes(part, lanes | {s.var} if isinstance(s, VectorLoop) and k == 0 else lanes)


def _accesses(s: Stmt) -> Iterator[tuple[str, tuple[Poly, ...]]]:
    """What a statement itself reads and writes."""
    yield from ((x.source, x.index) for x in loads(*stmt_exprs(s)))
    match s:
        case Block():
            yield from ((x.buffer, x.index) for x in s.stores)
        case Reduce():
            yield from ((s.buffer, i.index) for i in s.items)
