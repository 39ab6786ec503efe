"""What tasks read: windows of arrays, put together from the chunks that they lie in.

A chunk whose window lies around it needs a little of its neighbours, too. What others need of a chunk is cut out of it
by one task, as long as that is little in all, so that a chunk of a stencil's result costs two tasks, not ten.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.base import clone_key
from dask.highlevelgraph import HighLevelGraph

from hjit.chunks.bounds import Region

Array = np.ndarray[Any, Any]
Ends = tuple[int, int]
ChunkSlice = tuple[
    int, slice, Ends, float
]  # a chunk along an axis; where in the window its part is; the part; how much of it
Slices = tuple[slice, ...]

EXCERPT = 0.5  # a window that has less of a chunk than this is given that part only, not to move or keep all of it
TOGETHER = 0.25  # of a chunk: what other tasks need of it is one task up to here, and moves as one


class WindowAssembly:
    """What a task does with the chunks that it is given: plain numbers, which Dask does not look into.

    Attributes:
        row: the numbers of the kernel.
        windows: for each array the shape of its window, and for each chunk where it is put, and what of it: slices, the
            number of one of several excerpts, or None for all.
    """

    __slots__ = ("row", "windows")

    def __init__(self, row: bytes, windows: tuple[Any, ...]) -> None:
        self.row, self.windows = row, windows

    def __reduce__(self) -> Any:
        return WindowAssembly, (self.row, self.windows)

    def arrays(self, blocks: Sequence[Any]) -> Iterator[Array]:
        """The windows."""
        given = iter(blocks)
        for shape, dtype, places in self.windows:
            if len(places) == 1:
                (_, part) = places[0]
                block = next(given)
                yield np.asarray(block if part is None else block[part])
                continue
            window = np.empty(shape, dtype)
            for place, part in places:
                block = next(given)
                window[place] = block if part is None else block[part]
            yield window


class Excerpts:
    """Slices, which Dask does not look into."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Slices, ...]) -> None:
        self.parts = parts

    def __reduce__(self) -> Any:
        return Excerpts, (self.parts,)


def excerpts(block: Array, wanted: Excerpts) -> tuple[Array, ...]:
    """Parts of a chunk, without the rest of it."""
    block = np.asarray(block)
    return tuple(block[part].copy(order="C") for part in wanted.parts)


def spans(chunks: Sequence[int]) -> Callable[[int, int], tuple[ChunkSlice, ...]]:
    """Which chunks of an axis an interval lies in: a function of its ends."""
    edges = [0, *itertools.accumulate(chunks)]
    known: dict[tuple[int, int], tuple[ChunkSlice, ...]] = {}

    def of(low: int, high: int) -> tuple[ChunkSlice, ...]:
        found = known.get((low, high))
        if found is None:
            first, last = bisect_right(edges, low) - 1, bisect_right(edges, high) - 1
            found = known[low, high] = tuple(
                _span(k, edges[k], edges[k + 1], low, high) for k in range(first, last + 1)
            )
        return found

    return of


def _span(k: int, start: int, stop: int, low: int, high: int) -> ChunkSlice:
    a, z = max(low, start), min(high + 1, stop)
    return k, slice(a - low, z - low), (a - start, z - start), (z - a) / max(stop - start, 1)


class _Cuts:
    """What is cut out of one chunk."""

    __slots__ = ("numbers", "share")

    def __init__(self) -> None:
        self.numbers: dict[tuple[Ends, ...], int] = {}
        self.share = 0.0

    def add(self, part: tuple[Ends, ...], share: float) -> None:
        if part not in self.numbers:
            self.numbers[part] = len(self.numbers)
            self.share += share


class Reads:
    """What the tasks of a part read of one array."""

    def __init__(self, array: Any, region: Region, key: str) -> None:
        """
        Args:
            array: Dask's, of which its name, dtype and chunks are used.
            region: the window of each task.
            key: for the names of what is cut out of chunks.
        """
        self.name, self.dtype, self.key = array.name, array.dtype, key
        self._along = [spans(chunks) for chunks in array.chunks]
        self._ends = list(zip(*(zip(low.tolist(), high.tolist(), strict=True) for low, high in region), strict=True))
        self._cuts: dict[tuple[int, ...], _Cuts] = {}
        self._windows = {ends: list(self._chunks(ends)) for ends in self._ends or [()]}
        for found in self._windows.values():
            for at, _, part, share in found:
                if share < EXCERPT:
                    cuts = self._cuts.get(at)
                    if cuts is None:
                        cuts = self._cuts[at] = _Cuts()
                    cuts.add(part, share)

    def _chunks(self, ends: Sequence[Ends]) -> Iterator[tuple[Any, Any, Any, float]]:
        """The chunks that a window lies in: which; where in the window; what of them; how much of them."""
        for found in itertools.product(*(f(*x) for f, x in zip(self._along, ends, strict=True))):
            at, place, part, shares = zip(*found, strict=True) if found else ((), (), (), ())
            yield at, place, part, math.prod(shares)

    def of(self, number: int) -> tuple[Any, list[Any]]:
        """The window of a task, for `WindowAssembly`, and the keys of what it is put together from."""
        ends = self._ends[number] if self._ends else ()
        places, blocks = [], []
        for at, place, part, share in self._windows[ends]:
            block: Any = (self.name, *at)
            what: Any = None
            if share < EXCERPT:
                cuts = self._cuts[at]
                what = cuts.numbers[part]
                block = (self.key, *at)
                if cuts.share > TOGETHER:
                    block, what = (*block, what), 0
            elif share < 1.0:
                what = _slices(part)
            places.append((place, what))
            blocks.append(block)
        return (tuple(high - low + 1 for low, high in ends), self.dtype, tuple(places)), blocks

    def tasks(self) -> Iterator[tuple[Any, Any]]:
        """What is cut out of chunks, by key."""
        for at, cuts in self._cuts.items():
            block, parts = (self.name, *at), [_slices(part) for part in cuts.numbers]
            if cuts.share <= TOGETHER:
                yield (self.key, *at), (excerpts, block, Excerpts(tuple(parts)))
                continue
            for number, part in enumerate(parts):
                yield (self.key, *at, number), (excerpts, block, Excerpts((part,)))


def _slices(part: tuple[Ends, ...]) -> Slices:
    return tuple(slice(*ends) for ends in part)


class Loaded:
    """The arrays that a Graph reads, in passes: one before and one after each reduction over all of an array.

    What comes after would else keep the chunks in memory that were loaded before. Where there is no room for that, and
    they come from a file, or from memory, they are rather loaded again, by tasks of their own.
    """

    def __init__(self, arrays: Mapping[str, Any], seed: str, room: int) -> None:
        """
        Args:
            seed: for the names of these tasks.
            room: bytes of what may be kept.
        """
        self._arrays, self._seed, self._room = arrays, seed, room
        self._passes: dict[str, dict[int, Any]] = {}
        self._kept: set[str] = set()

    def of(self, name: str, number: int) -> Any:
        """An array in a pass."""
        passes = self._passes.setdefault(name, {})
        if number not in passes:
            array = self._arrays[name]
            passes[number] = array if not passes or self._is_kept(name) else _again(array, f"{self._seed}-{number}")
        return passes[number]

    def _is_kept(self, name: str) -> bool:
        """Is there room for an array, or has it been found before?"""
        size = self._arrays[name].nbytes
        if name not in self._kept and size <= self._room:
            self._room -= size
            self._kept.add(name)
        return name in self._kept


def _again(array: Any, seed: str) -> Any:
    """The array with loading tasks of its own, if it is one that is loaded."""
    graph = array.dask
    layer, needs = graph.layers.get(array.name), graph.dependencies.get(array.name, ())
    is_loaded = needs and all(len(graph.layers[n]) == 1 and not graph.dependencies[n] for n in needs)
    if layer is None or not is_loaded or array.npartitions == 1:
        return array
    found, _ = layer.clone(set(layer.get_output_keys()), seed)
    name = clone_key(array.name, seed)
    layers = {**{n: graph.layers[n] for n in needs}, name: found}
    dependencies = {**{n: graph.dependencies[n] for n in needs}, name: set(needs)}
    return da.Array(HighLevelGraph(layers, dependencies), name, array.chunks, meta=array._meta)
