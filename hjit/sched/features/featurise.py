"""The features of schedules (Adams 2019, section 4.1 and appendix A), of many tilings of one tree at once.

`hjit.sched.analysis.sites` walks a nest and says how often everything runs and on which regions, and
`hjit.sched.features.schedule_features` derives the features of the paper from that. These operations are recorded once
for all nests that differ in sizes only (`hjit.sched.analysis.tape`). With `SizedGraph.featuriser`, compiled code
(`hjit.sched.native`) computes the same numbers in a tenth of the time or less; it is tested against this one.

A stage's features depend on the child of the root that it is in, on the memory layout of the arrays that it reads,
and on `working_set_at_root`; so a search featurises a nest once (`hjit.sched.search.nest_costs`; Anderson 2021, section
3.3).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.model.feature_names import SCHEDULE
from hjit.sched.analysis.sites import layout_of, sites_of
from hjit.sched.analysis.sized import SizedGraph
from hjit.sched.analysis.tape import Array, Num, Program, Tape, Var
from hjit.sched.features.compiled_plan import CompiledPlan
from hjit.sched.features.load_counts import Block
from hjit.sched.features.results import COLUMN, NestFeatures, Sizes, finished, merged
from hjit.sched.features.schedule_features import Measures, Row, inlined
from hjit.sched.language.memory import Layout
from hjit.sched.language.tree import Compute, Loop, Node, Root, Store, computes, walk
from hjit.sched.native.argument_block import Featuriser
from hjit.sched.native.nests import is_known

Placed = Mapping[str, Layout]  # stages that a tree stores -> their memory layout


def schedule_features(graph: SizedGraph, root: Root, tiles: np.ndarray[Any, Any] | None = None) -> Array:
    """The features of a schedule, complete or partial: stages that the tree has not placed have zeros.

    Of an unplaced stage that a placed one reads, it is assumed that it is computed at no cost, as far inwards in its
    reader's loops as may be, and that its layout in memory is the one that suits the reader best (Adams 2019, section
    3.2).

    Args:
        tiles: int [batch, slots]: sizes in place of those of the loops that have one, in the order of `walk(root)`;
            None: the tree's own, a batch of one.

    Returns:
        float64 [batch, stages, len(SCHEDULE)], finite and not negative: the stages in the order of the Graph, the
        features in that of `hjit.model.feature_names`.

    Raises:
        ValueError: `tiles` has not one column for each loop of a size.
    """
    placed = layouts_of(root)
    structures = [Structure.of(graph, child, placed) for child in root.children]
    tiles = _tiles([n for x in structures for n in x.sizes], tiles)
    ends = [0, *itertools.accumulate(len(x.sizes) for x in structures)]
    return assembled(
        graph, [x.features(tiles[:, a:b]) for x, (a, b) in zip(structures, itertools.pairwise(ends), strict=True)]
    )


def nest_features(
    graph: SizedGraph, nest: Node, tiles: np.ndarray[Any, Any] | None = None, placed: Placed | None = None
) -> NestFeatures:
    """The features of one child of the root.

    Args:
        tiles: as in `schedule_features`, the columns of this nest.
        placed: the memory layout of the stages that the whole tree places (`layouts_of`); None: it places those of this
            nest only.

    Raises:
        ValueError: `tiles` has not one column for each loop of a size.
    """
    structure = Structure.of(graph, nest, placed or {})
    return structure.features(_tiles(structure.sizes, tiles))


def _tiles(sizes: Sequence[int], tiles: Sizes | None) -> Sizes:
    if tiles is None:
        return np.array([sizes], np.int64)
    if tiles.ndim != 2 or tiles.shape[1] != len(sizes):
        raise ValueError(f"tiles of shape {tiles.shape} for {len(sizes)} loops of a size")
    return tiles


def assembled(graph: SizedGraph, nests: Iterable[NestFeatures]) -> Array:
    """The features of a schedule from those of its nests, whose batches are of one size, or of one tiling."""
    nests = list(nests)
    found = np.zeros((max((len(x.values) for x in nests), default=1), len(graph.graph.stages), len(SCHEDULE)))
    seen: set[str] = set()
    for nest in nests:
        found[:, [graph.position[name] for name in nest.stages]] = nest.values
        seen.update(nest.stages)
    if len(seen) < sum(len(x.stages) for x in nests):
        for name in seen:
            rows = [
                np.broadcast_to(x.values[:, x.stages.index(name)], found[:, 0].shape) for x in nests if name in x.stages
            ]
            found[:, graph.position[name]] = merged(rows)
    placed = [graph.position[name] for name in seen - graph.inlined]
    found[:, placed, COLUMN["working_set_at_root"]] = sum(x.allocated[:, None] for x in nests)
    return found


def layouts_of(node: Node) -> dict[str, Layout]:
    """The memory layout of every stage that is stored under a node."""
    return {x.stage: layout_of(x) for x in walk(node) if isinstance(x, Store)}


# -- what is recorded of a nest


@dataclass(frozen=True, slots=True)
class Rows:
    """The features of a computation, and of the stages that are inlined into it, but for the working sets.

    Attributes:
        names: of the stages.
        known: the features that do not depend on sizes, [rows, len(SCHEDULE)], and zeros for the others.
        to, at: of those others the flat positions in `known`, and those on the tape.
        blocks: how the loads, or the calls of inlined stages, of each row are counted, and where from.
        needed: what all these are worked out from.
    """

    names: tuple[str, ...]
    known: Array
    to: list[int]
    at: list[int]
    blocks: tuple[tuple[Block, list[int]], ...]
    needed: set[int]

    @staticmethod
    def of(tape: Tape, rows: Sequence[tuple[str, Row, Block]]) -> Rows:
        known = np.array(
            [[x if isinstance(x := row.get(name, 0.0), float) else 0.0 for name in SCHEDULE] for _, row, _ in rows]
        )
        open_ = {
            k * len(SCHEDULE) + COLUMN[name]: x.at
            for k, (_, row, _) in enumerate(rows)
            for name, x in row.items()
            if isinstance(x, Var)
        }
        blocks = tuple((block, list(map(tape.position, block.numbers))) for _, _, block in rows)
        needed = tape.needed([*open_.values(), *(k for _, at in blocks for k in at)])
        return Rows(tuple(name for name, _, _ in rows), known, [*open_], [*open_.values()], blocks, needed)


@dataclass(frozen=True, eq=False)
class Plan:
    """The features of a nest, as operations on those sizes of its loops that are open.

    Attributes:
        head: the stage that the nest is of.
        program: the features that depend on sizes, then what loads are counted from, then `NestFeatures.allocated`.
        size_slots: the slots of those sizes.
        names: for each row of features the stage: one for each computation, and each stage inlined into it.
        known: the features that do not depend on sizes, [rows, len(SCHEDULE)], and zeros for the others.
        to: positions of those others in `known`, flat.
        blocks: rows with how their loads, or calls of inlined stages, are counted, and from which of these numbers.
    """

    graph: SizedGraph
    head: str
    program: Program
    size_slots: list[int]
    names: tuple[str, ...]
    known: Array
    to: np.ndarray[Any, np.dtype[np.intp]]
    blocks: tuple[tuple[int, Block, slice], ...]

    @staticmethod
    def of(
        graph: SizedGraph, head: str, sizes: Sequence[Num], parts: Sequence[tuple[Rows, Row]], allocated: Num
    ) -> Plan:
        """`sizes`: of the loops, numbers or inputs of the tape; `parts`: of each computation its rows and working
        sets."""
        tape = graph.tape
        known = np.concatenate([rows.known for rows, _ in parts])
        to: list[int] = []
        at: list[int] = []
        counted: list[int] = []
        blocks = []
        first = 0
        for rows, sets in parts:
            to += [first * len(SCHEDULE) + k for k in rows.to]
            at += rows.at
            for name, x in sets.items():
                if isinstance(x, Var):
                    to.append(first * len(SCHEDULE) + COLUMN[name])
                    at.append(x.at)
                else:
                    known[first, COLUMN[name]] = x
            for k, (block, numbers) in enumerate(rows.blocks, first):
                blocks.append((k, block, slice(len(counted), len(counted) + len(numbers))))
                counted += numbers
            first += len(rows.names)
        results = [*at, *counted, tape.position(allocated)]
        needed = tape.needed([x.at for _, sets in parts for x in sets.values() if isinstance(x, Var)]).union(
            *(rows.needed for rows, _ in parts)
        )
        needed |= tape.needed(results[-1:])
        inputs = {k: x.at for k, x in enumerate(sizes) if isinstance(x, Var)}
        program = Program(tape, [*inputs.values()], results, needed)
        names = tuple(name for rows, _ in parts for name in rows.names)
        return Plan(graph, head, program, [*inputs], names, known, np.array(to, np.intp), tuple(blocks))

    def run(self, tiles: Sizes) -> NestFeatures:
        """For `tiles` [batch, slots]."""
        batch = len(tiles)
        *v, allocated = self.program.run(list(tiles[:, self.size_slots].T.astype(np.float64)))
        numbers = np.array(v).reshape(len(v), -1)  # [numbers, batch], or one for all
        values = np.empty((batch, *self.known.shape))
        values[:] = self.known
        values.reshape(batch, -1)[:, self.to] = numbers[: len(self.to)].T
        np.maximum(values, 0.0, out=values)  # a piece without elements
        return finished(
            self.graph,
            self.names,
            values,
            numbers[len(self.to) :],
            self.blocks,
            np.broadcast_to(np.asarray(allocated, np.float64), (batch,)),
        )


@dataclass(frozen=True, eq=False)
class Structure:
    """All of a nest that its features depend on, but for the sizes of its loops.

    Attributes:
        key: equal for nests that differ in those only.
        sizes: of its own loops, in the order of `walk`.
    """

    graph: SizedGraph
    nest: Node
    placed: Placed
    key: tuple[Any, ...]
    sizes: list[int]

    @staticmethod
    def of(graph: SizedGraph, nest: Node, placed: Placed) -> Structure:
        sizes: list[int] = []
        structure = _structure(nest, sizes)
        known = graph.structures.get(structure)
        if known is None:
            groups = [graph.group(c.stage, c.definitions) for c in computes(nest)]
            sources = tuple(dict.fromkeys(name for group in groups for name in group.footprints))
            known = graph.structures[structure] = next(graph.numbers), sources
        number, sources = known
        return Structure(graph, nest, placed, (number, *map(placed.get, sources)), sizes)

    def features(self, tiles: Sizes) -> NestFeatures:
        """For sizes in place of its own, [batch, slots]."""
        return self.plan(tiles).run(tiles)

    def plan(self, tiles: Sizes) -> Plan | CompiledPlan:
        """What computes the features for these sizes: the compiled featuriser, if there is one and it handles them."""
        compiled = self.graph.featuriser
        if compiled is not None and (self.key in self.graph.plans or is_known(self.nest)):
            return self.compiled(compiled)
        return self.recorded(tiles)

    def compiled(self, featuriser: Featuriser) -> CompiledPlan:
        """The compiled featuriser's plan for this structure."""
        plan: CompiledPlan | None = self.graph.plans.get(self.key)
        if plan is None:
            plan = CompiledPlan.of(
                self.graph, featuriser, self.nest, self.placed, lambda tiles: self.recorded(tiles).run(tiles)
            )
            self.graph.plans[self.key] = plan
        return plan

    def recorded(self, tiles: Sizes) -> Plan:
        """The recorded operations, of which only those sizes are open that differ from row to row."""
        same = (tiles == tiles[:1]).all(0).tolist()
        key = self.key, tuple(n if is_same else None for n, is_same in zip(tiles[0].tolist(), same, strict=True))
        plans = self.graph.plans
        plan: Plan | None = plans.get(key)
        if plan is None:
            plan = plans[key] = _recorded(self.graph, self.nest, self.placed, key[1])
        return plan


def _structure(node: Node, sizes: list[int]) -> tuple[Any, ...]:
    """All of a tree but the sizes of loops, which are appended to `sizes` in the order of `walk`."""
    match node:
        case Loop(stage, dim, kind, size, children, tail):
            if size is not None:
                sizes.append(size)
            return (
                stage,
                dim,
                kind,
                tail,
                size is None or size < 0,
                size is None,
                *(_structure(x, sizes) for x in children),
            )
        case Store(stage, children, order, align):
            return stage, order, align, *(_structure(x, sizes) for x in children)
        case Compute():
            return node.stage, node.definitions
    raise AssertionError(node)


def _recorded(graph: SizedGraph, nest: Node, placed: Placed, fixed: Sequence[int | None]) -> Plan:
    """The plan of a nest whose sizes are `fixed`; None: open."""
    open_ = graph.sizes_of([(x.stage, x.dim) for x in walk(nest) if isinstance(x, Loop) and x.size is not None])
    sizes = [x if n is None else float(n) for n, x in zip(fixed, open_, strict=True)]
    sites = sites_of(graph, nest, sizes)
    layouts = {**placed, **{name: x.allocation.layout for name, x in sites.sites.items()}}
    parts: list[tuple[Rows, Row]] = []
    for leaf in sites.leaves:
        measures = Measures(graph, sites, layouts, leaf)
        key = measures.key()
        if key not in sites.memo:
            row, block = measures.row(), measures.block()
            calls = ((name, inlined(graph, name, row), replace(block, called=name)) for name in leaf.group.calls)
            sites.memo[key] = Rows.of(graph.tape, [(leaf.group.stage, row, block), *calls])
        parts.append((sites.memo[key], measures.working_sets()))
    return Plan.of(graph, sites.heads[0], sizes, parts, sites.allocated_at(0))
