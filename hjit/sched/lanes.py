"""Loads of vectors, counted by trying: the addresses that the lanes of a block of unrolled code load, in numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.sched.formulas import Array, Num
from hjit.sched.memory import C_ORDER, Layout
from hjit.sched.sized import At, Part, SizedGraph
from hjit.sched.tree import DimKey, dims_of
from hjit.trace.graph import walk
from hjit.trace.poly import Atom, Bound, Dim, Extremum, FloorDiv, Mod, Poly, Value, deep_atoms, poly

Ints = np.ndarray[Any, np.dtype[np.int64]]
Copies = tuple[tuple[DimKey, int, int], ...]  # dimension, turns whose code is repeated, elements from one to the next
Layouts = Mapping[str, Layout | None]

SHUFFLED = 4  # lanes that are spread over so many vectors are loaded as those (appendix A, vector_loads_per_vector)
APART = 1 << 20  # elements between neighbouring lanes of a gather, as far as anyone knows


def loads_of_block(graph: SizedGraph, part: Part, vector: DimKey | None, lanes: int, copies: Copies, layouts: Layouts) -> tuple[float, float, float]:
    """Loads of a block of unrolled vectors, each distinct one counted once, for one vector of it (Adams 2019, section 4.1).

    Args:
        vector: the dimension that the lanes run along; None: scalars.
        copies: the unrolled loops.
        layouts: of each array that is read; None: whatever makes the loads dense.

    Returns:
        scalar_loads_per_vector, vector_loads_per_vector, scalar_loads_per_scalar of appendix A. A scalar beside vectors
        is not unrolled.
    """
    at = tuple(layouts[source] for source in part.windows)
    key = part, vector, lanes, copies, at
    found = graph.blocks.get(key)
    if found is None:
        alone = part, None, 1, (), at
        if alone not in graph.blocks:
            graph.blocks[alone] = _count(_Block(graph, part, None, 1, (), layouts), 0.0)
        found = graph.blocks[key] = _count(_Block(graph, part, vector, lanes, copies, layouts), graph.blocks[alone][2])
    return found


def _count(block: _Block, alone: float) -> tuple[float, float, float]:
    """`alone`: scalar_loads_per_scalar beside vectors."""
    spread = block.spreads()
    if block.vector is None:
        return 0.0, 0.0, len(spread) / block.points
    gathered = spread > SHUFFLED * block.lanes
    dense = (spread > 1) & ~gathered
    scalars = np.sum(spread == 1) + block.lanes * np.sum(gathered)
    return float(scalars) / block.points, float(np.sum(-(-spread[dense] // block.lanes))) / block.points, alone


@dataclass(frozen=True, slots=True)
class Loads:
    """What the loads of a computation are counted from, once its sizes are known.

    Attributes:
        dims: of the unrolled loops.
        numbers: the lanes of a vector, and for each unrolled loop its copies and what lies between two of them.
    """

    part: Part
    vector: DimKey | None
    dims: tuple[DimKey, ...]
    layouts: Layouts
    numbers: tuple[Num, ...]

    def count(self, graph: SizedGraph, numbers: Array, is_one: bool) -> Array:
        """`loads_of_block` for `numbers`, [numbers, batch]: [batch, 3], or [3] where `is_one`, as they are the same for all."""
        if is_one:
            return np.array(self._count(graph, *numbers[:, 0].astype(int).tolist()))
        rows = list(map(tuple, numbers.T.astype(int).tolist()))
        known = {row: self._count(graph, *row) for row in set(rows)}
        return np.array([known[row] for row in rows])

    def _count(self, graph: SizedGraph, lanes: int, *numbers: int) -> tuple[float, float, float]:
        copies = tuple(zip(self.dims, numbers[::2], numbers[1::2], strict=True))
        return loads_of_block(graph, self.part, self.vector, lanes, copies, self.layouts)


class _Block:
    """A block of unrolled vectors in the middle of the image."""

    def __init__(self, graph: SizedGraph, part: Part, vector: DimKey | None, lanes: int, copies: Copies, layouts: Layouts) -> None:
        self.graph, self.part, self.vector, self.lanes, self.layouts = graph, part, vector, lanes, layouts
        counts = [n for _, n, _ in copies]
        self.shape = math.prod(counts), lanes
        alike = sum(n == part.dimensions[-1] for n in part.dimensions)  # definitions that are evaluated at each point of the loops
        self.points = self.shape[0] * alike
        self.dims = self._dims(np.indices(counts).reshape(len(copies), self.shape[0]), copies)

    def _dims(self, turns: Ints, copies: Copies) -> list[Ints]:
        """The dimensions at each lane of each copy, [copies, lanes] each; `turns`: those of the unrolled loops, [loops, copies]."""
        moved: dict[DimKey, Ints] = {}
        for (key, _, step), turn in zip(copies, turns, strict=True):
            moved[key] = moved.get(key, np.zeros(self.shape, np.int64)) + turn[:, None] * step
        if self.vector is not None:
            moved[self.vector] = moved.get(self.vector, np.zeros(self.shape, np.int64)) + np.arange(self.lanes)
        extents = [max(int(n), 1) for n in self.part.extents]
        found = [np.full(self.shape, n // 2, np.int64) for n in extents]
        for key, offset in moved.items():
            first, *rest = dims_of(key)
            block = int(offset.max()) + 1
            flat = offset + math.prod(extents[k] for k in dims_of(key)) // 2 // block * block
            for k in reversed(rest):
                flat, found[k] = np.divmod(flat, extents[k])
            found[first] = flat
        return found

    def spreads(self) -> Ints:
        """Of every load the elements from the first to the last that its lanes load, of equal loads once."""
        found: dict[tuple[str, int], dict[bytes, int]] = {}
        known: dict[Any, dict[bytes, int]] = {}  # many arrays may be read alike
        for number, group in enumerate(alike_loads(self.graph, self.part)):
            layout = self.layouts[group.source]
            strides = self.graph.strides(group.source, layout or C_ORDER)
            innermost = self.graph.shape(group.source)[-1] if strides else 1.0
            key = group.index, group.constants.tobytes(), strides, layout is None, innermost
            if key not in known:
                known[key] = self._loaded(self._addresses(group, strides, layout is None, innermost))
            found.setdefault((group.source, number if group.is_gather else -1), {}).update(known[key])
        return np.array([n for loaded in found.values() for n in loaded.values()], np.int64)

    def _loaded(self, rows: Ints) -> dict[bytes, int]:
        """The spread of every load, equal ones once."""
        data, width = rows.tobytes(), rows.itemsize * self.lanes
        spread = (rows.max(-1) - rows.min(-1) + 1).tolist()
        return {data[k * width : (k + 1) * width]: n for k, n in enumerate(spread)}

    def _addresses(self, group: Alike, strides: tuple[int, ...], is_open: bool, innermost: float) -> Ints:
        """The addresses of the lanes of every load of a group, in elements, [loads * copies, lanes].

        Args:
            is_open: may the array lie in memory as suits the lanes best?
            innermost: elements of the last axis.
        """
        values = [np.broadcast_to(_value(p, self.dims), self.shape) for p in group.index]
        if is_open and self.lanes > 1:
            moving = [k for k, v in enumerate(values) if (v[:, 1:] != v[:, :1]).any()]
            if len(moving) == 1:
                strides = tuple(1 if k == moving[0] else APART * (k + 1) for k in range(len(strides)))
        first = np.zeros(self.shape, np.int64)
        for v, step in zip(values, strides, strict=True):
            first = first + v * step
        offsets = group.constants @ np.array(strides, np.int64)
        total: Ints = first + offsets[:, None, None]
        step = int(first[0, 1] - first[0, 0]) if self.lanes > 1 else 0
        if 1 < step <= SHUFFLED and strides[-1] == 1 and innermost == step:
            total = total - total % step  # the channels of a pixel share their loads
        return np.ascontiguousarray(total.reshape(-1, self.lanes))


@dataclass(frozen=True, slots=True, eq=False)
class Alike:
    """Loads of one array whose indices differ in constants only.

    Attributes:
        index: but for the constants.
        constants: [loads, axes].
        is_gather: does an index hold values?
    """

    source: str
    index: At
    constants: Ints
    is_gather: bool


def alike_loads(graph: SizedGraph, part: Part) -> list[Alike]:
    """The loads of a part in groups; every gather is one by itself."""
    found: list[Alike] | None = graph.alike.get(part)
    if found is None:
        groups: dict[tuple[str, At, int], list[tuple[int, ...]]] = {}
        for number, (source, index) in enumerate(part.loads):
            is_gather = any(isinstance(a, Value) for p in index for a in deep_atoms(p))
            key = source, tuple(p - p.const for p in index), number if is_gather else -1
            groups.setdefault(key, []).append(tuple(p.const for p in index))
        found = graph.alike[part] = [
            Alike(source, index, np.array(constants, np.int64).reshape(len(constants), len(index)), number >= 0)
            for (source, index, number), constants in groups.items()
        ]
    return found


def _value(p: Poly, dims: Sequence[Ints]) -> Ints:
    """An index at points."""
    total = np.full((1, 1), p.const, np.int64)
    for m, c in p.terms.items():
        product = np.full((1, 1), c, np.int64)
        for a in m:
            product = product * _atom(a, dims)
        total = total + product
    return total


def _atom(a: Atom, dims: Sequence[Ints]) -> Ints:
    match a:
        case Dim():
            return dims[a.k]
        case FloorDiv():
            return _value(a.arg, dims) // _value(a.by, dims)
        case Mod():
            return _value(a.arg, dims) % _value(a.by, dims)
        case Extremum():
            return (np.minimum if a.which == "min" else np.maximum)(_value(a.a, dims), _value(a.b, dims))
        case Bound():
            return _bounded(a.mode, _value(a.arg, dims), _value(a.extent, dims))
        case Value():  # anywhere, but the same where the dimensions are that it depends on
            found = np.zeros((1, 1), np.int64)
            for k in sorted(set(_dims_of(a))):
                found = found + dims[k] * (APART * (k + 1))
            return found
    raise AssertionError(a)


def _bounded(mode: str, i: Ints, n: Ints) -> Ints:
    """`hjit.trace.poly.bound_value` of many."""
    if mode == "clamp":
        return np.clip(i, 0, n - 1)
    if mode == "wrap":
        return i % n
    last = 2 * n - 1 if mode == "symmetric" else 2 * n - 2  # where the second image of the axis ends
    i = i % np.maximum(last + (mode == "symmetric"), 1)
    return np.minimum(i, last - i)


def _dims_of(a: Atom) -> Iterator[int]:
    """The dimensions that an index depends on."""
    yield from (b.k for b in deep_atoms(poly(a)) if isinstance(b, Dim))
    for e in poly(a).exprs:
        for inner in walk(e):
            for p in inner.polys:
                for b in p.atoms():
                    yield from _dims_of(b)
