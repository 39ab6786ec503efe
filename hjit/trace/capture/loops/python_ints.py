"""Ints of Python that a loop carries: Python's have no end, those of a kernel have 64 bits.

A variable is kept in 64 bits where it cannot come near their end: what all iterations add to it is bounded, and so is
what it is set to. Then it stays within ``-2**53 .. 2**53``, which a float64 holds, too. Where that is not known, each
iteration checks it, and Python runs where it does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from hjit.trace.ir.analysis.ranges import RANGES, Range, Ranges
from hjit.trace.ir.expressions import Expr, Index, Load, Op, walk
from hjit.trace.ir.graph import Stage
from hjit.trace.ir.poly import Atom, Poly, Sym
from hjit.trace.tracing.recording.loops.rerolled import HALF, MOST

MAX_ROUNDS, WIDE_ROUNDS = 8, 4  # of looking what iterations make of ranges; after some, those that grow are left out
_INT64 = np.dtype(np.int64)
_GROWING = frozenset("add subtract multiply negative left_shift power square absolute".split())


@dataclass(frozen=True, slots=True)
class CarriedInt:
    """An array without axes that holds an int of Python.

    Attributes:
        initial: what it begins with.
        growth: how far it may come from that; None: that says nothing.
        within: the least and the greatest that it can be.
    """

    initial: Expr
    growth: int | None = 0
    within: Range = (-MOST, MOST)


class CarriedInts(Ranges):
    """The integers that expressions of an iteration can be.

    Args:
        stages: that were recorded.
        carried: the arrays that hold carried ints.
        most: of each variable of a loop its greatest value.
        sizes: the run-time sizes by name.
        small: arrays of ints that stay within ``-MOST .. MOST``.
    """

    def __init__(
        self,
        stages: Mapping[str, Stage],
        carried: Mapping[str, CarriedInt],
        most: Mapping[Atom, int],
        sizes: Mapping[str, int],
        small: AbstractSet[str] = frozenset(),
    ) -> None:
        super().__init__(stages)
        self.carried, self.most, self.sizes, self.small = carried, most, sizes, small

    def of(self, e: Expr, known: dict[Expr, Range | None] | None = None) -> Range | None:
        known = {} if known is None else known
        known.update({x: self._index(x.poly) for x in walk(e) if isinstance(x, Index) and x not in known})
        return super().of(e, known)

    def of_array(self, name: str) -> Range | None:
        carried = self.carried.get(name)
        if name in self.small:
            return -MOST, MOST
        return carried.within if carried is not None else super().of_array(name)

    def settle(self, begins: Mapping[str, Expr], left: Mapping[str, Sequence[Expr]]) -> dict[str, CarriedInt]:
        """Those of some arrays that stay in a range, whatever iterations do: these come to leave it as they find it.

        Args:
            begins: what they hold before the loop.
            left: what iterations leave in them.
        """
        within: dict[str, Range] = {}
        for name, e in begins.items():
            first = self.of(e)
            if first is not None:
                within[name] = first
        for done in range(MAX_ROUNDS):
            carried = {**self.carried, **{n: CarriedInt(begins[n], None, r) for n, r in within.items()}}
            own = CarriedInts(self.stages, carried, self.most, self.sizes, self.small)  # knows no temporaries yet
            after = {n: own.joined(n, within[n], left[n]) for n in within}
            changed = {n for n, r in after.items() if r != within[n]}
            grown = changed if done >= WIDE_ROUNDS else ()
            within = {n: r for n, r in after.items() if r is not None and n not in grown}
            if not changed:
                return {n: CarriedInt(begins[n], None, r) for n, r in within.items()}
        return {}

    def joined(self, name: str, within: Range, left: Sequence[Expr]) -> Range | None:
        """A range with what iterations leave that find numbers in the known ones; None where that is too much."""
        low, high = within
        for e in left:
            if isinstance(e, Load) and e.source == name:
                continue
            found = self.of(e)
            if found is None:
                return None
            low, high = min(low, found[0]), max(high, found[1])
        return (low, high) if max(-low, high) <= HALF else None

    def _index(self, p: Poly) -> Range | None:
        """The least and the greatest value of an index; None where it is not a polynomial of sizes and variables."""
        low = high = p.const
        for monomial, factor in p.terms.items():
            most = factor
            for a in monomial:
                n = self.sizes.get(a.name) if isinstance(a, Sym) else self.most.get(a)
                if n is None:
                    return None
                most *= max(n, 0)
            low, high = low + min(most, 0), high + max(most, 0)
        return low, high

    def moves(self, e: Expr, own: str = "") -> int | None:
        """How far from array `own` a number is, or 0 where that is not in it and `HALF` at most; None: any distance."""
        match e:
            case Load() if e.source == own:
                return 0
            case Load() if e.source in self.carried and self.carried[e.source].growth is not None:
                carried = self.carried[e.source]
                return _sum(self.moves(carried.initial, own), carried.growth)
            case Load() if self._is_named(e.source):
                initial = self.stages[e.source].initial
                assert initial is not None
                return self.moves(initial, own)
            case Op(name="select" | "maximum" | "minimum"):
                ways = [self.moves(x, own) for x in e.args[-2:]]
                return None if None in ways else max(w for w in ways if w is not None)
            case Op(name="add" | "subtract") if e.dtype == _INT64:
                a, b = e.args
                for x, y in ((a, b), (b, a)) if e.name == "add" else ((a, b),):
                    by = self.of(y)
                    if by is not None and max(-by[0], by[1]) < MOST:
                        return _sum(self.moves(x, own), max(-by[0], by[1]))
        found = self.of(e)
        return 0 if found is not None and max(-found[0], found[1]) <= HALF else None

    def _is_named(self, name: str) -> bool:
        """Is an array nothing but the name of a number?"""
        s = self.stages.get(name)
        return s is not None and not s.shape and not s.updates and s.initial is not None

    def overflow(self, stages: Iterable[Stage]) -> bool:
        """May an operation on ints of Python leave 64 bits, in stages that hold their results?"""
        return any(self._overflows(x) for s in stages for e in s.exprs() for x in walk(e))

    def _overflows(self, x: Expr) -> bool:
        if not isinstance(x, Op) or x.dtype != _INT64 or x.name not in _GROWING:
            return False
        args = [a for a in map(self.of, x.args) if a is not None]
        if len(args) < len(x.args) or x.name not in RANGES:
            return True
        found = RANGES[x.name](args)
        return found is None or found[0] < -(2**63) or found[1] >= 2**63


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
