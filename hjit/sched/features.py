"""The features of schedules (Adams 2019, section 4.1 and appendix A), of many tilings of one tree at once.

`hjit.sched.sites` walks a nest and says how often everything runs and on which regions; here that becomes the numbers
that the paper names. Sizes are hulls of regions at the middle turn of each loop, and counts are those of all turns.

A stage's features depend on the child of the root that it is in, on how the arrays that are read there lie in memory,
and on `working_set_at_root`; so a nest is featurised once and kept under its `nest_key` (Anderson 2021, section 3.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.model.names import SCHEDULE
from hjit.sched.footprint import Memory, extent
from hjit.sched.formulas import Array, Num, Tape, Var, ceil_div, choose, floor_div, least, most, product
from hjit.sched.lanes import Layouts, loads_of_block
from hjit.sched.memory import C_ORDER, Layout
from hjit.sched.sites import Leaf, Own, Sites, layout_of, sites_of
from hjit.sched.sized import Part, SizedGraph
from hjit.sched.tree import Compute, DimKey, Loop, Node, Root, Store, computes, dims_of, structural_hash, walk

LOADS = [SCHEDULE.index(name) for name in ("scalar_loads_per_vector", "vector_loads_per_vector", "scalar_loads_per_scalar")]
COLUMN = {name: k for k, name in enumerate(SCHEDULE)}
Placed = Mapping[str, Layout]  # stages that a tree stores, and how they lie in memory
Row = dict[str, Num]


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
    nests = []
    start = 0
    for child in root.children:
        end = start + sum(isinstance(x, Loop) and x.size is not None for x in walk(child))
        nests.append(nest_features(graph, child, None if tiles is None else tiles[:, start:end], placed))
        start = end
    if tiles is not None and tiles.shape[1] != start:
        raise ValueError(f"tiles of shape {tiles.shape} for {start} loops of a size")
    return assembled(graph, nests)


def nest_features(graph: SizedGraph, nest: Node, tiles: np.ndarray[Any, Any] | None = None, placed: Placed | None = None) -> NestFeatures:
    """The features of one child of the root.

    Args:
        tiles: as in `schedule_features`, the columns of this nest.
        placed: the memory layouts of all stages that the whole tree places (`layouts_of`); None: those of this nest only.
    """
    plan, sizes = _plan(graph, nest, placed or {})
    if tiles is None:
        return plan.run([float(n) for n in sizes], 1)
    if tiles.ndim != 2 or tiles.shape[1] != len(sizes):
        raise ValueError(f"tiles of shape {tiles.shape} for {len(sizes)} loops of a size")
    return plan.run(list(tiles.T.astype(np.float64)), len(tiles))


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
    return {x.stage: layout_of(x) for x in walk(node) if isinstance(x, Store)}


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
    weights = (weights + 1e-9) / (weights + 1e-9).sum(0)
    mean = np.einsum("rb,rbf->bf", weights, every)
    return np.where(_IS_SUM, every.sum(0), np.where(_IS_MEAN, mean, every.max(0)))


# -- what is recorded of a nest


@dataclass(frozen=True, slots=True)
class Loads:
    """What the loads of a computation are counted from, once its sizes are known (`hjit.sched.lanes`).

    Attributes:
        dims: of the unrolled loops.
        numbers: the lanes of a vector, and for each unrolled loop its copies and what lies between two of them.
    """

    part: Part
    vector: DimKey | None
    dims: tuple[DimKey, ...]
    layouts: Layouts
    numbers: tuple[Num, ...]

    def count(self, graph: SizedGraph, numbers: Array) -> Array:
        """`LOADS`, [batch, 3], or [3] where it is the same for all, from the `numbers`, [numbers, batch]."""
        rows = list(map(tuple, numbers.T.astype(int).tolist()))
        known = {row: self._count(graph, *row) for row in set(rows)}
        return np.array([known[row] for row in rows] if len(known) > 1 else known[rows[0]])

    def _count(self, graph: SizedGraph, lanes: int, *numbers: int) -> tuple[float, float, float]:
        copies = tuple(zip(self.dims, numbers[::2], numbers[1::2], strict=True))
        return loads_of_block(graph, self.part, self.vector, lanes, copies, self.layouts)


@dataclass(frozen=True)
class Plan:
    """The features of a nest, as operations on the sizes of its loops.

    Attributes:
        names: for each row of features the stage: one for each computation, and each stage inlined into it.
        known: the features that do not depend on sizes, [rows, len(SCHEDULE)], and zeros for the others.
        at, to: positions on the tape of those others, and in `known`, flat. After them, in `at`, what loads are counted from.
        loads: rows with how their loads are counted, and from which of `at`.
        allocated: position on the tape.
    """

    graph: SizedGraph
    tape: Tape
    names: tuple[str, ...]
    known: Array
    at: list[int]
    to: list[int]
    loads: tuple[tuple[int, Loads, slice], ...]
    allocated: int

    @staticmethod
    def of(graph: SizedGraph, tape: Tape, rows: Sequence[tuple[str, Row, Loads | None]], allocated: Num) -> Plan:
        known = np.array([[x if isinstance(x := row.get(name, 0.0), float) else 0.0 for name in SCHEDULE] for _, row, _ in rows])
        open_ = [(x.at, k * len(SCHEDULE) + COLUMN[name]) for k, (_, row, _) in enumerate(rows) for name, x in row.items() if isinstance(x, Var)]
        at, to = [x for x, _ in open_], [x for _, x in open_]
        loads = []
        for k, (_, _, x) in enumerate(rows):
            if x is not None:
                loads.append((k, x, slice(len(at), len(at) + len(x.numbers))))
                at += map(tape.position, x.numbers)
        last = tape.position(allocated)
        tape.keep([*at, last])
        return Plan(graph, tape, tuple(name for name, _, _ in rows), known, at, to, tuple(loads), last)

    def run(self, sizes: Sequence[Any], batch: int) -> NestFeatures:
        """For sizes that are floats, or arrays of the batch's."""
        v = self.tape.run(sizes)
        numbers = np.empty((len(self.at), batch))
        numbers.T[:] = np.array([v[k] for k in self.at]).T
        values = np.empty((batch, *self.known.shape))
        values[:] = self.known
        values.reshape(batch, -1)[:, self.to] = numbers[: len(self.to)].T
        for k, loads, at in self.loads:
            values[:, k, LOADS] = loads.count(self.graph, numbers[at])
        stages = tuple(dict.fromkeys(self.names))
        if len(stages) < len(self.names):
            values = np.stack([merged([values[:, k] for k, x in enumerate(self.names) if x == name]) for name in stages], 1)
        return NestFeatures(stages, values, np.broadcast_to(np.asarray(v[self.allocated], np.float64), (batch,)))


def _plan(graph: SizedGraph, nest: Node, placed: Placed) -> tuple[Plan, list[int]]:
    """The plan of a nest, and the sizes of its loops; nests that differ in those only have one plan."""
    sizes: list[int] = []
    key = _structure(nest, sizes)
    sources = graph.plans.get(key)
    if sources is None:
        sources = graph.plans[key] = tuple(dict.fromkeys(name for c in computes(nest) for name in graph.part(c.stage, c.definitions).windows))
    outside = tuple(map(placed.get, sources))
    plan = graph.plans.get((key, outside))
    if plan is None:
        plan = graph.plans[key, outside] = _recorded(graph, nest, len(sizes), placed)
    return plan, sizes


def _structure(node: Node, sizes: list[int]) -> tuple[Any, ...]:
    """All of a tree but the sizes of loops, which are appended to `sizes` in the order of `walk`."""
    match node:
        case Loop(stage, dim, kind, size, children, tail):
            if size is not None:
                sizes.append(size)
            return stage, dim, kind, tail, size is None, *(_structure(x, sizes) for x in children)
        case Store(stage, children, order, align):
            return stage, order, align, *(_structure(x, sizes) for x in children)
        case Compute():
            return node.stage, node.definitions
    raise AssertionError(node)


def _recorded(graph: SizedGraph, nest: Node, slots: int, placed: Placed) -> Plan:
    tape = Tape(slots)
    sites = sites_of(graph, nest, tape.inputs)
    layouts = {**placed, **{name: x.held.layout for name, x in sites.sites.items()}}
    rows: list[tuple[str, Row, Loads | None]] = []
    for leaf in sites.leaves:
        features = _Leaf(graph, sites, layouts, leaf)
        row = features.row()
        rows.append((leaf.part.stage, row, features.loads()))
        rows += ((name, _inlined(graph, name, calls, row), None) for name, calls in leaf.part.calls.items())
    return Plan.of(graph, tape, rows, sites.allocated_at(0))


def _inlined(graph: SizedGraph, name: str, calls: float, row: Row) -> Row:
    """Of a stage that is inlined only how often it is evaluated, and how."""
    return {
        "inlined_calls": row["points_computed_total"] * calls,
        "num_vectors": row["num_vectors"] * calls,
        "num_scalars": row["num_scalars"] * calls,
        "vector_size": row["vector_size"],
        "native_vector_size": graph.native_lanes(name),
        "inner_parallelism": 1.0,
        "outer_parallelism": row["inner_parallelism"] * row["outer_parallelism"],
    }


# -- one computation


@dataclass(frozen=True, slots=True)
class _Leaf:
    """The features of one computation, a group of them in each method, with the names of appendix A."""

    graph: SizedGraph
    sites: Sites
    layouts: Placed
    leaf: Leaf

    def row(self) -> Row:
        counts = self.counts()
        return {**counts, **self.tile(), **self.sizes(), **self.reads(), **self.vectors(counts["points_computed_total"]), **self.working_sets()}

    def counts(self) -> Row:
        part, site, task = self.leaf.part, self.leaf.site, self.leaf.task
        each = part.points(part.lengths(part.dims(site.run))) * (site.runs / site.held.count)
        is_head = part.stage == task.head
        return {
            "num_realizations": site.held.count,
            "num_productions": site.count,
            "points_computed_per_realization": each,
            "points_computed_per_production": part.points(self.leaf.env.lengths),
            "points_computed_total": each * site.held.count,
            "points_computed_minimum": self.graph.minimum(part),
            "inner_parallelism": task.count if is_head else 1.0,
            "outer_parallelism": 1.0 if is_head else task.count,
        }

    def tile(self) -> Row:
        """The innermost tile: one turn of the innermost loop over a pure dimension that is neither unrolled nor a vector."""
        part, env = self.leaf.part, self.leaf.env
        pure, every = env.tile
        last = max((k for k, o in enumerate(env.loops) if _has_turns(o) and dims_of(o.loop.dim)[0] < part.pure), default=-1)
        unrolled = any(o.loop.kind == "unroll" for o in env.loops[last + 1 :])
        return {"innermost_loop_extent": every, "innermost_pure_loop_extent": pure, "unrolled_loop_extent": pure if unrolled else 1.0}

    def sizes(self) -> Row:
        """Bytes of the stage itself at the sites."""
        name, site = self.leaf.part.stage, self.leaf.site
        root, stored = self.graph.memory(name, Layout(site.held.layout.order)), site.memory
        found: Row = {
            "bytes_at_realization": stored.bytes,
            "innermost_bytes_at_realization": stored.row_bytes(stored.lengths),
            "bytes_at_root": root.bytes,
            "innermost_bytes_at_root": root.row_bytes(root.lengths),
        }
        for word, box in (("production", site.box), ("task", self.leaf.task.boxes[name])):
            lengths = list(map(extent, box))
            found[f"bytes_at_{word}"] = root.itemsize * product(lengths)
            found[f"innermost_bytes_at_{word}"] = root.row_bytes(lengths)
        return found

    # -- reading
    def source(self, name: str) -> Memory:
        """How an array that is read lies in memory."""
        site = self.sites.sites.get(name)
        if site is not None and name not in self.sites.heads:
            return site.memory
        if name in self.layouts or name not in self.graph.stages:
            return self.graph.memory(name, self.layouts.get(name, C_ORDER))
        return self.graph.memory(name, settled=False)

    def reads(self) -> Row:
        """Bytes and contiguous pieces of memory read by a realization, by a task and by a vector.

        Of a task only what lies outside of it: that comes from other cores, or from main memory.
        """
        part, task = self.leaf.part, self.leaf.task
        during = task.dims if part.stage == task.head else part.dims(task.boxes[part.stage])
        places = {"realization": part.dims(self.leaf.site.held.box), "task": during, "vector": self.leaf.env.dims[part.stage]}
        found: Row = {f"unique_{what}_read_per_{word}": 0.0 for word in places for what in ("bytes", "lines")}
        allocated: Num = 0.0
        for name, w in part.windows.items():
            memory = self.source(name)
            is_outside = name != part.stage and (name not in self.sites.sites or name in self.sites.heads)
            for word, dims in places.items():
                if word == "task" and not is_outside:
                    continue
                size, lines = memory.touched(w.region(part.reading(dims)))
                if not part.is_plain:  # nothing is read where nothing is computed
                    some = least(product(part.lengths(dims)), 1.0)
                    size, lines = size * some, lines * some
                found[f"unique_bytes_read_per_{word}"] += size
                found[f"unique_lines_read_per_{word}"] += lines
                if word == "realization":
                    allocated = allocated + (memory.bytes * choose(size > 0.0, 1.0, 0.0) if memory.settled else size)
        return {**found, "allocation_bytes_read_per_realization": allocated}

    # -- vectors
    def vectors(self, total: Num) -> Row:
        """How many vectors and scalars."""
        part, env = self.leaf.part, self.leaf.env
        found: Row = {"vector_size": 1.0, "native_vector_size": self.graph.native_lanes(part.stage), "num_vectors": 0.0, "num_scalars": total}
        chain = [o for o in env.loops if any(x.loop.kind == "vector" and x.loop.dim == o.loop.dim for x in env.loops)]
        if chain:
            n = product(env.lengths[k] for k in dims_of(chain[0].loop.dim))
            vectors, scalars = whole_vectors(chain, n, part.is_repeatable and dims_of(chain[0].loop.dim)[-1] < part.pure)
            rows = total / most(n, 1.0)
            lanes = chain[-1].size
            assert lanes is not None
            found |= {"vector_size": lanes, "num_vectors": rows * vectors, "num_scalars": rows * scalars}
        return found

    def loads(self) -> Loads:
        """What the loads are counted from."""
        lanes: Num = 1.0
        vector: DimKey | None = None
        dims: list[DimKey] = []
        numbers: list[Num] = []
        for o in self.leaf.env.loops:
            if o.loop.kind == "unroll":
                dims.append(o.loop.dim)
                numbers += [most(ceil_div(o.length, o.step), 1.0), o.step]
            elif o.loop.kind == "vector" and o.size is not None:
                lanes, vector = o.size, o.loop.dim
        layouts = {name: self.layouts.get(name, None if name in self.graph.stages else C_ORDER) for name in self.leaf.part.windows}
        return Loads(self.leaf.part, vector, tuple(dims), layouts, (lanes, *numbers))

    def working_sets(self) -> Row:
        """Bytes of all that is allocated at the sites and further in."""
        site, sites = self.leaf.site, self.sites
        return {
            "working_set": sites.allocated(*sites.inside[self.leaf.part.stage]),
            "working_set_at_task": sites.allocated_at(self.leaf.task.place),
            "working_set_at_production": sites.allocated_at(site.place),
            "working_set_at_realization": sites.allocated_at(site.held.place),
        }


def _has_turns(o: Own) -> bool:
    return o.loop.kind in ("serial", "parallel")


def whole_vectors(chain: Sequence[Own], n: Num, shifts: bool) -> tuple[Num, Num]:
    """Whole vectors and single elements in which `n` elements are computed, as lowering has it (`Lanes` of the loop IR).

    Args:
        chain: the loops over the dimension, the last one that of the vectors.
        shifts: may the last vector start earlier, where the loop's tail does not say otherwise?
    """
    lanes, tail = chain[-1].size, chain[-1].loop.tail
    assert lanes is not None
    first = next(k for k, o in enumerate(chain) if o.alone and all(x.loop.kind == "unroll" for x in chain[k + 1 : -1]))
    region = chain[first].size
    together = lanes if first >= len(chain) - 2 else chain[first + 1].size
    assert together is not None

    def split(m: Num) -> tuple[Num, Num]:
        whole = floor_div(m, lanes)
        if tail == "predicate":
            return ceil_div(m, lanes), 0.0
        if not shifts or tail == "guard_with_if":
            return whole, m - whole * lanes
        many = ceil_div(m, lanes)
        if together is not lanes:
            many = choose(m >= together, ceil_div(m, together) * (together / lanes), many)
        return choose(m >= lanes, many, 0.0), choose(m >= lanes, 0.0, m)

    if region is None:
        vectors, scalars = split(n)
    else:
        pieces = floor_div(n, region)
        (a, b), (c, d) = split(region), split(n - pieces * region)
        vectors, scalars = pieces * a + c, pieces * b + d
    return vectors, scalars
