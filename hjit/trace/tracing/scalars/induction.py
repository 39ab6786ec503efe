"""`InductionVariable`: the variable of a Python loop whose body is traced once for all its iterations.

It stands for every value of the variable at once. What is affine in the iteration stays an index; in other arithmetic
it is a traced Python int. Comparisons answer where the first and the last iteration agree, and are traced elsewhere.
Anything else refuses, and the loop is unrolled: traced iteration by iteration.
"""

from __future__ import annotations

import operator
import sys
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hjit.trace.ir.poly import ZERO, Poly, Var
from hjit.trace.tracing import forward
from hjit.trace.tracing.scalars.host import is_host, static_value
from hjit.trace.tracing.scalars.size import Size, size_poly

LoopSite = tuple[Any, int]  # the code of a function and the offset of a loop in it


class CannotReroll(BaseException):
    """A loop must be unrolled; not an `Exception`, so that traced code does not handle it.

    Attributes:
        overwriting: or it can be traced without looking at what arrays hold, see `Attempt.overwriting`.
        rolling: or with short loops inside as loops, see `Attempt.rolls_inside`.
        choosing: or with fewer paths through an iteration, see `Attempt.chooses`.
        moving: or as a program, see `Attempt.programs`: no two of its iterations have arrays of the same lengths.
        branching: or as a program that has one path through an iteration, see `Attempt.branches`.
        many: or as such a program, in place of an update of arrays.
        endless: or as a program, which ends where it is left; see `Attempt.few_iterations`.
        checking: or where iterations check some variables, see `Attempt.checked`.
        growing: or where a list is one that loops fill, a `Growing` of `hjit.trace.tracing.recording.state.attempt`; or
            where none is: True if a short loop around may be the reason.
        indexing: or with lists as they are, see `Attempt.indexes`.
        stacking: or where a list that items are taken from, or a dict that is filled, is a `Stacking`; False: where
            none is.
    """

    def __init__(
        self,
        site: LoopSite,
        why: str,
        overwriting: bool = False,
        rolling: bool = False,
        choosing: bool = False,
        moving: bool = False,
        branching: bool = False,
        many: bool = False,
        endless: bool = False,
        checking: frozenset[tuple[LoopSite, str]] = frozenset(),
        growing: Any = None,
        indexing: bool = False,
        stacking: Any = None,
    ) -> None:
        super().__init__(why)
        self.site, self.overwriting, self.rolling, self.choosing = site, overwriting, rolling, choosing
        self.branching, self.many = branching, many
        self.moving, self.endless, self.checking, self.growing = moving, endless, checking, growing
        self.indexing, self.stacking = indexing, stacking


class RerolledLoop(Protocol):
    """A loop whose iterations are traced as one.

    Attributes:
        trip_count: how many there are.
        count: as `trip_count`, with how it follows from sizes.
        var: the iteration in polynomials.
        known: the numbers of the first and the last iteration that can take the path that is traced.
        checks_ints: does each operation on ints of Python check that it has no large result?
    """

    trip_count: int
    count: Any
    var: Var
    known: tuple[int, int]
    checks_ints: bool

    def refusal(self, why: str) -> CannotReroll:
        """The exception that ends that."""

    def branch(self, condition: Any) -> bool:
        """The outcome of a condition, an array of one element, on the path through the iteration that is traced."""

    def range_of(self, e: Any) -> tuple[int, int] | None:
        """The least and the greatest integer that an expression can be in its iterations; None of floats."""

    def moves(self, e: Any, own: str) -> int | None:
        """How far an integer is from one in an array at most; None: any distance."""

    def compared(self, outcome: Any, comparison: Comparison) -> Any:
        """The traced outcome of a comparison, which is noted: where it is a condition, indices are known better."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a loop's variable: in iteration k it is ``f(first + step * k, 0)``."""

    loop: RerolledLoop
    f: Callable[[Any, Any], bool]
    first: int
    step: int

    def holds(self, k: int) -> bool:
        """Its outcome in an iteration."""
        return bool(self.f(self.first + self.step * k, 0))

    def decided(self) -> bool | None:
        """Its outcome, where that is the same in all iterations that can be meant."""
        low, high = self.loop.known
        if self.f in (operator.eq, operator.ne) and self.step and low < high:
            zero = self._zero()
            return None if zero is not None and low <= zero <= high else self.f is operator.ne
        return self.holds(low) if self.holds(low) is self.holds(high) else None

    def _zero(self) -> int | None:
        """The iteration in which both sides are equal."""
        k, rest = divmod(-self.first, self.step)
        return k if rest == 0 else None

    def narrow(self, outcome: bool) -> None:
        """Leave only iterations between the first and the last one with an outcome."""
        low, high = self.loop.known
        if self.f in (operator.eq, operator.ne) and (self.f is operator.eq) is outcome:
            zero = self._zero()
            if zero is not None and low <= zero <= high:
                self.loop.known = zero, zero
            return
        if self.f in (operator.eq, operator.ne):
            low, high = low + (self.holds(low) is not outcome), high - (self.holds(high) is not outcome)
        elif self.holds(low) is not outcome:
            low = bisect_left(range(high + 1), True, low, high, key=lambda k: self.holds(k) is outcome)
        elif self.holds(high) is not outcome:
            high = bisect_left(range(high + 1), True, low, high, key=lambda k: self.holds(k) is not outcome) - 1
        self.loop.known = low, high


class LoopNumber:
    """An integer that differs in each iteration of a loop that is traced once."""

    __slots__ = ()

    def traced(self) -> Any:
        """The number as a traced Python int."""
        raise NotImplementedError


class InductionVariable(LoopNumber):
    """An integer that is affine in the iteration of a loop; deliberately not a subclass of int, so that no code treats
    it as one.

    Attributes:
        loop: the loop, which notes every refusal, as the traced code may handle the exception after all.
        first, last: the number in the first and in the last iteration.
        poly: the number over the loop's variable.
    """

    __slots__ = ("first", "last", "loop", "poly")

    def __init__(self, loop: RerolledLoop, first: int, last: int, poly: Poly) -> None:
        self.loop, self.first, self.last, self.poly = loop, int(first), int(last), poly

    def refusal(self, what: str) -> CannotReroll:
        """The exception for a use that no iteration stands for."""
        return self.loop.refusal(f"{what} of a loop variable")

    def traced(self) -> Any:
        """The number as a traced Python int."""
        return forward.index_value(self.poly)

    @property
    def step(self) -> int:
        """By how much it grows from one iteration to the next."""
        return (self.last - self.first) // (self.loop.trip_count - 1)

    def ends(self) -> tuple[Any, Any]:
        """As `first` and `last`, with how they follow from sizes: what is compared with them holds of other sizes."""

        def size(value: int, at: Poly) -> Any:
            return Size(value, self.poly.substitute(lambda a: at if a == self.loop.var else None))

        return size(self.first, ZERO), size(self.last, size_poly(self.loop.count) - 1)

    def known_ends(self) -> tuple[int, int]:
        """The number in the first and in the last iteration that can take the path that is traced."""
        low, high = self.loop.known
        return self.first + self.step * low, self.first + self.step * high

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*map(as_traced, inputs), **options)

    def __bool__(self) -> bool:
        return bool(self.__ne__(0, 2))  # type: ignore[call-arg]

    def __neg__(self) -> Any:
        return InductionVariable(self.loop, -self.first, -self.last, -self.poly)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return abs(self.traced())

    def __invert__(self) -> Any:
        return -self - 1

    __hash__ = None  # type: ignore[assignment]


def _ends(variable: InductionVariable, other: Any) -> tuple[int, int, Poly] | None:
    """Another number in the first and in the last iteration, and its polynomial."""
    if type(other) is InductionVariable:
        return (other.first, other.last, other.poly) if other.loop is variable.loop else None
    other = static_value(other)
    return (int(other), int(other), size_poly(other)) if type(other) in (int, Size) else None


def extreme(end: Any, most: bool) -> Any:
    """The greatest number, or the least, that an end of a range is in a loop."""
    return end.ends()[(end.last > end.first) is most] if type(end) is InductionVariable else end


def as_traced(x: Any) -> Any:
    """What arithmetic takes in place of a loop's variable, or a length that moves with it; anything else as it is."""
    return x.traced() if issubclass(type(x), LoopNumber) else x


def is_below(a: Any, b: Any) -> bool | None:
    """Is `a`, a loop's variable or another whole number, less than `b` in all iterations, or in none? None: in some."""
    variable = a if type(a) is InductionVariable else b
    if type(variable) is not InductionVariable:
        return None
    left, right = _ends(variable, a), _ends(variable, b)
    if left is None or right is None:
        return None
    first, last = left[0] < right[0], left[1] < right[1]
    return first if first is last else None


def _sum(f: Callable[[Any, Any], Any], swap: bool) -> Callable[[InductionVariable, Any], Any]:
    traced = _traced(f, swap)

    def method(self: InductionVariable, other: Any) -> Any:
        ends = _ends(self, other)
        if ends is None or (f is operator.mul and type(other) is InductionVariable):
            return traced(self, other)
        first, last, p = (
            f(b, a) if swap else f(a, b) for a, b in zip((self.first, self.last, self.poly), ends, strict=True)
        )
        varies = first != last
        return InductionVariable(self.loop, first, last, p) if varies else Size(first, p)

    return method


def _traced(f: Callable[[Any, Any], Any], swap: bool = False) -> Callable[[InductionVariable, Any], Any]:
    """An operation of the number as a traced one."""

    def method(self: InductionVariable, other: Any) -> Any:
        if not is_number(other):
            raise self.refusal(f.__name__)
        a, b = self.traced(), as_traced(other)
        return f(b, a) if swap else f(a, b)

    return method


def is_number(x: Any) -> bool:
    """Is it something that arithmetic takes?"""
    t = type(x)
    return (
        t in (Size, int, float, bool)
        or issubclass(t, LoopNumber)
        or isinstance(x, (np.ndarray, np.generic))
        or hasattr(x, "__array_ufunc__")
        or is_host(x)
    )


def _comparison(f: Callable[[Any, Any], bool]) -> Callable[[InductionVariable, Any], Any]:
    """What holds at both ends of a line holds between them; two lines are unequal where neither end changes sides.

    Elsewhere the traced function decides in each iteration; hjit's own code, which looks whether an index is in range,
    must not.
    """
    traced = _traced(f)

    def method(self: InductionVariable, other: Any, depth: int = 1) -> Any:
        ends = _ends(self, other)
        is_own = type(sys._getframe(depth).f_globals) is dict
        if ends is None:
            if is_own:
                raise self.refusal("decision on the iteration")
            return traced(self, other)
        first, last = self.first - ends[0], self.last - ends[1]
        apart = f in (operator.eq, operator.ne) and first * last <= 0 and (first, last) != (0, 0)
        if not apart and f(first, 0) == f(last, 0):
            return f(first, 0)
        if is_own:
            raise self.refusal("decision on the iteration")
        comparison = Comparison(self.loop, f, first, (last - first) // (self.loop.trip_count - 1))
        decided = comparison.decided()
        if decided is not None:
            return decided
        return self.loop.compared(traced(self, forward.index_value(ends[2])), comparison)

    return method


def _refused(name: str) -> Callable[..., Any]:
    def method(self: InductionVariable, *args: Any, **kwargs: Any) -> Any:
        raise self.refusal(name.strip("_"))

    return method


for _name in ("add", "sub", "mul"):
    setattr(InductionVariable, f"__{_name}__", _sum(getattr(operator, _name), False))
    setattr(InductionVariable, f"__r{_name}__", _sum(getattr(operator, _name), True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(InductionVariable, f"__{_name}__", _comparison(getattr(operator, _name)))
for _name in "index int float complex round trunc floor ceil str repr format".split():
    setattr(InductionVariable, f"__{_name}__", _refused(f"__{_name}__"))
for _name in "array array_function".split():
    setattr(InductionVariable, f"__{_name}__", _refused(f"__{_name}__"))
for _name in "truediv floordiv mod pow and_ or_ xor lshift rshift".split():
    _method = _name.strip("_")
    setattr(InductionVariable, f"__{_method}__", _traced(getattr(operator, _name)))
    setattr(InductionVariable, f"__r{_method}__", _traced(getattr(operator, _name), True))
for _name in "divmod matmul".split():
    setattr(InductionVariable, f"__{_name}__", _refused(_name))
    setattr(InductionVariable, f"__r{_name}__", _refused(_name))
