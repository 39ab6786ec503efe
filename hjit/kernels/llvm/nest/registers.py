"""Registers of the LLVM emitter: memory of the function that LLVM promotes to registers."""

from __future__ import annotations

from collections.abc import Sequence

from hjit.kernels.llvm.builder.code import Val, shuffle, splat, type_name
from hjit.kernels.llvm.nest.emitter import NestEmitter
from hjit.kernels.llvm.vecmath import apply as vecmath
from hjit.kernels.lower.loopir import CombineLanes, Declare, Name, Register, Set
from hjit.kernels.lower.two_sum import two_sum

Accumulator = tuple[Val, ...]  # a total, or a total and its rounding error (compensated summation)


def declare(e: NestEmitter, s: Declare) -> None:
    name = s.register.name
    if name not in e.registers.memory:
        e.registers.memory[name] = e.alloca(type_name(s.register.dtype, s.lanes)), s.lanes
    assign(e, s.register, e.value(s.initial))
    e.known.forget()


def name(e: NestEmitter, s: Name) -> None:
    e.registers.named[s.register.name] = e.value(s.value)


def value(e: NestEmitter, r: Register) -> Val:
    """What a register holds now."""
    if r.name in e.registers.named:
        return e.registers.named[r.name]
    at, lanes = e.registers.memory[r.name]
    return e.code.here(f"load {type_name(r.dtype, lanes)}, ptr {at}", r.dtype, lanes)


def lanes(e: NestEmitter, r: Register) -> int:
    """The lanes of what a register holds."""
    return e.registers.named[r.name].lanes if r.name in e.registers.named else e.registers.memory[r.name][1]


def assign(e: NestEmitter, r: Register, v: Val) -> None:
    """Set a register; a scalar is in all lanes of a vector."""
    at, lanes = e.registers.memory[r.name]
    e.code.effect(f"store {splat(e.code, v, lanes)}, ptr {at}")


def assign_all(e: NestEmitter, sets: Sequence[Set], values: Sequence[Val]) -> None:
    """Set registers of which all values are known; expressions with registers have other values from now on."""
    for x, v in zip(sets, values, strict=True):
        assign(e, x.register, v)
    if sets:
        e.known.forget()


def combine_lanes(e: NestEmitter, s: CombineLanes) -> None:
    found = _horizontal(e, s.op, tuple(value(e, r) for r in s.source))
    for r, v in zip(s.target, found, strict=True):
        assign(e, r, v)
    e.known.forget()


def _horizontal(e: NestEmitter, op: str, total: Accumulator) -> Accumulator:
    """Combine all lanes into one."""
    lanes = total[0].lanes
    if lanes == 1:
        return total
    half = 1 << ((lanes - 1).bit_length() - 1)
    low, high = _some(e, total, 0, half), _some(e, total, half, lanes - half)
    if lanes == 2 * half:
        return _horizontal(e, op, _combine(e, op, low, high))
    return _combine(e, op, _horizontal(e, op, low), _horizontal(e, op, high))


def _some(e: NestEmitter, total: Accumulator, first: int, count: int) -> Accumulator:
    """`count` lanes, from `first` on."""
    if count == 1:
        return tuple(e.code.emit(f"extractelement {v}, i64 {first}", v.dtype, 1, v) for v in total)
    return tuple(shuffle(e.code, v, v, range(first, first + count)) for v in total)


def _combine(e: NestEmitter, op: str, a: Accumulator, b: Accumulator) -> Accumulator:
    """Combine two partial results."""

    def apply(name: str, x: Val, y: Val) -> Val:
        return vecmath.apply(e.code, name, (x, y), x.dtype)

    if len(a) == 1:
        return (apply(op, a[0], b[0]),)
    joined, lost = two_sum(a[0], b[0], apply)
    return joined, apply("add", apply("add", a[1], lost), b[1])
