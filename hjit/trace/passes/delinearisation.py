"""Delinearisation: flat indices that are only used after being split again become rows and columns.

An example is ``(matrix @ image.reshape(3, -1)).reshape(3, height, width)``: the product has one axis for rows and
columns, and its readers split indices by divisions, which hide from bounds inference which rows they need.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from hjit.trace.ir.expressions import Change, Expr, Load, rewrite, substitute, walk
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.intervals import interval, upper_bound, whole
from hjit.trace.ir.poly import (
    ONE,
    ZERO,
    Atom,
    Boundary,
    Dim,
    FloorDiv,
    IntLike,
    Mod,
    Poly,
    deep_atoms,
    is_never_negative,
    poly,
)
from hjit.trace.ir.rewriting import map_definitions

MAX_FACTORS = 4  # of a length that an axis is split by
MAX_FACTOR = 64  # the largest number among them


def delinearise(graph: Graph) -> Graph:
    """Split the dimension of updates over a flat index that is only divided into rows and columns."""
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
    """The divisors of the dimension's index."""
    atoms = (a for e in walk(*d.exprs()) for p in e.polys for a in deep_atoms(p))
    return list(dict.fromkeys(a.by for a in atoms if isinstance(a, (FloorDiv, Mod)) and a.arg == poly(Dim(k))))


def _split(d: Definition, k: int, by: Poly, rows: Poly) -> Definition | None:
    """The definition with dimension k split in two, or None if the flat index itself is used."""
    bare, split = False, _split_dim(k, by)

    def change(a: Atom) -> IntLike | None:
        nonlocal bare
        bare = bare or a == Dim(k)
        return split(a)

    value = substitute(d.value, change)
    target = tuple(p.substitute(change) for p in d.target)
    j = k - len(d.dims)
    rdims = (*d.rdims[:j], rows, by, *d.rdims[j + 1 :])
    return None if bare else replace(d, rdims=rdims, target=target, value=value)


# -- stages


def delinearise_stages(graph: Graph) -> Graph:
    """Split the axis of stages that all readers index by row and column."""
    for name in [s.name for s in graph.stages if s.name not in graph.outputs]:
        new: Graph | None = graph
        while new is not None:
            graph, new = new, _with_rows(new, new.stage(name))
    return graph


def _with_rows(graph: Graph, s: Stage) -> Graph | None:
    """The Graph with one axis of a stage split in two; None if no axis can be."""
    for axis, n in enumerate(s.shape):
        for by in dict.fromkeys((*_row_lengths(n), *_own_divisors(s, axis))):
            rows, rest = n.divide(by)
            if rest == ZERO and _is_of_rows(graph, s, axis, by):
                return _rewritten(graph, s, axis, rows, by)
    return None


def _own_divisors(s: Stage, axis: int) -> Iterator[Poly]:
    """What the stage's own definitions divide their index along the axis by."""
    for d in s.definitions:
        k = _dim(d, axis)
        if k is not None:
            yield from (by for by in _divisors(d, k) if by != s.shape[axis] and not by.is_const)


def _row_lengths(n: Poly) -> Iterator[Poly]:
    """The products of a number and of some symbolic factors of all terms of a length, but not all of it; those of the
    most factors first."""
    if n.const or not n.terms:
        return
    factors, content = _common(n), math.gcd(*n.terms.values())
    numbers = [c for c in range(min(content, MAX_FACTOR), 0, -1) if content % c == 0]
    if len(factors) <= MAX_FACTORS:
        for count in range(len(factors), 0, -1):
            for some in dict.fromkeys(combinations(factors, count)):
                yield from (by for c in numbers if (by := _product(some) * c) != n)


def _common(n: Poly) -> tuple[Atom, ...]:
    """The factors that all terms have, as in ``height * width - 4 * width``; one that each has twice, twice."""
    first, *others = (Counter(factors) for factors in n.terms)
    for x in others:
        first &= x
    return tuple(first.elements())


def _product(factors: Sequence[Atom]) -> Poly:
    return math.prod(map(poly, factors), start=ONE)


def _is_of_rows(graph: Graph, s: Stage, axis: int, by: Poly) -> bool:
    """Is the axis written all along, and read at a row and a column of it wherever it is read?"""
    along = ((d, _dim(d, axis)) for d in s.definitions)
    if any(k is None or d.dims[k] != s.shape[axis] for d, k in along):
        return False
    return all(
        _parts(x.index[axis], by, d.extents) is not None
        for t in graph.stages
        if s.name in t.sources
        for d in t.definitions
        for x in d.loads
        if x.source == s.name and not (t is s and x.index[axis] == d.target[axis])
    )


def _dim(d: Definition, axis: int) -> int | None:
    """The dimension that runs along an axis of the target, and along no other; None where there is none."""
    k = next((k for k in range(len(d.dims)) if d.target[axis] == poly(Dim(k))), None)
    others = (p for j, p in enumerate(d.target) if j != axis)
    return None if k is None or any(p.mentions(Dim(k)) for p in others) else k


def _parts(index: Poly, by: Poly, extents: Sequence[Poly]) -> tuple[Poly, Poly] | None:
    """The row and the column of a flat index; None where they cannot be told."""
    row, column = index.divide(by)
    return (row, column) if _is_below(column, by, extents) else None


def _is_below(p: Poly, n: Poly, extents: Sequence[Poly]) -> bool:
    """Is an index in ``[0, n)`` for all iterations over these extents?"""
    if any(isinstance(a, Boundary | Mod) and p == poly(a) and _modulus(a) == n for a in p.atoms()):
        return True
    full = {k: whole(x) for k, x in enumerate(extents)}
    found = interval(p, full, full)
    if found is not None and is_never_negative(found.low) and _is_never_positive(found.high + 1 - n):
        return True
    parts = ((by, n.divide(by)[0], *p.divide(by)) for by in _row_lengths(n))  # a row and a column, again
    return any(_is_below(row, rows, extents) and _is_below(column, by, extents) for by, rows, row, column in parts)


def _is_never_positive(p: Poly) -> bool:
    at_most = upper_bound(p)
    return is_never_negative(-p) or (at_most is not None and at_most <= 0)


def _modulus(a: Boundary | Mod) -> Poly:
    """An upper bound (exclusive) of an atom's value."""
    return a.extent if isinstance(a, Boundary) else a.by


def _rewritten(graph: Graph, s: Stage, axis: int, rows: Poly, by: Poly) -> Graph:
    """The Graph in which the stage has rows and columns."""
    shape = (*s.shape[:axis], rows, by, *s.shape[axis + 1 :])
    initial = None if s.initial is None else _simplified(substitute(s.initial, _split_dim(axis, by)), shape)
    split = replace(s, shape=shape, initial=initial, updates=tuple(_of_rows(d, axis, rows, by) for d in s.updates))

    def read(e: Expr, extents: tuple[Poly, ...]) -> Expr:
        def change(e: Expr) -> Expr | None:
            if not isinstance(e, Load) or e.source != s.name:
                return None
            parts = e.index[axis].divide(by)
            return Load(e.source, (*e.index[:axis], *parts, *e.index[axis + 1 :]), e.dtype)

        return rewrite(e, change)

    stages = (split if t is s else t for t in graph.stages)
    return replace(graph, stages=tuple(map_definitions(t, read) if s.name in t.sources else t for t in stages))


def _of_rows(d: Definition, axis: int, rows: Poly, by: Poly) -> Definition:
    """An update of the stage over rows and columns."""
    k = _dim(d, axis)
    assert k is not None
    dims, change = (*d.dims[:k], rows, by, *d.dims[k + 1 :]), _split_dim(k, by)
    target = tuple(p.substitute(change) for p in d.target)
    target = (*target[:axis], poly(Dim(k)), poly(Dim(k + 1)), *target[axis + 1 :])
    return replace(d, dims=dims, target=target, value=_simplified(substitute(d.value, change), (*dims, *d.rdims)))


def _split_dim(k: int, by: Poly) -> Change:
    """A change of atoms that makes dimension k two."""

    def change(a: Atom) -> IntLike | None:
        if isinstance(a, FloorDiv | Mod) and a.arg == poly(Dim(k)) and a.by == by:
            return poly(Dim(k if isinstance(a, FloorDiv) else k + 1))
        if isinstance(a, Dim) and a.k >= k:
            return poly(Dim(k)) * by + Dim(k + 1) if a.k == k else poly(Dim(a.k + 1))
        return None

    return change


def _simplified(e: Expr, extents: tuple[Poly, ...]) -> Expr:
    """The expression without remainders and quotients of values that are always below the divisor."""

    def change(a: Atom) -> IntLike | None:
        if isinstance(a, FloorDiv | Mod) and _is_below(a.arg, a.by, extents):
            return ZERO if isinstance(a, FloorDiv) else a.arg.substitute(change)
        return None

    return substitute(e, change)
