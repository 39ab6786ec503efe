"""Demanded-region elimination: stages get the extents that their readers need.

``gaussian_filter(img, 3)[10:20, 5:9]`` filters only what lies around those pixels, and ``img.sum(axis=1)[3:5]`` adds up
two rows. This shrinks whole stages, before there is a schedule; inside loops, bounds inference finds the required
regions (`hjit.sched.analysis.propagation`, which says how the two differ).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hjit.trace.ir.expressions import Expr, Load, rewrite, substitute
from hjit.trace.ir.graph import Definition, Graph, Stage, identity
from hjit.trace.ir.intervals import Interval, interval, upper_bound
from hjit.trace.ir.poly import ZERO, Atom, Dim, Extremum, IntLike, Poly, deep_atoms, poly
from hjit.trace.ir.rewriting import map_exprs
from hjit.trace.passes.limits import UNREAD_ELEMENTS


@dataclass(frozen=True, slots=True)
class Demand:
    """The part of an axis that is read: `length` elements from `low` on."""

    low: Poly
    length: Poly


def crop_to_demanded(graph: Graph) -> Graph:
    """Crop stages that are computed element by element, and only read in part, to the demanded region."""
    stages: dict[str, Stage] = {}
    lows: dict[str, tuple[Poly, ...]] = {}
    reads: dict[str, list[list[Interval | None]]] = {
        s.name: [] for s in graph.stages if s.name not in graph.outputs and _is_elementwise(s)
    }
    for s in reversed(graph.stages):
        demands = _demands(s, reads[s.name]) if s.name in reads else None
        if demands is not None:
            lows[s.name] = tuple(p.low for p in demands)
            s = _cropped(s, demands)
        stages[s.name] = s
        for d in s.definitions:
            every = {k: Interval.of(ZERO, n - 1) for k, n in enumerate(d.extents)}
            known: dict[Poly, Interval | None] = {}  # the taps of a stencil have few indices along an axis
            for x in d.loads:
                if x.source in reads and x.source != s.name:
                    for p in x.index:
                        if p not in known:
                            known[p] = interval(p, every, every)
                    reads[x.source].append([known[p] for p in x.index])
    if not lows:
        return graph

    def moved(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.source not in lows:
            return None
        return Load(e.source, tuple(p - n for p, n in zip(e.index, lows[e.source], strict=True)), e.dtype)

    memo: dict[Expr, Expr] = {}
    return replace(
        graph, stages=tuple(map_exprs(stages[s.name], lambda e: rewrite(e, moved, memo)) for s in graph.stages)
    )


def _is_elementwise(s: Stage) -> bool:
    """Is each element computed without the others?"""
    here = identity(len(s.shape))
    return (
        s.initial is not None
        and bool(s.shape)
        and all(
            d.target == here and d.dims == s.shape and all(x.index == here for x in d.loads if x.source == s.name)
            for d in s.updates
        )
    )


def _demands(s: Stage, reads: Sequence[Sequence[Interval | None]]) -> list[Demand] | None:
    """The demand of each axis; None if it is unknown, or nearly the whole stage."""
    if not reads:
        return None
    found: list[Demand] = []
    for k, n in enumerate(s.shape):
        intervals = [x[k] for x in reads]
        low = _extreme([None if x is None else x.low for x in intervals], least=True)
        high = _extreme([None if x is None else x.high for x in intervals], least=False)
        found.append(_demand(n, low, high))
    return None if all(x == Demand(ZERO, n) for x, n in zip(found, s.shape, strict=True)) else found


def _extreme(ends: Sequence[Poly | None], least: bool) -> Poly | None:
    """The least or the greatest of some bounds, where they differ by constants."""
    best = ends[0]
    for p in ends:
        if best is None or p is None or any(isinstance(a, Extremum) for a in deep_atoms(p)) or not (p - best).is_const:
            return None
        if ((p - best).const < 0) == least and p != best:
            best = p
    return best


def _demand(n: Poly, low: Poly | None, high: Poly | None) -> Demand:
    """The demand of an axis of `n` elements: those from `low` to `high`, if that is much less than all."""
    if low is None or high is None:
        return Demand(ZERO, n)
    length, after = high - low + 1, n - 1 - high
    if (low == ZERO and after == ZERO) or (length.is_const and length.const < 1):
        return Demand(ZERO, n)
    before, behind = upper_bound(low), upper_bound(after)
    small = before is not None and behind is not None and before + behind < UNREAD_ELEMENTS
    return Demand(ZERO, n) if small else Demand(low, length)


def _cropped(s: Stage, demands: Sequence[Demand]) -> Stage:
    """The demanded region of a stage; its loads of itself are moved later."""
    shape = tuple(p.length for p in demands)

    def further(a: Atom) -> IntLike | None:
        return poly(a) + demands[a.k].low if isinstance(a, Dim) and a.k < len(demands) else None

    def own(d: Definition) -> Definition:
        return replace(d, dims=shape, value=substitute(d.value, further))

    assert s.initial is not None
    return replace(s, shape=shape, initial=substitute(s.initial, further), updates=tuple(map(own, s.updates)))
