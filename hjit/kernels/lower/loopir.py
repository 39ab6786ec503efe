"""The grammar of the loop IR. Indices are polynomials over loop variables (`Var`) and run-time sizes.

    Program = nest*                                   in program.py: one for each root of the schedule tree, in order
    Stmt = Let(var, value) | Choose(var, test, yes, no)                       indices by name
         | For(var, begin, end, step, body) | If(value, body, otherwise) | Outlined(body)
         | VectorLoop(var, begin, end, body, remainder) made by place_loops, removed by vectorize
         | Vectors(var, lanes, body) | LineStart(...) made by vectorize
         | Block(store*, set*)                        values, and where they go: arrays and registers
         | Reduce(buffer, items, loops)               made by place_loops, removed by block_reductions
         | Scan(buffer, begin, end, element)          made by place_loops, removed by block_scans
         | Declare(register, initial) | CombineLanes(source, target)          made by block_reductions
         | Name(register, value)                      made by hoist_invariants
         | ResetWindow(stage) | SlidingProduce(stage, var, first, end, body)
         | Threads(loops, body)                       made by distribute_threads
         | CombineThreads(source, other, combined)    made by block_reductions
         | ScanThreads(op, source, total)             made by block_scans
         | CommitCopies() | WaitForCopies(groups)     made by prefetch_windows and copy_async
         | CopyAsync(buffer, index, load)             made by copy_async
         | Barrier()                                  made by insert_barriers
    Expr = the Graph's, without `Dim` in indices, and Register(name, dtype)

Each node's docstring is its contract; `hjit.kernels.lower.check` verifies them after every pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Expr, Load
from hjit.trace.ir.poly import Poly, Var

BEGIN, END = Var("begin"), Var("end")  # the part of a parallel nest that a task runs
INTERIOR = Var("interior")  # not negative where no index of a block is near a border


class Register(Expr):
    """The current value of a register, which an enclosing `Declare` declares."""

    __slots__ = ("name",)
    name: str

    def __init__(self, name: str, dtype: Any) -> None:
        object.__setattr__(self, "name", name)
        self._seal(np.dtype(dtype), name, np.dtype(dtype).str)

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True, slots=True)
class Let:
    """Names an index for the statements that follow."""

    var: Var
    value: Poly


@dataclass(frozen=True, slots=True)
class Choose:
    """Names one of two indices: `yes` if ``test >= 0``, else `no`."""

    var: Var
    test: Poly
    yes: Poly
    no: Poly


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[index] = value``.

    Attributes:
        atomic: the ufunc that combines the value with the element, atomically; None: a plain store.
        stream: may whole vectors be stored with non-temporal stores?
    """

    buffer: str
    index: tuple[Poly, ...]
    value: Expr
    atomic: str | None = None
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """``register = value``."""

    register: Register
    value: Expr


@dataclass(frozen=True, slots=True)
class Row:
    """`count` elements from ``array[index]`` on, along the last axis, in one access if the address is aligned."""

    array: str
    index: tuple[Poly, ...]
    count: int

    def at(self, k: int) -> tuple[Poly, ...]:
        """The index of one of them."""
        return (*self.index[:-1], self.index[-1] + k)


@dataclass(frozen=True, slots=True)
class Block:
    """Evaluate all values, sharing common sub-expressions, and all indices; then store, and set the registers.

    Attributes:
        ahead: loads of later iterations, to be prefetched.
        rows: loads and stores that are one access each; made by widen_accesses.
    """

    stores: tuple[Store, ...]
    ahead: tuple[Load, ...] = ()
    sets: tuple[Set, ...] = ()
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class For:
    """``for var in range(begin, end, step)``.

    Attributes:
        limit: an iteration that would pass it starts earlier instead, at ``limit - step``, and repeats some of the
            previous one's work ("shift_inwards"); None: no limit.
        first: an iteration that would start before it starts there; None: no such bound.
        kind: "serial"; with a known trip count, "unroll" or "unroll_and_jam", which
            `hjit.kernels.lower.passes.unroll_and_jam` removes; "gpu_thread": distributed over the threads of a block by
            `hjit.kernels.lower.passes.distribute_threads`.
        rare: is it a remainder of a vector loop, whose code should be short rather than fast?
        most: an upper bound of the trip count, if one is known.
        until: the loop ends if this bool is true before an iteration; None: it runs all of them.
    """

    var: Var
    begin: Poly
    end: Poly
    step: int
    body: tuple[Stmt, ...]
    limit: Poly | None = None
    kind: str = "serial"
    first: Poly | None = None
    rare: bool = False
    most: int | None = None
    until: Register | None = None


@dataclass(frozen=True, slots=True)
class LineAlignment:
    """The store to which a vector loop is aligned: ``buffer[index]`` moves by `step`, an odd number, with the loop."""

    buffer: str
    index: tuple[Poly, ...]
    step: int


@dataclass(frozen=True, slots=True)
class VectorLoop:
    """A loop to be vectorised: the steady state is ``low .. high``, the remainder runs one element at a time.

    Attributes:
        begin, end: the whole range.
        low, high: the range in which no boundary handling along `var` is needed; `body` has none.
        lanes: elements of a vector.
        copies: vectors per iteration; they share loads.
        align: `var` is a multiple of this in each iteration.
        tail: "shift_inwards": the last vector starts earlier, see `For`. "predicate": some lanes of the last vector are
            masked off, or repeat the last active one. "guard_with_if": single elements.
        body: the statements of one vector at `var`.
        remainder: the statements of one element; empty if vectors always cover the range.
        line: the store whose cache lines are aligned, if results are streamed.
    """

    var: Var
    begin: Poly
    end: Poly
    low: Poly
    high: Poly
    lanes: int
    copies: int
    align: int
    tail: str
    body: tuple[Stmt, ...]
    remainder: tuple[Stmt, ...]
    line: LineAlignment | None = None


@dataclass(frozen=True, slots=True)
class Vectors:
    """The body for `lanes` consecutive values of the loop variable `var` at once; expressions that depend on `var` are
    vectors.

    Attributes:
        count: vectors that one iteration of the loop does, at ``var + k * lanes``.
        align: `var` is a multiple of this.
        active: lanes from this index on do nothing, or repeat the last one before it; None: all do something.
    """

    var: Var
    lanes: int
    body: tuple[Stmt, ...]
    count: int = 1
    align: int = 1
    active: Poly | None = None


@dataclass(frozen=True, slots=True)
class LineStart:
    """Names the first positions in ``low .. high`` from which vectors of ``buffer[index]`` are aligned in memory.

    Attributes:
        streams: is made 0 where results are streamed and the loop has at least `fewest` iterations, else -1.
        aligned_down: the last index not after `low` at which a vector is aligned.
        aligned_up: the first one not before `low`.
        line: the store; its index has `var`.
    """

    streams: Var
    aligned_down: Var
    aligned_up: Var
    line: LineAlignment
    var: Var
    low: Poly
    high: Poly
    lanes: int
    fewest: int


@dataclass(frozen=True, slots=True)
class If:
    """`body` if ``value >= 0``, else `otherwise`. If there is an `otherwise`, it is correct for any value, only faster
    code."""

    value: Poly
    body: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class ReductionLoop:
    """Header of a reduction loop.

    Attributes:
        lanes: of its vectors, where the lanes run along it.
        unroll: iterations whose code is repeated.
        threads: do the threads of a block share its iterations?
        warp_lanes: so many lanes of a warp share its iterations; 0: they do not.
    """

    var: Var
    begin: Poly
    end: Poly
    step: int = 1
    lanes: int = 1
    unroll: int = 1
    threads: bool = False
    warp_lanes: int = 0

    @property
    def trip_count(self) -> int | None:
        """The number of iterations; None if it is only known at run time."""
        extent = self.end - self.begin
        return -(-extent.const // self.step) if extent.is_const else None


@dataclass(frozen=True, slots=True)
class Item:
    """One accumulator of a reduction: ``buffer[index] = op over the loops of value, from initial``."""

    index: tuple[Poly, ...]
    initial: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Reduce:
    """Reductions of several elements over the same loops, to be accumulated in registers.

    Attributes:
        op: the associative ufunc.
        loops: headers, outermost first; the innermost may have lanes.
        dtype: of the accumulators.
        dtype_out: of op's result; accumulators are cast to it at the end.
        compensated: is the rounding error of each addition carried along (Knuth's two-sum)?
        products: are the values products, of which a few at a time are summed by fused multiply-adds in the dtype of
            the result, before they join the accumulator?
        interior: the items without boundary handling, for blocks that do not come near a border; made by
            partition_blocks where threads share the iterations.
    """

    buffer: str
    op: str
    items: tuple[Item, ...]
    loops: tuple[ReductionLoop, ...]
    dtype: np.dtype[Any]
    dtype_out: np.dtype[Any]
    compensated: bool
    products: bool = False
    interior: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """``buffer[index] = running = op(running, element)`` for the iterations of a loop, computed by the threads of a
    block.

    Attributes:
        var: of the loop over ``begin .. end``; `index` and `element` have it.
        initial: what is running before the first iteration.
        dtype: that it runs in.
        dtype_out: of the buffer.
        compensated: are the rounding errors of a sum carried along?
    """

    buffer: str
    op: str
    var: Var
    begin: Poly
    end: Poly
    index: tuple[Poly, ...]
    initial: Expr
    element: Expr
    dtype: np.dtype[Any]
    dtype_out: np.dtype[Any]
    compensated: bool = False


@dataclass(frozen=True, slots=True)
class Declare:
    """Declares a register for the rest of the body: a scalar, or a vector of `lanes`, all initialised to `initial`."""

    register: Register
    initial: Expr
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Name:
    """A scalar register that is set here only, for the rest of the body."""

    register: Register
    value: Expr


@dataclass(frozen=True, slots=True)
class CombineLanes:
    """Combines all lanes of the vector register `source` into the scalar register `target`, in a tree.

    Attributes:
        op: the associative ufunc.
        source, target: registers of one dtype; two each where rounding errors are carried along: (total, error).
    """

    op: str
    source: tuple[Register, ...]
    target: tuple[Register, ...]


@dataclass(frozen=True, slots=True)
class ResetWindow:
    """Empties the circular buffer of a stage."""

    stage: str


@dataclass(frozen=True, slots=True)
class SlidingProduce:
    """Compute the new part of a stage: from ``var = max(first, end of what earlier iterations computed)`` up to `end`.

    Attributes:
        last: is this the last of the stage's definitions, after which the iteration has come to `end`?
        axis: the one that moves. window: elements of it that an iteration reads at most; 0: all.
        new: an upper bound of those that an iteration adds; 0: unknown.
        is_apart: does it write where the iteration before it neither reads nor writes? Made by prefetch_windows.
    """

    stage: str
    var: Var
    first: Poly
    end: Poly
    body: tuple[Stmt, ...]
    last: bool = True
    axis: int = 0
    window: int = 0
    new: int = 0
    is_apart: bool = False


@dataclass(frozen=True, slots=True)
class Outlined:
    """Statements that are compiled as a separate function; they do not access registers declared outside."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class ThreadLoop:
    """``for var in range(begin, end, step)``, with at most `most` iterations, which are distributed over threads."""

    var: Var
    begin: Poly
    end: Poly
    step: int = 1
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Threads:
    """The body for each iteration of some loops, distributed over the threads of a block, the first iteration to the
    first thread.

    Consecutive threads take consecutive iterations of the last loop. Without loops the first thread runs the body,
    once. Bounds are the same for all threads; no thread waits for others inside.
    """

    loops: tuple[ThreadLoop, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class CombineThreads:
    """Combines the registers of all threads of a block into those of the first one, in a tree.

    With `lanes`, those of so many consecutive threads into those of the first of them; no barrier is needed then, and
    none is implied.

    Attributes:
        source: they hold a value of each thread, afterwards the first thread's hold all of them.
        other: what stands for another thread's in `combined`.
        combined: what the registers become of both.
    """

    source: tuple[Register, ...]
    other: tuple[Register, ...]
    combined: tuple[Expr, ...]
    lanes: int = 0


@dataclass(frozen=True, slots=True)
class ScanThreads:
    """An inclusive prefix scan over the registers of all threads of a block, by `op`.

    Their order is striped: the first source of all threads, then the second one of all, and so on. How operands are
    grouped depends on their number alone. There are at most 32 warps in all sources.

    Attributes:
        total: of all threads; it gets the reduction of all registers.
    """

    op: str
    source: tuple[Register, ...]
    total: Register


@dataclass(frozen=True, slots=True)
class CopyAsync:
    """Start ``buffer[index] = load``, an asynchronous copy of 4 or 8 bytes from global to shared memory.

    It is done, and seen by its thread, after a `WaitForCopies`.
    """

    buffer: str
    index: tuple[Poly, ...]
    load: Load


@dataclass(frozen=True, slots=True)
class CommitCopies:
    """Makes the copies that each thread has started since the last one a group."""


@dataclass(frozen=True, slots=True)
class WaitForCopies:
    """Each thread waits until all but its last `groups` groups of copies are done."""

    groups: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of a block wait here for each other, and then see what the others have written."""


Stmt = (
    Let
    | Choose
    | For
    | VectorLoop
    | Vectors
    | LineStart
    | If
    | Block
    | Reduce
    | Scan
    | Declare
    | Name
    | CombineLanes
    | ResetWindow
    | SlidingProduce
    | Outlined
    | Threads
    | CombineThreads
    | ScanThreads
    | CopyAsync
    | CommitCopies
    | WaitForCopies
    | Barrier
)
