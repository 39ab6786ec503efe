"""The features of schedules by counting: the loops of a small pipeline are run as the tree reads, every iteration of them.

Nothing here does arithmetic on intervals: each definition is a table of its points, of the element that each writes and
of those that it loads (`tests.sched.tables`), and every question is answered by looking through that table while the
loops run (`tests.sched.running`). What the paper measures at one representative iteration (Adams 2019, section 7) is taken from
the iteration whose loops are all at their middle one; what it calls the size of a region is that of the smallest region around
the elements that were touched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from hjit.model.feature_names import SCHEDULE
from hjit.sched.analysis.bounds import vector_axes
from hjit.sched.language.tree import Compute, Loop, Node, Store, computes, dims_of, walk
from hjit.trace.ir.expressions import Const, Index
from hjit.trace.ir.expressions import walk as walk_expr
from tests.sched.running import Realization, Run, flat, path_to
from tests.sched.tables import Ranges, hull, joined, lengths

ROW = 16  # axes of at most so many elements, known at compile time, are part of the rows outside of them


class Counter(Run):
    """Counts what happens when a schedule tree runs."""

    def is_regular(self) -> bool:
        """Are all iterations like the middle one, or nearly: is no tile cut off at the border, and does each window have several iterations, or one?"""
        alike = all(r.points == c.realizations[0].points for c in self.of.values() for r in c.realizations)
        windows = [(len(run), len(c.runs[0])) for c in self.of.values() if c.is_sliding for run in c.runs]
        return alike and all(n == 1 or (n > 3 and n == first) for n, first in windows)

    def features(self) -> dict[str, dict[str, float]]:
        """For each stage that the tree computes or inlines, its features by name."""
        for name in self.placed:
            self.of[name].stored = self._itemsize(name) * math.prod(self._storage(name))
        found = {
            name: self._merged([self._row(name, c) for c in computes(self.root) if c.stage == name])
            for name in self.placed
        }
        for name in self.inlined:
            rows = []
            for c in computes(self.root):
                calls, single = self.of[c.stage].calls[c.definitions[-1]].get(name, (0.0, 0.0))
                if calls:
                    row = self._row(c.stage, c)
                    rows.append({
                        **dict.fromkeys(SCHEDULE, 0.0), "inlined_calls": row["points_computed_total"] * calls,
                        "num_vectors": row["num_vectors"] * calls, "num_scalars": row["num_scalars"] * single, "vector_size": row["vector_size"],
                        "native_vector_size": self._native(name), "inner_parallelism": 1.0,
                        "outer_parallelism": row["inner_parallelism"] * row["outer_parallelism"],
                    })  # fmt: skip
            if rows:
                found[name] = self._merged(rows)
        return found

    def _row(self, name: str, compute: Compute) -> dict[str, float]:
        c, last, size = self.of[name], compute.definitions[-1], self._itemsize(name)
        loops = [x for x in path_to(self.root, compute) if isinstance(x, Loop) and x.stage == name]
        is_head = not any(isinstance(x, Loop) and x.stage != name for x in path_to(self.root, compute))
        realization = next(r for r in c.realizations if r.middle)
        each: float = realization.points.get(last, 0)
        if c.is_sliding:
            run = list(filter(None, c.runs[c.run_middle]))
            each = (
                sum(int(self.tables[name, n].writing(x).sum()) for n in compute.definitions for x in run)
                * len(c.runs)
                / len(c.realizations)
            )
        total = each * len(c.realizations)
        region = self._production(name)
        base, pure = lengths(self._base(name, compute)), len(self.tables[name, last].definition.dims)
        tile, values = c.tile.get(last, (math.prod(base), math.prod(base[:pure])))
        turning = [k for k, x in enumerate(loops) if x.kind in ("serial", "parallel") and dims_of(x.dim)[0] < pure]
        unrolled = any(x.kind == "unroll" for x in loops[(turning[-1] + 1 if turning else 0) :])
        lanes = next((x.size for x in loops if x.kind == "vector"), None)
        vectors, scalars, points = c.split.get(last, (0, 0, 1))
        produced = (
            sum(int(self.tables[name, n].writing(region).sum()) for n in compute.definitions)
            if c.is_sliding
            else c.produced.get(last, 0)
        )
        row: dict[str, float] = {
            "num_realizations": len(c.realizations),
            "num_productions": self._productions(name),
            "points_computed_per_realization": each,
            "points_computed_per_production": produced,
            "points_computed_total": total,
            "points_computed_minimum": self._minimum(name, compute),
            "innermost_loop_extent": tile,
            "innermost_pure_loop_extent": values,
            "unrolled_loop_extent": values if unrolled else 1,
            "inner_parallelism": c.tasks[last] if is_head else 1,
            "outer_parallelism": 1 if is_head else c.tasks[last],
            "bytes_at_realization": c.stored,
            "bytes_at_production": size * math.prod(lengths(region)),
            "bytes_at_root": size * math.prod(self.shapes[name]),
            "innermost_bytes_at_realization": size * self._along_row(name, self._storage(name)),
            "innermost_bytes_at_production": size * self._along_row(name, lengths(region)),
            "innermost_bytes_at_root": size * self._along_row(name, self.shapes[name]),
            "vector_size": lanes or 1,
            "native_vector_size": self._native(name),
            "num_vectors": total * vectors / points if lanes else 0,
            "num_scalars": total * scalars / points,
        }  # fmt: skip
        nest = next(x for x in flat(self.root.children)[0] if any(y is compute for y in computes(x)))
        written: Ranges | None = None
        for y in computes(nest):
            if y.stage == name:
                written = joined(written, c.written.get(y.definitions[-1]))
        assert written is not None
        row["bytes_at_task"] = size * math.prod(lengths(written))
        row["innermost_bytes_at_task"] = size * self._along_row(name, lengths(written))
        names = "scalar_loads_per_vector", "vector_loads_per_vector", "scalar_loads_per_scalar"
        row |= (
            dict(zip(names, c.block.get(last, (0, 0, 0)), strict=True))
            | self._reading(name, last, realization)
            | self._working(name, compute)
        )
        return {**dict.fromkeys(SCHEDULE, 0.0), **{k: float(v) for k, v in row.items()}}

    def _base(self, name: str, compute: Compute) -> Ranges:
        return self.base_of(name, compute.definitions, self.elements(name, self._production(name)))

    def _productions(self, name: str) -> int:
        """Turns that compute something, and those between them."""
        if not self.of[name].runs:
            return 1
        return sum(len(run) if any(run[1:]) else 1 for run in self.of[name].runs)

    def _production(self, name: str) -> Ranges:
        """What an iteration computes: of a stage that slides, the most that an iteration but the first adds."""
        c = self.of[name]
        assert c.production is not None and c.window is not None
        if not c.is_sliding:
            return c.production
        added = list(filter(None, c.runs[c.run_middle][1:]))
        if not added:
            return c.window
        most = [max(lengths(x)[k] for x in added) for k in range(len(c.window))]
        return [(high - n + 1, high) for (_, high), n in zip(c.window, most, strict=True)]

    def _storage(self, name: str) -> list[int]:
        """Lengths of the axes in memory: what a realization holds; along a sliding axis the window, in a circular buffer, but for vectors."""
        c = self.of[name]
        held = lengths(next(r for r in c.realizations if r.middle).held)
        added = list(filter(None, c.runs[c.run_middle][1:])) if c.is_sliding else []
        if added:
            assert c.window is not None
            every = list(filter(None, c.runs[c.run_middle]))
            for k, n in enumerate(lengths(c.window)):
                if len({x[k] for x in every}) > 1 and not any(
                    k in vector_axes(self.reads, nest).get(name, ()) for nest in self.root.children
                ):
                    held[k] = 1 << (n - 1).bit_length()
        return self._aligned(name, held)

    def _itemsize(self, name: str) -> int:
        return self.arrays[name].dtype.itemsize

    def _along_row(self, name: str, extents: Iterable[int]) -> int:
        """Elements along the fastest axis, and with it along small constant axes inside it."""
        extents, total = list(extents), 1
        for axis in reversed(self.orders.get(name, ()) or range(len(extents))):
            total *= extents[axis]
            if not (self.arrays[name].shape[axis].is_const and self.shapes[name][axis] <= ROW):
                break
        return total

    def _native(self, name: str) -> int:
        sizes = [self._itemsize(name)]
        for d in self.stages[name].definitions:
            sizes += [
                e.dtype.itemsize
                for e in walk_expr(d.value)
                if e.dtype.kind != "b" and not isinstance(e, (Const, Index))
            ]
        return self.vector_bytes // min(sizes)

    def _minimum(self, name: str, compute: Compute) -> int:
        """Points that the outputs depend on, by following them back from those."""
        regions: dict[str, Ranges] = {}
        for s in reversed(self.graph.stages):
            if s.name in self.inlined:
                continue
            region: Ranges | None = (
                None if s.name not in self.graph.outputs else [(0, n - 1) for n in self.shapes[s.name]]
            )
            for (consumer, _), table in self.tables.items():
                if consumer in regions and consumer != s.name:
                    among = table.writing(regions[consumer])
                    for source, index, unknown, _ in table.loads:
                        if source == s.name:
                            region = joined(region, hull(index, among, unknown, self.shapes[source]))
            regions[s.name] = self._whole(s.name, region)
        total = 0
        for n in compute.definitions:
            total += int(self.tables[name, n].writing(regions[name]).sum())
        return total

    def _reading(self, name: str, last: int, realization: Realization) -> dict[str, float]:
        c = self.of[name]
        found = {
            f"unique_{what}_read_per_{at}": 0.0
            for what in ("bytes", "lines")
            for at in ("realization", "task", "vector")
        }
        found["allocation_bytes_read_per_realization"] = 0.0
        places = (
            ("realization", realization.reads, realization.evaluated),
            ("task", c.outside, c.outside_evaluated),
            ("vector", c.vector, c.vector_evaluated),
        )
        for at, table, evaluated in places:
            for (number, source), region in table.items():
                is_open = source in self.stages and source not in self.placed  # it is computed as far inwards as may be
                region = (
                    c.vector.get((number, source))
                    if is_open and at == "realization"
                    else None
                    if is_open and at == "task"
                    else region
                )
                if number != last or region is None or (at == "task" and (source == name or self._is_local(source))):
                    continue
                shape, order = self._memory(source)
                part = [min(n, m) for n, m in zip(lengths(region), shape, strict=True)]
                lines = math.prod(part) / max(part, default=1) if is_open else len(pieces(part, shape, order))
                points = (c.vector_evaluated if is_open else evaluated)[last]
                loads = self._gathers(name, source, points) * sum(int(x.sum()) for x in points.values())
                size = self._itemsize(source) * min(math.prod(part), loads)
                found[f"unique_bytes_read_per_{at}"] += size
                found[f"unique_lines_read_per_{at}"] += min(lines, loads)
                if at == "realization":
                    found["allocation_bytes_read_per_realization"] += (
                        size if is_open else self._itemsize(source) * math.prod(shape)
                    )
        return found

    def _gathers(self, name: str, source: str, definitions: Iterable[int]) -> float:
        """How many loads of an array an evaluation has, where one of them may be anywhere in it."""
        loads = [x for n in definitions for x in self.tables[name, n].loads if x[0] == source]
        return len(loads) if any(unknown for _, _, unknown, _ in loads) else math.inf

    def _is_local(self, name: str) -> bool:
        return name in self.placed and any(isinstance(x, Loop) for x in self.of[name].site)

    def _memory(self, name: str) -> tuple[list[int], tuple[int, ...]]:
        order = self.orders.get(name, ()) or tuple(range(len(self.shapes[name])))
        return (self._storage(name) if self._is_local(name) else self._aligned(name, self.shapes[name])), order

    def _working(self, name: str, compute: Compute) -> dict[str, float]:
        """Bytes of the storage in the parts of the tree that the sites are around of."""
        path = path_to(self.root, compute)
        child = path[1]
        tops = [k for k, x in enumerate(path) if isinstance(x, Loop)]
        heads = {x.stage for x in flat([child])[0]}

        def total(stores: Iterable[str]) -> float:
            return sum(self.of[x].stored for x in stores)

        def inside(node: Node) -> list[str]:
            return [x.stage for x in walk(node) if isinstance(x, Store)]

        nest = next(x for x in flat([child])[0] if any(c is compute for c in computes(x)))
        task = [x for x in inside(child) if x not in heads and x in {c.stage for c in computes(nest)}]
        own = [k for k in tops if path[k].stage == name]  # type: ignore[union-attr]
        site = next((path[k] for k in reversed(tops) if not own or k < own[0]), child)
        store = next(k for k, x in enumerate(path) if isinstance(x, Store) and x.stage == name)
        kept = next((path[k] for k in reversed(tops) if k < store), None)
        items = [x for x in flat([site] if site is child else site.children)[0] if x.stage == name]  # type: ignore[union-attr]
        return {
            "working_set": total([x for k in items for x in inside(k)])
            if name not in heads
            else total(
                [x for x in inside(child) if x not in heads and x in {c.stage for k in items for c in computes(k)}]
            ),
            "working_set_at_task": total(task),
            "working_set_at_production": total(inside(site)) if site is not child else total(inside(child)),
            "working_set_at_realization": total(inside(kept))
            if kept is not None
            else total(inside(child) if name in heads else task),
            "working_set_at_root": total([x.stage for x in walk(self.root) if isinstance(x, Store)]),
        }

    def _merged(self, rows: list[dict[str, float]]) -> dict[str, float]:
        """Several computations of a stage: counts add up, what is said of one tile, task or vector is a mean over the points."""
        weight = [r["points_computed_total"] + r["inlined_calls"] for r in rows]
        found = {}
        for k in SCHEDULE:
            if k.startswith(("num_v", "num_s", "points_", "inlined", "unique", "allocation")) and not k.endswith(
                "vector"
            ):
                found[k] = sum(r[k] for r in rows)
            elif k.startswith(
                ("innermost_l", "innermost_p", "unrolled", "inner_p", "outer_p", "vector_")
            ) or k.endswith(("task", "vector", "scalar")):
                found[k] = sum(r[k] * w for r, w in zip(rows, weight, strict=True)) / sum(weight)
            else:
                found[k] = max(r[k] for r in rows)
        return found


def pieces(part: list[int], shape: list[int], order: tuple[int, ...]) -> list[int]:
    """Where the contiguous pieces of memory begin that a part of an array is."""
    step, strides = 1, {}
    for axis in reversed(order):
        strides[axis], step = step, step * shape[axis]
    at = np.zeros(1, np.int64)
    for axis, n in enumerate(part):
        at = (at[:, None] + np.arange(n) * strides[axis]).reshape(-1)
    at = np.sort(at)
    return [int(x) for x in at[np.flatnonzero(np.diff(at, prepend=-2) != 1)]]
