"""Interleaved updates: strided pieces of a stage that are written separately, as ``out[0::2]`` and ``out[1::2]``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from hjit.trace.ir.expressions import substitute
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.poly import ONE, ZERO, Atom, Dim, FloorDiv, IntLike, Poly, poly
from hjit.trace.passes.limits import INTERLEAVED_STEPS, RESIDUE_CLASSES


def covers_stage(s: Stage) -> bool:
    """Do the updates write every element, as ``out[0::2]`` and ``out[1::2]`` do, without reading the stage?"""
    if not s.updates or not s.shape:
        return False
    steps = [1] * len(s.shape)
    found: list[list[tuple[int, int]]] = []
    for d in s.updates:
        if d.order != "pure" or d.rdims or s.name in d.sources:
            return False
        classes = [_residues(p, d, n) for p, n in zip(d.target, s.shape, strict=True)]
        dims = [k for p in d.target for k in _dims_of(p)]
        if any(c is None for c in classes) or sorted(dims) != [*range(len(d.dims))]:  # each along one axis: no diagonal
            return False
        found.append([c for c in classes if c is not None])
        steps = [math.lcm(a, c[0]) for a, c in zip(steps, found[-1], strict=True)]
    if math.prod(steps) > RESIDUE_CLASSES:
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


def write_disjoint(a: Definition, b: Definition) -> bool:
    """Are the elements that two updates write certainly disjoint, like two channels, or even and odd rows?"""
    return any(map(never_equal, a.target, b.target))


def never_equal(p: Poly, q: Poly) -> bool:
    """Do two indices certainly differ, whatever their iterations?"""
    step = math.gcd(*(c for x in (p, q) for c in x.terms.values()))
    return p.const != q.const if step == 0 else (p.const - q.const) % step != 0


def adjacent_axis(a: Definition, b: Definition, name: str) -> int | None:
    """The axis along which update `b` writes the elements next to those of `a`; None: none, or they read the stage."""
    if a.order != "pure" or b.order != "pure" or name in a.sources | b.sources:
        return None
    differ = [axis for axis, (p, q) in enumerate(zip(a.target, b.target, strict=True)) if p != q]
    return differ[0] if len(differ) == 1 and b.target[differ[0]] - a.target[differ[0]] == ONE else None


def equalise_interleaved(graph: Graph) -> Graph:
    """Give interleaved updates, as ``out[0::2]`` and ``out[1::2]``, equal extents; the remainder becomes updates."""
    return replace(graph, stages=tuple(replace(s, updates=tuple(_equalised(s))) for s in graph.stages))


def _equalised(s: Stage) -> Iterator[Definition]:
    rest = list(s.updates)
    while rest:
        run, along = [rest.pop(0)], None
        while (
            rest
            and (found := _interleaved(run[-1], rest[0], s.name)) is not None
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


def _interleaved(a: Definition, b: Definition, name: str) -> tuple[int, int] | None:
    """The dimension along which two updates are interleaved, and its step; the first has as many elements or more."""
    next_along = adjacent_axis(a, b, name)
    if next_along is None or len(a.dims) != len(b.dims):
        return None
    p = a.target[next_along]
    found = [k for k in range(len(a.dims)) if p.mentions(Dim(k))]
    step = p.coefficient(Dim(found[0])) if len(found) == 1 else None
    if step is None or not step.is_const or step.const not in INTERLEAVED_STEPS:
        return None
    (k,) = found
    alike = all(m == n for axis, (m, n) in enumerate(zip(a.dims, b.dims, strict=True)) if axis != k)
    return (k, step.const) if alike and _is_longer(a.dims[k], b.dims[k]) else None


def _is_longer(a: Poly, b: Poly) -> bool:
    """Is a length at least another one? Known for equal lengths, and for two quotients by the same number."""
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
    """The part of an update that starts at `first` along dimension `k`."""

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
