"""Gathers that a Graph evaluates unconditionally, so that their indices are checked.

What is demanded of a stage is known as regions, each a set of indices of every axis, at the sizes of the trace. They
are never too large: what depends on where an element lies, or is read along several axes at once, may be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr, Index, Load, Op, substitute, walk
from hjit.trace.ir.graph import Definition, Stage, pure
from hjit.trace.ir.poly import (
    ONE,
    ZERO,
    Atom,
    Boundary,
    Dim,
    FloorDiv,
    Indirect,
    IntLike,
    Mod,
    Poly,
    Sym,
    deep_atoms,
    sizes_value,
)

# the index over dimensions numbered in the order they are met, their extents, the axis' length
Gather = tuple[Expr, tuple[Poly, ...], Poly]
Mask = np.ndarray[Any, Any]  # of bools, one for each index of an axis
MaskedRegion = tuple[Mask | None, ...]  # None: all indices of the axis

MAX_REGIONS = 12  # of one stage that are kept; others are left out, and indices that they lead to checked once more


def gather_of(index: Expr, extents: tuple[Poly, ...], length: Poly) -> Gather:
    """The normal form of an index by which gathers are compared."""
    numbers: dict[int, int] = {}

    def change(a: Atom) -> IntLike | None:
        if not isinstance(a, Dim):
            return None
        return ZERO if extents[a.k] == ONE else Dim(numbers.setdefault(a.k, len(numbers)))

    renumbered = substitute(index, change)
    return renumbered, tuple(extents[k] for k in numbers), length


def evaluated_gathers(
    stages: dict[str, Stage], goals: Iterable[str], sizes: Mapping[str, int]
) -> tuple[set[Gather], set[str]]:
    """The indices that are evaluated, all of them, where `goals` are computed; also the stages that these need.

    Args:
        stages: each after those that it reads.
    """
    found: set[Gather] = set()
    needed: dict[str, list[MaskedRegion]] = {g: [(None,) * len(stages[g].shape)] for g in goals if g in stages}
    relevant = _leading_to_gathers(stages)
    for s in reversed(stages.values()):
        for region in needed.get(s.name, ()) if s.name in relevant else ():
            for d, run in _run(s, region, sizes):
                if ZERO in d.extents:
                    continue
                found.update(_gathers(d, run))
                loads = (e for e in _evaluated(*d.exprs()) if isinstance(e, Load))
                for e in (e for e in loads if e.source in relevant and e.source != s.name):
                    shape = [sizes_value(n, sizes) for n in stages[e.source].shape]
                    read = _read(e, shape, d, run, sizes)
                    if read is not None:
                        _add(needed.setdefault(e.source, []), read)
    return found, {name for name, regions in needed.items() if regions}


def _leading_to_gathers(stages: dict[str, Stage]) -> set[str]:
    found: set[str] = set()

    def leads(e: Expr) -> bool:
        return (type(e) is Load and e.source in found) or any(p.exprs and checked_atoms(p) for p in e.polys)

    for s in stages.values():
        values = [*(() if s.initial is None else (s.initial,)), *(e for d in s.updates for e in d.exprs())]
        if any(checked_atoms(p) for d in s.updates for p in d.target) or any(map(leads, walk(*values))):
            found.add(s.name)
    return found


def checked_atoms(p: Poly) -> list[Indirect]:
    """The computed places in an index that may be out of bounds."""
    if not p.exprs:  # which are kept: most indices are affine
        return []
    return [a for a in deep_atoms(p) if isinstance(a, Indirect) and a.extent is not None]


# -- what runs


def _run(s: Stage, region: MaskedRegion, sizes: Mapping[str, int]) -> Iterator[tuple[Definition, MaskedRegion]]:
    """The definitions of a stage that run where a region of it is needed, each with the iterations that do."""
    left = [region]
    for d in s.updates:
        if not d.is_scatter:
            left = [r for old in left for r in _outside(old, d, s.shape, sizes)]
    if s.initial is not None:
        yield from ((pure(s.shape, s.initial), r) for r in left)
    for d in s.updates:
        run = _reaching(d, region, sizes)
        if run is not None:
            yield d, run


def _reaching(d: Definition, region: MaskedRegion, sizes: Mapping[str, int]) -> MaskedRegion | None:
    """The iterations of an update that write to a region; None if they are not known. A scatter runs as a whole."""
    run: list[Mask | None] = [None] * len(d.extents)
    for p, mask in zip(d.target, region, strict=True):
        if mask is None or any(isinstance(a, Indirect) for a in p.atoms()):
            continue
        values = _iterated(p, d, sizes)
        if values is None:
            return None
        hit = mask[values]
        if not hit.any():
            return None
        for k in _dims(p):
            before = run[k]
            run[k] = hit if before is None else hit & before
    return tuple(map(_whole, run))


def _outside(
    region: MaskedRegion, d: Definition, shape: Sequence[Poly], sizes: Mapping[str, int]
) -> Iterator[MaskedRegion]:
    """The parts of a region that an update does not write to."""
    for axis, (p, mask) in enumerate(zip(d.target, region, strict=True)):
        values = _iterated(p, d, sizes)
        if values is None:
            continue
        rest = np.ones(sizes_value(shape[axis], sizes), bool) if mask is None else mask.copy()
        rest[values] = False
        if rest.any():
            yield (*region[:axis], rest, *region[axis + 1 :])


def _iterated(p: Poly, d: Definition, sizes: Mapping[str, int]) -> Mask | None:
    """An index in all iterations of the only dimension that it depends on; None where it depends on more."""
    dims = _dims(p)
    return None if len(dims) > 1 else _values(p, np.arange(_extent(d, dims, sizes)), sizes)


# -- what is read


def _read(
    e: Load, shape: Sequence[int], d: Definition, run: MaskedRegion, sizes: Mapping[str, int]
) -> MaskedRegion | None:
    """The region that a load reads, None if it is not known."""
    found: list[Mask | None] = []
    used: set[int] = set()
    for p, n in zip(e.index, shape, strict=True):
        dims = _dims(p)
        if len(dims) > 1 or dims & used:
            return None
        used |= dims
        indices = np.arange(_extent(d, dims, sizes))
        for k in dims:
            mask = run[k]
            indices = indices if mask is None else indices[mask]
        values = _values(p, indices, sizes)
        if values is None:
            return None
        taken = np.zeros(n, bool)
        taken[values[(values >= 0) & (values < n)]] = True  # others are beyond the boundary
        if not taken.any():
            return None
        found.append(_whole(taken))
    return tuple(found)


def _values(p: Poly, indices: Mask, sizes: Mapping[str, int]) -> Mask | None:
    """What an index is where its only dimension is each of some; None where it depends on more than that."""
    total = np.full(len(indices), p.const)
    for m, c in p.terms.items():
        product: Mask = np.full(len(indices), c)
        for a in m:
            factor = _factor(a, indices, sizes)
            if factor is None or (isinstance(a, Boundary) and (len(p.terms) > 1 or len(m) > 1 or c != 1 or p.const)):
                return None
            product = product * factor
        total = total + product
    return total


def _factor(a: Atom, indices: Mask, sizes: Mapping[str, int]) -> Mask | int | None:
    match a:
        case Dim():
            return indices
        case Sym():
            return sizes[a.name]
        case FloorDiv() | Mod():
            arg, by = _values(a.arg, indices, sizes), _values(a.by, indices, sizes)
            return None if arg is None or by is None else arg // by if isinstance(a, FloorDiv) else arg % by
        case Boundary():  # -1 where the boundary condition changes the index
            arg = _values(a.arg, indices, sizes)
            return None if arg is None else np.where((arg >= 0) & (arg < sizes_value(a.extent, sizes)), arg, -1)
    return None


def _add(regions: list[MaskedRegion], new: MaskedRegion) -> None:
    """Note one region more; two that differ along one axis become one."""
    for at, old in enumerate(regions):
        apart = [k for k, (a, b) in enumerate(zip(old, new, strict=True)) if not _same(a, b)]
        if not apart:
            return
        if len(apart) == 1:
            (k,) = apart
            a, b = old[k], new[k]
            del regions[at]
            _add(regions, (*new[:k], None if a is None or b is None else _whole(a | b), *new[k + 1 :]))
            return
    if len(regions) < MAX_REGIONS:
        regions.append(new)


def _same(a: Mask | None, b: Mask | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def _whole(mask: Mask | None) -> Mask | None:
    return None if mask is None or mask.all() else mask


def _extent(d: Definition, dims: set[int], sizes: Mapping[str, int]) -> int:
    """The trip count of an index's only dimension."""
    return next((sizes_value(d.extents[k], sizes) for k in dims), 1)


def _dims(p: Poly) -> set[int]:
    """The dimensions that an index depends on, except inside expressions."""
    return {a.k for a in deep_atoms(p) if isinstance(a, Dim)}


# -- gathers


def _gathers(d: Definition, run: MaskedRegion) -> Iterator[Gather]:
    polys = [*d.target, *(p for e in _evaluated(*d.exprs()) for p in e.polys)]
    for a in (a for p in polys for a in checked_atoms(p)):
        dims = {k for e in walk(a.expr) for p in e.polys for k in _dims(p)}
        if all(run[k] is None for k in dims) and a.extent is not None:
            yield gather_of(a.expr, d.extents, a.extent)


def _evaluated(*roots: Expr) -> Iterator[Expr]:
    """The expressions that are evaluated wherever `roots` are."""
    return walk(*roots, args=_evaluated_args)


def _evaluated_args(e: Expr) -> tuple[Expr, ...]:
    """Of a select by where an element lies the condition alone: the other arguments may not be evaluated."""
    by_place = isinstance(e, Op) and e.name == "select" and any(isinstance(x, Index) for x in walk(e.args[0]))
    return e.args[:1] if by_place else e.args
