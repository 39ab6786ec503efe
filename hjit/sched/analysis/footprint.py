"""Footprints in numbers: the regions of arrays that ranges of iterations read, and the memory that they occupy.

This is the interval arithmetic of `hjit.sched.analysis.bounds` over numbers instead of polynomials: a schedule is
evaluated at concrete sizes, and for many tilings at once (`hjit.sched.analysis.tape`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from hjit.sched.analysis import propagation
from hjit.sched.analysis.sliding import STILL, Speeds, rates
from hjit.sched.analysis.tape import Num, Truth, Var, ceil_div, choose, floor_div, least, most, product
from hjit.trace.ir import intervals as symbolic
from hjit.trace.ir.intervals import SYMBOLIC, Arithmetic, Over, bounds_of, ends, without_constants
from hjit.trace.ir.poly import ZERO, Boundary, Dim, Poly, Sym, deep_atoms, poly

Interval = tuple[Num, Num]  # low, high, both included
Region = tuple[Interval, ...]
Dims = Sequence[Interval]  # of a definition's dimensions

FAR = 2.0**40  # further than any array reaches
ANYWHERE: Interval = (-FAR, FAR)


def extent(x: Interval) -> Num:
    """The number of elements of an interval."""
    return x[1] - x[0] + 1.0


def clipped(x: Interval, n: float) -> Interval:
    """The part of an interval in ``[0, n)``; if it lies outside, the nearest element."""
    low, high = x
    if type(low) is float and type(high) is float:  # without calls: there are many
        last = n - 1.0
        return min(max(low, 0.0), last), min(max(high, 0.0), last)
    return _inside_of(low, n), _inside_of(high, n)


def _inside_of(x: Num, n: float) -> Num:
    low, high = (x.low, x.high) if type(x) is Var else (x, x)
    return x if low >= 0.0 and high <= n - 1.0 else least(most(x, 0.0), n - 1.0)


class _Numeric(Arithmetic[Num]):
    """Indices without run-time sizes over pairs of numbers."""

    __slots__ = ()
    unknown = ANYWHERE

    def size(self, n: Poly) -> float | None:
        return float(n.const) if n.is_const else None

    def fixed(self, p: Poly) -> Interval:
        return ANYWHERE

    def remainder(self, x: Interval, n: Num) -> Interval:
        """Less than ``0 .. n - 1`` where all that is divided has one quotient."""
        start = floor_div(x[0], n) * n
        inside = x[1] < start + n
        return choose(inside, x[0] - start, 0.0), choose(inside, x[1] - start, n - 1.0)

    def bounded(self, mode: str, x: Interval, n: float, reach: Interval | None) -> Interval:
        if mode != "wrap":
            return clipped(self.mirrored(mode, x, n), n)
        inside = (x[0] >= 0.0) & (x[1] < n)
        return clipped((choose(inside, x[0], 0.0), choose(inside, x[1], n - 1.0)), n)


NUMERIC = _Numeric(float, least, most, ceil_div)


def joined(a: Region | None, b: Region) -> Region:
    """The smallest region around two."""
    return b if a is None else tuple(map(NUMERIC.hull, a, b))


def concrete(p: Poly, sizes: Mapping[str, int]) -> Poly:
    """An index with numbers for the run-time sizes."""
    return p.substitute(lambda a: sizes[a.name] if isinstance(a, Sym) else None)


# -- what loads read


@dataclass(frozen=True, slots=True, eq=False)
class Footprint(propagation.Footprint[Interval]):
    """What loads read of an array of some shape.

    Attributes:
        every: for each axis the intervals whose hull is read; `axes` has those along which what is read moves as one
            (`hjit.trace.ir.intervals.Interval.base`): of others, bounds inference takes the whole axis, where it must
            know what is needed of the array at a place inside the loops.
        rates: for each axis how far its base moves with some dimensions.
        slack: for each axis by how many elements what is read at the array's ends may lie further apart than in its
            middle, as boundary conditions move indices there: by so much memory is longer, which serves all iterations.
        indices: for each axis what `every` is of: an index without its constant, and the least and the greatest one.
    """

    shape: tuple[float, ...]
    every: tuple[tuple[Over[Interval], ...], ...]
    rates: tuple[tuple[tuple[int, Fraction], ...], ...]
    slack: tuple[int, ...]
    indices: tuple[tuple[tuple[Poly, int, int], ...], ...]

    def needs(self, dims: Dims) -> Region:
        """The region, as far as it reaches beyond the array too."""
        found = []
        for parts in self.every:
            x = parts[0](dims)
            for part in parts[1:]:
                x = NUMERIC.hull(x, part(dims))
            found.append(x)
        return tuple(found)

    def speeds(self, dims: Sequence[Fraction]) -> Speeds:
        """How fast what is needed moves along each axis, from how fast the dimensions do."""
        return tuple(sum((c * dims[k] for k, c in rates if dims[k]), STILL) for rates in self.rates)

    def slacks(self, dims: Sequence[Fraction]) -> Speeds:
        """The slack along each axis, from that of the dimensions."""
        return tuple(
            sum((abs(c) * dims[k] for k, c in rates), Fraction(n))
            for rates, n in zip(self.rates, self.slack, strict=True)
        )

    def region(self, dims: Dims) -> Region:
        """The region of the array that is read."""
        return tuple(clipped(x, n) for x, n in zip(self.needs(dims), self.shape, strict=True))


def footprint(
    shape: tuple[float, ...], indices: Sequence[tuple[Poly, ...]], extents: Sequence[float] = ()
) -> Footprint:
    """The footprint of loads at `indices`, which hold no run-time sizes.

    Args:
        extents: of the dimensions; none are needed where no index `is_bounded`.
    """
    moving = [without_constants(ends(_inside(index[k], n) for index in indices)) for k, n in enumerate(shape)]
    every = tuple(
        tuple(bounds_of(rest + high, NUMERIC, first=low) for rest, (low, high) in seen.items()) for seen in moving
    )
    found = [set(map(_base, seen)) for seen in moving]
    bases = [x.pop() if len(x) == 1 else None for x in found]
    axes = tuple(() if base is None else parts for base, parts in zip(bases, every, strict=True))
    moves = tuple(() if base is None else tuple(rates(base).items()) for base in bases)
    slack = (
        0 if base is None else _slack(tuple(dict.fromkeys(ps)), tuple(extents))
        for base, ps in zip(bases, zip(*indices, strict=True), strict=True)
    )
    found_at = tuple(tuple((rest, low, high) for rest, (low, high) in seen.items()) for seen in moving)
    return Footprint(axes, shape, every, moves, tuple(slack), found_at)


def is_bounded(p: Poly) -> bool:
    """Does an index have a boundary condition?"""
    return p.has(Boundary)


@lru_cache(maxsize=1 << 12)
def _slack(indices: tuple[Poly, ...], extents: tuple[float, ...]) -> int:
    """The difference between the loose bounds of an axis and those without boundary conditions."""
    if not any(map(is_bounded, indices)):
        return 0
    return _loose_length(ends(indices), extents) - _loose_length(ends(map(_unbounded, indices)), extents)


def _clamp(p: Poly) -> Boundary | None:
    """The clamp that an index is all of."""
    if len(p.terms) == 1 and not p.const:
        ((m, c),) = p.terms.items()
        if c == 1 and len(m) == 1 and isinstance(m[0], Boundary) and m[0].mode == "clamp":
            return m[0]
    return None


def _loose_length(indices: Iterable[Poly], extents: Sequence[float]) -> int:
    """The length that lowering gives memory for what one point reads (`hjit.trace.ir.intervals.Interval.length`)."""
    full = {k: symbolic.whole(poly(int(n))) for k, n in enumerate(extents)}
    point = {k: symbolic.Interval.point(poly(Dim(k))) for k in full}
    total: symbolic.Interval | None = None
    for p in indices:
        x = bounds_of(p, SYMBOLIC, full)(point)
        total = x if total is None or x is None else total.hull(x)
        if total is None:
            return 1
    return total.length.const if total is not None and total.length.is_const else 1


def _unbounded(p: Poly) -> Poly:
    """An index without boundary conditions, as in the middle of an array."""
    while is_bounded(p):
        p = p.substitute(lambda a: a.arg if isinstance(a, Boundary) else None)
    return p


def _inside(p: Poly, n: float) -> Poly:
    """An index that is clamped to its axis, as it is before: regions are clipped to the axis anyway."""
    a = _clamp(p)
    return p if a is None or a.extent != int(n) else a.arg


@lru_cache(maxsize=1 << 12)
def _base(p: Poly) -> Poly | None:
    """What of an index moves, as lowering has it (`hjit.trace.ir.intervals.Interval.base`); None: it takes the whole
    axis."""
    atoms = list(deep_atoms(p))
    if any(isinstance(a, Boundary) and a.mode == "wrap" for a in atoms):
        return None
    dims = [a for a in atoms if isinstance(a, Dim)]
    full = {a.k: symbolic.Interval.point(ZERO) for a in dims}  # of no matter for what moves
    found = bounds_of(p, SYMBOLIC, full)({a.k: symbolic.Interval.point(poly(a)) for a in dims})
    return None if found is None else found.base


# -- memory


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """The memory layout of an array.

    Attributes:
        lengths: elements along each axis.
        order: the axes from the slowest to the fastest.
        row: how many of the fastest axes make a row: the innermost one, and with it small constant ones inside it.
        is_buffer: is it shorter than the array, so that some of its elements hold one after the other?
        is_order_fixed: if not, the order is still open, and may become what suits best (Adams 2019, section 3.2).
    """

    itemsize: float
    lengths: tuple[Num, ...]
    order: tuple[int, ...]
    row: int
    is_buffer: bool = False
    is_order_fixed: bool = True

    @property
    def bytes(self) -> Num:
        return self.itemsize * product(self.lengths)

    def row_bytes(self, lengths: Sequence[Num]) -> Num:
        """Bytes along the innermost dimension of a part with these lengths."""
        return self.itemsize * product(lengths[axis] for axis in self.order[len(self.order) - self.row :])

    def touched(self, region: Region) -> tuple[Num, Num]:
        """The bytes of a region, and the number of contiguous pieces of memory; of a buffer, no more than it has."""
        lengths = [high - low + 1.0 for low, high in region]
        if self.is_buffer:
            lengths = list(map(least, lengths, self.lengths))
        elements = product(lengths)
        if not self.is_order_fixed:
            longest: Num = 1.0
            for n in lengths:
                longest = most(longest, n)
            return elements * self.itemsize, elements / longest
        lines: Num = 1.0
        joined: Truth = True  # is all that lies further in whole, so that it is one piece?
        for axis in reversed(self.order):
            if joined is not True:
                lines = lines * (lengths[axis] if joined is False else choose(joined, 1.0, lengths[axis]))
            if joined is not False and axis != self.order[0]:
                joined = joined & (lengths[axis] >= self.lengths[axis])
        return elements * self.itemsize, lines


def row_axes(small: Sequence[bool], order: Sequence[int]) -> int:
    """The number of fastest axes that make up a row; `small`: axes of few elements, like the channels of a pixel."""
    found = 0
    for axis in reversed(order):
        found += 1
        if not small[axis]:
            break
    return found
