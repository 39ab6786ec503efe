"""Dead-store elimination of a scan's initial value: only the rows that the scan starts from are computed before it.

``out = img.copy()``, then ``out[y] = a * img[y] + b * out[y - 1]`` for all rows but the first: the copy's other rows
are dead stores. Where the scan reads them, as ``out[y] += out[y - 1]`` and running sums do, it reads ``img`` instead.
The same goes for scans that run backwards.
"""

from __future__ import annotations

from dataclasses import replace

from hjit.trace.ir.analysis.costs import cost
from hjit.trace.ir.expressions import Expr, Load, renumber, rewrite, substitute
from hjit.trace.ir.graph import Definition, Graph, Stage, identity
from hjit.trace.ir.poly import Dim, Poly, lower_bound, poly
from hjit.trace.passes.limits import INITIAL_COST


def drop_dead_initial_values(graph: Graph) -> Graph:
    """Do not compute initial values that a scan overwrites before anything reads them."""
    return replace(graph, stages=tuple(map(_trimmed, graph.stages)))


def _trimmed(s: Stage) -> Stage:
    number = next((k for k, d in enumerate(s.updates) if d.order == "sequential"), None)
    start = None if s.initial is None or number is None else _start(s, s.updates[number])
    if start is None:
        return s
    axis, count, first = start
    assert s.initial is not None and number is not None
    before, scan, after = s.updates[:number], s.updates[number], s.updates[number + 1 :]
    if not all(_is_at_start(d, s.name, axis, first, count) for d in before):
        return s
    target = tuple(p + first if k == axis else p for k, p in enumerate(identity(len(s.shape))))
    dims = tuple(poly(count) if k == axis else n for k, n in enumerate(s.shape))
    initial = Definition(dims, (), target, substitute(s.initial, renumber(target)))
    return replace(s, initial=None, updates=(initial, *before, replace(scan, value=_from_initial(s, scan)), *after))


def _is_at_start(d: Definition, stage: str, axis: int, first: Poly, count: int) -> bool:
    """Does an update before the scan write nothing but what the scan leaves, and read nothing of the array?"""
    at = d.target[axis] - first
    return d.order == "pure" and not d.rdims and stage not in d.sources and at.is_const and 0 <= at.const < count


def _from_initial(s: Stage, d: Definition) -> Expr:
    """The value of a scan, with the initial value in place of loads of the element that it writes."""
    assert s.initial is not None
    own = substitute(s.initial, renumber(d.target))
    return rewrite(
        d.value, lambda e: own if isinstance(e, Load) and e.source == s.name and e.index == d.target else None
    )


def _start(s: Stage, d: Definition) -> tuple[int, int, Poly] | None:
    """Axis, number and first index of the rows that a scan does not write; None where it does not write all others.

    Of the stage itself it may read what it has written, or left.
    """
    if d.order != "sequential" or len(d.rdims) != 1 or len(d.dims) != len(s.shape) - 1:
        return None
    if any(x.joined for x in s.updates):
        return None
    iteration = Dim(len(d.dims))
    along = [k for k, p in enumerate(d.target) if p.mentions(iteration)]
    others = [k for k in range(len(s.shape)) if k not in along]
    if len(along) != 1 or {d.target[k] for k in others} != set(identity(len(d.dims))):
        return None
    if any(d.dims[a.k] != s.shape[k] for k in others for a in d.target[k].atoms() if isinstance(a, Dim)):
        return None
    (axis,) = along
    left = s.shape[axis] - d.rdims[0]
    if not left.is_const or left.const < 1 or lower_bound(s.shape[axis]) < left.const:
        return None
    forth, back = poly(iteration) + left, s.shape[axis] - left - 1 - poly(iteration)
    if d.target[axis] not in (forth, back):
        return None
    way = 1 if d.target[axis] == forth else -1
    own = [x for x in d.loads if x.source == s.name and not _is_behind(x, d, axis, way)]
    if any(x.index != d.target for x in own) or (own and s.initial is not None and cost(s.initial) > INITIAL_COST):
        return None
    return axis, left.const, poly(0) if way > 0 else s.shape[axis] - left


def _is_behind(load: Load, d: Definition, axis: int, way: int) -> bool:
    """Does a load read what an earlier iteration wrote, or what the scan starts from?"""
    behind = (d.target[axis] - load.index[axis]) * way
    return (
        behind.is_const
        and behind.const > 0
        and all(p == q for k, (p, q) in enumerate(zip(load.index, d.target, strict=True)) if k != axis)
    )
