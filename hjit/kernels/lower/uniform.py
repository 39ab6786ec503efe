"""Checks that barriers are in uniform control flow: all threads of a block reach each barrier, or none does.

A barrier that some threads of a block do not reach is undefined in CUDA (`__syncthreads`) and in OpenCL (`barrier`).
Whatever is outside of a `Threads` statement is run by every thread; so what is to be shown is that the branches and the
loops around a barrier have conditions and bounds that are the same for all of them. They are polynomials, and these are
the same for all threads where their atoms are:

- run-time sizes and the number of the block;
- names and loop variables outside of `Threads`, of bounds and values that are the same;
- elements, at such indices, of arrays that the nest does not write: while it writes, one thread may see another value
  than the next one;
- registers that are named outside of `Threads` for such a value, and the total of a `ScanThreads`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hjit.errors import CompileError
from hjit.kernels.lower.loopir import (
    Barrier,
    Choose,
    CombineThreads,
    For,
    If,
    Let,
    Name,
    Register,
    ScanThreads,
    SlidingProduce,
    Stmt,
    Threads,
)
from hjit.kernels.lower.program import Nest
from hjit.kernels.lower.traverse import Body, every
from hjit.sched.language.limits import WARP
from hjit.trace.ir.expressions import Expr, Load, walk
from hjit.trace.ir.poly import Indirect, Poly, Var, deep_atoms

RULE = "barriers in uniform flow only"


def waits(s: Stmt) -> bool:
    """Do the threads of a block wait for each other in a statement, or exchange registers, for which they all must be
    there?"""
    return any(isinstance(t, Barrier | CombineThreads | ScanThreads) for t in every((s,)))


def is_barrier(s: Stmt, threads: int) -> bool:
    """Is what all threads of a block did before a statement done, and seen by all of them, after it?

    Threads in several warps are combined through shared memory, with a barrier between writing and reading it, which
    all of them reach. Within a warp they are combined by shuffles, which do not order memory. Scans have barriers even
    then.

    Args:
        threads: of a block.
    """
    match s:
        case CombineThreads():
            return not s.lanes and threads > WARP
        case Barrier() | ScanThreads():
            return True
    return False


def check_uniform(nest: Nest) -> None:
    """Raise where threads of a block may reach a barrier that others of them do not reach.

    Raises:
        CompileError: the rule is broken; it names the barrier and what is around it.
    """
    for fault in not_uniform(nest):
        raise CompileError(f"invalid loops: {RULE}: nest {nest.stage}: {fault}. Please report this.")


def not_uniform(nest: Nest) -> Iterator[str]:
    """The barriers that not all threads of a block may reach, in words."""
    yield from _Flow(nest).body(nest.body, None)


class _Flow:
    """Walks a nest as its threads run it.

    Attributes:
        differing: names of indices that are not the same for all threads.
        common: registers that are.
    """

    def __init__(self, nest: Nest) -> None:
        self.written = {*nest.writes, *nest.buffers}
        in_threads = [t for s in every(nest.body) if isinstance(s, Threads) for t in every(s.body)]
        self.own_windows = {t.stage for t in in_threads if isinstance(t, SlidingProduce)}
        self.differing: set[Var] = set()
        self.common: set[str] = set()

    def body(self, body: Body, around: str | None) -> Iterator[str]:
        """The faults of statements.

        Args:
            around: the innermost statement around them that threads run differently, in words.
        """
        for s in body:
            yield from self.statement(s, around)

    def statement(self, s: Stmt, around: str | None) -> Iterator[str]:
        if around is not None and isinstance(s, Barrier | CombineThreads | ScanThreads):
            yield f"there is a {type(s).__name__} in {around}"
        match s:
            case Let():
                self.bind(s.var, [s.value], around)
            case Choose():
                self.bind(s.var, [s.test, s.yes, s.no], around)
            case Name() if around is None and self.is_common(s.value):
                self.common.add(s.register.name)
            case ScanThreads():
                self.common.add(s.total.name)
            case For():
                bounds = [p for p in (s.begin, s.end, s.limit, s.first) if p is not None]
                self.bind(s.var, bounds, around)
                around = around or (f"the loop over {s.var}" if s.var in self.differing else None)
                yield from self.body(s.body, around)
            case SlidingProduce():
                self.bind(s.var, [s.first, s.end], around)
                if s.stage in self.own_windows:
                    self.differing.add(s.var)
                around = around or (f"what is new of {s.stage}" if s.var in self.differing else None)
                yield from self.body(s.body, around)
            case If():
                around = around or (None if self.is_uniform([s.value]) else f"the branch on {s.value}")
                yield from self.body(s.body, around)
                yield from self.body(s.otherwise, around)
            case Threads():
                self.differing.update(t.var for t in s.loops)
                over = ", ".join(str(t.var) for t in s.loops)
                yield from self.body(s.body, around or (f"the loop over {over}" if over else "what one thread runs"))

    def bind(self, var: Var, values: Iterable[Poly], around: str | None) -> None:
        """A name for what follows from some values."""
        if around is not None or not self.is_uniform(values):
            self.differing.add(var)

    def is_uniform(self, values: Iterable[Poly]) -> bool:
        """Are they the same for all threads of a block?"""
        for p in values:
            for a in deep_atoms(p):
                if isinstance(a, Indirect) and not self.is_common(*p.exprs):
                    return False
                if a in self.differing:
                    return False
        return True

    def is_common(self, *values: Expr) -> bool:
        """Are values the same for all threads of a block?"""
        return all(self._is_common(e) for e in walk(*values))

    def _is_common(self, e: Expr) -> bool:
        match e:
            case Register():
                return e.name in self.common
            case Load():
                return e.source not in self.written and self.is_uniform(e.index)
        return self.is_uniform(e.polys)
