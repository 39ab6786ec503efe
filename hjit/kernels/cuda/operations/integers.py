"""NumPy's integer and bool ufuncs in C, without undefined behaviour."""

from __future__ import annotations

from collections.abc import Sequence

from hjit.errors import CompileError
from hjit.kernels.cuda.ctext import SIGNED, UNSIGNED, DType, Operand, Row, call, instances, suffix, unsigned


def _compare(name: str, operator: str) -> Row:
    """A comparison; int64 with uint64 compares the values."""

    def row(args: Sequence[Operand], dtype: DType) -> str:
        a, b = args
        if a.dtype.kind == b.dtype.kind:
            return f"({a.text} {operator} {b.text})"
        return f"hj_{name}_{suffix(a.dtype)}_{suffix(b.dtype)}({a.text}, {b.text})"

    return row


def _bitcast(args: Sequence[Operand], dtype: DType) -> str:
    x = args[0]
    if dtype.kind != "f" or dtype.itemsize != x.dtype.itemsize:
        raise CompileError(f"a bitcast of {x.dtype} to {dtype} is not compiled")
    text = f"({unsigned(x.dtype)}){x.text}"
    return f"((f16){text})" if dtype.itemsize == 2 else f"hj_as_{suffix(dtype)}({text})"


_COMPARISONS: dict[str, Row] = {
    "greater": _compare("greater", ">"),
    "greater_equal": _compare("greater_equal", ">="),
    "less": _compare("less", "<"),
    "less_equal": _compare("less_equal", "<="),
    "equal": _compare("equal", "=="),
    "not_equal": _compare("not_equal", "!="),
}
LOGICAL: dict[str, Row] = {
    "logical_and": "(({0} != 0) & ({1} != 0))",
    "logical_or": "(({0} != 0) | ({1} != 0))",
    "logical_xor": "(({0} != 0) ^ ({1} != 0))",
    "logical_not": "({0} == 0)",
}
_IDENTITIES: dict[str, Row] = dict.fromkeys(("positive", "rint", "floor", "ceil", "trunc"), "{0}")
_NO_FLOATS: dict[str, Row] = {"isnan": "false", "isinf": "false", "isfinite": "true"}

BOOLS: dict[str, Row] = {
    **_COMPARISONS,
    **LOGICAL,
    **_IDENTITIES,
    **_NO_FLOATS,
    "absolute": "{0}",
    "square": "{0}",
    "invert": "(!{0})",
    **dict.fromkeys(("add", "maximum", "fmax", "bitwise_or"), "({0} | {1})"),
    **dict.fromkeys(("multiply", "minimum", "fmin", "bitwise_and"), "({0} & {1})"),
    **dict.fromkeys(("subtract", "bitwise_xor"), "({0} ^ {1})"),
}
"""For bools, which are 0 or 1."""

_INTEGERS: dict[str, Row] = {
    **_COMPARISONS,
    **LOGICAL,
    **_IDENTITIES,
    **_NO_FLOATS,
    "add": "(({T})(({U}){0} + ({U}){1}))",
    "subtract": "(({T})(({U}){0} - ({U}){1}))",
    "multiply": "(({T})(({U}){0} * ({U}){1}))",
    "negative": "(({T})(0u - ({U}){0}))",
    "bitwise_and": "(({T})({0} & {1}))",
    "bitwise_or": "(({T})({0} | {1}))",
    "bitwise_xor": "(({T})({0} ^ {1}))",
    "invert": "(({T})~{0})",
    "square": call("square", 1),
    "maximum": call("maximum"),
    "minimum": call("minimum"),
    "fmax": call("maximum"),
    "fmin": call("minimum"),
    "floor_divide": call("floor_divide"),
    "remainder": call("remainder"),
    "power": call("power"),
    "left_shift": call("left_shift"),
    "right_shift": call("right_shift"),
    "gcd": call("gcd"),
    "lcm": call("lcm"),
    "bitwise_count": call("bitwise_count", 1),
    "bitcast": _bitcast,
}
SIGNED_ROWS: dict[str, Row] = {
    **_INTEGERS,
    "fmod": call("fmod"),
    "absolute": call("absolute", 1),
    "sign": call("sign", 1),
    "signbit": "({0} < 0)",
    "reciprocal": call("reciprocal", 1),
}
UNSIGNED_ROWS: dict[str, Row] = {
    **_INTEGERS,
    "fmod": call("remainder"),
    "absolute": "{0}",
    "sign": "(({T})({0} != 0))",
    "signbit": "false",
    "reciprocal": "(({T})({0} == 1))",  # of 0, what converting infinity gives
}

_INTEGER_FUNCTIONS = (
    "HJ_DEVICE $t hj_square_$t($t x) { return ($t)(($w)x * ($w)x); }",
    "HJ_DEVICE $t hj_maximum_$t($t a, $t b) { return a > b ? a : b; }",
    "HJ_DEVICE $t hj_minimum_$t($t a, $t b) { return a < b ? a : b; }",
    "HJ_DEVICE $t hj_left_shift_$t($t a, $t b) { return ($u)b < $n ? ($t)(($w)a << ($u)b) : ($t)0; }",
    """
HJ_DEVICE $t hj_power_$t($t a, $t n) {
    $w base = ($w)a, result = 1;
    for ($u left = ($u)n; left; left >>= 1) {
        if (left & 1) result *= base;
        base *= base;
    }
    return ($t)result;
}""",
)
_SIGNED_FUNCTIONS = (
    "HJ_DEVICE $t hj_absolute_$t($t x) { return ($t)(x < 0 ? 0u - ($w)x : ($w)x); }",
    "HJ_DEVICE $t hj_sign_$t($t x) { return ($t)((x > 0) - (x < 0)); }",
    "HJ_DEVICE $t hj_reciprocal_$t($t x) { return x == 1 || x == -1 ? x : x == 0 ? ($t)$infinity : ($t)0; }",
    """
HJ_DEVICE $t hj_floor_divide_$t($t a, $t b) {
    if (b == 0) return 0;
    if (b == -1) return ($t)(0u - ($w)a);
    return ($t)(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}""",
    """
HJ_DEVICE $t hj_remainder_$t($t a, $t b) {
    if (b == 0 || b == -1) return 0;
    const $t rest = ($t)(a % b);
    return ($t)(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}""",
    "HJ_DEVICE $t hj_fmod_$t($t a, $t b) { return b == 0 || b == -1 ? ($t)0 : ($t)(a % b); }",
    "HJ_DEVICE $t hj_right_shift_$t($t a, $t b) { return ($t)(a >> (($u)b < $n ? ($u)b : ($u)($n - 1))); }",
    "HJ_DEVICE $t hj_gcd_$t($t a, $t b) { return ($t)hj_gcd_$u(($u)hj_absolute_$t(a), ($u)hj_absolute_$t(b)); }",
    "HJ_DEVICE $t hj_lcm_$t($t a, $t b) { return ($t)hj_lcm_$u(($u)hj_absolute_$t(a), ($u)hj_absolute_$t(b)); }",
    "HJ_DEVICE u8 hj_bitwise_count_$t($t x) { return (u8)hj_popcount_$w(($u)hj_absolute_$t(x)); }",
)
_UNSIGNED_FUNCTIONS = (
    "HJ_DEVICE $t hj_floor_divide_$t($t a, $t b) { return b == 0 ? ($t)0 : ($t)(a / b); }",
    "HJ_DEVICE $t hj_remainder_$t($t a, $t b) { return b == 0 ? ($t)0 : ($t)(a % b); }",
    "HJ_DEVICE $t hj_right_shift_$t($t a, $t b) { return b < $n ? ($t)(a >> b) : ($t)0; }",
    """
HJ_DEVICE $t hj_gcd_$t($t a, $t b) {
    while (b) {
        const $t rest = ($t)(a % b);
        a = b;
        b = rest;
    }
    return a;
}""",
    """
HJ_DEVICE $t hj_lcm_$t($t a, $t b) {
    const $t divisor = hj_gcd_$t(a, b);
    return divisor == 0 ? ($t)0 : ($t)(($w)(a / divisor) * ($w)b);
}""",
    "HJ_DEVICE u8 hj_bitwise_count_$t($t x) { return (u8)hj_popcount_$w(x); }",
)


def _infinity(dtype: DType) -> str:
    """What converting an infinity to an integer gives on x86."""
    return {4: "0x80000000u", 8: "0x8000000000000000u"}.get(dtype.itemsize, "0")


def _mixed_comparisons() -> dict[str, str]:
    """Of int64 with uint64: a negative number is less than, and differs from, every unsigned one."""
    found = {}
    operators = {
        "greater": ">",
        "greater_equal": ">=",
        "less": "<",
        "less_equal": "<=",
        "equal": "==",
        "not_equal": "!=",
    }
    for name, operator in operators.items():
        for a, b in (("i64", "u64"), ("u64", "i64")):
            signed = "a" if a == "i64" else "b"
            holds = name == "not_equal" or name.startswith("less" if signed == "a" else "greater")
            join = f"{signed} < 0 ||" if holds else f"{signed} >= 0 &&"
            function = f"hj_{name}_{a}_{b}"
            found[function] = f"HJ_DEVICE bool {function}({a} a, {b} b) {{ return {join} (u64)a {operator} (u64)b; }}"
    return found


FUNCTIONS: dict[str, str] = {
    **{k: v for source in _INTEGER_FUNCTIONS for k, v in instances(source, SIGNED + UNSIGNED).items()},
    **{k: v for source in _SIGNED_FUNCTIONS for k, v in instances(source, SIGNED, infinity=_infinity).items()},
    **{k: v for source in _UNSIGNED_FUNCTIONS for k, v in instances(source, UNSIGNED).items()},
    **_mixed_comparisons(),
}
