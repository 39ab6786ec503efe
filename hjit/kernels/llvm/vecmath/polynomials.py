"""exp and powers of floats as polynomials: no tables or branches, and no slow path for overflow and underflow.

libmvec's exp calls the scalar function for each result that is not normal, as a bilateral filter's weights often are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hjit.kernels.llvm.builder.code import Code, Val
from hjit.kernels.llvm.vecmath.text import (
    F32,
    F64,
    as_bits,
    cast,
    cmp,
    from_bits,
    in_parts,
    intrinsic,
    is_nan,
    like,
    negate,
    op,
    register_lanes,
    select,
)

# (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2
_EXP32 = (0.5, 0.166665768946066, 0.0416665544984137, 0.008363194882419041, 0.0013926203361634337)
_EXP64 = (
    0.5,
    0.16666666666666669,
    0.04166666666662404,
    0.008333333333330055,
    0.0013888888917258759,
    0.00019841269863088255,
    2.4801521225986432e-05,
    2.7557268406190795e-06,
    2.7620121717381933e-07,
    2.51004110820149e-08,
)
_EXP2 = (
    0.6931471880262288,
    0.24022650760568126,
    0.05550357114219078,
    0.009618082557277852,
    0.0013390863364671234,
    0.0001545316294512069,
)
"""(2**r - 1) / r for |r| <= 1/2."""
_LOG2 = (2.8853900817900136, 0.9617966734154973, 0.5770835733636933, 0.41167329914115813, 0.3407211149549295)
"""log2((1 + s) / (1 - s)) / s in s**2, for |s| <= 0.1716."""

_LOG2_WIDE = (
    2.885390081777426,
    0.9617966948248783,
    0.577077755483458,
    0.4122261966181781,
    0.31928393284313594,
    0.29084674065255217,
)
"""The same for |s| <= 1/5."""


def _fma(code: Code, a: Val, b: Val, c: Val) -> Val:
    if "fma" in code.features or "x86" not in code.features:
        return intrinsic(code, "fma", a, b, c)
    return op(code, "fadd", op(code, "fmul", a, b), c)


def _polynomial(code: Code, x: Val, coefficients: Sequence[float]) -> Val:
    result = like(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        result = _fma(code, result, x, like(c, x))
    return result


def _clamp(code: Code, x: Val, low: float, high: float) -> Val:
    """Keeps NaN."""
    x = select(code, cmp(code, "olt", x, like(low, x)), like(low, x), x)
    return select(code, cmp(code, "ogt", x, like(high, x)), like(high, x), x)


def _nearest(code: Code, x: Val, shift: float) -> tuple[Val, Val]:
    """The nearest integer as a float, and as an integer; `shift` has 1 in its last place."""
    moved = op(code, "fadd", x, like(shift, x))
    n = op(code, "sub", as_bits(code, moved), as_bits(code, like(shift, x)))
    return op(code, "fsub", moved, like(shift, x)), n


def _power_of_two(code: Code, n: Val) -> Val:
    single = n.dtype.itemsize == 4
    return from_bits(
        code, op(code, "shl", op(code, "add", n, like(127 if single else 1023, n)), like(23 if single else 52, n))
    )


def _scale(code: Code, x: Val, n: Val) -> Val:
    """x * 2**n for an integral n, rounded once."""
    return in_parts(code, register_lanes(code, x), lambda v, m: _masked(code, "scalef", v, m), x, n)


def _masked(code: Code, name: str, *args: Val, immediate: int | None = None) -> Val:
    """An AVX-512 instruction on floats, with a mask of ones; the 512-bit ones also take a rounding mode."""
    x = args[0]
    size = 8 * x.lanes * x.dtype.itemsize
    mask, rounding = f"i{max(8, x.lanes)}", size == 512
    function = f"llvm.x86.avx512.mask.{name}.{'ps' if x.dtype == F32 else 'pd'}.{size}"
    number = [] if immediate is None else ["i32"]
    types = [*(a.type for a in args), *number, x.type, mask, *(["i32"] if rounding else [])]
    code.declare(f"declare {x.type} @{function}({', '.join(types)})")
    values = [
        *map(str, args),
        *(f"{t} {immediate}" for t in number),
        f"{x.type} zeroinitializer",
        f"{mask} -1",
        *(["i32 4"] if rounding else []),
    ]
    return code.emit(f"call {x.type} @{function}({', '.join(values)})", x.dtype, x.lanes, *args)


def exp(code: Code, x: Val) -> Val:
    """e**x, with at most 2 ulp."""
    single = x.dtype == F32
    x = _clamp(code, x, *((-105.0, 90.0) if single else (-747.0, 711.0)))
    shift = 1.5 * 2.0 ** (23 if single else 52)
    n, whole = _nearest(code, op(code, "fmul", x, like(1 / math.log(2), x)), shift)
    # ln(2) in two parts, of which the first times n is exact
    high, low = (
        (0.693145751953125, 1.428606765330187e-06)
        if single
        else (6.93147180369123816490e-01, 1.90821492927058770002e-10)
    )
    r = _fma(code, n, like(-high, x), x)
    r = _fma(code, n, like(-low, x), r)
    q = _polynomial(code, r, _EXP32 if single else _EXP64)
    value = op(code, "fadd", _fma(code, q, op(code, "fmul", r, r), r), like(1, x))
    if _has_instructions(code, x):
        return _scale(code, value, n)
    # in two steps, the first of which is exact, so that a denormal is rounded once
    half = op(code, "ashr", whole, like(1, whole))
    value = op(code, "fmul", value, _power_of_two(code, half))
    return op(code, "fmul", value, _power_of_two(code, op(code, "sub", whole, half)))


def power(code: Code, x: Val, y: Val) -> Val:
    """x**y of floats, computed in double: at most 1 ulp."""
    wide_x, wide_y = (cast(code, "fpext", v, F64) for v in (x, y))
    magnitude = intrinsic(code, "fabs", wide_x)
    one = like(1, wide_x)
    log = _log2_by_instructions(code, magnitude) if _has_instructions(code, x) else _log2(code, magnitude)
    result = cast(code, "fptrunc", _exp2(code, op(code, "fmul", log, wide_y)), F32)
    result = select(
        code, op(code, "and", cmp(code, "oeq", magnitude, one), negate(code, is_nan(code, wide_y))), like(1, x), result
    )
    # negative bases
    integral = cmp(code, "oeq", intrinsic(code, "trunc", y), y)
    half = op(code, "fmul", y, like(0.5, y))
    odd = op(code, "and", integral, cmp(code, "one", intrinsic(code, "trunc", half), half))
    word = as_bits(code, x)
    negative = cmp(code, "slt", word, like(0, word))
    minus = code.emit(f"fneg {result}", F32, x.lanes, result)
    result = select(code, op(code, "and", negative, odd), minus, result)
    below = op(code, "and", cmp(code, "olt", x, like(0, x)), cmp(code, "one", x, like(-np.inf, x)))
    result = select(
        code, op(code, "and", below, cmp(code, "one", intrinsic(code, "trunc", y), y)), like(np.nan, x), result
    )
    certain = op(code, "or", cmp(code, "oeq", y, like(0, y)), cmp(code, "oeq", x, like(1, x)))
    return select(code, certain, like(1, x), result)


def _has_instructions(code: Code, x: Val) -> bool:
    return "avx512" in code.features and x.lanes > 1


def _log2_by_instructions(code: Code, x: Val) -> Val:
    """log2 of what was a float, to 36 bits relative."""
    lanes = register_lanes(code, x)
    # from 3/4 to 3/2, so that near 1 there is no exponent to cancel with
    mantissa = in_parts(code, lanes, lambda v: _masked(code, "getmant", v, immediate=3), x)
    exponent = in_parts(code, lanes, lambda v: _masked(code, "getexp", v), op(code, "fmul", x, like(1.33333334, x)))
    s = op(code, "fdiv", op(code, "fsub", mantissa, like(1, x)), op(code, "fadd", mantissa, like(1, x)))
    return _fma(code, _polynomial(code, op(code, "fmul", s, s), _LOG2_WIDE), s, exponent)


def _log2(code: Code, x: Val) -> Val:
    """log2 of what was a float, to 37 bits relative."""
    word = as_bits(code, x)
    start = int(np.float64(math.sqrt(0.5)).view(np.int64)) & -(1 << 32)
    # counted from 2**-1024, so that it is not negative; then put in the fraction of 1.5 * 2**52
    above = op(code, "lshr", op(code, "add", word, like((1024 << 52) - start, word)), like(52, word))
    mantissa = from_bits(
        code, op(code, "sub", word, op(code, "shl", op(code, "sub", above, like(1024, word)), like(52, word)))
    )
    shift = 1.5 * 2.0**52
    exponent = from_bits(code, op(code, "add", above, as_bits(code, like(shift, x))))
    exponent = op(code, "fsub", exponent, like(shift + 1024, x))
    s = op(code, "fdiv", op(code, "fsub", mantissa, like(1, x)), op(code, "fadd", mantissa, like(1, x)))
    log = _fma(code, _polynomial(code, op(code, "fmul", s, s), _LOG2), s, exponent)
    log = select(code, cmp(code, "olt", x, like(np.inf, x)), log, x)
    return select(code, cmp(code, "oeq", x, like(0, x)), like(-np.inf, x), log)


def _exp2(code: Code, x: Val) -> Val:
    """2**x in double to 28 bits; what no float can hold is huge or tiny."""
    x = _clamp(code, x, -300.0, 300.0)
    if _has_instructions(code, x):
        n = intrinsic(code, "roundeven", x)
        r = op(code, "fsub", x, n)
        return _scale(code, _fma(code, _polynomial(code, r, _EXP2), r, like(1, x)), n)
    n, whole = _nearest(code, x, 1.5 * 2.0**52)
    r = op(code, "fsub", x, n)
    return op(code, "fmul", _fma(code, _polynomial(code, r, _EXP2), r, like(1, x)), _power_of_two(code, whole))
