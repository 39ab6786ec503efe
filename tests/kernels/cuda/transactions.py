"""How many sectors of memory the warps of a block touch, and in how many passes shared memory serves them: the loop IR,
thread by thread, with indices only."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hjit.kernels.lower.loopir import Block, Name, Stmt, Threads
from hjit.kernels.lower.program import Nest, Program
from hjit.kernels.lower.traverse import stmt_exprs
from hjit.sched.language.limits import WARP
from hjit.sched.language.memory import C_ORDER
from hjit.trace.ir.expressions import loads
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Indirect, Poly, deep_atoms, sizes_value
from tests.kernels.cuda.races import Run

SECTOR, BANK, BANKS = 32, 4, 32


@dataclass(frozen=True)
class Traffic:
    """What the warps of blocks do.

    Attributes:
        elements: of arrays that threads read and write, in bytes.
        sectors: of 32 bytes that warps touch, one access after the other.
        passes: of shared memory; without conflicts one for each access of a warp.
        accesses: of shared memory, by warps.
    """

    elements: int
    sectors: int
    passes: int
    accesses: int

    @property
    def efficiency(self) -> float:
        """The part of the bytes moved that threads asked for."""
        return self.elements / (self.sectors * SECTOR)


def traffic(graph: Graph, program: Program, number: int, sizes: Mapping[str, int], block: int = 0) -> Traffic:
    """Of one block of a nest."""
    run = _Counting(graph, program, program.nests[number], sizes, block)
    run.body(run.nest.body, 0)
    return Traffic(run.elements, run.sectors, run.passes, run.shared)


class _Counting(Run):
    def __init__(self, graph: Graph, program: Program, nest: Nest, sizes: Mapping[str, int], block: int) -> None:
        super().__init__(nest, sizes, block)
        self.graph, self.program = graph, program
        self.elements = self.sectors = self.passes = self.shared = 0
        self.bases = {name: k << 40 for k, name in enumerate((*graph.arrays, *nest.buffers))}
        self.times: Counter[tuple[int, int]] = Counter()
        # (access, how often the thread has done it) and warp -> the bytes that its threads touch
        self.touched: dict[tuple[int, str, int, int, int], list[range]] = defaultdict(list)

    def visit(self, s: Stmt, thread: int) -> None:
        super().visit(s, thread)
        if isinstance(s, Threads):
            self.count()

    def count(self) -> None:
        for (_, array, *_), parts in self.touched.items():
            b = self.nest.buffers.get(array)
            if b is None:
                self.elements += sum(len(r) for r in parts)
                self.sectors += len({at // SECTOR for r in parts for at in r})
            elif b.shared:
                words = {at // BANK for r in parts for at in r}
                self.passes += max(Counter(w % BANKS for w in words).values())
                self.shared += 1
        self.touched.clear()
        self.times.clear()

    def accesses(self, s: Block | Name, thread: int) -> None:
        done = self.times[id(s), thread] = self.times[id(s), thread] + 1
        for k, (array, places) in enumerate(self.parts(s)):
            size, first = self.itemsize(array), self.address(array, places[0])
            key = (id(s), array, k, done, thread // WARP)
            self.touched[key].append(range(first, first + size * len(places)))

    def parts(self, s: Block | Name) -> Iterator[tuple[str, list[Sequence[Poly]]]]:
        """The accesses of a statement, each of elements side by side."""
        rows = s.rows if isinstance(s, Block) else ()
        wide = {(r.array, r.at(k)) for r in rows for k in range(r.count)}
        yield from ((r.array, [r.at(k) for k in range(r.count)]) for r in rows)
        single = [(x.source, x.index) for x in loads(*stmt_exprs(s))]
        single += [(x.buffer, x.index) for x in s.stores] if isinstance(s, Block) else []
        for array, index in single:
            is_gather = any(isinstance(a, Indirect) for p in index for a in deep_atoms(p))
            if (array, index) not in wide and not is_gather:
                yield array, [index]

    def itemsize(self, array: str) -> int:
        b = self.nest.buffers.get(array)
        return (self.graph.dtypes[array] if b is None or b.dtype is None else b.dtype).itemsize

    def address(self, array: str, index: Sequence[Poly]) -> int:
        b = self.nest.buffers.get(array)
        at = [self.value(p) for p in index]
        if b is None:
            shape, layout = self.graph.shapes[array], self.program.layouts.get(array, C_ORDER)
        else:
            at, shape, layout = [x - self.value(p) for x, p in zip(at, b.origin, strict=True)], b.lengths, b.layout
            if b.fold is not None:
                at[b.fold] %= self.value(b.lengths[b.fold])
        i = self.graph.input_by_name.get(array)
        strides = [sizes_value(p, self.sizes) for p in layout.strides(shape)]
        if i is not None and i.layout and i.layout[-1] != 1 and 1 in i.layout:  # an argument in Fortran's order
            strides = [math.prod(sizes_value(p, self.sizes) for p in shape[:k]) for k in range(len(shape))]
        return self.bases[array] + self.itemsize(array) * sum(x * n for x, n in zip(at, strides, strict=True))
