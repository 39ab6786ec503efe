"""The run-time sizes of a trace, as traced code sees them and as polynomials."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hjit.trace.ir.large_numbers import large_number
from hjit.trace.ir.poly import SMALL, Poly, Sym, poly, sizes_value
from hjit.trace.tracing.scalars.induction import InductionVariable
from hjit.trace.tracing.scalars.moving import MovingLength
from hjit.trace.tracing.scalars.size import Size


@dataclass(eq=False, kw_only=True)
class TracedSizes:
    """The run-time sizes of one trace.

    Attributes:
        sizes: the number of each, by name.
        equations: sizes that the function takes for equal.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    equations: dict[tuple[Poly, Poly], None] = field(default_factory=dict)
    _shapes: dict[tuple[Any, ...], tuple[int, ...]] = field(default_factory=dict)
    _polys: dict[int, tuple[tuple[int | Poly, ...], tuple[Poly, ...]]] = field(default_factory=dict)

    def symbol(self, name: str, value: int) -> Any:
        """A run-time size; a constant where it is small."""
        if -SMALL <= value <= SMALL:
            return int(value)
        self.sizes[name] = int(value)
        return Size(value, poly(Sym(name)))

    def poly(self, n: Any) -> Poly:
        """A size or offset as a polynomial; a large plain number becomes a run-time parameter of its own."""
        if type(n) in (Size, InductionVariable, MovingLength):
            found: Poly = n.poly
            return found
        if isinstance(n, Poly):
            return n
        n = int(n)
        if -SMALL <= n <= SMALL:
            return poly(n)
        size = large_number(abs(n))
        self.sizes[size.name] = abs(n)
        p = poly(size)
        return p if n > 0 else -p

    def size(self, p: Poly) -> int:
        """A size of the trace as the traced code sees it: a `Size`, or a plain int where it is small."""
        value: int = Size(sizes_value(p, self.sizes), p)
        return value

    def equate(self, a: int, b: int) -> None:
        """Note that two sizes are equal and the function relies on it; see `hjit.trace.passes.equal_sizes`."""
        p, q = self.poly(a), self.poly(b)
        if p is not q and p != q:
            self.equations[p, q] = None

    def polys(self, ns: Iterable[int | Poly]) -> tuple[Poly, ...]:
        """`poly` of each; memoised for shapes, which many arrays share."""
        if type(ns) is not tuple:
            return tuple(map(self.poly, ns))
        found = self._polys.get(id(ns))
        if found is None:
            found = self._polys[id(ns)] = ns, tuple(map(self.poly, ns))
        return found[1]

    def shape(self, ns: Iterable[int]) -> tuple[int, ...]:
        """Sizes as a shape; equal shapes are the same object, which is a key of memoised facts."""
        found = tuple(ns)
        return self._shapes.setdefault(tuple([n.poly if type(n) is Size else n for n in found]), found)

    def forget_shapes(self) -> None:
        """Drop the tables of shapes."""
        self._shapes.clear()
        self._polys.clear()
