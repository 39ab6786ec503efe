"""How arrays lie in memory: strides as polynomials, and the stride of an access along a dimension."""

from __future__ import annotations

from hjit.trace.graph import Graph
from hjit.trace.poly import ONE, ZERO, Dim, FloorDiv, Mod, Poly, poly


def strides(shape: tuple[Poly, ...], order: tuple[int, ...] = ()) -> tuple[Poly, ...]:
    """Strides in elements, the axes from the slowest to the fastest as `order` has them; () is C order."""
    found = [ONE] * len(shape)
    step = ONE
    for axis in reversed(order or range(len(shape))):
        found[axis] = step
        step = step * shape[axis]
    return tuple(found)


def rejoined(p: Poly) -> Poly:
    """The polynomial with ``c * k * (a // k) + c * (a % k)`` written as ``c * a``."""
    for m, c in p.terms.items():
        if len(m) == 1 and isinstance(m[0], Mod) and m[0].by.is_const:
            a = m[0]
            whole = (FloorDiv(a.arg, a.by),)
            if p.terms.get(whole) == c * a.by.const:
                return rejoined(p - Poly({m: c, whole: c * a.by.const}, 0) + a.arg * c)
    return p


class Strides:
    """Strides in elements of inputs and stages, as polynomials; None where only the run knows them."""

    def __init__(self, graph: Graph) -> None:
        self.of: dict[str, tuple[Poly | None, ...]] = {}
        for i in graph.inputs:
            self.of[i.name] = tuple(None if s is None else poly(s) for s in i.layout)
        for s in graph.stages:
            self.of[s.name] = strides(s.shape)

    def along(self, source: str, index: tuple[Poly, ...], k: int) -> Poly | None:
        """The stride of an access along dimension `k`; None where it is not a constant polynomial."""
        total = ZERO
        for p, stride in zip(index, self.of[source], strict=True):
            c = p.coefficient(Dim(k))
            if c is None or (stride is None and c != ZERO):
                return None
            if stride is not None:
                total = total + c * stride
        return total
