"""Invariants of the loop IR after each pass of lowering; `HJIT_CHECK=1` checks them.

`RULES` has the invariants of each kind of statement, `GONE` the pass that removes a kind, and `MADE_BY` the pass that
makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hjit.errors import CompileError
from hjit.kernels.lower.loopir import (
    BEGIN,
    END,
    Barrier,
    Block,
    CombineLanes,
    CombineThreads,
    CommitCopies,
    CopyAsync,
    Declare,
    For,
    LineStart,
    Name,
    Outlined,
    Reduce,
    Register,
    ResetWindow,
    Scan,
    ScanThreads,
    SlidingProduce,
    Stmt,
    Threads,
    VectorLoop,
    Vectors,
    WaitForCopies,
)
from hjit.kernels.lower.printing import TAIL_TEXT
from hjit.kernels.lower.program import Buffer, Nest, Program
from hjit.kernels.lower.traverse import bound_vars, every, inner, named_polys, own_polys, stmt_exprs
from hjit.sched.language.limits import MAX_LANES, WARP
from hjit.trace.ir.expressions import Load, loads, walk
from hjit.trace.ir.graph import Graph
from hjit.trace.ir.poly import Dim, Poly, Var, deep_atoms

UNROLLED, SHARED_OUT, PRIVATISED = "unroll_and_jam", "distribute_threads", "privatise_scatters"
WIDENED, COALESCED, STAGED = "widen_accesses", "coalesce_accesses", "stage_operands"
GONE: dict[type, str] = {VectorLoop: "vectorize", Reduce: "block_reductions", Scan: "block_scans"}
MADE_BY: dict[type, str] = {
    Outlined: "outline",
    Vectors: "vectorize",
    LineStart: "vectorize",
    Declare: "block_reductions",
    CombineLanes: "block_reductions",
    Threads: "distribute_threads",
    CombineThreads: "block_reductions",
    ScanThreads: "block_scans",
    CopyAsync: "copy_async",
    CommitCopies: "prefetch_windows",
    WaitForCopies: "prefetch_windows",
    Barrier: "insert_barriers",
    Name: "hoist_invariants",
}
ALL = (UNROLLED, SHARED_OUT, COALESCED, PRIVATISED, STAGED, WIDENED, *MADE_BY.values(), *GONE.values())
STRICTER = frozenset({UNROLLED, SHARED_OUT, *GONE.values()})  # more is forbidden after them than before


def check_loop_ir(program: Program, graph: Graph, done: tuple[str, ...] = ALL, checked: Program | None = None) -> None:
    """Raise where loops are not well formed.

    Args:
        done: the passes that have run, the last one at the end.
        checked: the program before the last pass, which was well formed: nests that are as they were are not looked at.

    Raises:
        CompileError: a fault of the last pass.
    """
    known = checked.nests if checked is not None and done[-1] not in STRICTER else ()
    for k, nest in enumerate(program.nests):
        if k < len(known) and nest == known[k]:
            continue
        for fault in _Checker(nest, graph, done).faults():
            after = f" after {done[-1]}" if done else ""
            raise CompileError(f"invalid loops{after}: nest {nest.stage}: {fault}. Please report this.\n{program}")


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known at a statement.

    Attributes:
        names: indices that are bound.
        registers: lanes of those that are declared.
        vectors: the vectors that it is in.
    """

    names: frozenset[Var]
    registers: dict[str, int]
    vectors: Var | None = None

    def after(self, s: Stmt) -> _Scope:
        """Behind a statement of a body."""
        if isinstance(s, Declare | Name):
            lanes = s.lanes if isinstance(s, Declare) else 1
            return replace(self, registers={**self.registers, s.register.name: lanes})
        return replace(self, names=self.names.union(bound_vars(s))) if not inner(s) else self

    def within(self, s: Stmt, part: int) -> _Scope:
        """In a body of a statement."""
        if isinstance(s, Outlined):
            return replace(self, registers={})
        is_vector = isinstance(s, Vectors) or (isinstance(s, VectorLoop) and part == 0)
        lanes = s.var if is_vector and isinstance(s, Vectors | VectorLoop) else self.vectors
        return replace(self, names=self.names.union(bound_vars(s)), vectors=lanes)


class _Checker:
    """Looks at one nest."""

    def __init__(self, nest: Nest, graph: Graph, done: tuple[str, ...]) -> None:
        self.nest, self.graph, self.done = nest, graph, done

    def faults(self) -> Iterator[str]:
        names = frozenset({BEGIN, END} if self.nest.count is not None else ())
        origins = {a for b in self.nest.buffers.values() for p in b.origin for a in deep_atoms(p) if isinstance(a, Var)}
        made = {COALESCED, PRIVATISED, STAGED}.intersection(self.done)
        for b in self.nest.buffers.values():
            if b.stage not in self.graph.by_name and (b.dtype is None or not made):
                yield f"the buffer {b.stage} is no stage"
            if b.memory is not None and not self.is_memory(b, b.memory):
                yield f"the buffer {b.stage} is in the memory of {b.memory}, which is none for it"
        yield from self.body(self.nest.body, _Scope(names, {}))
        if not origins <= names.union(v for s in every(self.nest.body) for v in bound_vars(s)):
            yield "a buffer begins at a name that there is not"

    def is_memory(self, b: Buffer, owner: str) -> bool:
        """Is there memory of its own of a buffer, for the elements of another one?"""
        other = self.nest.buffers.get(owner)
        if other is None or (other.shared, other.memory) != (b.shared, None):
            return False
        first, second = (self.graph.dtypes.get(x.stage) if x.dtype is None else x.dtype for x in (other, b))
        return first == second

    def body(self, body: tuple[Stmt, ...], scope: _Scope) -> Iterator[str]:
        for s in body:
            yield from self.statement(s, scope)
            for k, part in enumerate(inner(s)):
                yield from self.body(part, scope.within(s, k))
            scope = scope.after(s)

    def statement(self, s: Stmt, scope: _Scope) -> Iterator[str]:
        bound = scope.names.union(t.var for t in s.loops) if isinstance(s, Reduce) else scope.names
        bound = bound | {s.var} if isinstance(s, LineStart | Scan) else bound
        for p in (*own_polys(s), *named_polys(s)):
            yield from _unbound(p, bound)
        for e in walk(*stmt_exprs(s)):
            if isinstance(e, Load) and len(e.index) != self.axes_read(e.source):
                yield f"{e} is no load of the Graph's arrays"
            if isinstance(e, Register) and e.name not in scope.registers and not _is_other(e, s):
                yield f"the register {e} is declared nowhere around it"
        if GONE.get(type(s)) in self.done:
            yield f"there still is a {type(s).__name__} after {GONE[type(s)]}"
        if type(s) in MADE_BY and MADE_BY[type(s)] not in self.done and not (isinstance(s, Declare) and self.is_staged):
            yield f"there is a {type(s).__name__} before {MADE_BY[type(s)]}"
        if type(s) in RULES:
            yield from RULES[type(s)](self, s, scope)

    @property
    def is_staged(self) -> bool:
        """May some reductions have registers before others?"""
        return STAGED in self.done

    def axes_read(self, source: str) -> int | None:
        """Of an array that may be read."""
        shape = self.graph.shapes.get(source)
        return self.axes(source) if shape is None else len(shape)

    # -- by kind of statement
    def loop(self, s: For, scope: _Scope) -> Iterator[str]:
        if s.step < 1:
            yield f"{s.var} has the step {s.step}"
        if s.kind not in ("serial", "gpu_thread") and UNROLLED in self.done:
            yield f"the loop over {s.var} is still unrolled"
        if s.kind == "gpu_thread" and (not self.nest.blocks or SHARED_OUT in self.done):
            yield f"the loop over {s.var} is not shared out among threads"

    def vector_loop(self, s: VectorLoop, scope: _Scope) -> Iterator[str]:
        yield from self.lanes(s.var, s.lanes, scope)
        if s.copies < 1 or s.lanes * s.copies % s.align or s.tail not in TAIL_TEXT:
            yield f"vectors along {s.var}: {s.copies} copies at multiples of {s.align}, tail {s.tail}"

    def vectors(self, s: Vectors, scope: _Scope) -> Iterator[str]:
        yield from self.lanes(s.var, s.lanes, scope)
        if s.var not in scope.names:
            yield f"vectors along {s.var}, over which there is no loop"

    def lanes(self, var: Var, lanes: int, scope: _Scope) -> Iterator[str]:
        if scope.vectors is not None:
            yield f"vectors along {var} in vectors along {scope.vectors}"
        if not 2 <= lanes <= MAX_LANES:
            yield f"vectors along {var} have {lanes} lanes"

    def block(self, s: Block, scope: _Scope) -> Iterator[str]:
        for x in s.stores:
            yield from self.store(x.buffer, x.index)
        if s.rows and WIDENED not in self.done:
            yield f"there are rows before {WIDENED}"
        touched = {(x.buffer, x.index) for x in s.stores} | {(x.source, x.index) for x in loads(*stmt_exprs(s))}
        for row in s.rows:
            if row.count < 2 or not touched.issuperset((row.array, row.at(k)) for k in range(row.count)):
                yield f"{row.count} elements from {row.array}{list(map(str, row.index))} on are not all read or written"
        yield from (
            f"{x.register} is set, but declared nowhere around"
            for x in s.sets
            if x.register.name not in scope.registers
        )

    def reduction(self, s: Reduce, scope: _Scope) -> Iterator[str]:
        yield from (x for i in s.items for x in self.store(s.buffer, i.index))
        if not s.loops or any(t.lanes > 1 for t in s.loops[:-1]):
            yield f"the loops of the reduction of {s.buffer}: of vectors is the innermost only"

    def combined(self, s: CombineLanes, scope: _Scope) -> Iterator[str]:
        lanes = [scope.registers.get(r.name, 0) for r in (*s.source, *s.target)]
        if 0 in lanes or any(n != 1 for n in lanes[len(s.source) :]) or len(s.source) != len(s.target):
            yield f"lanes of {s.source} are combined into {s.target}, with {lanes} lanes"

    def threads(self, s: Threads, scope: _Scope) -> Iterator[str]:
        if not self.nest.blocks:
            yield "there are threads, but no blocks of them"
        if any(isinstance(t, Threads | Barrier | CombineThreads | ScanThreads | WaitForCopies) for t in every(s.body)):
            yield "a thread waits for others, which may not come"
        own = {t.var for t in s.loops}
        bounds = (p for t in s.loops for p in (t.begin, t.end))
        if any(a in own for p in bounds for a in deep_atoms(p)):
            yield "how far threads run differs among them"

    def combined_threads(self, s: CombineThreads, scope: _Scope) -> Iterator[str]:
        if not len(s.source) == len(s.other) == len(s.combined) or not self.nest.blocks:
            yield f"threads combine {s.source} with {s.other}"
        if s.lanes & (s.lanes - 1) or s.lanes > WARP:
            yield f"{s.lanes} lanes combine {s.source}"
        yield from (f"{r} is declared nowhere around" for r in s.source if r.name not in scope.registers)

    def copied(self, s: CopyAsync, scope: _Scope) -> Iterator[str]:
        b = self.nest.buffers.get(s.buffer)
        yield from self.store(s.buffer, s.index)
        if b is None or not b.shared or s.load.source in (*self.nest.writes, *self.nest.buffers):
            yield f"{s.load} is copied to {s.buffer}: not from the device's memory to that of the block"
        elif s.load.dtype != self.graph.dtypes.get(s.buffer) or s.load.dtype.itemsize not in (4, 8):
            yield f"{s.load} is copied to {s.buffer}, {s.load.dtype.itemsize} bytes of {s.load.dtype}"

    def waiting(self, s: WaitForCopies | CommitCopies, scope: _Scope) -> Iterator[str]:
        if not self.nest.blocks or (isinstance(s, WaitForCopies) and s.groups < 0):
            yield "it waits for copies that there are not"

    def scan(self, s: Scan, scope: _Scope) -> Iterator[str]:
        yield from self.store(s.buffer, s.index)
        if not self.nest.blocks:
            yield f"threads scan {s.buffer}, but there are no blocks of them"

    def scanned_threads(self, s: ScanThreads, scope: _Scope) -> Iterator[str]:
        warps = len(s.source) * (self.nest.threads // WARP)
        if not self.nest.blocks or not s.source or warps > WARP:
            yield f"{warps} warps scan {', '.join(map(str, s.source))}"
        yield from (f"{r} is declared nowhere around" for r in (*s.source, s.total) if r.name not in scope.registers)

    def window(self, s: SlidingProduce | ResetWindow, scope: _Scope) -> Iterator[str]:
        if s.stage not in self.nest.buffers:
            yield f"{s.stage} slides, but has no buffer"

    def store(self, buffer: str, index: tuple[Poly, ...]) -> Iterator[str]:
        axes = self.axes(buffer)
        if axes is None:
            yield f"it stores to {buffer}, which it does not compute"
        elif len(index) != axes:
            yield f"{len(index)} indices of {buffer}, which has {axes} axes"

    def axes(self, buffer: str) -> int | None:
        """Of what the nest computes; None of other arrays."""
        if buffer in self.nest.writes:
            return len(self.graph.shapes[buffer])
        b = self.nest.buffers.get(buffer)
        return None if b is None or b.dtype is None else len(b.lengths)


RULES: dict[type, Callable[[_Checker, Any, _Scope], Iterator[str]]] = {
    For: _Checker.loop,
    VectorLoop: _Checker.vector_loop,
    Vectors: _Checker.vectors,
    Block: _Checker.block,
    Reduce: _Checker.reduction,
    CombineLanes: _Checker.combined,
    Threads: _Checker.threads,
    CombineThreads: _Checker.combined_threads,
    Scan: _Checker.scan,
    ScanThreads: _Checker.scanned_threads,
    CopyAsync: _Checker.copied,
    CommitCopies: _Checker.waiting,
    WaitForCopies: _Checker.waiting,
    SlidingProduce: _Checker.window,
    ResetWindow: _Checker.window,
}


def _is_other(e: Register, s: Stmt) -> bool:
    """Does it stand for another thread's?"""
    return isinstance(s, CombineThreads) and e in s.other


def _unbound(p: Poly, names: frozenset[Var]) -> Iterator[str]:
    for a in deep_atoms(p):
        if isinstance(a, Var) and a not in names:
            yield f"the index {p} has {a}, which is bound nowhere around it"
        if isinstance(a, Dim):
            yield f"the index {p} has a dimension of a definition"
