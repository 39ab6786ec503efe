"""Batched expression tape: arithmetic on numbers that depend on tile sizes, recorded once and run for many tilings.

Candidates of one decision share their tree and differ in tile sizes. The features of a tree are computed once, with
`Var`s instead of the sizes; every operation is recorded on a `Tape`, equal ones once, and the tape runs on arrays with
one number for each tiling. Numbers that do not depend on sizes are plain floats and are computed at once, as are
results that follow from ranges of numbers, so most of the clipping of regions to images is never recorded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, inf, isinf
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Operation = Callable[..., Any]
Range = tuple[float, float]
# an operation on arrays, where its result goes, and where its arguments are
Line = tuple[Operation, int, int, int, int | None]


class Var:
    """A recorded number or condition: the tape's value at `base`, plus a constant. Numbers that are compared are
    integers.

    `low` and `high` are bounds of it.
    """

    __slots__ = ("base", "high", "low", "plus", "tape")

    def __init__(self, tape: Tape, base: int, plus: float, low: float, high: float) -> None:
        self.tape, self.base, self.plus, self.low, self.high = tape, base, plus, low, high

    @property
    def at(self) -> int:
        """The position on the tape."""
        return self.base if self.plus == 0.0 else self.tape.line("add", self.base, self.tape.constant(self.plus))

    def is_same(self, other: object) -> bool:
        """Is it certainly the same number?"""
        return isinstance(other, Var) and (self.base, self.plus) == (other.base, other.plus)

    def within(self, low: float, high: float) -> Var:
        """The same number, with known bounds."""
        return Var(self.tape, self.base, self.plus, max(low, self.low), min(high, self.high))

    def __add__(self, other: Num) -> Num:
        if isinstance(other, float):
            return Var(self.tape, self.base, self.plus + other, self.low + other, self.high + other) if other else self
        parts = min(self.base, other.base), max(self.base, other.base)
        base = self.tape.line("add", *parts)
        self.tape.sums[base] = parts
        return Var(self.tape, base, self.plus + other.plus, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Num) -> Num:
        if isinstance(other, float):
            return self + -other
        plus = self.plus - other.plus
        if self.base == other.base:
            return plus
        parts = self.tape.sums.get(self.base)
        if parts is not None and other.base in parts:
            base = parts[1] if parts[0] == other.base else parts[0]
        else:
            base = self.tape.line("sub", self.base, other.base)
        return Var(self.tape, base, plus, self.low - other.high, self.high - other.low)

    def __rsub__(self, other: float) -> Num:
        return -self + other

    def __neg__(self) -> Num:
        return self * -1.0

    def __mul__(self, other: Num) -> Num:
        if not isinstance(other, float):
            return self.tape.record("mul", self, other)
        if other in (0.0, 1.0):
            return self if other else 0.0
        ends = self.low * other, self.high * other
        return Var(
            self.tape,
            self.tape.line("mul", self.base, self.tape.constant(other)),
            self.plus * other,
            min(ends),
            max(ends),
        )

    def __truediv__(self, other: Num) -> Num:
        return 1.0 if self.is_same(other) else self if other == 1.0 else self.tape.record("div", self, other)

    def __rtruediv__(self, other: float) -> Num:
        return self.tape.record("div", other, self)

    def __floordiv__(self, other: Num) -> Num:
        return floor_div(self, other)

    def __ge__(self, other: Num) -> Truth:
        return _at_least(self, other)

    def __gt__(self, other: Num) -> Truth:
        return _at_least(self, other + 1.0)

    def __le__(self, other: Num) -> Truth:
        return _at_least(other, self)

    def __lt__(self, other: Num) -> Truth:
        return _at_least(other, self + 1.0)

    def __and__(self, other: Truth) -> Truth:
        return self.tape.record("and", self, other) if isinstance(other, Var) else self if other else False

    def __or__(self, other: Truth) -> Truth:
        return self.tape.record("or", self, other) if isinstance(other, Var) else True if other else self

    __radd__, __rmul__, __rand__, __ror__ = __add__, __mul__, __and__, __or__


Num = float | Var
Truth = bool | Var


def range_of(x: Num) -> Range:
    """Bounds of a number."""
    return (x.low, x.high) if isinstance(x, Var) else (x, x)


# -- operations

# Of each what it is for single numbers and for arrays. Quotients are of whole numbers below 2**53, so that rounding
# them is exact.
OPERATIONS: dict[str, tuple[Operation, Operation]] = {
    "add": (operator.add, np.add),
    "sub": (operator.sub, np.subtract),
    "mul": (operator.mul, np.multiply),
    "div": (operator.truediv, np.divide),
    "floor_div": (operator.floordiv, lambda a, b: np.floor(a / b)),
    "ceil_div": (lambda a, b: -(-a // b), lambda a, b: np.ceil(a / b)),
    "least": (min, np.minimum),
    "most": (max, np.maximum),
    "power": (lambda n, base: base ** (int(n) - 1).bit_length(), lambda n, base: base ** np.ceil(np.log2(n))),
    "ge": (operator.ge, np.greater_equal),
    "and": (operator.and_, np.logical_and),
    "or": (operator.or_, np.logical_or),
    "choose": (lambda condition, a, b: a if condition else b, np.where),
}
# of those on arrays
SINGLE: dict[Operation, Operation] = {many: single for single, many in OPERATIONS.values()}
SYMMETRIC = frozenset({"mul", "least", "most", "and", "or"})


def _quotient(a: Range, b: Range, rounded: Callable[[float], float] = float) -> Range:
    """Bounds of a quotient by a number that is at least 1."""
    low, high = (
        x if isinf(x) else float(rounded(x))
        for x in (a[0] / (b[1] if a[0] >= 0.0 else b[0]), a[1] / (b[0] if a[1] >= 0.0 else b[1]))
    )
    return max(low, 1.0) if rounded is ceil and a[0] > 0.0 else low, high


def _times(a: Range, b: Range) -> Range:
    """Bounds of a product; none for factors that may be negative."""
    if a[0] < 0.0 or b[0] < 0.0:
        return -inf, inf
    return a[0] * b[0], a[1] * b[1] if a[1] and b[1] else 0.0


RANGES: dict[str, Callable[..., Range]] = {
    "mul": _times,
    "div": _quotient,
    "floor_div": lambda a, b: _quotient(a, b, floor),
    "ceil_div": lambda a, b: _quotient(a, b, ceil),
    "least": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "most": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "power": lambda n, base: (1.0, inf),
    "choose": lambda condition, a, b: (min(a[0], b[0]), max(a[1], b[1])),
}


class Tape:
    """Operations in the order in which they run, over input numbers, which are at least 1.

    Positions count all numbers: the given ones, constants, and results.

    Attributes:
        start: constants where they are.
        arrays: the same as arrays without axes, which NumPy is faster with than with numbers.
        lines: of each result how it is worked out.
        sums: positions of sums -> those of their two parts.
    """

    def __init__(self) -> None:
        self.start: list[float | None] = []
        self.arrays: list[Array | None] = []
        self.lines: list[Line | None] = []
        self.sums: dict[int, tuple[int, int]] = {}
        self._lines: dict[tuple[str, tuple[int, ...]], int] = {}
        self._constants: dict[float, int] = {}

    def input(self) -> Var:
        """Add an input number."""
        return Var(self, self._add(None, None), 0.0, 1.0, inf)

    def record(self, name: str, *args: Num | Truth) -> Var:
        """The result of an operation."""
        at: list[int] = []
        ranges: list[Range] = []
        for x in args:  # without calls: there are many
            if type(x) is Var:
                at.append(x.at if x.plus else x.base)
                ranges.append((x.low, x.high))
            else:
                at.append(self.constant(x))  # type: ignore[arg-type]
                ranges.append((x, x))  # type: ignore[arg-type]
        if name in SYMMETRIC:
            at.sort()
        bounds = RANGES.get(name)
        low, high = (0.0, 1.0) if bounds is None else bounds(*ranges)
        return Var(self, self.line(name, *at), 0.0, low, high)

    def position(self, x: Num) -> int:
        """The position of a number on the tape."""
        if isinstance(x, Var):
            return x.at if x.plus else x.base
        return self.constant(x)

    def line(self, name: str, *at: int) -> int:
        """The position of the result of an operation on positions."""
        found = self._lines.get((name, at))
        if found is None:
            line = OPERATIONS[name][1], len(self.start), at[0], at[1], at[2] if len(at) > 2 else None
            found = self._lines[name, at] = self._add(None, line)
        return found

    def constant(self, x: float) -> int:
        """The position of a constant."""
        found = self._constants.get(x)
        if found is None:
            found = self._constants[x] = self._add(x, None)
        return found

    def _add(self, constant: float | None, line: Line | None) -> int:
        self.start.append(constant)
        self.arrays.append(None if constant is None else np.array(constant))
        self.lines.append(line)
        return len(self.start) - 1

    def needed(self, positions: Iterable[int]) -> set[int]:
        """These positions, and all positions that they depend on."""
        found: set[int] = set()
        work = list(positions)
        lines = self.lines
        while work:
            k = work.pop()
            if k not in found:
                found.add(k)
                line = lines[k]
                if line is not None:
                    _, _, a, b, c = line
                    work += (a, b) if c is None else (a, b, c)
        return found


class Program:
    """The part of a tape that computes some of its numbers.

    Args:
        inputs: the positions of the numbers that are given.
        results: those of the numbers that are asked for.
        needed: what these need, where it is known.
    """

    def __init__(
        self, tape: Tape, inputs: Sequence[int], results: Sequence[int], needed: Iterable[int] | None = None
    ) -> None:
        order = sorted(tape.needed(results) if needed is None else needed)
        self._inputs, self._results = inputs, results
        self._lines = [line for k in order if (line := tape.lines[k]) is not None]
        constants = [k for k in order if tape.start[k] is not None]
        self._start = {k: tape.start[k] for k in constants}
        self._arrays = {k: tape.arrays[k] for k in constants}
        self._fixed = [k for k in dict.fromkeys(results) if tape.start[k] is not None]

    def run(self, inputs: Sequence[float] | Sequence[Array]) -> list[Any]:
        """The results: floats for floats, arrays for arrays."""
        is_single = not inputs or isinstance(inputs[0], float)
        v: dict[int, Any] = self._start.copy() if is_single else self._arrays.copy()
        v.update(zip(self._inputs, inputs, strict=True))
        if is_single:
            for f, k, a, b, c in self._lines:
                f = SINGLE[f]
                v[k] = f(v[a], v[b]) if c is None else f(v[a], v[b], v[c])
        else:
            for f, k, a, b, c in self._lines:
                v[k] = f(v[a], v[b]) if c is None else f(v[a], v[b], v[c])
            batch = np.shape(inputs[0])
            for k in self._fixed:
                v[k] = np.full(batch, v[k])
        return [v[k] for k in self._results]


# -- functions of numbers that may be recorded


def least(a: Num, b: Num) -> Num:
    """The smaller of two."""
    p, q = (a.low, a.high) if type(a) is Var else (a, a)  # without calls: there are many
    r, s = (b.low, b.high) if type(b) is Var else (b, b)
    return a if q <= r else b if s <= p else a if _same(a, b) else _recorded("least", a, b)


def most(a: Num, b: Num) -> Num:
    """The larger of two."""
    p, q = (a.low, a.high) if type(a) is Var else (a, a)
    r, s = (b.low, b.high) if type(b) is Var else (b, b)
    return a if p >= s else b if r >= q else a if _same(a, b) else _recorded("most", a, b)


def choose(condition: Truth, a: Num, b: Num) -> Num:
    """`a` if the condition holds, else `b`."""
    if not isinstance(condition, Var) or a == b or _same(a, b):
        return a if condition else b
    return condition.tape.record("choose", condition, a, b)


def floor_div(a: Num, b: Num) -> Num:
    """``a / b`` of integers, rounded down."""
    if isinstance(a, float) and isinstance(b, float):
        return a // b
    return a if b == 1.0 else 1.0 if _same(a, b) else _recorded("floor_div", a, b)


def ceil_div(a: Num, b: Num) -> Num:
    """``a / b`` of integers, rounded up."""
    if isinstance(a, float) and isinstance(b, float):
        return -(-a // b)
    return a if b == 1.0 else 1.0 if _same(a, b) else _recorded("ceil_div", a, b)


def power_of_two(n: Num) -> Num:
    """The smallest power of two that is not below `n`, which is at least 1."""
    return n.tape.record("power", n, 2.0) if isinstance(n, Var) else 2.0 ** (int(n) - 1).bit_length()


def ratio(a: Num, b: Num) -> Num:
    """``a / b`` of counts; zero if both are."""
    return a / most(b, 1.0)


def within(x: Num, low: float, high: float) -> Num:
    """A number that is known to lie between two."""
    return x.within(low, high) if isinstance(x, Var) else x


def product(numbers: Iterable[Num]) -> Num:
    """The product of numbers."""
    total: Num = 1.0
    for n in numbers:
        total = total * n
    return total


def total(numbers: Iterable[Num]) -> Num:
    """The sum of numbers."""
    return sum(numbers, 0.0)


def _same(a: Num, b: Num) -> bool:
    return isinstance(a, Var) and a.is_same(b)


def _at_least(a: Num, b: Num) -> Truth:
    p, q = (a.low, a.high) if type(a) is Var else (a, a)
    r, s = (b.low, b.high) if type(b) is Var else (b, b)
    return True if p >= s or _same(a, b) else False if q < r else _recorded("ge", a, b)


def _recorded(name: str, a: Num, b: Num) -> Var:
    tape = a.tape if isinstance(a, Var) else b.tape  # type: ignore[union-attr]
    return tape.record(name, a, b)
