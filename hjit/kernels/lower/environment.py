"""A place in the tree as the walk of `hjit.kernels.lower.lower` comes to it: what is left there of every dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hjit.sched.analysis.bounds import Box
from hjit.sched.language.tree import DimKey, Loop, dims_of
from hjit.trace.ir.intervals import Span
from hjit.trace.ir.poly import ONE, ZERO, Extremum, Poly, Var, extremum, poly

Key = tuple[str, DimKey]


@dataclass(frozen=True, slots=True)
class Region:
    """What is left of a dimension: [low, end), of `size` elements where that is known exactly."""

    span: Span
    size: int | None = None

    @property
    def low(self) -> Poly:
        return self.span.low

    @property
    def end(self) -> Poly:
        return self.span.high + 1

    @property
    def known(self) -> int | None:
        """The number of elements, where it is a constant."""
        length = self.end - self.low
        return self.size if self.size is not None else length.const if length.is_const else None


@dataclass(frozen=True)
class Env:
    """What is known at a place in the tree.

    Attributes:
        spans: for each stage whose loops are open, what it computes here: a span for each dimension.
        regions: what is left of the dimensions whose loops are open.
        absorbed: dimensions whose inner loops are done with.
        depth: of the loops.
        boxes: of the stages computed further in, as the innermost place around this one has them.
        stores: stages in local memory -> the depth where it begins, and the box that it holds.
        turn: the innermost loop: its variable, step, and begin.
        scalar: is this the rest of a vector loop, where code is short rather than fast?
    """

    spans: dict[str, dict[int, Span]] = field(default_factory=dict)
    regions: dict[Key, Region] = field(default_factory=dict)
    absorbed: frozenset[Key] = frozenset()
    depth: int = 0
    boxes: Mapping[str, Box] = field(default_factory=dict)
    stores: dict[str, tuple[int, Box]] = field(default_factory=dict)
    turn: tuple[Var, int, Poly] | None = None
    scalar: bool = False

    def opened(self, stage: str, dims: dict[int, Span]) -> Env:
        """Inside a stage that computes `dims`."""
        return replace(self, spans=self.spans | {stage: dict(dims)}, regions={k: r for k, r in self.regions.items() if k[0] != stage})

    def region(self, loop: Loop) -> Region:
        """What is left of a loop's dimension."""
        found = self.regions.get((loop.stage, loop.dim))
        if found is not None:
            return found
        spans = [self.spans[loop.stage][k] for k in dims_of(loop.dim)]
        if len(spans) == 1:
            return Region(spans[0])
        total, loose = ONE, ONE
        for s in spans:
            total, loose = total * not_negative(s.high - s.low + 1, s.partial), loose * s.length
        return Region(Span(ZERO, total - 1, ZERO, ZERO, loose - 1))

    def within(self, loop: Loop, span: Span, size: int | None = None) -> Env:
        """With `span` of a loop's dimension left."""
        stage, key = loop.stage, loop.dim
        dims = dict(self.spans[stage])
        if isinstance(key, int):
            dims[key] = span
        else:
            whole = [self._origin(stage, key, k) for k in key]
            dims.update(zip(key, _unfused(span, whole), strict=True))
        return replace(self, spans=self.spans | {stage: dims}, regions=self.regions | {(stage, key): Region(span, size)})

    def _origin(self, stage: str, key: tuple[int, ...], k: int) -> Span:
        """What a fused dimension had before the loop over it."""
        found = self.regions.get((stage, (-1, *key, k)))
        return self.spans[stage][k] if found is None else found.span

    def fused(self, loop: Loop) -> Env:
        """Remember what the parts of a fused loop range over."""
        if isinstance(loop.dim, int) or (loop.stage, loop.dim) in self.regions:
            return self
        parts = {(loop.stage, (-1, *loop.dim, k)): Region(self.spans[loop.stage][k]) for k in loop.dim}
        return replace(self, regions=self.regions | parts)

    def at(self, loop: Loop, p: Poly) -> Env:
        """At one index of a loop's dimension."""
        return self.within(loop, Span.point(p), 1)

    def deeper(self, var: Var, step: int, begin: Poly) -> Env:
        """Inside one more loop."""
        return replace(self, depth=self.depth + 1, turn=(var, step, begin))

    def absorb(self, loop: Loop) -> Env:
        return replace(self, absorbed=self.absorbed | {(loop.stage, loop.dim)})


def not_negative(n: Poly, partial: bool) -> Poly:
    """A length, zero where a part that nothing is needed of ends before it begins: two such lengths would make a positive product."""
    return extremum("max", n, ZERO) if partial or any(isinstance(a, Extremum) for a in n.atoms()) else n


def _unfused(span: Span, parts: list[Span]) -> list[Span]:
    """What the parts of a fused dimension range over, the last one fastest."""
    if span.low == span.high:
        found: list[Span] = []
        rest = span.low
        for s in reversed(parts[1:]):
            n = ONE if s.high - s.low == poly(-1) else s.high - s.low + 1  # empty: the loop never runs
            found.insert(0, Span.point(s.low + rest % n))
            rest = rest // n
        return [Span.point(parts[0].low + rest), *found]
    n = ONE
    for s in parts[1:]:
        n = n * (s.high - s.low + 1)
    if not n.is_const or n.const < 1:
        return list(parts)
    return [span.floordiv(n.const).plus(Span.point(parts[0].low)), *parts[1:]]
