"""Store-to-load forwarding through concatenations: arrays that are written piece by piece along one axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hjit.trace.ir.analysis.costs import cost
from hjit.trace.ir.borders import inside
from hjit.trace.ir.expressions import Expr, Load, renumber, rewrite, select, substitute
from hjit.trace.ir.graph import Definition, Graph, Stage, identity
from hjit.trace.ir.poly import Dim, Poly, boundary, poly
from hjit.trace.ir.rewriting import map_definitions
from hjit.trace.passes.limits import REPEATED_COST, SELECTED_PLANES


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a concatenation: ``stage[..., first : first + count, ...] = definition``, all of the other axes."""

    first: int
    count: int
    definition: Definition

    def value(self, axis: int, index: tuple[Poly, ...]) -> Expr:
        """The value at an index of the stage that is in the operand."""
        if len(self.definition.dims) == len(index):
            index = (*index[:axis], index[axis] - self.first, *index[axis + 1 :])
        else:
            index = (*index[:axis], *index[axis + 1 :])
        return substitute(self.definition.value, renumber(index))


def concatenated(s: Stage) -> tuple[int, tuple[Operand, ...]] | None:
    """The axis, of known extent, and the operands that a stage concatenates; None if it is not a concatenation."""
    if not s.updates or any(d.order != "pure" or d.rdims or s.name in d.sources for d in s.updates):
        return None
    for axis, extent in enumerate(s.shape):
        found = [_operand(s, d, axis) for d in s.updates] if extent.is_const else []
        known = {(x.first, x.count): x for x in found if x is not None}  # the last of those written to one place
        if found and None not in found and _cover(known.values(), extent.const):
            return axis, tuple(known.values())
    return None


def _operand(s: Stage, d: Definition, axis: int) -> Operand | None:
    rest = [k for k in range(len(s.shape)) if k != axis]
    at = d.target[axis]
    if at.is_const and d.dims == tuple(s.shape[k] for k in rest):
        return Operand(at.const, 1, d) if all(d.target[k] == poly(Dim(j)) for j, k in enumerate(rest)) else None
    first = at - poly(Dim(axis))
    whole = len(d.dims) == len(s.shape) and all(d.dims[k] == s.shape[k] and d.target[k] == poly(Dim(k)) for k in rest)
    return Operand(first.const, d.dims[axis].const, d) if whole and first.is_const and d.dims[axis].is_const else None


def _cover(found: Iterable[Operand], extent: int) -> bool:
    """Is every index in one of them, and in one only?"""
    end = 0
    for x in sorted(found, key=lambda x: x.first):
        if x.first != end:
            return False
        end += x.count
    return end == extent


def _cheaply_concatenated(s: Stage) -> tuple[int, tuple[Operand, ...]] | None:
    """`concatenated`, where each part is so cheap that it may be computed again."""
    found = concatenated(s)
    return found if found is not None and all(cost(x.definition.value) <= REPEATED_COST for x in found[1]) else None


def forward_stores(graph: Graph) -> Graph:
    """Replace loads that are always in one part of a concatenation by the stored value."""
    known: dict[str, tuple[int, tuple[Operand, ...]]] = {}
    stages = []

    def forwarded(e: Expr, extents: tuple[Poly, ...]) -> Expr | None:
        if not isinstance(e, Load) or e.source not in known:
            return None
        axis, found = known[e.source]
        within = _range(e.index[axis], extents)
        if within is None:
            return None
        return next(
            (x.value(axis, e.index) for x in found if within.start >= x.first and within.stop <= x.first + x.count),
            None,
        )

    for s in graph.stages:
        if known.keys() & s.sources:
            s = map_definitions(s, lambda e, extents: rewrite(e, lambda x: forwarded(x, extents)))
        found = _cheaply_concatenated(s)
        if found is not None:
            known[s.name] = found
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _range(index: Poly, extents: tuple[Poly, ...]) -> range | None:
    """The values of an index that is a constant, or a dimension of known extent and a constant; None for others."""
    if index.is_const:
        return range(index.const, index.const + 1)
    for a in index.atoms():
        shift = index - poly(a)
        if isinstance(a, Dim) and shift.is_const and extents[a.k].is_const:
            return range(shift.const, shift.const + extents[a.k].const)
    return None


def select_planes(graph: Graph) -> Graph:
    """Make a few cheap planes one pure definition, a select between them, which fuses and can be scheduled.

    Not those of outputs, which are written one after the other.
    """
    return replace(graph, stages=tuple(s if s.name in graph.outputs else _selected(s) for s in graph.stages))


def _selected(s: Stage) -> Stage:
    found = _cheaply_concatenated(s)
    if found is None or s.shape[found[0]].const > SELECTED_PLANES:
        return s
    axis, operands = found
    index = identity(len(s.shape))
    value: Expr | None = None
    for x in reversed(operands):
        at = index[axis] - x.first
        clamped = boundary("clamp", at, poly(x.count)) + x.first
        here = x.value(axis, (*index[:axis], clamped, *index[axis + 1 :]))
        value = here if value is None else select(inside(at, poly(x.count)), here, value)
    return replace(s, initial=value, updates=())
