"""The parts of a Graph as arrays of Dask: tasks that read windows of chunks, and run kernels on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from hjit.chunks.boxes import Numbers
from hjit.chunks.kernels import PartKernel, for_workers
from hjit.chunks.parts import Cutter, Grid, Part, is_reduction
from hjit.chunks.transport import to_rows
from hjit.chunks.windows import windows
from hjit.options import Options
from hjit.trace.ir.graph import Graph
from hjit.trace.passes.delinearisation import delinearise
from hjit.trace.passes.fusion import fuse
from hjit.trace.passes.stage_elimination import drop_dead_stages, merge_equal_stages
from hjit.tuning.choice import Scheduler

Array = np.ndarray[Any, Any]
Span = tuple[int, slice, slice]  # a chunk along an axis, which part of the window it has, and where that is in it
PASSES = (drop_dead_stages, merge_equal_stages, fuse, drop_dead_stages, delinearise)  # before a Graph is cut
FAN_IN = 16  # partial results that are combined at once
EXCERPT = 0.5  # a window that has less of a chunk than this is given that part only, not to move or keep all of it


class Placed:
    """What a task does with the chunks that it is given: plain numbers, which Dask does not look into.

    Attributes:
        row: the numbers of the kernel.
        windows: for each array the shape of its window, and for each chunk where it is put, and what of it; None: all.
    """

    __slots__ = ("row", "windows")

    def __init__(self, row: bytes, windows: tuple[Any, ...]) -> None:
        self.row, self.windows = row, windows

    def __reduce__(self) -> Any:
        return Placed, (self.row, self.windows)

    def arrays(self, blocks: Sequence[Array]) -> Iterator[Array]:
        """The windows."""
        given = iter(blocks)
        for shape, dtype, places in self.windows:
            if len(places) == 1:
                (_, part) = places[0]
                block = np.asarray(next(given))
                yield block if part is None else block[part]
                continue
            window = np.empty(shape, dtype)
            for place, part in places:
                block = next(given)
                window[place] = block if part is None else block[part]
            yield window


def run_chunk(kernel: PartKernel, placed: Placed, *blocks: Array) -> Any:
    """The chunk of one output, or a tuple of those of several."""
    arrays = dict(zip((i.name for i in kernel.graph.inputs if i.data is None), placed.arrays(blocks), strict=True))
    found = kernel.run(np.frombuffer(placed.row, np.int64).tolist(), arrays)
    return found[0] if len(found) == 1 else tuple(found)


def excerpt(block: Array, part: Any) -> Array:
    """A part of a chunk, without the rest of it."""
    return np.ascontiguousarray(np.asarray(block)[part.part])


class Excerpt:
    """Slices, which Dask does not look into."""

    __slots__ = ("part",)

    def __init__(self, part: tuple[slice, ...]) -> None:
        self.part = part

    def __reduce__(self) -> Any:
        return Excerpt, (self.part,)


def combined(operations: str, results: Sequence[Any]) -> Any:
    """Partial results of one reduction, or tuples of those of several, put together."""
    ufuncs = [getattr(np, name) for name in operations.split()]
    with np.errstate(all="ignore"):
        if len(ufuncs) == 1:
            return np.asarray(reduce(ufuncs[0], results))
        return tuple(np.asarray(reduce(f, parts)) for f, *parts in zip(ufuncs, *results, strict=True))


def item(results: tuple[Array, ...], k: int) -> Array:
    """One of several results."""
    return results[k]


def spans(chunks: Sequence[int]) -> Any:
    """Which chunks of an axis an interval lies in: a function of its ends."""
    edges = np.concatenate([[0], np.cumsum(chunks)])
    known: dict[tuple[int, int], tuple[Span, ...]] = {}

    def of(low: int, high: int) -> tuple[Span, ...]:
        found = known.get((low, high))
        if found is None:
            first = int(np.searchsorted(edges, low, "right")) - 1
            last = int(np.searchsorted(edges, high, "right")) - 1
            parts = []
            for b in range(first, last + 1):
                start, stop = int(edges[b]), int(edges[b + 1])
                a, z = max(low, start), min(high + 1, stop)
                if z > a or first == last:
                    parts.append((b, slice(a - low, z - low), slice(a - start, z - start)))
            found = known[low, high] = tuple(parts)
        return found

    return of


class Tasks:
    """Arrays of Dask for the stages of a Graph."""

    def __init__(
        self,
        name: str,
        graph: Graph,
        sizes: Mapping[str, int],
        arrays: Mapping[str, Any],
        scalars: Mapping[str, Any],
        options: Options,
        scheduler: Scheduler | None,
    ) -> None:
        """
        Args:
            name: of the function.
            graph: as it was traced.
            arrays: Dask's, by input.
            scalars: their values.
        """
        for run in PASSES:
            graph = run(graph)
        self.name, self.graph, self.sizes = name, graph, sizes
        self.arrays = dict(arrays)
        self.options, self.scheduler, self.scalars = for_workers(options), scheduler, scalars
        self.cutter = Cutter(graph, sizes, {i.name: arrays[i.name].chunks for i in graph.inputs if i.data is None})
        self.parts = self.cutter.parts()
        inputs = [arrays[i.name].name for i in graph.inputs if i.data is None]
        self.token = tokenize(to_rows(graph), dict(sizes), inputs, scalars, self.options, [p.grid for p in self.parts])

    def outputs(self) -> dict[str, Any]:
        """The arrays of the Graph's outputs."""
        for number, part in enumerate(self.parts):
            self._add(part, f"{self.name}-{number}-{self.token}")
        return {n: self.arrays[n] for n in self.graph.outputs}

    def _add(self, part: Part, key: str) -> None:
        """The arrays of one part."""
        layer: dict[Any, Any] = {}
        single = len(part.outputs) == 1
        step = f"{key}-partial" if part.pieces else key if single else f"{key}-all"
        read = [n for n in part.reads if n in self.arrays]
        places = [self._places(part, n, f"{key}-excerpt-{k}", layer) for k, n in enumerate(read)]
        positions = list(itertools.product(*map(range, part.numblocks)))
        for group, made in enumerate(windows(self.graph, self.cutter.regions, part)):
            kernel = f"{key}-kernel-{group}"
            layer[kernel] = PartKernel(self.name, made, self.sizes, self.options, self.scheduler, self.scalars)
            for number, row in zip(made.chunks.tolist(), made.rows, strict=True):
                found = [p(number) for p in places]
                placed = Placed(row.tobytes(), tuple(window for window, _ in found))
                blocks = [b for _, some in found for b in some]
                layer[(step, *positions[number])] = (run_chunk, kernel, placed, *blocks)
        if part.pieces:
            self._combine(part, step, key if single else f"{key}-all", layer)
        depends = [self.arrays[n] for n in read]
        if single:
            self._array(part.outputs[0], key, HighLevelGraph.from_collections(key, layer, depends), part.grid)
            return
        graph = HighLevelGraph.from_collections(f"{key}-all", layer, depends)
        for k, name in enumerate(part.outputs):
            own = f"{key}-{k}"
            blocks = itertools.product(*(range(len(x)) for x in part.grid))
            items = {(own, *at): (item, (f"{key}-all", *at), k) for at in blocks}
            layers = {**graph.layers, own: items}
            self._array(name, own, HighLevelGraph(layers, {**graph.dependencies, own: {f"{key}-all"}}), part.grid)

    def _array(self, stage: str, key: str, graph: HighLevelGraph, grid: Grid) -> None:
        self.arrays[stage] = da.Array(graph, key, grid, dtype=self.graph.stage(stage).dtype)

    def _combine(self, part: Part, step: str, key: str, layer: dict[Any, Any]) -> None:
        """A tree over the pieces of each chunk."""
        operations = " ".join(self.graph.stage(n).updates[0].order for n in part.outputs)
        pieces = list(itertools.product(*(range(len(x)) for x in part.pieces)))
        for at in itertools.product(*(range(len(x)) for x in part.grid)):
            level, left = 0, [(step, *at, *p) for p in pieces]
            while True:
                groups = [left[k : k + FAN_IN] for k in range(0, len(left), FAN_IN)]
                level += 1
                last = len(groups) == 1
                left = [(key, *at) if last else (f"{step}-{level}", *at, k) for k in range(len(groups))]
                for name, group in zip(left, groups, strict=True):
                    layer[name] = (combined, operations, group)
                if last:
                    break

    def _places(self, part: Part, name: str, key: str, layer: dict[Any, Any]) -> Any:
        """The chunks of an array that the window of a task lies in; those of which it needs little are cut before."""
        array = self.arrays[name]
        along = [spans(chunks) for chunks in array.chunks]
        box: list[tuple[list[int], list[int]]] = [(low.tolist(), high.tolist()) for low, high in part.boxes[name]]
        dtype, chunks = array.dtype, array.chunks

        def of(number: int) -> tuple[Any, list[Any]]:
            found = [f(low[number], high[number]) for f, (low, high) in zip(along, box, strict=True)]
            shape = tuple(high[number] - low[number] + 1 for low, high in box)
            places, blocks = [], []
            for combo in itertools.product(*found):
                block = (array.name, *(b for b, _, _ in combo))
                part_of = tuple(inside for _, _, inside in combo)
                share = 1.0
                for (b, _, inside), sizes in zip(combo, chunks, strict=True):
                    share *= (inside.stop - inside.start) / max(sizes[b], 1)
                if share < EXCERPT:
                    cut = (key, *block[1:], *((x.start, x.stop) for x in part_of))
                    layer.setdefault(cut, (excerpt, block, Excerpt(part_of)))
                    block = cut
                places.append((tuple(place for _, place, _ in combo), None if share in (0.0, 1.0) or share < EXCERPT else part_of))
                blocks.append(block)
            return (shape, dtype, tuple(places)), blocks

        return of


__all__ = ["Numbers", "Tasks", "is_reduction"]
