"""Interval arithmetic, and the bounds of an index over intervals of its dimensions.

`Arithmetic` is that of pairs ``(low, high)``, both included, of any numbers: ints, floats, the recorded ones of
`hjit.sched.analysis.tape`, polynomials. An `Interval` holds two such pairs of polynomials. `bounds_of` evaluates an
index over either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

from hjit.trace.ir.poly import (
    ZERO,
    Atom,
    Boundary,
    Dim,
    Extremum,
    FloorDiv,
    Indirect,
    Mod,
    Monomial,
    Poly,
    Sym,
    Var,
    deep_atoms,
    extremum,
    is_never_negative,
    is_quotient,
    poly,
    without_quotient,
)


class Number(Protocol):
    """The numbers of bounds; ``//`` rounds down."""

    def __add__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __floordiv__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...


N = TypeVar("N", bound=Number)
X = TypeVar("X")
Pair = tuple[N, N]
Over = Callable[[Any], X]  # a function of the intervals of the dimensions, which their numbers subscript


@dataclass(frozen=True, slots=True)
class Arithmetic(Generic[N]):
    """Interval arithmetic over one kind of numbers.

    Attributes:
        number: an int as one of them.
        least, most: the smaller and the larger of two.
        ceil_div: the quotient of two, rounded up.
    """

    number: Callable[[int], N]
    least: Callable[[N, N], N]
    most: Callable[[N, N], N]
    ceil_div: Callable[[N, N], N]

    def plus(self, x: Pair[N], y: Pair[N]) -> Pair[N]:
        return x[0] + y[0], x[1] + y[1]

    def minus(self, x: Pair[N], y: Pair[N]) -> Pair[N]:
        return x[0] - y[1], x[1] - y[0]

    def times(self, x: Pair[N], c: int) -> Pair[N]:
        return (x[0] * c, x[1] * c) if c >= 0 else (x[1] * c, x[0] * c)

    def linear(self, first: int, last: int, terms: Sequence[tuple[Over[Pair[N]], int]]) -> Over[Pair[N]]:
        """The sum of the constants first .. last and of intervals times coefficients."""
        if not first and not last and len(terms) == 1 and terms[0][1] == 1:
            return terms[0][0]
        start = self.number(first), self.number(last)
        parts = [(part, self.number(c), c > 0) for part, c in terms]

        def bounds(dims: Any) -> Pair[N]:
            low, high = start
            for part, c, rises in parts:  # without calls: there are many
                a, b = part(dims)
                low, high = (low + a * c, high + b * c) if rises else (low + b * c, high + a * c)
            return low, high

        return bounds

    def floordiv(self, x: Pair[N], by: N) -> Pair[N]:
        return x[0] // by, x[1] // by

    def remainder(self, x: Pair[N], n: N) -> Pair[N]:
        """The interval of a remainder by `n`: ``0 .. n - 1``."""
        return self.number(0), n - self.number(1)

    def extremum(self, which: str, x: Pair[N], y: Pair[N]) -> Pair[N]:
        pick = self.least if which == "min" else self.most
        return pick(x[0], y[0]), pick(x[1], y[1])

    def gathered(self, a: Indirect) -> Over[Pair[N]] | None:
        """The bounds of a data-dependent index; None: unknown."""
        return None

    def hull(self, x: Pair[N], y: Pair[N]) -> Pair[N]:
        """The smallest interval around both."""
        return self.least(x[0], y[0]), self.most(x[1], y[1])

    def mirrored(self, mode: str, x: Pair[N], n: N) -> Pair[N]:
        """An index that was mirrored at the ends of an axis of `n` elements, as far as it was beyond one of them.

        ``clamp`` is left to the clipping that follows.
        """
        if mode == "clamp":
            return x
        edge = self.number(1 if mode == "symmetric" else 0)  # is the first element repeated?
        end = n * self.number(2) - self.number(2) + edge
        return self.least(x[0], end - x[1]), self.most(x[1], -x[0] - edge)

    def newest(self, x: Pair[N], new: N) -> Pair[N]:
        """The last `new` elements: what an iteration adds to a sliding window."""
        return x[1] - (new - self.number(1)), x[1]

    def solved(self, x: Pair[N], c: N, rest: N, n: N) -> Pair[N]:
        """The ``d`` in ``[0, n)`` for which ``c * d + rest`` is in an interval; `c` is positive."""
        low, high = self.ceil_div(x[0] - rest, c), (x[1] - rest) // c
        return self.most(low, self.number(0)), self.least(high, n - self.number(1))


INTS: Arithmetic[int] = Arithmetic(int, min, max, lambda a, b: -(-a // b))
POLYS: Arithmetic[Poly] = Arithmetic(
    poly, lambda a, b: extremum("min", a, b), lambda a, b: extremum("max", a, b), lambda a, b: (a + (b - 1)) // b
)


@dataclass(frozen=True, slots=True)
class Interval:
    """``low .. high``, inside ``base + first .. base + last``.

    The one is what must be computed. The other, loose one moves steadily with the loop variables, which only `base`
    depends on, and its length is known before they run: memory is sized by it, and windows slide along it.

    Attributes:
        partial: may it be empty, `high` below `low`? It is what a definition needs that writes only part of its stage.
            Then `low` is still not below the loose bounds, nor `high` above them, so that a hull with others stays
            inside of theirs.
    """

    low: Poly
    high: Poly
    base: Poly
    first: Poly
    last: Poly
    partial: bool = False

    @staticmethod
    def of(low: Poly, high: Poly) -> Interval:
        """An interval that is known before any loop runs."""
        return Interval(low, high, ZERO, low, high)

    @staticmethod
    def point(p: Poly) -> Interval:
        """The interval of one index."""
        moving = _moving(p)
        rest = p - moving
        return Interval(p, p, moving, rest, rest)

    @staticmethod
    def tile(low: Poly, size: int, high: Poly | None = None) -> Interval:
        """`size` indices from `low` on, fewer of them where `high` is the last one."""
        last = low + (size - 1)
        return Interval(low, last if high is None else extremum("min", last, high), low, ZERO, poly(size - 1))

    @property
    def length(self) -> Poly:
        """An upper bound of the number of elements."""
        return self.last - self.first + 1

    @property
    def exact(self) -> Pair[Poly]:
        return self.low, self.high

    @property
    def loose(self) -> Pair[Poly]:
        """Counted from `base`."""
        return self.first, self.last

    def hull(self, other: Interval) -> Interval | None:
        """The smallest interval around both; None if they move apart."""
        shift = other.base - self.base
        if any(_moves(a) for a in shift.atoms()):
            steady = self._steady(), other._steady()
            return None if steady == (self, other) else steady[0].hull(steady[1])
        low, high = POLYS.hull(self.exact, other.exact)
        first, last = POLYS.hull(self.loose, (other.first + shift, other.last + shift))
        return Interval(low, high, self.base, first, last, self.partial and other.partial)

    def _steady(self) -> Interval:
        """With a base that does not move in steps: ``k * (x // k)`` is at most `k` - 1 less than ``x``."""
        base, first, last = self.base, self.first, self.last
        for m, c in self.base.terms.items():
            if len(m) != 1 or not isinstance(m[0], FloorDiv) or not m[0].by.is_const or c % m[0].by.const:
                continue
            times, moving = c // m[0].by.const, _moving(m[0].arg)
            rest, rounding = (m[0].arg - moving) * times, times * (m[0].by.const - 1)
            base = base - Poly({m: c}, 0) + moving * times
            first, last = first + rest - max(rounding, 0), last + rest - min(rounding, 0)
        return replace(self, base=base, first=first, last=last)

    def plus(self, other: Interval) -> Interval:
        exact, loose = POLYS.plus(self.exact, other.exact), POLYS.plus(self.loose, other.loose)
        return Interval(*exact, self.base + other.base, *loose, self.partial or other.partial)

    def times(self, c: int) -> Interval:
        return Interval(*POLYS.times(self.exact, c), self.base * c, *POLYS.times(self.loose, c), self.partial)

    def floordiv(self, by: int) -> Interval:
        low, high = POLYS.floordiv(self.exact, poly(by))
        return Interval(low, high, self.base // by, self.first // by, self._last_quotient(by), self.partial)

    def _last_quotient(self, by: int) -> Poly:
        """`last` of a quotient: what `by` does not divide of the base may carry."""
        divides = all(c % by == 0 for c in self.base.terms.values()) and self.base.const % by == 0
        return (self.last if divides else self.last + (by - 1)) // by

    def solved(self, c: int, rest: Poly, n: Poly) -> Interval:
        """The ``d`` in ``[0, n)`` for which ``c * d + rest`` is inside, a part of them."""
        low, high = POLYS.solved(self.exact, poly(c), rest, n)
        first, last = self.first - rest + (c - 1), self.last - rest
        last = replace(self, last=last)._last_quotient(c)
        return Interval(low, high, self.base // c, first // c, last, True)

    def newest(self, new: int) -> Interval:
        """The part that an iteration adds to a sliding window: the last `new` elements."""
        first, last = POLYS.newest(self.loose, poly(new))
        low = self.base + first if self.partial else POLYS.newest(self.exact, poly(new))[0]
        return Interval(low, self.high, self.base, first, last, self.partial)

    def clipped(self, extent: Poly) -> Interval:
        """The interval with its exact bounds clipped to an axis of length `extent`; not empty, unless it is a part that
        may be."""
        if self.low == ZERO and self.high == extent - 1:
            return whole(extent)
        if self.partial:
            return replace(self, low=extremum("max", self.low, ZERO), high=extremum("min", self.high, extent - 1))
        low = ZERO if self.low == ZERO else extremum("min", extremum("max", self.low, ZERO), extent - 1)
        last = self.last if is_never_negative(self.last - self.first) else extremum("max", self.last, self.first)
        return Interval(low, extremum("max", low, extremum("min", self.high, extent - 1)), self.base, self.first, last)


def whole(extent: Poly) -> Interval:
    """A whole axis."""
    return Interval.of(ZERO, extent - 1)


def _moving(p: Poly) -> Poly:
    """The terms that depend on loop variables."""
    return Poly({m: c for m, c in p.terms.items() if any(_moves(a) for a in m)}, 0)


def _moves(a: Atom) -> bool:
    """Does an atom depend on a loop variable?"""
    return any(isinstance(b, (Var, Dim)) for b in deep_atoms(poly(a)))


# -- indices


class Domain(Protocol[X]):
    """The interval operations that indices need, implemented by `Arithmetic` and by `Interval`.

    Attributes:
        unknown: what stands for an index that cannot be told.
    """

    unknown: X

    def size(self, n: Poly) -> Any:
        """A divisor or an extent; None where it cannot be told."""

    def fixed(self, p: Poly) -> X:
        """What depends on sizes and loop variables only."""

    def linear(self, first: int, last: int, terms: Sequence[tuple[Over[X], int]]) -> Over[X]: ...
    def floordiv(self, x: X, by: Any) -> X: ...
    def remainder(self, x: X, n: Any) -> X: ...
    def extremum(self, which: str, x: X, y: X) -> X: ...
    def gathered(self, a: Indirect) -> Over[X] | None: ...
    def hull(self, x: X, y: X) -> X: ...
    def bounded(self, mode: str, x: X, n: Any, reach: X | None) -> X:
        """What a boundary mode makes of an index, `reach` being all that it ever is, if that was asked."""


def bounds_of(p: Poly, domain: Domain[X], full: Any = None, first: int | None = None) -> Over[X]:
    """The interval of an index, as a function of those of the dimensions.

    Args:
        full: the whole ranges of the dimensions.
        first: the least constant to add in place of the index's own, which is the greatest.
    """
    terms = [(_part(m, domain, full), c) for m, c in p.terms.items()]
    return domain.linear(p.const if first is None else first, p.const, terms)


def _part(m: Monomial, domain: Domain[X], full: Any) -> Over[X]:
    """The interval of a product of atoms."""
    found = domain.unknown
    if all(isinstance(a, (Sym, Var)) for a in m):
        found = domain.fixed(Poly({m: 1}, 0))
    elif len(m) == 1:
        match m[0]:
            case Dim(k=k):
                return itemgetter(k)
            case FloorDiv(arg=p, by=by) if by.is_const:
                arg, n = bounds_of(p, domain, full), domain.size(by)
                return lambda dims: domain.floordiv(arg(dims), n)
            case Mod(arg=p, by=by) if (n := domain.size(by)) is not None:
                arg = bounds_of(p, domain, full)
                return lambda dims: domain.remainder(arg(dims), n)
            case Indirect() as a if (index := domain.gathered(a)) is not None:
                return index
            case Extremum(which=which, a=a, b=b):
                x, y = bounds_of(a, domain, full), bounds_of(b, domain, full)
                return lambda dims: domain.extremum(which, x(dims), y(dims))
            case Boundary(mode=mode, arg=p, extent=extent) if (n := domain.size(extent)) is not None:
                arg = bounds_of(p, domain, full)
                reach = None if full is None else arg(full)
                return lambda dims: domain.bounded(mode, arg(dims), n, reach)
    return lambda dims: found


class _Symbolic:
    """Interval operations over `Interval`s; None is unknown."""

    unknown: Interval | None = None

    def size(self, n: Poly) -> Poly:
        return n

    def fixed(self, p: Poly) -> Interval | None:
        return Interval.point(p)

    def linear(
        self, first: int, last: int, terms: Sequence[tuple[Over[Interval | None], int]]
    ) -> Over[Interval | None]:
        if not first and not last and len(terms) == 1 and terms[0][1] == 1:
            return terms[0][0]
        start = Interval.of(poly(first), poly(last))

        def bounds(dims: Any) -> Interval | None:
            total = start
            for part, c in terms:
                x = part(dims)
                if x is None:
                    return None
                total = total.plus(x if c == 1 else x.times(c))
            return total

        return bounds

    def floordiv(self, x: Interval | None, by: Poly) -> Interval | None:
        return None if x is None else x.floordiv(by.const)

    def remainder(self, x: Interval | None, n: Poly) -> Interval:
        return whole(n)

    def extremum(self, which: str, x: Interval | None, y: Interval | None) -> Interval | None:
        both = self.hull(x, y)
        if x is None or y is None or both is None:
            return None
        exact = POLYS.extremum(which, x.exact, y.exact)
        return Interval(*exact, both.base, both.first, both.last, x.partial or y.partial)

    def gathered(self, a: Indirect) -> Over[Interval | None] | None:
        return None

    def hull(self, x: Interval | None, y: Interval | None) -> Interval | None:
        return None if x is None or y is None else x.hull(y)

    def bounded(self, mode: str, x: Interval | None, n: Poly, reach: Interval | None) -> Interval | None:
        """An index before the axis becomes a later one, at most as much later as it ever lies before it; one behind the
        axis an earlier one. By so much the loose bounds are wider: of an iteration that reaches over the end of what is
        computed, any part may be left.
        """
        if x is None or reach is None:
            return None
        times = 1 if mode == "clamp" else 2
        later, earlier = upper_bound(-reach.low * times), upper_bound((reach.high - (n - 1)) * times)
        if mode == "wrap" or later is None or earlier is None:
            return whole(n)
        low, high = POLYS.mirrored(mode, x.exact, n)
        found = Interval(low, high, x.base, x.first - max(earlier, 0), x.last + max(later, 0)).clipped(n)
        if not x.partial or found == whole(n):
            return found
        low = extremum("max", found.low, found.base + found.first)
        high = extremum("min", found.high, found.base + found.last)
        return replace(found, low=low, high=high, partial=True)


SYMBOLIC = _Symbolic()


def interval(p: Poly, dims: Mapping[int, Interval], full: Mapping[int, Interval]) -> Interval | None:
    """The bounds of an index, from those of its dimensions (`dims`) and their whole ranges (`full`); None: unknown."""
    return bounds_of(p, SYMBOLIC, full)(dims)


def without_constants(polys: Iterable[Poly]) -> dict[Poly, tuple[int, int]]:
    """Polynomials without their constants, each with its least and its greatest constant."""
    found: dict[Poly, tuple[int, int]] = {}
    for p in polys:
        rest = p - p.const
        low, high = found.get(rest, (p.const, p.const))
        found[rest] = min(low, p.const), max(high, p.const)
    return found


def ends(indices: Iterable[Poly]) -> tuple[Poly, ...]:
    """Of indices that differ by constants, the least and the greatest; the others lie in between.

    So it is of those that are clamped or mirrored after they differ: the interval of a mirrored index begins at the
    smaller, and ends at the larger, of one bound that grows with the constant and one that falls.
    """
    found: dict[tuple[Any, ...], tuple[int, Poly, int, Poly]] = {}
    for p in indices:
        a = _mirrored(p)
        key, c = ((p - p.const,), p.const) if a is None else ((a.arg - a.arg.const, a.mode, a.extent), a.arg.const)
        low, first, high, last = found.get(key, (c, p, c, p))
        found[key] = (c, p, high, last) if c < low else (low, first, c, p) if c > high else (low, first, high, last)
    return tuple(p for _, first, _, last in found.values() for p in dict.fromkeys((first, last)))


def _mirrored(p: Poly) -> Boundary | None:
    """The boundary condition that an index consists of, unless it wraps around."""
    if len(p.terms) == 1 and not p.const:
        ((m, c),) = p.terms.items()
        if c == 1 and len(m) == 1 and isinstance(m[0], Boundary) and m[0].mode != "wrap":
            return m[0]
    return None


def upper_bound(p: Poly) -> int | None:
    """A constant upper bound of a size, from its quotients and minima; None if there is none.

    Quotients by constants are bounded as in `is_never_negative`, those inside others, too.
    """
    for m, c in p.terms.items():
        if is_quotient(m):
            above, k = without_quotient(p, m, above=True)
            most = upper_bound(above) if k > 0 else None
            return None if most is None else most // k
        if len(m) == 1 and isinstance(x := m[0], Extremum) and (x.which == "min") == (c > 0):
            rest = p - poly(x) * c
            bounds = [upper_bound(rest + end * c) for end in (x.a, x.b)]
            return min((n for n in bounds if n is not None), default=None)
    return p.const if p.is_const else None
