"""Lowering: Graph + schedule tree -> loop IR.

For every nest of the tree: dimensions become loop variables, small ones are unrolled, a vector loop is split into an
interior without boundary handling and the scalar rest, and associative updates become `Reduce` with accumulators in
registers. `lower` at the end is the list of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hjit.kernels.loopir import For, Nest, Program, Put, Range, Reduce, Slide, Stmt
from hjit.sched.slide import rows_needed
from hjit.sched.tree import Compute, Loop, Node, Root, Store
from hjit.trace.borders import INSIDE
from hjit.trace.canonical import cost
from hjit.trace.graph import Cast, Const, Definition, Expr, Graph, Op, Stage, polys, rewrite, substitute, walk
from hjit.trace.poly import ZERO, Atom, Bound, Dim, IntLike, Poly, Sym, Value, Var, extremum, parts, poly

CHUNK = 4096  # elements of a task of a one-dimensional nest
REDUCE_CHUNK = 512  # the same where each element is a reduction
EXACT_SUM = 8  # sums of up to so many terms are added in NumPy's order and dtype


@dataclass(frozen=True, slots=True)
class _Path:
    """One branch of the tree: its loops, outermost first, and the definitions at its end."""

    loops: tuple[Loop, ...]
    compute: Compute


def lower(graph: Graph, schedule: Root) -> Program:
    """The loop nests of a Graph under a schedule."""
    return Program(tuple(_nest(graph, list(_paths(top, ()))) for top in _tops(schedule)))


def _tops(node: Node) -> Iterator[Node]:
    """The outermost loops (or computations) of the tree, each a nest of its own."""
    if isinstance(node, (Root, Store)):
        for c in node.children:
            yield from _tops(c)
    else:
        yield node


def _paths(node: Node, loops: tuple[Loop, ...]) -> Iterator[_Path]:
    match node:
        case Compute():
            yield _Path(loops, node)
        case Loop():
            for c in node.children:
                yield from _paths(c, (*loops, node))
        case Root() | Store():
            for c in node.children:
                yield from _paths(c, loops)


def _nest(graph: Graph, paths: list[_Path]) -> Nest:
    """The nest of one outermost loop; stages before the last are computed inside it, row by row."""
    head = paths[-1]
    nest = _nest_of(graph.stage(head.compute.stage), head)
    if len(paths) == 1:
        return nest
    assert nest.parallel is not None
    row = poly(nest.parallel.var)
    members = {p.compute.stage: _Path(tuple(x for x in p.loops if x.stage == p.compute.stage), p.compute) for p in paths[:-1]}
    rows = rows_needed(graph, head.compute.stage, tuple(members), row)
    assert rows is not None
    lines = {name: 1 << (rows[name].length.const - 1).bit_length() for name in members}
    slides: list[Stmt] = []
    work = nest.work
    for name, path in members.items():
        stage = graph.stage(name)
        builder = _Builder(stage, [stage.definitions[n] for n in path.compute.definitions], path)
        var = Var(f"{name}.d0")
        slides.append(Slide(name, var, rows[name].low, rows[name].high + 1, tuple(builder.body(1, {0: poly(var)}))))
        work = work + _work(builder.definitions, skip=0)
    return Nest(nest.stage, (*slides, *nest.body), nest.parallel, work, lines)


def _work(definitions: list[Definition], skip: int | None) -> Poly:
    """Estimated operations of a nest, the loop over dimension `skip` not counted."""
    work = poly(max(sum(cost(x.value) + 1 for x in definitions), 1))
    for k, n in enumerate(definitions[-1].extents):
        if k != skip:
            work = work * n
    return work


def _nest_of(stage: Stage, path: _Path) -> Nest:
    definitions = [stage.definitions[n] for n in path.compute.definitions]
    d = definitions[-1]
    builder = _Builder(stage, definitions, path)
    outer = path.loops[0] if path.loops and path.loops[0].kind == "parallel" else None
    work = _work(definitions, None if outer is None else outer.dim)
    if outer is None:
        return Nest(stage.name, tuple(builder.body(0, {})), None, work)
    if builder.lanes_dim == outer.dim:
        size = REDUCE_CHUNK if d.rdims else CHUNK
        chunk = Var("chunk")
        begin = poly(chunk) * size
        end = extremum("min", begin + size, d.extents[outer.dim])
        body = builder.vector(1, {}, (begin, end))
        count = (d.extents[outer.dim] + (size - 1)) // size
        return Nest(stage.name, tuple(body), For(chunk, ((ZERO, count),), 1, "parallel", ()), work * size)
    var = Var(f"d{outer.dim}")
    body = builder.body(1, {outer.dim: poly(var)})
    return Nest(stage.name, tuple(body), For(var, ((ZERO, d.extents[outer.dim]),), 1, "parallel", ()), work)


class _Builder:
    """Builds the statements of one nest from the outside in; `at` maps dimensions to their index so far."""

    def __init__(self, stage: Stage, definitions: list[Definition], path: _Path) -> None:
        self.stage, self.definitions, self.path = stage, definitions, path
        self.last = definitions[-1]
        self.reduces = self.last.order not in ("pure", "sequential") and _is_direct(self.last)
        vector = next((x for x in path.loops if x.kind == "vector"), None)
        self.lanes_dim = vector.dim if vector else None
        self.lanes = (vector.size or 1) if vector else 1

    def body(self, position: int, at: dict[int, Poly]) -> list[Stmt]:
        """The statements inside the loops before `position`."""
        if position == len(self.path.loops):
            return self.leaves(at)
        loop = self.path.loops[position]
        k, n = loop.dim, self.last.extents[loop.dim]
        if self.reduces and k >= len(self.last.dims):
            return self.body(position + 1, at)  # reduction loops are part of `Reduce`
        if loop.kind == "unroll":
            return [s for i in range(n.const) for s in self.body(position + 1, {**at, k: poly(i)})]
        if loop.kind == "vector":
            return self.body(position + 1, at)
        if k == self.lanes_dim:
            return self.vector(position + 1, at, (ZERO, n))
        var = Var(f"d{k}")
        return [For(var, ((ZERO, n),), 1, "serial", tuple(self.body(position + 1, {**at, k: poly(var)})))]

    def vector(self, position: int, at: dict[int, Poly], whole: Range) -> list[Stmt]:
        """The vector loop over the interior, then a scalar loop over what is left on both sides."""
        assert self.lanes_dim is not None
        var = Var(f"d{self.lanes_dim}")
        inner = self.body(position, {**at, self.lanes_dim: poly(var)})
        begin, end = whole
        if self.lanes == 1:
            return [For(var, (whole,), 1, "serial", tuple(inner))]
        low, high, interior = self.interior(var, inner, begin, end)
        stop = low + (high - low) // self.lanes * self.lanes
        return [
            For(var, ((low, stop),), self.lanes, "vector", tuple(interior)),
            For(var, ((begin, low), (stop, end)) if low != begin else ((stop, end),), 1, "serial", tuple(inner)),
        ]

    def interior(self, var: Var, body: list[Stmt], begin: Poly, end: Poly) -> tuple[Poly, Poly, list[Stmt]]:
        """The part of [begin, end) where boundary handling along `var` changes nothing, and the body without it.

        Boundaries inside boundaries show themselves when the inner ones are gone, hence the loop.
        """
        low, high = begin, end
        while True:
            tests = {a: (a.arg, a.extent) for s in body for a in _bounds(s)}
            tests |= {e: (e.args[0].poly, e.args[1].poly) for s in body for e in _insides(s)}
            limits = {a: x for a, (p, n) in tests.items() if (x := _limits(p, n, var, body)) is not None}
            if not limits:
                break
            for first, last in limits.values():
                low, high = extremum("max", low, first), extremum("min", high, last)
            body = [_simplify(s, set(limits)) for s in body]
        if low == begin and high == end:
            return begin, end, body
        low = extremum("min", low, end)
        return low, extremum("max", low, high), body

    # -- leaves
    def leaves(self, at: dict[int, Poly]) -> list[Stmt]:
        if self.reduces:
            return [self.reduction(at)]
        found: list[Stmt] = []
        for d in self.definitions:
            change = _change(at)
            found.append(Put(self.stage.name, tuple(p.substitute(change) for p in d.target), substitute(d.value, change)))
        return found

    def reduction(self, at: dict[int, Poly]) -> Reduce:
        d = self.last
        assert isinstance(d.value, Op)
        loops: list[For] = []
        inner = dict(at)
        for x in self.path.loops:
            if x.dim < len(d.dims):
                continue
            var, n = Var(f"r{x.dim}"), d.extents[x.dim]
            if x.kind == "vector":
                loops[-1] = replace(loops[-1], step=self.lanes, kind="vector")
                continue
            loops.append(For(var, ((ZERO, n),), 1, x.kind, ()))
            inner[x.dim] = poly(var)
        change = _change(inner)
        old, element = d.value.args
        op, out = d.value.name, d.value.dtype
        points = 1
        for n in d.rdims:
            points = points * n.const if n.is_const and points else 0
        dtype, compensated = out, False
        if op == "add" and out.kind == "f" and not 0 < points <= EXACT_SUM:
            dtype = np.dtype(np.float64)
            if isinstance(element, Cast) and element.arg.dtype == dtype:
                element = element.arg
            compensated = element.dtype == dtype
        index = tuple(p.substitute(change) for p in d.target)
        if len(self.definitions) == 2:
            initial = substitute(self.definitions[0].value, lambda a: index[a.k] if isinstance(a, Dim) else None)
        else:
            initial = substitute(old, change)
        return Reduce(self.stage.name, index, op, initial, tuple(loops), substitute(element, change), dtype, compensated, out)


def _change(at: dict[int, Poly]):  # type: ignore[no-untyped-def]
    def change(a: Atom) -> IntLike | None:
        return at.get(a.k) if isinstance(a, Dim) else None

    return change


def _is_direct(d: Definition) -> bool:
    """Does the target depend on the pure dimensions only, and is it not a scatter?"""
    inner = [Dim(k) for k in range(len(d.dims), len(d.extents))]
    return not any(p.mentions(k) for p in d.target for k in inner) and not any(isinstance(a, Value) for p in d.target for a in p.atoms())


# -- boundary handling


def _stmt_polys(s: Stmt) -> Iterator[Poly]:
    """Every polynomial in a statement's indices and values."""
    match s:
        case Put(_, index, value):
            yield from index
            for e in walk(value):
                yield from polys(e)
        case Reduce():
            yield from s.index
            for e in walk(s.initial, s.value):
                yield from polys(e)
        case For() | Slide():
            for t in s.body:
                yield from _stmt_polys(t)


def _bounds(s: Stmt) -> Iterator[Bound]:
    def deep(p: Poly) -> Iterator[Bound]:
        for a in p.atoms():
            if isinstance(a, Bound):
                yield a
            for q in parts(a):
                if isinstance(q, Poly):
                    yield from deep(q)

    for p in _stmt_polys(s):
        yield from deep(p)


def _insides(s: Stmt) -> Iterator[Op]:
    """Tests whether an index is inside an axis."""
    match s:
        case Put(_, _, value):
            yield from (e for e in walk(value) if isinstance(e, Op) and e.name == INSIDE)
        case Reduce():
            yield from (e for e in walk(s.initial, s.value) if isinstance(e, Op) and e.name == INSIDE)
        case For() | Slide():
            for t in s.body:
                yield from _insides(t)


def _limits(index: Poly, extent: Poly, var: Var, body: list[Stmt]) -> Range | None:
    """The range of `var` in which an index is inside an axis by itself."""
    c = index.coefficient(var)
    if c is None or not c.is_const or c.const not in (1, -1):
        return None
    rest = index - poly(var) * c.const
    spread = _spread(rest, {x.var: x.ranges[0] for s in body for x in _loops(s)})
    if spread is None:
        return None
    least, most = spread
    if c.const == 1:  # 0 <= var + rest < extent
        return -least, extent - most
    return most - extent + 1, least + 1  # 0 <= rest - var < extent


def _loops(s: Stmt) -> tuple[For, ...]:
    return s.loops if isinstance(s, Reduce) else ()


def _spread(p: Poly, loops: dict[Var, Range]) -> Range | None:
    """Least and greatest value over reduction loops of constant extent; None where something else varies."""
    least = most = poly(p.const)
    for m, c in p.terms.items():
        if len(m) == 1 and isinstance(m[0], Var):
            extent = loops.get(m[0], (ZERO, ZERO))[1]
            if m[0] not in loops:
                return None
            reach = (extent - 1) * c
            least, most = (least, most + reach) if c > 0 else (least + reach, most)
        elif all(isinstance(a, Sym) for a in m):
            term = Poly({m: c}, 0)
            least, most = least + term, most + term
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
        case Put():
            return Put(s.buffer, index(s.index), expr(s.value))
        case Reduce():
            return replace(s, index=index(s.index), initial=expr(s.initial), value=expr(s.value))
        case For() | Slide():
            return replace(s, body=tuple(_simplify(t, vanish) for t in s.body))
