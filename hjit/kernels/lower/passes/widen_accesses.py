"""Wide accesses: adjacent elements that a thread reads or writes become one access.

A block of statements that was unrolled along rows stores adjacent elements. If those of an array make up 4, 8 or 16
bytes, they become a `Row`, and so do the elements that the block reads at the same relative positions: if one is
aligned, the others are as well, unless the rows of an image have another length. In shared memory, adjacent reads of a
thread are a `Row` if their start is a multiple of its length for every thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.kernels.lower.loopir import Block, Row, Stmt, ThreadLoop, Threads
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Buffer, Nest
from hjit.kernels.lower.traverse import every, sources, stmt_exprs, with_bodies
from hjit.sched.language.memory import C_ORDER
from hjit.trace.ir.expressions import loads
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import ONE, ZERO, Indirect, Poly, Var, poly

BYTES = (16, 8, 4)  # of one access


def widen_accesses(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Find adjacent accesses in blocks of statements, and make each a `Row`."""
    read = set(sources(nest.body))
    written = {x.buffer for s in every(nest.body) if isinstance(s, Block) for x in s.stores}
    rows = {i.name for i in graph.inputs if i.layout and i.layout[-1] == 1} | {s.name for s in graph.stages if s.shape}
    # elements and whole rows of an array that is read and written are not told apart
    wide = rows - (read & written) - nest.buffers.keys()

    tiles = {b.stage: b for b in nest.buffers.values() if b.shared and b.dtype is not None and _has_whole_rows(b)}

    def widened(s: Stmt, loops: tuple[ThreadLoop, ...] = ()) -> Stmt:
        if isinstance(s, Block):
            rows = _rows(s, wide, graph.dtypes.__getitem__)
            return replace(s, rows=(*rows, *_shared_rows(s, tiles, loops)))
        inside = s.loops if isinstance(s, Threads) else loops
        return with_bodies(s, lambda body: tuple(widened(t, inside) for t in body))

    return replace(nest, body=tuple(map(widened, nest.body)))


@dataclass(frozen=True, slots=True)
class _Side:
    """Elements side by side.

    Attributes:
        outer: their index along all axes but the last.
        base: along the last one, without a constant.
        at: these constants, from the least on.
    """

    array: str
    outer: tuple[Poly, ...]
    base: Poly
    at: tuple[int, ...]

    def rows(self, size: int, origin: int) -> Iterator[Row]:
        """As few accesses as there are, each a multiple of its length away from `origin`."""
        there, k = set(self.at), self.at[0]
        while k <= self.at[-1]:
            for n in (b // size for b in BYTES if b // size > 1):
                if (k - origin) % n == 0 and there.issuperset(range(k, k + n)):
                    yield Row(self.array, (*self.outer, self.base + k), n)
                    k += n
                    break
            else:
                k += 1


def _has_whole_rows(b: Buffer) -> bool:
    """Do all rows of a buffer begin at multiples of the longest access?"""
    length = b.lengths[-1] if b.lengths else ONE
    aligned = length.is_const and b.dtype is not None and length.const * b.dtype.itemsize % BYTES[0] == 0
    return aligned and b.layout == C_ORDER and b.fold is None and b.origin[-1] == ZERO


def _shared_rows(s: Block, tiles: Mapping[str, Buffer], loops: tuple[ThreadLoop, ...]) -> Iterator[Row]:
    """What a thread reads side by side of tiles."""
    first = {t.var: t.begin + poly(t.var) * t.step for t in loops}  # of thread `var`, counted from the first one
    for side in _sides([(x.source, x.index) for x in loads(*stmt_exprs(s)) if x.source in tiles]):
        dtype = tiles[side.array].dtype
        assert dtype is not None
        base = side.base.substitute(lambda a: first.get(a) if isinstance(a, Var) else None)
        for row in side.rows(dtype.itemsize, side.at[0]):
            start = base + row.index[-1].const
            if start.const % row.count == 0 and all(c % row.count == 0 for c in start.terms.values()):
                yield row


def _rows(s: Block, wide: set[str], dtype: Callable[[str], np.dtype[Any]]) -> Iterator[Row]:
    """Of a block: what it stores, then what it reads."""
    stores = [(x.buffer, x.index) for x in s.stores if x.atomic is None and x.buffer in wide]
    if len({*stores}) != len(s.stores):
        return
    origins: dict[Poly, int] = {}
    for side in _sides(stores):
        found = list(side.rows(dtype(side.array).itemsize, side.at[0]))
        if found:
            origins.setdefault(side.base, side.at[0])
        yield from found
    for side in _sides([(x.source, x.index) for x in loads(*stmt_exprs(s)) if x.source in wide and x.index]):
        if side.base in origins:
            yield from side.rows(dtype(side.array).itemsize, origins[side.base])


def _sides(elements: Sequence[tuple[str, tuple[Poly, ...]]]) -> list[_Side]:
    found: dict[tuple[str, tuple[Poly, ...], Poly], set[int]] = {}
    for array, index in elements:
        *outer, last = index
        if not any(p.has(Indirect) for p in index):
            found.setdefault((array, tuple(outer), last - last.const), set()).add(last.const)
    return [_Side(*key, tuple(sorted(at))) for key, at in found.items()]
