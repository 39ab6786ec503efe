"""The stages that the blocks of a CUDA nest compute for themselves, in shared memory.

A stage is a member of its reader's nest if its blocks recompute little and have enough shared memory; stages that are
not live at the same time share it. More members at the end of a Graph may leave fewer before them, so members are first
chosen as if each had its own memory, too; of both choices, the one whose nests move the fewest bytes is taken, counting
the bytes of each nest once, at sizes of 1024.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hjit.sched.analysis.bounds import Definitions, Reads, Region
from hjit.sched.analysis.propagation import Uses
from hjit.sched.analysis.sliding import advance
from hjit.sched.default.line_buffers import named
from hjit.sched.default.thresholds import (
    LONG_REDUCTION,
    MAX_EXTRA_WORK,
    MAX_RECOMPUTED,
    MAX_SHARED_BYTES,
    MOST_ROWS,
    NOMINAL_SIZE,
    TALLER,
)
from hjit.sched.language.build import Step
from hjit.sched.language.definitions import is_direct
from hjit.trace.ir.analysis.costs import cost
from hjit.trace.ir.graph import Graph, Stage
from hjit.trace.ir.intervals import Interval
from hjit.trace.ir.poly import Poly, Var, poly


@dataclass(frozen=True, slots=True)
class Tiled:
    """The loops of one nest.

    Attributes:
        blocks: dimensions whose loops are over blocks.
        inner: the loops inside those.
        tile: how many elements of each pure dimension a block computes; None: all.
        is_alone: is it computed at the root, because its own tiles are worth more than to be near what reads it?
    """

    group: tuple[int, ...]
    blocks: tuple[int, ...]
    inner: tuple[Step, ...]
    tile: tuple[int | None, ...] = ()
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class Members:
    """The stages that the blocks of a nest compute for themselves, in the order of the Graph.

    Attributes:
        tiled: the loops of the nest.
    """

    nest: int
    tiled: Tiled
    names: tuple[str, ...]


Tilings = Mapping[str, Sequence[Tiled]]


def members_of(graph: Graph, tiled: Tilings) -> dict[str, Members]:
    """The members of each nest, by its stage.

    Args:
        tiled: of each stage the nests that it has at the root.
    """
    selections = [_Selection(graph, tiled, is_reused).members() for is_reused in (False, True)]
    return min(selections, key=lambda members: _moved(graph, members))  # the first of equal ones


def _moved(graph: Graph, members: Mapping[str, Members]) -> tuple[int, int]:
    """The bytes that the nests read and write, and the number of nests."""
    inside = {name for x in members.values() for name in x.names}
    dtypes, total, nests = graph.dtypes, 0, 0
    for s in graph.stages:
        if s.name not in inside:
            together = {s.name, *(members[s.name].names if s.name in members else ())}
            read = {source for name in together for d in graph.stage(name).definitions for source in d.sources}
            arrays = {s.name, *(read - together)}
            total += sum(dtypes[x].itemsize * math.prod(map(_nominal, graph.shapes[x])) for x in arrays)
            nests += 1
    return total, nests


def _nominal(p: Poly) -> int:
    return max(p.evaluate(lambda a: NOMINAL_SIZE), 0)


class _Selection:
    """The members of all nests, chosen greedily, the last nest first.

    Attributes:
        is_reused: do stages that are not needed at the same time share memory?
        taken: the members so far.
    """

    def __init__(self, graph: Graph, tiled: Tilings, is_reused: bool) -> None:
        self.graph, self.tiled, self.is_reused = graph, tiled, is_reused
        self.reads, self.consumers = Reads(graph), graph.consumers()
        self.alone = {name for name, nests in tiled.items() if any(y.is_alone for y in nests)}
        self.taken: set[str] = set()

    def members(self) -> dict[str, Members]:
        found: dict[str, Members] = {}
        for s in reversed(self.graph.stages):
            if s.name not in self.taken and (best := self.best(s)) is not None:
                found[s.name] = best
                self.taken.update(best.names)
        return found

    def best(self, s: Stage) -> Members | None:
        """Those of a stage at the root, with the tiles that have most of them."""
        reading = [
            k
            for k, x in enumerate(self.tiled[s.name])
            if any(y != s.name and y in self.graph.by_name for n in x.group for y in s.definitions[n].sources)
        ]
        if len(reading) != 1:
            return None
        x = self.tiled[s.name][reading[0]]
        if not (x.blocks and x.tile and is_direct(s.definitions[x.group[-1]])):
            return None
        tried = []
        for y in _other_tiles(x):
            block = _Block(self, s, y, self.taken | self.alone)
            block.fill()
            tried.append((y, block.names()))
        x, names = max(tried, key=lambda y: len(y[1]))  # the first of equal ones
        return Members(reading[0], x, names) if names else None


def _other_tiles(x: Tiled) -> Iterator[Tiled]:
    """The loops, and those over other tiles: higher ones, of which blocks compute less of what others compute, too, and
    narrower ones, of which more stages fit into shared memory."""
    row, column = x.blocks[-2:] if len(x.blocks) > 1 else (-1, -1)
    for y in dict.fromkeys((x, _each(x, column, 1) or x)):  # one, where a thread has one column anyway
        yield y
        rows = math.prod(n or 1 for k, kind, n, *_ in x.inner if (k, kind) == (row, "unroll"))
        for times in (n for n in TALLER if n * rows <= MOST_ROWS):
            if (higher := _each(y, row, rows * times)) is not None:
                yield higher


def _each(x: Tiled, dim: int, count: int) -> Tiled | None:
    """The loops where each thread computes so many elements along a dimension; None where threads do not share it."""
    threads = [n for k, kind, n, *_ in x.inner if (k, kind) == (dim, "gpu_thread")]
    if len(threads) != 1 or threads[0] is None:
        return None
    before = math.prod(n or 1 for k, kind, n, *_ in x.inner if (k, kind) == (dim, "unroll"))
    size = threads[0] // before * count
    inner: list[Step] = [
        (dim, "gpu_thread", size) if step[:2] == (dim, "gpu_thread") else step
        for step in x.inner
        if step[:2] != (dim, "unroll")
    ]
    if count > 1:
        last = max(n for n, (_, kind, *_) in enumerate(inner) if kind == "gpu_thread")
        inner.insert(last + 1, (dim, "unroll", count))
    return replace(x, inner=tuple(inner), tile=tuple(size if k == dim else n for k, n in enumerate(x.tile)))


class _Block:
    """The stages that a block of a nest computes for itself so far.

    Attributes:
        sizes: bytes of the members.
        uses: what is read of stages before them.
    """

    def __init__(self, selection: _Selection, head: Stage, x: Tiled, taken: set[str]) -> None:
        self.selection, self.head, self.taken = selection, head, taken
        self.sizes: dict[str, int] = {}
        corners = {k: Var(f"tile{k}") for k in x.blocks}
        self.tiles = {v: x.tile[k] or 1 for k, v in corners.items()}
        self.uses: Uses[Definitions] = Uses(selection.reads.stages)
        for number in x.group:
            group = selection.reads.group(head.name, number)
            tile = {k: Interval.tile(poly(v), self.tiles[v]) for k, v in corners.items() if k in group.whole}
            self.uses.add(group, group.whole | tile)

    @cached_property
    def before(self) -> tuple[Stage, ...]:
        """The stages before the head, the last one first."""
        return self.selection.graph.stages[: self.selection.reads.position[self.head.name]][::-1]

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.sizes, key=self.selection.reads.position.__getitem__))

    def fill(self) -> None:
        """Take what fits."""
        for s in self.before:
            self.take(s)

    def take(self, s: Stage) -> bool:
        """Take a stage, if it fits."""
        selection = self.selection
        is_free = s.name not in self.taken and s.name not in selection.graph.outputs and s.shape
        if not is_free or not all(c == self.head.name or c in self.sizes for c in selection.consumers[s.name]):
            return False
        if not all(is_direct(d) and d.order != "sequential" for d in s.definitions):
            return False
        region = named(s.name, selection.reads.region(s.name, self.uses))
        if not all(i.length.is_const for i in region):
            return False
        size = s.dtype.itemsize * math.prod(i.length.const for i in region)
        if self.memory({**self.sizes, s.name: size}) > MAX_SHARED_BYTES or not _is_cheap(s, region, self.tiles):
            return False
        self.sizes[s.name] = size
        for number in range(len(s.definitions)):
            group = selection.reads.group(s.name, number)
            self.uses.add(group, group.dims(region))
        return True

    def memory(self, sizes: Mapping[str, int]) -> int:
        """Bytes for stages of these sizes, as `hjit.kernels.lower.passes.staging.share_memory` has them."""
        if not self.selection.is_reused:
            return sum(sizes.values())
        position = self.selection.reads.position
        slots: list[_Slot] = []
        for name in sorted(sizes, key=position.__getitem__):
            dtype, last = self.selection.graph.dtypes[name], max(position[c] for c in self.selection.consumers[name])
            free = [x for x in slots if x.dtype == dtype and x.last < position[name]]
            slot = min(free, key=lambda x: abs(x.size - sizes[name]), default=None)
            if slot is None:
                slots.append(_Slot(dtype, sizes[name], last))
            else:
                slot.size, slot.last = max(slot.size, sizes[name]), last
        return sum(x.size for x in slots)


@dataclass(slots=True)
class _Slot:
    """Memory that several stages use in turn; `last`: the position of its last reader."""

    dtype: np.dtype[Any]
    size: int
    last: int


def _is_cheap(s: Stage, region: Region, tiles: Mapping[Var, int]) -> bool:
    """Do blocks recompute only little?"""
    needed, new = 1, 1.0
    moving: set[Var] = set()
    for i in region:
        along = [v for v in tiles if i.base.mentions(v)]
        moving.update(along)
        needed *= i.length.const
        steps = [advance(i.base, v, tiles[v]) for v in along]
        if len(steps) > 1 or any(n is None or n < 1 for n in steps):
            return False
        new *= (steps[0] or 1) if steps else i.length.const
    ratio = needed / new
    work = sum(
        cost(d.value) * math.prod(n.const if n.is_const else LONG_REDUCTION for n in d.rdims) for d in s.definitions
    )
    return moving == set(tiles) and ratio <= MAX_RECOMPUTED and (ratio - 1) * work <= MAX_EXTRA_WORK
