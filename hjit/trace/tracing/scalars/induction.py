"""`InductionVariable`: the variable of a Python loop whose body is traced once for all its iterations.

It stands for every value of the variable at once, so it can only be in indices that are affine in the iteration.
Comparisons answer where the first and the last iteration agree. Anything else refuses, and the loop is unrolled: traced
iteration by iteration.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol

from hjit.trace.ir.poly import Poly
from hjit.trace.tracing.scalars.host import static_value
from hjit.trace.tracing.scalars.size import Size, size_poly

LoopSite = tuple[Any, int]  # the code of a function and the offset of a loop in it


class CannotReroll(BaseException):
    """A loop has to be unrolled; not an `Exception`, so that the traced code does not handle it.

    Attributes:
        overwriting: or it can be traced without looking at what arrays hold, see `Recorder.overwriting`.
    """

    def __init__(self, site: LoopSite, why: str, overwriting: bool = False) -> None:
        super().__init__(why)
        self.site, self.overwriting = site, overwriting


class RerolledLoop(Protocol):
    """A loop whose iterations are traced as one."""

    def refusal(self, why: str) -> CannotReroll:
        """The exception that ends that."""

    def branch(self, condition: Any) -> bool:
        """The outcome of a condition, an array of one element, on the way through the iteration that is traced."""


class InductionVariable:
    """An integer that is affine in the iteration of a loop; deliberately not an int, so that nothing takes it for one.

    Attributes:
        loop: the loop, which notes every refusal, as the traced code may handle the exception after all.
        first, last: the number in the first and in the last iteration.
        poly: the number over the loop's variable.
    """

    __slots__ = ("first", "last", "loop", "poly")

    def __init__(self, loop: RerolledLoop, first: int, last: int, poly: Poly) -> None:
        self.loop, self.first, self.last, self.poly = loop, int(first), int(last), poly

    def refusal(self, what: str) -> CannotReroll:
        """The exception for a use that is not affine in the iteration."""
        return self.loop.refusal(f"{what} of a loop variable")

    def __neg__(self) -> Any:
        return InductionVariable(self.loop, -self.first, -self.last, -self.poly)

    def __pos__(self) -> Any:
        return self

    __hash__ = None  # type: ignore[assignment]


def _ends(variable: InductionVariable, other: Any) -> tuple[int, int, Poly] | None:
    """Another number in the first and in the last iteration, and its polynomial."""
    if type(other) is InductionVariable:
        return (other.first, other.last, other.poly) if other.loop is variable.loop else None
    other = static_value(other)
    return (int(other), int(other), size_poly(other)) if type(other) in (int, Size) else None


def _sum(f: Callable[[Any, Any], Any], swap: bool) -> Callable[[InductionVariable, Any], Any]:
    def method(self: InductionVariable, other: Any) -> Any:
        ends = _ends(self, other)
        if ends is None or (f is operator.mul and type(other) is InductionVariable):
            raise self.refusal(f.__name__)
        first, last, p = (
            f(b, a) if swap else f(a, b) for a, b in zip((self.first, self.last, self.poly), ends, strict=True)
        )
        varies = first != last
        return InductionVariable(self.loop, first, last, p) if varies else Size(first, p)

    return method


def _comparison(f: Callable[[Any, Any], bool]) -> Callable[[InductionVariable, Any], bool]:
    """What holds at both ends of a line holds between them; two lines are unequal where neither end changes sides."""

    def method(self: InductionVariable, other: Any) -> bool:
        ends = _ends(self, other)
        if ends is None:
            raise self.refusal("comparison")
        first, last = self.first - ends[0], self.last - ends[1]
        apart = f in (operator.eq, operator.ne) and first * last <= 0 and (first, last) != (0, 0)
        if apart or f(first, 0) != f(last, 0):
            raise self.refusal("decision on the iteration")
        return f(first, 0)

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
for _name in "index int float complex bool round trunc floor ceil abs invert str repr format".split():
    setattr(InductionVariable, f"__{_name}__", _refused(f"__{_name}__"))
for _name in "array array_ufunc array_function".split():
    setattr(InductionVariable, f"__{_name}__", _refused(f"__{_name}__"))
for _name in "truediv floordiv mod divmod pow lshift rshift and or xor matmul".split():
    setattr(InductionVariable, f"__{_name}__", _refused(_name))
    setattr(InductionVariable, f"__r{_name}__", _refused(_name))
