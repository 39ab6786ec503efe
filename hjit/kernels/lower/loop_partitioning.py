"""Border and interior: the part of a vector loop in which no boundary handling changes anything, and its body there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hjit.kernels.lower.loopir import Buffer, For, Item, Lanes, Let, Puts, Reduce, Slide, Stmt, When, inner, with_bodies
from hjit.trace.ir.borders import INSIDE
from hjit.trace.ir.graph import Change, Const, Expr, Load, Op, rewrite, substitute, walk
from hjit.trace.ir.poly import Atom, Bound, FloorDiv, IntLike, Mod, Poly, Value, Var, deep_atoms, extremum, poly

Range = tuple[Poly, Poly]


def interior(var: Var, body: tuple[Stmt, ...], begin: Poly, end: Poly) -> tuple[Poly, Poly, tuple[Stmt, ...]]:
    """The part of [begin, end) where boundary handling along `var` changes nothing, and the body without it.

    Boundaries inside boundaries show themselves when the inner ones are gone, hence the loop.
    """
    low, high = begin, end
    loops = dict(_loops(body))
    while True:
        bounds = (a for s in body for p in stmt_polys(s) for a in deep_atoms(p) if isinstance(a, Bound))
        tests: dict[Bound | Op, Range] = {a: (a.arg, a.extent) for a in bounds}
        tests |= {e: (e.args[0].poly, e.args[1].poly) for s in body for e in _insides(s)}  # type: ignore[attr-defined]
        limits = {a: x for a, (p, n) in tests.items() if (x := _limits(p, n, var, loops)) is not None}
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
                if isinstance(a, (FloorDiv, Mod)) and a.by.is_const and a.arg.mentions(var) and step % math.lcm(found, a.by.const) == 0:
                    found = math.lcm(found, a.by.const)
    return found


def stmt_exprs(s: Stmt) -> tuple[Expr, ...]:
    """The values that a statement itself computes."""
    match s:
        case Puts():
            return tuple(p.value for p in s.puts)
        case Reduce():
            return tuple(e for i in s.items for e in (i.initial, i.value))
    return ()


def stmt_polys(s: Stmt) -> Iterator[Poly]:
    """Every polynomial of a statement and of those inside it."""
    yield from own_polys(s)
    if isinstance(s, Let):
        yield s.value
    for body in inner(s):
        for t in body:
            yield from stmt_polys(t)


def _loops(body: tuple[Stmt, ...]) -> Iterator[tuple[Var, Range]]:
    """Loop variables inside the statements, with their ranges."""
    for s in body:
        match s:
            case For():
                yield s.var, (s.begin, s.end)
            case Lanes():
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
    """The range of `var` in which an index is inside an axis by itself.

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
            if any(isinstance(a, Value) for a in deep_atoms(term)):
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


def _simplify(s: Stmt, vanish: set[Bound | Op]) -> Stmt:
    """The statement with bounded indices replaced by the indices themselves, and tests by their outcome."""

    def change(a: Atom) -> IntLike | None:
        return a.arg.substitute(change) if isinstance(a, Bound) and a in vanish else None

    def decide(e: Expr) -> Expr | None:
        if isinstance(e, Op) and e in vanish:
            return Const(True, np.bool_)
        return e.args[1] if isinstance(e, Op) and e.name == "select" and e.args[0] == Const(True, np.bool_) else None

    def expr(e: Expr) -> Expr:
        return substitute(rewrite(e, decide), change)

    def index(ps: tuple[Poly, ...]) -> tuple[Poly, ...]:
        return tuple(p.substitute(change) for p in ps)

    match s:
        case Puts():
            ahead = tuple(Load(x.source, index(x.index), x.dtype) for x in s.ahead)
            return Puts(tuple(replace(p, index=index(p.index), value=expr(p.value)) for p in s.puts), ahead)
        case Reduce():
            return replace(s, items=tuple(Item(index(i.index), expr(i.initial), expr(i.value)) for i in s.items))
        case Let():
            return Let(s.var, s.value.substitute(change))
    return with_bodies(s, lambda body: tuple(_simplify(t, vanish) for t in body))


def copies(body: tuple[Stmt, ...], var: Var, offsets: tuple[int, ...]) -> tuple[Stmt, ...]:
    """The body of several vectors: `var` at each offset; loops inside run once, over all of them."""
    changes = [lambda a, k=k: poly(var) + k if a == var else None for k in offsets]

    def at(index: tuple[Poly, ...], change: Change) -> tuple[Poly, ...]:
        return tuple(p.substitute(change) for p in index)

    def all_of(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(visit, body))

    def visit(s: Stmt) -> Stmt:
        match s:
            case Puts():
                ahead = tuple(Load(x.source, at(x.index, c), x.dtype) for c in changes for x in s.ahead)
                return Puts(tuple(replace(p, index=at(p.index, c), value=substitute(p.value, c)) for c in changes for p in s.puts), ahead)
            case Reduce():
                items = [Item(at(i.index, c), substitute(i.initial, c), substitute(i.value, c)) for c in changes for i in s.items]
                return replace(s, items=tuple(items))
        return with_bodies(s, all_of)

    return all_of(body)


def used(body: tuple[Stmt, ...], buffers: dict[str, Buffer]) -> tuple[Stmt, ...]:
    """The statements without names of indices that nothing refers to."""
    wanted = {a.name for b in buffers.values() for p in b.origin for a in _vars(p)}
    lets: dict[str, list[Poly]] = {}  # several, where there are several codes for one place

    def collect(s: Stmt) -> None:
        if isinstance(s, Let):
            lets.setdefault(s.var.name, []).append(s.value)
            return
        wanted.update(a.name for p in own_polys(s) for a in _vars(p))
        for b in inner(s):
            for t in b:
                collect(t)

    for s in body:
        collect(s)
    work = [n for n in wanted if n in lets]
    while work:
        for a in (a for p in lets[work.pop()] for a in _vars(p)):
            if a.name not in wanted:
                wanted.add(a.name)
                if a.name in lets:
                    work.append(a.name)

    def prune(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(with_bodies(s, prune) for s in body if not (isinstance(s, Let) and s.var.name not in wanted))

    return prune(body)


def own_polys(s: Stmt) -> Iterator[Poly]:
    """The polynomials that a statement itself holds, its headers and values, not the statements inside it."""
    match s:
        case Puts():
            for p in s.puts:
                yield from p.index
            for x in s.ahead:
                yield from x.index
        case Reduce():
            for i in s.items:
                yield from i.index
            for t in s.loops:
                yield from (t.begin, t.end)
        case For():
            yield from (s.begin, s.end)
            if s.limit is not None:
                yield s.limit
        case Lanes():
            yield from (s.begin, s.end, s.low, s.high)
        case When():
            yield s.value
        case Slide():
            yield from (s.first, s.end)
    for e in walk(*stmt_exprs(s)):
        yield from e.polys


def _vars(p: Poly) -> Iterator[Var]:
    return (a for a in deep_atoms(p) if isinstance(a, Var))
