"""Bounds inference for all chunks at once: the intervals are arrays of numbers, one for each chunk.

There is no schedule tree here; `hjit.sched.analysis.propagation` says how this differs from bounds inference for loops.

A region has an interval for each axis, ``(low, high)``, both included, as in `hjit.sched.analysis.footprint`; here the
bounds are arrays of integers. An interval with ``high < low`` is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.chunks.static_indices import FAR, StaticIndices
from hjit.sched.analysis.bounds import whole_axes
from hjit.sched.analysis.footprint import concrete
from hjit.trace.ir.graph import Definition, Graph, Stage, single_dim
from hjit.trace.ir.intervals import Arithmetic, Over, bounds_of, without_constants
from hjit.trace.ir.poly import Boundary, Dim, Indirect, Poly, deep_atoms, sizes_value

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Interval = tuple[Any, Any]
Region = tuple[tuple[Numbers, Numbers], ...]


class _Chunks(Arithmetic[Any]):
    """Interval arithmetic on pairs of arrays, for indices without run-time sizes."""

    __slots__ = ("_known",)
    unknown: Interval = (-FAR, FAR)
    _known: StaticIndices | None

    def __init__(self, known: StaticIndices | None = None) -> None:
        """`known`: indices that depend on no input array."""
        super().__init__(int, np.minimum, np.maximum, lambda a, b: -(-a // b))
        object.__setattr__(self, "_known", known)

    def size(self, n: Poly) -> int | None:
        return n.const if n.is_const else None

    def fixed(self, p: Poly) -> Interval:
        return self.unknown

    def bounded(self, mode: str, x: Interval, n: int, reach: Interval | None) -> Interval:
        if mode == "wrap":
            inside = (np.asarray(x[0]) >= 0) & (np.asarray(x[1]) < n)
            return np.where(inside, x[0], 0), np.where(inside, x[1], n - 1)
        low, high = self.mirrored(mode, x, n)
        return np.clip(low, 0, n - 1), np.clip(high, 0, n - 1)

    def gathered(self, a: Indirect) -> Over[Interval] | None:
        return None if self._known is None else self._known.index(a)


CHUNKS = _Chunks()


@dataclass(frozen=True, slots=True)
class Access:
    """What a definition loads of an array: for each axis the intervals whose hull it is.

    Attributes:
        borders: what boundary modes bring into an axis, and how long that is.
    """

    source: str
    axes: tuple[tuple[Over[Interval], ...], ...]
    shape: tuple[int, ...]
    borders: tuple[tuple[Over[Interval], int], ...]

    def is_inside(self, dims: Sequence[Interval], count: int) -> Any:
        """Do no boundary modes have an effect?"""
        found: Any = np.ones(count, bool)
        for over, n in self.borders:
            low, high = over(dims)
            found = found & (np.asarray(low) >= 0) & (np.asarray(high) < n)
        return found

    def region(self, dims: Sequence[Interval], count: int) -> Region:
        """The region that some iterations read; empty if there are none."""
        empty = np.zeros(count, bool)
        for low, high in dims:
            empty |= np.asarray(high) < np.asarray(low)
        found = []
        for parts, n in zip(self.axes, self.shape, strict=True):
            low, high = parts[0](dims)
            for part in parts[1:]:
                low, high = CHUNKS.hull((low, high), part(dims))
            low, high = (np.clip(np.broadcast_to(x, count), 0, n - 1) for x in (low, high))
            found.append((np.where(empty, FAR, low), np.where(empty, -FAR, high)))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Loops:
    """A definition of a stage at concrete sizes.

    Attributes:
        extents: of its dimensions.
        solved: of the dimensions that one axis of the target tells: dimension, axis, factor, offset.
        accesses: what it loads, the stage itself left out.
    """

    extents: tuple[int, ...]
    solved: tuple[tuple[int, int, int, int], ...]
    accesses: tuple[Access, ...]

    def dims(self, region: Region, given: Mapping[int, Interval] = {}) -> list[Interval]:
        """The iterations that write a region, or those that are given."""
        found: list[Interval] = [(0, n - 1) for n in self.extents]
        for k, axis, c, rest in self.solved:
            found[k] = CHUNKS.solved(region[axis], c, rest, self.extents[k])
        for k, x in given.items():
            found[k] = x
        return found


class BoundsInference:
    """Bounds inference for the chunks of a Graph; the definitions and shapes that it needs are computed once."""

    def __init__(
        self,
        graph: Graph,
        sizes: Mapping[str, int],
        scalars: Mapping[str, Any] = {},
        carried: Mapping[str, int] = {},
    ) -> None:
        """`carried`: stages and the axis along which their chunks go on from one another (`hjit.chunks.carries`)."""
        self.graph, self.sizes, self.scalars, self.carried = graph, sizes, scalars, carried
        self._domain = _Chunks(StaticIndices(graph, sizes, scalars))
        self.shapes = {n: tuple(sizes_value(p, sizes) for p in x.shape) for n, x in graph.arrays.items()}
        self._loops: dict[str, tuple[Loops, ...]] = {}
        self._whole_axes: dict[str, frozenset[int]] = {}

    def loops(self, stage: str) -> tuple[Loops, ...]:
        """The definitions of a stage."""
        found = self._loops.get(stage)
        if found is None:
            s = self.graph.stage(stage)
            found = self._loops[stage] = tuple(self._definition(s, d) for d in s.definitions)
        return found

    def _definition(self, s: Stage, d: Definition) -> Loops:
        sizes, solved = self.sizes, {}
        for axis, p in enumerate(d.target):
            k = single_dim(p, len(d.dims))
            if k is None or k in solved or axis in self.whole_axes(s.name):
                continue
            factor = p.coefficient(Dim(k))
            if factor is None or not factor.is_const:
                continue
            rest = sizes_value(p - Poly({(Dim(k),): factor.const}, 0), sizes)
            solved[k] = (k, axis, factor.const, rest)
        extents = tuple(sizes_value(n, sizes) for n in d.extents)
        return Loops(extents, tuple(solved.values()), tuple(self._accesses(s, d)))

    def _accesses(self, s: Stage, d: Definition) -> Iterator[Access]:
        """Indices that differ by constants are taken together."""
        indices: dict[str, list[tuple[Poly, ...]]] = {}
        for load in d.loads:
            if load.source != s.name:
                indices.setdefault(load.source, []).append(load.index)
        for source, found in indices.items():
            yield Access(
                source,
                tuple(tuple(self._overs(concrete(p, self.sizes) for p in ps)) for ps in zip(*found, strict=True)),
                self.shapes[source],
                tuple(self._borders(p for ps in found for p in ps)),
            )

    def _borders(self, indices: Iterable[Poly]) -> Iterator[tuple[Over[Interval], int]]:
        for p in dict.fromkeys(indices):
            for a in deep_atoms(concrete(p, self.sizes)):
                if isinstance(a, Boundary):
                    yield bounds_of(a.arg, self._domain), a.extent.const

    def _overs(self, indices: Iterable[Poly]) -> Iterator[Over[Interval]]:
        constants = without_constants(indices).items()
        return (bounds_of(rest + high, self._domain, first=low) for rest, (low, high) in constants)

    def whole_axes(self, stage: str) -> frozenset[int]:
        """The axes along which a stage cannot be computed in parts."""
        found = self._whole_axes.get(stage)
        if found is None:
            found = frozenset(whole_axes(self.graph.stage(stage))) - {self.carried.get(stage, -1)}
            self._whole_axes[stage] = found
        return found

    def whole(self, name: str, count: int) -> Region:
        """All of an array, for each chunk."""
        return tuple((np.zeros(count, np.int64), np.full(count, n - 1)) for n in self.shapes[name])


def hull(a: Region | None, b: Region) -> Region:
    """The smallest regions around two."""
    return b if a is None else tuple(CHUNKS.hull(x, y) for x, y in zip(a, b, strict=True))


def filled(region: Region, shape: Sequence[int]) -> Region:
    """Regions with at least one element, because kernels cannot read empty arrays."""
    found = []
    for (low, high), n in zip(region, shape, strict=True):
        empty = high < low
        found.append((np.where(empty, 0, low), np.where(empty, min(0, n - 1), high)))
    return tuple(found)


def elements(intervals: Iterable[Interval]) -> Any:
    """The number of points in regions, as floats because integers may overflow."""
    total: Any = 1.0
    for low, high in intervals:
        total = total * np.maximum(np.asarray(high) - np.asarray(low) + 1.0, 0.0)
    return total
