"""The loop IR as text: what `f.loops()` shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hjit.kernels.lower.loopir import (
    Barrier,
    Block,
    Choose,
    CombineLanes,
    CombineThreads,
    CommitCopies,
    CopyAsync,
    Declare,
    For,
    If,
    Let,
    LineStart,
    Name,
    Outlined,
    Reduce,
    ReductionLoop,
    Register,
    ResetWindow,
    Scan,
    ScanThreads,
    SlidingProduce,
    Stmt,
    ThreadLoop,
    Threads,
    VectorLoop,
    Vectors,
    WaitForCopies,
)
from hjit.trace.ir.expressions import describe
from hjit.trace.ir.poly import Poly

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
        case CombineThreads() | ScanThreads() | CopyAsync() | CommitCopies() | WaitForCopies() | Barrier():
            yield from (pad + line for line in _lines_of_threads(s))
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


def _lines_of_threads(
    s: CombineThreads | ScanThreads | CopyAsync | CommitCopies | WaitForCopies | Barrier,
) -> Iterator[str]:
    """What the threads of a block do together."""
    match s:
        case CombineThreads():
            lets, texts = describe(*s.combined, share_loads=True)
            who = f"{s.lanes} lanes" if s.lanes else "threads"
            yield f"combine {who}, {_names(s.source)} with {_names(s.other)}:"
            yield from lets
            yield from (f"  {r} = {text}" for r, text in zip(s.source, texts, strict=True))
        case ScanThreads(op, source, total):
            yield f"scan threads, {_names(source)} by {op}, all of them {total}"
        case CopyAsync(buffer, index, load):
            yield f"{_access(buffer, index)} = copy of {load}"
        case CommitCopies():
            yield "commit copies"
        case WaitForCopies(groups):
            yield "wait for copies" + (f" but the last {groups} groups" if groups else "")
        case Barrier():
            yield "barrier"


def _names(registers: Sequence[Register]) -> str:
    return ", ".join(map(str, registers))


def _access(buffer: str, index: Sequence[Poly]) -> str:
    return f"{buffer}[{', '.join(map(str, index))}]"


def _for_text(s: For) -> str:
    step = f" step {s.step}" if s.step != 1 else ""
    inwards = [f"{word} {p}" for word, p in (("from", s.first), ("before", s.limit)) if p is not None]
    shifted = f" shift_inwards {' '.join(inwards)}" if inwards else ""
    until = "" if s.until is None else f" until {s.until}"
    return f"{'remainder' if s.rare else KIND_TEXT[s.kind]} {s.var} in [{s.begin}, {s.end}){step}{shifted}{until}"


def _block_lines(s: Block) -> Iterator[str]:
    """Loads ahead, names of what the values share, stores and registers."""
    yield from (f"prefetch {x}" for x in s.ahead)
    yield from (f"{x.count} at once: {_access(x.array, x.index)} .." for x in s.rows)
    values = [x.value for x in s.stores] + [x.value for x in s.sets]
    lets, texts = describe(*values, share_loads=True)
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
