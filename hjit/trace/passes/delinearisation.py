"""Delinearisation: flat indices that are only ever taken apart again become rows and columns."""

from __future__ import annotations

from dataclasses import replace

from hjit.trace.ir.graph import (
    Definition,
    Graph,
    substitute,
    walk,
)
from hjit.trace.ir.poly import Atom, Dim, FloorDiv, IntLike, Mod, Poly, deep_atoms, poly


def delinearise(graph: Graph) -> Graph:
    """Updates over a flat index that is only divided into rows and columns run over rows and columns."""
    return replace(graph, stages=tuple(replace(s, updates=tuple(map(_delinearised, s.updates))) for s in graph.stages))


def _delinearised(d: Definition) -> Definition:
    if d.order == "sequential":
        return d
    for k in range(len(d.dims), len(d.extents)):
        for by in _divisors(d, k):
            rows, rest = d.extents[k].divide(by)
            if rest != poly(0):
                continue
            new = _split(d, k, by, rows)
            if new is not None:
                return _delinearised(new)
    return d


def _divisors(d: Definition, k: int) -> list[Poly]:
    """What the dimension's index is divided by."""
    atoms = (a for e in walk(*d.exprs()) for p in e.polys for a in deep_atoms(p))
    return list(dict.fromkeys(a.by for a in atoms if isinstance(a, (FloorDiv, Mod)) and a.arg == poly(Dim(k))))


def _split(d: Definition, k: int, by: Poly, rows: Poly) -> Definition | None:
    """The definition with dimension k as two, or None where the flat index itself is used."""
    bare = False

    def change(a: Atom) -> IntLike | None:
        nonlocal bare
        if isinstance(a, (FloorDiv, Mod)) and a.arg == poly(Dim(k)) and a.by == by:
            return poly(Dim(k if isinstance(a, FloorDiv) else k + 1))
        if isinstance(a, Dim):
            bare = bare or a.k == k
            return poly(Dim(a.k + 1)) if a.k > k else None
        return None

    value = substitute(d.value, change)
    target = tuple(p.substitute(change) for p in d.target)
    j = k - len(d.dims)
    rdims = (*d.rdims[:j], rows, by, *d.rdims[j + 1 :])
    return None if bare else replace(d, rdims=rdims, target=target, value=value)
