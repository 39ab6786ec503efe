"""Questions about whole Graphs: which run-time sizes they use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hjit.trace.poly import Poly, Sym, parts

if TYPE_CHECKING:
    from hjit.trace.graph import Graph


def poly_symbols(p: Poly) -> Iterator[str]:
    """Names of the run-time sizes in a polynomial, those inside gathers too."""
    for a in p.atoms():
        if isinstance(a, Sym):
            yield a.name
        for part in parts(a):
            if isinstance(part, Poly):
                yield from poly_symbols(part)
            else:
                yield from expr_symbols(part)


def expr_symbols(*roots: object) -> Iterator[str]:
    """Names of the run-time sizes in expressions."""
    from hjit.trace.graph import polys, walk

    for e in walk(*roots):  # type: ignore[arg-type]
        for p in polys(e):
            yield from poly_symbols(p)


def graph_symbols(graph: Graph) -> tuple[str, ...]:
    """Names of the run-time sizes of a Graph, in order of first use."""
    found: dict[str, None] = {}
    for i in graph.inputs:
        for p in i.shape:
            found.update(dict.fromkeys(poly_symbols(p)))
    for s in graph.stages:
        for p in s.shape:
            found.update(dict.fromkeys(poly_symbols(p)))
        for d in s.definitions:
            for p in (*d.dims, *d.rdims, *d.target):
                found.update(dict.fromkeys(poly_symbols(p)))
            found.update(dict.fromkeys(expr_symbols(d.value)))
    return tuple(found)
