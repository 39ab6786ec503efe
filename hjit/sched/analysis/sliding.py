"""Sliding windows: how far the required region of a stage moves with a loop, and how many warm-up iterations it needs.

Of the region that an iteration requires, earlier ones have computed all but the last elements (`Arithmetic.newest`): as
many as its base moves (`hjit.trace.ir.intervals.Interval.base`). Lowering must not compute fewer, so `advance` is an
upper bound for known steps. Features, whose steps are those of many tilings, use `rates`: means over all iterations,
which add up along chains of stages.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from hjit.trace.ir.poly import Dim, FloorDiv, Poly, Var, poly

Speeds = tuple[Fraction, ...]  # for each axis the elements by which a region moves with one of a loop's dimension
STILL = Fraction(0)


@lru_cache(maxsize=1 << 14)
def advance(p: Poly, var: Var, step: int) -> int | None:
    """An upper bound of the growth of an expression when `var` grows by `step` (which may be negative); None if it may
    decrease."""
    total = 0
    for m, c in p.terms.items():
        if not any(a == var or poly(a).mentions(var) for a in m):
            continue
        if len(m) != 1 or c < 0:
            return None
        a = m[0]
        if a == var:
            total += c * step
        elif isinstance(a, FloorDiv) and a.by.is_const and not a.by.mentions(var):
            inner = advance(a.arg, var, step)
            if inner is None:
                return None
            total += c * -(-inner // a.by.const)
        else:
            return None
    return total


def warm_up_iterations(base: Poly, var: Var, step: int, reach: int, new: int, most: int) -> int | None:
    """How many iterations of `step` earlier a window must start, so that none adds more than `new` elements; None: more
    than `most`.

    Args:
        base: what the window moves with.
        reach: from its first element to its last one.
    """
    for n in range(most + 1):
        back = advance(base, var, -n * step)
        if back is not None and back + reach + 1 <= new:
            return n
    return None


def rates(p: Poly) -> dict[int, Fraction]:
    """How far a base moves with each dimension."""
    found: dict[int, Fraction] = {}
    for (a,), c in p.terms.items():
        if isinstance(a, Dim):
            found[a.k] = found.get(a.k, STILL) + c
        elif isinstance(a, FloorDiv):
            for k, rate in rates(a.arg).items():
                found[k] = found.get(k, STILL) + rate * c / a.by.const
    return found
