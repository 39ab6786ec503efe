"""Range analysis of integer expressions: an index that cannot leave its axis needs no check at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Cast, Const, Expr, Load, Op, ScalarRef
from hjit.trace.ir.graph import Stage
from hjit.trace.ir.intervals import INTS

Range = tuple[int, int]  # least, greatest
NO_STAGES: Mapping[str, Stage] = {}
MAX_POWER = 64  # an exponent
MAX_DEPTH = 24  # arrays that are looked through one behind the other


class Ranges:
    """The ranges of the integer expressions of a trace.

    Args:
        stages: what loads are looked through to; of arrays that are updated, all that their dtype holds is assumed.
        contents: of arrays, where they are known.
        numbers: of whole scalars, where they are known.
    """

    def __init__(
        self,
        stages: Mapping[str, Stage] = NO_STAGES,
        contents: Callable[[str], np.ndarray[Any, Any] | None] = lambda _: None,
        numbers: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self.stages, self.contents, self.numbers = stages, contents, numbers
        self._arrays: dict[str, Range | None] = {}
        self._depth = 0

    def of(self, e: Expr, known: dict[Expr, Range | None] | None = None) -> Range | None:
        """The least and the greatest one; None of floats. `known`: what was found out before, while nothing else
        changed."""
        known = {} if known is None else known
        if e not in known:
            known[e] = _inside(self._of(e, known), e.dtype)
        return known[e]

    def _of(self, e: Expr, known: dict[Expr, Range | None]) -> Range | None:
        match e:
            case Const():
                return (int(e.value), int(e.value)) if e.dtype.kind in "iub" else None
            case ScalarRef() if e.dtype.kind in "iu":
                number = self.numbers(e.name)
                return None if number is None else (number, number)
            case Cast():
                return self.of(e.arg, known)
            case Load():
                return self.of_array(e.source)
            case Op() if e.name in RANGES:
                found = [r for r in (self.of(x, known) for x in e.args) if r is not None]
                return RANGES[e.name](found) if len(found) == len(e.args) else None
        return None

    def of_array(self, name: str) -> Range | None:
        """The range of an array's elements."""
        if name not in self._arrays:
            found = self._of_array(name)
            if self._depth >= MAX_DEPTH:
                return found
            self._arrays[name] = found
        return self._arrays[name]

    def _of_array(self, name: str) -> Range | None:
        s = self.stages.get(name)
        if s is None:
            data = self.contents(name)
            return (
                (int(data.min()), int(data.max()))
                if data is not None and data.size and data.dtype.kind in "iub"
                else None
            )
        if s.initial is None or s.updates or self._depth >= MAX_DEPTH:
            return None
        self._depth += 1
        found = self.of(s.initial)
        self._depth -= 1
        return found


def of_dtype(dtype: np.dtype[Any]) -> Range | None:
    """The range of a dtype."""
    if dtype.kind == "b":
        return 0, 1
    return (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) if dtype.kind in "iu" else None


def _inside(found: Range | None, dtype: np.dtype[Any]) -> Range | None:
    """The range if the dtype holds it; otherwise numbers may wrap around, and the range is that of the dtype."""
    every = of_dtype(dtype)
    if every is None or found is None or found[0] < every[0] or found[1] > every[1]:
        return every
    return found


Arguments = Sequence[Range]


def _ends(f: Callable[[int, int], int]) -> Callable[[Arguments], Range]:
    """The range of a function that is monotonic in each argument."""

    def of(args: Arguments) -> Range:
        found = [f(x, y) for x in args[0] for y in args[1]]
        return min(found), max(found)

    return of


def _quotient(args: Arguments) -> Range | None:
    a, (low, high) = args
    return _ends(lambda x, y: x // y)([a, (low, high)]) if low > 0 else None


def _remainder(args: Arguments) -> Range | None:
    (a, b), (low, high) = args
    return None if low <= 0 else (a, b) if a >= 0 and b < low else (0, high - 1)


def _shifted_right(args: Arguments) -> Range | None:
    a, (low, high) = args
    return _ends(lambda x, y: x >> y)([a, (low, high)]) if low >= 0 and high < 64 else None


def _shifted_left(args: Arguments) -> Range | None:
    a, (low, high) = args
    return _ends(lambda x, y: x << y)([a, (low, high)]) if low >= 0 and high < 64 else None


def _and(args: Arguments) -> Range | None:
    tops = [high for low, high in args if low >= 0]  # one that is not negative bounds the other
    return (0, min(tops)) if tops else None


def _or(args: Arguments) -> Range | None:
    return (0, (1 << max(high for _, high in args).bit_length()) - 1) if all(low >= 0 for low, _ in args) else None


def _square(args: Arguments) -> Range:
    ((a, b),) = args
    return (0 if a <= 0 <= b else min(a * a, b * b)), max(a * a, b * b)


def _power(args: Arguments) -> Range | None:
    (a, b), (low, high) = args
    if low != high or not 0 <= low <= MAX_POWER:
        return None
    ends = [a**low, b**low, *([0**low] if a <= 0 <= b else [])]
    return min(ends), max(ends)


def _absolute(args: Arguments) -> Range:
    ((a, b),) = args
    return (a if a >= 0 else -b if b <= 0 else 0), max(abs(a), abs(b))


RANGES: dict[str, Callable[[Arguments], Range | None]] = {
    "add": lambda args: INTS.plus(*args),
    "subtract": lambda args: INTS.minus(*args),
    "multiply": _ends(lambda x, y: x * y),
    "negative": lambda args: INTS.times(args[0], -1),
    "minimum": lambda args: INTS.extremum("min", *args),
    "maximum": lambda args: INTS.extremum("max", *args),
    "floor_divide": _quotient,
    "remainder": _remainder,
    "right_shift": _shifted_right,
    "left_shift": _shifted_left,
    "bitwise_and": _and,
    "bitwise_or": _or,
    "bitwise_xor": _or,
    "absolute": _absolute,
    "square": _square,
    "power": _power,
    "select": lambda args: INTS.hull(*args[1:]),
}
