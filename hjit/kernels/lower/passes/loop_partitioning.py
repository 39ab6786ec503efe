"""Loop partitioning: separate code for the interior, where boundary conditions have no effect.

On a CPU the interior is a part of a vector loop; on a GPU it is the blocks that are not near a border.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from hjit.kernels.lower.loopir import INTERIOR, For, If, Let, Reduce, ResetWindow, Scan, Stmt, VectorLoop
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.passes.vectorize import vectors_at_once
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import (
    bound_vars,
    every,
    has_threads,
    inner,
    stmt_exprs,
    stmt_polys,
    with_bodies,
    with_parts,
)
from hjit.trace.ir.borders import INSIDE
from hjit.trace.ir.expressions import Const, Expr, Index, Op, rewrite, substitute, walk
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import (
    Atom,
    Boundary,
    FloorDiv,
    Indirect,
    IntLike,
    Mod,
    Poly,
    Var,
    deep_atoms,
    extremum,
    lower_bound,
    poly,
)

Range = tuple[Poly, Poly]


def split_at_wraps(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Split vector loops where an index wraps around at a run-time position, as in ``np.roll``.

    What lies before that place, and what lies behind it, is read without a break: each loop has an interior of its own.
    """
    return replace(nest, body=_split(nest.body))


def _split(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    found: list[Stmt] = []
    for s in body:
        s = with_bodies(s, _split)
        found += _at_wrap(s) if isinstance(s, VectorLoop) else (s,)
    return tuple(found)


def _at_wrap(s: VectorLoop) -> tuple[Stmt, ...]:
    """A vector loop split at the position where indices wrap around; unchanged if there is none, or several."""
    inside = [*every(s.body)]
    if any(isinstance(t, Scan | ResetWindow) for t in inside):
        return (s,)
    bound = {v for t in inside for v in bound_vars(t)} | dict(_loops(s.body)).keys()
    wraps: dict[tuple[Poly, Poly], list[Boundary]] = {}
    for a in _tests(s.body):
        if isinstance(a, Boundary) and a.mode == "wrap":
            rest = a.arg - poly(s.var)
            if not rest.is_const and not any(p.mentions(v) for p in (rest, a.extent) for v in (s.var, *bound)):
                wraps.setdefault((rest, a.extent), []).append(a)
    if len(wraps) != 1:
        return (s,)
    (((rest, extent), atoms),) = wraps.items()
    shift = Var(f"{s.var}.shift")  # the index is var - shift from there on, before it larger by the extent
    place = extremum("max", s.begin, extremum("min", poly(shift), s.end))

    def moved(first: Poly, last: Poly, by: Poly) -> VectorLoop:
        def change(a: Atom) -> IntLike | None:
            return poly(Boundary("wrap", poly(s.var) - poly(shift) + by, extent)) if a in atoms else None

        bodies = (tuple(_changed(t, change) for t in body) for body in (s.body, s.remainder))
        whole, single = bodies
        return replace(s, begin=first, end=last, low=first, high=last, body=whole, remainder=single)

    value = -rest % extremum("max", extent, poly(1))
    return Let(shift, value), moved(s.begin, place, extent), moved(place, s.end, poly(0))


def _changed(s: Stmt, change: Callable[[Atom], IntLike | None]) -> Stmt:
    """The statement with atoms of its indices replaced."""
    s = with_parts(s, lambda p: p.substitute(change), lambda e: substitute(e, change))
    return with_bodies(s, lambda body: tuple(_changed(t, change) for t in body))


def partition_loops(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Restrict vector loops to their interior, with aligned indices if divisions need them."""
    return replace(nest, body=tuple(map(_partitioned, nest.body)))


def partition_blocks(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Give blocks separate code if none of their indices is near a border."""
    return replace(nest, body=_blocks_apart(nest.body)) if nest.blocks else nest


def _blocks_apart(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements of a block, or of a loop in it, with both versions of the code."""
    loops = [k for k, s in enumerate(body) if isinstance(s, For) and s.kind != "gpu_thread" and has_threads(s)]
    if loops:  # what is decided is decided as far inside as threads do not differ
        return tuple(with_bodies(s, _blocks_apart) if k in loops else s for k, s in enumerate(body))
    first = next((k for k, s in enumerate(body) if not isinstance(s, Let | ResetWindow)), len(body))
    names, rest = body[:first], body[first:]
    found: list[Poly] = []
    inside = rest
    while True:
        ranges = dict(_loops(inside))
        bound = {v for s in every(inside) for v in bound_vars(s)} - ranges.keys()
        limits = {}
        for a, (index, extent) in _tests(inside).items():
            spread = _spread(index, ranges)
            if spread is not None and not any(p.mentions(v) for p in (*spread, extent) for v in bound):
                limits[a] = spread[0], extent - 1 - spread[1]
        if not limits:
            break
        found += (p for pair in limits.values() for p in pair)
        inside = tuple(_simplify(s, set(limits)) for s in inside)
    if not found:
        return body
    nearest, *others = dict.fromkeys(found)
    for p in others:
        nearest = extremum("min", nearest, p)
    both = tuple(_either(s, t) for s, t in zip(rest, inside, strict=True))
    return body if both == rest else (*names, Let(INTERIOR, nearest), *both)


def _either(s: Stmt, inside: Stmt) -> Stmt:
    """A statement, or the same without boundary handling, decided in each thread: all decide alike, and barriers stay
    outside of conditions."""
    if s == inside:
        return s
    if isinstance(s, Reduce) and isinstance(inside, Reduce) and has_threads(s):
        return replace(s, interior=inside.items)
    if not has_threads(s):
        return If(poly(INTERIOR), (inside,), _short((s,)))
    if isinstance(s, For) and isinstance(inside, For) and not any(map(has_threads, s.body)):
        return replace(s, body=(If(poly(INTERIOR), inside.body, _short(s.body)),))
    pairs = iter(inner(inside))  # in the order in which `with_bodies` asks for them
    return with_bodies(s, lambda body: tuple(_either(a, b) for a, b in zip(body, next(pairs), strict=True)))


def _short(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements with less code: without what is for whole tiles only. Few blocks are at borders."""
    found: list[Stmt] = []
    for s in body:
        s = with_bodies(s, _short)
        found += s.otherwise if isinstance(s, If) and s.otherwise else (s,)
    return tuple(found)


def _tests(body: tuple[Stmt, ...]) -> dict[Boundary | Op, Range]:
    """Indices that are kept inside axes, or tested whether they are, with the lengths of those."""
    bounds = (a for s in body for p in stmt_polys(s) for a in deep_atoms(p) if isinstance(a, Boundary))
    found: dict[Boundary | Op, Range] = {a: (a.arg, a.extent) for a in bounds}
    for e in (e for s in body for e in _insides(s)):
        index, extent = e.args
        assert isinstance(index, Index) and isinstance(extent, Index)
        found[e] = index.poly, extent.poly
    return found


def _partitioned(s: Stmt) -> Stmt:
    s = with_bodies(s, lambda body: tuple(map(_partitioned, body)))
    if not isinstance(s, VectorLoop):
        return s
    low, high, body = interior(s.var, s.body, s.begin, s.end)
    align = alignment(s.var, body, s.lanes * s.copies)
    if align > 1:
        first = (low + (align - 1)) // align * align
        low = low if first == low else extremum("min", first, s.end)
        high = extremum("max", low, high // align * align)
    fewest = s.lanes * min(vectors_at_once(s.lanes, s.copies, align))
    filled = s.tail == "shift_inwards" and (low, high) == (s.begin, s.end) and lower_bound(high - low) >= fewest
    return replace(s, low=low, high=high, align=align, body=body, remainder=() if filled else s.remainder)


def interior(var: Var, body: tuple[Stmt, ...], begin: Poly, end: Poly) -> tuple[Poly, Poly, tuple[Stmt, ...]]:
    """The part of [begin, end) where boundary handling along `var` changes nothing, and the body without it.

    Boundaries inside boundaries show themselves when the inner ones are gone, hence the loop.
    """
    low, high = begin, end
    loops = dict(_loops(body))
    while True:
        limits = {a: x for a, (p, n) in _tests(body).items() if (x := _limits(p, n, var, loops)) is not None}
        if not limits:
            break
        for first, last in limits.values():
            low, high = extremum("max", low, first), extremum("min", high, last)
        body = tuple(_simplify(s, set(limits)) for s in body)
    if low == begin and high == end:
        return begin, end, body
    low = extremum("min", low, end)
    return low, extremum("max", low, high), body


def alignment(var: Var, body: tuple[Stmt, ...], step: int) -> int:
    """What `var` should be a multiple of, so that divisions of it have one pattern of lanes: it divides `step`."""
    found = 1
    for s in body:
        for p in stmt_polys(s):
            for a in deep_atoms(p):
                if (
                    isinstance(a, (FloorDiv, Mod))
                    and a.by.is_const
                    and a.arg.mentions(var)
                    and step % math.lcm(found, a.by.const) == 0
                ):
                    found = math.lcm(found, a.by.const)
    return found


def _loops(body: tuple[Stmt, ...]) -> Iterator[tuple[Var, Range]]:
    """Loop variables inside the statements, with their ranges."""
    for s in body:
        match s:
            case For():
                yield s.var, (s.begin, s.end)
            case VectorLoop():
                yield s.var, (s.begin, s.end)
            case Scan():
                yield s.var, (s.begin, s.end)
            case Reduce():
                for t in s.loops:
                    yield t.var, (t.begin, t.end)
        for nested in inner(s):
            yield from _loops(nested)


def _insides(s: Stmt) -> Iterator[Op]:
    """Tests whether an index is inside an axis."""
    yield from (e for e in walk(*stmt_exprs(s)) if isinstance(e, Op) and e.name == INSIDE)
    for body in inner(s):
        for t in body:
            yield from _insides(t)


def _limits(index: Poly, extent: Poly, var: Var, loops: dict[Var, Range]) -> Range | None:
    """The range of `var` in which an index is inside an axis without boundary handling.

    The index is ``c * var + rest`` or ``c * ((var + shift) // k) + rest``.
    """
    moving = [(m, c) for m, c in index.terms.items() if any(a == var or poly(a).mentions(var) for a in m)]
    if len(moving) != 1 or len(moving[0][0]) != 1:
        return None
    (a,), c = moving[0]
    rest = index - poly(a) * c
    if isinstance(a, FloorDiv) and a.by.is_const and c > 0:
        shift = a.arg - poly(var)
        if shift.mentions(var):
            return None
        spread = _spread(rest, loops)
        shifts = _spread(shift, loops)
        if spread is None or shifts is None:
            return None
        k = a.by
        first, last = _ceil(-spread[0], c), _ceil(extent - spread[1], c)  # first <= quotient < last
        return first * k - shifts[0], last * k - shifts[1]
    if a != var:
        return None
    spread = _spread(rest, loops)
    if spread is None:
        return None
    least, most = spread
    if c > 0:  # 0 <= c * var + rest < extent
        return _ceil(-least, c), _ceil(extent - most, c)
    return (most - extent) // -c + 1, least // -c + 1


def _ceil(p: Poly, by: int) -> Poly:
    return p if by == 1 else (p + (by - 1)) // by


def _spread(p: Poly, loops: dict[Var, Range]) -> Range | None:
    """Least and greatest value over the loops inside; None where something else varies."""
    least = most = poly(p.const)
    for m, c in p.terms.items():
        term = Poly({m: c}, 0)
        varying = [v for v in loops if term.mentions(v)]
        if not varying:
            if term.has(Indirect):
                return None
            least, most = least + term, most + term
        elif len(m) == 1 and isinstance(m[0], Var):
            begin, end = loops[m[0]]
            if any(begin.mentions(v) or end.mentions(v) for v in loops):
                return None
            a, b = begin * c, (end - 1) * c
            least, most = (least + a, most + b) if c > 0 else (least + b, most + a)
        else:
            return None
    return least, most


def _simplify(s: Stmt, vanish: set[Boundary | Op]) -> Stmt:
    """The statement with bounded indices replaced by the indices themselves, and tests by their outcome."""

    def change(a: Atom) -> IntLike | None:
        return a.arg.substitute(change) if isinstance(a, Boundary) and a in vanish else None

    def decide(e: Expr) -> Expr | None:
        if isinstance(e, Op) and e in vanish:
            return Const(True, np.bool_)
        return e.args[1] if isinstance(e, Op) and e.name == "select" and e.args[0] == Const(True, np.bool_) else None

    def expr(e: Expr) -> Expr:
        return substitute(rewrite(e, decide), change)

    s = with_parts(s, lambda p: p.substitute(change), expr)
    return with_bodies(s, lambda body: tuple(_simplify(t, vanish) for t in body))
