"""NumPy's ufuncs of floats in LLVM IR that are exact, or are formulas of exact operations."""

from __future__ import annotations

import numpy as np

from hjit.kernels.llvm.builder.code import BOOL, Code, Val
from hjit.kernels.llvm.vecmath import libm
from hjit.kernels.llvm.vecmath.casts import half_to_single, single_to_half
from hjit.kernels.llvm.vecmath.integers import Emitter, identity, logical, logical_not
from hjit.kernels.llvm.vecmath.text import (
    F32,
    F64,
    DType,
    as_bits,
    cast,
    cmp,
    from_bits,
    integer,
    intrinsic,
    is_nan,
    like,
    op,
    select,
    suffix,
)


def _plain(word: str) -> Emitter:
    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        return op(code, word, args[0], args[1])

    return emit


def _unary(name: str) -> Emitter:
    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        return intrinsic(code, name, args[0])

    return emit


def _compare(predicate: str) -> Emitter:
    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        return cmp(code, predicate, *args)

    return emit


def negative(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    x = args[0]
    return code.emit(f"fneg {x}", x.dtype, x.lanes, x)


def absolute(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    return intrinsic(code, "fabs", args[0])


def sign(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    """1, -1, 0 (never -0), or the NaN itself."""
    x = args[0]
    zero = like(0, x)
    below = select(code, cmp(code, "olt", x, zero), like(-1, x), select(code, cmp(code, "oeq", x, zero), zero, x))
    return select(code, cmp(code, "ogt", x, zero), like(1, x), below)


def _extreme(predicate: str, skip_nan: bool) -> Emitter:
    """Of equal arguments the second, as x86 and so NumPy's vector loops do; of halves the first."""

    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        a, b = args
        half = a.dtype.itemsize == 2
        if half:
            wide = tuple(half_to_single(code, x) for x in args)
            better = op(
                code, "or", cmp(code, predicate.replace("t", "e"), *wide), is_nan(code, wide[1 if skip_nan else 0])
            )
            return select(code, better, a, b)
        best = select(code, cmp(code, predicate, a, b), a, b)
        # the comparison takes b where either is NaN
        return select(code, is_nan(code, b if skip_nan else a), a, best)

    return emit


def reciprocal(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    return op(code, "fdiv", like(1, args[0]), args[0])


def isinf(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    return cmp(code, "oeq", intrinsic(code, "fabs", args[0]), like(np.inf, args[0]))


def isfinite(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    return cmp(code, "one", intrinsic(code, "fabs", args[0]), like(np.inf, args[0]))


def signbit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    word = as_bits(code, args[0])
    return cmp(code, "slt", word, like(0, word))


def copysign(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    return intrinsic(code, "copysign", *args)


def heaviside(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    x, at_zero = args
    zero = like(0, x)
    step = select(code, cmp(code, "ogt", x, zero), like(1, x), zero)
    step = select(code, cmp(code, "oeq", x, zero), at_zero, step)
    return select(code, is_nan(code, x), x, step)


_EXPONENTS = {4: (127, 23), 8: (1023, 52)}  # itemsize: the largest exponent, and bits of the fraction


def ldexp(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    """``x * 2**n``, rounded once: what one normal power of two does not reach is multiplied before, as musl's scalbn
    does.

    Downwards the first factors leave the product normal wherever the result is not zero, so that only the last one
    rounds.
    """
    x, n = args
    top, fraction = _EXPONENTS[x.dtype.itemsize]
    bottom = 1 - top
    n = intrinsic(code, "smax", intrinsic(code, "smin", n, like(3 * top, n)), like(-3 * top, n))
    word = integer(x.dtype)
    n = cast(code, "sext" if n.dtype.itemsize < word.itemsize else "trunc", n, word)
    for _ in range(2):
        below = select(code, cmp(code, "slt", n, like(bottom, n)), like(bottom + fraction + 1, n), like(0, n))
        step = select(code, cmp(code, "sgt", n, like(top, n)), like(top, n), below)
        x, n = op(code, "fmul", x, _power_of_two(code, step)), op(code, "sub", n, step)
    n = intrinsic(code, "smax", n, like(bottom, n))
    return op(code, "fmul", x, _power_of_two(code, n))


def _power_of_two(code: Code, n: Val) -> Val:
    """``2.0**n`` for exponents of normal numbers."""
    top, fraction = _EXPONENTS[n.dtype.itemsize]
    return from_bits(code, op(code, "shl", op(code, "add", n, like(top, n)), like(fraction, n)))


def _scaled(numerator: float, denominator: float) -> Emitter:
    """Multiply by a quotient that is rounded in the dtype."""

    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        x = args[0]
        one = x.dtype.type
        return op(code, "fmul", x, like(one(numerator) / one(denominator), x))

    return emit


# -- neighbours


def _magnitude(x: Val) -> int:
    return (1 << (8 * x.dtype.itemsize - 1)) - 1


def nextafter(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    x, y = args
    word = as_bits(code, x)
    if x.dtype.itemsize == 2:
        wide_x, wide_y = (half_to_single(code, v) for v in args)
    else:
        wide_x, wide_y = x, y
    magnitude = op(code, "and", word, like(_magnitude(x), word))
    away = op(code, "xor", cmp(code, "olt", wide_x, wide_y), cmp(code, "slt", word, like(0, word)))
    moved = op(code, "add", word, select(code, away, like(1, word), like(-1, word)))
    least = op(code, "or", op(code, "and", as_bits(code, y), like(-1 - _magnitude(x), word)), like(1, word))
    moved = select(code, cmp(code, "eq", magnitude, like(0, word)), least, moved)
    same = word if x.dtype.itemsize == 2 else as_bits(code, y)
    moved = select(code, cmp(code, "oeq", wide_x, wide_y), same, moved)
    nan = like(int(np.array(np.nan, x.dtype).view(f"i{x.dtype.itemsize}")), word)
    return from_bits(code, select(code, cmp(code, "uno", wide_x, wide_y), nan, moved))


def spacing(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    """The distance to the neighbour further from zero, with the sign of `x` (-0 as 0); of halves, to the next greater
    one."""
    x = args[0]
    word = as_bits(code, x)
    if x.dtype.itemsize > 2:
        plain = as_bits(code, op(code, "fadd", x, like(0, x)))
        return op(code, "fsub", from_bits(code, op(code, "add", plain, like(1, plain))), from_bits(code, plain))
    greater = op(code, "add", word, select(code, cmp(code, "slt", word, like(0, word)), like(-1, word), like(1, word)))
    greater = select(code, cmp(code, "eq", word, like(-1 - _magnitude(x), word)), like(1, word), greater)
    wide = half_to_single(code, x)
    step = op(code, "fsub", half_to_single(code, from_bits(code, greater)), wide)
    # an infinity has none
    return single_to_half(code, op(code, "fadd", step, op(code, "fsub", wide, wide)))


# -- remainders


_ATTRIBUTES = 'alwaysinline nounwind willreturn memory(none) "prefer-vector-width"="512" "min-legal-vector-width"="512"'
_FMOD = """define internal TYPE @NAME(TYPE %a, TYPE %b) ATTRIBUTES {
entry:
BODY
  br i1 ALL, label %fast, label %slow
fast:
  ret TYPE RESULT
slow:
  %exact = frem TYPE %a, %b
  ret TYPE %exact
}"""


def fmod(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    """C's fmod, without a call of it where all quotients are moderate."""
    a, b = args
    name = f"hjit_fmod_{suffix(a.dtype, a.lanes)}{'' if 'fma' in code.features else '_no_fma'}"
    inner = Code(code.width, code.features)
    result, every = _moderate_fmod(inner, Val("%a", a.dtype, a.lanes), Val("%b", a.dtype, a.lanes))
    if a.lanes > 1:
        every = inner.call(f"llvm.vector.reduce.and.v{a.lanes}i1", BOOL, 1, every)
    for line in inner.declarations:
        code.declare(line)
    body = _FMOD.replace("ATTRIBUTES", _ATTRIBUTES).replace("TYPE", a.type).replace("NAME", name)
    code.declare(body.replace("BODY", inner.text()).replace("ALL", every.text).replace("RESULT", result.text))
    return code.emit(f"call {a.type} @{name}({a}, {b})", a.dtype, a.lanes, a, b)


def _moderate_fmod(code: Code, a: Val, b: Val) -> tuple[Val, Val]:
    """``a - trunc(a / b) * b`` with no rounding error, and where that holds."""
    x, y = (cast(code, "fpext", v, F64) for v in (a, b))
    quotient = op(code, "fdiv", x, y)
    whole = intrinsic(code, "trunc", quotient)
    # below this the quotient of floats cannot round up to an integer, nor that of doubles by more than one
    limit = like(2.0 ** (27 if a.dtype == F32 else 51), x)
    fine = op(
        code,
        "and",
        cmp(code, "olt", intrinsic(code, "fabs", quotient), limit),
        cmp(code, "olt", intrinsic(code, "fabs", y), like(np.inf, y)),
    )
    if a.dtype == F32 or "fma" not in code.features:
        if a.dtype == F64:
            fine = op(code, "and", fine, cmp(code, "olt", intrinsic(code, "fabs", x), intrinsic(code, "fabs", y)))
        rest = op(code, "fsub", x, op(code, "fmul", whole, y))
    else:
        minus = code.emit(f"fneg {whole}", F64, x.lanes, whole)
        rest = intrinsic(code, "fma", minus, y, x)
        beyond = op(code, "xor", cmp(code, "olt", rest, like(0, x)), cmp(code, "olt", x, like(0, x)))
        beyond = op(code, "and", beyond, cmp(code, "one", rest, like(0, x)))
        rest = select(code, beyond, op(code, "fadd", rest, intrinsic(code, "copysign", y, x)), rest)
    return intrinsic(code, "copysign", cast(code, "fptrunc", rest, a.dtype), a), fine


def _divmod(code: Code, a: Val, b: Val) -> tuple[Val, Val]:
    """NumPy's ``npy_divmod``, step by step."""
    zero = like(0, a)
    rest = fmod(code, (a, b), a.dtype)
    by_zero = cmp(code, "oeq", b, zero)
    nonzero = cmp(code, "une", rest, zero)
    other_sign = op(code, "xor", cmp(code, "olt", b, zero), cmp(code, "olt", rest, zero))
    fix = op(code, "and", nonzero, other_sign)
    quotient = op(code, "fdiv", op(code, "fsub", a, rest), b)
    quotient = select(code, fix, op(code, "fsub", quotient, like(1, a)), quotient)
    remainder = select(code, fix, op(code, "fadd", rest, b), rest)
    remainder = select(code, nonzero, remainder, intrinsic(code, "copysign", zero, b))
    floor = intrinsic(code, "floor", quotient)
    up = cmp(code, "ogt", op(code, "fsub", quotient, floor), like(0.5, a))
    whole = select(code, up, op(code, "fadd", floor, like(1, a)), floor)
    plain = op(code, "fdiv", a, b)
    whole = select(code, cmp(code, "une", quotient, zero), whole, intrinsic(code, "copysign", zero, plain))
    return select(code, by_zero, plain, whole), select(code, by_zero, rest, remainder)


def floor_divide(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    return _divmod(code, *args)[0]


def remainder(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    return _divmod(code, *args)[1]


EMITTERS: dict[str, Emitter] = {
    "add": _plain("fadd"),
    "subtract": _plain("fsub"),
    "multiply": _plain("fmul"),
    "true_divide": _plain("fdiv"),
    "floor_divide": floor_divide,
    "remainder": remainder,
    "fmod": fmod,
    "negative": negative,
    "positive": identity,
    "reordered": identity,  # a running sum in NumPy
    "unordered": identity,  # a sum that NumPy rounds in another order
    "absolute": absolute,
    "sign": sign,
    "square": lambda code, args, dtype: op(code, "fmul", args[0], args[0]),
    "sqrt": _unary("sqrt"),
    "reciprocal": reciprocal,
    "rint": _unary("roundeven"),
    "floor": _unary("floor"),
    "ceil": _unary("ceil"),
    "trunc": _unary("trunc"),
    "maximum": _extreme("ogt", skip_nan=False),
    "minimum": _extreme("olt", skip_nan=False),
    "fmax": _extreme("ogt", skip_nan=True),
    "fmin": _extreme("olt", skip_nan=True),
    "greater": _compare("ogt"),
    "greater_equal": _compare("oge"),
    "less": _compare("olt"),
    "less_equal": _compare("ole"),
    "equal": _compare("oeq"),
    "not_equal": _compare("une"),
    "logical_and": logical("and"),
    "logical_or": logical("or"),
    "logical_xor": logical("xor"),
    "logical_not": logical_not,
    "isnan": lambda code, args, dtype: is_nan(code, args[0]),
    "isinf": isinf,
    "isfinite": isfinite,
    "signbit": signbit,
    "copysign": copysign,
    "nextafter": nextafter,
    "spacing": spacing,
    "ldexp": ldexp,
    "heaviside": heaviside,
    "degrees": _scaled(180.0, np.pi),
    "radians": _scaled(np.pi, 180.0),
    "bitcast": lambda code, args, dtype: cast(code, "bitcast", args[0], dtype),
    **libm.EMITTERS,
}
"""By ufunc name, for arguments that are floats."""

IN_HALF = frozenset(
    "negative positive absolute signbit copysign nextafter spacing maximum minimum fmax fmin bitcast".split()
)
"""Those that are given halves as they are; the rest is given floats."""
