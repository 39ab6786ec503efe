"""What a thread reads or writes side by side, in one access.

A block of statements that has been unrolled along rows stores neighbours. Those of an array that make up 4, 8 or 16
bytes are a `Row`, and so is what it reads at the same distance from their beginning: where one is aligned, so are the
others, but for what rows of an image are no multiple of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hjit.kernels.lower.loopir import Block, Nest, Row, Stmt
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.traverse import every, sources, stmt_exprs, with_bodies
from hjit.trace.ir.graph import Graph, loads
from hjit.trace.ir.poly import Indirect, Poly, deep_atoms

BYTES = (16, 8, 4)  # of one access


def widen_accesses(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """The nest whose blocks of statements say what is side by side."""
    read = set(sources(nest.body))
    written = {x.buffer for s in every(nest.body) if isinstance(s, Block) for x in s.stores}
    rows = {i.name for i in graph.inputs if i.layout and i.layout[-1] == 1} | {s.name for s in graph.stages if s.shape}
    # elements and whole rows of an array that is read and written are not told apart
    wide = rows - (read & written) - nest.buffers.keys()

    def widened(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return replace(s, rows=tuple(_rows(s, wide, graph.dtypes.__getitem__)))
        return with_bodies(s, lambda body: tuple(map(widened, body)))

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
        if not any(isinstance(a, Indirect) for p in index for a in deep_atoms(p)):
            found.setdefault((array, tuple(outer), last - last.const), set()).add(last.const)
    return [_Side(*key, tuple(sorted(at))) for key, at in found.items()]
