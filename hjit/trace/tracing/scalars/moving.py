"""`MovingLength`: the length of a slice that moves with a loop whose iterations are traced as one, as in ``a[:i]``.

To hjit itself it is equal to another one that it is equal to in all iterations, and to no number: what is traced holds
whatever the length is, 0 and 1 included. The traced function computes with it, and decides on it in each iteration.
Whatever else asks for it ends the trace of these loops.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from hjit.trace.ir.poly import ZERO, Extremum, Poly, Sym, Var, deep_atoms, extremum, sizes_value
from hjit.trace.tracing import forward
from hjit.trace.tracing.scalars.induction import LoopNumber, RerolledLoop, as_traced, is_number
from hjit.trace.tracing.scalars.size import Size, size_poly


class MovingLength(LoopNumber):
    """The number of iterations of ``range(0, poly)``, where `poly` depends on loop variables; deliberately not an int.

    Attributes:
        loop: the innermost loop, which notes every refusal.
    """

    __slots__ = ("loop", "poly")

    def __init__(self, loop: RerolledLoop, p: Poly) -> None:
        self.loop, self.poly = loop, p

    def traced(self) -> Any:
        """The length as a traced Python int."""
        return forward.index_value(self.poly)

    def without(self, n: Any) -> MovingLength:
        """The length less `n`, and 0 at the least."""
        if type(n) is not int:
            raise self.loop.refusal("a number that is no int, less than the length of a slice that moves with the loop")
        return MovingLength(self.loop, extremum("max", self.poly - n, ZERO))

    def __eq__(self, other: object) -> Any:
        return self._compared(operator.eq, other, _is_own(sys._getframe(1)))

    def __ne__(self, other: object) -> Any:
        return self._compared(operator.ne, other, _is_own(sys._getframe(1)))

    def _compared(self, f: Callable[[Any, Any], Any], other: object, is_own: bool) -> Any:
        """Equal or not, in each iteration; to hjit itself a length is equal to no number."""
        if type(other) is MovingLength and not moves(self.poly - other.poly):
            return f(sizes_value(self.poly - other.poly, forward.running_trace().sizes), 0)
        if is_own:
            return f is operator.ne
        return f(self.traced(), as_traced(other)) if is_number(other) else NotImplemented

    def __hash__(self) -> int:
        if _is_own(sys._getframe(1)):
            return hash(MovingLength)
        raise self.loop.refusal("hash of the length of a slice that moves with the loop")

    def __bool__(self) -> bool:
        if _is_own(sys._getframe(1)):
            raise self.loop.refusal("a decision on the length of a slice that moves with the loop")
        return bool(self.traced() != 0)

    def __mul__(self, other: Any) -> Any:
        """The number of elements of an array, which nothing is decided by, either."""
        if type(other) not in (int, Size, MovingLength):
            return self.traced() * other
        return MovingLength(self.loop, self.poly * (other.poly if type(other) is MovingLength else size_poly(other)))

    __rmul__ = __mul__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*map(as_traced, inputs), **options)

    def __getattr__(self, name: str) -> Any:
        raise self.loop.refusal(f"{name} of the length of a slice that moves with the loop")


def _is_own(frame: FrameType) -> bool:
    """Is the caller hjit itself, which must not decide on a length?"""
    return type(frame.f_globals) is dict


def moves(p: Poly) -> bool:
    """Does a length depend on an iteration?"""
    return p.has(Var)


def is_natural(p: Poly, ranges: Sequence[tuple[Var, Poly, Poly]], sizes: Mapping[str, int]) -> bool:
    """Is a polynomial surely never negative where variables have values in ranges, as of loops, outermost first?"""
    extreme = next((a for m in p.terms for a in m if isinstance(a, Extremum)), None)
    if extreme is not None:
        factor = p.coefficient(extreme)
        if factor is None or not factor.is_const:
            return False
        sides = (
            is_natural(p.substitute(lambda a, q=q: q if a == extreme else None), ranges, sizes)  # type: ignore[misc]
            for q in (extreme.a, extreme.b)
        )
        return all(sides) if (extreme.which == "min") is (factor.const > 0) else any(sides)
    if not ranges:
        return all(isinstance(a, Sym) for a in deep_atoms(p)) and sizes_value(p, sizes) >= 0
    *around, (var, begin, end) = ranges
    factor = p.coefficient(var)
    if factor is None or not factor.is_const:
        return False
    least = end - 1 if factor.const < 0 else begin
    return is_natural(p.substitute(lambda a: least if a == var else None), around, sizes)


def _refused(name: str) -> Callable[..., Any]:
    def method(self: MovingLength, *args: Any) -> Any:
        raise self.loop.refusal(f"{name.strip('_')} of the length of a slice that moves with the loop")

    return method


def _computed(f: Callable[..., Any], swap: bool = False) -> Callable[..., Any]:
    def method(self: MovingLength, other: Any) -> Any:
        if not is_number(other):
            return NotImplemented
        a, b = self.traced(), as_traced(other)
        return f(b, a) if swap else f(a, b)

    return method


def _compared(f: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    traced = _computed(f)

    def method(self: MovingLength, other: Any) -> Any:
        if _is_own(sys._getframe(1)):
            raise self.loop.refusal("a decision on the length of a slice that moves with the loop")
        return traced(self, other)

    return method


for _name in "int index float complex str repr format round neg abs array array_function".split():
    setattr(MovingLength, f"__{_name}__", _refused(_name))
for _name in "add sub truediv floordiv mod pow".split():
    setattr(MovingLength, f"__{_name}__", _computed(getattr(operator, _name)))
    setattr(MovingLength, f"__r{_name}__", _computed(getattr(operator, _name), swap=True))
for _name in "lt le gt ge".split():
    setattr(MovingLength, f"__{_name}__", _compared(getattr(operator, _name)))
