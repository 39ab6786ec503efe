"""`Size`: an int that remembers how it was computed from the sizes of the arguments.

Tracing runs with real numbers, so Python code that branches on sizes just works; the polynomial beside the
number lets one compiled kernel serve other sizes. What loses the polynomial (``int(h * 0.5)``) stays right:
the number then becomes a run-time parameter of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from hjit.trace.ir.poly import SMALL, Poly, poly
from hjit.trace.tracing.scalars.host import is_captured


class Size(int):
    """A whole number with its polynomial; small ones are plain ints, constants of the kernel."""

    poly: Poly

    def __new__(cls, value: int, p: Poly) -> Any:
        if -SMALL <= value <= SMALL or p.is_const:
            return int(value)
        self = super().__new__(cls, value)
        self.poly = p
        return self

    def __neg__(self) -> Any:
        return Size(-int(self), -self.poly)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)

    __hash__ = int.__hash__


def size_poly(n: int) -> Poly:
    """The polynomial of a `Size`, or the constant."""
    return n.poly if isinstance(n, Size) else poly(int(n))


def _binary(f: Callable[[Any, Any], Any], swap: bool) -> Callable[[Size, Any], Any]:
    def method(self: Size, other: Any) -> Any:
        if type(other) not in (int, Size):
            if is_captured(other):
                return method(self, other.make_static())
            return f(other, int(self)) if swap else f(int(self), other)
        a, b = (other, self) if swap else (self, other)
        value = f(int(a), int(b))
        if f in (operator.floordiv, operator.mod) and b <= 0:
            return value
        return Size(value, f(size_poly(a), size_poly(b)))

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    _f = getattr(operator, _name)
    setattr(Size, f"__{_name}__", _binary(_f, False))
    setattr(Size, f"__r{_name}__", _binary(_f, True))
