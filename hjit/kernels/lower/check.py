"""What holds of the loop IR after each pass of lowering; `HJIT_CHECK=1` looks at it after each of them."""

from __future__ import annotations

from collections.abc import Iterator

from hjit.errors import CompileError
from hjit.kernels.lower.loopir import (
    BEGIN,
    END,
    TAIL_TEXT,
    Block,
    For,
    Let,
    Nest,
    Outlined,
    Program,
    Reduce,
    ResetWindow,
    SlidingProduce,
    Stmt,
    VectorLoop,
    inner,
    own_polys,
    stmt_exprs,
)
from hjit.sched.language.limits import MAX_LANES
from hjit.trace.ir.graph import Graph, Load, walk
from hjit.trace.ir.poly import Dim, Poly, Var, deep_atoms

UNROLLED, OUTLINED = "unroll_and_jam", "outline"  # the passes that take unrolled loops away, and that make functions


def check_loop_ir(program: Program, graph: Graph, done: tuple[str, ...] = (UNROLLED, OUTLINED)) -> None:
    """Raise where loops are not well formed.

    Args:
        done: the passes that have run, the last one at the end.

    Raises:
        CompileError: a fault of the last pass.
    """
    for nest in program.nests:
        for fault in _Checker(nest, graph, done).faults():
            after = f" after {done[-1]}" if done else ""
            raise CompileError(f"invalid loops{after}: nest {nest.stage}: {fault}. Please report this.\n{program}")


class _Checker:
    """Looks at one nest."""

    def __init__(self, nest: Nest, graph: Graph, done: tuple[str, ...]) -> None:
        self.nest, self.graph, self.done = nest, graph, done

    def faults(self) -> Iterator[str]:
        names = frozenset({BEGIN, END} if self.nest.count is not None else ())
        origins = {a for b in self.nest.buffers.values() for p in b.origin for a in deep_atoms(p) if isinstance(a, Var)}
        yield from (f"the buffer {name} is no stage" for name in self.nest.buffers if name not in self.graph.by_name)
        yield from self.body(self.nest.body, names, None)
        if not origins <= self.every_name(self.nest.body, names):
            yield "a buffer begins at a name that there is not"

    def every_name(self, body: tuple[Stmt, ...], names: frozenset[Var]) -> frozenset[Var]:
        for s in body:
            names |= {s.var} if isinstance(s, (For, VectorLoop, Let, SlidingProduce)) else set()
            for part in inner(s):
                names = self.every_name(part, names)
        return names

    def body(self, body: tuple[Stmt, ...], names: frozenset[Var], lanes: Var | None) -> Iterator[str]:
        """Statements where `names` are bound; `lanes`: the variable of the vectors that they are in."""
        for s in body:
            yield from self.statement(s, names, lanes)
            if isinstance(s, Let):
                yield from _unbound(s.value, names)
                names |= {s.var}
            within = names | ({s.var} if isinstance(s, (For, VectorLoop, SlidingProduce)) else set())
            for k, part in enumerate(inner(s)):
                yield from self.body(part, within, s.var if isinstance(s, VectorLoop) and k == 0 else lanes)

    def statement(self, s: Stmt, names: frozenset[Var], lanes: Var | None) -> Iterator[str]:
        bound = names | {t.var for t in s.loops} if isinstance(s, Reduce) else names
        for p in own_polys(s):
            yield from _unbound(p, bound)
        for e in walk(*stmt_exprs(s)):
            if isinstance(e, Load) and (
                e.source not in self.graph.shapes or len(e.index) != len(self.graph.shapes[e.source])
            ):
                yield f"{e} is no load of the Graph's arrays"
        match s:
            case For():
                if s.step < 1:
                    yield f"{s.var} has the step {s.step}"
                if s.kind != "serial" and UNROLLED in self.done:
                    yield f"the loop over {s.var} is still unrolled"
            case VectorLoop():
                yield from self.vectors(s, lanes)
            case Block():
                for put in s.stores:
                    yield from self.store(put.buffer, put.index)
            case Reduce():
                yield from (x for i in s.items for x in self.store(s.buffer, i.index))
                if not s.loops or any(t.lanes > 1 for t in s.loops[:-1]):
                    yield f"the loops of the reduction of {s.buffer}: of vectors is the innermost only"
            case SlidingProduce() | ResetWindow():
                if s.stage not in self.nest.buffers:
                    yield f"{s.stage} slides, but has no buffer"
            case Outlined():
                if OUTLINED not in self.done:
                    yield "a function before there are any"

    def vectors(self, s: VectorLoop, lanes: Var | None) -> Iterator[str]:
        if lanes is not None:
            yield f"vectors along {s.var} in vectors along {lanes}"
        if not 2 <= s.lanes <= MAX_LANES or s.copies < 1 or s.lanes * s.copies % s.align or s.tail not in TAIL_TEXT:
            yield f"vectors along {s.var}: {s.lanes} lanes, {s.copies} copies at multiples of {s.align}, tail {s.tail}"

    def store(self, buffer: str, index: tuple[Poly, ...]) -> Iterator[str]:
        if buffer not in self.nest.writes:
            yield f"it stores to {buffer}, which it does not compute"
        elif len(index) != len(self.graph.shapes[buffer]):
            yield f"{len(index)} indices of {buffer}, which has {len(self.graph.shapes[buffer])} axes"


def _unbound(p: Poly, names: frozenset[Var]) -> Iterator[str]:
    for a in deep_atoms(p):
        if isinstance(a, Var) and a not in names:
            yield f"the index {p} has {a}, which is bound nowhere around it"
        if isinstance(a, Dim):
            yield f"the index {p} has a dimension of a definition"
