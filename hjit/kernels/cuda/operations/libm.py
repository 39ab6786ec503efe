"""exp, log, sin and other transcendental functions: the language's own where they are accurate enough.

Bounds are the largest errors in units in the last place. For CUDA, powf apart, none is below what its programming guide
has ("Mathematical Functions"; found by extensive tests, no proof), nor below what LLVM's conformance tests of GPUs
measured, exhaustively for most functions of one float. They need no contraction: the functions call fma where they want
one. OpenCL C itself promises less; what PoCL has is measured by the tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from hjit.kernels.cuda.ctext import F32, F64, DType, Operand, Row, call, filled, instances, literal


class Libm(NamedTuple):
    """A function of the C library: its name, and the bounds of CUDA's for floats and doubles, in ulp."""

    c_name: str
    single: int
    double: int


LIBM = {
    "exp": Libm("exp", 2, 1),
    "exp2": Libm("exp2", 2, 1),
    "expm1": Libm("expm1", 1, 1),
    "log": Libm("log", 1, 1),
    "log2": Libm("log2", 1, 1),
    "log10": Libm("log10", 2, 1),
    "log1p": Libm("log1p", 1, 1),
    "sin": Libm("sin", 2, 2),
    "cos": Libm("cos", 2, 2),
    "tan": Libm("tan", 4, 2),
    "arcsin": Libm("asin", 4, 2),
    "arccos": Libm("acos", 3, 2),
    "arctan": Libm("atan", 2, 2),
    "arctan2": Libm("atan2", 3, 2),
    "sinh": Libm("sinh", 3, 2),
    "cosh": Libm("cosh", 2, 1),
    "tanh": Libm("tanh", 2, 1),
    "arcsinh": Libm("asinh", 3, 3),
    "arccosh": Libm("acosh", 4, 3),
    "arctanh": Libm("atanh", 3, 2),
    "cbrt": Libm("cbrt", 1, 1),
    "hypot": Libm("hypot", 3, 2),
    # Of floats as LLVM measured it on 2**32 arguments, with whole exponents and others; the guide of CUDA 11 has 8.
    "power": Libm("pow", 2, 2),
}


_BINARY = ("arctan2", "hypot", "power")
_EXPONENTS = {0.0: "({T})1", 1.0: "{0}", -1.0: "(({T})1 / {0})", 2.0: "hj_square_{t}({0})", 3.0: "hj_power_3_{t}({0})"}
_EXPONENTS |= {4.0: "hj_power_4_{t}({0})", 0.5: "hj_power_half_{t}({0})", -0.5: "(({T})1 / hj_power_half_{t}({0}))"}


def _power(args: Sequence[Operand], dtype: DType) -> str:
    y = args[1].value
    short = None if y is None else _EXPONENTS.get(float(y))
    return filled(short or "hj_power_{t}({0}, {1})", args, dtype)


def _log_of_sum(name: str) -> Row:
    """Of floats in double, as the two terms may cancel."""

    def row(args: Sequence[Operand], dtype: DType) -> str:
        double = f"hj_{name}_f64((f64){{0}}, (f64){{1}})"
        return filled(double if args[0].dtype == F64 else f"((f32){double})", args, dtype)

    return row


ROWS: dict[str, Row] = {
    **{name: call(name, 2 if name in _BINARY else 1) for name in LIBM},
    "power": _power,
    "logaddexp": _log_of_sum("logaddexp"),
    "logaddexp2": _log_of_sum("logaddexp2"),
}

# The larger, plus the log of 1 + base**-difference; equal infinities have no difference, a NaN has no larger.
_LOG_OF_SUM = """
HJ_DEVICE f64 hj_${name}_$t(f64 x, f64 y) {
    if (x == y) return x + $unit;
    if (x != x || y != y) return x + y;
    const f64 difference = x - y;
    return (difference > 0 ? x : y) + hj_log1p_f64(hj_${exp}_f64(-fabs(difference))) * $factor;
}"""


def _log_of_sum_function(name: str, exp: str, unit: float, factor: float) -> dict[str, str]:
    return instances(
        _LOG_OF_SUM,
        (F64,),
        name=name,
        exp=exp,
        unit=literal(unit, F64),
        factor=literal(factor, F64),
    )


_POWERS = (
    "HJ_DEVICE $t hj_power_3_$t($t x) { return x * x * x; }",
    "HJ_DEVICE $t hj_power_4_$t($t x) { const $t square = x * x; return square * square; }",
    # unlike sqrt, pow takes -0 to 0 and -inf to inf
    "HJ_DEVICE $t hj_power_half_$t($t x) { return x == $low ? -x : sqrt(x + ($t)0); }",
)


def _direct(name: str, t: DType) -> dict[str, str]:
    """A function that is the language's own."""
    parameters, arguments = ("$t x, $t y", "x, y") if name in _BINARY else ("$t x", "x")
    return instances(
        f"HJ_DEVICE $t hj_{name}_$t({parameters}) {{ return {LIBM[name].c_name}({arguments}); }}",
        (t,),
    )


FUNCTIONS: dict[str, str] = {
    **{k: v for name in LIBM for t in (F32, F64) for k, v in _direct(name, t).items()},
    **instances("HJ_DEVICE $t hj_fmod_$t($t a, $t b) { return fmod(a, b); }", (F32, F64)),
    **{k: v for source in _POWERS for k, v in instances(source, (F32, F64), low=partial(literal, -math.inf)).items()},
    **_log_of_sum_function("logaddexp", "exp", math.log(2), 1.0),
    **_log_of_sum_function("logaddexp2", "exp2", 1.0, math.log2(math.e)),
}
