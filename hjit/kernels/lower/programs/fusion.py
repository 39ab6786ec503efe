"""Fusion in a `Program`: a temporary that only one step reads, each element once, becomes part of that step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from hjit.trace.ir.expressions import Expr, Load, renumber, rewrite, substitute
from hjit.trace.ir.graph import Definition, Stage
from hjit.trace.ir.poly import ONE, Dim, deep_atoms
from hjit.trace.ir.programs.steps import Define, Step, Update, every, exprs, with_bodies

Body = tuple[Step, ...]


def fused(body: Body) -> Body:
    """A body without such temporaries."""
    readers = Counter(x.source for s in every(body) for e in exprs(s) for x in e.loads)
    return _fused(body, readers)


def _fused(body: Body, readers: Counter[str]) -> Body:
    found: list[Step] = []
    waiting: dict[str, Stage] = {}
    for s in body:
        s = with_bodies(s, lambda b: _fused(b, readers))
        read = {x.source for t in every([s]) for e in exprs(t) for x in e.loads}
        written = {t.array for t in every([s]) if isinstance(t, Update)}
        for w in [*waiting.values()]:
            is_late = bool(w.sources & written) and w.name not in read
            if is_late or (w.name in read and not _may_hold(s, w)):
                found += _all_of(w.name, waiting)
        s = _holding(s, waiting)
        for name in read:
            waiting.pop(name, None)
        if isinstance(s, Define) and _is_pointwise(s.stage) and readers[s.stage.name] == 1:
            waiting[s.stage.name] = s.stage
        else:
            found.append(s)
    return (*found, *map(Define, waiting.values()))


def _all_of(name: str, waiting: dict[str, Stage]) -> Iterator[Step]:
    yield Define(waiting.pop(name))


def _is_pointwise(s: Stage) -> bool:
    return bool(s.shape) and not s.updates and s.initial is not None


def _may_hold(s: Step, w: Stage) -> bool:
    """May a temporary be computed in a step that reads it?"""
    match s:
        case Define(stage=own) if not own.updates or len(own.updates) == 1:
            return all(_reads_once(d, w.name) for d in own.definitions)
        case Update(definition=d) if d.order == "pure":
            return _reads_once(d, w.name)
    return False


def _reads_once(d: Definition, name: str) -> bool:
    """Is an element of a temporary read by one point of a definition only?"""
    reads = [x for x in d.loads if x.source == name]
    if any(x.source == name for p in d.target for e in p.exprs for x in e.loads):
        return False
    for x in reads:
        dims = {a for p in x.index for a in deep_atoms(p) if isinstance(a, Dim)}
        if any(Dim(k) not in dims and n != ONE for k, n in enumerate(d.extents)):
            return False
    return len(reads) <= 1


def _holding(s: Step, waiting: dict[str, Stage]) -> Step:
    def change(x: Expr) -> Expr | None:
        if not isinstance(x, Load) or x.source not in waiting:
            return None
        value = waiting[x.source].initial
        assert value is not None
        return substitute(value, renumber(x.index))

    def changed(d: Definition) -> Definition:
        return replace(d, value=rewrite(d.value, change))

    match s:
        case Define(stage=own):
            initial = None if own.initial is None else rewrite(own.initial, change)
            return Define(replace(own, initial=initial, updates=tuple(map(changed, own.updates))))
        case Update():
            return replace(s, definition=changed(s.definition))
    return s
