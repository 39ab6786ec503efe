"""A Graph, cut into subgraphs that are computed chunk by chunk.

A subgraph computes stages of one shape, its outputs, from arrays that exist already: inputs, and outputs of other
subgraphs. Each task recomputes what its chunk needs of the stages in between. A stage becomes an output of a subgraph
of its own where recomputing it would cost too much (`RECOMPUTED`), where its chunks need more than the neighbouring
chunks of an array, or where it is a reduction over more than one chunk: then each task computes a partial result, and
these are combined. A chunk of a scan continues from the chunk before it along its axis (`carries.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hjit.chunks.bounds import BoundsInference, Interval, Region, elements, filled, hull
from hjit.chunks.carries import Carry, carry_of
from hjit.chunks.limits import LARGE, RECOMPUTED, RECOMPUTED_SCAN, SMALL_WORK, USES
from hjit.trace.ir.analysis.accumulations import accumulation_of
from hjit.trace.ir.expressions import Const
from hjit.trace.ir.graph import Definition, Graph, Stage
from hjit.trace.ir.poly import Poly, Sym, deep_atoms, sizes_value

IDENTITIES = {"add": 0, "multiply": 1, "bitwise_xor": 0}  # of operations that begin with it
IDEMPOTENT = {"minimum", "maximum", "fmin", "fmax", "logical_or", "logical_and", "bitwise_or", "bitwise_and"}

Grid = tuple[tuple[int, ...], ...]  # for each axis the lengths of the chunks
Given = Mapping[int, Mapping[int, Interval]]  # of updates of a stage: the iterations of dimensions


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Stages of one shape that are computed chunk by chunk.

    Attributes:
        outputs: these stages.
        grid: their chunks.
        pieces: of a reduction the chunks of its reduction dimensions.
        required: of all stages and arrays the region that each task needs, in the order of the grid and the pieces.
        reads: the arrays that are there, from outside.
        is_whole: must a task see more than it should, as the stages cannot be cut?
        given: of outputs the iterations that each task does, where they do not follow from its region.
        carries: the outputs that are scans whose chunks go on from one another.
        before: of those the rows before each chunk.
    """

    outputs: tuple[str, ...]
    grid: Grid
    pieces: Grid
    required: Mapping[str, Region]
    reads: tuple[str, ...]
    is_whole: bool = False
    given: Mapping[str, Given] = field(default_factory=dict)
    carries: Mapping[str, Carry] = field(default_factory=dict)
    before: Mapping[str, Region] = field(default_factory=dict)

    @property
    def numblocks(self) -> tuple[int, ...]:
        """Chunks along each axis, then pieces along each reduction dimension."""
        return tuple(map(len, self.grid + self.pieces))


class Cutter:
    """Cuts a Graph.

    Attributes:
        shapes: of the arrays whose chunks results follow: those that are read, or all arguments where none is.
        chunks: of the arrays that it reads: the lengths along each axis.
        aliases: inputs that are another array (`hjit.trace.passes.shared_operands`).
        kept: stages that subgraphs need and do not compute themselves (`hjit.chunks.kept_stages`).
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, tuple[Poly, ...]],
        sizes: Mapping[str, int],
        chunks: Mapping[str, Grid],
        scalars: Mapping[str, Any] = {},
        aliases: Mapping[str, str] = {},
    ) -> None:
        self.graph, self.sizes, self.chunks, self.scalars, self.aliases = graph, sizes, chunks, scalars, aliases
        self.shapes = shapes
        self.bounds = BoundsInference(graph, sizes, scalars)
        self.kept: frozenset[str] = frozenset()
        self._found: dict[str, Subgraph] = {}
        self._carried: dict[tuple[str, ...], BoundsInference] = {}
        self.position = {s.name: k for k, s in enumerate(graph.stages)}
        self._reduced: dict[str, Grid | None] = {}
        self._carries = {s.name: carry_of(s) for s in graph.stages}

    def subgraphs(self) -> list[Subgraph]:
        """The subgraphs, in an order in which they can be computed; those of one shape that do not need each other are
        one."""
        found: dict[str, Subgraph] = {}
        wanted = [n for n in self.graph.outputs if n in self.position]
        while wanted:
            name = wanted.pop()
            if name not in found:
                found[name] = self.subgraph_of(name)
                wanted += [n for n in map(self.array, found[name].reads) if n in self.position]
        return self._joined(found)

    def array(self, name: str) -> str:
        """The array that one is which a subgraph reads: itself, or that which it is an alias of."""
        return self.aliases.get(name, name)

    def keep(self, name: str) -> None:
        """Subgraphs read this stage, which is one of its own, rather than computing it."""
        self.kept |= {name}
        self._found = {n: p for n, p in self._found.items() if n == name or name not in p.required}

    def subgraph_of(self, name: str) -> Subgraph:
        """The subgraph that computes a stage alone."""
        if name not in self._found:
            self._found[name] = self._new(name)
        return self._found[name]

    def _joined(self, found: Mapping[str, Subgraph]) -> list[Subgraph]:
        """The subgraphs of single stages, those that read one another's chunks at most once together."""
        levels: dict[str, int] = {}
        alike: dict[tuple[object, ...], list[list[str]]] = {}
        for name in sorted(found, key=self.position.__getitem__):
            subgraph = found[name]
            levels[name] = 1 + max((levels[n] for n in map(self.array, subgraph.reads) if n in found), default=0)
            groups = alike.setdefault((levels[name], *self._signature(name, subgraph)), [])
            group = next((g for g in groups if not any(n in subgraph.required for n in g)), None)
            if group is None:
                groups.append([name])
            else:
                group.append(name)
        subgraphs = [self._together(tuple(g), found) for groups in alike.values() for g in groups]
        return sorted(subgraphs, key=lambda p: max(levels[n] for n in p.outputs))

    def _together(self, names: tuple[str, ...], found: Mapping[str, Subgraph]) -> Subgraph:
        """One subgraph of several, which none of them needs another of."""
        first = found[names[0]]
        if len(names) == 1:
            return first
        reads = frozenset(n for name in names for n in found[name].reads if n in found)
        carries = {n: c for name in names for n, c in found[name].carries.items()}
        subgraph = self._walk(names, first.grid, first.pieces, reads, False, carries)
        assert subgraph is not None, "each of them alone saw no more"
        return subgraph

    def _signature(self, name: str, subgraph: Subgraph) -> tuple[object, ...]:
        """What subgraphs have in common that are computed together."""
        if subgraph.is_whole:
            return (name,)
        updates = self.graph.stage(name).updates if subgraph.pieces else ()
        carries = tuple((c.axis, c.step) for c in subgraph.carries.values())
        return self.bounds.shapes[name], subgraph.grid, subgraph.pieces, tuple(d.rdims for d in updates[:1]), carries

    def _new(self, name: str) -> Subgraph:
        """By the first grid of chunks for which no task sees too much."""
        pieces, carry = self._pieces(name) or (), self._carries[name]
        for grid in self._grids(name):
            carries = {name: carry} if carry is not None and len(grid[carry.axis]) > 1 else {}
            subgraph = self._walk((name,), grid, pieces, frozenset(), False, carries)
            if subgraph is not None:
                return subgraph
        subgraph = self._walk((name,), tuple((n,) for n in self.bounds.shapes[name]), (), frozenset(), True)
        assert subgraph is not None
        return subgraph

    # -- chunks of stages
    def _grids(self, name: str) -> Iterator[Grid]:
        """Chunks of a stage: as its inputs are along all axes that allow it, then along one of them only."""
        shape, fixed, carry = self.bounds.shapes[name], self.bounds.whole_axes(name), self._carries[name]
        polys = self.graph.stage(name).shape

        def chunks(k: int, n: int, p: Poly) -> tuple[int, ...]:
            if carry is not None and k == carry.axis:
                return carry.chunks(self._chunks_of(p, (k, len(shape))), self.sizes)
            return (n,) if k in fixed else self._chunks_of(p, (k, len(shape)))

        full = tuple(chunks(k, n, p) for k, (n, p) in enumerate(zip(shape, polys, strict=True)))
        yield full
        several = [k for k, x in enumerate(full) if len(x) > 1]
        if len(several) > 1:
            for k in sorted(several, key=lambda k: -len(full[k])):
                yield tuple(x if axis == k else (sum(x),) for axis, x in enumerate(full))

    def _chunks_of(self, p: Poly, axis: tuple[int, int] | None = None) -> tuple[int, ...]:
        """The chunks of an axis of this length: those of the axis of an input that has it, or that it is computed from;
        or those of that axis of inputs with as many axes, in proportion.

        Args:
            axis: which one, of how many.
        """
        n = sizes_value(p, self.sizes)
        if n <= 1:
            return (n,)
        axes = [
            (q, (k, len(shape)), self.chunks[name][k])
            for name, shape in self.shapes.items()
            for k, q in enumerate(shape)
            if len(self.chunks[name][k]) > 1
        ]
        named = {a.name for a in deep_atoms(p) if isinstance(a, Sym)}
        found = (
            next((x for q, _, x in axes if q == p), None)
            or next((x for q, _, x in axes if any(isinstance(a, Sym) and a.name in named for a in deep_atoms(q))), None)
            or next((x for _, k, x in axes if k == axis), None)
        )
        return (n,) if found is None else scaled(found, n)

    def _pieces(self, name: str) -> Grid | None:
        """The pieces that a reduction is computed in; None where it is none, or all of it lies in one."""
        if name not in self._reduced:
            self._reduced[name] = self._pieces_of(self.graph.stage(name))
        return self._reduced[name]

    def _pieces_of(self, s: Stage) -> Grid | None:
        if not is_reduction(s):
            return None
        d = s.updates[0]
        grid = tuple(self._chunks_of(n) for n in d.rdims)
        if all(len(x) == 1 for x in grid):
            return None
        fixed = self.bounds.whole_axes(s.name)
        shape = self.bounds.shapes[s.name]
        return None if math.prod(shape[k] for k in fixed) > LARGE else grid

    # -- what chunks need
    def bounds_with(self, carries: Mapping[str, Carry]) -> BoundsInference:
        """Bounds inference for a subgraph with these scans."""
        if not carries:
            return self.bounds
        key = tuple(carries)
        if key not in self._carried:
            axes = {n: c.axis for n, c in carries.items()}
            self._carried[key] = BoundsInference(self.graph, self.sizes, self.scalars, axes)
        return self._carried[key]

    def _walk(
        self,
        names: tuple[str, ...],
        grid: Grid,
        pieces: Grid,
        there: frozenset[str],
        whole: bool,
        carries: Mapping[str, Carry] = {},
    ) -> Subgraph | None:
        """The subgraph with this grid; None where its own stages see too much of what they read.

        Args:
            there: stages that are outputs of other subgraphs.
        """
        count, own, dims = task_regions(grid, pieces, len(self.graph.stage(names[0]).updates[0].dims) if pieces else 0)
        bounds = self.bounds_with(carries)
        given = {n: self._given(n, own, dims, carries.get(n)) for n in names}
        needed: dict[str, Region] = dict.fromkeys(names, own)
        reads: list[str] = []
        last = max(self.position[n] for n in names)
        for s in reversed(self.graph.stages[: last + 1]):
            if s.name not in needed:
                continue
            region = needed[s.name] = filled(needed[s.name], self.bounds.shapes[s.name])
            is_own = s.name in names
            if not is_own and (s.name in there or self._is_too_much(s.name, region, count)):
                reads.append(s.name)
                continue
            fixed = bounds.whole_axes(s.name)
            every = bounds.whole(s.name, count)
            needed[s.name] = region = tuple(every[k] if k in fixed else x for k, x in enumerate(region))
            for update, loops in enumerate(bounds.loops(s.name), 0 if s.initial is None else -1):
                at = loops.dims(region, given.get(s.name, {}).get(update, {}))
                for access in loops.accesses:
                    found = access.region(at, count)
                    if is_own and not whole and self._sees_too_much(access.source, found, count):
                        if not (is_reduction(s) and _computes_much(at, found, count)):
                            return None
                    needed[access.source] = hull(needed.get(access.source), found)
        for n in self.graph.input_by_name:
            if n in needed:
                needed[n] = filled(needed[n], self.bounds.shapes[n])
                reads.append(n)
        before = {n: c.before(needed[n], self.bounds.shapes[n][c.axis]) for n, c in carries.items()}
        return Subgraph(names, grid, pieces, needed, tuple(dict.fromkeys(reads)), whole, given, carries, before)

    def _given(self, name: str, own: Region, dims: Mapping[int, Interval], carry: Carry | None) -> Given:
        """The iterations of a reduction's pieces, or of a scan's chunks."""
        if carry is not None:
            return {carry.update: {carry.dim: carry.iterations(own, self.sizes)}}
        return dict.fromkeys(range(len(self.graph.stage(name).updates)), dims) if dims else {}

    def _is_too_much(self, name: str, region: Region, count: int) -> bool:
        """Is a stage rather computed once, than for each chunk as far as that needs it?"""
        if name in self.kept:
            return True
        if count == 1 and not self._pieces(name):
            return False
        if self._pieces(name) and self._is_long(name):
            return True
        most = RECOMPUTED_SCAN if self._carries[name] else RECOMPUTED
        work = once = 0.0
        every = self.bounds.whole(name, 1)
        for loops in self.bounds.loops(name):
            work += float(np.sum(elements(loops.dims(region)) * np.ones(count)))
            once += float(np.max(elements(loops.dims(every))))
            at = loops.dims(region)
            if any(self._sees_too_much(r.source, r.region(at, count), count) for r in loops.accesses):
                return True
        return once > SMALL_WORK and work > most * once

    def _is_long(self, name: str) -> bool:
        """Are there more iterations than a chunk may have?"""
        return any(math.prod(loops.extents) > SMALL_WORK for loops in self.bounds.loops(name))

    def _sees_too_much(self, source: str, region: Region, count: int) -> bool:
        """Do chunks read all of a large array, rather than a neighbourhood?"""
        shape = self.bounds.shapes[source]
        size = float(math.prod(shape))
        if count == 1 or size <= SMALL_WORK or (source not in self.position and self._is_one(source)):
            return False
        return float(np.sum(elements(region) * np.ones(count))) > RECOMPUTED * size

    def _is_one(self, source: str) -> bool:
        """Is it an input in one chunk, which every task has anyway?"""
        source = self.array(source)
        return source not in self.position and all(len(x) == 1 for x in self.chunks.get(source, ()))


def _computes_much(dims: Sequence[Interval], region: Region, count: int) -> bool:
    """Do tasks with these iterations use each element that they read so often that they may read it, too?"""
    some = np.ones(count)
    return float(np.sum(elements(dims) * some)) >= USES * float(np.sum(elements(region) * some))


def is_reduction(s: Stage) -> bool:
    """Can a stage be combined from partial results over parts of its reduction domain?"""
    if not isinstance(s.initial, Const) or not s.updates:
        return False
    (op,) = {d.order for d in s.updates} if len({d.order for d in s.updates}) == 1 else ("",)
    if op not in IDEMPOTENT and not (op in IDENTITIES and s.initial.value == IDENTITIES[op]):
        return False
    first = s.updates[0]
    return all(_is_plain(s, d) and d.rdims == first.rdims and d.dims == first.dims for d in s.updates)


def _is_plain(s: Stage, d: Definition) -> bool:
    """Is an update ``s[target] = op(s[target], x)``, `x` not reading `s`?"""
    x = accumulation_of(s.name, d)
    return x is not None and x.op == d.order


def scaled(chunks: Sequence[int], n: int) -> tuple[int, ...]:
    """Chunks of an axis of `n` elements, in proportion to others."""
    total = sum(chunks)
    if total == n:
        return tuple(chunks)
    edges = sorted({0, n, *(round(e * n / total) for e in accumulate(chunks))})
    return tuple(b - a for a, b in pairwise(edges)) or (n,)


def task_regions(grid: Grid, pieces: Grid, first: int) -> tuple[int, Region, dict[int, Interval]]:
    """How many tasks there are, the region of each, and the pieces of its reduction dimensions, which are numbered from
    `first`."""
    axes = [(np.cumsum([0, *x[:-1]]), np.cumsum(x) - 1) for x in (*grid, *pieces)]
    shape = [len(x) for x in (*grid, *pieces)]
    count = math.prod(shape)
    grids = np.meshgrid(*(np.arange(n) for n in shape), indexing="ij") if shape else []
    intervals = [(low[g.ravel()], high[g.ravel()]) for (low, high), g in zip(axes, grids, strict=True)]
    own = tuple(intervals[: len(grid)])
    return count, own, {first + k: x for k, x in enumerate(intervals[len(grid) :])}
