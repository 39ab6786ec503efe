"""NumPy's ufuncs of floats in C that are exact, or are formulas of exact operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hjit.errors import CompileError
from hjit.kernels.cuda.ctext import F16, F32, F64, DType, Operand, Row, c_type, call, instances, literal, unsigned
from hjit.kernels.cuda.operations.integers import LOGICAL


def _scaled(numerator: float, denominator: float) -> Row:
    """Multiply by a quotient that is rounded in the dtype."""

    def row(args: Sequence[Operand], dtype: DType) -> str:
        one = args[0].dtype.type
        return f"({args[0].text} * {literal(one(numerator) / one(denominator), args[0].dtype)})"

    return row


def _magnitude(operator: str) -> Row:
    """The absolute value compared with infinity."""
    return lambda args, dtype: f"(fabs({args[0].text}) {operator} {literal(np.inf, args[0].dtype)})"


def _signbit(args: Sequence[Operand], dtype: DType) -> str:
    u = unsigned(args[0].dtype)
    return f"((hj_as_{u}({args[0].text}) >> {8 * args[0].dtype.itemsize - 1}) != 0)"


def _bitcast(args: Sequence[Operand], dtype: DType) -> str:
    x = args[0]
    if dtype.kind not in "iu" or dtype.itemsize != x.dtype.itemsize:
        raise CompileError(f"a bitcast of {x.dtype} to {dtype} is not compiled")
    bits = x.text if x.dtype == F16 else f"hj_as_{unsigned(x.dtype)}({x.text})"
    return f"(({c_type(dtype)}){bits})"


ROWS: dict[str, Row] = {
    **LOGICAL,
    "add": "({0} + {1})",
    "subtract": "({0} - {1})",
    "multiply": "({0} * {1})",
    "true_divide": "({0} / {1})",
    "floor_divide": call("floor_divide"),
    "remainder": call("remainder"),
    "fmod": call("fmod"),
    "negative": "(-{0})",
    "positive": "{0}",
    "reordered": "{0}",  # a running sum in NumPy
    "unordered": "{0}",  # a sum that NumPy rounds in another order
    "absolute": "fabs({0})",
    "sign": call("sign", 1),
    "square": call("square", 1),
    "sqrt": "sqrt({0})",
    "reciprocal": "(({T})1 / {0})",
    "rint": "rint({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "trunc": "trunc({0})",
    "maximum": call("maximum"),
    "minimum": call("minimum"),
    "fmax": call("fmax"),
    "fmin": call("fmin"),
    "greater": "({0} > {1})",
    "greater_equal": "({0} >= {1})",
    "less": "({0} < {1})",
    "less_equal": "({0} <= {1})",
    "equal": "({0} == {1})",
    "not_equal": "({0} != {1})",
    "isnan": call("isnan", 1),
    "isinf": _magnitude("=="),
    "isfinite": _magnitude("<"),
    "signbit": _signbit,
    "copysign": "copysign({0}, {1})",
    "nextafter": call("nextafter"),
    "spacing": call("spacing", 1),
    "heaviside": call("heaviside"),
    "ldexp": call("ldexp"),
    "degrees": _scaled(180.0, np.pi),
    "radians": _scaled(np.pi, 180.0),
    "bitcast": _bitcast,
}
"""For floats and doubles."""

HALF_ROWS: dict[str, Row] = {
    "negative": "((f16)({0} ^ 0x8000))",
    "positive": "{0}",
    "absolute": "((f16)({0} & 0x7fff))",
    "signbit": "(({0} & 0x8000) != 0)",
    "copysign": "((f16)(({0} & 0x7fff) | ({1} & 0x8000)))",
    "nextafter": call("nextafter"),
    "spacing": call("spacing", 1),
    "maximum": call("maximum"),
    "minimum": call("minimum"),
    "fmax": call("fmax"),
    "fmin": call("fmin"),
    "bitcast": _bitcast,
}
"""Those that are given halves as they are, in 16 bits; the rest is given floats."""

# Of equal arguments the second, as x86 and so NumPy's vector loops do.
_EXTREMA = (
    "HJ_DEVICE $t hj_maximum_$t($t a, $t b) { return a != a || a > b ? a : b; }",
    "HJ_DEVICE $t hj_minimum_$t($t a, $t b) { return a != a || a < b ? a : b; }",
    "HJ_DEVICE $t hj_fmax_$t($t a, $t b) { return b != b || a > b ? a : b; }",
    "HJ_DEVICE $t hj_fmin_$t($t a, $t b) { return b != b || a < b ? a : b; }",
)
# Of equal halves the first.
_HALF_EXTREMUM = """
HJ_DEVICE f16 hj_${name}_$t($t a, $t b) {
    const f32 x = hj_f16_to_f32(a), y = hj_f16_to_f32(b);
    return $nan != $nan || x $operator y ? a : b;
}"""


def _half_extrema() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, operator, nan in (
        ("maximum", ">=", "x"),
        ("minimum", "<=", "x"),
        ("fmax", ">=", "y"),
        ("fmin", "<=", "y"),
    ):
        found |= instances(_HALF_EXTREMUM, (F16,), name=name, operator=operator, nan=nan)
    return found


_FUNCTIONS = (
    *_EXTREMA,
    "HJ_DEVICE bool hj_isnan_$t($t x) { return x != x; }",
    "HJ_DEVICE $t hj_square_$t($t x) { return x * x; }",
    "HJ_DEVICE $t hj_sign_$t($t x) { return x > 0 ? ($t)1 : x < 0 ? ($t)-1 : x == 0 ? ($t)0 : x; }",
    """
HJ_DEVICE $t hj_heaviside_$t($t x, $t at_zero) {
    return x != x ? x : x == 0 ? at_zero : x > 0 ? ($t)1 : ($t)0;
}""",
    # NumPy's npy_divmod, step by step
    """
HJ_DEVICE $t hj_floor_divide_$t($t a, $t b) {
    if (b == 0) return a / b;
    const $t rest = hj_fmod_$t(a, b);
    $t quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= ($t)1;
    if (quotient == 0) return copysign(($t)0, a / b);
    const $t whole = floor(quotient);
    return quotient - whole > ($t)0.5 ? whole + ($t)1 : whole;
}""",
    """
HJ_DEVICE $t hj_remainder_$t($t a, $t b) {
    const $t rest = hj_fmod_$t(a, b);
    if (b == 0) return rest;
    if (rest == 0) return copysign(($t)0, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}""",
    # beyond the limits the result is zero or infinite
    """
HJ_DEVICE $t hj_ldexp_$t($t x, i64 n) {
    return ldexp(x, (i32)(n < -9999 ? -9999 : n > 9999 ? 9999 : n));
}""",
    """
HJ_DEVICE $t hj_nextafter_$t($t x, $t y) {
    if (x != x || y != y) return x + y;
    if (x == y) return y;
    if (x == 0) return copysign(hj_as_$t(($u)1), y);
    return hj_as_$t(hj_as_$u(x) + ((x < y) == (x > 0) ? ($u)1 : ~($u)0));
}""",
    # up to the neighbour further from zero, with the sign of x, but of -0 as of 0
    """
HJ_DEVICE $t hj_spacing_$t($t x) {
    const $t plain = x + ($t)0;
    return hj_as_$t(hj_as_$u(plain) + 1) - plain;
}""",
)
FUNCTIONS: dict[str, str] = {
    **{k: v for source in _FUNCTIONS for k, v in instances(source, (F32, F64)).items()},
    **_half_extrema(),
    "hj_nextafter_f16": """
HJ_DEVICE f16 hj_nextafter_f16(f16 x, f16 y) {
    const f32 a = hj_f16_to_f32(x), b = hj_f16_to_f32(y);
    if (a != a || b != b) return (f16)0x7e00;
    if (a == b) return x;
    if (a == 0) return (f16)((y & 0x8000) | 1);
    return (f16)((a < b) == (a > 0) ? x + 1 : x - 1);
}""".strip(),
    # up to the next greater half; an infinity has none
    "hj_spacing_f16": """
HJ_DEVICE f16 hj_spacing_f16(f16 x) {
    const f16 greater = (f16)(x == 0x8000 ? 1 : x & 0x8000 ? x - 1 : x + 1);
    const f32 wide = hj_f16_to_f32(x);
    return hj_f32_to_f16((hj_f16_to_f32(greater) - wide) + (wide - wide));
}""".strip(),
}
