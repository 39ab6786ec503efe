"""Traversals of the loop IR: children and reads of a statement, and a statement with its children replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import is_

from hjit.kernels.lower.loopir import (
    Block,
    Choose,
    CombineThreads,
    CopyAsync,
    Declare,
    For,
    If,
    Item,
    Let,
    LineStart,
    Name,
    Outlined,
    Reduce,
    Scan,
    Set,
    SlidingProduce,
    Stmt,
    Threads,
    VectorLoop,
    Vectors,
)
from hjit.trace.ir.expressions import Change, Expr, Load, loads, substitute, walk
from hjit.trace.ir.poly import Atom, Poly, Var

Body = tuple[Stmt, ...]


def inner(s: Stmt) -> tuple[Body, ...]:
    """The bodies of a statement."""
    match s:
        case For() | Vectors() | SlidingProduce() | Outlined() | Threads():
            return (s.body,)
        case VectorLoop():
            return (s.body, s.remainder)
        case If():
            return (s.body, s.otherwise)
    return ()


def with_bodies(s: Stmt, change: Callable[[Body], Body]) -> Stmt:
    """A statement with other statements inside it; the same one where they are the same."""
    match s:
        case For() | Vectors() | SlidingProduce() | Outlined() | Threads():
            body = change(s.body)
            return s if _is_same(body, s.body) else replace(s, body=body)
        case VectorLoop():
            body, remainder = change(s.body), change(s.remainder)
            is_same = _is_same(body, s.body) and _is_same(remainder, s.remainder)
            return s if is_same else replace(s, body=body, remainder=remainder)
        case If():
            body, otherwise = change(s.body), change(s.otherwise)
            is_same = _is_same(body, s.body) and _is_same(otherwise, s.otherwise)
            return s if is_same else replace(s, body=body, otherwise=otherwise)
    return s


def _is_same(a: Body, b: Body) -> bool:
    return len(a) == len(b) and all(map(is_, a, b))


def every(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """All statements, those around others first."""
    for s in body:
        yield s
        for part in inner(s):
            yield from every(part)


def has_threads(s: Stmt) -> bool:
    """Is there a loop in it that the threads of a block share, also one of a reduction or a scan?"""
    return any(
        (isinstance(t, For) and t.kind == "gpu_thread")
        or (isinstance(t, Reduce) and any(loop.threads or loop.warp_lanes for loop in t.loops))
        or isinstance(t, Scan)
        for t in every((s,))
    )


def bound_vars(s: Stmt) -> tuple[Var, ...]:
    """The names of indices that a statement makes, for its bodies or for what follows it."""
    match s:
        case Let() | Choose() | For() | VectorLoop() | SlidingProduce():
            return (s.var,)
        case LineStart():
            return s.streams, s.aligned_down, s.aligned_up
        case Threads():
            return tuple(t.var for t in s.loops)
    return ()


def stmt_exprs(s: Stmt) -> tuple[Expr, ...]:
    """The values that a statement itself computes."""
    match s:
        case Block():
            return (*(x.value for x in s.stores), *(x.value for x in s.sets))
        case Reduce():
            return tuple(e for i in (*s.items, *s.interior) for e in (i.initial, i.value))
        case Scan():
            return s.initial, s.element
        case Declare():
            return (s.initial,)
        case Name():
            return (s.value,)
        case For() if s.until is not None:
            return (s.until,)
        case CombineThreads():
            return s.combined
        case CopyAsync():
            return (s.load,)
    return ()


def own_polys(s: Stmt) -> Iterator[Poly]:
    """The polynomials of a statement's header and values, without those of statements inside it and of
    `named_polys`."""
    match s:
        case Block():
            places = (*(x.index for x in s.stores), *(x.index for x in s.ahead), *(x.index for x in s.rows))
            yield from (p for index in places for p in index)
        case Reduce():
            yield from (p for i in s.items for p in i.index)
            yield from (p for t in s.loops for p in (t.begin, t.end))
        case Scan():
            yield from (*s.index, s.begin, s.end)
        case CopyAsync():
            yield from s.index
        case For():
            yield from (p for p in (s.begin, s.end, s.limit, s.first) if p is not None)
        case VectorLoop():
            yield from (s.begin, s.end, s.low, s.high)
        case Vectors():
            yield from () if s.active is None else (s.active,)
        case LineStart():
            yield from (*s.line.index, s.low, s.high)
        case If():
            yield s.value
        case SlidingProduce():
            yield from (s.first, s.end)
        case Threads():
            yield from (p for t in s.loops for p in (t.begin, t.end))
    for e in walk(*stmt_exprs(s)):
        yield from e.polys


def named_polys(s: Stmt) -> tuple[Poly, ...]:
    """What the names stand for that a statement makes."""
    match s:
        case Let():
            return (s.value,)
        case Choose():
            return s.test, s.yes, s.no
    return ()


def stmt_polys(s: Stmt) -> Iterator[Poly]:
    """Every polynomial of a statement and of those inside it."""
    for t in every((s,)):
        yield from own_polys(t)
        yield from named_polys(t)


def sources(body: Iterable[Stmt]) -> Iterator[str]:
    """The arrays that statements read."""
    for s in every(body):
        indices = [p for x in s.stores for p in x.index] if isinstance(s, Block) else []
        indices += [p for i in s.items for p in i.index] if isinstance(s, Reduce) else []
        indices += s.index if isinstance(s, Scan | CopyAsync) else ()
        yield from (x.source for x in loads(*stmt_exprs(s), *(e for p in indices for e in p.exprs)))


def stored(s: Stmt) -> tuple[str, ...]:
    """The arrays that a statement itself writes."""
    match s:
        case Block():
            return tuple(x.buffer for x in s.stores)
        case Reduce() | Scan() | CopyAsync():
            return (s.buffer,)
    return ()


def with_parts(s: Stmt, poly: Callable[[Poly], Poly], expr: Callable[[Expr], Expr]) -> Stmt:
    """The statement itself with other indices and values; those inside it are kept."""

    def index(ps: tuple[Poly, ...]) -> tuple[Poly, ...]:
        return tuple(map(poly, ps))

    def some(p: Poly | None) -> Poly | None:
        return None if p is None else poly(p)

    match s:
        case Let():
            return Let(s.var, poly(s.value))
        case Choose():
            return Choose(s.var, poly(s.test), poly(s.yes), poly(s.no))
        case For():
            return replace(s, begin=poly(s.begin), end=poly(s.end), limit=some(s.limit), first=some(s.first))
        case VectorLoop():
            line = None if s.line is None else replace(s.line, index=index(s.line.index))
            return replace(s, begin=poly(s.begin), end=poly(s.end), low=poly(s.low), high=poly(s.high), line=line)
        case Vectors():
            return replace(s, active=some(s.active))
        case LineStart():
            line = replace(s.line, index=index(s.line.index))
            return replace(s, line=line, low=poly(s.low), high=poly(s.high))
        case If():
            return replace(s, value=poly(s.value))
        case SlidingProduce():
            return replace(s, first=poly(s.first), end=poly(s.end))
        case Threads():
            return replace(s, loops=tuple(replace(t, begin=poly(t.begin), end=poly(t.end)) for t in s.loops))
        case CombineThreads():
            return replace(s, combined=tuple(map(expr, s.combined)))
        case CopyAsync():
            load = expr(s.load)
            assert isinstance(load, Load)
            return CopyAsync(s.buffer, index(s.index), load)
        case Block():
            ahead = tuple(Load(x.source, index(x.index), x.dtype) for x in s.ahead)
            stores = tuple(replace(x, index=index(x.index), value=expr(x.value)) for x in s.stores)
            rows = tuple(replace(x, index=index(x.index)) for x in s.rows)
            return Block(stores, ahead, tuple(Set(x.register, expr(x.value)) for x in s.sets), rows)
        case Reduce():
            items, interior = (
                tuple(Item(index(i.index), expr(i.initial), expr(i.value)) for i in row)
                for row in (s.items, s.interior)
            )
            loops = tuple(replace(t, begin=poly(t.begin), end=poly(t.end)) for t in s.loops)
            return replace(s, items=items, interior=interior, loops=loops)
        case Scan():
            s = replace(s, begin=poly(s.begin), end=poly(s.end), index=index(s.index))
            return replace(s, initial=expr(s.initial), element=expr(s.element))
        case Declare():
            return replace(s, initial=expr(s.initial))
        case Name():
            return replace(s, value=expr(s.value))
    return s


def substitute_in(s: Stmt, change: Change, memo: dict[Expr, Expr] | None = None) -> Stmt:
    """The statement, and those inside it, with the atoms of all indices and values replaced.

    Args:
        memo: values and what they became, of other statements with the same `change`.
    """
    known: dict[Expr, Expr] = {} if memo is None else memo
    s = with_parts(s, lambda p: p.substitute(change), lambda e: substitute(e, change, known))
    return with_bodies(s, lambda body: tuple(substitute_in(t, change, known) for t in body))


def at(body: Body, values: Mapping[Var, Poly]) -> Body:
    """The statements where some variables have values."""

    def change(a: Atom) -> Poly | None:
        return values.get(a) if isinstance(a, Var) else None

    memo: dict[Expr, Expr] = {}
    return tuple(substitute_in(s, change, memo) for s in body)
