"""The lowering environment: the remaining range of every dimension at a place in the schedule tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hjit.sched.analysis.bounds import Region
from hjit.sched.language.tree import DimKey, Loop, dims_of
from hjit.trace.ir.intervals import Interval
from hjit.trace.ir.poly import ONE, ZERO, Extremum, Poly, Var, extremum, poly

Key = tuple[str, DimKey]


@dataclass(frozen=True, slots=True)
class Remaining:
    """The remaining range of a dimension, [low, end); `size`: its number of elements, if that is known exactly."""

    interval: Interval
    size: int | None = None

    @property
    def low(self) -> Poly:
        return self.interval.low

    @property
    def end(self) -> Poly:
        return self.interval.high + 1

    @property
    def known(self) -> int | None:
        """The number of elements if it is a constant, else None."""
        length = self.end - self.low
        return self.size if self.size is not None else length.const if length.is_const else None


@dataclass(frozen=True)
class Env:
    """The environment of a place in the tree.

    Attributes:
        intervals: for each stage whose loops are open, the interval of each dimension that it computes here.
        remaining: the remaining ranges of dimensions whose loops are open.
        absorbed: dimensions whose inner loops are skipped: the code computes single elements of them.
        depth: the number of loops around the place.
        regions: the required regions of stages computed further in, as inferred at the innermost place around this one.
        stores: for stages in local memory, the depth at which their storage begins, and the region that it holds.
        iteration: the variable, step and begin of the innermost loop.
        scalar: is this the remainder of a vector loop, where code should be short rather than fast?
        in_thread: is this inside a loop whose iterations are distributed to threads?
    """

    intervals: dict[str, dict[int, Interval]] = field(default_factory=dict)
    remaining: dict[Key, Remaining] = field(default_factory=dict)
    absorbed: frozenset[Key] = frozenset()
    depth: int = 0
    regions: Mapping[str, Region] = field(default_factory=dict)
    stores: dict[str, tuple[int, Region]] = field(default_factory=dict)
    iteration: tuple[Var, int, Poly] | None = None
    scalar: bool = False
    in_thread: bool = False

    def opened(self, stage: str, dims: dict[int, Interval]) -> Env:
        """The environment inside a stage that computes `dims`."""
        return replace(
            self,
            intervals=self.intervals | {stage: dict(dims)},
            remaining={k: r for k, r in self.remaining.items() if k[0] != stage},
        )

    def remains(self, loop: Loop) -> Remaining:
        """The remaining range of a loop's dimension."""
        found = self.remaining.get((loop.stage, loop.dim))
        if found is not None:
            return found
        intervals = [self.intervals[loop.stage][k] for k in dims_of(loop.dim)]
        if len(intervals) == 1:
            return Remaining(intervals[0])
        total, loose = ONE, ONE
        for s in intervals:
            total, loose = total * not_negative(s.high - s.low + 1, s.partial), loose * s.length
        return Remaining(Interval(ZERO, total - 1, ZERO, ZERO, loose - 1))

    def within(self, loop: Loop, interval: Interval, size: int | None = None) -> Env:
        """The environment in which `interval` of a loop's dimension remains."""
        stage, key = loop.stage, loop.dim
        dims = dict(self.intervals[stage])
        if isinstance(key, int):
            dims[key] = interval
        else:
            whole = [self._origin(stage, key, k) for k in key]
            dims.update(zip(key, _unfused(interval, whole), strict=True))
        return replace(
            self,
            intervals=self.intervals | {stage: dims},
            remaining=self.remaining | {(stage, key): Remaining(interval, size)},
        )

    def _origin(self, stage: str, key: tuple[int, ...], k: int) -> Interval:
        """The interval of a fused dimension outside of the loop over it."""
        found = self.remaining.get((stage, (-1, *key, k)))
        return self.intervals[stage][k] if found is None else found.interval

    def fused(self, loop: Loop) -> Env:
        """Remember the intervals of the dimensions that a fused loop runs over."""
        if isinstance(loop.dim, int) or (loop.stage, loop.dim) in self.remaining:
            return self
        parts = {(loop.stage, (-1, *loop.dim, k)): Remaining(self.intervals[loop.stage][k]) for k in loop.dim}
        return replace(self, remaining=self.remaining | parts)

    def tile(self, loop: Loop, low: Poly, step: int) -> Env:
        """The environment inside the iteration of a loop that starts at `low`."""
        left = self.remains(loop)
        if step == 1:
            return self.at(loop, low)
        if left.known is not None and left.known % step == 0:
            return self.within(loop, Interval.tile(low, step), step)
        return self.within(loop, Interval.tile(low, step, left.interval.high))

    def at(self, loop: Loop, p: Poly) -> Env:
        """The environment at one index of a loop's dimension."""
        return self.within(loop, Interval.point(p), 1)

    def deeper(self, var: Var, step: int, begin: Poly) -> Env:
        """The environment inside one more loop."""
        return replace(self, depth=self.depth + 1, iteration=(var, step, begin))

    def absorb(self, loop: Loop) -> Env:
        return replace(self, absorbed=self.absorbed | {(loop.stage, loop.dim)})


def not_negative(n: Poly, partial: bool) -> Poly:
    """A length that may be negative, where an empty part ends before it begins, as at least zero: the product of two
    negative lengths would be positive."""
    return extremum("max", n, ZERO) if partial or any(isinstance(a, Extremum) for a in n.atoms()) else n


def _unfused(interval: Interval, parts: list[Interval]) -> list[Interval]:
    """The intervals of the dimensions that a fused one consists of, the last one fastest."""
    if interval.low == interval.high:
        found: list[Interval] = []
        rest = interval.low
        for s in reversed(parts[1:]):
            n = ONE if s.high - s.low == poly(-1) else s.high - s.low + 1  # empty: the loop never runs
            found.insert(0, Interval.point(s.low + rest % n))
            rest = rest // n
        return [Interval.point(parts[0].low + rest), *found]
    n = ONE
    for s in parts[1:]:
        n = n * (s.high - s.low + 1)
    if not n.is_const or n.const < 1:
        return list(parts)
    return [interval.floordiv(n.const).plus(Interval.point(parts[0].low)), *parts[1:]]
