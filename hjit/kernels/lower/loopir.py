"""The loop IR: what the back ends print. Indices are polynomials over loop variables (`Var`) and run-time sizes.

    Program = nest*                                   one for each root of the schedule tree, run in order
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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hjit.kernels.lower.nest_merging import Renaming
from hjit.sched.language.memory import Layout
from hjit.trace.ir.graph import Expr, Load, describe
from hjit.trace.ir.poly import ONE, ZERO, Poly, Sym, Var

BEGIN, END = Var("begin"), Var("end")  # the part of a parallel nest that a task runs
ITERATION = Sym("iteration of blocks")  # of the outermost loop over blocks, in `Rows`
INTERIOR = Var("interior")  # not negative where no index of a block is near a border


class Register(Expr):
    """The value of a register, as it is when the expression is evaluated; declared around it by `Declare`."""

    __slots__ = ("name",)
    name: str

    def __init__(self, name: str, dtype: Any) -> None:
        object.__setattr__(self, "name", name)
        self._seal(np.dtype(dtype), name, np.dtype(dtype).str)

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True, slots=True)
class Let:
    """A name for an index that is used below."""

    var: Var
    value: Poly


@dataclass(frozen=True, slots=True)
class Choose:
    """A name for one of two indices: `yes` where ``test >= 0``, else `no`."""

    var: Var
    test: Poly
    yes: Poly
    no: Poly


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[index] = value``.

    Attributes:
        atomic: the ufunc by which the value is joined to what is there, also by other tasks at once.
        stream: may whole vectors of it be written past the caches?
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
    """`count` elements from ``array[index]`` on along the last axis, as one access where the address allows it."""

    array: str
    index: tuple[Poly, ...]
    count: int

    def at(self, k: int) -> tuple[Poly, ...]:
        """The index of one of them."""
        return (*self.index[:-1], self.index[-1] + k)


@dataclass(frozen=True, slots=True)
class Block:
    """Evaluate all values, which share their common sub-expressions, and all places, then store and set the registers.

    Attributes:
        ahead: what later iterations load, fetched into the caches.
        rows: of the loads and stores, those that are one access; made by widen_accesses.
    """

    stores: tuple[Store, ...]
    ahead: tuple[Load, ...] = ()
    sets: tuple[Set, ...] = ()
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class For:
    """``for var in range(begin, end, step)``.

    Attributes:
        limit: where an iteration would pass it, it starts earlier instead, at ``limit - step``, and repeats what
            the one before it did; None: nothing like that.
        first: where an iteration would start before it, it starts there; None: nothing like that.
        kind: "serial", or of a known trip count: "unroll", code for each iteration, and "unroll_and_jam", in which they
            also share loads; `hjit.kernels.lower.passes.unroll_and_jam` makes an end of them. "gpu_thread": shared out
            among the threads of a block, by `hjit.kernels.lower.passes.distribute_threads`.
        rare: does it run what vectors leave over, so that its code is to be short rather than fast?
        most: iterations that it never has more of, where that is known.
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


@dataclass(frozen=True, slots=True)
class LineAlignment:
    """The store by which a vector loop is aligned: ``buffer[index]`` moves by `step`, an odd number, with the loop."""

    buffer: str
    index: tuple[Poly, ...]
    step: int


@dataclass(frozen=True, slots=True)
class VectorLoop:
    """A loop whose iterations are to be lanes of vectors: ``low .. high`` in vectors, the remainder one by one.

    Attributes:
        begin, end: the whole range.
        low, high: where no boundary handling along `var` is needed; `body` has none.
        lanes: elements of a vector.
        copies: vectors of one iteration; they share loads.
        align: `var` is a multiple of this at each iteration.
        tail: "shift_inwards": the last vector starts earlier, see `For`. "predicate": of the last vector some lanes do
            nothing, or what the last one does. "guard_with_if": single elements.
        body: of one vector at `var`.
        remainder: of one element; none where there are always vectors enough for all of them.
        line: what is aligned where results are streamed.
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
    """The body for `lanes` consecutive values of the loop variable `var` at once: what depends on `var` is a vector.

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
    """Names for where vectors of ``buffer[index]`` begin that are aligned in memory, of a loop over ``low .. high``.

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
    """`body` where ``value >= 0``, else `otherwise`, which, where there is one, is right for any value and shorter."""

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
        """How many iterations it has; None where only the run knows."""
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
    """``buffer[index] = running = op(running, element)`` for the iterations of a loop, which threads of a block share.

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
    """A register from here to the end of the body: a scalar, or a vector of `lanes`, which all begin as `initial`."""

    register: Register
    initial: Expr
    lanes: int = 1


@dataclass(frozen=True, slots=True)
class Name:
    """A register that is set here and never again, from here to the end of the body: a scalar."""

    register: Register
    value: Expr


@dataclass(frozen=True, slots=True)
class CombineLanes:
    """All lanes of the vector register `source` into the scalar register `target`, halves with halves.

    Attributes:
        op: the associative ufunc.
        source, target: registers of one dtype; two each where rounding errors are carried along: (total, error).
    """

    op: str
    source: tuple[Register, ...]
    target: tuple[Register, ...]


@dataclass(frozen=True, slots=True)
class ResetWindow:
    """Nothing of a stage is in its circular buffer."""

    stage: str


@dataclass(frozen=True, slots=True)
class SlidingProduce:
    """Compute what is new of a stage: ``var = max(first, how far earlier iterations have come)``, up to `end`.

    Attributes:
        last: is this the last of the stage's definitions, after which the iteration has come to `end`?
        axis: the one that moves. window: elements of it that an iteration reads at most; 0: all.
        new: those that an iteration adds at most; 0: nobody knows.
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
    """What is compiled as a function of its own; registers do not reach into it."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class ThreadLoop:
    """``for var in range(begin, end, step)``, its iterations shared out among threads; at most `most` of them."""

    var: Var
    begin: Poly
    end: Poly
    step: int = 1
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Threads:
    """The body for each iteration of some loops, which the threads of a block share: the first takes the first one.

    Consecutive threads take consecutive iterations of the last loop. Without loops the first thread runs the body,
    once. Bounds are the same for all threads; no thread waits for others inside.
    """

    loops: tuple[ThreadLoop, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class CombineThreads:
    """The registers of all threads of a block into those of the first one, halves with halves.

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
    """The registers of all threads of a block, of the first source, then of the second one, and so on, as a row: each
    becomes what those up to it come to by `op`, the register `total` of all threads what all come to.

    They are grouped as their number alone says. There are at most 32 warps in all sources.
    """

    op: str
    source: tuple[Register, ...]
    total: Register


@dataclass(frozen=True, slots=True)
class CopyAsync:
    """Begin ``buffer[index] = load``: from memory of the device to that of the block, an element of 4 or 8 bytes.

    It is done, and seen by its thread, after a `WaitForCopies`.
    """

    buffer: str
    index: tuple[Poly, ...]
    load: Load


@dataclass(frozen=True, slots=True)
class CommitCopies:
    """What each thread has begun to copy since the last one is a group."""


@dataclass(frozen=True, slots=True)
class WaitForCopies:
    """All groups of copies are done but the last `groups` of them, each thread's own."""

    groups: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of a block come here before any goes on, and see what others wrote before."""


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


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that a task has for itself; on a GPU a thread, or where it is shared the threads of a block.

    Attributes:
        origin: per axis, the index of its first element.
        lengths: per axis, over run-time sizes only.
        fold: the axis that is circular, its length a power of two, or None.
        shared: is it that of a block?
        dtype: of its elements, where it is no stage of the Graph; made by coalesce_accesses, privatise_scatters and
            stage_operands.
    """

    stage: str
    origin: tuple[Poly, ...]
    lengths: tuple[Poly, ...]
    layout: Layout
    fold: int | None = None
    shared: bool = False
    dtype: np.dtype[Any] | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows, along the first axes of arrays, an iteration of the outermost loop over blocks touches: `ITERATION`.

    A nest without such a loop has one iteration.

    Attributes:
        stage: that is written.
        count: of these iterations.
        ends: rows that must be there before it: of what it reads, and of its own stage those that it updates. Of arrays
            that are not in it: all.
        begin: the first row that it writes.
    """

    stage: str
    count: Poly
    ends: Mapping[str, Poly] = field(default_factory=dict)
    begin: Poly = ZERO


@dataclass(frozen=True, slots=True)
class Nest:
    """One root of the schedule tree.

    Attributes:
        writes: the stages that it computes.
        count: iterations of its parallel loops, from which tasks take `BEGIN` .. `END`; None: the body runs once.
        work: estimated operations of one of them.
        buffers: of the stages computed inside.
        warm: iterations that a task runs before its first one to fill circular buffers.
        points: elements that it computes, over all its stages; where there are none, it is not entered.
        renaming: the earlier nest whose body it shares, where it has none itself; see
            `hjit.kernels.lower.nest_merging`.
        blocks: does a block of threads run each iteration, `BEGIN`, of which there are `count`?
        threads: of a block; known when they have their work, else 0.
        rows: what its iterations touch.
    """

    stage: str
    body: tuple[Stmt, ...]
    count: Poly | None
    work: Poly
    writes: tuple[str, ...] = ()
    buffers: dict[str, Buffer] = field(default_factory=dict)
    warm: int = 0
    points: Poly = ONE
    renaming: Renaming | None = None
    blocks: bool = False
    threads: int = 0
    rows: Rows | None = None


@dataclass(frozen=True)  # not slotted: `buffers` is cached
class Program:
    """The nests of a kernel, in order.

    Attributes:
        layouts: of stages that are not in plain C order in memory.
    """

    nests: tuple[Nest, ...]
    layouts: dict[str, Layout] = field(default_factory=dict)

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """All buffers of tasks."""
        return {name: b for nest in self.nests for name, b in nest.buffers.items()}

    def __str__(self) -> str:
        return "\n".join(line for nest in self.nests for line in self._nest_lines(nest))

    def _nest_lines(self, nest: Nest) -> Iterator[str]:
        if nest.renaming is None:
            yield from _nest_lines(nest)
            return
        changes = {**nest.renaming.arrays, **nest.renaming.sizes}
        named = ", ".join(f"{new} for {old}" for old, new in changes.items() if old != new)
        yield f"nest {nest.stage}: as nest {self.nests[nest.renaming.nest].stage}" + (
            f", with {named}" if named else ""
        )


# -- as text


def _nest_lines(nest: Nest) -> Iterator[str]:
    yield f"nest {nest.stage}:"
    for b in nest.buffers.values():
        axes = enumerate(zip(b.lengths, b.origin, strict=True))
        sizes = " x ".join(f"{n}" + (" circular" if k == b.fold else f" from {o}") for k, (n, o) in axes)
        of = f" of {b.dtype}" if b.dtype is not None else ""
        yield f"  {'shared ' if b.shared else ''}buffer {b.stage}: {sizes or 'one element'}{of}{b.layout}"
    depth = 1
    if nest.count is not None:
        threads = f" of {nest.threads} threads" if nest.threads else ""
        yield f"  {nest.count} blocks{threads}:" if nest.blocks else f"  parallel {nest.count} iterations:"
        depth = 2
    for s in nest.body:
        yield from lines(s, depth)


KIND_TEXT = {"serial": "for", "unroll": "unrolled", "unroll_and_jam": "jammed", "gpu_thread": "threads"}
TAIL_TEXT = {"shift_inwards": ", shift_inwards", "predicate": ", predicate", "guard_with_if": ""}


def lines(s: Stmt, depth: int) -> Iterator[str]:
    """A statement as indented text."""
    pad = "  " * depth

    def block(head: str, body: tuple[Stmt, ...]) -> Iterator[str]:
        yield pad + head
        for t in body:
            yield from lines(t, depth + 1)

    match s:
        case Let(var, value):
            yield f"{pad}{var} = {value}"
        case Choose(var, test, yes, no):
            yield f"{pad}{var} = {yes} if {test} >= 0 else {no}"
        case For():
            yield from block(f"{_for_text(s)}:", s.body)
        case VectorLoop():
            how = f"{s.lanes} lanes" + (f" x {s.copies}" if s.copies > 1 else "")
            how += f", multiples of {s.align}" if s.align > 1 else ""
            yield from block(f"vector {s.var} in [{s.low}, {s.high}), {how}{TAIL_TEXT.get(s.tail, s.tail)}:", s.body)
            if s.remainder:
                yield from block(f"remainder {s.var} of [{s.begin}, {s.end}):", s.remainder)
        case Vectors():
            how = f", {s.count} of them" if s.count > 1 else ""
            how += f" at multiples of {s.align}" if s.align > 1 else ""
            how += f", lanes before {s.active}" if s.active is not None else ""
            yield from block(f"vectors {s.var} .. {s.var} + {s.lanes - 1}{how}:", s.body)
        case LineStart():
            at = _access(s.line.buffer, s.line.index)
            yield (
                f"{pad}{s.streams}, {s.aligned_down}, {s.aligned_up} = cache lines of {at} "
                f"for {s.var} in [{s.low}, {s.high}), {s.lanes} lanes, at least {s.fewest}"
            )
        case If():
            yield from block(f"if {s.value} >= 0:", s.body)
            if s.otherwise:
                yield from block("else:", s.otherwise)
        case Declare(register, initial, lanes):
            kind = register.dtype.str[1:] + (f" x {lanes}" if lanes > 1 else "")
            yield f"{pad}register {register}: {kind} = {initial}"
        case Name(register, value):
            lets, (text,) = describe(value, share_loads=True)
            yield from (pad + line for line in [*lets, f"{register} = {text}"])
        case CombineLanes(op, source, target):
            yield f"{pad}{_names(target)} = {op} over the lanes of {_names(source)}"
        case ResetWindow():
            yield f"{pad}reset {s.stage}"
        case Outlined():
            yield from block("outlined:", s.body)
        case Threads():
            loops = ", ".join(map(_thread_loop, s.loops))
            yield from block(f"threads {loops}:" if s.loops else "first thread:", s.body)
        case CombineThreads():
            lets, texts = describe(*s.combined, share_loads=True)
            who = f"{s.lanes} lanes" if s.lanes else "threads"
            head = f"combine {who}, {_names(s.source)} with {_names(s.other)}:"
            yield from (pad + line for line in [head, *lets])
            yield from (f"{pad}  {r} = {text}" for r, text in zip(s.source, texts, strict=True))
        case ScanThreads(op, source, total):
            yield f"{pad}scan threads, {_names(source)} by {op}, all of them {total}"
        case CopyAsync(buffer, index, load):
            yield f"{pad}{_access(buffer, index)} = copy of {load}"
        case CommitCopies():
            yield f"{pad}commit copies"
        case WaitForCopies(groups):
            yield f"{pad}wait for copies" + (f" but the last {groups} groups" if groups else "")
        case Barrier():
            yield f"{pad}barrier"
        case SlidingProduce():
            where = " apart" if s.is_apart else ""
            yield from block(f"slide{where} {s.stage} {s.var} from {s.first} until {s.end}:", s.body)
        case Block():
            yield from (pad + line for line in _block_lines(s))
        case Reduce():
            yield from (pad + line for line in _reduce_lines(s))
        case Scan():
            lets, (text,) = describe(s.element, share_loads=True)
            how = "compensated " if s.compensated else ""
            yield f"{pad}{how}scan by {s.op} in {s.dtype} for {s.var} in [{s.begin}, {s.end}) by threads:"
            yield f"{pad}  {_access(s.buffer, s.index)} from {s.initial}:"
            yield from (f"{pad}    {line}" for line in [*lets, text])


def _names(registers: Sequence[Register]) -> str:
    return ", ".join(map(str, registers))


def _access(buffer: str, index: Sequence[Poly]) -> str:
    return f"{buffer}[{', '.join(map(str, index))}]"


def _for_text(s: For) -> str:
    step = f" step {s.step}" if s.step != 1 else ""
    inwards = [f"{word} {p}" for word, p in (("from", s.first), ("before", s.limit)) if p is not None]
    shifted = f" shift_inwards {' '.join(inwards)}" if inwards else ""
    return f"{'remainder' if s.rare else KIND_TEXT[s.kind]} {s.var} in [{s.begin}, {s.end}){step}{shifted}"


def _block_lines(s: Block) -> Iterator[str]:
    """Loads ahead, names of what the values share, stores and registers."""
    yield from (f"prefetch {x}" for x in s.ahead)
    yield from (f"{x.count} at once: {_access(x.array, x.index)} .." for x in s.rows)
    lets, texts = describe(*(x.value for x in (*s.stores, *s.sets)), share_loads=True)
    yield from lets
    for store, text in zip(s.stores, texts, strict=False):
        to = _access(store.buffer, store.index)
        how = " streamed" if store.stream else ""
        yield f"{to}{how} = {text}" if store.atomic is None else f"atomic {store.atomic} {to}, {text}"
    yield from (f"{x.register} = {text}" for x, text in zip(s.sets, texts[len(s.stores) :], strict=True))


def _reduce_lines(s: Reduce) -> Iterator[str]:
    loops = " ".join(map(_reduction_loop, s.loops))
    how = ("compensated " if s.compensated else "") + ("products " if s.products else "")
    yield f"{how}{s.op} in {s.dtype} for {loops}:"
    for i in s.items:
        lets, (text,) = describe(i.value, share_loads=True)
        yield f"  {_access(s.buffer, i.index)} from {i.initial}:"
        yield from (f"    {line}" for line in [*lets, text])
    for i in s.interior:
        lets, (text,) = describe(i.value, share_loads=True)
        yield from (f"    {line}" for line in [*lets, f"or {text} if interior >= 0"])


def _thread_loop(t: ThreadLoop) -> str:
    step = f" step {t.step}" if t.step != 1 else ""
    return f"{t.var} in [{t.begin}, {t.end}){step}" + (f" at most {t.most}" if t.most is not None else "")


def _reduction_loop(t: ReductionLoop) -> str:
    step = f" step {t.step}" if t.step != 1 else ""
    lanes = f" of {t.lanes} lanes" if t.lanes > 1 else " by threads" if t.threads else ""
    lanes = f" by {t.warp_lanes} lanes of a warp" if t.warp_lanes else lanes
    return f"{t.var} in [{t.begin}, {t.end}){step}{lanes}" + (f" unrolled {t.unroll}" if t.unroll > 1 else "")
