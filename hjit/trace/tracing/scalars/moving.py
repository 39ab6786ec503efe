"""`MovingLength`: the length of a slice that moves with a loop whose iterations are traced as one, as in ``a[:i]``.

It is equal to another one that it is equal to in all iterations, and to no number: what is traced holds whatever the
length is, 0 and 1 included. Whatever else asks for it ends the trace of these loops: no decision rests on its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hjit.trace.ir.poly import Poly, Sym, Var, deep_atoms, sizes_value
from hjit.trace.tracing.dispatch import hook
from hjit.trace.tracing.scalars.induction import RerolledLoop
from hjit.trace.tracing.scalars.size import Size, size_poly


class MovingLength:
    """The number of iterations of ``range(0, poly)``, `poly` being over variables of loops; deliberately not an int.

    Attributes:
        loop: the innermost loop, which notes every refusal.
    """

    __slots__ = ("loop", "poly")

    def __init__(self, loop: RerolledLoop, p: Poly) -> None:
        self.loop, self.poly = loop, p

    def __eq__(self, other: object) -> bool:
        if type(other) is not MovingLength:
            return False
        apart = self.poly - other.poly
        return not moves(apart) and sizes_value(apart, hook("running_trace")().sizes) == 0

    def __hash__(self) -> int:
        return hash(MovingLength)

    def __mul__(self, other: Any) -> MovingLength:
        """The number of elements of an array, which nothing is decided by, either."""
        if type(other) not in (int, Size, MovingLength):
            raise self.loop.refusal("arithmetic on the length of a slice that moves with the loop")
        return MovingLength(self.loop, self.poly * (other.poly if type(other) is MovingLength else size_poly(other)))

    __rmul__ = __mul__

    def __getattr__(self, name: str) -> Any:
        raise self.loop.refusal(f"{name} of the length of a slice that moves with the loop")


def moves(p: Poly) -> bool:
    """Does a length depend on an iteration?"""
    return p.has(Var)


def is_natural(p: Poly, ranges: Sequence[tuple[Var, Poly, Poly]], sizes: Mapping[str, int]) -> bool:
    """Is a polynomial surely never negative where variables have values in ranges, as of loops, outermost first?"""
    for var, begin, end in reversed(ranges):
        factor = p.coefficient(var)
        if factor is None or not factor.is_const:
            return False
        least = end - 1 if factor.const < 0 else begin
        p = p.substitute(lambda a, v=var, least=least: least if a == v else None)  # type: ignore[misc]
    return all(isinstance(a, Sym) for a in deep_atoms(p)) and sizes_value(p, sizes) >= 0


def _refused(name: str) -> Callable[..., Any]:
    def method(self: MovingLength, *args: Any) -> Any:
        raise self.loop.refusal(f"{name.strip('_')} of the length of a slice that moves with the loop")

    return method


_COMPARED = "lt le gt ge bool int index float complex str repr format"
_COMPUTED = "add radd sub rsub floordiv truediv rtruediv mod pow round neg abs array array_ufunc array_function"
for _name in f"{_COMPARED} {_COMPUTED}".split():
    setattr(MovingLength, f"__{_name}__", _refused(_name))
