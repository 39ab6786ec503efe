"""The loop IR: what the back ends print. Indices are polynomials over loop variables (`Var`) and run-time sizes.

Stmt = Let(var, value) | For(var, begin, end, step) | VectorLoop(var, ...) | If(value, body, otherwise)
     | Block((buffer, index, value)*) | Reduce(buffer, items, ...) | ResetWindow(stage) | SlidingProduce(stage, ...) | Outlined(body)
Program = nests, one for each root of the schedule tree, run in order
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from hjit.kernels.lower.alike import Like
from hjit.sched.language.memory import Layout
from hjit.trace.ir.graph import Change, Expr, Load, describe, loads, substitute, walk
from hjit.trace.ir.poly import ONE, Poly, Var

BEGIN, END = Var("begin"), Var("end")  # the part of a parallel nest that a task runs


@dataclass(frozen=True, slots=True)
class Let:
    """A name for an index that is used below."""

    var: Var
    value: Poly


@dataclass(frozen=True, slots=True)
class Store:
    """``buffer[index] = value``; `atomic`: the ufunc by which the value is joined to what is there, also by other tasks at once."""

    buffer: str
    index: tuple[Poly, ...]
    value: Expr
    atomic: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Evaluate all values, then store them; they share loads. `ahead`: what later turns load, fetched into the caches."""

    stores: tuple[Store, ...]
    ahead: tuple[Load, ...] = ()


@dataclass(frozen=True, slots=True)
class For:
    """``for var in range(begin, end, step)``.

    Attributes:
        limit: where a turn would pass it, the turn starts earlier instead, at ``limit - step``, and repeats what
            the turn before it did; None: nothing like that.
        kind: "serial", or of a known number of turns: "unroll", code for each of them, and "unroll_and_jam", in which they
            also share loads. Only `hjit.kernels.lower.unroll_and_jam` sees loops that are not serial.
    """

    var: Var
    begin: Poly
    end: Poly
    step: int
    body: tuple[Stmt, ...]
    limit: Poly | None = None
    kind: str = "serial"


@dataclass(frozen=True, slots=True)
class VectorLoop:
    """A loop whose turns are lanes of vectors: the interior ``low .. high`` in vectors, the rest one by one.

    Attributes:
        begin, end: the whole range.
        low, high: where no boundary handling along `var` is needed; `body` has none.
        lanes: elements of a vector.
        copies: vectors of one turn; they share loads.
        align: `var` is a multiple of this at each turn.
        tail: "shift_inwards": the last vector starts earlier, see `For`. "predicate": of the last vector some lanes do nothing, or what the
            last one does. "guard_with_if": single elements.
        body: of one vector at `var`. rest: of one element; none where there are always vectors enough for all of them.
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
    rest: tuple[Stmt, ...]


def vectors_at_once(lanes: int, copies: int, align: int) -> tuple[int, ...]:
    """How many vectors one turn of `VectorLoop` may do, at multiples of `align`: all copies, and a single one for what they leave."""
    return tuple(n for n in dict.fromkeys((copies, 1)) if n * lanes % align == 0)


@dataclass(frozen=True, slots=True)
class If:
    """`body` where ``value >= 0``, else `otherwise`."""

    value: Poly
    body: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class ReductionLoop:
    """Header of a reduction loop.

    Attributes:
        lanes: of its vectors, where the lanes run along it.
        unroll: turns whose code is repeated.
    """

    var: Var
    begin: Poly
    end: Poly
    step: int = 1
    lanes: int = 1
    unroll: int = 1


@dataclass(frozen=True, slots=True)
class Item:
    """One accumulator of a reduction: ``buffer[index] = op over the loops of value, from initial``."""

    index: tuple[Poly, ...]
    initial: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Reduce:
    """Reductions of several elements over the same loops, accumulated in registers.

    Attributes:
        op: the associative ufunc.
        loops: headers, outermost first; the innermost may have lanes.
        dtype: of the accumulators.
        dtype_out: of op's result; accumulators are cast to it at the end.
        compensated: is the rounding error of each addition carried along (Knuth's two-sum)?
        products: are the values products, of which a few at a time are summed by fused multiply-adds in the dtype of
            the result, before they join the accumulator?
    """

    buffer: str
    op: str
    items: tuple[Item, ...]
    loops: tuple[ReductionLoop, ...]
    dtype: np.dtype[Any]
    dtype_out: np.dtype[Any]
    compensated: bool
    products: bool = False


@dataclass(frozen=True, slots=True)
class ResetWindow:
    """Nothing of a stage is in its circular buffer."""

    stage: str


@dataclass(frozen=True, slots=True)
class SlidingProduce:
    """Compute what is new of a stage: ``var = max(first, how far earlier turns have come)``, up to `end`.

    Attributes:
        last: is this the last of the stage's definitions, after which the turn has come to `end`?
    """

    stage: str
    var: Var
    first: Poly
    end: Poly
    body: tuple[Stmt, ...]
    last: bool = True


@dataclass(frozen=True, slots=True)
class Outlined:
    """What is compiled as a function by itself; see `hjit.kernels.llvm.outline`."""

    body: tuple[Stmt, ...]


Stmt = Let | For | VectorLoop | If | Block | Reduce | ResetWindow | SlidingProduce | Outlined


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that a task has for itself.

    Attributes:
        origin: per axis, the index of its first element.
        lengths: per axis, over run-time sizes only.
        fold: the axis that is circular, its length a power of two, or None.
    """

    stage: str
    origin: tuple[Poly, ...]
    lengths: tuple[Poly, ...]
    layout: Layout
    fold: int | None


@dataclass(frozen=True, slots=True)
class Nest:
    """One root of the schedule tree.

    Attributes:
        writes: the stages that it computes.
        count: turns of its parallel loops, from which tasks take `BEGIN` .. `END`; None: the body runs once.
        work: estimated operations of one of them.
        buffers: of the stages computed inside.
        warm: turns that a task runs before its first one to fill circular buffers.
        points: elements that it computes, over all its stages; where there are none, it is not entered.
        like: of which nest the body is, where it has none itself; see `hjit.kernels.lower.alike`.
    """

    stage: str
    body: tuple[Stmt, ...]
    count: Poly | None
    work: Poly
    writes: tuple[str, ...] = ()
    buffers: dict[str, Buffer] = field(default_factory=dict)
    warm: int = 0
    points: Poly = ONE
    like: Like | None = None


@dataclass(frozen=True)  # not slotted: its buffers are asked for stage by stage
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
        return "\n".join(
            line
            for nest in self.nests
            for line in (_nest_lines(nest) if nest.like is None else self._like_lines(nest, nest.like))
        )

    def _like_lines(self, nest: Nest, like: Like) -> Iterator[str]:
        changes = {**like.arrays, **like.sizes}
        named = ", ".join(f"{new} for {old}" for old, new in changes.items() if old != new)
        yield f"nest {nest.stage}: as nest {self.nests[like.nest].stage}" + (f", with {named}" if named else "")


def inner(s: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """The bodies of a statement."""
    match s:
        case For() | SlidingProduce() | Outlined():
            return (s.body,)
        case VectorLoop():
            return (s.body, s.rest)
        case If():
            return (s.body, s.otherwise)
    return ()


def sources(body: Iterable[Stmt]) -> Iterator[str]:
    """The arrays that statements read."""
    for s in body:
        values: list[Expr] = []
        indices: list[Poly] = []
        match s:
            case Block():
                values += [put.value for put in s.stores]
                indices += [p for put in s.stores for p in put.index]
            case Reduce():
                values += [e for i in s.items for e in (i.initial, i.value)]
                indices += [p for i in s.items for p in i.index]
        yield from (x.source for x in loads(*values, *(e for p in indices for e in p.exprs)))
        for part in inner(s):
            yield from sources(part)


def with_bodies(s: Stmt, change: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]]) -> Stmt:
    """A statement with other statements inside it."""
    match s:
        case For() | SlidingProduce() | Outlined():
            return replace(s, body=change(s.body))
        case VectorLoop():
            return replace(s, body=change(s.body), rest=change(s.rest))
        case If():
            return replace(s, body=change(s.body), otherwise=change(s.otherwise))
    return s


def stmt_exprs(s: Stmt) -> tuple[Expr, ...]:
    """The values that a statement itself computes."""
    match s:
        case Block():
            return tuple(p.value for p in s.stores)
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


def substitute_in(s: Stmt, change: Change) -> Stmt:
    """The statement, and those inside it, with the atoms of all indices and values replaced."""

    def at(p: Poly) -> Poly:
        return p.substitute(change)

    def index(ps: tuple[Poly, ...]) -> tuple[Poly, ...]:
        return tuple(map(at, ps))

    s = with_bodies(s, lambda body: tuple(substitute_in(t, change) for t in body))
    match s:
        case Let():
            return Let(s.var, at(s.value))
        case For():
            return replace(s, begin=at(s.begin), end=at(s.end), limit=None if s.limit is None else at(s.limit))
        case VectorLoop():
            return replace(s, begin=at(s.begin), end=at(s.end), low=at(s.low), high=at(s.high))
        case If():
            return replace(s, value=at(s.value))
        case SlidingProduce():
            return replace(s, first=at(s.first), end=at(s.end))
        case Block():
            ahead = tuple(Load(x.source, index(x.index), x.dtype) for x in s.ahead)
            return Block(
                tuple(replace(p, index=index(p.index), value=substitute(p.value, change)) for p in s.stores), ahead
            )
        case Reduce():
            items = tuple(
                Item(index(i.index), substitute(i.initial, change), substitute(i.value, change)) for i in s.items
            )
            return replace(s, items=items, loops=tuple(replace(t, begin=at(t.begin), end=at(t.end)) for t in s.loops))
    return s


def own_polys(s: Stmt) -> Iterator[Poly]:
    """The polynomials that a statement itself holds, its headers and values, not the statements inside it."""
    match s:
        case Block():
            for p in s.stores:
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
        case VectorLoop():
            yield from (s.begin, s.end, s.low, s.high)
        case If():
            yield s.value
        case SlidingProduce():
            yield from (s.first, s.end)
    for e in walk(*stmt_exprs(s)):
        yield from e.polys


def _nest_lines(nest: Nest) -> Iterator[str]:
    yield f"nest {nest.stage}:"
    for b in nest.buffers.values():
        sizes = " x ".join(
            f"{n}" + (" circular" if k == b.fold else f" from {o}")
            for k, (n, o) in enumerate(zip(b.lengths, b.origin, strict=True))
        )
        yield f"  buffer {b.stage}: {sizes or 'one element'}{b.layout}"
    depth = 1
    if nest.count is not None:
        yield f"  parallel {nest.count} iterations:"
        depth = 2
    for s in nest.body:
        yield from lines(s, depth)


KIND_TEXT = {"serial": "for", "unroll": "unrolled", "unroll_and_jam": "jammed"}
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
        case For():
            step = f" step {s.step}" if s.step != 1 else ""
            backward = f" shift_inwards from {s.limit}" if s.limit is not None else ""
            yield from block(f"{KIND_TEXT[s.kind]} {s.var} in [{s.begin}, {s.end}){step}{backward}:", s.body)
        case VectorLoop():
            how = (
                f"{s.lanes} lanes"
                + (f" x {s.copies}" if s.copies > 1 else "")
                + (f", multiples of {s.align}" if s.align > 1 else "")
            )
            yield from block(f"vector {s.var} in [{s.low}, {s.high}), {how}{TAIL_TEXT[s.tail]}:", s.body)
            if s.rest:
                yield from block(f"rest {s.var} of [{s.begin}, {s.end}):", s.rest)
        case If():
            yield from block(f"if {s.value} >= 0:", s.body)
            if s.otherwise:
                yield from block("else:", s.otherwise)
        case ResetWindow():
            yield f"{pad}reset {s.stage}"
        case Outlined():
            yield from block("outlined:", s.body)
        case SlidingProduce():
            yield from block(f"slide {s.stage} {s.var} from {s.first} until {s.end}:", s.body)
        case Block(puts, ahead):
            yield from (f"{pad}prefetch {x}" for x in ahead)
            for put in puts:
                lets, text = describe(put.value)
                yield from (f"{pad}{line}" for line in lets)
                to = f"{put.buffer}[{', '.join(map(str, put.index))}]"
                yield f"{pad}{to} = {text}" if put.atomic is None else f"{pad}atomic {put.atomic} {to}, {text}"
        case Reduce():
            loops = " ".join(_reduction_loop(t) for t in s.loops)
            how = ("compensated " if s.compensated else "") + ("products " if s.products else "")
            yield f"{pad}{how}{s.op} in {s.dtype} for {loops}:"
            for i in s.items:
                lets, text = describe(i.value)
                yield f"{pad}  {s.buffer}[{', '.join(map(str, i.index))}] from {i.initial}:"
                yield from (f"{pad}    {line}" for line in [*lets, text])


def _reduction_loop(t: ReductionLoop) -> str:
    step = f" step {t.step}" if t.step != 1 else ""
    lanes = f" of {t.lanes} lanes" if t.lanes > 1 else ""
    return f"{t.var} in [{t.begin}, {t.end}){step}{lanes}" + (f" unrolled {t.unroll}" if t.unroll > 1 else "")
