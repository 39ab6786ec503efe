"""The schedule features of one computation (Adams 2019, appendix A).

Where the paper leaves it open, or this tree differs from the paper's, its terms are read as follows:

- A parallel task is a block of iterations of the parallel loops (`SizedGraph.tasks`). Each task has its own copy of
  what is stored around those loops and computed inside them; the part of it that the task uses counts.
- The storage of a sliding window is its circular buffer. A realization computes what all its iterations need, anew
  each time that the loop around the stage starts. A production computes what the iterations before have not.
- Points are evaluations of definitions, those of all points of a reduction included; repeats in tails are not
  counted.
- A tile is one iteration of the innermost loop over a pure dimension that is neither unrolled nor vectorised.
- The innermost dimension is a row: the fastest axis in memory, and with it small constant axes inside it (channels).
- Lines are contiguous pieces of memory: rows that are read whole join. Of a buffer no more counts than it has.
- Of an array that is read at computed places, which may be anywhere, no more counts than there are loads.
- A task reads what lies outside of it. A realization and a vector read from buffers, too, but not from registers,
  where the accumulators of sums are.
- A load of a vector is that of an inner vector, in the middle of the image, where it lies in a whole array. What
  counts is the addresses of its lanes: one, up to four vectors long, or further apart. Channels of a pixel are loaded
  together.
- A working set is all that is stored at a site and further in; for a stage at the root, in the child of the root that
  it is in.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from hjit.sched.analysis.footprint import Dims, Footprint, Memory, extent
from hjit.sched.analysis.iterations import StageLoop
from hjit.sched.analysis.sites import Leaf, Sites
from hjit.sched.analysis.sized import SizedGraph
from hjit.sched.analysis.tape import Num, ceil_div, choose, floor_div, least, most, product, ratio
from hjit.sched.features.load_counts import Block
from hjit.sched.language.memory import C_ORDER, Layout
from hjit.sched.language.tree import DimKey, Loop, dims_of

Row = dict[str, Num]  # features by name


@dataclass(frozen=True, slots=True)
class Measures:
    """The features of one computation, a group of them in each method.

    Attributes:
        layouts: the memory layout of the stages that are stored anywhere in the tree; others are not placed yet.
    """

    graph: SizedGraph
    sites: Sites
    layouts: Mapping[str, Layout]
    leaf: Leaf

    def row(self) -> Row:
        """All of them but the loads and the working sets: what does not depend on what else is in the nest."""
        key, memo = ("here", *self.here()), self.sites.memo
        if key not in memo:
            counts = self.counts()
            memo[key] = {**counts, **self.tile(), **self.sizes(), **self.vectors(counts["points_computed_total"])}
        return {**memo[key], **self.reads()}

    def here(self) -> tuple[Hashable, ...]:
        """What all but `reads` and `block` depends on."""
        leaf = self.leaf
        return leaf.group, leaf.env, leaf.site, leaf.task, tuple(alone for _, alone in self.chain())

    def key(self) -> tuple[Hashable, ...]:
        """What `row` and `block` depend on."""
        sites = self.sites.sites
        sources = tuple(
            (sites.get(name), name in self.sites.heads, self.layouts.get(name)) for name in self.leaf.group.footprints
        )
        return "row", *self.here(), sources

    def counts(self) -> Row:
        """How often, how much, and how much at once."""
        group, site, task = self.leaf.group, self.leaf.site, self.leaf.task
        at_once = group.points(self.leaf.env.lengths)
        # a window that slides is computed whole at first, then what is new; what iterations skip never is
        slid = group.points(group.lengths(group.dims(site.first))) + at_once * (site.turns - 1.0)
        together = least(group.points(group.lengths(group.dims(site.run))), slid)
        each = together * ratio(site.runs, site.allocation.count)
        is_head = group.stage == task.head
        return {
            "num_realizations": site.allocation.count,
            "num_productions": site.count,
            "points_computed_per_realization": each,
            "points_computed_per_production": at_once,
            "points_computed_total": each * site.allocation.count,
            "points_computed_minimum": self.graph.minimum(group),
            "inner_parallelism": task.count if is_head else 1.0,
            "outer_parallelism": 1.0 if is_head else task.count,
        }

    def tile(self) -> Row:
        """The innermost tile."""
        group, env = self.leaf.group, self.leaf.env
        opened = {k for key in env.tile for k in dims_of(key)}
        parts = [(k, n) for k, n in enumerate(env.lengths) if k not in opened] + [
            (dims_of(key)[0], x.length) for key, x in env.tile.items()
        ]
        pure, every = product(n for k, n in parts if k < group.pure), product(n for _, n in parts)
        last = max(
            (k for k, o in enumerate(env.loops) if _runs_iterations(o) and dims_of(o.loop.dim)[0] < group.pure),
            default=-1,
        )
        blocks = [o for o in env.loops[last + 1 :] if o.loop.kind == "unroll"]
        copies = product(ratio(o.size or 1.0, o.step) for o in blocks if is_optional(o.loop))
        unrolled = pure if any(not is_optional(o.loop) for o in blocks) else choose(copies > 1.0, pure, 1.0)
        return {"innermost_loop_extent": every, "innermost_pure_loop_extent": pure, "unrolled_loop_extent": unrolled}

    def sizes(self) -> Row:
        """Bytes of the stage itself at the sites."""
        name, site = self.leaf.group.stage, self.leaf.site
        root, stored = self.graph.memory(name, Layout(site.allocation.layout.order)), site.memory
        found: Row = {
            "bytes_at_realization": stored.bytes,
            "innermost_bytes_at_realization": stored.row_bytes(stored.lengths),
            "bytes_at_root": root.bytes,
            "innermost_bytes_at_root": root.row_bytes(root.lengths),
        }
        for word, region in (("production", site.region), ("task", self.leaf.task.regions[name])):
            lengths = list(map(extent, region))
            found[f"bytes_at_{word}"] = root.itemsize * product(lengths)
            found[f"innermost_bytes_at_{word}"] = root.row_bytes(lengths)
        return found

    # -- reading
    def source(self, name: str) -> Memory:
        """The memory layout of an array that is read."""
        site = self.sites.sites.get(name)
        if site is not None and name not in self.sites.heads:
            return site.memory
        if name in self.layouts or name not in self.graph.stages:
            return self.graph.memory(name, self.layouts.get(name, C_ORDER))
        return self.graph.memory(name, is_order_fixed=False)

    def reads(self) -> Row:
        """Bytes and contiguous pieces of memory read by a realization, by a task and by a vector."""
        group, task = self.leaf.group, self.leaf.task
        during = task.dims if group.stage == task.head else group.dims(task.regions[group.stage])
        allocation, vector = self.leaf.site.allocation, self.leaf.env.dims[group.stage]
        places: dict[str, tuple[Hashable, Dims]] = {  # what the ranges of the dimensions follow from, and those
            "realization": (allocation, group.dims(allocation.region)),
            "task": (task, during),
            "vector": (tuple(vector), vector),
        }
        found: Row = {f"unique_{what}_read_per_{word}": 0.0 for word in places for what in ("bytes", "lines")}
        allocated: Num = 0.0
        memo = self.sites.memo  # many arrays are read alike, and in many nests
        for name, w in group.footprints.items():
            memory = self.source(name)
            is_outside = name != group.stage and (name not in self.sites.sites or name in self.sites.heads)
            for word, (place, dims) in places.items():
                if word == "task" and not (is_outside and memory.is_order_fixed):
                    continue
                if word == "realization" and not memory.is_order_fixed:
                    place, dims = places["vector"]  # what is not placed yet is computed as far inwards as may be
                key = "touched", group, w, memory, place
                if key not in memo:
                    memo[key] = self._touched(w, memory, dims, group.gathers.get(name, 0))
                size, lines = memo[key]
                found[f"unique_bytes_read_per_{word}"] += size
                found[f"unique_lines_read_per_{word}"] += lines
                if word == "realization":
                    allocated = allocated + (
                        memory.bytes * choose(size > 0.0, 1.0, 0.0) if memory.is_order_fixed else size
                    )
        return {**found, "allocation_bytes_read_per_realization": allocated}

    def _touched(self, w: Footprint, memory: Memory, dims: Dims, gathers: int) -> tuple[Num, Num]:
        """Bytes of an array that iterations read, and contiguous pieces; nothing is read where nothing is computed.

        `gathers`: how many loads one evaluation has, where they are at computed places.
        """
        group = self.leaf.group
        size, lines = memory.touched(w.region(group.reading(dims)))
        if not group.is_plain:
            some = least(product(group.lengths(dims)), 1.0)
            size, lines = size * some, lines * some
        if gathers:
            loads = group.points(group.lengths(dims)) * float(gathers)
            size, lines = least(size, loads * memory.itemsize), least(lines, loads)
        return size, lines

    # -- vectors
    def chain(self) -> list[tuple[StageLoop, bool]]:
        """The loops over the dimension of the vectors, and whether nothing of other stages is computed inside."""
        loops = self.leaf.env.loops
        dims = [o.loop.dim for o in loops if o.loop.kind == "vector"]
        return [(o, alone) for o, alone in zip(loops, self.leaf.alone, strict=True) if o.loop.dim in dims]

    def vectors(self, total: Num) -> Row:
        """How many vectors and scalars."""
        group, env = self.leaf.group, self.leaf.env
        found: Row = {
            "vector_size": 1.0,
            "native_vector_size": self.graph.native_lanes(group.stage),
            "num_vectors": 0.0,
            "num_scalars": total,
        }
        chain = [o for o, _ in self.chain()]
        if chain:
            n = product(env.lengths[k] for k in dims_of(chain[0].loop.dim))
            vectors, scalars = whole_vectors(
                self.chain(), n, group.is_repeatable and dims_of(chain[0].loop.dim)[-1] < group.pure
            )
            rows = ratio(total, n)
            lanes = chain[-1].size
            assert lanes is not None
            found |= {"vector_size": lanes, "num_vectors": rows * vectors, "num_scalars": rows * scalars}
        return found

    def block(self) -> Block:
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
        layouts = {
            name: self.layouts.get(name, None if name in self.graph.stages else C_ORDER)
            for name in self.leaf.group.footprints
        }
        return Block(self.leaf.group, vector, tuple(dims), layouts, (lanes, *numbers))

    def working_sets(self) -> Row:
        """Bytes of all that is allocated at the sites and further in."""
        sites = self.sites
        stored, computed = sites.places[self.leaf.group.stage]
        return {
            "working_set": sites.allocated(*sites.inside[self.leaf.group.stage]),
            "working_set_at_task": sites.allocated_at(self.leaf.place),
            "working_set_at_production": sites.allocated_at(computed),
            "working_set_at_realization": sites.allocated_at(stored),
        }


def _runs_iterations(o: StageLoop) -> bool:
    return o.loop.kind in ("serial", "parallel")


def is_optional(loop: Loop) -> bool:
    """Is a loop no loop where it would have one iteration only? See `hjit.sched.search.templates`."""
    return loop.size is not None and loop.size < 0


def whole_vectors(chain: Sequence[tuple[StageLoop, bool]], n: Num, shifts: bool) -> tuple[Num, Num]:
    """Whole vectors and single elements in which `n` elements are computed, as lowering has it (`Lanes` of the loop
    IR).

    Args:
        chain: the loops over the dimension, the last one that of the vectors, and whether nothing of other stages is
            computed inside.
        shifts: may the last vector start earlier, where the loop's tail does not say otherwise?
    """
    loops = [o for o, _ in chain]
    lanes, tail = loops[-1].size, loops[-1].loop.tail
    assert lanes is not None
    first = next(
        k for k, (_, alone) in enumerate(chain) if alone and all(x.loop.kind == "unroll" for x in loops[k + 1 : -1])
    )
    together = lanes if first >= len(loops) - 2 else loops[first + 1].size
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

    def inside(region: Num | None) -> tuple[Num, Num]:
        if region is None:
            return split(n)
        pieces = floor_div(n, region)
        (a, b), (c, d) = split(region), split(n - pieces * region)
        return pieces * a + c, pieces * b + d

    own, loop = loops[first].size, loops[first].loop
    if own is None or not is_optional(loop) or loop.kind != "serial" or first == 0 or not chain[first - 1][1]:
        return inside(own)
    is_none = own <= together
    both = zip(inside(own), inside(loops[first - 1].size), strict=True)
    vectors, scalars = (choose(is_none, y, x) for x, y in both)
    return vectors, scalars


def inlined(graph: SizedGraph, name: str, row: Row) -> Row:
    """Of a stage that is inlined only how often it is evaluated, and how, as if the stage with these features called it
    once."""
    return {
        "inlined_calls": row["points_computed_total"],
        "num_vectors": row["num_vectors"],
        "num_scalars": row["num_scalars"],
        "vector_size": row["vector_size"],
        "native_vector_size": graph.native_lanes(name),
        "inner_parallelism": 1.0,
        "outer_parallelism": row["inner_parallelism"] * row["outer_parallelism"],
    }
