"""Footprints in numbers: which regions of arrays ranges of iterations read, and what those are in memory.

The interval arithmetic of `hjit.sched.analysis.bounds` once more, over numbers in place of polynomials: a schedule is judged for
concrete sizes, and for many tilings of it at once (`hjit.sched.analysis.tape`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hjit.sched.analysis.tape import Num, Truth, Var, choose, floor_div, least, most, product
from hjit.trace.ir.poly import ZERO, Atom, Boundary, Dim, Extremum, FloorDiv, Indirect, Mod, Poly, Sym, poly

Interval = tuple[Num, Num]  # low, high, both included
Region = tuple[Interval, ...]
Dims = Sequence[Interval]  # of a definition's dimensions
Bounds = Callable[[Dims], Interval]

FAR = 2.0**40  # further than any array reaches
STILL = Fraction(0)
ANYWHERE: Interval = (-FAR, FAR)


def extent(x: Interval) -> Num:
    """How many elements an interval has."""
    return x[1] - x[0] + 1.0


def hull(a: Interval, b: Interval) -> Interval:
    """The smallest interval around two."""
    return least(a[0], b[0]), most(a[1], b[1])


def joined(a: Region | None, b: Region) -> Region:
    """The smallest region around two."""
    return b if a is None else tuple(map(hull, a, b))


def clipped(x: Interval, n: float) -> Interval:
    """The part of an interval in ``[0, n)``; where it lies outside, the element that is nearest."""
    return _inside_of(x[0], n), _inside_of(x[1], n)


def _inside_of(x: Num, n: float) -> Num:
    low, high = (x.low, x.high) if type(x) is Var else (x, x)
    return x if low >= 0.0 and high <= n - 1.0 else least(most(x, 0.0), n - 1.0)


# -- indices over ranges


def concrete(p: Poly, sizes: Mapping[str, int]) -> Poly:
    """An index with numbers for the run-time sizes."""
    return p.substitute(lambda a: sizes[a.name] if isinstance(a, Sym) else None)


def bounds_of(p: Poly, first: int | None = None) -> Bounds:
    """The range of an index, as a function of those of the dimensions.

    Args:
        p: an index without run-time sizes.
        first: the least constant to add in place of the index's own, which is the greatest.
    """
    least_, most_ = float(p.const if first is None else first), float(p.const)
    terms = tuple((_part(m), float(c)) for m, c in p.terms.items())

    def bounds(dims: Dims) -> Interval:
        low: Num = least_
        high: Num = most_
        for part, c in terms:
            a, b = part(dims)
            low, high = (low + a * c, high + b * c) if c > 0.0 else (low + b * c, high + a * c)
        return low, high

    return bounds


def _part(m: tuple[Atom, ...]) -> Bounds:
    """The range of a product of atoms; of several it is not known."""
    if len(m) > 1:
        return lambda dims: ANYWHERE
    (a,) = m
    return _PARTS[type(a)](a)


def _dim(a: Dim) -> Bounds:
    k = a.k
    return lambda dims: dims[k]


def _floordiv(a: FloorDiv) -> Bounds:
    arg, by = bounds_of(a.arg), float(a.by.const)

    def bounds(dims: Dims) -> Interval:
        low, high = arg(dims)
        return floor_div(low, by), floor_div(high, by)

    return bounds if a.by.is_const else lambda dims: ANYWHERE


def _mod(a: Mod) -> Bounds:
    return lambda dims: (0.0, float(a.by.const) - 1.0) if a.by.is_const else ANYWHERE


def _extremum(a: Extremum) -> Bounds:
    x, y = bounds_of(a.a), bounds_of(a.b)
    pick = least if a.which == "min" else most

    def bounds(dims: Dims) -> Interval:
        p, q = x(dims), y(dims)
        return pick(p[0], q[0]), pick(p[1], q[1])

    return bounds


def _bound(a: Boundary) -> Bounds:
    if not a.extent.is_const:
        return lambda dims: ANYWHERE
    arg, n = bounds_of(a.arg), float(a.extent.const)
    mirrored = _MODES[a.mode]
    return lambda dims: clipped(mirrored(arg(dims), n), n)


def _wrapped(x: Interval, n: float) -> Interval:
    inside = (x[0] >= 0.0) & (x[1] < n)
    return choose(inside, x[0], 0.0), choose(inside, x[1], n - 1.0)


_MODES: dict[str, Callable[[Interval, float], Interval]] = {
    "clamp": lambda x, n: x,
    "reflect": lambda x, n: (least(x[0], 2 * n - 2 - x[1]), most(x[1], -x[0])),
    "symmetric": lambda x, n: (least(x[0], 2 * n - 1 - x[1]), most(x[1], -x[0] - 1.0)),
    "wrap": _wrapped,
}
_PARTS: dict[type[Atom], Callable[[Any], Bounds]] = {
    Dim: _dim,
    FloorDiv: _floordiv,
    Mod: _mod,
    Extremum: _extremum,
    Boundary: _bound,
    Indirect: lambda a: lambda dims: ANYWHERE,
}


# -- what loads read


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """What loads read of an array of some shape, as a function of the ranges of the dimensions.

    Attributes:
        axes: for each axis, the ranges whose hull is read.
        bases: for each axis what of its indices moves (`hjit.trace.ir.intervals.Interval.base`). None: not one thing for all, so that
            bounds inference takes the whole axis, where it must know what is needed of the array at a place inside the loops.
        rates: for each axis how far its base moves with some dimensions.
    """

    shape: tuple[float, ...]
    axes: tuple[tuple[Bounds, ...], ...]
    bases: tuple[Poly | None, ...]
    rates: tuple[tuple[tuple[int, Fraction], ...], ...]

    def needs(self, dims: Dims) -> Region:
        """The region, as far as it reaches beyond the array too."""
        found = []
        for parts in self.axes:
            x = parts[0](dims)
            for part in parts[1:]:
                x = hull(x, part(dims))
            found.append(x)
        return tuple(found)

    def wanted(self, dims: Dims) -> Region:
        """What bounds inference says is needed."""
        return tuple(ANYWHERE if base is None else x for base, x in zip(self.bases, self.needs(dims), strict=True))

    def speeds(self, dims: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """How fast what is needed moves along each axis, from how fast the dimensions do."""
        return tuple(sum((c * dims[k] for k, c in rates if dims[k]), STILL) for rates in self.rates)

    def region(self, dims: Dims) -> Region:
        """The region of the array that is read."""
        return tuple(clipped(x, n) for x, n in zip(self.needs(dims), self.shape, strict=True))


def window(shape: tuple[float, ...], indices: Iterable[tuple[Poly, ...]]) -> Window:
    """The window of loads at `indices`, which hold no run-time sizes."""
    moving: list[dict[Poly, tuple[int, int]]] = [{} for _ in shape]  # but for a constant: least and greatest constant
    for index in indices:
        for seen, p, n in zip(moving, index, shape, strict=True):
            p = _inside(p, n)
            rest = p - p.const
            low, high = seen.get(rest, (p.const, p.const))
            seen[rest] = min(low, p.const), max(high, p.const)
    axes = tuple(tuple(bounds_of(rest + high, low) for rest, (low, high) in seen.items()) for seen in moving)
    found = [set(map(_base, seen)) for seen in moving]
    bases = tuple(x.pop() if len(x) == 1 else None for x in found)
    return Window(shape, axes, bases, tuple(() if base is None else tuple(_rates(base).items()) for base in bases))


def _inside(p: Poly, n: float) -> Poly:
    """An index that is clamped to its axis, as it is before: regions are clipped to the axis anyway."""
    (m, c), *rest = p.terms.items() if p.terms else (((), 1),)
    if (
        not rest
        and p.const == 0
        and c == 1
        and len(m) == 1
        and isinstance(m[0], Boundary)
        and m[0].mode == "clamp"
        and m[0].extent == int(n)
    ):
        return m[0].arg
    return p


def _base(p: Poly) -> Poly | None:
    """What of an index moves, as `hjit.trace.ir.intervals.Interval.base` has it; None: no part of the axis is known to be enough."""
    total: Poly = ZERO
    for m, c in p.terms.items():
        match m:
            case (Dim() as a,):
                part: Poly | None = poly(a)
            case (FloorDiv(by=by) as a,) if by.is_const:
                inner = _base(a.arg)
                part = None if inner is None else inner // by
            case (Boundary(mode=mode) as a,):
                part = None if mode == "wrap" else _base(a.arg)
            case (Extremum() as a,):
                part = _base(a.a)
            case (Mod(),):
                part = ZERO
            case _:
                part = None
        if part is None:
            return None
        total = total + part * c
    return total


def _rates(p: Poly) -> dict[int, Fraction]:
    """How far a base moves with each dimension."""
    found: dict[int, Fraction] = {}
    for (a,), c in p.terms.items():
        if isinstance(a, Dim):
            found[a.k] = found.get(a.k, STILL) + c
        elif isinstance(a, FloorDiv):
            for k, rate in _rates(a.arg).items():
                found[k] = found.get(k, STILL) + rate * c / a.by.const
    return found


# -- memory


@dataclass(frozen=True, slots=True)
class Memory:
    """An array as it lies in memory.

    Attributes:
        lengths: elements along each axis.
        order: the axes from the slowest to the fastest.
        row: how many of the fastest axes make a row: the innermost one, and with it small constant ones inside it.
        is_buffer: is it shorter than the array, so that some of its elements hold one after the other?
        settled: False: the order is still open, and may become what suits best (Adams 2019, section 3.2).
    """

    itemsize: float
    lengths: tuple[Num, ...]
    order: tuple[int, ...]
    row: int
    is_buffer: bool = False
    settled: bool = True

    @property
    def bytes(self) -> Num:
        return self.itemsize * product(self.lengths)

    def row_bytes(self, lengths: Sequence[Num]) -> Num:
        """Bytes along the innermost dimension of a part with these lengths."""
        return self.itemsize * product(lengths[axis] for axis in self.order[len(self.order) - self.row :])

    def touched(self, region: Region) -> tuple[Num, Num]:
        """Bytes of a region, and how many contiguous pieces of memory it is; of a buffer no more than it has."""
        lengths = [high - low + 1.0 for low, high in region]
        if self.is_buffer:
            lengths = list(map(least, lengths, self.lengths))
        elements = product(lengths)
        if not self.settled:
            longest: Num = 1.0
            for n in lengths:
                longest = most(longest, n)
            return elements * self.itemsize, elements / longest
        lines: Num = 1.0
        joined: Truth = True  # is all that lies further in whole, so that it is one piece?
        for axis in reversed(self.order):
            lines = lines * choose(joined, 1.0, lengths[axis])
            if axis != self.order[0]:
                joined = joined & (lengths[axis] >= self.lengths[axis])
        return elements * self.itemsize, lines


def row_axes(small: Sequence[bool], order: Sequence[int]) -> int:
    """How many of the fastest axes make a row; `small`: axes of few elements, like the channels of a pixel."""
    found = 0
    for axis in reversed(order):
        found += 1
        if not small[axis]:
            break
    return found
