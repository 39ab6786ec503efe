"""Sizes and numbers as C expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hjit.export.description import CannotExport
from hjit.export.numbers import CONVERSIONS, Argument, Entry, Numbers
from hjit.trace.ir.poly import Atom, Extremum, FloorDiv, Mod, Poly, Sym
from hjit.trace.tracing.scalars.size import SizeGuard

# C's types of dtypes; half-precision numbers are given as bits in arrays, and are no arguments
C_TYPES: Mapping[str, str] = {
    "|b1": "uint8_t",
    "|i1": "int8_t",
    "|u1": "uint8_t",
    **{f"<{k}{n}": f"{'u' * (k == 'u')}int{8 * n}_t" for k in "iu" for n in (2, 4, 8)},
    "<f2": "uint16_t",
    "<f4": "float",
    "<f8": "double",
    "float": "double",
    "int": "int64_t",
    "bool": "int",
}
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
_CHECKED = {"add": "__builtin_add_overflow", "sub": "__builtin_sub_overflow", "mul": "__builtin_mul_overflow"}
_DIVISIONS = {"floordiv": "hj_div", "mod": "hj_mod"}
_BITS = {"and_": "&", "or_": "|", "xor": "^"}
_FLOATS = ("float", "<f8")
_WHOLE = ("int", "bool")


def size(p: Poly, names: Mapping[str, int]) -> str:
    """A polynomial; size `name` is ``n[names[name]]``."""
    terms = []
    for m, c in p.terms.items():
        factors = [_atom(a, names) for a in m]
        terms.append(" * ".join(factors if c == 1 else [f"({c})", *factors]))
    if p.const or not terms:
        terms.append(f"({p.const})" if p.const < 0 else f"{p.const}")
    return " + ".join(terms)


def _atom(a: Atom, names: Mapping[str, int]) -> str:
    match a:
        case Sym():
            return f"n[{names[a.name]}]"
        case FloorDiv():
            return f"hj_div({size(a.arg, names)}, {size(a.by, names)})"
        case Mod():
            return f"hj_mod({size(a.arg, names)}, {size(a.by, names)})"
        case Extremum():
            return f"hj_{a.which}({size(a.a, names)}, {size(a.b, names)})"
    raise AssertionError(a)


def size_guard(f: SizeGuard, names: Mapping[str, int]) -> str:
    """The condition of a guard, in C."""
    return f"{size(f.a, names)} {COMPARISONS[f.op]} {size(f.b, names)}"


def literal(x: Any) -> str:
    """A Python number in C."""
    if isinstance(x, bool):
        return str(int(x))
    if isinstance(x, int):
        return f"INT64_C({x})" if x > -(1 << 63) else "INT64_MIN"
    if x != x:
        return "(double)NAN"
    if x in (float("inf"), float("-inf")):
        return "-(double)INFINITY" if x < 0 else "(double)INFINITY"
    return f"({float(x).hex()})"


def entries(numbers: Numbers, parameters: Mapping[int, str], names: Mapping[str, int]) -> list[str]:
    """Declarations of all numbers, and the checks of those that must have a value.

    Args:
        parameters: names of the arguments that are numbers, by leaf.

    Raises:
        CannotExport: C computes one of them in another way than Python.
    """
    lines = []
    for k, e in numbers.entries.items():
        lines += _entry(k, e, numbers, parameters, names)
    for k, expected in numbers.guards:
        kind = numbers.entries[k].kind
        is_float = kind in _FLOATS or kind == "<f4"
        value = literal(expected.item() if hasattr(expected, "item") else expected)
        holds = f"hj_same(v{k}, {value})" if is_float else f"v{k} == {value}"
        lines.append(f"if (!({holds})) return HJIT_WRONG_VALUE;")
    return lines


def _entry(k: int, e: Entry, numbers: Numbers, parameters: Mapping[int, str], names: Mapping[str, int]) -> list[str]:
    kind = C_TYPES.get(e.kind)
    if kind is None or e.kind == "<f2":
        raise CannotExport(f"a number of type {e.kind} is an argument", "pass a float")
    if e.function == "leaf":
        return [f"const {kind} v{k} = {parameters[e.args[0][1]]};"]
    if e.function == "constant":
        return [f"const {kind} v{k} = {literal(e.args[0][1])};"]

    def argument(a: Argument) -> str:
        if a[0] == "number":
            return "" if isinstance(a[1], str) else literal(a[1])  # a dtype
        return f"v{a[1]}" if a[0] == "entry" else f"({size(a[1], names)})"

    def kind_of(a: Argument) -> str:
        return numbers.entries[a[1]].kind if a[0] == "entry" else "int" if a[0] == "size" else type(a[1]).__name__

    if e.function == "size":
        return [f"const int64_t v{k} = {argument(e.args[0])};"]
    args, kinds = [argument(a) for a in e.args], [kind_of(a) for a in e.args]
    if e.function == "type" or e.function in CONVERSIONS:
        return [f"{kind} v{k};", *converted(f"v{k}", args[0], kinds[0], e.kind)]
    if e.function == "beyond":
        low, high = _range(e.args[1][1])
        return [f"const int64_t v{k} = ({args[0]} > {high}) - ({args[0]} < {low});"]
    found: list[str] = []
    is_whole = all(x in _WHOLE for x in kinds)
    if is_whole and e.kind in _WHOLE:
        found = _of_ints(k, e, args)
    elif e.kind == "<f4" and all(x in ("<f4", "float", *_WHOLE) for x in kinds):
        if e.function in (*_ARITHMETIC, "truediv"):
            sign = _ARITHMETIC.get(e.function, "/")
            found = [f"const float v{k} = (float){args[0]} {sign} (float){args[1]};"]
    elif all(x in (*_FLOATS, *_WHOLE) for x in kinds) and (e.kind in _FLOATS or not is_whole):
        found = _of_doubles(k, e, [f"(double){x}" if y in _WHOLE else x for x, y in zip(args, kinds, strict=True)])
    if found:
        return found
    raise CannotExport(
        f"{e.function} is computed of arguments that are numbers ({', '.join(kinds)}), in a way that C does not have",
        "compute it before the call, and pass the result",
    )


def _of_ints(k: int, e: Entry, args: list[str]) -> list[str]:
    f = e.function
    if f in COMPARISONS:
        return [f"const int v{k} = {args[0]} {COMPARISONS[f]} {args[1]};"]
    if f in _CHECKED:
        return [f"int64_t v{k};", f"if ({_CHECKED[f]}({args[0]}, {args[1]}, &v{k})) return HJIT_OUT_OF_RANGE;"]
    if f in _DIVISIONS:
        by = f"if ({args[1]} == 0 || {args[1]} == -1) return HJIT_WRONG_VALUE;"  # the least number by -1 is none
        return [by, f"const int64_t v{k} = {_DIVISIONS[f]}({args[0]}, {args[1]});"]
    if f in _BITS:
        return [f"const int64_t v{k} = {args[0]} {_BITS[f]} {args[1]};"]
    if f in ("min", "max"):
        return [f"const int64_t v{k} = hj_{f}({args[0]}, {args[1]});"]
    if f in ("neg", "pos", "abs"):
        sign = {"neg": "-({})", "pos": "{}", "abs": "llabs({})"}[f].format(args[0])
        return [f"if ({args[0]} == INT64_MIN) return HJIT_OUT_OF_RANGE;", f"const int64_t v{k} = {sign};"]
    return []


def _of_doubles(k: int, e: Entry, args: list[str]) -> list[str]:
    f = e.function
    if f in _ARITHMETIC:
        return [f"const double v{k} = {args[0]} {_ARITHMETIC[f]} {args[1]};"]
    if f in COMPARISONS:
        return [f"const int v{k} = {args[0]} {COMPARISONS[f]} {args[1]};"]
    if f == "truediv":
        check = [f"if ({args[1]} == 0) return HJIT_WRONG_VALUE;"] * (e.kind == "float")  # Python raises an exception
        return [*check, f"const double v{k} = {args[0]} / {args[1]};"]
    if f in ("neg", "pos", "abs", "float"):
        sign = {"neg": "-({})", "pos": "{}", "float": "{}", "abs": "fabs({})"}[f]
        return [f"const double v{k} = {sign.format(args[0])};"]
    if f in ("min", "max"):
        order = "<" if f == "min" else ">"
        return [f"const double v{k} = {args[1]} {order} {args[0]} ? {args[1]} : {args[0]};"]
    module, _, name = f.partition(".")
    if name and e.kind in _FLOATS:
        line = f"const double v{k} = {name}({args[0]});"  # Python's refuses what is not finite, of finite numbers
        refused = f"if (!isfinite(v{k}) && isfinite({args[0]})) return HJIT_WRONG_VALUE;"
        return [line, refused] if module == "math" else [line]
    return []


def _range(dtype: str) -> tuple[str, str]:
    name = C_TYPES[dtype].removesuffix("_t").upper()
    return ("0" if name.startswith("U") else f"{name}_MIN"), f"{name}_MAX"


def converted(target: str, value: str, kind: str, dtype: str) -> list[str]:
    """Statements that convert a number as NumPy does."""
    if dtype in ("<f4", "<f8"):
        return [f"{target} = ({C_TYPES[dtype]}){value};"]
    if dtype == "|b1":
        return [f"{target} = {value} != 0;"]
    if dtype == kind:
        return [f"{target} = {value};"]
    if kind in _WHOLE and dtype != "<f2":
        if dtype == "<u8":
            return [f"if ({value} < 0) return HJIT_OUT_OF_RANGE;", f"{target} = (uint64_t){value};"]
        low, high = _range(dtype)
        return [f"if ({value} < {low} || {value} > {high}) return HJIT_OUT_OF_RANGE;", f"{target} = {value};"]
    raise CannotExport(
        f"a number of type {kind} becomes {dtype}", "pass a number of the type of the array that it is used with"
    )
