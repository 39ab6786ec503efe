"""Interval arithmetic on indices: which part of an axis a range of iterations reads.

A `Interval` keeps two bounds of the same thing. The exact one is what must be computed. The loose one has the form
``base + first .. base + last``, where only `base` depends on loop variables, so that it moves steadily with them and
its length is known before they run: memory is sized by it, and windows slide along it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hjit.trace.ir.poly import (
    ZERO,
    Atom,
    Boundary,
    Dim,
    Extremum,
    FloorDiv,
    Mod,
    Poly,
    Sym,
    Var,
    deep_atoms,
    extremum,
    least,
    poly,
)


@dataclass(frozen=True, slots=True)
class Interval:
    """``low .. high``, both included, inside ``base + first .. base + last``.

    Attributes:
        partial: may it be empty, `high` below `low`? It is what a definition needs that writes only part of its stage. Then `low` is
            still not below the loose bounds, nor `high` above them, so that a hull with others stays inside of theirs.
    """

    low: Poly
    high: Poly
    base: Poly
    first: Poly
    last: Poly
    partial: bool = False

    @staticmethod
    def of(low: Poly, high: Poly) -> Interval:
        """Bounds that are known before any loop runs."""
        return Interval(low, high, ZERO, low, high)

    @staticmethod
    def point(p: Poly) -> Interval:
        """One index."""
        moving = Poly({m: c for m, c in p.terms.items() if any(_moves(a) for a in m)}, 0)
        rest = p - moving
        return Interval(p, p, moving, rest, rest)

    @staticmethod
    def tile(low: Poly, size: int, high: Poly | None = None) -> Interval:
        """`size` indices from `low` on, fewer of them where `high` is the last one."""
        last = low + (size - 1)
        return Interval(low, last if high is None else extremum("min", last, high), low, ZERO, poly(size - 1))

    @property
    def length(self) -> Poly:
        """How many elements it has at most."""
        return self.last - self.first + 1

    def hull(self, other: Interval) -> Interval | None:
        """The smallest interval around both; None where they move apart."""
        shift = other.base - self.base
        if any(_moves(a) for a in shift.atoms()):
            return None
        low, high = extremum("min", self.low, other.low), extremum("max", self.high, other.high)
        first, last = extremum("min", self.first, other.first + shift), extremum("max", self.last, other.last + shift)
        return Interval(low, high, self.base, first, last, self.partial and other.partial)

    def plus(self, other: Interval) -> Interval:
        first, last = self.first + other.first, self.last + other.last
        return Interval(
            self.low + other.low,
            self.high + other.high,
            self.base + other.base,
            first,
            last,
            self.partial or other.partial,
        )

    def times(self, c: int) -> Interval:
        if c < 0:
            return Interval(self.high * c, self.low * c, self.base * c, self.last * c, self.first * c, self.partial)
        return Interval(self.low * c, self.high * c, self.base * c, self.first * c, self.last * c, self.partial)

    def floordiv(self, by: int) -> Interval:
        base = self.base // by
        whole = all(c % by == 0 for c in self.base.terms.values()) and self.base.const % by == 0
        last = self.last // by if whole else (self.last + (by - 1)) // by
        return Interval(self.low // by, self.high // by, base, self.first // by, last, self.partial)

    def clipped(self, extent: Poly) -> Interval:
        """The exact bounds brought into an axis of length `extent`; not empty, unless it is a part that may be."""
        if self.low == ZERO and self.high == extent - 1:
            return whole(extent)
        if self.partial:
            return replace(self, low=extremum("max", self.low, ZERO), high=extremum("min", self.high, extent - 1))
        low = ZERO if self.low == ZERO else extremum("min", extremum("max", self.low, ZERO), extent - 1)
        last = self.last if _is_never_negative(self.last - self.first) else extremum("max", self.last, self.first)
        return Interval(low, extremum("max", low, extremum("min", self.high, extent - 1)), self.base, self.first, last)


def _is_never_negative(n: Poly) -> bool:
    """Whatever the sizes are, which are above `SMALL`? No where that cannot be told."""
    return all(c > 0 and all(isinstance(a, Sym) for a in m) for m, c in n.terms.items()) and least(n) >= 0


def whole(extent: Poly) -> Interval:
    """A whole axis."""
    return Interval.of(ZERO, extent - 1)


def _moves(a: Atom) -> bool:
    """Does an atom depend on a loop variable?"""
    return any(isinstance(b, (Var, Dim)) for b in deep_atoms(poly(a)))


def interval(p: Poly, dims: Mapping[int, Interval], full: Mapping[int, Interval]) -> Interval | None:
    """Bounds of an index, `dims` giving those of each dimension here, `full` its whole range; None where they cannot be told."""
    total = Interval.of(poly(p.const), poly(p.const))
    for m, c in p.terms.items():
        if all(isinstance(a, (Sym, Var)) for a in m):
            total = total.plus(Interval.point(Poly({m: c}, 0)))
            continue
        part = _atom(m[0], dims, full) if len(m) == 1 else None
        if part is None:
            return None
        total = total.plus(part.times(c))
    return total


def _atom(a: Atom, dims: Mapping[int, Interval], full: Mapping[int, Interval]) -> Interval | None:
    match a:
        case Dim():
            return dims.get(a.k)
        case FloorDiv() if a.by.is_const:
            inner = interval(a.arg, dims, full)
            return None if inner is None else inner.floordiv(a.by.const)
        case Mod():
            return Interval.of(ZERO, a.by - 1)
        case Extremum():
            x, y = interval(a.a, dims, full), interval(a.b, dims, full)
            if x is None or y is None:
                return None
            both = x.hull(y)
            if both is None:
                return None
            low, high = extremum(a.which, x.low, y.low), extremum(a.which, x.high, y.high)
            return Interval(low, high, both.base, both.first, both.last, x.partial or y.partial)
        case Boundary():
            inner, reach = interval(a.arg, dims, full), interval(a.arg, full, full)
            return None if inner is None or reach is None else _bounded(a, inner, reach)
    return None


def _bounded(a: Boundary, x: Interval, reach: Interval) -> Interval:
    """What boundary handling makes of a interval, `reach` being all that the index ever is.

    An index before the axis becomes a later one, at most as much later as it ever lies before it; one behind the axis
    an earlier one. By so much the loose bounds are wider: of a turn that reaches over the end of what is computed, any
    part may be left.
    """
    last = a.extent - 1
    match a.mode:
        case "clamp":
            low, high = x.low, x.high
        case "reflect":
            low, high = extremum("min", x.low, last * 2 - x.high), extremum("max", x.high, -x.low)
        case "symmetric":
            low, high = extremum("min", x.low, last * 2 + 1 - x.high), extremum("max", x.high, -x.low - 1)
        case _:
            return whole(a.extent)
    times = 1 if a.mode == "clamp" else 2
    later, earlier = most(-reach.low * times), most((reach.high - last) * times)
    if later is None or earlier is None:
        return whole(a.extent)
    found = Interval(low, high, x.base, x.first - max(earlier, 0), x.last + max(later, 0)).clipped(a.extent)
    if not x.partial or found == whole(a.extent):
        return found
    low, high = (
        extremum("max", found.low, found.base + found.first),
        extremum("min", found.high, found.base + found.last),
    )
    return replace(found, low=low, high=high, partial=True)


def most(p: Poly) -> int | None:
    """A number that a size is never above, or None where none is known."""
    total = p
    for m, c in p.terms.items():
        if len(m) == 1 and isinstance(m[0], FloorDiv) and m[0].by.is_const and c % m[0].by.const == 0:
            a, k = m[0].arg, m[0].by.const
            total = total - Poly({m: c}, 0) + (a if c > 0 else a - (k - 1)) * (c // k)
    return total.const if total.is_const else None
