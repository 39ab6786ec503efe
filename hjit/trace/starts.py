"""Where a scan starts: of the array that it runs over only the first rows are computed before it.

``out = img.copy()`` and then ``out[y] = a * img[y] + b * out[y - 1]`` for all rows but the first one: what the copy has in the
other rows nobody reads. The same goes for scans that run backwards.
"""

from __future__ import annotations

from dataclasses import replace

from hjit.trace.graph import Definition, Graph, Load, Stage, identity, renumber, substitute
from hjit.trace.poly import Dim, Poly, least, poly


def start_scans(graph: Graph) -> Graph:
    """The initial values that a scan overwrites before anything reads them are not computed."""
    return replace(graph, stages=tuple(map(_started, graph.stages)))


def _started(s: Stage) -> Stage:
    start = None if s.initial is None or not s.updates else _start(s, s.updates[0])
    if start is None:
        return s
    axis, count, first = start
    assert s.initial is not None
    target = tuple(p + first if k == axis else p for k, p in enumerate(identity(len(s.shape))))
    dims = tuple(poly(count) if k == axis else n for k, n in enumerate(s.shape))
    return replace(s, initial=None, updates=(Definition(dims, (), target, substitute(s.initial, renumber(target))), *s.updates))


def _start(s: Stage, d: Definition) -> tuple[int, int, Poly] | None:
    """The axis that an update runs along, and how many rows it leaves, from which one on; None where it does not overwrite all others.

    Of the stage itself it may read what it has written, or left.
    """
    if d.order != "sequential" or len(d.rdims) != 1 or len(d.dims) != len(s.shape) - 1:
        return None
    turn = Dim(len(d.dims))
    along = [k for k, p in enumerate(d.target) if p.mentions(turn)]
    others = [k for k in range(len(s.shape)) if k not in along]
    if len(along) != 1 or {d.target[k] for k in others} != set(identity(len(d.dims))):
        return None
    if any(d.dims[a.k] != s.shape[k] for k in others for a in d.target[k].atoms() if isinstance(a, Dim)):
        return None
    (axis,) = along
    left = s.shape[axis] - d.rdims[0]
    if not left.is_const or left.const < 1 or least(s.shape[axis]) < left.const:
        return None
    forth, back = poly(turn) + left, s.shape[axis] - left - 1 - poly(turn)
    if d.target[axis] not in (forth, back):
        return None
    way = 1 if d.target[axis] == forth else -1
    if not all(_is_behind(x, d, axis, way) for x in d.loads if x.source == s.name):
        return None
    return axis, left.const, poly(0) if way > 0 else s.shape[axis] - left


def _is_behind(load: Load, d: Definition, axis: int, way: int) -> bool:
    """Does a load read what an earlier turn wrote, or what the scan starts from?"""
    behind = (d.target[axis] - load.index[axis]) * way
    return behind.is_const and behind.const > 0 and all(p == q for k, (p, q) in enumerate(zip(load.index, d.target, strict=True)) if k != axis)
