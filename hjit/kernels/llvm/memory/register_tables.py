"""In-register table lookup: by AVX-512's ``vpermi2``, which permutes the lanes of two registers by a third.

Two registers hold 128 bytes of a table; in larger tables every pair of registers is looked up, and further bits of the
index select among the results. NEON's ``tbl`` looks up bytes in four registers of 16, and returns zero for indices
beyond them, so the results of all groups of four are combined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hjit.kernels.llvm.builder.code import BOOL, I32, I64, Val, const, shuffle, splat, type_name
from hjit.kernels.llvm.memory.address import address
from hjit.kernels.llvm.nest import indices
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.llvm.vecmath import apply as vecmath
from hjit.kernels.llvm.vecmath.text import suffix
from hjit.sched.language import target
from hjit.sched.language.target import REGISTER_BYTES, table_registers
from hjit.trace.ir.expressions import Load
from hjit.trace.ir.poly import Indirect, Poly, poly

I16 = np.dtype("i2")
INTRINSICS = {1: "qi", 2: "hi", 4: "d"}  # bytes of an element -> the name of its intrinsic


def looked_up(e: NestEmitter, x: Load, cell: np.dtype[np.generic], index: Val | None = None) -> Val | None:
    """The load of a table by an index of each lane; None where registers do not hold it, or gathers are as fast.

    Args:
        cell: its dtype in memory.
        index: the value of the index in all lanes, if it is known already.
    """
    if cell.itemsize not in target.table_bytes(e.machine.features) or x.source in e.stores.storing:
        return None
    flat = e.flat(x.source, x.index)
    found = _chosen(e, x, flat)
    if found is None:
        return None
    axis, a = found
    extent = e.shapes[x.source][axis]
    count = _count(e, a, extent)
    n = table_registers(cell, count, e.lanes, e.machine.width)
    if n is None:
        return None
    i = e.value(indices.in_32_bits(a) or a.expr) if index is None else index
    i = _checked(e, splat(e.code, i, e.lanes), a, count)
    there = _Elements(x.source, flat - poly(a), extent, cell)
    if "neon" in e.machine.features:
        return _NeonTable(e, there, n).at(i)
    permute = f"llvm.x86.avx512.vpermi2var.{INTRINSICS[cell.itemsize]}.512"
    return _Table(e, there, n, permute).at(i)


def _chosen(e: NestEmitter, x: Load, flat: Poly) -> tuple[int, Indirect] | None:
    """The one axis whose index differs between lanes, if that is a value, by which elements side by side are chosen."""
    varying = [k for k, p in enumerate(x.index) if e.varies(p)]
    values = [a for k in varying for a in x.index[k].atoms() if isinstance(a, Indirect)]
    if len(varying) != 1 or len(values) != 1 or x.index[varying[0]] != poly(values[0]):
        return None
    is_dense = flat.coefficient(values[0]) == 1 and not e.varies(flat - poly(values[0]))
    return (varying[0], values[0]) if is_dense else None


def _count(e: NestEmitter, a: Indirect, extent: Poly) -> int | None:
    """Elements that an index chooses from, at most."""
    found = e.ranges.of(a.expr)
    counts = [found[1] + 1] if found is not None and found[0] >= 0 else []
    return min([*counts, extent.const] if extent.is_const else counts, default=None)


def _checked(e: NestEmitter, i: Val, a: Indirect, count: int | None) -> Val:
    """The index, compared with the axis if it may leave it: in 16 bits if they are enough."""
    if a.extent is None:
        return i
    extent = e.integer(a.extent)
    if count is not None and count < 1 << 15 and i.dtype.kind == "u":
        extent = e.minmax("min", extent, const((1 << 15) - 1, I64))
        short = e.code.emit(f"trunc {extent} to i16", I16, 1, extent)
        return indices.checked(e, vecmath.convert(e.code, i, I16), short)
    if i.dtype.itemsize > 4 or i.dtype == np.uint32:
        return indices.checked(e, vecmath.convert(e.code, i, I64), extent)
    return indices.checked(e, vecmath.convert(e.code, i, I32), indices.narrow(e, extent))


@dataclass(frozen=True, slots=True)
class _Elements:
    """A table in memory.

    Attributes:
        start: the position of its first element in its array.
        extent: elements that it has.
    """

    source: str
    start: Poly
    extent: Poly
    cell: np.dtype[np.generic]


class _Table:
    """A table in registers.

    Args:
        n: of the registers.
        permute: the intrinsic that looks up in two of them.
        register: bytes of one of them.
    """

    def __init__(self, e: NestEmitter, there: _Elements, n: int, permute: str, register: int = REGISTER_BYTES) -> None:
        self.e, self.permute = e, permute
        self.source, self.start, self.extent, self.cell = there.source, there.start, there.extent, there.cell
        self.bits = np.dtype(f"i{self.cell.itemsize}")  # what is permuted, whatever it means
        self.lanes = register // self.cell.itemsize
        self.unchanged, self.version = e.unchanged(self.source), e.stores.versions[self.source]
        self.parts = [self._part(k) for k in range(n)]

    def _part(self, k: int) -> Val:
        """A register of it; zeros behind its end."""
        e, code = self.e, self.e.code
        at = address(e, self.source, self.start + k * self.lanes)
        t, aligned = type_name(self.bits, self.lanes), 1 if self.source in e.inputs else self.cell.itemsize
        if self.extent.is_const and self.extent.const >= (k + 1) * self.lanes:
            text = f"load {t}, ptr {at.text}, align {aligned}"
            return code.emit(text, self.bits, self.lanes, at, self.unchanged, version=self.version)
        extent = splat(code, indices.narrow(e, e.integer(self.extent)), self.lanes)
        places = ", ".join(f"i32 {k * self.lanes + j}" for j in range(self.lanes))
        there = code.emit(f"icmp slt {type_name(I32, self.lanes)} <{places}>, {extent.text}", BOOL, self.lanes, extent)
        name = f"llvm.masked.load.{suffix(self.bits, self.lanes)}.p0"
        code.declare(f"declare {t} @{name}(ptr, i32, <{self.lanes} x i1>, {t})")
        return code.emit(
            f"call {t} @{name}(ptr {at.text}, i32 {aligned}, {there}, {t} zeroinitializer)",
            self.bits,
            self.lanes,
            at,
            there,
            self.unchanged,
            version=self.version,
        )

    def at(self, index: Val) -> Val:
        """The elements at an index of each lane."""
        code, lanes = self.e.code, index.lanes

        def part(k: int) -> Val:
            return (
                index
                if lanes == self.lanes
                else shuffle(code, index, index, [k + j if k + j < lanes else -1 for j in range(self.lanes)])
            )

        parts = [self._whole(part(k)) for k in range(0, lanes, self.lanes)]
        while len(parts) > 1:
            n = parts[0].lanes
            parts = [shuffle(code, a, b, range(2 * n)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        found = parts[0] if lanes >= self.lanes else shuffle(code, parts[0], parts[0], range(lanes))
        if found.dtype == self.cell:
            return found
        same = type_name(self.cell, lanes) == found.type
        return (
            found._replace(dtype=self.cell)
            if same
            else code.emit(f"bitcast {found} to {type_name(self.cell, lanes)}", self.cell, lanes, found)
        )

    def _whole(self, index: Val) -> Val:
        """The same for as many lanes as a register has."""
        code, t = self.e.code, type_name(self.bits, self.lanes)
        low = vecmath.convert(code, index, self.bits)
        code.declare(f"declare {t} @{self.permute}({t}, {t}, {t})")

        def permuted(a: Val, b: Val) -> Val:
            return code.emit(f"call {t} @{self.permute}({a}, {low}, {b})", self.bits, self.lanes, a, low, b)

        found = [permuted(*(self.parts[k : k + 2] * 2)[:2]) for k in range(0, len(self.parts), 2)]
        bit = 2 * self.lanes
        while len(found) > 1:
            there = self._has(index, low, bit)
            pairs = [found[k : k + 2] for k in range(0, len(found), 2)]
            found = [p[0] if len(p) == 1 else self.e.choose(there, p[1], p[0]) for p in pairs]
            bit *= 2
        return found[0]

    def _has(self, index: Val, low: Val, bit: int) -> Val:
        """Lanes whose index has a bit."""
        code = self.e.code
        i = low if bit < 1 << 8 * self.bits.itemsize else index
        one = code.emit(f"and {i.type} {i.text}, {_splat_bit(i, bit)}", i.dtype, i.lanes, i)
        return code.emit(f"icmp ne {one.type} {one.text}, zeroinitializer", BOOL, i.lanes, one)


class _NeonTable(_Table):
    """A table of bytes in registers of 16, four of them for each of the `n`."""

    def __init__(self, e: NestEmitter, there: _Elements, n: int) -> None:
        super().__init__(e, there, 4 * n, "llvm.aarch64.neon.tbl4.v16i8", register=16)

    def _whole(self, index: Val) -> Val:
        code, t = self.e.code, type_name(self.bits, self.lanes)
        low = vecmath.convert(code, index, self.bits)
        code.declare(f"declare {t} @{self.permute}({t}, {t}, {t}, {t}, {t})")
        found: Val | None = None
        for first in range(0, len(self.parts), 4):
            rest = low
            if first:  # what is below wraps to more than there is in four registers
                rest = code.emit(f"sub {low}, {_splat_bit(low, first * self.lanes)}", low.dtype, low.lanes, low)
            four = self.parts[first : first + 4]
            one = code.emit(
                f"call {t} @{self.permute}({', '.join(map(str, four))}, {rest})", self.bits, self.lanes, *four, rest
            )
            found = one if found is None else code.emit(f"or {found}, {one.text}", self.bits, self.lanes, found, one)
        assert found is not None
        return found


def _splat_bit(i: Val, bit: int) -> str:
    value = bit - (1 << 8 * i.dtype.itemsize) if bit >> (8 * i.dtype.itemsize - 1) else bit
    return f"splat ({type_name(i.dtype)} {value})"
