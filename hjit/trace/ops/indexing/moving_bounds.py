"""Bounds of slices that move with a loop whose iterations are traced as one, as in ``a[max(i - r, 0) : i + r + 1]``."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hjit.trace.ir.expressions import Const, Expr, Index, Load, Op
from hjit.trace.ir.poly import ZERO, Extremum, Poly, extremum, poly
from hjit.trace.tracing.arrays.tracer import is_tracer
from hjit.trace.tracing.recording.recorder import current
from hjit.trace.tracing.scalars.induction import CannotReroll, InductionVariable
from hjit.trace.tracing.scalars.moving import MovingLength, is_natural
from hjit.trace.tracing.scalars.size import Size


def moves_alone(x: Any, n: int, step: int) -> bool:
    """Does a bound of a slice move with a loop whose iterations are traced as one, whatever the other bound does?"""
    if step != 1 or not current().loops:
        return False
    if type(x) is InductionVariable:
        return not 0 <= min(x.ends()) <= max(x.ends()) <= n
    return is_tracer(x) and x.known is None and x.dtype.kind in "iu" and not x.ndim


def moving_bound(x: Any, n: int) -> Poly:
    """Such a bound inside the axis, as NumPy takes it.

    Raises:
        CannotReroll: it may be negative, or it is computed from arrays; or no program records these iterations.
    """
    rec = current()
    p = x.poly if type(x) is InductionVariable else _index_of(x.load())
    if type(x) is InductionVariable and min(x.known_ends()) >= 0:  # on this path
        p = extremum("max", x.poly, ZERO)
    if p is None or not is_natural(p, [(loop.var, *loop.ends) for loop in rec.loops], rec.sizes):
        raise rec.loops[-1].refusal("a bound of a slice that is computed")
    if not rec.records_program:
        why = rec.loops[-1].refusal("a slice whose length moves with the loop")
        raise CannotReroll(why.site, str(why), moving=True)
    return extremum("min", p, rec.poly(n))


_OF_INDICES: dict[str, Callable[[Poly, Poly], Poly]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "minimum": functools.partial(extremum, "min"),
    "maximum": functools.partial(extremum, "max"),
}


def _index_of(e: Expr) -> Poly | None:
    """A whole number as a polynomial, where it is one of sizes and variables of loops."""
    match e:
        case Index():
            return e.poly
        case Const() if e.dtype.kind in "iu":
            return poly(int(e.value))
        case Load() if not e.index:
            source = current().stages.get(e.source)
            if source is not None and source.initial is not None and not source.updates:
                current().rerolled.slice_bounds.add(e.source)
                return _index_of(source.initial)
        case Op() if e.name in _OF_INDICES and e.dtype == np.int64:
            a, b = map(_index_of, e.args)
            return None if a is None or b is None else _OF_INDICES[e.name](a, b)
    return None


def clamped(index: Poly, last: Poly) -> Poly:
    """An index that is in range on the path that is traced, for iterations that take another one, too."""
    found, rec = extremum("min", extremum("max", index, ZERO), last), current()
    rec.rerolled.clamped.update((a, index) for a in found.atoms() if isinstance(a, Extremum) and found == poly(a))
    return found


def window_behind_condition(k: slice, n: Any) -> tuple[Poly, Any] | None:
    """The first index and the length of a slice that moves with a loop and lies inside the axis on the path that is
    traced alone, as behind ``if 0 < y < h - 1``; None of others."""
    start, stop = k.start, k.stop
    is_moving = type(start) is InductionVariable and type(stop) is InductionVariable and start.loop is stop.loop
    if not is_moving or k.step is not None or type(n) is MovingLength:
        return None
    least, most = min(start.ends()), max(stop.ends())
    if least >= 0 and most <= n:  # on all paths
        return None
    (least, *_), (*_, most) = sorted(start.known_ends()), sorted(stop.known_ends())
    count = stop - start
    if type(count) not in (int, Size) or not 0 < count <= n or least < 0 or most > n:
        return None
    rec = current()
    return clamped(rec.poly(start), rec.poly(n) - rec.poly(count)), count
