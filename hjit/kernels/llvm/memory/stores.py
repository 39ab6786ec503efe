"""Stores of the LLVM emitter: contiguous, reversed, interleaved by shuffles, scattered, atomic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hjit.kernels.llvm.builder.code import BOOL, I64, Val, const, shuffle, splat, type_name
from hjit.kernels.llvm.memory import interleave, streaming_stores
from hjit.kernels.llvm.memory.address import Location, address, offset_address
from hjit.kernels.llvm.memory.loads import most_shuffled, to_memory
from hjit.kernels.llvm.nest import chains, registers
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.llvm.thresholds import MAX_SPREAD_STRIDE
from hjit.kernels.llvm.vecmath.text import suffix
from hjit.kernels.lower.loopir import Set, Store
from hjit.trace.ir.expressions import Expr
from hjit.trace.ir.poly import Poly


def store_all(e: NestEmitter, stores: Sequence[Store], sets: Sequence[Set] = ()) -> None:
    """Evaluate all values and addresses, then store them, adjacent ones together, and set the registers."""
    plain = [p for p in stores if p.atomic is None]
    locations = [(p.buffer, e.flat(p.buffer, p.index)) for p in plain]
    runs = list(_runs(e, locations))
    chains.evaluate(e, [plain[at.start].value for at in runs if at.stop - at.start == 1])
    values = [(at, _vectors(e, [p.value for p in plain[at]])) for at in runs]
    joining = [(p, to_memory(e.code, e.value(p.value))) for p in stores if p.atomic is not None]
    kept = [e.value(x.value) for x in sets]
    if len(stores) > 1:  # locations that depend on values are those before any store
        for x in (x for p in stores for q in p.index for x in q.exprs):
            e.value(x)
    _store_runs(e, locations, values)
    for p, v in joining:
        assert p.atomic is not None
        _join(e, p.atomic, p.buffer, e.flat(p.buffer, p.index), v)
    registers.assign_all(e, sets, kept)


def _vectors(e: NestEmitter, values: Sequence[Expr]) -> list[Val]:
    """Values that are stored adjacently, in the order of memory."""
    if len(values) > 1:
        ordered = interleave.in_order(e, values)
        if ordered is not None:
            return [to_memory(e.code, v) for v in ordered]
        chains.evaluate(e, values)
    return _joined(e, [to_memory(e.code, e.value(x)) for x in values])


def _joined(e: NestEmitter, values: list[Val]) -> list[Val]:
    """The vectors in the order of memory of values that are there already."""
    return list(interleave.joined(e.code, values, e.lanes)) if len(values) > 1 else values


_ATOMIC = {
    "b": {"add": "or", "maximum": "or", "minimum": "and", "logical_or": "or", "logical_and": "and"},
    "i": {"add": "add", "maximum": "max", "minimum": "min"},
    "u": {"add": "add", "maximum": "umax", "minimum": "umin"},
}


def _join(e: NestEmitter, op: str, buffer: str, flat: Poly, v: Val) -> None:
    """Combine a value with an element atomically."""
    how = _ATOMIC[e.dtypes[buffer].kind].get(op) or op.removeprefix("bitwise_")
    e.code.here(f"atomicrmw {how} ptr {address(e, buffer, flat).text}, {v} monotonic", v.dtype)


def _store_runs(e: NestEmitter, locations: Sequence[Location], runs: Sequence[tuple[slice, Sequence[Val]]]) -> None:
    """Store runs of locations, of which there are vectors in the order of memory."""
    waiting = streaming_stores.Stores(e)
    of_a_vector = len(locations) // e.within.count
    for run, vectors in runs:
        waiting.first = run.start // of_a_vector * e.lanes
        buffer, flat = locations[run.start]
        if len(vectors) == 1:
            store(e, buffer, flat, vectors[0], waiting)
            continue
        at = address(e, buffer, flat)
        for k, v in enumerate(vectors):
            v = splat(e.code, v, e.lanes)
            elements = [(k * e.lanes + lane) // len(vectors) for lane in range(e.lanes)]
            waiting.whole(buffer, v, offset_address(e, at, v.dtype, k * e.lanes), elements)
    waiting.finish()


def _runs(e: NestEmitter, locations: Sequence[Location]) -> Iterator[slice]:
    """Locations that fill a contiguous run of lanes together, else each alone."""
    start = 0
    while start < len(locations):
        n = _side_by_side(e, locations[start:])
        yield slice(start, start + n)
        start += n


def _side_by_side(e: NestEmitter, locations: Sequence[Location]) -> int:
    """How many of the first locations fill a contiguous run of lanes."""
    buffer, flat = locations[0]
    if e.vector is None or e.mask is not None or not e.varies(flat):
        return 1
    c = flat.coefficient(e.vector)
    if c is None or not c.is_const or not 2 <= c.const <= most_shuffled(e.lanes) or c.const > len(locations):
        return 1
    return c.const if all(b == buffer and p - flat == k for k, (b, p) in enumerate(locations[: c.const])) else 1


def store(e: NestEmitter, buffer: str, flat: Poly, v: Val, waiting: streaming_stores.Stores) -> None:
    """Store one value, now or when the others of its statement are; `v` is already as memory holds it."""
    code = e.code
    if not e.varies(flat):
        if v.lanes > 1:
            last = (
                const(v.lanes - 1, I64)
                if e.mask is None or e.vector is None
                else e.arith("sub", e.mask[1], e.vars[e.vector])
            )
            v = code.emit(f"extractelement {v}, {last}", v.dtype, 1, v, last)
        code.effect(f"store {v}, ptr {address(e, buffer, flat).text}, align {v.dtype.itemsize}")
        return
    assert e.vector is not None
    lanes = e.lanes
    v = splat(code, v, lanes)
    c = flat.coefficient(e.vector)
    if c == 1 and e.mask is not None:
        streaming_stores.store_masked(e, v, address(e, buffer, flat), e.mask[0])
        return
    if c == 1:
        waiting.whole(buffer, v, address(e, buffer, flat), range(lanes))
        return
    if c == -1 and e.mask is None:
        v = shuffle(code, v, v, range(lanes - 1, -1, -1))
        waiting.whole(buffer, v, address(e, buffer, flat - (lanes - 1)), range(lanes - 1, -1, -1))
        return
    if e.mask is not None:
        offsets, base = e.integer(flat, lanes), e.base(buffer)
        to = code.emit(f"getelementptr {type_name(v.dtype)}, ptr {base.text}, {offsets}", I64, lanes, base, offsets)
        name = f"llvm.masked.scatter.{suffix(v.dtype, lanes)}.v{lanes}p0"
        code.declare(f"declare void @{name}({v.type}, <{lanes} x ptr>, i32, <{lanes} x i1>)")
        code.effect(f"call void @{name}({v}, <{lanes} x ptr> {to.text}, i32 {v.dtype.itemsize}, {e.mask[0]})")
        return
    if c is None or not c.is_const:
        _scatter(e, buffer, flat, v)
    elif _may_spread(e, c.const):
        _store_spread(e, v, address(e, buffer, flat), c.const)
    else:
        at = address(e, buffer, flat)
        for k in range(lanes):
            one = code.emit(f"extractelement {v}, i64 {k}", v.dtype, 1, v)
            to = offset_address(e, at, v.dtype, c.const * k)
            code.effect(f"store {one}, ptr {to.text}, align {v.dtype.itemsize}")


def _scatter(e: NestEmitter, buffer: str, flat: Poly, v: Val) -> None:
    """A store of each lane to its own address."""
    code, cell = e.code, type_name(v.dtype)
    index = e.integer(flat, e.lanes)
    for k in range(e.lanes):
        one = code.emit(f"extractelement {v}, i64 {k}", v.dtype, 1, v)
        i = code.emit(f"extractelement {index}, i64 {k}", I64, 1, index)
        base = e.base(buffer)
        to = code.emit(f"getelementptr {cell}, ptr {base.text}, i64 {i.text}", I64, 1, base, i, pointer=True)
        code.effect(f"store {one}, ptr {to.text}, align {v.dtype.itemsize}")


def _may_spread(e: NestEmitter, step: int) -> bool:
    """Are there masks for it? LLVM 22 miscompiles a constant mask of one lane: each vector has two or more."""
    return (
        2 <= step <= MAX_SPREAD_STRIDE
        and "avx512" in e.machine.features
        and e.lanes & (e.lanes - 1) == 0
        and e.lanes >= 2 * step
    )


def _store_spread(e: NestEmitter, v: Val, at: Val, step: int) -> None:
    """Every `step`-th element from `at` on, by whole vectors of which the lanes between do nothing."""
    code, lanes = e.code, v.lanes
    for first in range(0, lanes * step, lanes):
        sources = [divmod(first + k, step) for k in range(lanes)]  # (lane of v, whether it is between)
        spread = shuffle(code, v, v, [-1 if between else lane for lane, between in sources])
        mask = Val(f"<{', '.join('i1 false' if between else 'i1 true' for _, between in sources)}>", BOOL, lanes)
        streaming_stores.store_masked(e, spread, offset_address(e, at, v.dtype, first), mask)
