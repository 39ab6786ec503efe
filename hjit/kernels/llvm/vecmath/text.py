"""Helpers of the vecmath modules: emitting single instructions, splitting vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hjit.kernels.llvm.builder.code import BOOL, Code, Val, const, type_name

DType = np.dtype[Any]
F16, F32, F64 = (np.dtype(t) for t in ("f2", "f4", "f8"))


def is_signed(dtype: DType) -> bool:
    return dtype.kind == "i"


def bits(dtype: DType) -> int:
    return 1 if dtype.kind == "b" else 8 * dtype.itemsize


def integer(dtype: DType) -> DType:
    """The signed integer with the size of `dtype`."""
    return np.dtype(f"i{dtype.itemsize}")


def unsigned(dtype: DType) -> DType:
    """The unsigned integer with the size of `dtype`."""
    return np.dtype(f"u{dtype.itemsize}")


def like(value: Any, x: Val) -> Val:
    """A constant of the type of `x`."""
    return const(value, x.dtype, x.lanes)


def op(code: Code, name: str, a: Val, b: Val) -> Val:
    """A binary instruction whose result has the type of its operands."""
    return code.emit(f"{name} {a}, {b.text}", a.dtype, a.lanes, a, b)


def cmp(code: Code, predicate: str, a: Val, b: Val) -> Val:
    """``fcmp`` of floats and ``icmp`` of the rest."""
    word = "fcmp" if a.dtype.kind == "f" else "icmp"
    return code.emit(f"{word} {predicate} {a}, {b.text}", BOOL, a.lanes, a, b)


def select(code: Code, condition: Val, a: Val, b: Val) -> Val:
    return code.emit(f"select {condition}, {a}, {b}", a.dtype, a.lanes, condition, a, b)


def negate(code: Code, condition: Val) -> Val:
    return op(code, "xor", condition, like(True, condition))


def cast(code: Code, name: str, x: Val, dtype: DType) -> Val:
    """A conversion instruction: ``fpext``, ``trunc``, ``bitcast``, ..."""
    if name != "bitcast" and x.dtype == dtype:
        return x
    return code.emit(f"{name} {x} to {type_name(dtype, x.lanes)}", dtype, x.lanes, x)


def as_bits(code: Code, x: Val) -> Val:
    """The bits of a float, as a signed integer."""
    return cast(code, "bitcast", x, integer(x.dtype))


def from_bits(code: Code, x: Val) -> Val:
    """The float whose bits `x` is."""
    return cast(code, "bitcast", x, np.dtype(f"f{x.dtype.itemsize}"))


def suffix(dtype: DType, lanes: int) -> str:
    """How the name of an overloaded intrinsic ends: ``v16f32``."""
    one = f"f{bits(dtype)}" if dtype.kind == "f" else f"i{bits(dtype)}"
    return one if lanes == 1 else f"v{lanes}{one}"


def intrinsic(code: Code, name: str, *args: Val) -> Val:
    """``llvm.name`` on values of one type, giving that type."""
    x = args[0]
    return code.call(f"llvm.{name}.{suffix(x.dtype, x.lanes)}", x.dtype, x.lanes, *args)


def library(code: Code, name: str, dtype: DType, lanes: int, *args: Val) -> Val:
    """Call a mathematical function of a C library; that it may set ``errno`` does not matter."""
    result = type_name(dtype, lanes)
    code.declare(f"declare {result} @{name}({', '.join(a.type for a in args)}) nounwind willreturn memory(none)")
    return code.emit(f"call {result} @{name}({', '.join(map(str, args))})", dtype, lanes, *args)


def is_nan(code: Code, x: Val) -> Val:
    return cmp(code, "uno", x, x)


def constant(x: Val) -> int | None:
    """The integer that is in all lanes of `x`, if it is a literal."""
    text = x.text
    if text.startswith("%") or x.dtype.kind not in "iu":
        return None
    if text == "zeroinitializer":
        return 0
    word = text.removeprefix("splat (").removesuffix(")").split()[-1]
    try:
        return int(word)
    except ValueError:
        return None


def float_constant(x: Val) -> float | None:
    """The float that is in all lanes of `x`, if it is a literal."""
    text = x.text
    if text.startswith("%") or x.dtype.kind != "f":
        return None
    if text == "zeroinitializer":
        return 0.0
    word = text.removeprefix("splat (").removesuffix(")").split()[-1]
    if word.startswith("0xH"):
        return float(np.array(int(word[3:], 16), np.uint16).view(np.float16))
    if word.startswith("0x"):
        return float(np.array(int(word, 16), np.uint64).view(np.float64))
    return None


# -- lanes


def shuffle(code: Code, a: Val, b: Val | None, indices: Sequence[int]) -> Val:
    """The lanes `indices`, two or more, of `a` followed by `b`: a result of one lane would still be a vector to
    LLVM."""
    mask = ", ".join(f"i32 {i}" for i in indices)
    other = "poison" if b is None else b.text
    operands = (a,) if b is None else (a, b)
    rhs = f"shufflevector {a}, {a.type} {other}, <{len(indices)} x i32> <{mask}>"
    return code.emit(rhs, a.dtype, len(indices), *operands)


def lane(code: Code, x: Val, i: int) -> Val:
    """Lane `i`, as a scalar."""
    if x.lanes == 1:
        return x
    return code.emit(f"extractelement {x}, i64 {i}", x.dtype, 1, x)


def from_lanes(code: Code, parts: Sequence[Val]) -> Val:
    """The vector of these scalars."""
    if len(parts) == 1:
        return parts[0]
    dtype, n = parts[0].dtype, len(parts)
    result = Val("poison", dtype, n)
    for i, p in enumerate(parts):
        result = code.emit(f"insertelement {result}, {p}, i64 {i}", dtype, n, result, p)
    return result


def resize(code: Code, x: Val, lanes: int) -> Val:
    """The first `lanes` lanes; more than there are repeat them from the start."""
    if x.lanes == lanes:
        return x
    if lanes == 1:
        return lane(code, x, 0)
    if x.lanes == 1:
        first = code.emit(f"insertelement {type_name(x.dtype, lanes)} poison, {x}, i64 0", x.dtype, lanes, x)
        return shuffle(code, first, None, [0] * lanes)
    return shuffle(code, x, None, [i % x.lanes for i in range(lanes)])


def join(code: Code, parts: Sequence[Val], lanes: int) -> Val:
    """The first `lanes` lanes of vectors of one length, one after the other."""
    work = list(parts)
    while len(work) > 1:
        if len(work) % 2:
            work.append(work[-1])
        work = [
            shuffle(code, a, b, range(2 * a.lanes)) if a.lanes > 1 else from_lanes(code, (a, b))
            for a, b in zip(work[::2], work[1::2], strict=True)
        ]
    return resize(code, work[0], lanes)


def in_parts(code: Code, lanes: int, function: Callable[..., Val], *args: Val) -> Val:
    """`function` on parts of `lanes` lanes; the last part, or too short a vector, is padded with copies."""
    n = args[0].lanes
    if n == lanes:
        return function(*args)
    if n < lanes:
        return resize(code, function(*(resize(code, a, lanes) for a in args)), n)
    parts = []
    for start in range(0, n, lanes):
        indices = [min(start + i, n - 1) for i in range(lanes)]
        parts.append(function(*(shuffle(code, a, None, indices) if lanes > 1 else lane(code, a, start) for a in args)))
    return join(code, parts, n)


def register_lanes(code: Code, x: Val) -> int:
    """How many lanes the smallest native vector has that `x` fits in, or the largest one."""
    size = x.dtype.itemsize
    return min(next((w for w in (16, 32, 64) if w >= x.lanes * size), 64), code.width) // size


def per_lane(code: Code, function: Callable[..., Val], *args: Val) -> Val:
    """`function` on the scalars of each lane."""
    return from_lanes(code, [function(*(lane(code, a, i) for a in args)) for i in range(args[0].lanes)])
