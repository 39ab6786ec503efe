"""How updates divide a stage or their iterations: interleaved pieces, flat ones into rows, histograms into parallel parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hjit.trace.ir.graph import (
    Const,
    Definition,
    Graph,
    Index,
    Load,
    Op,
    Stage,
    cast,
    identity,
    select,
    substitute,
    walk,
)
from hjit.trace.ir.identities import start_value
from hjit.trace.ir.poly import ONE, ZERO, Atom, Dim, FloorDiv, IntLike, Mod, Poly, deep_atoms, extremum, poly
from hjit.trace.ir.rewriting import fresh

PARTS = 16  # parts of a histogram; a constant, so that sums do not depend on the number of threads
MAX_CLASSES = 64
STEPS = range(2, 5)  # of pieces that are written side by side


def unflatten(graph: Graph) -> Graph:
    """An update over a flattened image, whose index is only ever taken apart again, runs over rows and columns."""
    return replace(graph, stages=tuple(replace(s, updates=tuple(map(_unflattened, s.updates))) for s in graph.stages))


def _unflattened(d: Definition) -> Definition:
    if d.order == "sequential":
        return d
    for k in range(len(d.dims), len(d.extents)):
        for by in _divisors(d, k):
            rows, rest = d.extents[k]._split(by)
            if rest != poly(0):
                continue
            new = _taken_apart(d, k, by, rows)
            if new is not None:
                return _unflattened(new)
    return d


def _divisors(d: Definition, k: int) -> list[Poly]:
    """What the dimension's index is divided by."""
    atoms = (a for e in walk(*d.exprs()) for p in e.polys for a in deep_atoms(p))
    return list(dict.fromkeys(a.by for a in atoms if isinstance(a, (FloorDiv, Mod)) and a.arg == poly(Dim(k))))


def _taken_apart(d: Definition, k: int, by: Poly, rows: Poly) -> Definition | None:
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


def part_histograms(graph: Graph) -> Graph:
    """A histogram of whole numbers is counted in parts of the image, which run in parallel, then the parts are added up."""
    stages: list[Stage] = []
    names = {s.name for s in graph.stages}
    for s in graph.stages:
        for number, d in enumerate(s.updates):
            if _is_histogram(s, d):
                part, update = in_parts(s, d, 0, PARTS, fresh(f"{s.name}_parts", names))
                names.add(part.name)
                stages.append(part)
                s = replace(s, updates=(*s.updates[:number], update, *s.updates[number + 1 :]))
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _is_histogram(s: Stage, d: Definition) -> bool:
    """Scattered into little memory from much, by an operation whose order does not matter."""
    little = (len(s.shape) == 1 and len(d.rdims) > 1) or all(n.is_const for n in s.shape)
    return (
        d.is_scatter and s.dtype.kind in "iub" and has_parts(s, d) and little and not d.dims and not d.rdims[0].is_const
    )


def has_parts(s: Stage, d: Definition) -> bool:
    """Can the update be computed in parts of a reduction dimension, which are joined by the same operation?"""
    if d.order in ("pure", "sequential") or not isinstance(d.value, Op) or d.value.dtype != s.dtype:
        return False
    old, element = d.value.args
    return old == Load(s.name, d.target, s.dtype) and all(x.source != s.name for x in element.loads)


def in_parts(s: Stage, d: Definition, k: int, parts: int, name: str) -> tuple[Stage, Definition]:
    """A stage of the partial results over parts of reduction dimension `k`, and the update that joins them."""
    assert isinstance(d.value, Op)
    pure = len(d.dims)
    rows = d.rdims[k]
    size = (rows + (parts - 1)) // parts
    row = poly(Dim(0)) * size + poly(Dim(pure + k + 1))
    inside = row if size * parts == rows else extremum("min", row, rows - 1)

    def change(a: Atom) -> IntLike | None:
        return (inside if a.k == pure + k else poly(Dim(a.k + 1))) if isinstance(a, Dim) else None

    wide = np.dtype(np.float64) if d.order == "add" and s.dtype.kind == "f" else s.dtype  # parts are rounded once
    target = (poly(Dim(0)), *(p.substitute(change) for p in d.target))
    neutral = Const(start_value(d.order, wide), wide)
    element = cast(substitute(d.value.args[1], change), wide)
    if inside != row:
        element = select(Op("less", (Index(row), Index(rows)), "?"), element, neutral)
    value = Op(d.value.name, (Load(name, target, wide), element), wide)
    rdims = (*d.rdims[:k], size, *d.rdims[k + 1 :])
    part = Stage(
        name,
        wide,
        (poly(parts), *s.shape),
        neutral,
        (Definition((poly(parts), *d.dims), rdims, target, value, d.order),),
        s.origin,
    )
    n = len(s.shape)
    here = identity(n)
    joined = Op(
        d.value.name, (Load(s.name, here, s.dtype), cast(Load(name, (poly(Dim(n)), *here), wide), s.dtype)), s.dtype
    )
    return part, Definition(s.shape, (poly(parts),), here, joined, d.order)


def is_tiled(s: Stage) -> bool:
    """Do the updates write every element, as ``out[0::2, 0::2]``, ``out[0::2, 1::2]``, ... do, without reading the stage?"""
    if not s.updates or not s.shape:
        return False
    steps = [1] * len(s.shape)
    found: list[list[tuple[int, int]]] = []
    for d in s.updates:
        if d.order != "pure" or d.rdims or s.name in d.sources:
            return False
        classes = [_residues(p, d, n) for p, n in zip(d.target, s.shape, strict=True)]
        if any(c is None for c in classes) or len({k for p in d.target for k in _dims_of(p)}) != len(d.dims):
            return False
        found.append([c for c in classes if c is not None])
        steps = [math.lcm(a, c[0]) for a, c in zip(steps, found[-1], strict=True)]
    if math.prod(steps) > MAX_CLASSES:
        return False
    cells = itertools.product(*(range(n) for n in steps))
    return all(
        any(all(i % c == r for i, (c, r) in zip(cell, classes, strict=True)) for classes in found) for cell in cells
    )


def _dims_of(p: Poly) -> list[int]:
    return [a.k for a in p.atoms() if isinstance(a, Dim)]


def _residues(p: Poly, d: Definition, extent: Poly) -> tuple[int, int] | None:
    """(step, first) where an index takes on first, first + step, ... up to the end of the axis; None where not."""
    dims = _dims_of(p)
    if p.is_const and extent.is_const and 0 <= p.const < extent.const:
        return extent.const, p.const  # one of a few planes
    if len(dims) != 1:
        return None
    step = p.coefficient(Dim(dims[0]))
    if step is None or not step.is_const or step.const < 1:
        return None
    first = p - poly(Dim(dims[0])) * step
    if not first.is_const or not 0 <= first.const < step.const:
        return None
    return (
        (step.const, first.const)
        if (extent - first.const + (step.const - 1)) // step.const == d.dims[dims[0]]
        else None
    )


def write_apart(a: Definition, b: Definition) -> bool:
    """Do two updates surely write different elements, as two channels, or even and odd rows?"""
    for p, q in zip(a.target, b.target, strict=True):
        step = math.gcd(*(c for x in (p, q) for c in x.terms.values()))
        if (p.const != q.const) if step == 0 else (p.const - q.const) % step:
            return True
    return False


def next_to(a: Definition, b: Definition, name: str) -> int | None:
    """The axis of a stage along which one piece of it writes next to where another one does; None where it does not, or they read the stage."""
    if a.order != "pure" or b.order != "pure" or name in a.sources | b.sources:
        return None
    differ = [axis for axis, (p, q) in enumerate(zip(a.target, b.target, strict=True)) if p != q]
    return differ[0] if len(differ) == 1 and b.target[differ[0]] - a.target[differ[0]] == ONE else None


def even_pieces(graph: Graph) -> Graph:
    """Pieces side by side, as ``out[0::2]`` and ``out[1::2]``, write as many elements each; what one has more is a piece of its own."""
    return replace(graph, stages=tuple(replace(s, updates=tuple(_evened(s))) for s in graph.stages))


def _evened(s: Stage) -> Iterator[Definition]:
    rest = list(s.updates)
    while rest:
        run, along = [rest.pop(0)], None
        while (
            rest
            and (found := _beside(run[-1], rest[0], s.name)) is not None
            and along in (None, found)
            and len(run) < found[1]
        ):
            along = found
            run.append(rest.pop(0))
        if along is None:
            yield from run
            continue
        k, _ = along
        common = run[-1].dims[k]
        yield from (_part(d, k, ZERO, common) for d in run)
        yield from (_part(d, k, common, d.dims[k] - common) for d in run if d.dims[k] != common)


def _beside(a: Definition, b: Definition, name: str) -> tuple[int, int] | None:
    """The dimension along which two pieces of a stage take turns, and its step; the first has as many elements or more."""
    next_along = next_to(a, b, name)
    if next_along is None or len(a.dims) != len(b.dims):
        return None
    p = a.target[next_along]
    found = [k for k in range(len(a.dims)) if p.mentions(Dim(k))]
    step = p.coefficient(Dim(found[0])) if len(found) == 1 else None
    if step is None or not step.is_const or step.const not in STEPS:
        return None
    (k,) = found
    alike = all(m == n for axis, (m, n) in enumerate(zip(a.dims, b.dims, strict=True)) if axis != k)
    return (k, step.const) if alike and _is_longer(a.dims[k], b.dims[k]) else None


def _is_longer(a: Poly, b: Poly) -> bool:
    """Is a length at least another one? Of the same or of two quotients by one number it is known."""
    if a == b:
        return True
    x, y = list(a.atoms()), list(b.atoms())
    if (
        len(x) != 1
        or len(y) != 1
        or not isinstance(x[0], FloorDiv)
        or not isinstance(y[0], FloorDiv)
        or (a, b) != (poly(x[0]), poly(y[0]))
    ):
        return False
    more = x[0].arg - y[0].arg
    return x[0].by == y[0].by and more.is_const and more.const >= 0


def _part(d: Definition, k: int, first: Poly, count: Poly) -> Definition:
    """A part of a piece along a dimension."""

    def change(a: Atom) -> IntLike | None:
        return poly(a) + first if a == Dim(k) else None

    if first == ZERO:
        return replace(d, dims=(*d.dims[:k], count, *d.dims[k + 1 :]))
    return Definition(
        (*d.dims[:k], count, *d.dims[k + 1 :]),
        (),
        tuple(p.substitute(change) for p in d.target),
        substitute(d.value, change),
    )
