"""Load counts: the distinct vectors that the lanes of a block of unrolled code load, counted from their addresses."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hjit.sched.analysis.sized import At, DefinitionGroup, SizedGraph, is_computed
from hjit.sched.analysis.tape import Array, Num
from hjit.sched.language.memory import C_ORDER, Layout
from hjit.sched.language.tree import DimKey, dims_of
from hjit.trace.ir.expressions import mentioned_dims
from hjit.trace.ir.poly import Atom, Boundary, Dim, Extremum, FloorDiv, Indirect, Mod, Poly, poly

Ints = np.ndarray[Any, np.dtype[np.int64]]
# dimension, iterations whose code is repeated, elements from one to the next
Copies = tuple[tuple[DimKey, int, int], ...]
Layouts = Mapping[str, Layout | None]

SHUFFLED = 4  # lanes that are spread over so many vectors are loaded as those (appendix A, vector_loads_per_vector)
APART = 1 << 20  # elements between neighbouring lanes of a gather, as far as anyone knows


def loads_of_block(
    graph: SizedGraph, group: DefinitionGroup, vector: DimKey | None, lanes: int, copies: Copies, layouts: Layouts
) -> tuple[float, float, float]:
    """Loads of a block of unrolled vectors, each distinct one counted once, for one vector of it (Adams 2019, section
    4.1).

    Args:
        vector: the dimension that the lanes run along; None: scalars.
        copies: the unrolled loops.
        layouts: of each array that is read; None: whatever makes the loads dense.

    Returns:
        scalar_loads_per_vector, vector_loads_per_vector, scalar_loads_per_scalar of appendix A. A scalar beside vectors
        is not unrolled.
    """
    reads = reads_of(graph, group, layouts)
    # definitions that are evaluated at each point of the loops
    alike = sum(n == group.dimensions[-1] for n in group.dimensions)
    points = math.prod(n for _, n, _ in copies) * alike
    if vector is None:
        return 0.0, 0.0, _total(graph, group, reads, None, 1, copies).distinct / points
    alone = _total(graph, group, reads, None, 1, ()).distinct / alike
    found = _total(graph, group, reads, vector, lanes, copies)
    return found.scalars / points, found.vectors / points, alone


def calls_of_block(
    graph: SizedGraph, group: DefinitionGroup, name: str, vector: DimKey | None, lanes: int, copies: Copies
) -> tuple[float, float]:
    """How often a block calls a stage that is inlined, each distinct evaluation counted once: for one vector of it, and
    for a scalar.

    Args:
        vector, copies: as in `loads_of_block`.
    """
    reads = graph.reads_of.get((group, name))
    if reads is None:
        calls = ((name, index) for index in group.calls[name])
        reads = graph.reads_of[group, name] = _groups_of(graph, calls, {name: C_ORDER})
    alike = sum(n == group.dimensions[-1] for n in group.dimensions)
    points = math.prod(n for _, n, _ in copies) * alike
    if vector is None:
        each = _total(graph, group, reads, None, 1, copies).distinct / points
        return each, each
    return _total(graph, group, reads, vector, lanes, copies).distinct / points, len(group.calls[name]) / len(
        group.definitions
    )


class Count(NamedTuple):
    """Distinct loads of a block, and how many loads of scalars and of vectors they are where their lanes are known."""

    distinct: int
    scalars: int
    vectors: int


def _total(
    graph: SizedGraph, group: DefinitionGroup, reads: Sequence[Read], vector: DimKey | None, lanes: int, copies: Copies
) -> Count:
    """The sums over all arrays. Many may be read alike, and by other groups."""
    key = group.extents, vector, lanes, copies
    points = graph.counts.get(key)
    if points is None:
        points = graph.counts[key] = _Points(*key)
    found = [points.count(read) for read in reads]
    return Count(sum(x.distinct for x in found), sum(x.scalars for x in found), sum(x.vectors for x in found))


@dataclass(frozen=True, slots=True)
class Block:
    """What the loads and calls of a block of unrolled vectors are counted from, once its sizes are known.

    Attributes:
        dims: of the unrolled loops.
        numbers: the lanes of a vector, and for each unrolled loop its copies and what lies between two of them.
        called: the inlined stage whose calls are counted; None: loads are.
    """

    group: DefinitionGroup
    vector: DimKey | None
    dims: tuple[DimKey, ...]
    layouts: Layouts
    numbers: tuple[Num, ...]
    called: str | None = None

    def count(self, graph: SizedGraph, numbers: Array, is_one: bool) -> Array:
        """`loads_of_block` or `calls_of_block` for `numbers`, [numbers, batch]: [batch, counts], or [counts] where
        `is_one`: the same for all."""
        if is_one:
            return np.array(self._count(graph, *numbers[:, 0].astype(int).tolist()))
        rows = list(map(tuple, numbers.T.astype(int).tolist()))
        known = {row: self._count(graph, *row) for row in set(rows)}
        return np.array([known[row] for row in rows])

    def _count(self, graph: SizedGraph, *numbers: int) -> tuple[float, ...]:
        key = self.group, self.vector, self.dims, *self.layouts.values(), self.called, numbers
        found: tuple[float, ...] | None = graph.blocks.get(key)
        if found is None:
            found = graph.blocks[key] = self._counted(graph, *numbers)
        return found

    def _counted(self, graph: SizedGraph, lanes: int, *numbers: int) -> tuple[float, ...]:
        copies = tuple(zip(self.dims, numbers[::2], numbers[1::2], strict=True))
        if self.called is not None:
            return calls_of_block(graph, self.group, self.called, self.vector, lanes, copies)
        return loads_of_block(graph, self.group, self.vector, lanes, copies, self.layouts)


class _Points:
    """The points of a block of unrolled vectors in the middle of the image, and what was worked out there."""

    def __init__(self, extents: Sequence[float], vector: DimKey | None, lanes: int, copies: Copies) -> None:
        self.vector, self.lanes = vector, lanes
        counts = [n for _, n, _ in copies]
        self.shape = math.prod(counts), lanes
        self.dims = self._dims(extents, np.indices(counts).reshape(len(copies), self.shape[0]), copies)
        self._counts: dict[Read, Count] = {}
        self._values: dict[Poly | Atom, Ints] = {}

    def _dims(self, sizes: Sequence[float], iterations: Ints, copies: Copies) -> list[Ints]:
        """The dimensions at each lane of each copy, [copies, lanes] each; `iterations`: those of the unrolled loops,
        [loops, copies]."""
        moved: dict[DimKey, Ints] = {}
        for (key, _, step), iteration in zip(copies, iterations, strict=True):
            moved[key] = moved.get(key, np.zeros(self.shape, np.int64)) + iteration[:, None] * step
        if self.vector is not None:
            moved[self.vector] = moved.get(self.vector, np.zeros(self.shape, np.int64)) + np.arange(self.lanes)
        extents = [max(int(n), 1) for n in sizes]
        found = [np.full(self.shape, n // 2, np.int64) for n in extents]
        for key, offset in moved.items():
            first, *rest = dims_of(key)
            block = int(offset.max()) + 1
            flat = offset + math.prod(extents[k] for k in dims_of(key)) // 2 // block * block
            for k in reversed(rest):
                flat, found[k] = np.divmod(flat, extents[k])
            found[first] = flat
        return found

    def count(self, read: Read) -> Count:
        """The loads of an array, equal ones once."""
        found = self._counts.get(read)
        if found is None:
            found = self._counts[read] = self._count(read)
        return found

    def _count(self, read: Read) -> Count:
        """By the elements from the first to the last that the lanes of each load."""
        loaded: dict[bytes, int] = {}
        for index, constants in read.groups:
            offsets = (
                np.frombuffer(constants, np.int64).reshape(-1, len(index)) if index else np.zeros((1, 0), np.int64)
            )
            rows = self._addresses(index, offsets, read)
            data, width = rows.tobytes(), rows.itemsize * self.lanes
            spread = (rows.max(-1) - rows.min(-1) + 1).tolist()
            loaded.update((data[k * width : (k + 1) * width], n) for k, n in enumerate(spread))
        scalars = vectors = 0
        for n in loaded.values():
            if n == 1:
                scalars += 1
            elif n > SHUFFLED * self.lanes:
                scalars += self.lanes
            else:
                vectors += -(-n // self.lanes)
        return Count(len(loaded), scalars, vectors)

    def _addresses(self, index: At, constants: Ints, read: Read) -> Ints:
        """The addresses of the lanes of every load of a group, in elements, [loads * copies, lanes]."""
        values = list(map(self._value, index))
        strides = read.strides
        if read.is_open and self.lanes > 1:
            moving = [k for k, v in enumerate(values) if v.shape[1] > 1 and (v[:, 1:] != v[:, :1]).any()]
            if len(moving) == 1:
                strides = tuple(1 if k == moving[0] else APART * (k + 1) for k in range(len(strides)))
        first = np.zeros(self.shape, np.int64)
        for v, step in zip(values, strides, strict=True):
            first = first + v * step
        offsets = constants @ np.array(strides, np.int64)
        total: Ints = first + offsets[:, None, None]
        step = int(first[0, 1] - first[0, 0]) if self.lanes > 1 else 0
        if 1 < step <= SHUFFLED and strides[-1] == 1 and read.innermost == step:
            total = total - total % step  # the channels of a pixel share their loads
        return np.ascontiguousarray(total.reshape(-1, self.lanes))

    def _value(self, p: Poly) -> Ints:
        """An index at the points: of one copy or one lane, where it is the same for all."""
        found = self._values.get(p)
        if found is None:
            found = np.full((1, 1), p.const, np.int64)
            for m, c in p.terms.items():
                product = np.full((1, 1), c, np.int64)
                for a in m:
                    product = product * self._atom(a)
                found = found + product
            self._values[p] = found
        return found

    def _atom(self, a: Atom) -> Ints:
        found = self._values.get(a)
        if found is None:
            found = self._values[a] = self._new_atom(a)
        return found

    def _new_atom(self, a: Atom) -> Ints:
        match a:
            case Dim():
                return self.dims[a.k]
            case FloorDiv():
                return self._value(a.arg) // self._value(a.by)
            case Mod():
                return self._value(a.arg) % self._value(a.by)
            case Extremum():
                return (np.minimum if a.which == "min" else np.maximum)(self._value(a.a), self._value(a.b))
            case Boundary():
                return _bounded(a.mode, self._value(a.arg), self._value(a.extent))
            case Indirect():  # anywhere, but the same where the dimensions are that it depends on
                found = np.zeros((1, 1), np.int64)
                for k in sorted(mentioned_dims(poly(a))):
                    found = found + self.dims[k] * (APART * (k + 1))
                return found
        raise AssertionError(a)


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """Loads of one array that may be equal; one `Read` for all that are alike.

    Attributes:
        groups: indices but for their constants, and those constants as bytes of int64 [loads, axes].
        strides: in elements.
        is_open: may the array have the memory layout that suits the lanes best?
        innermost: elements of the last axis.
    """

    groups: tuple[tuple[At, bytes], ...]
    strides: tuple[int, ...]
    is_open: bool
    innermost: float


def reads_of(graph: SizedGraph, group: DefinitionGroup, layouts: Layouts) -> list[Read]:
    """The loads of a group by array; every gather is one of its own."""
    key = group, tuple(layouts[source] for source in group.footprints)
    found: list[Read] | None = graph.reads_of.get(key)
    if found is None:
        found = graph.reads_of[key] = _groups_of(graph, group.loads, layouts)
    return found


def _groups_of(graph: SizedGraph, loads: Iterable[tuple[str, At]], layouts: Layouts) -> list[Read]:
    """Loads by array; every gather is one of its own."""
    groups: dict[tuple[str, int], dict[At, list[tuple[int, ...]]]] = {}
    for number, (source, index) in enumerate(loads):
        alike = groups.setdefault((source, number if is_computed(index) else -1), {})
        rest = tuple(graph.one_of(p - p.const) for p in index)
        alike.setdefault(rest, []).append(tuple(p.const for p in index))
    found = []
    for (source, _), alike in groups.items():
        layout, shape = layouts[source], graph.shape(source)
        numbers = tuple((index, np.array(constants, np.int64).tobytes()) for index, constants in alike.items())
        fields = numbers, graph.strides(source, layout or C_ORDER), layout is None, shape[-1] if shape else 1.0
        found.append(graph.once(("read", *fields), functools.partial(Read, *fields)))
    return found


def _bounded(mode: str, i: Ints, n: Ints) -> Ints:
    """`hjit.trace.ir.poly.boundary_value` of many."""
    if mode == "clamp":
        return np.clip(i, 0, n - 1)
    if mode == "wrap":
        return i % n
    last = 2 * n - 1 if mode == "symmetric" else 2 * n - 2  # where the second image of the axis ends
    i = i % np.maximum(last + (mode == "symmetric"), 1)
    mirrored: Ints = np.minimum(i, last - i)
    return mirrored
