"""The features of schedules (Adams 2019, section 4.1 and appendix A), of many tilings of one tree at once.

`hjit.sched.sites` walks a nest and says how often everything runs and on which regions, and `hjit.sched.measures` makes the
numbers of it that the paper names. All that is recorded once for nests that differ in sizes only (`hjit.sched.formulas`).

A stage's features depend on the child of the root that it is in, on how the arrays that are read there lie in memory,
and on `working_set_at_root`; so a nest is featurised once and kept under its `nest_key` (Anderson 2021, section 3.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.model.names import SCHEDULE
from hjit.sched.formulas import Array, Num, Tape, Var
from hjit.sched.lanes import Block
from hjit.sched.measures import Measures, Row, inlined
from hjit.sched.memory import Layout
from hjit.sched.sites import layout_of, sites_of
from hjit.sched.sized import SizedGraph
from hjit.sched.tree import Compute, Loop, Node, Root, Store, computes, structural_hash

LOADS = [SCHEDULE.index(name) for name in ("scalar_loads_per_vector", "vector_loads_per_vector", "scalar_loads_per_scalar")]
CALLS = [SCHEDULE.index(name) for name in ("inlined_calls", "num_vectors", "num_scalars")]
COLUMN = {name: k for k, name in enumerate(SCHEDULE)}
Placed = Mapping[str, Layout]  # stages that a tree stores, and how they lie in memory


@dataclass(frozen=True)
class NestFeatures:
    """The features of the stages that one child of the root computes, and of those that are inlined into them.

    Attributes:
        stages: their names.
        values: float64 [batch, stages, len(SCHEDULE)]; working_set_at_root is zero.
        allocated: float64 [batch], bytes: what this nest adds to working_set_at_root.
    """

    stages: tuple[str, ...]
    values: Array
    allocated: Array


def schedule_features(graph: SizedGraph, root: Root, tiles: np.ndarray[Any, Any] | None = None) -> Array:
    """The features of a schedule, complete or partial: stages that the tree has not placed have zeros.

    Of an unplaced stage that a placed one reads, it is assumed that it is computed at the root at no cost, and that its
    layout in memory is the one that suits the reader best (Adams 2019, section 3.2).

    Args:
        tiles: int [batch, slots]: sizes in place of those of the loops that have one, in the order of `walk(root)`;
            None: the tree's own, a batch of one.

    Returns:
        float64 [batch, stages, len(SCHEDULE)], finite and not negative: the stages in the order of the Graph, the
        features in that of `hjit.model.names`.

    Raises:
        ValueError: `tiles` has not one column for each loop of a size.
    """
    placed = layouts_of(root)
    plans = [plan_of(graph, child, placed) for child in root.children]
    slots = sum(len(sizes) for _, sizes in plans)
    if tiles is not None and (tiles.ndim != 2 or tiles.shape[1] != slots):
        raise ValueError(f"tiles of shape {tiles.shape} for {slots} loops of a size")
    found = []
    start = 0
    for plan, sizes in plans:
        found.append(plan.run(sizes, None if tiles is None else tiles[:, start : start + len(sizes)]))
        start += len(sizes)
    return assembled(graph, found)


def nest_features(graph: SizedGraph, nest: Node, tiles: np.ndarray[Any, Any] | None = None, placed: Placed | None = None) -> NestFeatures:
    """The features of one child of the root.

    Args:
        tiles: as in `schedule_features`, the columns of this nest.
        placed: how the stages lie in memory that the whole tree places (`layouts_of`); None: it places those of this nest only.

    Raises:
        ValueError: `tiles` has not one column for each loop of a size.
    """
    plan, sizes = plan_of(graph, nest, placed or {})
    if tiles is not None and (tiles.ndim != 2 or tiles.shape[1] != len(sizes)):
        raise ValueError(f"tiles of shape {tiles.shape} for {len(sizes)} loops of a size")
    return plan.run(sizes, tiles)


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
            rows = [np.broadcast_to(x.values[:, x.stages.index(name)], found[:, 0].shape) for x in nests if name in x.stages]
            found[:, graph.position[name]] = merged(rows)
    placed = [graph.position[name] for name in seen - graph.inlined]
    found[:, placed, COLUMN["working_set_at_root"]] = sum(x.allocated[:, None] for x in nests)
    return found


def nest_key(graph: SizedGraph, nest: Node, placed: Placed | None = None) -> str:
    """What the features of a nest are kept under: for one SizedGraph, equal keys have equal features."""
    inside = layouts_of(nest)
    sources = {source for c in computes(nest) for source in graph.part(c.stage, c.definitions).windows}
    outside = [f"{name}{layout}" for name, layout in sorted((placed or {}).items()) if name in sources and name not in inside]
    return f"{structural_hash(nest)} {', '.join(outside)}"


def layouts_of(node: Node) -> dict[str, Layout]:
    """How every stage lies in memory that is stored under a node."""
    found: dict[str, Layout] = {}
    nodes = [node]
    while nodes:
        x = nodes.pop()
        if isinstance(x, Store):
            found[x.stage] = layout_of(x)
        if not isinstance(x, Compute):
            nodes += x.children
    return found


# -- several computations of one stage

MEANS = frozenset(
    """innermost_loop_extent innermost_pure_loop_extent unrolled_loop_extent inner_parallelism outer_parallelism vector_size
    scalar_loads_per_vector vector_loads_per_vector scalar_loads_per_scalar unique_bytes_read_per_vector unique_lines_read_per_vector
    bytes_at_task innermost_bytes_at_task working_set_at_task""".split()
)
SUMS = frozenset(
    """points_computed_per_realization points_computed_per_production points_computed_total points_computed_minimum inlined_calls
    unique_bytes_read_per_realization unique_lines_read_per_realization allocation_bytes_read_per_realization num_vectors num_scalars
    unique_bytes_read_per_task unique_lines_read_per_task""".split()
)
_IS_MEAN = np.array([name in MEANS for name in SCHEDULE])
_IS_SUM = np.array([name in SUMS for name in SCHEDULE])


def merged(rows: Sequence[Array]) -> Array:
    """The features of a stage from those of its computations, [batch, len(SCHEDULE)] each.

    Counts add up, what is said of one tile, task or vector is a mean over the points, and the rest is the stage's own.
    """
    if len(rows) == 1:
        return rows[0]
    every = np.stack(rows)
    weights = every[..., COLUMN["points_computed_total"]] + every[..., COLUMN["inlined_calls"]]
    weights = np.where(weights.sum(0) > 0.0, weights, 1.0)
    mean = np.einsum("rb,rbf->bf", weights / weights.sum(0), every)
    return np.where(_IS_SUM, every.sum(0), np.where(_IS_MEAN, mean, every.max(0)))


# -- what is recorded of a nest


@dataclass(frozen=True)
class Plan:
    """The features of a nest, as operations on the sizes of its loops.

    Attributes:
        names: for each row of features the stage: one for each computation, and each stage inlined into it.
        known: the features that do not depend on sizes, [rows, len(SCHEDULE)], and zeros for the others.
        at: positions on the tape of those others, then those of what loads are counted from.
        to: positions of those others in `known`, flat.
        blocks: rows with how their loads, or calls of inlined stages, are counted, and from which of these numbers.
        allocated: position on the tape.
    """

    graph: SizedGraph
    tape: Tape
    names: tuple[str, ...]
    known: Array
    at: list[int]
    to: np.ndarray[Any, np.dtype[np.intp]]
    blocks: tuple[tuple[int, Block, slice], ...]
    allocated: int

    @staticmethod
    def of(graph: SizedGraph, tape: Tape, rows: Sequence[tuple[str, Row, Block]], allocated: Num) -> Plan:
        known = np.array([[x if isinstance(x := row.get(name, 0.0), float) else 0.0 for name in SCHEDULE] for _, row, _ in rows])
        open_ = {k * len(SCHEDULE) + COLUMN[name]: x.at for k, (_, row, _) in enumerate(rows) for name, x in row.items() if isinstance(x, Var)}
        counted: list[int] = []
        blocks = []
        for k, (_, _, block) in enumerate(rows):
            blocks.append((k, block, slice(len(counted), len(counted) + len(block.numbers))))
            counted += map(tape.position, block.numbers)
        last, at = tape.position(allocated), [*open_.values(), *counted]
        tape.keep([*at, last])
        return Plan(graph, tape, tuple(name for name, _, _ in rows), known, at, np.array([*open_], np.intp), tuple(blocks), last)

    def run(self, sizes: Sequence[int], tiles: np.ndarray[Any, Any] | None) -> NestFeatures:
        """For `tiles` [batch, slots], or for one tiling."""
        batch = 1 if tiles is None else len(tiles)
        v = self.tape.run(list(map(float, sizes)) if tiles is None else list(tiles.T.astype(np.float64)))
        numbers = np.array([v[k] for k in self.at]).reshape(len(self.at), -1)  # [numbers, batch], or one for all
        values = np.empty((batch, *self.known.shape))
        values[:] = self.known
        values.reshape(batch, -1)[:, self.to] = numbers[: len(self.to)].T
        np.maximum(values, 0.0, out=values)  # a piece without elements
        numbers = numbers[len(self.to) :]
        alike = (numbers == numbers[:, :1]).all(1).tolist()
        for k, block, at in self.blocks:
            found = block.count(self.graph, numbers[at], all(alike[at]))
            if block.called is None:
                values[:, k, LOADS] = found
            else:
                values[:, k, CALLS] *= found[..., [0, 0, 1]]
        stages = tuple(dict.fromkeys(self.names))
        if len(stages) < len(self.names):
            values = np.stack([merged([values[:, k] for k, x in enumerate(self.names) if x == name]) for name in stages], 1)
        return NestFeatures(stages, values, np.broadcast_to(np.asarray(v[self.allocated], np.float64), (batch,)))


def plan_of(graph: SizedGraph, nest: Node, placed: Placed) -> tuple[Plan, list[int]]:
    """The plan of a nest, and the sizes of its loops; nests that differ in those only have one plan."""
    sizes: list[int] = []
    key = _structure(nest, sizes)
    if key not in graph.plans:
        sources = dict.fromkeys(name for c in computes(nest) for name in graph.part(c.stage, c.definitions).windows)
        graph.plans[key] = tuple(sources), {}
    sources, plans = graph.plans[key]
    outside = tuple(map(placed.get, sources))
    if outside not in plans:
        plans[outside] = _recorded(graph, nest, len(sizes), placed)
    return plans[outside], sizes


def _structure(node: Node, sizes: list[int]) -> tuple[Any, ...]:
    """All of a tree but the sizes of loops, which are appended to `sizes` in the order of `walk`."""
    match node:
        case Loop(stage, dim, kind, size, children, tail):
            if size is not None:
                sizes.append(size)
            return stage, dim, kind, tail, size is None or size < 0, size is None, *(_structure(x, sizes) for x in children)
        case Store(stage, children, order, align):
            return stage, order, align, *(_structure(x, sizes) for x in children)
        case Compute():
            return node.stage, node.definitions
    raise AssertionError(node)


def _recorded(graph: SizedGraph, nest: Node, slots: int, placed: Placed) -> Plan:
    tape = Tape(slots)
    sites = sites_of(graph, nest, tape.inputs)
    layouts = {**placed, **{name: x.held.layout for name, x in sites.sites.items()}}
    rows: list[tuple[str, Row, Block]] = []
    for leaf in sites.leaves:
        measures = Measures(graph, sites, layouts, leaf)
        row, block = measures.row(), measures.block()
        rows.append((leaf.part.stage, row, block))
        rows += ((name, inlined(graph, name, row), replace(block, called=name)) for name in leaf.part.calls)
    return Plan.of(graph, tape, rows, sites.allocated_at(0))
