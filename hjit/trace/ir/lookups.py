"""Look-ups: which indices that arrays hold a Graph looks at in any case, since all of the elements that they lead to are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hjit.trace.ir.graph import Definition, Expr, Index, Load, Op, Stage, identity, pure, substitute, walk
from hjit.trace.ir.poly import ONE, ZERO, Atom, Dim, IntLike, Poly, Value, deep_atoms, poly

Lookup = tuple[Expr, tuple[Poly, ...], Poly]  # the index over dimensions numbered in the order they are met, their extents, the axis' length


def looked_up(stages: Mapping[str, Stage], goals: Iterable[str]) -> set[Lookup]:
    """The indices that are looked at, all of them, where `goals` are computed.

    Args:
        stages: each after those that it reads.
    """
    found: set[Lookup] = set()
    needed: dict[str, set[frozenset[int]]] = {g: {frozenset(range(len(stages[g].shape)))} for g in goals if g in stages}
    for s in reversed(stages.values()):
        for axes in needed.get(s.name, ()):
            for d, dims in _run(s, axes):
                if ZERO in d.extents:
                    continue
                for e in _evaluated(*d.exprs()):
                    if isinstance(e, Load) and e.source in stages and e.source != s.name:
                        needed.setdefault(e.source, set()).add(_whole_axes(e, stages[e.source], d, dims))
                found.update(_lookups(d, dims))
    return found


def lookup(index: Expr, extents: tuple[Poly, ...], length: Poly) -> Lookup:
    """An index in the form in which look-ups are compared."""
    numbers: dict[int, int] = {}

    def change(a: Atom) -> IntLike | None:
        if not isinstance(a, Dim):
            return None
        return ZERO if extents[a.k] == ONE else Dim(numbers.setdefault(a.k, len(numbers)))

    renumbered = substitute(index, change)
    return renumbered, tuple(extents[k] for k in numbers), length


def _run(s: Stage, axes: frozenset[int]) -> Iterator[tuple[Definition, frozenset[int]]]:
    """The definitions of a stage that run where these axes are needed from end to end, with their dimensions that then run so, too."""
    if s.initial is not None and all(d.is_scatter for d in s.updates):  # other updates may cover it, and it is not computed
        yield pure(s.shape, s.initial), axes
    for d in s.updates:
        if len(axes) == len(s.shape):
            yield d, frozenset(range(len(d.extents)))
        elif d.target == identity(len(s.shape)):
            yield d, axes | frozenset(range(len(d.dims), len(d.extents)))


def _whole_axes(e: Load, source: Stage, d: Definition, dims: frozenset[int]) -> frozenset[int]:
    """The axes of what is read that it is read along from end to end, for one element of the others."""
    found: dict[int, int] = {}
    for axis, p in enumerate(e.index):
        k = next((k for k in dims if p == poly(Dim(k))), None)
        if source.shape[axis] == ONE:
            found[axis] = -1 - axis
        elif k is not None and k not in found.values() and d.extents[k] == source.shape[axis]:
            found[axis] = k
    return frozenset(found)


def _lookups(d: Definition, dims: frozenset[int]) -> Iterator[Lookup]:
    polys = [*d.target, *(p for e in _evaluated(*d.exprs()) for p in e.polys)]
    for a in (a for p in polys for a in deep_atoms(p)):
        if isinstance(a, Value) and a.extent is not None:
            found = lookup(a.expr, d.extents, a.extent)
            if _dims(a.expr) <= {*dims, *(k for k, n in enumerate(d.extents) if n == ONE)}:
                yield found


def _dims(e: Expr) -> set[int]:
    return {a.k for x in walk(e) for p in x.polys for a in deep_atoms(p) if isinstance(a, Dim)}


def _evaluated(*roots: Expr) -> Iterator[Expr]:
    """The expressions that are evaluated wherever `roots` are; what is chosen by where an element lies may not be."""
    seen: set[Expr] = set()
    stack = list(roots)
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        yield e
        chosen = isinstance(e, Op) and e.name == "select" and any(isinstance(x, Index) for x in walk(e.args[0]))
        stack.extend(e.args[:1] if chosen else e.args)
        for p in e.polys:
            stack.extend(p.exprs)
