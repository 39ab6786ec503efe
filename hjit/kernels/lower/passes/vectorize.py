"""Vector loops: a scalar prologue, whole vectors, and an epilogue.

Every `VectorLoop` becomes loops over `Vectors`: the steady state, whose iterations compute several vectors; an epilogue
of single vectors; the last vector according to the tail strategy; and loops over single elements before and after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hjit.kernels.lower.loopir import Block, Choose, For, If, Let, LineStart, Reduce, Stmt, VectorLoop, Vectors
from hjit.kernels.lower.machine import Machine
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import Body, at, with_bodies
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import ZERO, Poly, Var, extremum, lower_bound, poly

FEWEST_ITERATIONS = 8  # of a loop that is aligned to the lines of the cache, so that one iteration more is little


def vectors_at_once(lanes: int, copies: int, align: int) -> tuple[int, ...]:
    """The numbers of vectors per iteration of a `VectorLoop`, at multiples of `align`: all copies, or one in the
    epilogue."""
    return tuple(n for n in dict.fromkeys((copies, 1)) if n * lanes % align == 0)


def vectorize(nest: Nest, graph: Graph, machine: Machine) -> Nest:
    """Replace each `VectorLoop` by loops over `Vectors` and single elements."""
    return replace(nest, body=_vectorized(nest.body))


def _vectorized(body: Body) -> Body:
    return tuple(t for s in body for t in _loops(with_bodies(s, _vectorized)))


def _loops(s: Stmt) -> Iterator[Stmt]:
    if not isinstance(s, VectorLoop):
        yield s
    elif s.tail == "shift_inwards":
        yield from _shifted(s)
    else:
        yield from _stepped(s)


def _name(s: VectorLoop, word: str) -> Var:
    return Var(f"{s.var.name}.{word}")


def _chosen(var: Var, length: Poly, fewest: int, yes: Poly, no: Poly) -> tuple[Poly, Body]:
    """``yes if length >= fewest else no``, and the statement that names it where it is not known."""
    if lower_bound(length) >= fewest:
        return yes, ()
    return (no, ()) if length.is_const else _either(var, length - fewest, yes, no)


def _either(var: Var, test: Poly, yes: Poly, no: Poly) -> tuple[Poly, Body]:
    """``yes if test >= 0 else no``, and the statement that names it where they differ."""
    return (yes, ()) if yes == no else (poly(var), (Choose(var, test, yes, no),))


def _whole(begin: Poly, end: Poly, step: int) -> Poly:
    """The end of the whole steps from `begin` on; the range may be empty, and end before it begins."""
    return extremum("max", begin + (end - begin) // step * step, begin)


def _vectors(
    s: VectorLoop, begin: Poly, end: Poly, count: int, limit: Poly | None = None, first: Poly | None = None
) -> For:
    """A loop whose iterations do `count` vectors."""
    body = copies(s.body, s.var, tuple(range(0, count * s.lanes, s.lanes)))
    return For(s.var, begin, end, count * s.lanes, (Vectors(s.var, s.lanes, body, count, s.align),), limit, first=first)


def _shifted(s: VectorLoop) -> Iterator[Stmt]:
    """The interior in vectors, with the last one shifted inwards, if there are enough elements for one."""
    n = s.high - s.low
    line = None
    if s.line is not None:
        streams, down, up = (_name(s, word) for word in ("streams", "aligned_down", "aligned_up"))
        fewest = FEWEST_ITERATIONS * s.copies * s.lanes
        line = LineStart(streams, down, up, s.line, s.var, s.low, s.high, s.lanes, fewest)
        yield line
    done = s.low
    after = s.low
    for k, count in enumerate(vectors_at_once(s.lanes, s.copies, s.align)):
        stop, choice = _chosen(_name(s, f"stop{k}" if k else "stop"), n, count * s.lanes, s.high, s.low)
        yield from choice
        if k:  # where there are enough for all copies, they have done it
            stop, choice = _chosen(_name(s, "single"), n, s.copies * s.lanes, s.low, stop)
            yield from choice
        if line is None or k:
            if stop != s.low:
                yield _vectors(s, s.low, stop, count, s.high)
        else:
            if s.remainder:
                after = poly(_name(s, "after"))
                yield Let(_name(s, "after"), _whole(poly(line.aligned_up), s.high, count * s.lanes))
                begin, end = (poly(line.aligned_up), s.low), (after, stop)
            else:
                begin, end = (poly(line.aligned_down), s.low), (stop, stop)
            first, choice = _either(_name(s, "from"), poly(line.streams), *begin)
            last, other = _either(_name(s, "until"), poly(line.streams), *end)
            yield from (*choice, *other)
            yield _vectors(s, first, last, count, s.high, None if s.remainder else s.low)
        done = extremum("max", done, stop)
    if not s.remainder:
        return
    if line is None:
        yield from _single(s, s.low, done)
    else:
        yield If(poly(line.streams), tuple(_edges(s, poly(line.aligned_up), after)), tuple(_single(s, s.low, done)))


def _stepped(s: VectorLoop) -> Iterator[Stmt]:
    """Whole vectors from the first element of the interior on, then the remainder by the tail strategy."""
    done = s.low
    for count in vectors_at_once(s.lanes, s.copies, s.align):
        end = _name(s, f"end{count}")
        yield Let(end, _whole(done, s.high, count * s.lanes))
        yield _vectors(s, done, poly(end), count)
        done = poly(end)
    if s.tail == "predicate":
        active = Vectors(s.var, s.lanes, s.body, 1, s.align, active=s.high)
        yield For(s.var, done, s.high, s.lanes, (active,))
        done = extremum("max", done, s.high)
    if s.remainder:
        yield from _single(s, s.low, done)


def _sides(s: VectorLoop, before: tuple[Poly, Poly], behind: tuple[Poly, Poly], body: Body, **how: Poly) -> Stmt:
    """Loops over two ranges, before the interior and behind it: one code for both sides."""
    side, first, last = (_name(s, word) for word in ("side", "begin", "end"))
    begin, end = (Choose(var, -poly(side), a, b) for var, a, b in zip((first, last), before, behind, strict=True))
    step = s.lanes if how else 1
    loop = For(s.var, poly(first), poly(last), step, body, how.get("limit"), first=how.get("first"), rare=True)
    return For(side, ZERO, poly(2), 1, (begin, end, loop))


def _single(s: VectorLoop, low: Poly, high: Poly) -> Iterator[Stmt]:
    """Single elements, before `low` and from `high` on."""
    if s.low == s.begin:
        yield For(s.var, high, s.end, 1, s.remainder, rare=True)
    else:
        yield _sides(s, (s.begin, low), (high, s.end), s.remainder)


def _edges(s: VectorLoop, first: Poly, after: Poly) -> Iterator[Stmt]:
    """What is before `first` and from `after` on, in vectors with boundary handling: streamed lines are stored
    whole."""
    start = first - (first - s.begin + (s.lanes - 1)) // s.lanes * s.lanes
    body = (Vectors(s.var, s.lanes, s.remainder),)
    yield _sides(s, (start, first), (after, s.end), body, limit=s.end, first=s.begin)


def copies(body: Body, var: Var, offsets: tuple[int, ...]) -> Body:
    """The body of several vectors: `var` at each offset; loops inside run once, over all of them."""
    if offsets == (0,):
        return body

    def all_of(body: Body) -> Body:
        return tuple(map(visit, body))

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, Block | Reduce):
            return with_bodies(s, all_of)
        moved = [at((s,), {var: poly(var) + k})[0] for k in offsets]
        blocks = [m for m in moved if isinstance(m, Block)]
        if isinstance(s, Reduce):
            return replace(s, items=tuple(i for m in moved if isinstance(m, Reduce) for i in m.items))
        return Block(tuple(x for b in blocks for x in b.stores), tuple(x for b in blocks for x in b.ahead))

    return all_of(body)
