"""NumPy's integer and bool ufuncs in LLVM IR, without traps or undefined behaviour."""

from __future__ import annotations

from collections.abc import Callable

from hjit.kernels.llvm.builder.code import BOOL, I32, Code, Val, const, type_name
from hjit.kernels.llvm.vecmath.text import (
    F32,
    F64,
    DType,
    bits,
    cast,
    cmp,
    constant,
    from_bits,
    intrinsic,
    is_signed,
    like,
    negate,
    op,
    per_lane,
    select,
    suffix,
    unsigned,
)

Emitter = Callable[[Code, tuple[Val, ...], DType], Val]


def _plain(signed: str, unsigned_: str = "", boolean: str = "") -> Emitter:
    """One LLVM instruction, by the kind of the first argument."""

    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        kind = args[0].dtype.kind
        return op(code, {"i": signed, "u": unsigned_ or signed, "b": boolean or signed}[kind], args[0], args[1])

    return emit


def _extreme(name: str, boolean: str) -> Emitter:
    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        kind = args[0].dtype.kind
        if kind == "b":
            return op(code, boolean, *args)
        return intrinsic(code, ("s" if kind == "i" else "u") + name, *args)

    return emit


def _truth(code: Code, x: Val) -> Val:
    if x.dtype.kind == "b":
        return x
    return cmp(code, "une" if x.dtype.kind == "f" else "ne", x, like(0, x))


def logical(name: str) -> Emitter:
    """``logical_and`` and its kin, on any dtype."""

    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        return op(code, name, _truth(code, args[0]), _truth(code, args[1]))

    return emit


def logical_not(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    return negate(code, _truth(code, args[0]))


def compare(name: str) -> Emitter:
    """A comparison of integers or bools; int64 with uint64 compares the values."""

    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        a, b = args
        if name in ("eq", "ne") and a.dtype.kind == b.dtype.kind:
            return cmp(code, name, a, b)
        if a.dtype.kind == b.dtype.kind:
            return cmp(code, ("s" if a.dtype.kind == "i" else "u") + name, a, b)
        signed = a if a.dtype.kind == "i" else b
        below = cmp(code, "slt", signed, like(0, signed))
        as_unsigned = cmp(code, name if name in ("eq", "ne") else "u" + name, a, b)
        # a negative number is less than, and differs from, every unsigned one
        answer = name == "ne" or name in (("lt", "le") if signed is a else ("gt", "ge"))
        return op(code, "or", as_unsigned, below) if answer else op(code, "and", as_unsigned, negate(code, below))

    return emit


def negative(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    return op(code, "sub", like(0, args[0]), args[0])


def absolute(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    x = args[0]
    if not is_signed(x.dtype):
        return x
    return code.call(f"llvm.abs.{suffix(x.dtype, x.lanes)}", x.dtype, x.lanes, x, Val("false", BOOL))


def sign(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    x = args[0]
    above = cast(code, "zext", cmp(code, "ne" if not is_signed(x.dtype) else "sgt", x, like(0, x)), x.dtype)
    if not is_signed(x.dtype):
        return above
    return op(code, "or", above, op(code, "ashr", x, like(bits(x.dtype) - 1, x)))


def identity(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    return args[0]


def invert(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    x = args[0]
    return op(code, "xor", x, like(True if x.dtype.kind == "b" else -1, x))


def always(value: bool) -> Emitter:
    """``isnan`` of an integer, and the like."""

    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        return const(value, BOOL, args[0].lanes)

    return emit


# -- division


def _safe(code: Code, a: Val, b: Val) -> Val:
    """A divisor that neither traps nor overflows: 1, by which NumPy's special quotients are right or easily
    corrected."""
    bad = cmp(code, "eq", b, like(0, b))
    if is_signed(a.dtype):
        least = cmp(code, "eq", a, like(-(1 << (bits(a.dtype) - 1)), a))
        bad = op(code, "or", bad, op(code, "and", least, cmp(code, "eq", b, like(-1, b))))
    return select(code, bad, like(1, b), b)


def _by_float(code: Code, a: Val, b: Val) -> Val | None:
    """The quotient as a float whose rounding towards an integer is exact, for vectors of at most 32 bits."""
    if a.lanes == 1 or bits(a.dtype) > 32:
        return None
    wide = F32 if bits(a.dtype) <= 16 else F64
    word = "sitofp" if is_signed(a.dtype) else "uitofp"
    return op(code, "fdiv", cast(code, word, a, wide), cast(code, word, b, wide))


def _quotient(code: Code, a: Val, b: Val, floor: bool) -> Val:
    """``a / b`` for a divisor that `_safe` gave, or a literal other than 0 and -1."""
    signed = is_signed(a.dtype)
    q = _by_float(code, a, b) if constant(b) is None else None
    if q is not None:
        if signed and floor:
            q = intrinsic(code, "floor", q)
        if bits(a.dtype) < 32:
            # through int32, which every processor converts vectors to
            return cast(code, "trunc", cast(code, "fptosi", q, I32), a.dtype)
        return cast(code, "fptosi" if signed else "fptoui", q, a.dtype)
    q = op(code, "sdiv" if signed else "udiv", a, b)
    if not (signed and floor):
        return q
    rest = op(code, "sub", a, op(code, "mul", q, b))
    down = op(
        code, "and", cmp(code, "ne", rest, like(0, rest)), cmp(code, "slt", op(code, "xor", rest, b), like(0, rest))
    )
    return op(code, "add", q, cast(code, "sext", down, q.dtype))


def _exponent(value: int | None) -> int | None:
    """n where `value` is 2**n."""
    return value.bit_length() - 1 if value is not None and value > 0 and not value & (value - 1) else None


def floor_divide(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    a, b = args
    value = constant(b)
    if value == 0:
        return like(0, a)
    if value == -1 and is_signed(a.dtype):
        return op(code, "sub", like(0, a), a)
    shift = _exponent(value)
    if shift is not None:
        return op(code, "ashr" if is_signed(a.dtype) else "lshr", a, like(shift, a))
    if value is not None:
        return _quotient(code, a, b, floor=True)
    q = _quotient(code, a, _safe(code, a, b), floor=True)
    return select(code, cmp(code, "eq", b, like(0, b)), like(0, a), q)


def _rest(floor: bool) -> Emitter:
    def emit(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
        a, b = args
        value = constant(b)
        if value == 0 or (value == -1 and is_signed(a.dtype)):
            return like(0, a)
        if _exponent(value) is not None and (floor or not is_signed(a.dtype)):
            assert value is not None
            return op(code, "and", a, like(value - 1, a))
        safe = b if value is not None else _safe(code, a, b)
        return op(code, "sub", a, op(code, "mul", _quotient(code, a, safe, floor), safe))

    return emit


def reciprocal(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    """C's ``(T)(1.0 / x)``: of 0 it is what converting infinity gives."""
    x = args[0]
    one = cmp(code, "eq", x, like(1, x))
    if is_signed(x.dtype):
        one = op(code, "or", one, cmp(code, "eq", x, like(-1, x)))
    result = select(code, one, x, like(0, x))
    if is_signed(x.dtype) and bits(x.dtype) >= 32:
        least = (
            like(-(1 << (bits(x.dtype) - 1)), x) if "x86" in code.features else like((1 << (bits(x.dtype) - 1)) - 1, x)
        )
        result = select(code, cmp(code, "eq", x, like(0, x)), least, result)
    return result


# -- shifts


def left_shift(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    a, b = args
    fits = cmp(code, "ult", b, like(bits(a.dtype), b))
    return select(code, fits, op(code, "shl", a, select(code, fits, b, like(0, b))), like(0, a))


def right_shift(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    a, b = args
    n = bits(a.dtype)
    fits = cmp(code, "ult", b, like(n, b))
    if is_signed(a.dtype):
        return op(code, "ashr", a, select(code, fits, b, like(n - 1, b)))
    return select(code, fits, op(code, "lshr", a, select(code, fits, b, like(0, b))), like(0, a))


def bitwise_count(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    x = absolute(code, args, dtype)
    count = intrinsic(code, "ctpop", x)
    return (
        cast(code, "trunc", count, dtype)
        if bits(x.dtype) > bits(dtype)
        else Val(count.text, dtype, count.lanes, count.depth)
    )


# -- loops, as functions of one lane


def _helper(code: Code, name: str, template: str, args: tuple[Val, ...]) -> Val:
    """Call a function of one lane that is defined among the module's declarations."""
    dtype = args[0].dtype
    function = f"hjit_{name}_{dtype.kind}{bits(dtype)}"
    code.declare(template.replace("NAME", function).replace("TYPE", type_name(dtype)))

    def one(a: Val, b: Val) -> Val:
        return code.emit(f"call {type_name(dtype)} @{function}({a}, {b})", dtype, 1, a, b)

    return per_lane(code, one, *args)


_POWER = """define internal TYPE @NAME(TYPE %a, TYPE %n) nounwind willreturn memory(none) {
entry:
  br label %loop
loop:
  %base = phi TYPE [ %a, %entry ], [ %squared, %loop ]
  %left = phi TYPE [ %n, %entry ], [ %half, %loop ]
  %so_far = phi TYPE [ 1, %entry ], [ %next, %loop ]
  %odd = trunc TYPE %left to i1
  %product = mul TYPE %so_far, %base
  %next = select i1 %odd, TYPE %product, TYPE %so_far
  %squared = mul TYPE %base, %base
  %half = lshr TYPE %left, 1
  %done = icmp eq TYPE %half, 0
  br i1 %done, label %exit, label %loop
exit:
  ret TYPE %next
}"""

_GCD = """define internal TYPE @NAME(TYPE %a, TYPE %b) nounwind willreturn memory(none) {
entry:
  br label %loop
loop:
  %x = phi TYPE [ %a, %entry ], [ %y, %step ]
  %y = phi TYPE [ %b, %entry ], [ %rest, %step ]
  %done = icmp eq TYPE %y, 0
  br i1 %done, label %exit, label %step
step:
  %rest = urem TYPE %x, %y
  br label %loop
exit:
  ret TYPE %x
}"""


def power(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    """``a**n`` modulo 2**bits for n >= 0."""
    a, n = args
    value = constant(n)
    if value is None:
        return _helper(code, "power", _POWER, args)
    value &= (1 << bits(n.dtype)) - 1
    result = None
    while value:
        if value & 1:
            result = a if result is None else op(code, "mul", result, a)
        value >>= 1
        if value:
            a = op(code, "mul", a, a)
    return like(1, a) if result is None else result


def gcd(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    a, b = (absolute(code, (x,), dtype) for x in args)
    plain = tuple(Val(x.text, unsigned(x.dtype), x.lanes, x.depth) for x in (a, b))
    result = _helper(code, "gcd", _GCD, plain)
    return Val(result.text, dtype, result.lanes, result.depth)


def lcm(code: Code, args: tuple[Val, ...], dtype: DType) -> Val:
    a, b = (absolute(code, (x,), dtype) for x in args)
    plain_a, plain_b = (Val(x.text, unsigned(x.dtype), x.lanes, x.depth) for x in (a, b))
    divisor = _helper(code, "gcd", _GCD, (plain_a, plain_b))
    none = cmp(code, "eq", divisor, like(0, divisor))
    q = _quotient(code, plain_a, select(code, none, like(1, divisor), divisor), floor=False)
    result = op(code, "mul", q, plain_b)
    return Val(result.text, dtype, result.lanes, result.depth)


EMITTERS: dict[str, Emitter] = {
    "add": _plain("add", boolean="or"),
    "subtract": _plain("sub", boolean="xor"),
    "multiply": _plain("mul", boolean="and"),
    "floor_divide": floor_divide,
    "remainder": _rest(floor=True),
    "fmod": _rest(floor=False),
    "negative": negative,
    "positive": identity,
    "absolute": absolute,
    "sign": sign,
    "power": power,
    "square": lambda code, args, dtype: op(code, "and" if args[0].dtype.kind == "b" else "mul", args[0], args[0]),
    "reciprocal": reciprocal,
    "rint": identity,
    "floor": identity,
    "ceil": identity,
    "trunc": identity,
    "maximum": _extreme("max", "or"),
    "minimum": _extreme("min", "and"),
    "fmax": _extreme("max", "or"),
    "fmin": _extreme("min", "and"),
    "greater": compare("gt"),
    "greater_equal": compare("ge"),
    "less": compare("lt"),
    "less_equal": compare("le"),
    "equal": compare("eq"),
    "not_equal": compare("ne"),
    "logical_and": logical("and"),
    "logical_or": logical("or"),
    "logical_xor": logical("xor"),
    "logical_not": logical_not,
    "isnan": always(False),
    "isinf": always(False),
    "isfinite": always(True),
    "signbit": lambda code, args, dtype: cmp(
        code, "slt" if is_signed(args[0].dtype) else "ult", args[0], like(0, args[0])
    ),
    "bitwise_and": _plain("and"),
    "bitwise_or": _plain("or"),
    "bitwise_xor": _plain("xor"),
    "invert": invert,
    "left_shift": left_shift,
    "right_shift": right_shift,
    "gcd": gcd,
    "lcm": lcm,
    "bitwise_count": bitwise_count,
    "bitcast": lambda code, args, dtype: from_bits(code, args[0]),
}
"""By ufunc name, for arguments that are integers or bools."""
