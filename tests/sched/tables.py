"""Definitions as tables: every point, the element that it writes and those that it loads. See `tests.sched.counting`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.sched.language.definitions import is_associative, is_direct
from hjit.sched.language.tree import DimKey, dims_of
from hjit.trace.ir.expressions import Load, Op, loads
from hjit.trace.ir.graph import Definition, Graph, Input, Stage
from hjit.trace.ir.poly import Boundary, Dim, Extremum, FloorDiv, Indirect, Mod, Poly, Sym

Ints = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Ranges = list[tuple[int, int]]  # first and last, for each axis or dimension
Regions = Mapping[DimKey, tuple[int, int]]  # what is left of some dimensions; of fused ones of their number
Loaded = tuple[str, Ints, tuple[int, ...], tuple[int, ...]]


@dataclass
class Table:
    """All points of a definition.

    Attributes:
        points: [dimensions, points].
        target: [axes, points].
        loads: source, index for each point, [axes, points], and of a gather the axes along which nobody knows where it is,
            and the dimensions that this depends on.
        called: the elements of inlined stages that each point calls: the stage, and the indices for all points.
    """

    definition: Definition
    points: Ints
    target: Ints
    loads: list[Loaded]
    called: list[tuple[str, Ints]]

    def inside(self, regions: Regions, base: Ranges) -> Mask:
        """The points that lie in the regions; those of fused dimensions count through the base."""
        found = np.ones(self.points.shape[1], bool)
        for key, (first, last) in regions.items():
            if dims_of(key)[-1] >= len(self.points):
                continue
            at = np.zeros(self.points.shape[1], np.int64)
            for k in dims_of(key):
                found &= (self.points[k] >= base[k][0]) & (self.points[k] <= base[k][1])
                at = at * (base[k][1] - base[k][0] + 1) + self.points[k] - (0 if isinstance(key, int) else base[k][0])
            found &= (at >= first) & (at <= last)
        return found

    def writing(self, region: Ranges) -> Mask:
        """The points that write elements of a region."""
        found = np.ones(self.points.shape[1], bool)
        for at, (low, high) in zip(self.target, region, strict=True):
            found &= (at >= low) & (at <= high)
        return found


def value(p: Poly, dims: Ints, sizes: Mapping[str, int]) -> Any:
    """An index at many points."""

    def atom(a: Any) -> Any:
        match a:
            case Dim():
                return dims[a.k]
            case Sym():
                return sizes[a.name]
            case FloorDiv():
                return value(a.arg, dims, sizes) // value(a.by, dims, sizes)
            case Mod():
                return value(a.arg, dims, sizes) % value(a.by, dims, sizes)
            case Extremum():
                return (np.minimum if a.which == "min" else np.maximum)(
                    value(a.a, dims, sizes), value(a.b, dims, sizes)
                )
            case Boundary():
                i, n = np.asarray(value(a.arg, dims, sizes)), value(a.extent, dims, sizes)
                if a.mode in ("reflect", "symmetric"):  # once at most
                    edge = a.mode == "symmetric"
                    i = np.where(i < 0, -i - edge, i)
                    return np.where(i >= n, 2 * n - 2 + edge - i, i)
                return np.clip(i, 0, n - 1) if a.mode == "clamp" else i % n
        return 0  # a gather

    found: Any = p.const
    for m, c in p.terms.items():
        found = found + c * math.prod((atom(a) for a in m), start=1)
    return found


def hull(index: Ints, among: Mask, unknown: Collection[int], shape: tuple[int, ...]) -> Ranges | None:
    """The smallest region around some indices; None where there are none."""
    if not among.any():
        return None
    return [
        (0, n - 1) if k in unknown else (int(index[k][among].min()), int(index[k][among].max()))
        for k, n in enumerate(shape)
    ]


def joined(a: Ranges | None, b: Ranges | None) -> Ranges | None:
    if a is None or b is None:
        return a or b
    return [(min(p, r), max(q, s)) for (p, q), (r, s) in zip(a, b, strict=True)]


def lengths(region: Ranges) -> list[int]:
    return [high - low + 1 for low, high in region]


class Tables:
    """The tables of a Graph at some sizes; stages that are inlined are looked through."""

    def __init__(self, graph: Graph, sizes: Mapping[str, int], inlined: Collection[str] = ()) -> None:
        self.sizes, self.inlined, self.stages = sizes, inlined, graph.by_name
        self.arrays: dict[str, Input | Stage] = {x.name: x for x in (*graph.inputs, *graph.stages)}
        self.shapes = {name: tuple(map(self.number, x.shape)) for name, x in self.arrays.items()}
        self.of = {
            (s.name, n): self.table(d, self.points(d))
            for s in graph.stages
            if s.name not in inlined
            for n, d in enumerate(s.definitions)
        }

    def number(self, p: Poly) -> int:
        return int(value(p, np.zeros((0, 1)), self.sizes))

    def points(self, d: Definition) -> Ints:
        """All points of a definition, [dimensions, points]."""
        extents = list(map(self.number, d.extents))
        return (
            np.array(list(itertools.product(*map(range, extents))), np.int64)
            .reshape(math.prod(extents), len(extents))
            .T
        )

    def table(self, d: Definition, points: Ints) -> Table:
        """The table of a definition at some points, also beyond its last ones."""
        exprs = d.exprs()
        if is_associative(d) and is_direct(d) and isinstance(d.value, Op):
            exprs = (d.value.args[1],)  # the accumulator is in a register
        found: dict[Any, Loaded] = {}
        called: dict[Any, tuple[str, Ints]] = {}
        for load in loads(*exprs):
            self._load(load, points, found, called)
        return Table(d, points, self._index(d.target, points), list(found.values()), list(called.values()))

    def _index(self, index: Iterable[Poly], points: Ints) -> Ints:
        n = points.shape[1]
        at = [np.broadcast_to(value(p, points, self.sizes), (n,)) for p in index]
        return np.array(at, np.int64).reshape(len(at), n)

    def _load(self, load: Load, points: Ints, found: dict[Any, Loaded], called: dict[Any, tuple[str, Ints]]) -> None:
        at = self._index(load.index, points)
        if load.source in self.inlined:
            called[load.source, at.tobytes()] = load.source, at
            for inner in self.stages[load.source].loads:
                self._load(inner, at, found, called)
            return
        unknown = tuple(k for k, p in enumerate(load.index) if any(isinstance(a, Indirect) for m in p.terms for a in m))
        key = str(load) if unknown else at.tobytes()
        found[load.source, key] = (
            load.source,
            at,
            unknown,
            tuple(k for k in range(len(points)) if unknown and load.mentions(Dim(k))),
        )
