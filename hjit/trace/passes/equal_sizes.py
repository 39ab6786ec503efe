"""Sizes that the function assumes to be equal, and that are, become one symbol.

The arrays of a call have a symbol for each axis. If a stage reads an axis of another array from end to end (``a + b``,
``out[:] = a``), its loops run over one size and the array has another. No later pass can prove that they are equal, so
boundary conditions remain, buffers span whole axes, and the tiles of the two do not match. A trace serves one set of
shapes only, so sizes that are equal in it may become one symbol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from hjit.trace.ir.expressions import Change, Expr
from hjit.trace.ir.graph import Definition, Graph
from hjit.trace.ir.poly import Atom, Boundary, Dim, Extremum, FloorDiv, Mod, Poly, Sym, deep_atoms, poly, sizes_value
from hjit.trace.ir.rewriting import substitute_stage

Equation = tuple[Poly, Poly]
ROUNDS = 4  # what is equal may show only once other sizes are written alike


def unify_sizes(
    graph: Graph, sizes: Mapping[str, int], equations: Iterable[Equation] = (), by_chance: bool = True
) -> Graph:
    """Write sizes that are equal in this trace as the same symbol.

    Args:
        graph: as it was recorded.
        sizes: the numbers of its sizes; equations that do not hold for them are no equations.
        equations: sizes that NumPy's rules for shapes have compared.
        by_chance: also those that are equal at these sizes only, as in ``a[:len(b)] + b``? No where the Graph is to
            serve other sizes without a new trace.
    """
    compared = [x for x in equations if all(_is_size(p, sizes) for p in x)]
    for _ in range(ROUNDS):
        solved = _solved([*compared, *(_compared(graph) if by_chance else ())], sizes, _ages(graph))
        if not solved:
            break
        graph = _substituted(graph, solved.get)
        compared = [(a.substitute(solved.get), b.substitute(solved.get)) for a, b in compared]
    return graph


def _is_size(p: Poly, sizes: Mapping[str, int]) -> bool:
    """Does it depend on sizes only? In loops, lengths may depend on the iteration."""
    return all(
        isinstance(a, (FloorDiv, Mod, Extremum)) or (isinstance(a, Sym) and a.name in sizes) for a in deep_atoms(p)
    )


def _solved(equations: Sequence[Equation], sizes: Mapping[str, int], age: Mapping[Atom, int]) -> dict[Atom, Poly]:
    """Symbols, or else quotients of sizes, with what is to be written for them."""
    solved: dict[Atom, Poly] = {}
    for kind in (Sym, (FloorDiv, Mod)):
        for a, b in dict.fromkeys(equations):
            a, b = a.substitute(solved.get), b.substitute(solved.get)
            if a != b and sizes_value(a, sizes) == sizes_value(b, sizes):
                found = _solution(a - b, kind, age)
                if found is not None:
                    youngest, value = found
                    solved = {x: p.substitute({youngest: value}.get) for x, p in solved.items()} | {youngest: value}
        if solved:
            break
    return solved


def _ages(graph: Graph) -> dict[Atom, int]:
    """The atoms of sizes from the oldest to the youngest: those of inputs, then those of stages."""
    found: dict[Atom, int] = {}
    for shape in graph.shapes.values():
        for p in shape:
            for a in deep_atoms(p):
                found.setdefault(a, len(found))
    return found


def _compared(graph: Graph) -> Iterator[Equation]:
    """Pairs of extents of loops and of axes along which these loops run, element by element."""
    shapes = graph.shapes
    for s in graph.stages:
        for d in s.definitions:
            yield from _along(d, d.target, s.shape)
            for load in d.loads:
                yield from _along(d, load.index, shapes[load.source])


def _along(d: Definition, index: tuple[Poly, ...], shape: tuple[Poly, ...]) -> Iterator[Equation]:
    for p, n in zip(index, shape, strict=True):
        if len(p.terms) != 1:
            continue
        inner = p.unbounded
        if len(inner.terms) != 1:
            continue
        ((atoms, c),) = inner.terms.items()
        is_bounded = inner is not p  # an offset is as good: the boundary is where it would be without
        if c == 1 and len(atoms) == 1 and isinstance(atoms[0], Dim) and (inner.const == 0 or is_bounded):
            extent, length = d.extents[atoms[0].k], _extent(p) if is_bounded else n
            if extent is not length and extent != length:
                yield extent, length


def _extent(p: Poly) -> Poly:
    """Of the boundary condition that an index is."""
    (a,) = p.atoms()
    assert isinstance(a, Boundary)
    return a.extent


def _solution(zero: Poly, kind: Any, age: Mapping[Atom, int]) -> tuple[Atom, Poly] | None:
    """The youngest atom of a kind that ``zero == 0`` gives by others; None: none does, or it would be a constant."""
    found = []
    for atoms, c in zero.terms.items():
        if c in (1, -1) and len(atoms) == 1 and isinstance(atoms[0], kind):
            rest = zero - poly(atoms[0]) * c
            if rest.terms and not rest.mentions(atoms[0]):
                found.append((age.get(atoms[0], len(age)), atoms[0], rest * -c))
    if not found:
        return None
    _, youngest, value = max(found, key=itemgetter(0))
    return youngest, value


def _substituted(graph: Graph, change: Change) -> Graph:
    """The Graph with `change` made in all sizes and indices."""
    memo: dict[Expr, Expr] = {}
    inputs = tuple(replace(x, shape=tuple(p.substitute(change) for p in x.shape)) for x in graph.inputs)
    return replace(graph, inputs=inputs, stages=tuple(substitute_stage(s, change, memo) for s in graph.stages))
