"""A nest as tables of integers, for the compiled featuriser."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from hjit.sched.analysis.bounds import vector_axes
from hjit.sched.analysis.sites import layout_of
from hjit.sched.analysis.sized import DefinitionGroup, SizedGraph
from hjit.sched.language.build import flattened, parallel_loops
from hjit.sched.language.memory import C_ORDER, Layout
from hjit.sched.language.tree import Compute, DimKey, Loop, Node, computes, dims_of, own, walk
from hjit.sched.native import records as at
from hjit.sched.native.argument_block import Packed
from hjit.sched.native.tables import tables_of

KINDS = {"serial": at.SERIAL, "parallel": at.PARALLEL, "unroll": at.UNROLL, "vector": at.VECTOR}
TAILS = {"auto": at.AUTO, "shift_inwards": at.AUTO, "guard_with_if": at.GUARD, "predicate": at.PREDICATE}
Row = list[int]


def is_known(nest: Node) -> bool:
    """Does the compiled featuriser handle all loops of a nest? It handles neither GPU loops nor rounded-up regions."""
    return all(x.kind in KINDS and x.tail in TAILS for x in walk(nest) if isinstance(x, Loop))


@dataclass(frozen=True, slots=True)
class Leaf:
    """A computation, as what its loads are counted from needs it: see `hjit.sched.features.load_counts.Block`.

    Attributes:
        row: the first of its rows of features; the stages that are inlined into it follow.
        unrolled: the dimensions of the unrolled loops.
        numbers: where the numbers of its block are.
    """

    group: DefinitionGroup
    row: int
    vector: DimKey | None
    unrolled: tuple[DimKey, ...]
    layouts: Mapping[str, Layout | None]
    numbers: slice


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A `Leaf` before all layouts are known."""

    group: DefinitionGroup
    row: int
    vector: DimKey | None
    unrolled: tuple[DimKey, ...]
    numbers: slice


class _Around(NamedTuple):
    """What is around a node.

    Attributes:
        row: of the loop around it, or -1.
        loops: those of its stage from where that begins, and their rows.
        task: the place of its nest.
        opened: the stages whose loops are around it.
    """

    row: int
    loops: tuple[tuple[int, Loop], ...]
    task: int
    opened: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class EncodedNest:
    """A nest in tables.

    Attributes:
        head: the stage that it is of.
        leaves: its computations.
        rows, numbers: how many rows of features they have, and numbers of blocks.
        environments: how many the featuriser needs at most.
    """

    head: str
    nest: Packed
    leaves: tuple[Leaf, ...]
    rows: int
    numbers: int
    environments: int


class Encoder:
    """Writes the tables of a child of the root; `placed`: the memory layout of stages that the whole tree places."""

    def __init__(self, graph: SizedGraph, nest: Node, placed: Mapping[str, Layout]) -> None:
        self.graph, self.nest, self.tables = graph, nest, tables_of(graph)
        self.items, self.stores = flattened((nest,))
        self.heads = dict.fromkeys(x.stage for x in self.items)
        names = sorted({c.stage for c in computes(nest)}, key=graph.position.__getitem__)
        self.number = {name: k for k, name in enumerate(names)}
        self.layouts = {**placed, **{x.stage: layout_of(x) for x in self.stores}}
        self.nodes: list[Row] = []
        self.computations: list[Row] = []
        self.lists: Row = []
        self.ends = [0]
        self.leaves: list[_Leaf] = []
        self.keys: dict[tuple[int, ...], int] = {}
        self.outer: dict[tuple[str, DimKey], int] = {}  # the loops around the current node, by dimension
        self.inside: dict[str, Row] = {name: [] for name in names}
        self.columns = self.rows = self.numbers = self.environments = self.source_count = 0
        self.is_sliding = False

    def encoded(self) -> EncodedNest:
        """All of it."""
        for item in self.items:
            place = self._new_place()
            self._visit(item, _Around(-1, (), place, frozenset()), begins=True)
            self._close(place)
            self.inside[item.stage] += [place, self.ends[place]]
        self._close(0)
        leaves = tuple(map(self._leaf, self.leaves))
        return EncodedNest(next(iter(self.heads)), self._packed(), leaves, self.rows, self.numbers, self.environments)

    def _new_place(self) -> int:
        self.ends.append(len(self.ends))
        return len(self.ends) - 1

    def _close(self, place: int) -> None:
        self.ends[place] = len(self.ends) - 1

    def _list(self, numbers: Row) -> int:
        """Where a list is."""
        self.lists += [len(numbers), *numbers]
        return len(self.lists) - len(numbers) - 1

    # -- nodes
    def _visit(self, node: Loop | Compute, around: _Around, begins: bool, slides: bool = False) -> None:
        """A node, and all inside it."""
        under = computes(node)
        first = under[0] if under[0].stage == node.stage else own(node, node.stage)
        group = self.graph.group(node.stage, first.definitions)
        row = [0] * at.NODE
        row[at.N_STAGE], row[at.N_GROUP] = self.number[node.stage], self.tables.group(self.graph, group)
        row[at.N_AROUND], row[at.N_TASK_PLACE] = around.row, around.task
        row[at.N_BEGINS], row[at.N_SLIDES] = begins, slides
        row[at.N_FIRST], row[at.N_LAST] = len(self.computations), len(self.computations) + len(under)
        self.nodes.append(row)
        self.environments += 2
        if around.row < 0:
            row[at.N_PARALLEL] = len(parallel_loops(node))
            self.environments += row[at.N_PARALLEL]
        if begins:
            around = _Around(around.row, (), around.task, around.opened | {node.stage})
        if isinstance(node, Loop):
            self._loop(node, row, around)
        else:
            row[at.N_IS] = at.COMPUTE
            self._compute(node, group, around)

    def _loop(self, loop: Loop, row: Row, around: _Around) -> None:
        number = len(self.nodes) - 1
        row[at.N_IS], row[at.N_KIND], row[at.N_TAIL] = at.LOOP, KINDS[loop.kind], TAILS[loop.tail]
        row[at.N_KEY] = self.keys.setdefault(dims_of(loop.dim), len(self.keys))
        row[at.N_COLUMN], row[at.N_INNER], row[at.N_PLACE] = -1, -1, self._new_place()
        under = computes(loop)
        row[at.N_ALONE] = len(under) == 1 or all(c.stage == loop.stage for c in under)
        if loop.size is not None:
            row[at.N_COLUMN], row[at.N_OPTIONAL] = self.columns, loop.size < 0
            self.columns += 1
        key = loop.stage, loop.dim
        if key in self.outer:
            self.nodes[self.outer[key]][at.N_INNER] = number
        self.outer[key] = number
        inside = _Around(number, (*around.loops, (number, loop)), around.task, around.opened)
        items, stores = flattened(loop.children)
        row[at.N_STORES] = self._list([self.number[x.stage] for x in stores])
        self.layouts.update((x.stage, layout_of(x)) for x in stores)
        kept = {x.stage for x in stores}
        rows = []
        for x in items:
            rows.append(len(self.nodes))
            begins, place = x.stage not in around.opened, len(self.ends)
            self._visit(x, inside, begins, begins and x.stage not in kept)
            self.is_sliding |= begins and x.stage not in kept
            if begins:
                self.inside[x.stage] += [place, len(self.ends) - 1]
        row[at.N_ITEMS] = self._list(rows)
        self._close(row[at.N_PLACE])

    # -- computations
    def _compute(self, node: Compute, group: DefinitionGroup, around: _Around) -> None:
        for key in [key for key in self.outer if key[0] == node.stage]:
            del self.outer[key]  # what follows is another computation, with loops of its own
        vectors = {x.dim for _, x in around.loops if x.kind == "vector"}
        unrolled = tuple(x.dim for _, x in around.loops if x.kind == "unroll")
        lanes = [x.dim for _, x in around.loops if x.kind == "vector" and x.size is not None]
        numbers = slice(self.numbers, self.numbers + 1 + 2 * len(unrolled))
        row = [0] * at.COMPUTATION
        row[at.C_GROUP], row[at.C_STAGE] = self.tables.group(self.graph, group), self.number[node.stage]
        row[at.C_SOURCES], row[at.C_SOURCE_COUNT] = self.source_count, len(group.footprints)
        row[at.C_LOOPS] = self._list([k for k, _ in around.loops])
        row[at.C_CHAIN] = self._list([k for k, x in around.loops if x.dim in vectors])
        row[at.C_ROW], row[at.C_INLINED], row[at.C_NUMBERS] = self.rows, len(group.calls), self.numbers
        row[at.C_TASK_PLACE] = around.task
        self.computations.append(row)
        self.leaves.append(_Leaf(group, self.rows, lanes[-1] if lanes else None, unrolled, numbers))
        self.rows += 1 + len(group.calls)
        self.numbers = numbers.stop
        self.source_count += len(group.footprints)

    def _leaf(self, x: _Leaf) -> Leaf:
        stages = self.graph.stages
        layouts = {name: self.layouts.get(name, None if name in stages else C_ORDER) for name in x.group.footprints}
        return Leaf(x.group, x.row, x.vector, x.unrolled, layouts, x.numbers)

    def _source(self, name: str) -> tuple[int, int, bool]:
        """An array that is read: its stage in the nest or -1, its memory, and is it outside of the nest? See
        `hjit.sched.features.schedule_features.Measures.source`."""
        graph, tables = self.graph, self.tables
        is_inside = name in self.number and name not in self.heads
        if name in self.layouts or name not in graph.stages:
            memory = tables.memory(graph, name, self.layouts.get(name, C_ORDER))
        else:
            memory = tables.memory(graph, name, is_order_fixed=False)
        return self.number[name] if is_inside else -1, memory, not is_inside

    def _stage(self, name: str, vectors: Mapping[str, frozenset[int]]) -> Row:
        graph, tables, layout = self.graph, self.tables, self.layouts.get(name, C_ORDER)
        found = [0] * at.STAGE
        found[at.T_ARRAY], found[at.T_MEMORY] = tables.array(graph, name), tables.memory(graph, name, layout)
        found[at.T_ROOT] = tables.memory(graph, name, Layout(layout.order))
        found[at.T_IS_HEAD], found[at.T_INSIDE] = name in self.heads, self._list(self.inside[name])
        found[at.T_VECTORS] = sum(1 << axis for axis in vectors.get(name, ()))
        return found

    def _packed(self) -> Packed:
        """All tables, parts of one array."""
        known: dict[str, tuple[int, int, bool]] = {}
        sources: list[Row] = []
        for x in self.leaves:
            for name, footprint in self.tables.sources(x.group):
                found = known.get(name)
                if found is None:
                    found = known[name] = self._source(name)
                number, memory, is_outside = found
                gathers = x.group.gathers.get(name, 0)
                sources.append([number, footprint, memory, is_outside and name != x.group.stage, gathers])
        vectors = vector_axes(self.graph.reads, self.nest) if self.is_sliding else {}  # of no matter elsewhere
        stages = [self._stage(name, vectors) for name in self.number]
        width = max(map(len, self.keys), default=1)
        keys = [[len(ks), *ks, *[0] * (width - len(ks))] for ks in self.keys]
        order = sorted(range(len(self.computations)), key=lambda c: -self.computations[c][at.C_STAGE])
        roots = [self.number[x.stage] for x in self.stores if x.stage in self.number and x.stage not in self.heads]
        tables = [self.nodes, self.computations, sources, stages, keys or [[0] * (1 + width)]]
        widths = (at.NODE, at.COMPUTATION, at.SOURCE, at.STAGE, 1 + width)
        shapes = [(len(rows), n) for rows, n in zip(tables, widths, strict=True)]
        every = array("q", chain.from_iterable(chain.from_iterable(tables)))
        lines = (order, roots, self.ends, self.lists)
        for numbers in lines:
            every.extend(numbers)
        return Packed(np.frombuffer(every, np.int64), (*shapes, *((len(x),) for x in lines)))
