"""Runs the loops of lowered nests at given sizes, without their arithmetic, and counts what is stored: the oracle of
`tests.sched.test_loop_counts`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hjit.kernels.lower.loopir import (
    Block,
    Choose,
    For,
    If,
    Let,
    Reduce,
    ResetWindow,
    Scan,
    SlidingProduce,
    Stmt,
    VectorLoop,
)
from hjit.kernels.lower.place_loops import BEGIN, END
from hjit.kernels.lower.program import Nest, Program
from hjit.trace.ir.poly import Atom, Poly, Sym


@dataclass
class Stored:
    """What is stored of one stage: vectors, single elements, and elements in all."""

    vectors: int = 0
    scalars: int = 0
    points: int = 0


@dataclass
class Counting:
    """The state of one run.

    Attributes:
        sizes: by the names of symbols.
        values: of the names and loop variables that are bound.
        reached: how far each stage that slides has come.
        lanes: of the vectors around; 1: single elements.
        times: how often what runs is to be counted.
    """

    sizes: Mapping[str, int]
    values: dict[Atom, int] = field(default_factory=dict)
    reached: dict[str, int] = field(default_factory=dict)
    stored: dict[str, Stored] = field(default_factory=lambda: defaultdict(Stored))
    lanes: int = 1
    times: int = 1

    def number(self, p: Poly) -> int:
        return p.evaluate(self._atom) if p.terms else p.const

    def _atom(self, a: Atom) -> int:
        return self.sizes[a.name] if isinstance(a, Sym) else self.values[a]

    def nest(self, n: Nest, tasks: int) -> None:
        """All iterations of a nest, shared out in so many tasks."""
        count = 1 if n.count is None else self.number(n.count)
        each = max(-(-count // tasks), 1)
        for begin in range(0, count, each):
            self.values |= {BEGIN: begin, END: min(begin + each, count)}
            self.reached.clear()
            self.run(n.body)

    def run(self, body: Sequence[Stmt]) -> None:
        for s in body:
            self.step(s)

    def step(self, s: Stmt) -> None:
        number = self.number
        match s:
            case Let():
                self.values[s.var] = number(s.value)
            case Choose():
                self.values[s.var] = number(s.yes if number(s.test) >= 0 else s.no)
            case For():
                for k in range(number(s.begin), number(s.end), s.step):
                    self.values[s.var] = k if s.limit is None else min(k, number(s.limit) - s.step)
                    self.run(s.body)
            case VectorLoop():
                self.vector_loop(s)
            case If():
                self.run(s.body if number(s.value) >= 0 else s.otherwise)
            case ResetWindow():
                self.reached.pop(s.stage, None)
            case SlidingProduce():
                first, end = number(s.first), number(s.end)
                self.values[s.var] = max(first, self.reached.get(s.stage, first))
                self.run(s.body)
                if s.last:
                    self.reached[s.stage] = max(end, self.reached.get(s.stage, end))
            case Block():
                for x in s.stores:
                    self.count(x.buffer, 1)
            case Reduce():
                trips = [max(-(-(number(t.end) - number(t.begin)) // t.step), 0) for t in s.loops]
                lanes = s.loops[-1].lanes  # what is left of its iterations runs one by one
                outside = len(s.items) * math.prod(trips[:-1])
                self.count(s.buffer, outside * (trips[-1] // lanes), lanes)
                self.count(s.buffer, outside * (trips[-1] % lanes) if lanes > 1 else 0)
            case Scan():
                self.count(s.buffer, max(number(s.end) - number(s.begin), 0))
            case _:
                raise AssertionError(s)

    def vector_loop(self, s: VectorLoop) -> None:
        """Vectors, and what is left over."""
        begin, end = self.number(s.begin), self.number(s.end)
        n = max(end - begin, 0)
        whole = (
            -(-n // s.lanes) if s.tail == "predicate" or (s.tail == "shift_inwards" and n >= s.lanes) else n // s.lanes
        )
        self.values[s.var] = begin
        self.repeated(s.body, whole, s.lanes)
        self.repeated(s.remainder, max(n - whole * s.lanes, 0), 1)

    def repeated(self, body: Sequence[Stmt], times: int, lanes: int) -> None:
        if times:
            before = self.times, self.lanes
            self.times, self.lanes = self.times * times, lanes
            self.run(body)
            self.times, self.lanes = before

    def count(self, buffer: str, times: int, along: int = 1) -> None:
        """So many single elements, or vectors where vectors run around the loop, or as many `along` it."""
        found, n, lanes = self.stored[buffer], times * self.times, self.lanes * along
        found.points += n * lanes
        if lanes == 1:
            found.scalars += n
        else:
            found.vectors += n


def stored(program: Program, sizes: Mapping[str, int], tasks: Mapping[str, int]) -> dict[str, Stored]:
    """What the nests of a program store of each stage.

    Args:
        tasks: of each nest, by the name of its stage.
    """
    found: dict[str, Stored] = defaultdict(Stored)
    for nest in program.nests:
        renaming = nest.renaming
        own = sizes if renaming is None else {old: sizes[new] for old, new in renaming.sizes.items()}
        names = {} if renaming is None else renaming.arrays
        counting = Counting(own)
        counting.nest(nest if renaming is None else program.nests[renaming.nest], tasks[nest.stage])
        for name, x in counting.stored.items():
            total = found[names.get(name, name)]
            total.vectors, total.scalars, total.points = (
                total.vectors + x.vectors, total.scalars + x.scalars, total.points + x.points
            )  # fmt: skip
    return found
