"""How arrays are laid out in memory: strides as polynomials, and the stride of an access along a dimension."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from hjit.trace.ir.graph import Graph, Stage
from hjit.trace.ir.poly import ONE, ZERO, Boundary, Dim, FloorDiv, Mod, Poly, poly

LINE = 64  # bytes that caches hold and fetch together


@dataclass(frozen=True, slots=True)
class Layout:
    """How the axes of a stage are laid out in memory; see `hjit.sched.language.tree.Store`."""

    order: tuple[int, ...] = ()
    align: tuple[int, ...] = ()

    def lengths(self, shape: tuple[Poly, ...]) -> tuple[Poly, ...]:
        """The lengths of the axes in memory."""
        return tuple((n + (a - 1)) // a * a for n, a in zip(shape, self.align, strict=True)) if self.align else shape

    def strides(self, shape: tuple[Poly, ...]) -> tuple[Poly, ...]:
        """Strides in elements."""
        lengths = self.lengths(shape)
        found = [ONE] * len(shape)
        step = ONE
        for axis in reversed(self.order or range(len(shape))):
            found[axis] = step
            step = step * lengths[axis]
        return tuple(found)

    def __str__(self) -> str:
        return "".join(
            f" {word} {', '.join(map(str, what))}"
            for word, what in (("in order", self.order), ("aligned to", self.align))
            if what
        )


C_ORDER = Layout()


def memory_order(graph: Graph, array: str) -> tuple[int, ...] | None:
    """The axes of an input or a stage from the slowest to the fastest in memory, where it is known which is fastest;
    stages are taken to be in C order."""
    i = graph.input_by_name.get(array)
    axes = tuple(range(len(graph.shapes[array])))
    if i is None or i.data is not None:
        return axes
    fast = [k for k in axes if i.layout[k] == 1]
    return (*(k for k in axes if k != fast[-1]), fast[-1]) if fast else None


def rejoined(p: Poly) -> Poly:
    """The polynomial with ``c * k * (a // k) + c * (a % k)`` written as ``c * a``."""
    for m, c in p.terms.items():
        if len(m) == 1 and isinstance(m[0], Mod) and m[0].by.is_const:
            a = m[0]
            whole = (FloorDiv(a.arg, a.by),)
            if p.terms.get(whole) == c * a.by.const:
                return rejoined(p - Poly({m: c, whole: c * a.by.const}, 0) + a.arg * c)
    return p


def away_from_borders(p: Poly) -> Poly:
    """An index where no bound that it has changes it."""
    while any(isinstance(a, Boundary) for a in p.atoms()):
        p = p.substitute(lambda a: a.arg if isinstance(a, Boundary) else None)
    return p


class Strides:
    """Strides in elements of inputs and stages, as polynomials; None where only the run knows them."""

    def __init__(self, graph: Graph) -> None:
        self.of: dict[str, tuple[Poly | None, ...]] = {}
        for i in graph.inputs:
            self.of[i.name] = tuple(None if s is None else poly(s) for s in i.layout)
        for s in graph.stages:
            self.of[s.name] = C_ORDER.strides(s.shape)
        self._along: dict[tuple[tuple[Poly | None, ...], tuple[Poly, ...], int], Poly | None] = {}

    def with_order(self, s: Stage, order: tuple[int, ...]) -> Strides:
        """The same with another order of one stage's axes in memory."""
        new = copy.copy(self)
        new.of = {**self.of, s.name: Layout(order).strides(s.shape)}
        return new

    def along(self, source: str, index: tuple[Poly, ...], k: int) -> Poly | None:
        """The stride of an access along dimension `k`, away from borders; None where it is no constant polynomial."""
        key = self.of[source], index, k
        if key not in self._along:
            self._along[key] = _along(*key)
        return self._along[key]


def _along(strides: tuple[Poly | None, ...], index: tuple[Poly, ...], k: int) -> Poly | None:
    """`Strides.along`, of an array with these strides."""
    total = ZERO
    for p, stride in zip(index, strides, strict=True):
        c = away_from_borders(p).coefficient(Dim(k))
        if c is None or (stride is None and c != ZERO):
            return None
        if stride is not None:
            total = total + c * stride
    return total
