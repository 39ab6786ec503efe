"""Coalescing: accesses of neighbouring threads that are a row apart are transposed through shared memory.

A warp accesses whole lines of memory, so its threads should touch neighbouring elements. If a thread walks along a row
(a recurrence, in strips of columns), or a stage reads across the direction in which it writes, the threads of a block
copy a tile into shared memory, consecutive threads along its rows, wait, and then each works on its own part of the
tile. Results of a recurrence are written back in the same way. Rows of a tile are padded, so that threads a row apart
use different banks of shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hjit.kernels.lower.loopir import Block, For, If, Let, Stmt, Store, ThreadLoop, Threads
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.passes.distribute_threads import THREADS
from hjit.kernels.lower.program import Buffer, Nest, shared_bytes
from hjit.kernels.lower.traverse import Body, stmt_exprs, with_bodies
from hjit.sched.language.limits import WARP
from hjit.sched.language.memory import C_ORDER, memory_order
from hjit.trace.ir.expressions import Expr, Load, loads, rewrite
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.intervals import upper_bound
from hjit.trace.ir.poly import ZERO, Indirect, Poly, Var, poly

MAX_BYTES = 24 << 10  # of a block's tiles, with what it has in shared memory already
SECTOR = 32  # bytes that memory moves at least
BANK, BANKS = 4, 32  # bytes of a bank of shared memory, and how many there are
MAX_HALO = 16  # elements before a strip that it reads of its own row

Index = tuple[Poly, ...]


def coalesce_accesses(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Stage accesses through shared memory, so that neighbouring threads access neighbouring elements."""
    if not nest.blocks:
        return nest
    made = _Coalescing(nest, graph)
    body = made.body(nest.body)
    return replace(nest, body=body, buffers=nest.buffers | made.buffers, threads=made.threads)


@dataclass(frozen=True, slots=True)
class _Tile:
    """The part of an array that the threads of a block copy.

    Attributes:
        index: of the array, by the variables of `loops`.
        loops: as the threads run that use the tile; a walk along rows is the last one.
        columns: of a walk: its first iteration here, and how many there are at most; None: there is no walk.
        low: of a walk, columns before its first iteration, as a number that is not positive.
    """

    array: str
    index: Index
    loops: tuple[ThreadLoop, ...]
    columns: tuple[Poly, int] | None = None
    low: int = 0
    high: int = 0

    @property
    def widths(self) -> list[int]:
        """Elements along each axis."""
        found = [t.most or 1 for t in self.loops]
        return found if self.columns is None else [*found[:-1], self.columns[1] + self.high - self.low]

    def at(self, offset: int = 0) -> Index:
        """The place in the tile of an iteration of the loops, or of the column so many after it."""
        found = [poly(t.var) - t.begin for t in self.loops]
        if self.columns is not None:
            found[-1] = poly(self.loops[-1].var) - self.columns[0] + (offset - self.low)
        return tuple(found)

    def span(self, first: int, last: int) -> tuple[ThreadLoop, ...]:
        """The loops over what a strip touches at columns `first` to `last` from its iterations."""
        if self.columns is None:
            return self.loops
        walk = self.loops[-1]
        most = self.columns[1] + last - first
        return (*self.loops[:-1], replace(walk, begin=walk.begin + first, end=walk.end + last, most=most))

    def before(self, begin: Poly, first: int, end: int) -> tuple[_Tile, tuple[ThreadLoop, ...]]:
        """The tile as it is at the first of all strips, and the loops over what is before it there."""
        assert self.columns is not None
        walk = ThreadLoop(self.loops[-1].var, begin + first, begin + end, 1, end - first)
        return replace(self, columns=(begin, self.columns[1])), (*self.loops[:-1], walk)


@dataclass(frozen=True, slots=True)
class _Strip:
    """A loop in which each thread walks along a row, strip after strip: ``for strip: threads rows: for column``."""

    strips: For
    names: tuple[Let, ...]
    threads: Threads
    walk: For


@dataclass(slots=True)
class _Site:
    """The tiles at one place.

    Attributes:
        loads, stores: what stands for accesses of arrays.
        before: once, before all strips. copies: into the tiles. after: what each thread does at the end of a strip.
        back: out of the tiles.
    """

    loads: dict[Expr, Expr] = field(default_factory=dict)
    stores: dict[tuple[str, Index], tuple[str, Index]] = field(default_factory=dict)
    before: list[Stmt] = field(default_factory=list)
    copies: list[Stmt] = field(default_factory=list)
    after: list[Stmt] = field(default_factory=list)
    back: list[Stmt] = field(default_factory=list)

    def redirected(self, s: Block) -> Block:
        """A block that works on tiles."""
        return replace(s, stores=tuple(map(self._store, s.stores)))

    def _store(self, x: Store) -> Store:
        buffer, index = self.stores.get((x.buffer, x.index), (x.buffer, x.index))
        return replace(x, buffer=buffer, index=index, value=rewrite(x.value, self.loads.get))


class _Coalescing:
    """Makes the tiles of a nest; places with tiles of the same array and size share them.

    Attributes:
        buffers: of the tiles.
        threads: of a block.
        left: bytes of shared memory that are free.
    """

    def __init__(self, nest: Nest, graph: Graph) -> None:
        self.nest, self.graph, self.threads = nest, graph, nest.threads
        self.buffers: dict[str, Buffer] = {}
        taken = shared_bytes(nest.buffers.values(), graph.dtypes)
        self.left = 0 if taken is None else MAX_BYTES - taken

    def body(self, body: Body) -> Body:
        return tuple(t for s in body for t in self.visit(s))

    def visit(self, s: Stmt) -> Body:
        match s:
            case Threads():
                return self.at_once(s)
            case For() if (strip := _strip_of(s)) is not None:
                return self.in_strips(strip)
        return (with_bodies(s, self.body),)

    # -- threads that read across what they write
    def at_once(self, s: Threads) -> Body:
        blocks = [t for t in s.body if isinstance(t, Block)]
        if len(blocks) != len(s.body) or not _are_plain(s.loops):
            return (s,)
        site = _Site()
        for x in self.readable(blocks):
            tile = _Tile(x.source, x.index, s.loops)
            if self.goes_across(tile):
                self.stage_load(site, tile, {x: 0})
        return (*site.copies, replace(s, body=tuple(map(site.redirected, blocks)))) if site.loads else (s,)

    # -- threads that walk along rows
    def in_strips(self, s: _Strip) -> Body:
        blocks = [t for t in s.walk.body if isinstance(t, Block)]
        loops = (*s.threads.loops, ThreadLoop(s.walk.var, s.walk.begin, s.walk.end, 1, s.strips.step))
        site = _Site()
        for tile, offsets, put in self.own_rows(s, blocks, loops):
            self.stage_row(site, s, tile, offsets, put)
        found: dict[tuple[str, Index], dict[Load, int]] = {}
        for x in self.readable(blocks):
            index, offset = _base(x.index, s.walk.var)
            found.setdefault((x.source, index), {})[x] = offset
        for (array, index), offsets in found.items():
            tile = _row_tile(array, index, loops, s, offsets.values())
            if self.goes_across(tile):
                self.stage_load(site, tile, offsets)
        if not site.loads and not site.stores:
            return (s.strips,)
        rows = math.prod(t.most or 1 for t in s.threads.loops)
        self.threads = max(self.threads, min(-(-rows * s.strips.step // WARP) * WARP, THREADS))
        walk = replace(s.walk, body=tuple(map(site.redirected, blocks)))
        threads = replace(s.threads, body=(walk, *site.after))
        strips = replace(s.strips, body=(*s.names, *site.copies, threads, *site.back))
        return (If(s.strips.end - s.strips.begin - 1, (*site.before, strips)),) if site.before else (strips,)

    def own_rows(
        self, s: _Strip, blocks: Sequence[Block], loops: tuple[ThreadLoop, ...]
    ) -> Iterator[tuple[_Tile, dict[Load, int], tuple[Store, int]]]:
        """The rows that the walk writes, each with what reads it and the store, and how many columns from the
        iteration; none where they may have elements in common."""
        stage, var = self.nest.stage, s.walk.var
        stores = [x for b in blocks for x in b.stores]
        reads = [x for x in loads(*(x.value for x in stores)) if x.source == stage]
        by_index = {_base(x.index, var)[0]: x for x in stores}
        moving = {v for t in loops for v in (t.var,)}
        bases = list(dict.fromkeys([*by_index, *(_base(x.index, var)[0] for x in reads)]))
        is_apart = all(_are_apart(p, q, moving) for k, p in enumerate(bases) for q in bases[:k])
        if len(by_index) != len(stores) or not is_apart or not all(_walks(p, var) for p in bases):
            return
        for index, x in by_index.items():
            put = _base(x.index, var)[1]
            offsets = {y: o for y in reads for base, o in (_base(y.index, var),) if base == index}
            tile = _row_tile(stage, index, loops, s, [*offsets.values(), put])
            if self.goes_across(tile) and put - tile.low <= MAX_HALO:
                yield tile, offsets, (x, put)

    def stage_row(
        self, site: _Site, s: _Strip, tile: _Tile, offsets: Mapping[Load, int], store: tuple[Store, int]
    ) -> None:
        """A row that is written: what is before a strip stays in the tile, what is after it is loaded."""
        name = self.buffer(site, tile)
        if name is None:
            return
        x, put = store
        first, halo = tile.before(s.strips.begin, tile.low, put)
        site.stores[x.buffer, x.index] = name, tile.at(put)
        site.loads |= {load: Load(name, tile.at(o), load.dtype) for load, o in offsets.items()}
        if any(o >= put for o in offsets.values()):
            site.copies.append(self.copy(tile, name, tile.span(put, tile.high)))
        site.back.append(self.copy(tile, name, tile.span(put, put), back=True))
        if put > tile.low:
            site.before.append(self.copy(first, name, halo))
            site.after.append(self.kept(tile, name, put - tile.low))

    def kept(self, tile: _Tile, name: str, halo: int) -> For:
        """The last columns of a strip as those before the next one."""
        assert tile.columns is not None
        column = Var(f"{name}.column")
        *rows, _ = tile.at()
        dtype = self.graph.dtypes[tile.array]
        value = Load(name, (*rows, poly(column) + tile.columns[1]), dtype)
        return For(column, ZERO, poly(halo), 1, (Block((Store(name, (*rows, poly(column)), value),)),))

    # -- tiles
    def readable(self, blocks: Iterable[Block]) -> Iterator[Load]:
        """The loads of arrays that the nest does not compute, and whose place is known without other loads."""
        for x in loads(*(e for b in blocks for e in stmt_exprs(b))):
            is_gather = any(p.has(Indirect) for p in x.index)
            if x.source not in self.nest.writes and x.source not in self.nest.buffers and not is_gather:
                yield x

    def stage_load(self, site: _Site, tile: _Tile, offsets: Mapping[Load, int]) -> None:
        name = self.buffer(site, tile)
        if name is not None:
            site.copies.append(self.copy(tile, name, tile.span(tile.low, tile.high)))
            site.loads |= {x: Load(name, tile.at(o), x.dtype) for x, o in offsets.items()}

    def copy(self, tile: _Tile, name: str, loops: tuple[ThreadLoop, ...], back: bool = False) -> Threads:
        """Elements of an array into its tile, or back; consecutive threads along its rows."""
        loops = tuple(sorted(loops, key=lambda t: self.rank(tile, t.var)))
        dtype = self.graph.dtypes[tile.array]
        ends = [(tile.array, tile.index), (name, tile.at())]
        (source, at), (target, to) = reversed(ends) if back else ends
        return Threads(loops, (Block((Store(target, to, Load(source, at, dtype)),)),))

    def buffer(self, site: _Site, tile: _Tile) -> str | None:
        """The shared memory of a tile; None where there is no more of it."""
        dtype = self.graph.dtypes[tile.array]
        *others, last = tile.widths
        lengths = tuple(map(poly, (*others, _padded(last, dtype.itemsize, self.across(tile)))))
        size = dtype.itemsize * math.prod(n.const for n in lengths)
        used = {x.source for x in site.loads.values() if isinstance(x, Load)} | {n for n, _ in site.stores.values()}
        number = 0
        while True:
            number += 1
            name = f"{tile.array}.tile{number if number > 1 else ''}"
            if name not in self.buffers:
                if size > self.left:
                    return None
                self.left -= size
                zero = (ZERO,) * len(lengths)
                self.buffers[name] = Buffer(name, zero, lengths, C_ORDER, shared=True, dtype=dtype)
                return name
            if name not in used and self.buffers[name].lengths == lengths:
                return name

    # -- which accesses need one
    def rank(self, tile: _Tile, var: Var) -> int:
        """Which axis of the array in memory moves with a variable, the fastest one last; -1: none."""
        order = memory_order(self.graph, tile.array) or ()
        return max((k for k, axis in enumerate(order) if tile.index[axis].mentions(var)), default=-1)

    def across(self, tile: _Tile) -> int:
        """How many threads side by side are in rows of the tile of their own."""
        if tile.columns is not None:
            return math.prod(tile.widths[:-1])
        along = max(tile.loops, key=lambda t: self.rank(tile, t.var))
        return along.most or 1

    def goes_across(self, tile: _Tile) -> bool:
        """Do neighbouring threads touch less than a sector side by side, and more where they run along the rows?"""
        if memory_order(self.graph, tile.array) is None:
            return False
        widths = dict(zip((t.var for t in tile.loops), tile.widths, strict=True))
        ranks = {v: r for v in widths if (r := self.rank(tile, v)) >= 0 and widths[v] > 1}
        rows = [t.var for t in (tile.loops if tile.columns is None else tile.loops[:-1]) if t.var in ranks]
        along = sorted(ranks, key=ranks.__getitem__)
        if not rows or len(set(ranks.values())) < len(ranks):
            return False
        side_by_side = 1
        while rows and rows[-1] == along[-1]:
            side_by_side *= widths[rows.pop()]
            along.pop()
        size = self.graph.dtypes[tile.array].itemsize
        return bool(rows) and side_by_side * size < SECTOR


# -- walks


def _strip_of(s: For) -> _Strip | None:
    """The walk that a loop is."""
    *names, last = s.body
    if s.kind != "serial" or s.step == 1 or s.limit is not None or s.first is not None:
        return None
    if not isinstance(last, Threads) or not _are_plain(last.loops) or len(last.body) != 1:
        return None
    (walk,) = last.body
    lets = tuple(t for t in names if isinstance(t, Let))
    if not isinstance(walk, For) or not all(isinstance(t, Block) for t in walk.body) or len(lets) != len(names):
        return None
    blocks = [t for t in walk.body if isinstance(t, Block)]
    is_plain = walk.step == 1 and walk.limit is None and walk.first is None and walk.begin == poly(s.var)
    is_plain = is_plain and (upper_bound(walk.end - walk.begin) or 0) <= s.step and not any(b.sets for b in blocks)
    stores = [x for b in blocks for x in b.stores]
    is_own = len({x.buffer for x in stores}) == 1 and all(x.atomic is None for x in stores)
    return _Strip(s, lets, last, walk) if is_plain and is_own else None


def _are_plain(loops: Sequence[ThreadLoop]) -> bool:
    """Loops over single elements, of which it is known how many there are at most."""
    return bool(loops) and all(t.step == 1 and t.most is not None for t in loops)


def _base(index: Index, var: Var) -> tuple[Index, int]:
    """An index by the column ``var + offset``: what is read at several columns has one index in common."""
    axes = [k for k, p in enumerate(index) if p.mentions(var)]
    if len(axes) == 1:
        (axis,) = axes
        c = index[axis].coefficient(var)
        if c is not None and c.is_const and abs(c.const) == 1:
            p = index[axis]
            return (*index[:axis], p - p.const, *index[axis + 1 :]), c.const * p.const
    return index, 0


def _walks(base: Index, var: Var) -> bool:
    """Does each iteration of a walk touch an element of its own of a row?"""
    steps = [p.coefficient(var) for p in base if p.mentions(var)]
    return len(steps) == 1 and steps[0] is not None and steps[0].is_const and abs(steps[0].const) == 1


def _are_apart(a: Index, b: Index, moving: set[Var]) -> bool:
    """Have two rows nothing in common, whatever the iteration?"""
    fixed = [(p, q) for p, q in zip(a, b, strict=True) if not any(p.mentions(v) or q.mentions(v) for v in moving)]
    return any((p - q).is_const and p != q for p, q in fixed)


def _row_tile(array: str, index: Index, loops: tuple[ThreadLoop, ...], s: _Strip, offsets: Iterable[int]) -> _Tile:
    """The part of rows that a strip touches."""
    found = [*offsets]
    return _Tile(array, index, loops, (s.walk.begin, s.strips.step), min(found), max(found))


def _padded(width: int, itemsize: int, across: int) -> int:
    """The elements of a row of a tile, of which so many threads touch one each in a row of their own: they are in
    different banks, and the rest of a warp beside them."""
    unit = max(itemsize, BANK)
    step = max(BANKS * BANK // unit // across, 1)
    size = -(-width * itemsize // unit)
    return (size + (step - size) % (2 * step)) * unit // itemsize
