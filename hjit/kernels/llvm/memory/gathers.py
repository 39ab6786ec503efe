"""Gathers: loads from data-dependent indices, a separate one for each lane.

The cost of a gather depends on the number of elements that it loads, much less on their width. Interpolation reads
adjacent elements, of the columns ``i`` and ``i + 1`` of an image, a grid or a table, so one wider load per lane can
load both. If the two indices differ by a constant, this is decided at compile time. If both are values, possibly
changed by a clamp or by NumPy's negative indices, a branch compares them: they are adjacent in nearly all vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hjit.kernels.llvm.builder.code import BOOL, I32, I64, Val, const, shuffle, type_name
from hjit.kernels.llvm.memory.address import Location, address, memory_dtype, read
from hjit.kernels.llvm.nest import indices
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.llvm.thresholds import MAX_PAIRS
from hjit.kernels.llvm.vecmath.text import suffix
from hjit.trace.ir.borders import fold_select
from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, Op, loads, walk
from hjit.trace.ir.poly import Indirect, Poly, poly

# bytes of an element -> two of them
PAIRS: dict[int, np.dtype[Any]] = {1: np.dtype("u2"), 2: np.dtype("u4"), 4: np.dtype("u8")}
DEEPEST = 8  # operations between an index and where it differs from another one

Pair = tuple[Location, Location]
Between = tuple[Indirect, Indirect]  # the indices of the two of a pair


@dataclass(frozen=True, slots=True)
class Paired:
    """Pairs of adjacent locations, provided that one index is one less than another.

    Attributes:
        indices: these two; None: of one pair that is known to be adjacent.
    """

    pairs: tuple[Pair, ...]
    indices: Between | None


def paired(e: NestEmitter, values: Sequence[Expr]) -> dict[Location, Paired]:
    """The pairs among the loads of a statement's values, by location; a location is in one pair at most.

    An array that the nest writes has none: its loads stay where they are, each for itself.
    """
    is_vector = e.lanes > 1 and e.lanes & (e.lanes - 1) == 0
    if not is_vector or sum(_is_gathered(e, x) for x in loads(*values)) < 2:
        return {}
    chosen = [x for x in walk(*values, args=_taken) if isinstance(x, Load) and _is_gathered(e, x)]
    locations = dict.fromkeys((x.source, e.flat(x.source, x.index)) for x in chosen)
    some = [p for p in locations if e.varies(p[1]) and _may_pair(e, p[0])]
    by_indices: dict[Between | None, list[Pair]] = {}
    taken: set[Location] = set()
    for between, pair in (*_constant_pairs(some), *_likely_pairs(some)):
        if taken.isdisjoint(pair):
            by_indices.setdefault(between, []).append(pair)
            taken.update(pair)
    found: dict[Location, Paired] = {}
    for between, pairs in by_indices.items():
        n = 1 if between is None else MAX_PAIRS
        for together in (tuple(pairs[k : k + n]) for k in range(0, len(pairs), n)):
            found.update(dict.fromkeys((location for pair in together for location in pair), Paired(together, between)))
    return found


def _is_gathered(e: NestEmitter, x: Load) -> bool:
    return any(p.has(Indirect) for p in x.index) and not e.is_mutable(x.source)


def _taken(x: Expr) -> Iterable[Expr]:
    """The arguments that are evaluated."""
    taken = fold_select(x)
    return x.args if taken is x else (taken,)


def _may_pair(e: NestEmitter, source: str) -> bool:
    """Is there a load for two elements of an array that takes less? Gathers have elements of 8 bytes at most; single
    loads of two uint16 took 1.02 to 1.11 of the time on a Zen 5."""
    cell = memory_dtype(e.dtypes[source])
    return cell.itemsize in (PAIRS.keys() if _has_gathers(e, source, cell, True) else (1, 4, 8))


def _constant_pairs(locations: Sequence[Location]) -> Iterator[tuple[None, Pair]]:
    """Those that are one element apart."""
    known = {*locations}
    for source, flat in locations:
        after = source, flat + 1
        if after in known:
            yield None, ((source, flat), after)


def _likely_pairs(locations: Sequence[Location]) -> Iterator[tuple[Between, Pair]]:
    """Those of which one has another index than the other, which is written as the next one."""
    alike: dict[Location, list[tuple[Indirect, Location]]] = {}
    for source, flat in locations:
        for a in flat.atoms():
            if isinstance(a, Indirect) and flat.coefficient(a) == 1:
                alike.setdefault((source, flat - poly(a)), []).append((a, (source, flat)))
    for found in alike.values():
        for a, first in found[:MAX_PAIRS]:
            for b, second in found[:MAX_PAIRS]:
                if apart(a.expr, b.expr) == 1:
                    yield (a, b), (first, second)


def apart(a: Expr, b: Expr, depth: int = DEEPEST) -> float | None:
    """The constant by which two values differ in their text, ignoring clamps; None: another difference.

    So ``minimum(i + 1, n)`` is 1 more than ``minimum(i, n)``. It may not be when it runs.
    """
    if a == b:
        return 0
    (rest_a, more_a), (rest_b, more_b) = _split(a), _split(b)
    if rest_a == rest_b:
        return more_b - more_a
    if depth == 0 or not isinstance(a, (Op, Cast)) or type(a) is not type(b) or a.dtype != b.dtype:
        return None
    if isinstance(a, Op) and isinstance(b, Op) and (a.name, len(a.args)) != (b.name, len(b.args)):
        return None
    found = {apart(x, y, depth - 1) for x, y in zip(a.args, b.args, strict=True)} - {0}
    return found.pop() if len(found) == 1 else None


def _split(e: Expr) -> tuple[object, float]:
    """A value without an added constant, and that constant."""
    match e:
        case Index():
            return e.poly - e.poly.const, e.poly.const
        case Op(name="add", args=(rest, Const(value=c))) | Op(name="add", args=(Const(value=c), rest)):
            return rest, float(c.real)
        case Op(name="subtract", args=(rest, Const(value=c))):
            return rest, -float(c.real)
    return e, 0


def gathered(e: NestEmitter, source: str, flat: Poly, dtype: np.dtype[Any]) -> Val:
    """A gather: lanes from anywhere."""
    location = source, flat
    if location in e.paired.loaded:
        return e.paired.loaded[location]
    found = e.paired.pairs.get(location)
    if found is None:
        return elements(e, source, *_lanes(e, location), memory_dtype(dtype))
    if found.indices is None:
        ((first, second),) = found.pairs
        return _both(e, first, _lanes(e, first))[location == second]
    e.paired.loaded.update(_compared(e, found.pairs, found.indices))
    return e.paired.loaded[location]


def _compared(e: NestEmitter, pairs: Sequence[Pair], between: Between) -> dict[Location, Val]:
    """The elements of pairs, loaded together where the second index is one more than the first in all lanes."""
    code = e.code
    i, j = (indices.lanes_of(e, a) for a in between)
    lanes_of = {location: _lanes(e, location) for pair in pairs for location in pair}
    cells = {location: memory_dtype(e.dtypes[location[0]]) for location in lanes_of}
    if max(i.depth, j.depth) < len(code.scopes) - 1:  # loaded outside of this loop, in which there is no branch
        return {p: elements(e, p[0], *lanes, cells[p]) for p, lanes in lanes_of.items()}
    after = code.emit(f"add {i}, {const(1, i.dtype, i.lanes).text}", i.dtype, i.lanes, i)
    differs = code.any_lane(code.emit(f"icmp ne {j}, {after.text}", BOOL, i.lanes, j, after))
    label = code.fresh("pairs")
    code.effect(f"br i1 {differs.text}, label %{label}.apart, label %{label}")
    code.label(label)
    with code.pinned():
        together = [v for first, _ in pairs for v in _both(e, first, lanes_of[first])]
    code.effect(f"br label %{label}.go")
    code.label(f"{label}.apart")
    with code.pinned():
        alone = [elements(e, p[0], *lanes, cells[p]) for p, lanes in lanes_of.items()]
    code.effect(f"br label %{label}.go")
    code.label(f"{label}.go")
    e.block = f"{label}.go"
    return {
        p: code.here(f"phi {a.type} [ {a.text}, %{label} ], [ {b.text}, %{label}.apart ]", a.dtype, a.lanes)
        for p, a, b in zip(lanes_of, together, alone, strict=True)
    }


def _both(e: NestEmitter, first: Location, lanes: tuple[Val, Val]) -> tuple[Val, Val]:
    """The element at a location of each lane, and the one after it."""
    code, source, (base, index) = e.code, first[0], lanes
    cell = memory_dtype(e.dtypes[source])
    if cell.itemsize in PAIRS:
        wide = elements(e, source, base, index, cell, PAIRS[cell.itemsize])
        both = code.emit(f"bitcast {wide} to {type_name(cell, 2 * e.lanes)}", cell, 2 * e.lanes, wide)
    else:
        parts = [read(e, source, at, cell, 2, cell.itemsize) for at in _addresses(e, base, index, cell)]
        while len(parts) > 1:
            n = 2 * parts[0].lanes
            parts = [shuffle(code, x, y, range(n)) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        (both,) = parts
    return shuffle(code, both, both, range(0, both.lanes, 2)), shuffle(code, both, both, range(1, both.lanes, 2))


def _lanes(e: NestEmitter, location: Location) -> tuple[Val, Val]:
    """An address, and how many elements behind it each lane's is."""
    source, flat = location
    if not e.machine.small:
        return e.base(source), e.integer(flat, e.lanes)
    still = Poly({m: c for m, c in flat.terms.items() if not e.varies(Poly({m: c}, 0))}, flat.const)
    return address(e, source, still), indices.index32(e, flat - still, e.lanes)


def elements(
    e: NestEmitter, source: str, base: Val, index: Val, cell: np.dtype[Any], loaded: np.dtype[Any] | None = None
) -> Val:
    """Elements at an offset from `base`, one for each lane.

    Args:
        loaded: with what comes after each, of which there must be so much.
    """
    code, lanes, loaded = e.code, e.lanes, loaded or cell
    # scratch may be read past its end
    whole = loaded if loaded.itemsize >= 4 else I32 if source in e.params.scratch and cell.kind != "f" else None
    if whole is not None and source not in e.stores.storing and _has_gathers(e, source, cell, loaded != cell):
        at = code.emit(
            f"getelementptr {type_name(cell)}, ptr {base.text}, {index}", I64, lanes, base, index, pointer=False
        )
        aligned = 1 if source in e.inputs else cell.itemsize
        t, types = type_name(whole, lanes), f"{suffix(whole, lanes)}.v{lanes}p0"
        code.declare(f"declare {t} @llvm.masked.gather.{types}(<{lanes} x ptr>, i32, <{lanes} x i1>, {t})")
        found = code.emit(
            f"call {t} @llvm.masked.gather.{types}(<{lanes} x ptr> {at.text}, i32 {aligned}, "
            f"<{lanes} x i1> splat (i1 true), {t} poison)",
            whole,
            lanes,
            at,
            e.guard,
            e.unchanged(source),
            version=e.stores.versions[source],
        )
        if whole == loaded:
            return found
        return code.emit(f"trunc {found} to {type_name(loaded, lanes)}", loaded, lanes, found)
    result: Val | None = None
    for k, at in enumerate(_addresses(e, base, index, cell)):
        v = read(e, source, at, loaded, aligned=cell.itemsize)
        into = "poison" if result is None else result.text
        deps = (v,) if result is None else (v, result)
        result = code.emit(f"insertelement {type_name(loaded, lanes)} {into}, {v}, i64 {k}", loaded, lanes, *deps)
    assert result is not None
    return result


def _has_gathers(e: NestEmitter, source: str, cell: np.dtype[Any], with_next: bool) -> bool:
    """Are gathers faster than single loads? Before AVX-512 they are not. Slow ones are faster for tables of 8 bytes an
    element (0.57 to 0.78 of the time on a Zen 5), which are in a cache, but not for images, twice as slow."""
    if "slow_gathers" in e.machine.features:
        return cell.itemsize == 8 and len(e.shapes[source]) == 1 and not with_next
    return "avx512" in e.machine.features


def _addresses(e: NestEmitter, base: Val, index: Val, cell: np.dtype[Any]) -> Iterator[Val]:
    """Of each lane's element."""
    for i in _each(e, index):
        yield e.code.emit(f"getelementptr {type_name(cell)}, ptr {base.text}, {i}", I64, 1, base, i, pointer=True)


def _each(e: NestEmitter, index: Val) -> Iterator[Val]:
    """The lanes of an index: those of 32 bits in pairs, as on x86 an extraction is two operations, of 64 bits or
    less."""
    code, lanes = e.code, index.lanes
    if index.dtype != I32 or lanes % 2 or "x86" not in e.machine.features or not index.text.startswith("%"):
        for k in range(lanes):
            yield code.emit(f"extractelement {index}, i64 {k}", index.dtype, 1, index)
        return
    pairs = code.emit(f"bitcast {index} to {type_name(I64, lanes // 2)}", I64, lanes // 2, index)
    for k in range(lanes // 2):
        pair = code.opaque(
            code.emit(f"extractelement {pairs}, i64 {k}" if lanes > 2 else f"bitcast {index} to i64", I64, 1, pairs)
        )
        low = code.emit(f"trunc i64 {pair.text} to i32", I32, 1, pair)
        yield code.emit(f"sext {low} to i64", I64, 1, low)
        yield code.emit(f"ashr i64 {pair.text}, 32", I64, 1, pair)
