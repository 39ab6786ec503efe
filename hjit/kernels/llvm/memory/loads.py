"""Loads of the LLVM emitter: contiguous, reversed, strided by shuffles, broadcast, gathered; prefetches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hjit.kernels.llvm.builder.code import BOOL, I8, I32, I64, Code, Val, const, shuffle, splat, type_name
from hjit.kernels.llvm.memory import gathers, register_tables
from hjit.kernels.llvm.memory.address import address, memory_dtype, offset_address, read
from hjit.kernels.llvm.nest import indices
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.llvm.thresholds import ALWAYS_SHUFFLED_STRIDE, MAX_SHUFFLED_STRIDE
from hjit.kernels.llvm.vecmath import apply as vecmath
from hjit.kernels.llvm.vecmath.text import suffix
from hjit.sched.language.memory import LINE, rejoined
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.poly import Indirect, Poly, Var, poly

_GROUP = Var("group")  # the vector's variable divided by its alignment
PREFETCH = "llvm.prefetch.p0"


def most_shuffled(lanes: int) -> int:
    """The largest stride for which whole vectors are loaded and shuffled."""
    return max(ALWAYS_SHUFFLED_STRIDE, min(lanes // 2, MAX_SHUFFLED_STRIDE))


def load(e: NestEmitter, x: Load) -> Val:
    """The value of a load: a vector if its address differs between lanes."""
    constant = _constant(e, x)
    if constant is not None:
        return constant
    dtype = e.dtypes[x.source]
    _check_unmoving(e, x)
    flat = e.flat(x.source, x.index)
    if not e.varies(flat):
        return _from_memory(e.code, scalar(e, x.source, flat), dtype)
    assert e.vector is not None
    c = flat.coefficient(e.vector)
    if e.mask is not None and c == 1:
        return _from_memory(e.code, _masked_load(e, x.source, flat, memory_dtype(dtype)), dtype)
    at_hand = register_tables.looked_up(e, x, memory_dtype(dtype)) if c is None or c == 0 else None
    if at_hand is not None:
        return _from_memory(e.code, at_hand, dtype)
    if e.mask is not None:
        return _from_memory(e.code, gathers.gathered(e, x.source, flat, dtype), dtype)
    if c is not None and c.is_const and 0 < abs(c.const) <= most_shuffled(e.lanes):
        return _from_memory(e.code, _strided_load(e, x, flat, c.const, memory_dtype(dtype)), dtype)
    offsets = _pattern(e, flat)
    if offsets is not None:
        return _from_memory(e.code, _patterned_load(e, x.source, flat, offsets, memory_dtype(dtype)), dtype)
    return _from_memory(e.code, gathers.gathered(e, x.source, flat, dtype), dtype)


def _check_unmoving(e: NestEmitter, x: Load) -> None:
    """Evaluate indices of axes whose elements are one in memory: they are checked, though no part of the address."""
    if x.source in e.inputs:
        for p, step in zip(x.index, e.inputs[x.source].layout, strict=True):
            if step == 0 and p.exprs:
                e.integer(p, e.spread(p, e.lanes))


def _pattern(e: NestEmitter, flat: Poly) -> list[int] | None:
    """The distance of each lane's element from the first one's, if divisions of the variable make a fixed pattern."""
    moving = Poly({m: c for m, c in flat.terms.items() if any(e.varies(poly(a)) for a in m)}, 0)
    key = moving, e.vector, e.within.align, e.lanes
    if key not in e.patterns:
        e.patterns[key] = _offsets(e, moving)
    return e.patterns[key]


def _offsets(e: NestEmitter, moving: Poly) -> list[int] | None:
    """See `_pattern`. What is gathered has none, which the first two lanes show: its index is a whole expression."""
    first, found = _at_lane(e, moving, 0), []
    for k in range(e.lanes):
        apart = _at_lane(e, moving, k) - first
        if not apart.is_const:
            return None
        found.append(apart.const)
    return found if max(found) - min(found) < most_shuffled(e.lanes) * e.lanes else None


def _at_lane(e: NestEmitter, flat: Poly, lane: int) -> Poly:
    """The index of one lane, the vector's variable written as the multiple that it is."""
    assert e.vector is not None
    group = poly(_GROUP) * e.within.align + lane
    return rejoined(flat.substitute(lambda a: group if a == e.vector else None))


def _patterned_load(e: NestEmitter, source: str, flat: Poly, offsets: list[int], dtype: np.dtype[Any]) -> Val:
    """Lanes at fixed distances: whole vectors and shuffles."""
    assert e.vector is not None
    e.vars[_GROUP] = e.divide(e.vars[e.vector], const(e.within.align, I64), quotient=True)
    low, span = min(offsets), max(offsets) - min(offsets) + 1
    size = min(1 << (span.bit_length() - 1), e.lanes)
    starts = list(dict.fromkeys([*range(0, span - size, size), span - size]))
    at = address(e, source, _at_lane(e, flat, 0) + low)
    parts = [read(e, source, offset_address(e, at, dtype, k), dtype, size) for k in starts]
    if size == 1:
        return splat(e.code, parts[0], e.lanes)
    return select_lanes(e.code, parts, starts, [k - low for k in offsets])


def _constant(e: NestEmitter, x: Load) -> Val | None:
    """An element of a constant array at a known index."""
    i = e.inputs.get(x.source)
    if i is None or i.data is None or not all(p.is_const for p in x.index):
        return None
    array = np.frombuffer(i.data, i.dtype).reshape([n.const for n in i.shape])
    return const(array[tuple(p.const for p in x.index)], i.dtype)


def _from_memory(code: Code, v: Val, dtype: np.dtype[Any]) -> Val:
    if dtype != BOOL:
        return v
    return code.emit(f"icmp ne {v.type} {v.text}, {const(0, I8, v.lanes).text}", BOOL, v.lanes, v)


def to_memory(code: Code, v: Val) -> Val:
    """A value as represented in memory."""
    if v.dtype != BOOL:
        return v
    return code.emit(f"zext {v} to {type_name(I8, v.lanes)}", I8, v.lanes, v)


def _masked_load(e: NestEmitter, source: str, flat: Poly, dtype: np.dtype[Any]) -> Val:
    """Adjacent elements of the active lanes; zero in the others."""
    assert e.mask is not None
    mask, t = e.mask[0], type_name(dtype, e.lanes)
    at = address(e, source, flat)
    name = f"llvm.masked.load.{suffix(dtype, e.lanes)}.p0"
    e.code.declare(f"declare {t} @{name}(ptr, i32, <{e.lanes} x i1>, {t})")
    aligned = 1 if source in e.inputs else dtype.itemsize
    rhs = f"call {t} @{name}(ptr {at.text}, i32 {aligned}, {mask}, {t} zeroinitializer)"
    if e.is_mutable(source):
        return e.code.here(rhs, dtype, e.lanes)
    return e.code.emit(rhs, dtype, e.lanes, at, mask, e.guard)


def scalar(e: NestEmitter, source: str, flat: Poly) -> Val:
    """One element, as memory has it."""
    return read(e, source, address(e, source, flat), memory_dtype(e.dtypes[source]))


def _strided_load(e: NestEmitter, x: Load, flat: Poly, step: int, dtype: np.dtype[Any]) -> Val:
    lanes = e.lanes
    if step == 1:
        return read(e, x.source, address(e, x.source, flat), dtype, lanes)
    if step == -1:
        v = read(e, x.source, address(e, x.source, flat - (lanes - 1)), dtype, lanes)
        return shuffle(e.code, v, v, range(lanes - 1, -1, -1))
    size = abs(step)
    shift = _group_shift(e, x, size)
    start = (flat if step > 0 else flat + step * (lanes - 1)) - shift
    span = size * lanes if _grouped(e, x, size) else size * (lanes - 1) + 1
    at = address(e, x.source, start)
    offsets = _vector_offsets(lanes, span)
    parts = [read(e, x.source, offset_address(e, at, dtype, k), dtype, lanes) for k in offsets]
    wanted = [shift + size * k for k in range(lanes)]
    if step < 0:
        wanted.reverse()
    return select_lanes(e.code, parts, offsets, wanted)


def neighbours(e: NestEmitter, x: Load, n: int) -> list[Val]:
    """What `n` loads side by side have in all lanes, from the first one on: vectors in the order of memory."""
    dtype = memory_dtype(e.dtypes[x.source])
    at = address(e, x.source, e.flat(x.source, x.index))
    parts = [read(e, x.source, offset_address(e, at, dtype, k * e.lanes), dtype, e.lanes) for k in range(n)]
    return [_from_memory(e.code, v, e.dtypes[x.source]) for v in parts]


def _grouped(e: NestEmitter, x: Load, step: int) -> bool:
    """Is the innermost axis a whole group of `step` contiguous elements, like the channels of a pixel?"""
    i = e.inputs.get(x.source)
    shape = e.shapes[x.source]
    contiguous = i is None or i.data is not None or (bool(i.layout) and i.layout[-1] == 1)
    return bool(shape) and contiguous and shape[-1] == step and x.index[-1].is_const


def _group_shift(e: NestEmitter, x: Load, step: int) -> int:
    """Elements to step back to the first channel, so that all channels share their loads."""
    return x.index[-1].const if _grouped(e, x, step) else 0


def _vector_offsets(lanes: int, span: int) -> list[int]:
    """Where whole vectors start that cover `span` elements, the last one ending exactly there."""
    return [*range(0, span - lanes, lanes), span - lanes]


def select_lanes(code: Code, parts: Sequence[Val], offsets: Sequence[int], wanted: Sequence[int]) -> Val:
    """Lanes `wanted` of the elements that overlapping vectors at `offsets` hold."""
    lanes = parts[0].lanes

    def home(k: int) -> tuple[int, int]:
        for n, start in enumerate(offsets):
            if start <= k < start + lanes:
                return n, k - start
        raise AssertionError((k, offsets))

    homes = [home(k) for k in wanted]
    used = sorted({n for n, _ in homes})
    result: Val | None = None
    for position in range(0, len(used), 2):
        pair = used[position : position + 2]
        a, b = parts[pair[0]], parts[pair[-1]]
        mask = [(lane if n == pair[0] else lanes + lane) if n in pair else -1 for n, lane in homes]
        part = shuffle(code, a, b, mask)
        if result is None:
            result = part
        else:
            result = shuffle(code, result, part, [lanes + k if n in pair else k for k, (n, _) in enumerate(homes)])
    assert result is not None
    return result


def looked_up(e: NestEmitter, x: Load, a: Indirect, index: Val) -> Val:
    """A load at an index that is known for all lanes."""
    code, dtype = e.code, e.dtypes[x.source]
    at_hand = register_tables.looked_up(e, x, memory_dtype(dtype), index)
    if at_hand is not None:
        return _from_memory(code, at_hand, dtype)
    index = splat(code, vecmath.convert(code, index, I32 if e.machine.small else I64), e.lanes)
    if a.extent is not None:
        extent = e.integer(a.extent)
        index = indices.checked(e, index, indices.narrow(e, extent) if e.machine.small else extent)
    return _from_memory(
        code,
        gathers.elements(
            e, x.source, address(e, x.source, e.flat(x.source, x.index) - poly(a)), index, memory_dtype(dtype)
        ),
        dtype,
    )


def prefetch(e: NestEmitter, ahead: Sequence[Load]) -> None:
    """Prefetch the lines that later iterations of a vector loop load: an address out of bounds does nothing."""
    fetched: list[tuple[str, Poly]] = []
    for x in ahead:
        flat = e.flat(x.source, x.index)
        step = None if e.vector is None else flat.coefficient(e.vector)
        if step is None or not step.is_const or not 1 <= step.const <= most_shuffled(e.lanes):
            continue
        if any(
            source == x.source and (flat - other).is_const and abs((flat - other).const) < step.const
            for source, other in fetched
        ):
            continue  # in the lines of one that is fetched
        fetched.append((x.source, flat))
        e.code.declare(f"declare void @{PREFETCH}(ptr, i32, i32, i32)")
        dtype = memory_dtype(e.dtypes[x.source])
        first = address(e, x.source, flat)
        for k in range(0, e.lanes * step.const, max(LINE // dtype.itemsize, 1)):
            e.code.effect(f"call void @{PREFETCH}(ptr {offset_address(e, first, dtype, k).text}, i32 0, i32 2, i32 1)")
