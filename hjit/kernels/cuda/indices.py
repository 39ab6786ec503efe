"""Index polynomials as C expressions of 32 or 64 bits.

Floor division and remainder have Python's signs. All boundary modes but one are periodic; most indices are less than a
period beyond the axis, so only the others need a division.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hjit.errors import CompileError
from hjit.kernels.cuda.ctext import SIGNED, Operand, instances, literal
from hjit.kernels.cuda.operations.casts import convert
from hjit.trace.ir.expressions import Expr
from hjit.trace.ir.poly import Atom, Boundary, Extremum, FloorDiv, Indirect, Mod, Poly, Var


def never(p: Poly) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class IndexPrinter:
    """Prints index polynomials as C.

    Attributes:
        name: the C name of a loop variable, dimension or size: of type ``i32`` or ``i64``, by `bits`.
        value: an expression's value, where it is an index.
        bits: 32, where that is enough for every index and every step on the way, or 64.
        status: a pointer to a u32 in global memory that an index out of bounds sets to 1.
        not_negative: says of what it is known; its division needs no care of signs.
    """

    name: Callable[[Atom], str]
    value: Callable[[Expr], Operand]
    bits: int = 32
    status: str = "status"
    not_negative: Callable[[Poly], bool] = never

    @property
    def type(self) -> str:
        return f"i{self.bits}"

    def text(self, p: Poly) -> str:
        """The expression of a polynomial.

        Raises:
            CompileError: it has a constant of more than `bits` bits, or an index that is a float.
        """
        terms = [(c < 0, self._factors(m, abs(c))) for m, c in p.terms.items()]
        if p.const or not terms:
            terms.append((p.const < 0, [self._constant(abs(p.const))]))
        (minus, first), *others = terms
        if not others and not minus and len(first) == 1:
            return first[0]
        text = ("-" if minus else "") + " * ".join(first)
        for minus, factors in others:
            text += (" - " if minus else " + ") + " * ".join(factors)
        return f"({text})"

    def _factors(self, m: tuple[Atom, ...], c: int) -> list[str]:
        return [*([self._constant(c)] if c != 1 else []), *map(self.atom, m)]

    def _constant(self, n: int) -> str:
        if n >= 1 << (self.bits - 1):
            raise CompileError(f"{n} in an index of {self.bits} bits")
        return literal(n, SIGNED[2 if n < 1 << 31 else 3])

    def atom(self, a: Atom) -> str:
        """The expression of one atom."""
        match a:
            case FloorDiv():
                return self._divide(a.arg, a.by, quotient=True)
            case Mod():
                return self._divide(a.arg, a.by, quotient=False)
            case Extremum():
                return f"hj_index_{a.which}_{self.type}({self.text(a.a)}, {self.text(a.b)})"
            case Boundary():
                return f"hj_index_{a.mode}_{self.type}({self.text(a.arg)}, {self.text(a.extent)})"
            case Indirect():
                return self.gathered(a)
        return self.name(a)

    def _divide(self, arg: Poly, by: Poly, quotient: bool) -> str:
        x = self.text(arg)
        if by.is_const and by.const > 0 and by.const & (by.const - 1) == 0:
            # a shift rounds towards minus infinity, a mask is in [0, by)
            return f"({x} >> {by.const.bit_length() - 1})" if quotient else f"({x} & {self._constant(by.const - 1)})"
        d = self.text(by)
        if self.not_negative(arg):
            return self.unsigned(x, "/" if quotient else "%", d)
        return f"hj_index_{'div' if quotient else 'mod'}_{self.type}({x}, {d})"

    def unsigned(self, x: str, op: str, by: str) -> str:
        """A quotient or a remainder, where neither is negative."""
        return f"(({self.type})((u{self.bits}){x} {op} (u{self.bits}){by}))"

    def gathered(self, a: Indirect) -> str:
        """A value used as an index: checked against the axis, negative ones counted from its end."""
        x = self.value(a.expr)
        if x.dtype.kind not in "iub":
            raise CompileError(f"an index of {x.dtype} is not compiled")
        fits = x.dtype.itemsize < 4 or x.dtype == SIGNED[2]
        bits = 32 if self.bits == 32 and fits else 64
        text = convert(x, SIGNED[2 if bits == 32 else 3])
        if a.extent is not None:
            text = f"hj_index_checked_i{bits}({text}, {self.text(a.extent)}, {self.status})"
        return text if bits == self.bits else f"(({self.type}){text})"


class Signs:
    """Which indices are known to be at least 0 at a place of a kernel's text: their division needs no care of signs.

    Args:
        natural: variables and sizes that are never negative.
    """

    def __init__(self, natural: Iterable[Atom]) -> None:
        self.natural = set(natural)

    def bind(self, var: Var, *least: Poly) -> None:
        """A variable that is one of these, or more; it may have been another one's name before."""
        is_natural = all(map(self.is_natural, least))
        (self.natural.add if is_natural else self.natural.discard)(var)

    def is_natural(self, p: Poly) -> bool:
        """Is it never negative?"""
        return p.const >= 0 and all(c > 0 and all(map(self._is_natural, m)) for m, c in p.terms.items())

    def _is_natural(self, a: Atom) -> bool:
        match a:
            case Mod() | Boundary():
                return True
            case FloorDiv():
                return self.is_natural(a.arg)
            case Extremum():
                return (any if a.which == "max" else all)(map(self.is_natural, (a.a, a.b)))
        return a in self.natural


_BOUNDARY = """
HJ_DEVICE $t hj_index_${mode}_$t($t i, $t n) {
    const $t last = 2 * n - $twice, period = hj_index_max_$t(last + $mirror, 1);
    const $t away = hj_index_max_$t(i, -$mirror - i);
    const $t near = hj_index_min_$t(away, last - away);
    if (($u)near < ($u)n) return near;
    const $t image = hj_index_mod_$t(i, period);
    return hj_index_min_$t(image, last - image);
}"""
_FUNCTIONS = (
    "HJ_DEVICE $t hj_index_min_$t($t a, $t b) { return a < b ? a : b; }",
    "HJ_DEVICE $t hj_index_max_$t($t a, $t b) { return a > b ? a : b; }",
    "HJ_DEVICE $t hj_index_div_$t($t a, $t b) { return a / b - (a % b < 0); }",
    "HJ_DEVICE $t hj_index_mod_$t($t a, $t b) { const $t rest = a % b; return rest < 0 ? rest + b : rest; }",
    "HJ_DEVICE $t hj_index_clamp_$t($t i, $t n) { return hj_index_min_$t(hj_index_max_$t(i, 0), n - 1); }",
    """
HJ_DEVICE $t hj_index_wrap_$t($t i, $t n) {
    const $t near = i < 0 ? i + n : i >= n ? i - n : i;
    return ($u)near < ($u)n ? near : hj_index_mod_$t(i, n);
}""",
    # every thread that finds an index out of bounds writes the same
    """
HJ_DEVICE $t hj_index_checked_$t($t i, $t n, HJ_GLOBAL u32 *status) {
    const $t j = i < 0 ? i + n : i;
    if (($u)j < ($u)n) return j;
    *status = 1u;
    return 0;
}""",
)
FUNCTIONS: dict[str, str] = {
    **{k: v for source in _FUNCTIONS for k, v in instances(source, SIGNED[2:]).items()},
    **instances(_BOUNDARY, SIGNED[2:], mode="reflect", mirror="0", twice="2"),
    **instances(_BOUNDARY, SIGNED[2:], mode="symmetric", mirror="1", twice="1"),
}
"""Of a size of at least 1, or a divisor of at least 1."""
