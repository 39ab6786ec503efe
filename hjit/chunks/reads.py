"""What tasks read: windows of arrays, assembled from the chunks that they overlap.

The window of a chunk includes a little of its neighbours. What other chunks need of a chunk is cut out by one task, as
long as it is a small part, so that each chunk of a stencil's result takes two tasks, not ten.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.base import clone_key
from dask.highlevelgraph import HighLevelGraph

from hjit.chunks.bounds import Region, elements
from hjit.chunks.limits import FEW_READS, MAX_LAYOUTS, READ_AGAIN, READS, SMALL_WORK
from hjit.chunks.native import Source, after, first_layer, is_task, source_of, task

Array = np.ndarray[Any, Any]
Ends = tuple[int, int]
Slices = tuple[slice, ...]

FIRST = "first"  # the task that others begin after
EXCERPT = 0.5  # a window that has less of a chunk than this is given that part only, not to move or keep all of it
TOGETHER = 0.25  # of a chunk: what other tasks need of it is one task up to here, and moves as one


class Layout:
    """How a window is assembled from chunks: plain numbers, which Dask does not inspect.

    Attributes:
        shape: of the window.
        places: for each chunk where it is put, and what of it: slices, the number of one of several excerpts, or None
            for all.
    """

    __slots__ = ("dtype", "places", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: Any, places: tuple[tuple[Slices, Any], ...]) -> None:
        self.shape, self.dtype, self.places = shape, dtype, places

    def __reduce__(self) -> Any:
        return Layout, (self.shape, self.dtype, self.places)

    def array(self, blocks: Iterator[Any]) -> Array:
        """The window, of the next blocks."""
        if len(self.places) == 1:
            (_, part) = self.places[0]
            block = next(blocks)
            return np.asarray(block if part is None else block[part])
        window = np.empty(self.shape, self.dtype)
        for place, part in self.places:
            block = next(blocks)
            window[place] = block if part is None else block[part]
        return window


class SourceWindow:
    """A window that is read directly from the source of an array.

    Attributes:
        get, settings: as `Source` has them.
        window: slices of the source.
    """

    __slots__ = ("get", "settings", "window")

    def __init__(self, get: Callable[..., Any], settings: Mapping[str, Any], window: Slices) -> None:
        self.get, self.settings, self.window = get, settings, window

    def __reduce__(self) -> Any:
        return SourceWindow, (self.get, self.settings, self.window)

    def array(self, blocks: Iterator[Any]) -> Array:
        """The window, of the source that is the next block, after which comes what all such tasks begin after."""
        source, _ = next(blocks), next(blocks)
        return np.asarray(self.get(source, self.window, **self.settings))


class WindowAssembly:
    """The function of a task that assembles a window from chunks; Dask does not inspect it.

    Attributes:
        row: the numbers of the kernel.
        windows: one for each array.
    """

    __slots__ = ("row", "windows")

    def __init__(self, row: bytes, windows: tuple[Layout | SourceWindow, ...]) -> None:
        self.row, self.windows = row, windows

    def __reduce__(self) -> Any:
        return WindowAssembly, (self.row, self.windows)

    def arrays(self, blocks: Sequence[Any]) -> Iterator[Array]:
        """The windows."""
        given = iter(blocks)
        return (window.array(given) for window in self.windows)


class Excerpts:
    """Slices, in a form that Dask does not inspect."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Slices, ...]) -> None:
        self.parts = parts

    def __reduce__(self) -> Any:
        return Excerpts, (self.parts,)


def excerpts(wanted: Excerpts, block: Array) -> tuple[Array, ...]:
    """Parts of a chunk, copied so that the chunk can be freed."""
    block = np.asarray(block)
    return tuple(block[part].copy(order="C") for part in wanted.parts)


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """The part of a chunk that an interval of an axis needs.

    Attributes:
        offset: the chunk, from the first one of the interval.
        place: where in the interval its part is.
        part: this part of the chunk.
        share: how much of the chunk that is.
    """

    offset: int
    place: Ends
    part: Ends
    share: float


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a chunk that a window needs; the same object for all windows with the same relative position.

    Attributes:
        offset: the chunk, from the first one of the window.
        place: where in the window its part is.
        part: this part of the chunk.
        share: how much of the chunk that is.
    """

    offset: tuple[int, ...]
    place: Slices
    part: tuple[Ends, ...]
    share: float

    @property
    def is_cut_out(self) -> bool:
        """Is the task given this part only?"""
        return self.share < EXCERPT


ChunkParts = tuple[ChunkPart, ...]  # of consecutive chunks, those of length zero left out


def chunk_parts(chunks: Sequence[int]) -> Callable[[int, int], tuple[int, ChunkParts]]:
    """Which chunks of an axis an interval lies in: a function of its ends, to the first of them and all of them."""
    edges = [0, *itertools.accumulate(chunks)]

    @functools.lru_cache(maxsize=MAX_LAYOUTS)
    def of(low: int, high: int) -> tuple[int, ChunkParts]:
        first, last = bisect_right(edges, low) - 1, bisect_right(edges, high) - 1
        some = (k for k in range(first, last + 1) if edges[k] < edges[k + 1])
        return first, tuple(_chunk_part(k - first, edges[k], edges[k + 1], low, high) for k in some)

    return of


def _chunk_part(offset: int, start: int, stop: int, low: int, high: int) -> ChunkPart:
    a, z = max(low, start), min(high + 1, stop)
    return ChunkPart(offset, (a - low, z - low), (a - start, z - start), (z - a) / (stop - start))


@functools.lru_cache(maxsize=MAX_LAYOUTS)
def pieces(along: tuple[ChunkParts, ...]) -> tuple[Piece, ...]:
    """The chunks that a window lies in, by those along each axis."""
    found = []
    for each in itertools.product(*along):
        offset, part = tuple(x.offset for x in each), tuple(x.part for x in each)
        found.append(Piece(offset, _slices(x.place for x in each), part, math.prod(x.share for x in each)))
    return tuple(found)


@functools.lru_cache(maxsize=MAX_LAYOUTS)
def excerpts_of(*parts: tuple[Ends, ...]) -> Excerpts:
    """These parts of a chunk; the same object for all chunks of which the same is wanted."""
    return Excerpts(tuple(map(_slices, parts)))


def is_better_merged(chunks: Sequence[Sequence[int]], region: Region, count: int) -> bool:
    """Is an array so small, and in so many chunks, that tasks that read many of them should read one merged chunk?

    Args:
        chunks: of the array.
        region: the window of each task.
        count: of the tasks.
    """
    if math.prod(map(len, chunks)) <= READS or math.prod(map(sum, chunks)) > SMALL_WORK:
        return False
    reads = np.ones(count)
    for along, ends in zip(chunks, region, strict=True):
        first, last = (np.searchsorted(np.cumsum(along), x, side="right") for x in ends)
        reads = reads * (last - first + 1)
    return float(reads.sum()) > max(READS * count, FEW_READS)


class _Cuts:
    """The excerpts of one chunk."""

    __slots__ = ("numbers", "share")

    def __init__(self) -> None:
        self.numbers: dict[tuple[Ends, ...], int] = {}
        self.share = 0.0

    def add(self, part: tuple[Ends, ...], share: float) -> None:
        if part not in self.numbers:
            self.numbers[part] = len(self.numbers)
            self.share += share


class Reads:
    """The reads of one array by the tasks of a part."""

    def __init__(self, array: Any, region: Region, key: str) -> None:
        """
        Args:
            array: Dask's, of which its name, dtype and chunks are used.
            region: the window of each task.
            key: for the names of what is cut out of chunks.
        """
        self.name, self.dtype, self.key = array.name, array.dtype, key
        along = [chunk_parts(chunks) for chunks in array.chunks]
        self._ends = list(zip(*(zip(low.tolist(), high.tolist(), strict=True) for low, high in region), strict=True))
        self._cuts: dict[tuple[int, ...], _Cuts] = {}
        self._layouts: dict[Any, Layout] = {}
        self._windows: dict[tuple[Ends, ...], tuple[tuple[Piece, ...], list[tuple[int, ...]]]] = {}
        for ends in self._ends or [()]:
            if ends not in self._windows:
                found = [f(*x) for f, x in zip(along, ends, strict=True)]
                self._windows[ends] = self._window([k for k, _ in found], pieces(tuple(x for _, x in found)))

    def _window(
        self, first: Sequence[int], found: tuple[Piece, ...]
    ) -> tuple[tuple[Piece, ...], list[tuple[int, ...]]]:
        """The pieces of a window, and their chunks; notes what is cut out of these."""
        chunks = [tuple(map(operator.add, first, piece.offset)) for piece in found]
        for at, piece in zip(chunks, found, strict=True):
            if piece.is_cut_out:
                cuts = self._cuts.get(at)
                if cuts is None:
                    cuts = self._cuts[at] = _Cuts()
                cuts.add(piece.part, piece.share)
        return found, chunks

    def of(self, number: int) -> tuple[Layout, list[Any]]:
        """The window of a task, for `WindowAssembly`, and the keys of what it is put together from."""
        ends = self._ends[number] if self._ends else ()
        found, chunks = self._windows[ends]
        numbers: list[int | None] = []  # of what is cut out
        blocks: list[Any] = []
        for at, piece in zip(chunks, found, strict=True):
            if not piece.is_cut_out:
                numbers.append(None)
                blocks.append((self.name, *at))
                continue
            cuts = self._cuts[at]
            k = cuts.numbers[piece.part]
            is_together = cuts.share <= TOGETHER
            numbers.append(k if is_together else 0)
            blocks.append((self.key, *at) if is_together else (self.key, *at, k))
        return self._layout(found, tuple(numbers), ends), blocks

    def _layout(self, found: tuple[Piece, ...], numbers: tuple[int | None, ...], ends: tuple[Ends, ...]) -> Layout:
        """A window as `WindowAssembly` has it; the same object for all windows that are put together alike."""
        shape = tuple(high - low + 1 for low, high in ends)
        key = id(found), numbers, shape  # `_windows` holds the pieces
        layout = self._layouts.get(key)
        if layout is None:
            parts = [None if x.share == 1.0 else _slices(x.part) for x in found]
            whats = [part if k is None else k for part, k in zip(parts, numbers, strict=True)]
            places = tuple((x.place, what) for x, what in zip(found, whats, strict=True))
            layout = self._layouts[key] = Layout(shape, self.dtype, places)
        return layout

    def tasks(self) -> Iterator[tuple[Any, Any]]:
        """What is cut out of chunks, by key."""
        for at, cuts in self._cuts.items():
            is_together = cuts.share <= TOGETHER
            some = [((), excerpts_of(*cuts.numbers))] if is_together else _numbered(cuts.numbers)
            for number, wanted in some:
                key = (self.key, *at, *number)
                yield key, task(key, excerpts, (wanted,), ((self.name, *at),))


class SourceReads:
    """The reads of one array by the tasks of a part, each of a window directly from its source."""

    def __init__(self, source: Source, region: Region) -> None:
        """`region`: the window of each task."""
        self._source = source
        along = [zip(low.tolist(), high.tolist(), strict=True) for low, high in region]
        self._ends = list(zip(*along, strict=True))

    def of(self, number: int) -> tuple[SourceWindow, list[Any]]:
        """The window of a task, for `WindowAssembly`, and the key of the source."""
        ends = self._ends[number] if self._ends else ()
        window = tuple(slice(low, max(high + 1, low)) for low, high in ends)
        return SourceWindow(self._source.get, self._source.settings, window), [self._source.key, self._source.first]

    def tasks(self) -> Iterator[tuple[Any, Any]]:
        """None: nothing is cut out of chunks."""
        return iter(())


def has_any_window(source: Any) -> bool:
    """Is any window of it read as well as a chunk? So it is of memory, of files that are mapped into it, and where
    `chunks` is None, as of a data set of HDF5 that is not stored in chunks."""
    return isinstance(source, np.ndarray) or getattr(source, "chunks", ()) is None


def _numbered(parts: Iterable[tuple[Ends, ...]]) -> list[tuple[tuple[int, ...], Excerpts]]:
    return [((number,), excerpts_of(part)) for number, part in enumerate(parts)]


def _slices(part: Iterable[Ends]) -> Slices:
    return tuple(slice(*ends) for ends in part)


class Loaded:
    """The arrays that a Graph reads, in passes: one before and one after each reduction over all of an array.

    What comes after would else keep the chunks in memory that were loaded before. Where there is no room for that, and
    they come from a file, or from memory, they are rather loaded again, by tasks of their own. These begin after one
    task that does nothing: Dask's ordering of tasks looks at each pair of a chunk of the result and a task that it
    begins with, and a reduction ties all chunks of the result to all that are loaded.

    Where one part reads an array in a pass, and its windows can be read from where chunks are loaded from
    (`has_any_window`), there are no tasks that load: each task reads its own window, after one that does nothing, too.
    """

    def __init__(self, arrays: Mapping[str, Any], passes: Mapping[str, Counter[int]], seed: str, room: int) -> None:
        """
        Args:
            passes: those that read each array, with how many windows of it a chunk needs in each.
            seed: for the names of these tasks.
            room: bytes of what may be kept.
        """
        self._arrays, self._passes, self._seed, self._room = arrays, passes, seed, room
        self._found: dict[tuple[str, int], Any] = {}
        self._kept: dict[str, bool] = {}

    def of(self, name: str, number: int) -> Any:
        """An array in a pass."""
        if (name, number) not in self._found:
            array = self._arrays[name]
            self._found[name, number] = array if self._is_once(name) else _again(array, self._seed, number)
        return self._found[name, number]

    def source(self, name: str, number: int, region: Region) -> Source | None:
        """What tasks read an array from in a pass, each its window; None where they are given chunks."""
        array = self._arrays[name]
        if self._passes[name][number] > 1 or (len(self._passes[name]) > 1 and self._is_once(name)):
            return None
        source = source_of(array, f"{FIRST}-{self._seed}")
        if source is None or not has_any_window(source.value):
            return None
        return source if float(np.sum(elements(region))) <= READ_AGAIN * array.size else None

    def _is_once(self, name: str) -> bool:
        """Are chunks loaded once?"""
        return len(self._passes[name]) == 1 or self._is_kept(name)

    def _is_kept(self, name: str) -> bool:
        """Is there room for an array?"""
        if name not in self._kept:
            size = self._arrays[name].nbytes
            self._kept[name] = size <= self._room
            self._room -= size if self._kept[name] else 0
        return self._kept[name]


def _again(array: Any, seed: str, number: int) -> Any:
    """The array with loading tasks of its own, if it is one that is loaded."""
    graph = array.dask
    layer, needs = graph.layers.get(array.name), graph.dependencies.get(array.name, ())
    is_loaded = needs and all(len(graph.layers[n]) == 1 and not graph.dependencies[n] for n in needs)
    if layer is None or not is_loaded or array.npartitions == 1:
        return array
    name = clone_key(array.name, f"{seed}-{number}")
    found = dict(layer)
    if not all(map(is_task, found.values())):
        return array
    first = f"{FIRST}-{seed}"
    layers = {
        **{n: graph.layers[n] for n in needs},
        **first_layer(first),
        name: {(name, *at): after((name, *at), load, first) for (_, *at), load in found.items()},
    }
    dependencies: dict[str, set[str]] = {n: set() for n in layers}
    dependencies[name] = {*needs, first}
    return da.Array(HighLevelGraph(layers, dependencies), name, array.chunks, meta=array._meta)
