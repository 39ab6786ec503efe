"""Sliding windows: how far what is needed of a stage moves with a loop, and how early the loop must begin."""

from __future__ import annotations

from functools import lru_cache

from hjit.trace.ir.poly import FloorDiv, Poly, Var, poly


@lru_cache(maxsize=1 << 14)
def advance(p: Poly, var: Var, step: int) -> int | None:
    """An upper bound of how much an expression grows when `var` grows by `step` (which may be negative); None where it may fall."""
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


def turns_before(base: Poly, var: Var, step: int, reach: int, new: int, most: int) -> int | None:
    """How many turns of `step` before the first one a window must begin, so that no turn adds more than `new` elements; None: more than `most`.

    Args:
        base: what the window moves with.
        reach: from its first element to its last one.
    """
    for turns in range(most + 1):
        back = advance(base, var, -turns * step)
        if back is not None and back + reach + 1 <= new:
            return turns
    return None
