"""log, sin and the other functions of the C library: libmvec's vector variants if there are any, else one call per
lane."""

from __future__ import annotations

import math

from hjit.kernels.llvm.builder.code import Code, Val
from hjit.kernels.llvm.vecmath import polynomials as poly
from hjit.kernels.llvm.vecmath.integers import Emitter
from hjit.kernels.llvm.vecmath.text import (
    F32,
    F64,
    DType,
    cast,
    cmp,
    float_constant,
    in_parts,
    intrinsic,
    library,
    like,
    op,
    per_lane,
    register_lanes,
    select,
)

_NAMES = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "arctan2": "atan2",
    "power": "pow",
}
_FUNCTIONS = (
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "arctan2",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "cbrt",
)
_CLASSES = {64: "e", 32: "d", 16: "b"}  # of x86-64's vector functions, by their bytes
_NEON_CLASS = "n"


def call(code: Code, name: str, *args: Val) -> Val:
    """The C function `name` of floats or doubles."""
    x = args[0]
    function = name + ("f" if x.dtype == F32 else "")
    if x.lanes == 1 or "libmvec" not in code.features:
        return per_lane(code, lambda *one: library(code, function, x.dtype, 1, *one), *args)
    lanes = register_lanes(code, x)
    kind = _NEON_CLASS if "neon" in code.features else _CLASSES[lanes * x.dtype.itemsize]
    symbol = vector_name(kind, lanes, len(args), function)
    return in_parts(code, lanes, lambda *part: library(code, symbol, x.dtype, lanes, *part), *args)


def vector_name(kind: str, lanes: int, arguments: int, function: str) -> str:
    """The symbol of libmvec: of 4 floats ``_ZGVbN4v_sinf`` on x86-64, ``_ZGVnN4v_sinf`` on aarch64."""
    return f"_ZGV{kind}N{lanes}{'v' * arguments}_{function}"


def _function(name: str) -> Emitter:
    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        return call(code, name, *args)

    return emit


def power(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    x, y = args
    exponent = float_constant(y)
    if exponent == 0:
        return like(1, x)
    if exponent == 1:
        return x
    if exponent == -1:
        return op(code, "fdiv", like(1, x), x)
    if exponent in (2, 3, 4):
        square = op(code, "fmul", x, x)
        return square if exponent == 2 else op(code, "fmul", square, x if exponent == 3 else square)
    if exponent in (0.5, -0.5):
        # unlike sqrt, pow takes -0 to 0 and -inf to inf
        root = intrinsic(code, "sqrt", op(code, "fadd", x, like(0, x)))
        root = select(code, cmp(code, "oeq", x, like(float("-inf"), x)), like(float("inf"), x), root)
        return root if exponent == 0.5 else op(code, "fdiv", like(1, x), root)
    return poly.power(code, x, y) if x.dtype == F32 else call(code, "pow", x, y)


def _log_of_sum(base: str) -> Emitter:
    """``logaddexp``: the larger, plus the log of 1 + base**-difference; of floats in double, as the two may cancel."""
    power_of = poly.exp if base == "exp" else lambda code, x: call(code, "exp2", x)
    unit = 1.0 if base == "exp2" else math.log(2)

    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        if args[0].dtype == F32:
            wide = tuple(cast(code, "fpext", a, F64) for a in args)
            return cast(code, "fptrunc", emit(code, wide, F64), F32)
        x, y = args
        difference = op(code, "fsub", x, y)
        larger = select(code, cmp(code, "ogt", difference, like(0, x)), x, y)
        distance = intrinsic(code, "fabs", difference)
        rest = call(code, "log1p", power_of(code, code.emit(f"fneg {distance}", x.dtype, x.lanes, distance)))
        if base == "exp2":
            rest = op(code, "fmul", rest, like(math.log2(math.e), x))
        result = op(code, "fadd", larger, rest)
        # equal infinities have no difference; a NaN has no larger
        result = select(code, cmp(code, "oeq", x, y), op(code, "fadd", x, like(unit, x)), result)
        return select(code, cmp(code, "uno", x, y), op(code, "fadd", x, y), result)

    return emit


def hypot(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    """The formula of glibc since 2.35 (C. Borges, "An improved algorithm for hypot(a, b)"), with its bits.

    Distances are often cut to whole numbers, and libmvec's differ in the last bit, even those of whole numbers. For a
    single number glibc's own is called: it branches where vectors select, and takes a fifth of the time.
    """
    if args[0].dtype == F32 or args[0].lanes == 1:
        return call(code, "hypot", *args)

    def times(a: Val, b: Val | float) -> Val:
        return op(code, "fmul", a, like(b, a) if isinstance(b, float) else b)

    def minus(a: Val, b: Val) -> Val:
        return op(code, "fsub", a, b)

    a, b = (intrinsic(code, "fabs", x) for x in args)
    is_less = cmp(code, "olt", a, b)
    large, small = select(code, is_less, b, a), select(code, is_less, a, b)
    # powers of two keep the squares from overflow and underflow
    is_huge, is_tiny = cmp(code, "ogt", large, like(2.0**511, a)), cmp(code, "olt", small, like(2.0**-459, a))
    up, down, one = like(2.0**600, a), like(2.0**-600, a), like(1.0, a)
    scale = select(code, is_huge, down, select(code, is_tiny, up, one))
    unscale = select(code, is_huge, up, select(code, is_tiny, down, one))
    x, y = times(large, scale), times(small, scale)
    h = intrinsic(code, "sqrt", op(code, "fadd", times(x, x), times(y, y)))
    is_near = cmp(code, "ole", h, times(y, 2.0))  # the legs are of similar lengths
    d = minus(h, select(code, is_near, y, x))
    twice = times(d, 2.0)
    first = select(code, is_near, times(x, minus(twice, x)), times(twice, minus(x, times(y, 2.0))))
    near = times(minus(d, times(minus(x, y), 2.0)), d)
    far = op(code, "fadd", times(minus(times(d, 4.0), y), y), times(d, d))
    excess = op(code, "fadd", first, select(code, is_near, near, far))
    root = times(minus(h, op(code, "fdiv", excess, times(h, 2.0))), unscale)
    root = select(code, cmp(code, "ole", y, times(x, 2.0**-54)), op(code, "fadd", large, small), root)
    infinity = like(float("inf"), a)  # also beside a NaN
    return select(code, op(code, "or", cmp(code, "oeq", a, infinity), cmp(code, "oeq", b, infinity)), infinity, root)


EMITTERS: dict[str, Emitter] = {
    **{name: _function(_NAMES.get(name, name)) for name in _FUNCTIONS},
    "exp": lambda code, args, dtype: poly.exp(code, args[0]),
    "power": power,
    "hypot": hypot,
    "logaddexp": _log_of_sum("exp"),
    "logaddexp2": _log_of_sum("exp2"),
}
