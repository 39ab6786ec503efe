"""Interval arithmetic on indices: which part of an axis a range of iterations reads.

Two kinds of bounds of the same expression are kept together. The exact one respects array bounds and is what must be
computed; the loose one ignores boundary handling, so that its length is a constant and memory can be sized by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hjit.trace.poly import ZERO, Atom, Bound, Dim, Extremum, FloorDiv, Mod, Poly, Sym, Var, extremum, poly


@dataclass(frozen=True, slots=True)
class Interval:
    """``low .. high``, both included, and the same without boundary handling."""

    low: Poly
    high: Poly
    loose_low: Poly
    loose_high: Poly

    @staticmethod
    def point(p: Poly) -> Interval:
        return Interval(p, p, p, p)

    @staticmethod
    def of(low: Poly, high: Poly) -> Interval:
        return Interval(low, high, low, high)

    @property
    def length(self) -> Poly:
        """How many elements it has at most."""
        return self.loose_high - self.loose_low + 1

    def hull(self, other: Interval) -> Interval:
        """The smallest interval around both."""
        return Interval(
            extremum("min", self.low, other.low), extremum("max", self.high, other.high),
            extremum("min", self.loose_low, other.loose_low), extremum("max", self.loose_high, other.loose_high),
        )

    def plus(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high, self.loose_low + other.loose_low, self.loose_high + other.loose_high)

    def times(self, c: int) -> Interval:
        ends = Interval(self.low * c, self.high * c, self.loose_low * c, self.loose_high * c)
        return ends if c >= 0 else Interval(ends.high, ends.low, ends.loose_high, ends.loose_low)

    def clipped(self, extent: Poly) -> Interval:
        """The exact bounds brought into an axis of length `extent`."""
        low = extremum("min", extremum("max", self.low, ZERO), extent - 1)
        return Interval(low, extremum("max", low, extremum("min", self.high, extent - 1)), self.loose_low, self.loose_high)


def interval(p: Poly, dims: Mapping[int, Interval]) -> Interval | None:
    """Bounds of an index, `dims` giving those of each dimension; None where they cannot be told, or fall as a dimension grows."""
    total = Interval.point(poly(p.const))
    for m, c in p.terms.items():
        if all(isinstance(a, (Sym, Var)) for a in m):
            total = total.plus(Interval.point(Poly({m: c}, 0)))
            continue
        if len(m) != 1 or c < 0:
            return None
        part = _atom(m[0], dims)
        if part is None:
            return None
        total = total.plus(part.times(c))
    return total


def _atom(a: Atom, dims: Mapping[int, Interval]) -> Interval | None:
    match a:
        case Dim():
            return dims.get(a.k)
        case FloorDiv() if a.by.is_const:
            inner = interval(a.arg, dims)
            return None if inner is None else Interval(*(x // a.by for x in (inner.low, inner.high, inner.loose_low, inner.loose_high)))
        case Extremum():
            x, y = interval(a.a, dims), interval(a.b, dims)
            if x is None or y is None:
                return None
            pairs = ((x.low, y.low), (x.high, y.high), (x.loose_low, y.loose_low), (x.loose_high, y.loose_high))
            return Interval(*(extremum(a.which, p, q) for p, q in pairs))
        case Bound():
            inner = interval(a.arg, dims)
            return None if inner is None else _bounded(a, inner)
        case Mod():
            return None
    return None


def _bounded(a: Bound, x: Interval) -> Interval | None:
    """What boundary handling makes of an interval: mirrored parts fold back into the axis."""
    last = a.extent - 1
    match a.mode:
        case "clamp":
            low, high = x.low, x.high
        case "reflect":
            low, high = extremum("min", x.low, last * 2 - x.high), extremum("max", x.high, -x.low)
        case "symmetric":
            low, high = extremum("min", x.low, last * 2 + 1 - x.high), extremum("max", x.high, -x.low - 1)
        case _:
            return None
    return Interval(low, high, x.loose_low, x.loose_high).clipped(a.extent)
