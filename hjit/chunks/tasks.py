"""The subgraphs of a Graph as Dask arrays: tasks that read windows of chunks, and run kernels on them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from hjit.chunks.cut import cut_graph
from hjit.chunks.kernels import SubgraphKernel, for_workers
from hjit.chunks.limits import kept_bytes
from hjit.chunks.native import Source, data, task
from hjit.chunks.reads import Loaded, Reads, SourceReads, WindowAssembly, is_better_merged
from hjit.chunks.subgraphs import Grid, Subgraph
from hjit.chunks.windows import Windows
from hjit.options import Options
from hjit.process.garbage_collection import few_collections
from hjit.trace.ir.graph import Graph
from hjit.tuning.choice import Scheduler

Array = np.ndarray[Any, Any]
FAN_IN = 16  # partial results that are combined at once


def run_chunk(placed: WindowAssembly, kernel: SubgraphKernel, *blocks: Array) -> Any:
    """The chunk of one output, or a tuple of those of several."""
    arrays = dict(zip((i.name for i in kernel.graph.inputs if i.data is None), placed.arrays(blocks), strict=True))
    found = kernel.run(np.frombuffer(placed.row, np.int64).tolist(), arrays)
    return found[0] if len(found) == 1 else tuple(found)


def combined(operations: str, *results: Any) -> Any:
    """Combine partial results of one reduction, or tuples of those of several."""
    ufuncs = [getattr(np, name) for name in operations.split()]
    with np.errstate(all="ignore"):
        if len(ufuncs) == 1:
            return np.asarray(reduce(ufuncs[0], results))
        return tuple(np.asarray(reduce(f, partial)) for f, *partial in zip(ufuncs, *results, strict=True))


def item(k: int, results: tuple[Array, ...]) -> Array:
    """One of several results."""
    return results[k]


def _items(key: str, results: str, positions: Iterable[tuple[int, ...]], k: int) -> dict[Any, Any]:
    """Tasks that each take one of several results."""
    return {(key, *at): task((key, *at), item, (k,), ((results, *at),)) for at in positions}


def _with_layer(key: str, layer: dict[Any, Any], depends: Sequence[Any]) -> HighLevelGraph:
    """The graph of a layer that reads arrays and sources."""
    graph = HighLevelGraph.from_collections(key, layer, [x for x in depends if not isinstance(x, Source)])
    layers, dependencies = dict(graph.layers), dict(graph.dependencies)
    for source in (x for x in depends if isinstance(x, Source)):
        layers.update(source.graph.layers)
        dependencies.update(source.graph.dependencies)
        dependencies[key] = dependencies[key] | source.graph.layers.keys()
    return HighLevelGraph(layers, dependencies)


def without_empty(chunks: Grid) -> Grid:
    """Chunks without empty ones: no task computes or reads these."""
    return tuple(tuple(n for n in along if n) or (0,) for along in chunks)


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
        chunks = {i.name: without_empty(arrays[i.name].chunks) for i in graph.inputs if i.data is None}
        self.name, self.sizes, self.arrays = name, sizes, dict(arrays)
        self.options, self.scheduler, self.scalars = for_workers(options), scheduler, scalars
        self.cut = cut_graph(
            graph,
            tuple(sorted(sizes.items())),
            tuple(chunks.items()),
            tuple((n, x.dtype, x.tobytes()) for n, x in ((n, np.asarray(v)) for n, v in scalars.items())),
            kept_bytes(),
        )
        self.graph, self.cutter, self.subgraphs = self.cut.graph, self.cut.cutter, self.cut.subgraphs
        self._elements = max((math.prod(map(float, x)) for x in self.cutter.bounds.shapes.values()), default=0.0)
        inputs = [arrays[n].name for n in chunks]
        self.token = tokenize(self.cut.digest, inputs, self.options, [p.grid for p in self.subgraphs])

    def outputs(self) -> dict[str, Any]:
        """The arrays of the Graph's outputs."""
        with few_collections():
            after = self._reductions_before()
            passes: dict[str, Counter[int]] = {}
            for subgraph, number in zip(self.subgraphs, after, strict=True):
                for name in subgraph.reads:
                    passes.setdefault(self.cutter.array(name), Counter())[number] += 1
            loaded = Loaded(dict(self.arrays), passes, self.token, self.cut.room)
            inputs = {*self.arrays}
            for number, subgraph in enumerate(self.subgraphs):
                arrays: dict[str, Any] = {}
                for n, array in ((n, self.cutter.array(n)) for n in subgraph.reads):
                    if array in inputs:
                        source = loaded.source(array, after[number], subgraph.required[n])
                        arrays[n] = source or loaded.of(array, after[number])
                    elif array in self.arrays:
                        arrays[n] = self.arrays[array]
                self._add(subgraph, self.cut.windows[number], f"{self.name}-{number}-{self.token}", arrays)
        return {n: self.arrays[n] for n in self.graph.outputs}

    def _reductions_before(self) -> list[int]:
        """Of each subgraph how many reductions come before it, one after the other."""
        found: list[int] = []
        results: dict[str, int] = {}  # of outputs: with those that compute them
        for subgraph in self.subgraphs:
            reads = map(self.cutter.array, subgraph.reads)
            found.append(max((results[n] for n in reads if n in results), default=0))
            results.update(dict.fromkeys(subgraph.outputs, found[-1] + bool(subgraph.pieces)))
        return found

    def _add(self, subgraph: Subgraph, groups: Sequence[Windows], key: str, arrays: Mapping[str, Any]) -> None:
        """The arrays of one subgraph, which reads these, or from these sources.

        Args:
            groups: of its chunks.
        """
        layer: dict[Any, Any] = {}
        single = len(subgraph.outputs) == 1
        step = f"{key}-partial" if subgraph.pieces else key if single else f"{key}-all"
        positions = list(itertools.product(*map(range, subgraph.numblocks)))
        given = [(self._merged(x, subgraph, n), subgraph.required[n]) for n, x in arrays.items()]
        depends = [x for x, _ in given]
        given += [(self._own(subgraph, n, step, positions, layer), region) for n, region in subgraph.before.items()]
        reads = [
            SourceReads(x, region) if isinstance(x, Source) else Reads(x, region, f"{key}-excerpts-{k}")
            for k, (x, region) in enumerate(given)
        ]
        layer.update(task for r in reads for task in r.tasks())
        for group, made in enumerate(groups):
            needed = reads if made.before else reads[: len(arrays)]
            kernel = f"{key}-kernel-{group}"
            layer[kernel] = data(
                kernel,
                SubgraphKernel(self.name, made, self.sizes, self.options, self.scheduler, self.scalars, self._elements),
            )
            for number, row in zip(made.chunks.tolist(), made.rows, strict=True):
                found = [r.of(number) for r in needed]
                placed = WindowAssembly(row.tobytes(), tuple(window for window, _ in found))
                blocks = [b for _, some in found for b in some]
                task_key = (step, *positions[number])
                layer[task_key] = task(task_key, run_chunk, (placed,), (kernel, *blocks))
        if subgraph.pieces:
            self._combine(subgraph, step, key if single else f"{key}-all", layer)
        if single:
            self._array(subgraph.outputs[0], key, _with_layer(key, layer, depends), subgraph.grid)
            return
        graph = _with_layer(f"{key}-all", layer, depends)
        for k, name in enumerate(subgraph.outputs):
            own = f"{key}-{k}"
            every = itertools.product(*(range(len(x)) for x in subgraph.grid))
            layers: dict[str, Any] = {**graph.layers, own: _items(own, f"{key}-all", every, k)}
            self._array(name, own, HighLevelGraph(layers, {**graph.dependencies, own: {f"{key}-all"}}), subgraph.grid)

    @staticmethod
    def _merged(array: Any, subgraph: Subgraph, name: str) -> Any:
        """The array, in one chunk where that is better; a source as it is."""
        if isinstance(array, Source):
            return array
        is_merged = is_better_merged(array.chunks, subgraph.required[name], math.prod(subgraph.numblocks))
        return array.rechunk(-1) if is_merged else array

    def _array(self, stage: str, key: str, graph: HighLevelGraph, grid: Grid) -> None:
        self.arrays[stage] = da.Array(graph, key, grid, dtype=self.graph.stage(stage).dtype)

    def _own(self, subgraph: Subgraph, name: str, step: str, positions: Sequence[tuple[int, ...]], layer: Any) -> Any:
        """The array of an output while its tasks are made, which go on from one another."""
        key = step
        if len(subgraph.outputs) > 1:
            number = subgraph.outputs.index(name)
            key = f"{step}-{number}"
            layer.update(_items(key, step, positions, number))
        return da.Array({}, key, subgraph.grid, dtype=self.graph.stage(name).dtype)

    def _combine(self, subgraph: Subgraph, step: str, key: str, layer: dict[Any, Any]) -> None:
        """A tree over the pieces of each chunk."""
        operations = " ".join(self.graph.stage(n).updates[0].order for n in subgraph.outputs)
        pieces = list(itertools.product(*(range(len(x)) for x in subgraph.pieces)))
        for at in itertools.product(*(range(len(x)) for x in subgraph.grid)):
            level, left = 0, [(step, *at, *p) for p in pieces]
            while True:
                groups = [left[k : k + FAN_IN] for k in range(0, len(left), FAN_IN)]
                level += 1
                last = len(groups) == 1
                left = [(key, *at) if last else (f"{step}-{level}", *at, k) for k in range(len(groups))]
                for name, group in zip(left, groups, strict=True):
                    layer[name] = task(name, combined, (operations,), group)
                if last:
                    break

    # -- what a person reads
    def lines(self) -> Iterator[str]:
        """How each subgraph is computed, as text."""
        read = {*self.arrays, *self.cutter.position}
        grids = {
            **{n: a.chunks for n, a in self.arrays.items()},
            **{n: p.grid for p in self.subgraphs for n in p.outputs},
        }
        for subgraph in self.subgraphs:
            names = ", ".join(subgraph.outputs)
            tasks = math.prod(subgraph.numblocks)
            given = [(n, self.cutter.array(n)) for n in subgraph.reads]
            reads = ", ".join(f"{self._largest(subgraph, n)} of {array}" for n, array in given if array in read)
            how = f"{tasks} tasks, each reads {reads or 'nothing'}"
            if subgraph.pieces:
                how = f"a reduction: partial results of {how}; they are combined in a tree"
            yield f"{names}: {how}"
            if kept := self.cutter.kept.intersection(subgraph.outputs):
                yield f"    {', '.join(sorted(kept))}: kept, as other parts would compute it again"
            for name, array in given:
                if array in grids and is_better_merged(grids[array], subgraph.required[name], tasks):
                    yield f"    the chunks of {name}, which is small, are put together first: each task reads many"
            if subgraph.is_whole and tasks == 1:
                yield "    one task, as every element may need any element of what it reads"
            for name, carry in subgraph.carries.items():
                other, end = ("before", "last") if carry.step > 0 else ("after", "first")
                some = end if carry.depth == 1 else f"{end} {carry.depth}"
                yield f"    along axis {carry.axis} each chunk of {name} goes on from the {some} of the one {other} it"
            whole = self.cutter.bounds_with(subgraph.carries).whole_axes
            for axis in sorted({a for n in subgraph.outputs for a in whole(n)}):
                if (
                    not subgraph.is_whole
                    and not subgraph.pieces
                    and self.cutter.bounds.shapes[subgraph.outputs[0]][axis] > 1
                ):
                    yield f"    one chunk along axis {axis}, as its elements follow from each other"

    @staticmethod
    def _largest(subgraph: Subgraph, name: str) -> str:
        """The largest window of an array."""
        return " x ".join(str(int((high - low).max()) + 1) for low, high in subgraph.required[name]) or "1"
