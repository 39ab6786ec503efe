"""Scatters that threads run at once, for targets on which many do. Each becomes scatters of whole numbers, whose
operations give the same in any order (so they are atomic), and a stage that makes of these what was asked for:

    a store               the last iteration that writes an element, and the value of that
    a sum of floats       a sum in fixed point, relative to the largest number that is added to an element: nearer to
                          the exact sum than one in NumPy's order, and the same at every run (compare J. Demmel and
                          H. Nguyen, "Fast Reproducible Floating-Point Summation", 2013)
    an extreme of floats  an extreme of whole numbers in the order of floats
    narrow integers       the same in words, for which there are atomic operations
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from hjit.trace.ir.analysis.accumulations import accumulation_of
from hjit.trace.ir.expressions import Cast, Const, Expr, Index, Load, Op, cast, renumber, select, substitute
from hjit.trace.ir.graph import Definition, Graph, Stage, identity
from hjit.trace.ir.poly import ZERO, Dim, Indirect, Poly, lower_bound, poly
from hjit.trace.ir.rewriting import fresh, map_exprs, with_source
from hjit.trace.passes.limits import SERIAL_SCATTER

BOOL, I4, I8, F8 = (np.dtype(x) for x in ("?", "i4", "i8", "f8"))
WORDS = {  # the operations of narrow integers, in words
    **{name: name for name in ("add", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor")},
    "logical_and": "minimum",
    "logical_or": "maximum",
}
# Of a float64: the bits of its mantissa, and the exponent of infinities as it is stored. Numbers with the stored
# exponent `e` are below ``2 ** (e - BELOW)``.
MANTISSA, INFINITE, BELOW = 52, 2047, 1022
FIXED = 28  # bits of a fixed-point number: 2**34 of them are added up in 64
NAN, PLUS, MINUS, ANY = 1, 2, 4, 8  # what has been added to an element: infinities, and anything but -0.0


def reorder_scattered_sums(graph: Graph) -> Graph:
    """Let scattered sums of floats be added in any order, by atomic operations."""

    def reordered(s: Stage, number: int) -> Definition:
        d, x = s.updates[number], _scatter_of(s, number)
        if x is None or x.op != "add" or s.dtype not in (np.float32, np.float64) or x.element.dtype != s.dtype:
            return d
        return replace(d, value=Op("add", (Load(s.name, d.target, s.dtype), x.element), s.dtype), order="add")

    stages = (
        s if _next(s) is None else replace(s, updates=tuple(reordered(s, k) for k in range(len(s.updates))))
        for s in graph.stages
    )
    return replace(graph, stages=tuple(stages))


def scatter_in_parallel(graph: Graph) -> Graph:
    """Rewrite scatters that only one thread could run as scatters that many threads can run."""
    found: list[Stage] = []
    names = set(graph.arrays)
    for s in graph.stages:
        while (x := _next(s)) is not None:
            *new, s = _Split(s, x, names).stages()
            found += new
        found.append(s)
    return replace(graph, stages=tuple(found))


@dataclass(frozen=True, slots=True)
class _Scatter:
    """An update ``stage[target] = op(stage[target], element)``, or ``stage[target] = element`` (`op` is "store").

    Attributes:
        number: of the update.
    """

    number: int
    op: str
    element: Expr


def _next(s: Stage) -> _Scatter | None:
    """The first update to rewrite."""
    if s.initial is None or any(d.joined for d in s.updates):
        return None
    return next((x for k in range(len(s.updates)) if (x := _scatter_of(s, k)) is not None), None)


def _scatter_of(s: Stage, number: int) -> _Scatter | None:
    d = s.updates[number]
    serial, parallel = (d.extents, ()) if d.order == "pure" else (d.rdims, d.dims)
    is_long = any(not n.is_const for n in serial) or math.prod(n.const for n in serial) >= SERIAL_SCATTER
    in_targets = {x.source for p in d.target for e in p.exprs for x in e.loads}
    if not d.is_scatter or not is_long or any(not n.is_const for n in parallel) or s.name in in_targets:
        return None
    if all(x.source != s.name for x in d.value.loads):
        is_known = d.order in ("pure", "sequential") and all(lower_bound(n) > 0 for n in d.extents)
        return _Scatter(number, "store", d.value) if is_known else None
    found = accumulation_of(s.name, d)
    if found is None or (found.is_reversed and found.op == "subtract"):
        return None
    op, element = found.op, found.element
    if op == "subtract":
        op, element = "add", Op("negative", (element,), element.dtype)
    if s.dtype.kind == "f":
        return _Scatter(number, op, element) if op in ("add", "maximum", "minimum") and d.order != "add" else None
    is_narrow = s.dtype.itemsize < I4.itemsize and s.dtype.kind in "iub"
    return _Scatter(number, op, element) if is_narrow and op in WORDS else None


class _Split:
    """A stage split into several: its state before a scatter, scatters of integers, and its state afterwards."""

    def __init__(self, s: Stage, x: _Scatter, names: set[str]) -> None:
        self.s, self.x, self.names = s, x, names
        self.d = s.updates[x.number]
        self.here = identity(len(s.shape))
        self.made: list[Stage] = []
        self.before = self._before()
        self.element = self._element()

    def stages(self) -> list[Stage]:
        """In order; the last one has the name of the stage."""
        of: Mapping[str, Callable[[], Expr]] = {
            "store": self._last_writes,
            "add": self._sums,
            "maximum": self._extremes,
            "minimum": self._extremes,
        }
        value = (of[self.x.op] if self.s.dtype.kind == "f" or self.x.op == "store" else self._words)()
        return [*self.made, replace(self.s, initial=value, updates=self.s.updates[self.x.number + 1 :])]

    # -- parts
    def _stage(self, s: Stage) -> str:
        self.names.add(s.name)
        self.made.append(s)
        return s.name

    def _before(self) -> Expr:
        """An element before the scatter."""
        assert self.s.initial is not None
        updates = self.s.updates[: self.x.number]
        if not updates:
            return self.s.initial
        name = fresh(f"{self.s.name}_before", self.names)
        renamed = map_exprs(replace(self.s, name=name, updates=updates), lambda e: with_source(e, self.s.name, name))
        return Load(self._stage(renamed), self.here, self.s.dtype)

    def _element(self) -> Expr:
        """What is scattered, in the dimensions of the scatter: a stage where it is more than a number that is read."""
        e, d = self.x.element, self.d
        inner = e.arg if isinstance(e, Cast) else e
        if isinstance(inner, (Const, Load)) and not any(p.exprs for x in e.loads for p in x.index):
            return e
        values = Stage(fresh(f"{self.s.name}_values", self.names), e.dtype, d.extents, e, (), self.s.origin)
        return Load(self._stage(values), identity(len(d.extents)), e.dtype)

    def _scattered(self, word: str, op: str, initial: Expr, element: Expr) -> Load:
        """A scatter of whole numbers; an element of it, in the dimensions of the scatter's stage."""
        name, dtype = fresh(f"{self.s.name}_{word}", self.names), element.dtype
        value = Op(op, (Load(name, self.d.target, dtype), element), dtype)
        update = Definition((), self.d.extents, self.d.target, value, op)
        return Load(self._stage(Stage(name, dtype, self.s.shape, initial, (update,), self.s.origin)), self.here, dtype)

    # -- kinds
    def _last_writes(self) -> Expr:
        extents = self.d.extents
        number = ZERO
        for k, n in enumerate(extents):
            number = number * n + poly(Dim(k))
        last = self._scattered("last", "maximum", Const(-1, I8), Index(number))
        rest: Expr = Op("maximum", (last, Const(0, I8)), I8)
        places: list[Poly] = []
        for n in reversed(extents[1:]):
            places.insert(0, poly(Indirect(Op("remainder", (rest, Index(n)), I8), None)))
            rest = Op("floor_divide", (rest, Index(n)), I8)
        places.insert(0, poly(Indirect(rest, None)))
        value = cast(substitute(self.element, renumber(places)), self.s.dtype)
        return select(Op("greater_equal", (last, Const(0, I8)), BOOL), value, self.before)

    def _sums(self) -> Expr:
        x = cast(self.element, F8)
        bits = Op("bitcast", (x,), I8)
        exponent = Op("bitwise_and", (Op("right_shift", (bits, Const(MANTISSA, I8)), I8), Const(INFINITE, I8)), I8)
        is_finite = Op("less", (exponent, Const(INFINITE, I8)), BOOL)
        kinds = self._scattered("kinds", "bitwise_or", Const(0, I4), _kinds(x, bits, is_finite))
        largest = self._scattered(
            "exponents", "maximum", Const(0, I4), select(is_finite, cast(exponent, I4), Const(0, I4))
        )
        there = Load(largest.source, self.d.target, I4)
        finite = select(is_finite, x, Const(0.0, F8))
        scaled = _ldexp(finite, Op("subtract", (Const(FIXED + BELOW, I4), there), I4))
        high = Op("rint", (scaled,), F8)
        total = self._fixed("sums", high, largest, FIXED + BELOW)
        if self.s.dtype == F8:
            rest = Op("rint", (_ldexp(Op("subtract", (scaled, high), F8), Const(FIXED, I4)),), F8)
            total = Op("add", (total, self._fixed("rests", rest, largest, 2 * FIXED + BELOW)), F8)
        added = Op("add", (cast(self.before, F8), _with_kinds(kinds, total)), F8)
        return select(Op("equal", (kinds, Const(0, I4)), BOOL), self.before, cast(added, self.s.dtype))

    def _fixed(self, word: str, element: Expr, largest: Load, shift: int) -> Expr:
        """A sum of fixed-point numbers, as a float."""
        found = self._scattered(word, "add", Const(0, I8), cast(element, I8))
        return _ldexp(cast(found, F8), Op("subtract", (largest, Const(shift, I4)), I4))

    def _extremes(self) -> Expr:
        op, x = self.x.op, cast(self.element, F8)
        end = np.iinfo(I8).min if op == "maximum" else np.iinfo(I8).max
        none, nan = Const(end, I8), Const(-1 - end, I8)
        is_nan = Op("not_equal", (x, x), BOOL)
        found = self._scattered("keys", op, none, select(is_nan, nan, _key(Op("bitcast", (x,), I8))))
        value = select(Op("equal", (found, nan), BOOL), Const(np.nan, F8), Op("bitcast", (_key(found),), F8))
        joined = Op(op, (self.before, cast(value, self.s.dtype)), self.s.dtype)
        return select(Op("equal", (found, none), BOOL), self.before, joined)

    def _words(self) -> Expr:
        found = self._scattered("words", WORDS[self.x.op], cast(self.before, I4), cast(self.element, I4))
        return cast(found, self.s.dtype)


def _ldexp(x: Expr, exponent: Expr) -> Expr:
    return Op("ldexp", (x, exponent), F8)


def _key(bits: Expr) -> Expr:
    """A whole number in the order of floats, of the bits of one; and the bits, of that."""
    flipped = Op("bitwise_xor", (bits, Const(np.iinfo(I8).max, I8)), I8)
    return select(Op("less", (bits, Const(0, I8)), BOOL), flipped, bits)


def _kinds(x: Expr, bits: Expr, is_finite: Expr) -> Expr:
    """Which of `NAN`, `PLUS`, `MINUS` and `ANY` a number is."""
    is_zero = Op("equal", (bits, Const(np.iinfo(I8).min, I8)), BOOL)  # -0.0: to add it changes nothing
    is_plus = Op("greater", (x, Const(0.0, F8)), BOOL)
    infinite = select(is_plus, Const(PLUS, I4), Const(MINUS, I4))
    is_nan = Op("not_equal", (x, x), BOOL)
    return select(is_finite, select(is_zero, Const(0, I4), Const(ANY, I4)), select(is_nan, Const(NAN, I4), infinite))


def _with_kinds(kinds: Expr, total: Expr) -> Expr:
    """A sum of finite numbers, or NaN or an infinity according to the kinds of its terms."""
    odd = Op("bitwise_and", (kinds, Const(NAN | PLUS | MINUS, I4)), I4)

    def chosen(kind: int, value: float, otherwise: Expr) -> Expr:
        return select(Op("equal", (odd, Const(kind, I4)), BOOL), Const(value, F8), otherwise)

    infinite = chosen(PLUS, np.inf, chosen(MINUS, -np.inf, Const(np.nan, F8)))
    return select(Op("equal", (odd, Const(0, I4)), BOOL), total, infinite)
