"""NumPy's `astype` in LLVM IR: every pair of dtypes, with what NumPy gives out of range.

On x86, C converts a float that an integer cannot hold as the processor does, so the processor's instructions are
called: LLVM's ``fptosi`` is undefined there. On other processors NumPy's conversions saturate.
"""

from __future__ import annotations

import numpy as np

from hjit.kernels.llvm.builder.code import I32, Code, Val, const, type_name
from hjit.kernels.llvm.vecmath.text import (
    F16,
    F32,
    F64,
    DType,
    as_bits,
    bits,
    cast,
    cmp,
    from_bits,
    in_parts,
    intrinsic,
    is_signed,
    like,
    op,
    per_lane,
    resize,
    select,
    suffix,
)

_S32, _S64 = np.dtype("i4"), np.dtype("i8")


def convert(code: Code, x: Val, dtype: DType) -> Val:
    """`x` as `dtype`, as NumPy's `astype` converts arrays."""
    if x.dtype == dtype:
        return x
    if dtype.kind == "b":
        return cmp(code, "une" if x.dtype.kind == "f" else "ne", x, like(0, x))
    if x.dtype.kind == "f":
        return _float_to_float(code, x, dtype) if dtype.kind == "f" else _float_to_int(code, x, dtype)
    if dtype.kind == "f":
        return _int_to_float(code, x, dtype)
    if bits(x.dtype) < bits(dtype):
        return cast(code, "sext" if is_signed(x.dtype) else "zext", x, dtype)
    if bits(x.dtype) > bits(dtype):
        return cast(code, "trunc", x, dtype)
    return _same_bits(x, dtype)


def _same_bits(x: Val, dtype: DType) -> Val:
    return Val(x.text, dtype, x.lanes, x.depth)


def _int_to_float(code: Code, x: Val, dtype: DType) -> Val:
    to = F32 if dtype == F16 else dtype
    value = cast(code, "sitofp" if is_signed(x.dtype) else "uitofp", x, to)
    return _float_to_float(code, value, dtype)


# -- floats


def _float_to_float(code: Code, x: Val, dtype: DType) -> Val:
    if x.dtype == dtype:
        return x
    if x.dtype == F16:
        return cast(code, "fpext", half_to_single(code, x), dtype)
    if dtype == F16:
        return single_to_half(code, x if x.dtype == F32 else round_to_odd(code, x))
    return cast(code, "fpext" if x.dtype == F32 else "fptrunc", x, dtype)


def _has_half(code: Code) -> bool:
    return "f16c" in code.features or "x86" not in code.features


def half_to_single(code: Code, x: Val) -> Val:
    """A half as a float, exactly."""
    if _has_half(code):
        return cast(code, "fpext", x, F32)
    word = cast(code, "zext", as_bits(code, x), I32)
    sign = op(code, "shl", op(code, "and", word, like(0x8000, word)), like(16, word))
    rest = op(code, "shl", op(code, "and", word, like(0x7FFF, word)), like(13, word))
    # a half's fields in a float's places are the value times 2**-112; infinities and NaNs need the largest exponent
    scaled = op(code, "fmul", from_bits(code, rest), const(2.0**112, F32, x.lanes))
    special = op(code, "or", rest, like(0x7F800000, rest))
    magnitude = select(code, cmp(code, "uge", rest, like(0x7C00 << 13, rest)), special, as_bits(code, scaled))
    return from_bits(code, op(code, "or", magnitude, sign))


def single_to_half(code: Code, x: Val) -> Val:
    """A float rounded to the nearest half, ties to even."""
    if _has_half(code):
        return cast(code, "fptrunc", x, F16)
    word = as_bits(code, x)
    sign = op(code, "and", op(code, "lshr", word, like(16, word)), like(0x8000, word))
    magnitude = op(code, "and", word, like(0x7FFFFFFF, word))
    odd = op(code, "and", op(code, "lshr", magnitude, like(13, word)), like(1, word))
    rounded = op(code, "add", op(code, "add", magnitude, like(0xFFF - (112 << 23), word)), odd)
    normal = op(code, "lshr", rounded, like(13, word))
    # below the smallest normal half, adding 0.5 leaves the half's bits at the end of the fraction
    shifted = as_bits(code, op(code, "fadd", from_bits(code, magnitude), const(0.5, F32, x.lanes)))
    small = op(code, "sub", shifted, like(0x3F000000, word))
    half = select(code, cmp(code, "ult", magnitude, like(113 << 23, word)), small, normal)
    half = select(code, cmp(code, "uge", magnitude, like(0x477FF000, word)), like(0x7C00, word), half)
    half = select(code, cmp(code, "ugt", magnitude, like(0x7F800000, word)), like(0x7E00, word), half)
    return from_bits(code, cast(code, "trunc", op(code, "or", half, sign), np.dtype("i2")))


def round_to_odd(code: Code, x: Val) -> Val:
    """A double rounded to odd as a float, so that a second rounding gives what rounding once would."""
    near = cast(code, "fptrunc", x, F32)
    back = cast(code, "fpext", near, F64)
    word = as_bits(code, near)
    beyond = cmp(code, "ogt", intrinsic(code, "fabs", back), intrinsic(code, "fabs", x))
    cut = op(code, "sub", word, cast(code, "zext", beyond, word.dtype))
    lost = cast(code, "zext", cmp(code, "one", back, x), word.dtype)
    return from_bits(code, op(code, "or", cut, lost))


# -- floats to integers


def _float_to_int(code: Code, x: Val, dtype: DType) -> Val:
    if "x86" not in code.features:
        # LLVM's own saturating conversion of halves makes NaN the smallest integer
        x = half_to_single(code, x) if x.dtype == F16 else x
        word = "fptosi" if is_signed(dtype) else "fptoui"
        name = f"llvm.{word}.sat.{suffix(dtype, x.lanes)}.{suffix(x.dtype, x.lanes)}"
        return code.call(name, dtype, x.lanes, x)
    if x.dtype == F16:
        wide = half_to_single(code, x)
        if dtype == np.dtype("u4"):
            finite = cmp(code, "one", intrinsic(code, "fabs", wide), like(np.inf, wide))
            return _same_bits(truncate(code, select(code, finite, wide, like(0, wide)), _S32), dtype)
        return _float_to_int(code, wide, dtype)
    if dtype.itemsize < 4:
        return cast(code, "trunc", truncate(code, x, _S32), dtype)
    target = _S32 if dtype.itemsize == 4 else _S64
    if is_signed(dtype):
        return truncate(code, x, target)
    # the upper half of the range is moved down, converted, and moved up
    top = like(2.0 ** (bits(dtype) - 1), x)
    upper = cmp(code, "oge", x, top)
    value = truncate(code, select(code, upper, op(code, "fsub", x, top), x), target)
    sign = select(code, upper, like(-(1 << (bits(dtype) - 1)), value), like(0, value))
    return _same_bits(op(code, "xor", value, sign), dtype)


def truncate(code: Code, x: Val, target: DType) -> Val:
    """A float or double as int32 or int64 by the processor: the smallest integer for what is out of range."""
    n, single = x.lanes, x.dtype == F32
    if n == 1 or (target == _S64 and "avx512" not in code.features):
        return per_lane(code, lambda v: _truncate_scalar(code, v, target), x)
    if target == _S64:
        kind = "ps" if single else "pd"
        if code.width == 64 and n > 4:
            return in_parts(code, 8, lambda v: _masked(code, f"cvtt{kind}2qq.512", v, _S64, 8, True), x)
        return in_parts(code, 4, lambda v: _masked(code, f"cvtt{kind}2qq.256", v, _S64, 4, False), x)
    wide = code.width // x.dtype.itemsize
    if single:
        if wide == 16 and n > 8:
            return in_parts(code, 16, lambda v: _masked(code, "cvttps2dq.512", v, _S32, 16, True), x)
        if wide >= 8 and n > 4:
            return in_parts(code, 8, lambda v: code.call("llvm.x86.avx.cvtt.ps2dq.256", _S32, 8, v), x)
        return in_parts(code, 4, lambda v: code.call("llvm.x86.sse2.cvttps2dq", _S32, 4, v), x)
    if wide == 8 and n > 4:
        return in_parts(code, 8, lambda v: _masked(code, "cvttpd2dq.512", v, _S32, 8, True), x)
    if wide >= 4 and n > 2:
        return in_parts(code, 4, lambda v: code.call("llvm.x86.avx.cvtt.pd2dq.256", _S32, 4, v), x)
    return in_parts(code, 2, lambda v: resize(code, code.call("llvm.x86.sse2.cvttpd2dq", _S32, 4, v), 2), x)


def _masked(code: Code, name: str, x: Val, dtype: DType, lanes: int, rounding: bool) -> Val:
    """An AVX-512 intrinsic with a mask of ones; the 512-bit ones also take a rounding mode."""
    mask = "i16" if lanes == 16 else "i8"
    result = type_name(dtype, lanes)
    function = f"llvm.x86.avx512.mask.{name}"
    code.declare(f"declare {result} @{function}({x.type}, {result}, {mask}{', i32' if rounding else ''})")
    rhs = f"call {result} @{function}({x}, {result} zeroinitializer, {mask} -1{', i32 4' if rounding else ''})"
    return code.emit(rhs, dtype, lanes, x)


def _truncate_scalar(code: Code, x: Val, target: DType) -> Val:
    lanes = 16 // x.dtype.itemsize
    wide = code.emit(f"insertelement {type_name(x.dtype, lanes)} zeroinitializer, {x}, i64 0", x.dtype, lanes, x)
    name = "sse.cvttss2si" if x.dtype == F32 else "sse2.cvttsd2si"
    return code.call(f"llvm.x86.{name}{'64' if target == _S64 else ''}", target, 1, wide)
