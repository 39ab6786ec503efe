"""Integer demotion by range analysis: the narrowest dtype that holds a value, for more lanes in fewer bytes.

NumPy code widens bytes before it adds them (``a.astype(np.int16) + b``, ``img.astype(int)``). By interval arithmetic on
the operands, many such operations give the same number in a narrower dtype, and so do the stages that hold them. Idioms
that need no wider dtype at all are recognised: means of two numbers, saturating sums and differences, absolute
differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from hjit.trace.ir.analysis.ranges import RANGES, Range, Ranges, of_dtype
from hjit.trace.ir.expressions import Cast, Const, Expr, Load, Op, cast, rewrite
from hjit.trace.ir.graph import Graph, Stage
from hjit.trace.ir.rewriting import map_exprs

DType = np.dtype[Any]

UNSIGNED = tuple(np.dtype(t) for t in ("u1", "u2", "u4"))
SIGNED = tuple(np.dtype(t) for t in ("i1", "i2", "i4"))
COMPARISONS = frozenset(("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"))
IN_BYTES = COMPARISONS | {
    "add",
    "subtract",
    "minimum",
    "maximum",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "select",
    "absolute",
    "negative",
}
# with those that processors have no vectors of bytes for
NARROWED = IN_BYTES | {
    "multiply",
    "floor_divide",
    "remainder",
    "right_shift",
    "left_shift",
}


def demote_integers(graph: Graph) -> Graph:
    """Compute integer operations, and store stages, in the narrowest dtypes that hold all possible values."""
    demotion = _Demotion()
    stages = []
    for s in graph.stages:
        s = demotion.stage(_without_idle_updates(map_exprs(s, demotion.expr)), s.name in graph.outputs)
        demotion.stages[s.name] = s
        stages.append(s)
    return replace(graph, stages=tuple(stages))


def _without_idle_updates(s: Stage) -> Stage:
    """The stage without updates that change nothing, such as ``maximum(own, 0)`` of unsigned numbers."""
    updates = tuple(
        d
        for k, d in enumerate(s.updates)
        if d.value != Load(s.name, d.target, s.dtype) or any(x.joined for x in s.updates[k : k + 2])
    )
    return s if s.initial is None or len(updates) == len(s.updates) else replace(s, updates=updates)


class _Demotion:
    """The state of the pass over one Graph.

    Attributes:
        stages: those that are done.
        was: the dtypes of those that are narrower now.
    """

    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}
        self.was: dict[str, DType] = {}
        self.ranges = Ranges(self.stages)
        self.known: dict[Expr, Range | None] = {}
        self.memo: dict[Expr, Expr] = {}

    def expr(self, e: Expr) -> Expr:
        """Rewrite an expression; its value and its dtype stay."""
        return rewrite(e, self.change, self.memo)

    def range(self, e: Expr) -> Range | None:
        return self.ranges.of(e, self.known)

    def stage(self, s: Stage, is_output: bool) -> Stage:
        """Rewrite a stage, which then holds its value from before the last widening."""
        if is_output or s.initial is None or s.updates or not isinstance(s.initial, Cast) or not _widens(s.initial):
            return s
        self.was[s.name] = s.dtype
        return replace(s, dtype=s.initial.arg.dtype, initial=s.initial.arg)

    def change(self, e: Expr) -> Expr | None:
        """A node whose arguments are rewritten."""
        match e:
            case Load() if e.source in self.was:
                return Cast(Load(e.source, e.index, self.stages[e.source].dtype), e.dtype)
            case Cast() if isinstance(e.arg, Cast) and _widens(e.arg):
                return cast(e.arg.arg, e.dtype)  # what it was before it was widened
            case Op():
                return self.clipped(e) or _first(f(self, e) for f in IDIOMS) or self.narrowed(e)
        return None

    def clipped(self, e: Op) -> Expr | None:
        """A minimum or maximum with a constant that is never reached is its other argument."""
        if e.name not in ("minimum", "maximum") or e.dtype.kind not in "iu":
            return None
        for x, bound in (e.args, e.args[::-1]):
            found = self.range(x)
            if isinstance(bound, Const) and found is not None:
                if found[1] <= bound.value if e.name == "minimum" else found[0] >= bound.value:
                    return x
        return None

    def narrowed(self, e: Op) -> Expr | None:
        """The operation in the narrowest dtype that holds its arguments and its result, where they come from there."""
        operands = e.args[1:] if e.name == "select" else e.args
        wide = operands[0].dtype if operands else e.dtype
        if (
            e.name not in NARROWED
            or wide.kind not in "iu"
            or wide.itemsize == 1
            or any(a.dtype != wide for a in operands)
        ):
            return None
        variable = [a for a in operands if not isinstance(a, Const)]
        sources = [a.arg.dtype.itemsize for a in variable if isinstance(a, Cast) and _widens(a)]
        if not sources or len(sources) < len(variable):
            return None
        every = [s for a in operands if (s := self.range(a)) is not None]
        if len(every) < len(operands):
            return None
        if e.name not in COMPARISONS:
            result = RANGES[e.name]([(0, 1), *every] if e.name == "select" else every)
            if result is None or not _holds(wide, *result):
                return None  # it wraps
            every.append(result)
        least = max(*sources, 1 if e.name in IN_BYTES else 2)
        to = narrowest(min(s[0] for s in every), max(s[1] for s in every), least)
        if to is None or to.itemsize >= wide.itemsize:
            return None
        args = (*e.args[: len(e.args) - len(operands)], *(_as(a, to) for a in operands))
        return Op(e.name, args, e.dtype) if e.name in COMPARISONS else Cast(Op(e.name, args, to), e.dtype)

    def unsigned(self, *operands: Expr) -> DType | None:
        """The unsigned dtype of up to two bytes that operands were widened from, and that holds their constants."""
        dtypes = {a.arg.dtype for a in operands if isinstance(a, Cast) and _widens(a)}
        if len(dtypes) != 1 or not all(isinstance(a, Const) or (isinstance(a, Cast) and _widens(a)) for a in operands):
            return None
        (dtype,) = dtypes
        if dtype.kind != "u" or dtype.itemsize > 2:
            return None
        return dtype if all(_holds(dtype, a.value, a.value) for a in operands if isinstance(a, Const)) else None


def _first(found: Iterable[Expr | None]) -> Expr | None:
    return next((e for e in found if e is not None), None)


def _widens(e: Cast) -> bool:
    """Does a cast of integers keep every value, in more bytes?"""
    old, new = e.arg.dtype, e.dtype
    return (
        old.kind in "iu" and new.kind in "iu" and old.itemsize < new.itemsize and (old.kind == "u" or new.kind == "i")
    )


def _as(e: Expr, dtype: DType) -> Expr:
    """A value that the dtype holds."""
    return cast(e.arg if isinstance(e, Cast) and _widens(e) else e, dtype)


def narrowest(low: int, high: int, least: int) -> DType | None:
    """The first dtype of `least` bytes and more that holds ``low .. high``."""
    for unsigned, signed in zip(UNSIGNED, SIGNED, strict=True):
        for dtype in (unsigned, signed):
            if dtype.itemsize >= least and _holds(dtype, low, high):
                return dtype
    return None


def _holds(dtype: DType, low: int, high: int) -> bool:
    """Does a dtype hold ``low .. high``?"""
    held = of_dtype(dtype)
    return held is not None and held[0] <= low and high <= held[1]


# -- idioms


def _is(e: Expr, value: int) -> bool:
    return isinstance(e, Const) and e.dtype.kind in "iu" and e.value == value


def _inner(e: Expr, name: str) -> Op | None:
    """The operation of that name which an expression is, widened or not."""
    e = e.arg if isinstance(e, Cast) and _widens(e) else e
    return e if isinstance(e, Op) and e.name == name and e.dtype.kind in "iu" else None


def _terms(e: Expr) -> list[Expr]:
    """What is added up."""
    found = _inner(e, "add")
    return [e] if found is None else [x for a in found.args for x in _terms(a)]


def mean(g: _Demotion, e: Op) -> Expr | None:
    """``(a + b + 1) // 2`` and ``(a + b) // 2`` of unsigned numbers, in their own dtype.

    Warren, Hacker's Delight, section 2-5.
    """
    halves = (e.name == "floor_divide" and _is(e.args[1], 2)) or (e.name == "right_shift" and _is(e.args[1], 1))
    if not halves or _inner(e.args[0], "add") is None:
        return None
    terms = _terms(e.args[0])
    operands = [x for x in terms if not _is(x, 1)]
    dtype = g.unsigned(*operands) if len(operands) == 2 and len(terms) < 4 else None
    if dtype is None or e.dtype.itemsize <= dtype.itemsize:
        return None
    a, b = (_as(x, dtype) for x in operands)
    return Cast(_halved(a, b, dtype, up=len(terms) == 3), e.dtype)


def _halved(a: Expr, b: Expr, dtype: DType, up: bool) -> Op:
    """Half of the sum of two numbers, in their own dtype.

    Processors round half the sum up in one instruction; rounded down it is one less where the sum is odd. The shorter
    ``(a & b) + ((a ^ b) >> 1)`` sends LLVM 20 and 22 into an endless loop of rewrites where bytes are shuffled.
    """
    unlike = Op("bitwise_xor", (a, b), dtype)
    found = Op(
        "subtract", (Op("bitwise_or", (a, b), dtype), Op("right_shift", (unlike, Const(1, dtype)), dtype)), dtype
    )
    return found if up else Op("subtract", (found, Op("bitwise_and", (unlike, Const(1, dtype)), dtype)), dtype)


def halved(g: _Demotion, e: Op) -> Expr | None:
    """``(a & b) + ((a ^ b) >> 1)`` of bytes: see `_halved`."""
    if e.name != "add" or e.dtype.kind not in "iu" or e.dtype.itemsize > 1:
        return None
    for both, half in (e.args, e.args[::-1]):
        if (
            isinstance(both, Op)
            and both.name == "bitwise_and"
            and isinstance(half, Op)
            and half.name == "right_shift"
            and _is(half.args[1], 1)
        ):
            unlike = half.args[0]
            if isinstance(unlike, Op) and unlike.name == "bitwise_xor" and {*unlike.args} == {*both.args}:
                return _halved(both.args[0], both.args[1], e.dtype, up=False)
    return None


def saturated(g: _Demotion, e: Op) -> Expr | None:
    """``minimum(a + b, greatest)`` and ``maximum(a - b, 0)`` of unsigned numbers, in their own dtype."""
    if e.name not in ("minimum", "maximum") or e.dtype.kind not in "iu":
        return None
    for x, bound in (e.args, e.args[::-1]):
        found = _inner(x, "add" if e.name == "minimum" else "subtract")
        dtype = None if found is None else g.unsigned(*found.args)
        if found is None or dtype is None or e.dtype.itemsize <= dtype.itemsize:
            continue
        a, b = (_as(x, dtype) for x in found.args)
        if e.name == "maximum" and _is(bound, 0):
            return Cast(Op("subtract", (Op("maximum", (a, b), dtype), b), dtype), e.dtype)
        if e.name == "minimum" and _is(bound, np.iinfo(dtype).max):
            return Cast(Op("add", (Op("minimum", (a, Op("invert", (b,), dtype)), dtype), b), dtype), e.dtype)
    return None


def absolute_difference(g: _Demotion, e: Op) -> Expr | None:
    """``abs(a - b)`` of unsigned numbers, in their own dtype."""
    found = _inner(e.args[0], "subtract") if e.name in ("absolute", "fabs") and e.dtype.kind in "iu" else None
    dtype = None if found is None else g.unsigned(*found.args)
    if found is None or dtype is None or found.dtype.kind != "i" or e.dtype.itemsize <= dtype.itemsize:
        return None
    a, b = (_as(x, dtype) for x in found.args)
    return Cast(Op("subtract", (Op("maximum", (a, b), dtype), Op("minimum", (a, b), dtype)), dtype), e.dtype)


IDIOMS: tuple[Callable[[_Demotion, Op], Expr | None], ...] = (mean, saturated, absolute_difference, halved)
